//! Tests of connections with switches that a program plays.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;

use millrace_ix_model::{Actor, Operation};
use millrace_ix_service::{OrderOptions, Service, Settings};
use millrace_ix_store::Sqlite;
use millrace_openflow::roles::{Role, RoleArbiter};
use millrace_openflow::{
    Capabilities, ErrorCode, ErrorMessage, HEADER_SIZE, Header, Hello, RoleMessage, SwitchFeatures, decode,
    encode,
};
use millrace_types::{Dpid, Xid};

use super::*;

const ENGINE: u32 = 1;

/// A bound far above the time of any step of these tests.
const BOUND: Duration = Duration::from_secs(30);

/// Answers a controller as a switch does until `is_done`, or until the controller closes the connection.
fn play(
    mut stream: UnixStream,
    mut arbiter: RoleArbiter<u32>,
    is_done: impl Fn(&RoleArbiter<u32>) -> bool,
) -> (UnixStream, RoleArbiter<u32>) {
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
        let runtime = tokio::runtime::Runtime::new().unwrap();
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
        }
    }

    /// Returns the number of the present connection of the switch.
    fn present(&self) -> Option<u64> {
        let connected = self.switches.connected.lock().unwrap();
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
    let is_silent = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let connect = |is_done: Box<dyn Fn(&RoleArbiter<u32>) -> bool + Send>| {
        let stream = UnixStream::connect(&world.socket).unwrap();
        std::thread::spawn(move || play(stream, RoleArbiter::default(), is_done))
    };
    let silent = Arc::clone(&is_silent);
    let first = connect(Box::new(move |_| silent.load(Ordering::Relaxed)));
    wait_for("the switch is connected", || world.present().is_some());
    let number = world.present();
    let second = connect(Box::new(|_| false));
    wait_for("the second connection is closed", || second.is_finished());
    assert_eq!(world.present(), number);
    // The first connection stays open and answers nothing more, as after a loss of power.
    is_silent.store(true, Ordering::Relaxed);
    let third = connect(Box::new(|_| false));
    wait_for("the third connection replaces it", || {
        world.present().is_some_and(|present| Some(present) != number)
    });
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
