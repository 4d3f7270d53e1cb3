//! TLS 1.3 with Ed25519 raw public keys on both sides (RFC 7250): no certificates, no names, no dates.
//!
//! A sender pins the receiver's key. A receiver accepts any key in the handshake, and then admits the peer by
//! ticket or by list.

use crate::identity::{Identity, PublicKey};
use crate::key_log::KeyLog;
use quinn_proto::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls13_signature_with_raw_key};
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer, ServerName, SubjectPublicKeyInfoDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::sign::CertifiedKey;
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, PeerIncompatible, SignatureScheme,
};
use std::sync::Arc;

/// The application protocol (ALPN, RFC 7301).
pub(crate) const ALPN: &[u8] = b"millrace/0";
/// The start of the error for a peer that presents another key than the expected one.
pub(crate) const WRONG_KEY: &str = "the peer presents the key ";
/// The name in the handshake; no one checks it.
pub(crate) const SERVER_NAME: &str = "millrace";
/// The SubjectPublicKeyInfo of an Ed25519 key, before its 32 bytes (RFC 8410, section 4).
const SPKI_PREFIX: [u8; 12] = [
    0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00,
];

/// Returns the key in a SubjectPublicKeyInfo, if it is an Ed25519 key.
pub(crate) fn key_of_spki(spki: &[u8]) -> Option<PublicKey> {
    let key = spki.strip_prefix(&SPKI_PREFIX)?;
    Some(PublicKey::new(key.try_into().ok()?))
}

fn certified_key(identity: &Identity) -> Result<Arc<CertifiedKey>, Error> {
    let pkcs8 = PrivatePkcs8KeyDer::from(identity.pkcs8());
    let key = rustls::crypto::ring::sign::any_eddsa_type(&pkcs8)?;
    let spki = [&SPKI_PREFIX[..], identity.public_key().bytes()].concat();
    Ok(Arc::new(CertifiedKey::new(vec![CertificateDer::from(spki)], key)))
}

fn key_log_of(key_log: Option<&KeyLog>) -> Arc<dyn rustls::KeyLog> {
    match key_log {
        Some(key_log) => Arc::new(key_log.clone()),
        None => Arc::new(rustls::NoKeyLog),
    }
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

/// Returns the configuration of a sender that expects this receiver.
pub(crate) fn client(
    identity: &Identity,
    receiver: PublicKey,
    key_log: Option<&KeyLog>,
) -> Result<QuicClientConfig, Error> {
    let verifier = Arc::new(KeyVerifier {
        expected: Some(receiver),
        provider: provider(),
    });
    let resolver = rustls::client::AlwaysResolvesClientRawPublicKeys::new(certified_key(identity)?);
    let mut config = rustls::ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_client_cert_resolver(Arc::new(resolver));
    config.alpn_protocols = vec![ALPN.to_vec()];
    config.enable_early_data = false;
    config.key_log = key_log_of(key_log);
    config.resumption = rustls::client::Resumption::disabled();
    QuicClientConfig::try_from(config).map_err(|_| Error::General("no initial cipher suite".into()))
}

/// Returns the configuration of a receiver.
pub(crate) fn server(identity: &Identity, key_log: Option<&KeyLog>) -> Result<QuicServerConfig, Error> {
    let verifier = Arc::new(KeyVerifier {
        expected: None,
        provider: provider(),
    });
    let resolver = rustls::server::AlwaysResolvesServerRawPublicKeys::new(certified_key(identity)?);
    let mut config = rustls::ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_client_cert_verifier(verifier)
        .with_cert_resolver(Arc::new(resolver));
    config.alpn_protocols = vec![ALPN.to_vec()];
    config.max_early_data_size = 0;
    config.key_log = key_log_of(key_log);
    config.send_tls13_tickets = 0;
    QuicServerConfig::try_from(config).map_err(|_| Error::General("no initial cipher suite".into()))
}

/// Verifies that the peer holds the key that it presents, and that it is the expected one.
#[derive(Debug)]
struct KeyVerifier {
    expected: Option<PublicKey>,
    provider: Arc<CryptoProvider>,
}

impl KeyVerifier {
    fn check(&self, spki: &CertificateDer<'_>) -> Result<(), Error> {
        let key = key_of_spki(spki).ok_or(CertificateError::BadEncoding)?;
        match self.expected {
            Some(expected) if expected != key => Err(Error::General(format!(
                "{WRONG_KEY}{key} and not {expected}; if its key was changed on purpose, name it as KEY@HOST:PORT, or use a new ticket"
            ))),
            _ => Ok(()),
        }
    }

    fn signature(
        &self,
        message: &[u8],
        spki: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature_with_raw_key(
            message,
            &SubjectPublicKeyInfoDer::from(spki.as_ref()),
            signature,
            &self.provider.signature_verification_algorithms,
        )
    }
}

impl ServerCertVerifier for KeyVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.check(end_entity)?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(PeerIncompatible::Tls12NotOffered.into())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        spki: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.signature(message, spki, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

impl ClientCertVerifier for KeyVerifier {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.check(end_entity)?;
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(PeerIncompatible::Tls12NotOffered.into())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        spki: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.signature(message, spki, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}
