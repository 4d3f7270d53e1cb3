//! Tests of connections with switches that a program plays.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::AtomicBool;

use millrace_controller::driver::{Target, TlsFiles};
use millrace_ix_model::{Actor, Operation};
use millrace_ix_service::{OrderOptions, Service, Settings};
use millrace_ix_store::Sqlite;
use millrace_openflow::roles::{Role, RoleArbiter};
use millrace_openflow::{
    Capabilities, ErrorCode, ErrorMessage, HEADER_SIZE, Header, Hello, RoleMessage, SwitchFeatures, decode,
    encode,
};
use millrace_types::{Dpid, Xid};
use rcgen::{CertificateParams, Issuer, KeyPair};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::*;
use crate::log_lines::LogLines;

const ENGINE: u32 = 1;

/// A bound far above the time of any step of these tests.
const BOUND: Duration = Duration::from_secs(60);

/// Answers a controller as a switch does until `is_done`, or until the controller closes the connection.
fn play<S: Read + Write>(
    mut stream: S,
    mut arbiter: RoleArbiter<u32>,
    is_done: impl Fn(&RoleArbiter<u32>) -> bool,
) -> (S, RoleArbiter<u32>) {
    let mut answer = Some((Xid(1), Message::Hello(Hello::OURS)));
    while !is_done(&arbiter) {
        if let Some((xid, message)) = answer.take() {
            let mut bytes = Vec::new();
            encode(&message, xid, &mut bytes).unwrap();
            if stream.write_all(&bytes).is_err() {
                break;
            }
        }
        let mut bytes = vec![0; HEADER_SIZE];
        if stream.read_exact(&mut bytes).is_err() {
            break;
        }
        let header = Header::parse(&bytes).unwrap();
        bytes.resize(header.length.into(), 0);
        if stream.read_exact(&mut bytes[HEADER_SIZE..]).is_err() {
            break;
        }
        let reply = match decode(&bytes).unwrap().1 {
            Message::FeaturesRequest => Some(Message::FeaturesReply(SwitchFeatures {
                dpid: Dpid(1),
                buffers: 0,
                tables: 20,
                auxiliary_id: 0,
                capabilities: Capabilities::FLOW_STATS,
            })),
            Message::EchoRequest(data) => Some(Message::EchoReply(data)),
            Message::RoleRequest(request) => Some(match arbiter.request(ENGINE, Role::Equal, request) {
                Ok(change) => Message::RoleReply(change.reply),
                Err(_) => Message::Error(ErrorMessage {
                    code: ErrorCode::OFPRRFC_STALE,
                    data: Box::default(),
                }),
            }),
            _ => None,
        };
        answer = reply.map(|reply| (header.xid, reply));
    }
    (stream, arbiter)
}

/// An engine whose exchange has one switch, with datapath id 1, and its socket for switches.
struct World {
    _folder: tempfile::TempDir,
    runtime: tokio::runtime::Runtime,
    service: Service,
    switches: Switches,
    socket: std::path::PathBuf,
    log: LogLines,
}

impl World {
    fn new() -> World {
        let folder = tempfile::tempdir().unwrap();
        let store = Sqlite::open(&folder.path().join("exchange.db")).unwrap();
        let settings = Settings {
            engine: millrace_ix_engine::Settings::default(),
            extensions: false,
            audit_key: None,
        };
        let service = Service::start(Box::new(store), settings, drop).unwrap();
        let operations = [
            serde_json::json!({"operation": "create_site", "name": "Otemachi"}),
            serde_json::json!({"operation": "create_switch", "name": "ote-1", "site": "st-0", "dpid": "0000000000000001",
                "ports": [{"number": 1, "speed_mbps": 10000}]}),
        ];
        let operations: Vec<Operation> = operations
            .map(|value| serde_json::from_value(value).unwrap())
            .into();
        let socket = folder.path().join("openflow.sock");
        let openflow = OpenFlow {
            listen: vec![format!("unix:{}", socket.display())],
            private_key: None,
            certificate: None,
            ca_certificate: None,
            certificates: BTreeMap::new(),
            insecure: false,
        };
        let switches = Switches::default();
        let log = LogLines::default();
        let dispatch = log.dispatch();
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            // Each thread logs here until it ends.
            .on_thread_start(move || std::mem::forget(tracing::dispatcher::set_default(&dispatch)))
            .build()
            .unwrap();
        runtime.block_on(async {
            let (handle, options) = (service.handle(), OrderOptions::default());
            handle.order(operations, Actor::system(), options).await.unwrap();
            switches.listen(&openflow, 1, &handle).await.unwrap();
        });
        World {
            _folder: folder,
            runtime,
            service,
            switches,
            socket,
            log,
        }
    }

    /// Waits until a line of the log contains a text.
    fn wait_for_line(&self, text: &str) {
        wait_for(text, || self.log.count(text) > 0);
    }

    /// Returns the number of the present connection of the switch.
    fn present(&self) -> Option<u64> {
        let connected = self.switches.connected.lock();
        connected.values().next().map(|present| present.number)
    }

    fn id(&self) -> SwitchId {
        let handle = self.service.handle();
        *handle.snapshot().exchange.switches.keys().next().unwrap()
    }
}

/// Waits until a condition holds.
fn wait_for(what: &str, condition: impl Fn() -> bool) {
    let begin = std::time::Instant::now();
    while !condition() {
        assert!(begin.elapsed() < BOUND, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_switch_that_a_newer_database_led_accepts_the_engine_of_a_restored_one() {
    let world = World::new();
    let mut arbiter = RoleArbiter::default();
    let earlier = RoleMessage {
        role: RequestedRole::Master,
        generation_id: 12,
    };
    arbiter.request(2, Role::Equal, earlier).unwrap();
    arbiter.disconnected(2);
    let stream = UnixStream::connect(&world.socket).unwrap();
    let (_, arbiter) = play(stream, arbiter, |arbiter| arbiter.master().is_some());
    assert_eq!(arbiter.master(), Some(ENGINE));
    assert_eq!(world.switches.epoch.load(Ordering::Relaxed), 13);
    world.service.stop();
}

#[test]
fn a_second_connection_with_the_datapath_id_of_a_switch_is_refused_while_the_first_one_answers() {
    let world = World::new();
    let is_silent = Arc::new(AtomicBool::new(false));
    // A switch answers until its flag is set.
    let connect = |is_silent: Arc<AtomicBool>| {
        let stream = UnixStream::connect(&world.socket).unwrap();
        let is_done = move |_: &RoleArbiter<u32>| is_silent.load(Ordering::Relaxed);
        std::thread::spawn(move || play(stream, RoleArbiter::default(), is_done))
    };
    let first = connect(Arc::clone(&is_silent));
    wait_for("the switch is connected", || world.present().is_some());
    let number = world.present();
    let second = connect(Arc::default());
    wait_for("the second connection is closed", || second.is_finished());
    world.wait_for_line("a second connection with the datapath id of this switch is refused");
    assert_eq!(world.present(), number);
    // The first connection stays open and answers nothing more, as after a loss of power.
    is_silent.store(true, Ordering::Relaxed);
    let third = connect(Arc::default());
    wait_for("the third connection replaces it", || {
        world.present().is_some_and(|present| Some(present) != number)
    });
    world.wait_for_line("a new connection replaces one that does not answer");
    assert!(first.is_finished() && !third.is_finished());
    world.service.stop();
}

#[test]
fn a_switch_is_known_by_its_first_certificate_until_the_staff_forgets_it() {
    let world = World::new();
    let (handle, switch) = (world.service.handle(), world.id());
    let none = BTreeMap::new();
    let check = |certificate: Option<&'static [u8]>, inventory: &BTreeMap<String, String>| {
        let checked = admission::check(&handle, switch, Dpid(1), certificate, inventory);
        world.runtime.block_on(checked)
    };
    let forget = || {
        world
            .runtime
            .block_on(admission::forget(&handle, Dpid(1)))
            .unwrap()
    };
    assert!(!forget());
    // Without a certificate nothing is pinned.
    for _ in 0..2 {
        check(None, &none).unwrap();
    }
    for _ in 0..2 {
        check(Some(b"own"), &none).unwrap();
    }
    let foreign = check(Some(b"another"), &none).unwrap_err();
    assert!(
        foreign.contains("forget-certificate 0000000000000001"),
        "{foreign}"
    );
    let without = check(None, &none).unwrap_err();
    assert!(without.contains("ssl:"), "{without}");
    // The settings decide if they name certificates.
    let own = millrace_ix_store::sha256_hex(b"own").to_uppercase();
    let inventory = BTreeMap::from([(Dpid(1).to_string(), own)]);
    check(Some(b"own"), &inventory).unwrap();
    assert!(check(Some(b"another"), &inventory).is_err());
    assert!(check(None, &inventory).is_err());
    let other = BTreeMap::from([(Dpid(2).to_string(), String::new())]);
    assert!(check(Some(b"own"), &other).is_err());
    assert!(forget() && !forget());
    check(Some(b"another"), &none).unwrap();
    let audit = world.runtime.block_on(handle.audit(0, 100)).unwrap();
    let acts: Vec<_> = audit
        .iter()
        .map(|record| record.body["action"].as_str().unwrap_or_default())
        .collect();
    assert_eq!(
        acts[acts.len() - 3..],
        ["pin_certificate", "forget_certificate", "pin_certificate"]
    );
    world.service.stop();
}

/// An authority of certificates, whose files are in a folder.
struct Authority<'a> {
    folder: &'a Path,
    params: CertificateParams,
    key: KeyPair,
}

impl Authority<'_> {
    fn new(folder: &Path) -> Authority<'_> {
        let mut params = CertificateParams::new([]).unwrap();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let own = params.self_signed(&key).unwrap().pem();
        std::fs::write(folder.join("ca.crt"), own).unwrap();
        Authority { folder, params, key }
    }

    /// Writes `name.key` and `name.crt`; returns the SHA-256 of the certificate, as the settings have it.
    fn issue(&self, name: &str) -> String {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(["127.0.0.1".to_owned()]).unwrap();
        let issuer = Issuer::from_params(&self.params, &self.key);
        let certificate = params.signed_by(&key, &issuer).unwrap();
        let write = |suffix: &str, text: String| {
            std::fs::write(self.folder.join(format!("{name}.{suffix}")), text).unwrap();
        };
        write("key", key.serialize_pem());
        write("crt", certificate.pem());
        millrace_ix_store::sha256_hex(certificate.der())
    }

    /// Connects as a switch with the certificate of a name, which answers until the engine closes the connection.
    fn connect(&self, address: SocketAddr, name: &str) -> std::thread::JoinHandle<()> {
        let file = |name: String| std::fs::read(self.folder.join(name)).unwrap();
        let mut roots = rustls::RootCertStore::empty();
        let authority = CertificateDer::from_pem_slice(&file("ca.crt".to_owned())).unwrap();
        roots.add(authority).unwrap();
        let chain = vec![CertificateDer::from_pem_slice(&file(format!("{name}.crt"))).unwrap()];
        let key = PrivateKeyDer::from_pem_slice(&file(format!("{name}.key"))).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_client_auth_cert(chain, key)
            .unwrap();
        std::thread::spawn(move || {
            let engine = "127.0.0.1".try_into().unwrap();
            let session = rustls::ClientConnection::new(Arc::new(config), engine).unwrap();
            let stream = TcpStream::connect(address).unwrap();
            let stream = rustls::StreamOwned::new(session, stream);
            play(stream, RoleArbiter::default(), |_| false);
        })
    }
}

impl World {
    /// Accepts switches by TLS, with the certificates of the settings; returns the address.
    fn listen_tls(&self, folder: &Path, certificates: BTreeMap<String, String>) -> SocketAddr {
        let config = Config {
            tls: Some(TlsFiles {
                private_key: folder.join("engine.key"),
                certificate: folder.join("engine.crt"),
                ca_certificate: folder.join("ca.crt"),
            }),
            ..Config::new(Target::Tls("127.0.0.1:0".parse().unwrap()))
        };
        let mut listener = self.runtime.block_on(driver::listen(config)).unwrap();
        let address = listener.address().unwrap();
        let (switches, handle) = (self.switches.clone(), self.service.handle());
        self.runtime.spawn(async move {
            while let Some(session) = listener.accept().await {
                let (switches, handle, certificates) =
                    (switches.clone(), handle.clone(), certificates.clone());
                tokio::spawn(async move { switches.serve(session, &handle, &certificates).await });
            }
        });
        address
    }
}

#[test]
fn a_switch_with_another_certificate_than_the_one_of_the_settings_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::new(folder.path());
    authority.issue("engine");
    let registered = authority.issue("registered");
    authority.issue("other");
    let world = World::new();
    // Both certificates are of the trusted authority; the settings name the first one.
    let certificates = BTreeMap::from([(Dpid(1).to_string(), registered)]);
    let address = world.listen_tls(folder.path(), certificates);
    let other = authority.connect(address, "other");
    wait_for("the connection is closed", || other.is_finished());
    world.wait_for_line("ERROR");
    assert_eq!(world.present(), None);
    let registered = authority.connect(address, "registered");
    wait_for("the switch is connected", || world.present().is_some());
    let number = world.present();
    let other = authority.connect(address, "other");
    wait_for("the connection is closed", || other.is_finished());
    assert!(!registered.is_finished() && world.present() == number);
    world.service.stop();
}

#[test]
fn the_first_certificate_of_a_switch_is_pinned_until_the_staff_forgets_it() {
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::new(folder.path());
    for name in ["engine", "first", "second"] {
        authority.issue(name);
    }
    let world = World::new();
    let address = world.listen_tls(folder.path(), BTreeMap::new());
    let first = authority.connect(address, "first");
    wait_for("the switch is connected", || world.present().is_some());
    let number = world.present();
    let second = authority.connect(address, "second");
    wait_for("the connection is closed", || second.is_finished());
    world.wait_for_line("forget-certificate 0000000000000001");
    assert!(!first.is_finished() && world.present() == number);
    // Without TLS the switch is not believed any more.
    let stream = UnixStream::connect(&world.socket).unwrap();
    play(stream, RoleArbiter::default(), |_| false);
    assert_eq!(world.present(), number);
    let handle = world.service.handle();
    let forget = admission::forget(&handle, Dpid(1));
    assert!(world.runtime.block_on(forget).unwrap());
    let second = authority.connect(address, "second");
    // The present connection answers, so the engine asks it and keeps it; but the new certificate is pinned.
    wait_for("the second connection is closed", || second.is_finished());
    let audit = world.runtime.block_on(handle.audit(0, 100)).unwrap();
    let pins = audit
        .iter()
        .filter(|record| record.body["action"] == "pin_certificate");
    assert_eq!(pins.count(), 2);
    world.service.stop();
}
