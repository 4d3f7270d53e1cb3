//! What can be wrong with certificates, said so that a person knows which file to look at.

use std::io;
use std::path::PathBuf;

use millrace_model as model;
use rustls::pki_types::pem;
use rustls::{AlertDescription, CertificateError, Error};
use thiserror::Error as ThisError;

/// Why the files of a bridge are of no use.
#[derive(Debug, ThisError)]
pub(in crate::channel) enum TlsFault {
    /// There is no `tls` in the configuration.
    #[error("the bridge has no `tls`: expected `private_key`, `certificate` and `ca_certificate`")]
    NotConfigured,
    /// A file cannot be read.
    #[error("{what} {}: {source}", path.display())]
    Unreadable {
        /// The key of the configuration.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A file holds something else.
    #[error("{what} {}: expected a PEM file with -----BEGIN {expected}-----: {}", path.display(), said(source))]
    NoPem {
        /// The key of the configuration.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// What should be in it.
        expected: &'static str,
        /// What is wrong.
        source: pem::Error,
    },
    /// Key and certificate are not of one pair.
    #[error("the private key {} does not belong to the certificate {}", key.display(), certificate.display())]
    KeyMismatch {
        /// The file of the key.
        key: PathBuf,
        /// The file of the certificate.
        certificate: PathBuf,
    },
    /// One certificate of the authorities cannot be used.
    #[error("ca_certificate {}: certificate {number} in it cannot be used: {source}", path.display())]
    Authority {
        /// The file.
        path: PathBuf,
        /// Which, from 1.
        number: usize,
        /// Why.
        source: Error,
    },
    /// The contents cannot be used.
    #[error("{}: cannot be used: {source}", path.display())]
    Unusable {
        /// The file.
        path: PathBuf,
        /// Why.
        source: Error,
    },
}

fn said(error: &pem::Error) -> String {
    match error {
        pem::Error::NoItemsFound => "there is none".to_owned(),
        other => other.to_string(),
    }
}

/// What TLS has to say of a connection: all of it, with what to do.
#[derive(Debug, ThisError)]
#[error("TLS: {0}")]
pub(in crate::channel) struct TlsTrouble(String);

impl From<TlsFault> for io::Error {
    fn from(fault: TlsFault) -> io::Error {
        io::Error::other(TlsTrouble(fault.to_string()))
    }
}

/// The error of a connection with a remedy in it, if it is one of TLS.
pub(in crate::channel) fn explain(error: io::Error, files: &model::Tls) -> io::Error {
    let kind = error.kind();
    let text = match error.get_ref().and_then(|inner| inner.downcast_ref::<Error>()) {
        Some(inner) => explanation(inner, files),
        None if kind == io::ErrorKind::UnexpectedEof => Some(
            "TLS: the controller closed the connection during the handshake; does it speak TLS there?"
                .to_owned(),
        ),
        None => None,
    };
    text.map_or(error, |text| io::Error::new(kind, TlsTrouble(text)))
}

/// What an error of TLS means here.
fn explanation(error: &Error, files: &model::Tls) -> Option<String> {
    let authorities = files.ca_certificate.display();
    let certificate = files.certificate.display();
    let text = match error {
        Error::InvalidCertificate(reason) => match reason {
            CertificateError::UnknownIssuer | CertificateError::BadSignature => {
                format!("the controller's certificate is not signed by an authority in {authorities}")
            }
            CertificateError::Expired => "the controller's certificate has expired".to_owned(),
            CertificateError::ExpiredContext { not_after, .. } => {
                format!(
                    "the controller's certificate has expired: it was valid until second {} since 1970",
                    not_after.as_secs()
                )
            }
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
                "the controller's certificate is not valid yet: is the clock right on both sides?".to_owned()
            }
            CertificateError::NotValidForName => {
                "the controller's certificate is for another host".to_owned()
            }
            CertificateError::NotValidForNameContext { expected, presented } => {
                let presented = match presented.as_slice() {
                    [] => "none".to_owned(),
                    names => names.join(", "),
                };
                format!(
                    "the controller's certificate is for another host: expected {}, found {presented}; `check_names = \
                     false` accepts any name",
                    expected.to_str()
                )
            }
            other => format!("the controller's certificate cannot be used: {other}"),
        },
        Error::NoCertificatesPresented => {
            format!(
                "the controller shows no certificate: expected one that an authority in {authorities} signed"
            )
        }
        Error::AlertReceived(alert) => match alert {
            AlertDescription::UnknownCA => {
                format!(
                    "the controller refuses our certificate {certificate}: it does not know who signed it"
                )
            }
            AlertDescription::CertificateExpired => {
                format!("the controller refuses our certificate {certificate}: it has expired")
            }
            AlertDescription::BadCertificate
            | AlertDescription::CertificateUnknown
            | AlertDescription::CertificateRevoked
            | AlertDescription::UnsupportedCertificate
            | AlertDescription::DecryptError
            | AlertDescription::AccessDenied
            | AlertDescription::CertificateRequired => {
                format!("the controller refuses our certificate {certificate}: {alert:?}")
            }
            other => format!("the controller ends the handshake: {other:?}"),
        },
        Error::InvalidMessage(_) | Error::InappropriateMessage { .. } => {
            format!("what the controller sends is not TLS ({error}): does it speak TLS there?")
        }
        Error::PeerIncompatible(reason) => {
            format!("no version or cipher in common: {reason:?}; expected TLS 1.2 or 1.3")
        }
        _ => return None,
    };
    Some(text)
}
