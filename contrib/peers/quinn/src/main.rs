//! A file by QUIC with quinn, for `millrace bench transport`: one connection, one stream, BBR, and windows larger than the
//! path's product of rate and delay.
//!
//! ```text
//! quinn receive DIRECTORY NODE            receives one file as DIRECTORY/source, and ends
//! quinn send FILE RATE RECEIVERS ADDRESS  sends FILE; RATE and RECEIVERS are those of other peers, and are ignored
//! ```

use std::error::Error;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Instant;

use quinn::crypto::rustls::QuicClientConfig;
use quinn::{ClientConfig, Endpoint, EndpointConfig, ServerConfig, TokioRuntime, TransportConfig, VarInt};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName, UnixTime};
use rustls::{DigitallySignedStruct, SignatureScheme};

const PORT: u16 = 9200;
/// Twice 1 Gbit/s x 400 ms.
const WINDOW: u32 = 100_000_000;
/// The wanted size of the socket's buffers.
const SOCKET_BUFFER: usize = 8 << 20;
/// The size of a read or write of a file.
const BLOCK: usize = 1 << 20;

type Failure = Box<dyn Error + Send + Sync>;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["receive", directory, _node] => receive(directory).await,
        ["send", file, _rate, _receivers, address] => send(file, address.parse()?).await,
        _ => Err("usage: quinn receive DIRECTORY NODE | send FILE RATE RECEIVERS ADDRESS".into()),
    }
}

/// Returns the settings of both ends.
fn transport() -> Arc<TransportConfig> {
    let mut config = TransportConfig::default();
    config
        .stream_receive_window(VarInt::from_u32(WINDOW))
        .receive_window(VarInt::from_u32(WINDOW))
        .send_window(u64::from(WINDOW))
        .congestion_controller_factory(Arc::new(quinn::congestion::BbrConfig::default()));
    Arc::new(config)
}

async fn receive(directory: &str) -> Result<(), Failure> {
    let issued = rcgen::generate_simple_self_signed(["receiver".to_owned()])?;
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(issued.signing_key.serialize_der()));
    let mut config = ServerConfig::with_single_cert(vec![issued.cert.der().clone()], key)?;
    config.transport_config(transport());
    let endpoint = endpoint(SocketAddr::from((Ipv4Addr::UNSPECIFIED, PORT)), Some(config))?;
    let incoming = endpoint.accept().await.ok_or("the endpoint was closed")?;
    let connection = incoming.await?;
    let (mut answer, mut stream) = connection.accept_bi().await?;
    let mut file = std::fs::File::create(format!("{directory}/source"))?;
    // Chunks are gathered, so that the file gets large writes as from other programs.
    let mut block = Vec::with_capacity(2 * BLOCK);
    while let Some(chunk) = stream.read_chunk(BLOCK, true).await? {
        block.extend_from_slice(&chunk.bytes);
        if block.len() >= BLOCK {
            file.write_all(&block)?;
            block.clear();
        }
    }
    file.write_all(&block)?;
    answer.write_all(&[1]).await?;
    answer.finish()?;
    connection.closed().await;
    Ok(())
}

async fn send(path: &str, address: Ipv4Addr) -> Result<(), Failure> {
    let provider = Arc::new(ring::default_provider());
    let tls = rustls::ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(AnyCertificate(provider)))
        .with_no_client_auth();
    let mut config = ClientConfig::new(Arc::new(QuicClientConfig::try_from(tls)?));
    config.transport_config(transport());
    let mut endpoint = endpoint(SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)), None)?;
    endpoint.set_default_client_config(config);
    let start = Instant::now();
    let connection = endpoint.connect((address, PORT).into(), "receiver")?.await?;
    let (mut stream, mut answer) = connection.open_bi().await?;
    let mut file = std::fs::File::open(path)?;
    let mut block = vec![0; BLOCK];
    loop {
        let count = file.read(&mut block)?;
        if count == 0 {
            break;
        }
        stream.write_all(&block[..count]).await?;
    }
    stream.finish()?;
    if answer.read_to_end(1).await? != [1] {
        return Err("the receiver did not answer".into());
    }
    println!("{{\"seconds\": {:.6}}}", start.elapsed().as_secs_f64());
    connection.close(VarInt::from_u32(0), b"");
    endpoint.wait_idle().await;
    Ok(())
}

/// Returns an endpoint on a socket, whose buffers the kernel limits as those of every program of the test bed.
fn endpoint(address: SocketAddr, server: Option<ServerConfig>) -> Result<Endpoint, Failure> {
    let socket = UdpSocket::bind(address)?;
    let buffers = socket2::SockRef::from(&socket);
    buffers.set_recv_buffer_size(SOCKET_BUFFER)?;
    buffers.set_send_buffer_size(SOCKET_BUFFER)?;
    Ok(Endpoint::new(EndpointConfig::default(), server, socket, Arc::new(TokioRuntime))?)
}

/// Takes any certificate: the receiver of a measurement makes its own.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
