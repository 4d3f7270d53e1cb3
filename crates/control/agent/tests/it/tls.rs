//! TLS on listeners and to controllers: trusted peers are admitted, others are refused with a reason, and certificates are
//! renewed.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use crate::admission::{closed, silent_from};
use crate::harness::{PATIENCE, TestSwitch, wait_for};
use millrace_agent::channel::{ChannelKind, ChannelState, ChannelStatus};
use millrace_flow::{Field, Match};
use millrace_openflow::multipart::flow::FlowStatsRequest;
use millrace_openflow::multipart::{MultipartRequest, RequestBody};
use millrace_openflow::{Header, Hello, Message, decode, encode};
use millrace_types::Xid;
use rcgen::{CertificateParams, Issuer, KeyPair, SerialNumber};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection, StreamOwned};

/// A certificate authority.
struct Authority {
    params: CertificateParams,
    key: KeyPair,
    pem: String,
}

/// A certificate and its key, in PEM.
#[derive(Clone)]
struct Identity {
    certificate: String,
    key: String,
}

impl Authority {
    fn new(name: &str) -> Authority {
        let mut params = CertificateParams::new([]).unwrap();
        params.distinguished_name.push(rcgen::DnType::CommonName, name);
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        Authority { params, key, pem }
    }

    fn sign(&self, mut params: CertificateParams, serial: u64) -> Identity {
        params.serial_number = Some(SerialNumber::from(serial));
        let key = KeyPair::generate().unwrap();
        let issuer = Issuer::from_params(&self.params, &self.key);
        let certificate = params.signed_by(&key, &issuer).unwrap();
        Identity {
            certificate: certificate.pem(),
            key: key.serialize_pem(),
        }
    }

    fn identity(&self, host: &str, serial: u64) -> Identity {
        self.sign(CertificateParams::new([host.to_owned()]).unwrap(), serial)
    }

    fn roots(&self) -> Arc<RootCertStore> {
        let mut roots = RootCertStore::empty();
        roots
            .add(CertificateDer::from_pem_slice(self.pem.as_bytes()).unwrap())
            .unwrap();
        Arc::new(roots)
    }
}

impl Identity {
    fn parts(&self) -> (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>) {
        let chain = vec![CertificateDer::from_pem_slice(self.certificate.as_bytes()).unwrap()];
        (chain, PrivateKeyDer::from_pem_slice(self.key.as_bytes()).unwrap())
    }

    /// Writes both files, with a later modification time than before.
    fn store(&self, folder: &Path) {
        fs::write(folder.join("key.pem"), &self.key).unwrap();
        fs::write(folder.join("cert.pem"), &self.certificate).unwrap();
    }
}

/// The TLS files of a bridge, and both authorities: the one of the switch and the one of controllers.
struct Files {
    folder: tempfile::TempDir,
    ours: Authority,
    theirs: Authority,
}

impl Files {
    fn new() -> Files {
        let files = Files {
            folder: tempfile::tempdir().unwrap(),
            ours: Authority::new("switches"),
            theirs: Authority::new("controllers"),
        };
        files.ours.identity("switch.example", 1).store(files.path());
        fs::write(files.path().join("ca.pem"), &files.theirs.pem).unwrap();
        files
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Returns the configuration of a bridge with these files, after other settings.
    fn config(&self, settings: &str) -> String {
        let folder = self.path().display();
        format!(
            "[[bridge]]\nname = \"br0\"\n{settings}\n[bridge.tls]\nprivate_key = \"{folder}/key.pem\"\ncertificate = \
             \"{folder}/cert.pem\"\nca_certificate = \"{folder}/ca.pem\"\n"
        )
    }

    /// Returns the TLS configuration of a controller that connects with this certificate, if any.
    fn client(&self, identity: Option<&Identity>) -> Arc<ClientConfig> {
        let config = ClientConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(self.ours.roots());
        Arc::new(match identity {
            Some(identity) => {
                let (chain, key) = identity.parts();
                config.with_client_auth_cert(chain, key).unwrap()
            }
            None => config.with_no_client_auth(),
        })
    }

    /// Returns the TLS configuration of a controller that listens with this certificate.
    fn server(&self, identity: &Identity) -> Arc<ServerConfig> {
        let clients = WebPkiClientVerifier::builder_with_provider(self.ours.roots(), provider())
            .build()
            .unwrap();
        let (chain, key) = identity.parts();
        let config = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_client_cert_verifier(clients)
            .with_single_cert(chain, key)
            .unwrap();
        Arc::new(config)
    }
}

fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

fn socket(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

fn connect(address: SocketAddr, config: Arc<ClientConfig>) -> StreamOwned<ClientConnection, TcpStream> {
    let connection = ClientConnection::new(config, "switch.example".try_into().unwrap()).unwrap();
    StreamOwned::new(connection, socket(address))
}

fn say(stream: &mut impl Write, message: &Message) -> std::io::Result<()> {
    say_with(stream, message, Xid(1))
}

fn say_with(stream: &mut impl Write, message: &Message, xid: Xid) -> std::io::Result<()> {
    let mut bytes = Vec::new();
    encode(message, xid, &mut bytes).unwrap();
    stream.write_all(&bytes)?;
    stream.flush()
}

/// Returns the next message that is no echo request. Echo requests are answered.
fn receive(stream: &mut (impl Read + Write)) -> std::io::Result<Message> {
    loop {
        let mut bytes = vec![0; 8];
        stream.read_exact(&mut bytes)?;
        let size = usize::from(Header::parse(&bytes).unwrap().length);
        bytes.resize(size, 0);
        stream.read_exact(&mut bytes[8..])?;
        match decode(&bytes).unwrap() {
            (header, Message::EchoRequest(data)) => {
                say_with(stream, &Message::EchoReply(data), header.xid)?;
            }
            (_, message) => return Ok(message),
        }
    }
}

/// Exchanges HELLO, if both sides trust each other.
fn greet(stream: &mut (impl Read + Write)) -> std::io::Result<()> {
    say(stream, &Message::Hello(Hello::OURS))?;
    assert_eq!(receive(stream)?, Message::Hello(Hello::OURS));
    assert_answers(stream);
    Ok(())
}

fn assert_answers(stream: &mut (impl Read + Write)) {
    say(stream, &Message::BarrierRequest).unwrap();
    assert_eq!(receive(stream).unwrap(), Message::BarrierReply);
}

fn error_of(switch: &TestSwitch, kind: ChannelKind) -> String {
    wait_for("an error", || {
        let channels: Vec<ChannelStatus> = switch.channels();
        channels.into_iter().find(|line| line.kind == kind)?.last_error
    })
}

const LISTEN: &str = "listen = [\"ptls:0\"]";

#[test]
fn a_controller_with_a_trusted_certificate_is_admitted_and_others_get_the_reason() {
    let files = Files::new();
    let switch = TestSwitch::start(&files.config(LISTEN));
    let address = switch.address();
    let good = files.theirs.identity("controller.example", 2);
    greet(&mut connect(address, files.client(Some(&good)))).unwrap();

    assert!(greet(&mut connect(address, files.client(None))).is_err());
    let reason = error_of(&switch, ChannelKind::Listener);
    assert!(
        reason.contains("shows no certificate") && reason.contains("ca.pem"),
        "{reason}"
    );

    let unknown = Authority::new("unknown").identity("controller.example", 3);
    assert!(greet(&mut connect(address, files.client(Some(&unknown)))).is_err());
    wait_for("the unknown authority is named", || {
        error_of(&switch, ChannelKind::Listener)
            .contains("is not signed by an authority in")
            .then_some(())
    });

    let mut params = CertificateParams::new(["controller.example".to_owned()]).unwrap();
    params.not_before = rcgen::date_time_ymd(2001, 1, 1);
    params.not_after = rcgen::date_time_ymd(2002, 1, 1);
    let expired = files.theirs.sign(params, 4);
    assert!(greet(&mut connect(address, files.client(Some(&expired)))).is_err());
    wait_for("the expiry is named", || {
        error_of(&switch, ChannelKind::Listener)
            .contains("has expired")
            .then_some(())
    });

    let mut plain = socket(address);
    say(&mut plain, &Message::Hello(Hello::OURS)).unwrap();
    wait_for("no TLS is named", || {
        error_of(&switch, ChannelKind::Listener)
            .contains("does not send TLS")
            .then_some(())
    });
}

#[test]
fn a_controller_is_admitted_at_once_beside_hundreds_of_handshakes_that_never_begin() {
    let files = Files::new();
    let switch = TestSwitch::start(&files.config(LISTEN));
    let address = switch.address();
    let mut silent: Vec<TcpStream> = (0..300)
        .map(|number| silent_from(&switch, 2 + number as u8 % 100, address))
        .collect();
    let good = files.theirs.identity("controller.example", 2);
    greet(&mut connect(address, files.client(Some(&good)))).unwrap();
    // A handshake ends after ten seconds at most. If all of them have ended, the controller waited for them.
    assert!(
        closed(&mut silent) < silent.len(),
        "the controller waited for all others"
    );
}

#[test]
fn a_controller_is_called_over_tls_and_its_certificate_must_be_for_its_host() {
    let files = Files::new();
    let accept = |listener: &TcpListener, identity: &Identity| {
        let (tcp, _) = listener.accept().unwrap();
        tcp.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut stream = StreamOwned::new(ServerConnection::new(files.server(identity)).unwrap(), tcp);
        greet(&mut stream).map(|()| stream)
    };
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let config = files.config(&format!("controllers = [\"ssl:127.0.0.1:{port}\"]"));
    let mut switch = TestSwitch::start(&config);

    let unknown = Authority::new("unknown").identity("127.0.0.1", 3);
    assert!(accept(&listener, &unknown).is_err());
    let reason = error_of(&switch, ChannelKind::Active);
    assert!(
        reason.contains("is not signed by an authority in") && reason.contains("ca.pem"),
        "{reason}"
    );

    let elsewhere = files.theirs.identity("elsewhere.example", 4);
    assert!(accept(&listener, &elsewhere).is_err());
    wait_for("the other name is reported", || {
        let reason = error_of(&switch, ChannelKind::Active);
        (reason.contains("expected 127.0.0.1") && reason.contains("elsewhere.example")).then_some(())
    });

    let mut stream = accept(&listener, &files.theirs.identity("127.0.0.1", 5)).unwrap();
    let is_connected = |status: &ChannelStatus| status.state == ChannelState::Connected;
    assert!(switch.channels().iter().any(is_connected));
    assert_answers(&mut stream);

    // Auxiliary connections use TLS, too.
    drop(stream);
    let with_auxiliary = config.replace(
        &format!("[\"ssl:127.0.0.1:{port}\"]"),
        &format!("[{{ target = \"ssl:127.0.0.1:{port}\", auxiliary = 1 }}]"),
    );
    switch.apply(&with_auxiliary);
    let here = files.theirs.identity("127.0.0.1", 6);
    let (mut main, mut auxiliary) = (
        accept(&listener, &here).unwrap(),
        accept(&listener, &here).unwrap(),
    );
    for (stream, id) in [(&mut main, 0), (&mut auxiliary, 1)] {
        say(stream, &Message::FeaturesRequest).unwrap();
        let Message::FeaturesReply(features) = receive(stream).unwrap() else {
            panic!()
        };
        assert_eq!(features.auxiliary_id, id);
    }
    drop((main, auxiliary));
    switch.apply(&config);
    let mut stream = accept(&listener, &here).unwrap();

    // As in Open vSwitch, a certificate with any name is accepted if the authority signed it.
    switch.apply(&format!("{config}check_names = false\n"));
    assert_answers(&mut stream);
    drop(stream);
    assert_answers(&mut accept(&listener, &elsewhere).unwrap());
}

#[test]
fn new_connections_use_new_files_and_those_that_are_up_stay() {
    let files = Files::new();
    let switch = TestSwitch::start(&files.config(LISTEN));
    let client = || {
        connect(
            switch.address(),
            files.client(Some(&files.theirs.identity("controller.example", 2))),
        )
    };
    let shown = |stream: &StreamOwned<ClientConnection, TcpStream>| {
        stream.conn.peer_certificates().unwrap()[0].clone()
    };
    let mut first = client();
    greet(&mut first).unwrap();

    let renewed = files.ours.identity("switch.example", 77);
    renewed.store(files.path());
    let stamp = SystemTime::now() + core::time::Duration::from_secs(5);
    for name in ["key.pem", "cert.pem"] {
        fs::File::options()
            .append(true)
            .open(files.path().join(name))
            .unwrap()
            .set_modified(stamp)
            .unwrap();
    }
    let mut second = client();
    greet(&mut second).unwrap();
    assert_eq!(shown(&second), renewed.parts().0[0]);
    assert_ne!(shown(&first), shown(&second));
    assert_answers(&mut first);

    // Invalid files do not replace the certificate in use.
    fs::write(files.path().join("cert.pem"), "half a").unwrap();
    let mut third = client();
    greet(&mut third).unwrap();
    assert_eq!(shown(&third), shown(&second));
    assert_answers(&mut first);
}

#[test]
fn a_problem_with_a_file_names_the_file_and_ends_with_the_next_apply() {
    let files = Files::new();
    let [key, cert, ca] = ["key.pem", "cert.pem", "ca.pem"].map(|name| files.path().join(name));
    let other = files.ours.identity("switch.example", 9);
    let cases = [
        (&key, None, "No such file"),
        (
            &cert,
            Some("no PEM".to_owned()),
            "expected a PEM file with -----BEGIN CERTIFICATE-----",
        ),
        (
            &key,
            Some(files.ours.pem.clone()),
            "expected a PEM file with -----BEGIN PRIVATE KEY-----",
        ),
        (&ca, Some(String::new()), "there is none"),
        (
            &key,
            Some(other.key.clone()),
            "does not belong to the certificate",
        ),
        (
            &ca,
            Some("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n".to_owned()),
            "certificate 1 in it cannot be used",
        ),
    ];
    for (path, contents, expected) in cases {
        let before = fs::read_to_string(path).unwrap();
        match contents {
            Some(text) => fs::write(path, text).unwrap(),
            None => fs::remove_file(path).unwrap(),
        }
        let mut switch = TestSwitch::start("[[bridge]]\nname = \"br0\"\n");
        let status = switch.apply(&files.config(LISTEN));
        let [problem] = &status.problems[..] else {
            panic!("{expected}: {:?}", status.problems)
        };
        assert_eq!(problem.object, "bridge br0, tls");
        assert!(problem.reason.contains(expected), "{}", problem.reason);
        assert!(
            problem.reason.contains(&path.display().to_string()),
            "{}",
            problem.reason
        );
        fs::write(path, before).unwrap();
        assert_eq!(switch.apply(&files.config(LISTEN)).problems, []);
        let good = files.theirs.identity("controller.example", 2);
        greet(&mut connect(switch.address(), files.client(Some(&good)))).unwrap();
    }
}

#[test]
fn a_rotation_that_broke_is_a_problem_until_the_files_are_good_again_and_an_expired_certificate_is_one() {
    let files = Files::new();
    let switch = TestSwitch::start(&files.config(LISTEN));
    let problems = || switch.switch.status().problems;
    assert_eq!(problems(), []);
    let (key, cert) = (files.path().join("key.pem"), files.path().join("cert.pem"));
    let (before, certificate) = (
        fs::read_to_string(&key).unwrap(),
        fs::read_to_string(&cert).unwrap(),
    );
    fs::write(&key, files.ours.identity("switch.example", 9).key).unwrap();
    // Nobody connects meanwhile: the status itself reads the files.
    let [problem] = &problems()[..] else { panic!() };
    assert_eq!(problem.object, "bridge br0, tls");
    for part in [
        "does not belong to the certificate",
        "use the former contents",
        "To fix it: ",
    ] {
        assert!(problem.reason.contains(part), "{}", problem.reason);
    }
    fs::write(&key, before + "\n").unwrap();
    assert_eq!(problems(), []);
    let new = rcgen::KeyPair::generate().unwrap();
    let mut params = rcgen::CertificateParams::new(vec!["switch.example".to_owned()]).unwrap();
    (params.not_before, params.not_after) =
        (rcgen::date_time_ymd(2020, 1, 1), rcgen::date_time_ymd(2021, 1, 1));
    fs::write(&cert, params.self_signed(&new).unwrap().pem()).unwrap();
    fs::write(&key, new.serialize_pem()).unwrap();
    let [problem] = &problems()[..] else { panic!() };
    assert!(problem.reason.contains("has expired"), "{}", problem.reason);
    assert_ne!(certificate, fs::read_to_string(&cert).unwrap());
}

#[test]
fn a_long_listing_arrives_complete_no_matter_how_slowly_it_is_read() {
    let files = Files::new();
    let switch = TestSwitch::start(&files.config(LISTEN));
    let good = files.theirs.identity("controller.example", 2);
    let mut stream = connect(switch.address(), files.client(Some(&good)));
    greet(&mut stream).unwrap();
    const FLOWS: u32 = 20_000;
    let mut bytes = Vec::new();
    for port in 1..=FLOWS {
        let flow = crate::harness::flow(5, &[(Field::InPort, port.into())], &[crate::harness::output(1)]);
        encode(&Message::FlowMod(flow), Xid(port), &mut bytes).unwrap();
    }
    stream.write_all(&bytes).unwrap();
    assert_answers(&mut stream);
    let listing = RequestBody::Flow(FlowStatsRequest {
        match_: Match::any(),
        ..FlowStatsRequest::all()
    });
    say(
        &mut stream,
        &Message::MultipartRequest(MultipartRequest::new(listing)),
    )
    .unwrap();
    let mut found = 0;
    loop {
        let Message::MultipartReply(reply) = receive(&mut stream).unwrap() else {
            panic!()
        };
        let millrace_openflow::multipart::ReplyBody::Flow(part) = reply.body else {
            panic!()
        };
        found += part.len();
        if !reply.more {
            break;
        }
    }
    assert_eq!(found, FLOWS as usize);
}
