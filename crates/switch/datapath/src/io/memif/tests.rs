//! Tests of memif ports.

use std::os::fd::AsFd;
use std::path::Path;
use std::time::{Duration, Instant};

use millrace_memif::client::{Attachment, ClientConfig, Session, Step};
use millrace_memif::ring::{Rings, Sent};
use millrace_memif::{Connection, Message};
use millrace_wire::Frame;
use rustix::event::{EventfdFlags, eventfd};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};

use crate::io::{
    Backend, Burst, DeviceOptions, DeviceSpec, HeapBackend, OpenError, Opened, SocketAccess, VnicKind,
    VnicSpec,
};

const BOUND: Duration = Duration::from_secs(60);

fn spec(path: &Path, id: u32, is_server: bool) -> DeviceSpec {
    DeviceSpec::Vnic(VnicSpec {
        kind: VnicKind::Memif { id },
        path: path.to_owned(),
        access: is_server.then_some(SocketAccess {
            owner: None,
            group: None,
            mode: 0o600,
        }),
    })
}

fn open(backend: &HeapBackend, spec: &DeviceSpec, queues: u16) -> Result<Opened<Frame>, OpenError> {
    let options = DeviceOptions {
        queues,
        ..DeviceOptions::PLAIN
    };
    backend.open(spec, options)
}

/// Opens a server and its client, each with an MTU.
fn open_both(path: &Path, mtus: [u16; 2]) -> [Opened<Frame>; 2] {
    let backend = HeapBackend::new();
    let pair = [(true, mtus[0]), (false, mtus[1])].map(|(is_server, mtu)| {
        let options = DeviceOptions {
            mtu,
            ..DeviceOptions::PLAIN
        };
        backend.open(&spec(path, 0, is_server), options).unwrap()
    });
    pair.iter().for_each(|port| link_is(port, true));
    pair
}

fn wait_for(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + BOUND;
    while !condition() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn link_is(port: &Opened<Frame>, up: bool) {
    wait_for("the link changes", || port.device.info().link_up == up);
}

fn send(port: &mut Opened<Frame>, frames: &[&[u8]]) {
    let mut burst: Burst<Frame> = frames.iter().map(|bytes| Frame::new(bytes)).collect();
    port.tx[0].tx_burst(&mut burst);
    assert!(burst.is_empty());
}

fn receive(port: &mut Opened<Frame>) -> Vec<Vec<u8>> {
    let mut burst = Burst::new();
    for queue in &mut port.rx {
        queue.rx_burst(&mut burst);
    }
    burst.iter().map(|frame| frame.bytes().to_vec()).collect()
}

/// Sends packets both ways, and asserts that each side receives them.
fn talk(a: &mut Opened<Frame>, b: &mut Opened<Frame>) {
    link_is(a, true);
    link_is(b, true);
    for _ in 0..100 {
        // Packets that were sent to an earlier peer may still arrive.
        while !receive(a).is_empty() || !receive(b).is_empty() {}
        send(a, &[b"to b", b"to b, too"]);
        send(b, &[b"to a"]);
        assert_eq!(receive(b), [&b"to b"[..], b"to b, too"]);
        assert_eq!(receive(a), [b"to a"]);
    }
}

#[test]
fn two_switches_meet_whoever_comes_first_and_as_often_as_one_of_them_comes_back() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("m");
    let backend = HeapBackend::new();
    let mut client = open(&backend, &spec(&path, 3, false), 2).unwrap();
    for _ in 0..3 {
        let mut server = open(&backend, &spec(&path, 3, true), 1).unwrap();
        talk(&mut client, &mut server);
        drop(server);
        link_is(&client, false);
        assert!(!path.exists());
    }
    let mut server = open(&backend, &spec(&path, 3, true), 2).unwrap();
    for _ in 0..3 {
        talk(&mut client, &mut server);
        drop(client);
        link_is(&server, false);
        client = open(&backend, &spec(&path, 3, false), 4).unwrap();
    }
    drop((client, server));
    assert_eq!(backend.buffers().unwrap().used, 0);
}

#[test]
fn several_interfaces_share_a_socket_that_goes_with_the_last() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("m");
    let backend = HeapBackend::new();
    let mut servers: Vec<_> = (0..3)
        .map(|id| open(&backend, &spec(&path, id, true), 1).unwrap())
        .collect();
    let mut clients: Vec<_> = (0..3)
        .map(|id| open(&backend, &spec(&path, id, false), 1).unwrap())
        .collect();
    for (client, server) in clients.iter_mut().zip(&mut servers) {
        talk(client, server);
    }
    let error = open(&backend, &spec(&path, 1, true), 1).err().unwrap();
    assert!(matches!(error, OpenError::Busy { .. }), "{error}");
    drop(servers.remove(0));
    link_is(&clients[0], false);
    talk(&mut clients[1], &mut servers[0]);
    assert!(path.exists());
    drop(servers);
    assert!(!path.exists());
}

#[test]
fn a_port_without_a_peer_takes_nothing_and_never_will() {
    let dir = tempfile::tempdir().unwrap();
    let backend = HeapBackend::new();
    let mut server = open(&backend, &spec(&dir.path().join("m"), 0, true), 1).unwrap();
    let mut burst: Burst<Frame> = [b"a", b"b"].map(|bytes| Frame::new(bytes)).into_iter().collect();
    server.tx[0].tx_burst(&mut burst);
    assert_eq!((burst.len(), server.tx[0].refused(2)), (2, 2));
    assert_eq!(server.device.stats().tx_errors, 0);
    assert!(receive(&mut server).is_empty());
}

#[test]
fn what_does_not_fit_into_the_ring_stays_and_what_fits_into_no_buffer_goes() {
    let dir = tempfile::tempdir().unwrap();
    let [mut server, mut client] = open_both(&dir.path().join("m"), [20_000; 2]);
    let mut sent = 0;
    let mut burst: Burst<Frame> = Burst::new();
    while burst.is_empty() {
        burst.extend((0..64).map(|_| Frame::new(&[7; 60])));
        server.tx[0].tx_burst(&mut burst);
        sent += 64 - burst.len();
    }
    assert_eq!(sent, 1024);
    assert_eq!(burst.len(), 64);
    let mut came = 0;
    wait_for("all come", || {
        came += receive(&mut client).len();
        came == 1024
    });
    server.tx[0].tx_burst(&mut burst);
    assert!(burst.is_empty());
    while !receive(&mut client).is_empty() {}
    // The first frame takes several buffers of the ring; the second is longer than a packet buffer of the
    // switch.
    send(&mut server, &[&[1; 9000], &[2; 20_000], &[3; 60]]);
    assert_eq!(
        receive(&mut client).iter().map(Vec::len).collect::<Vec<_>>(),
        [9000, 60]
    );
    assert_eq!(client.device.stats().rx_errors, 1);
}

#[test]
fn frames_longer_than_the_mtu_allows_are_neither_taken_nor_sent() {
    let dir = tempfile::tempdir().unwrap();
    let [mut large, mut small] = open_both(&dir.path().join("m"), [9000, 1500]);
    // The Ethernet header and two VLAN tags are added to the MTU.
    send(&mut large, &[&[1; 1522], &[2; 1523], &[3; 60]]);
    assert_eq!(
        receive(&mut small).iter().map(Vec::len).collect::<Vec<_>>(),
        [1522, 60]
    );
    assert_eq!(small.device.stats().rx_errors, 1);

    let mut burst: Burst<Frame> = [1522, 1523, 60]
        .map(|size| Frame::new(&vec![1; size]))
        .into_iter()
        .collect();
    small.tx[0].tx_burst(&mut burst);
    assert_eq!(burst.len(), 2);
    assert_eq!(small.tx[0].refused(2), 1);
    assert_eq!(
        receive(&mut large).iter().map(Vec::len).collect::<Vec<_>>(),
        [1522]
    );
}

#[test]
fn a_switch_without_buffers_leaves_frames_where_they_are() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("m");
    let backend = HeapBackend::new();
    let mut server = open(&backend, &spec(&path, 0, true), 1).unwrap();
    let mut client = open(&backend, &spec(&path, 0, false), 1).unwrap();
    link_is(&server, true);
    link_is(&client, true);
    let all = backend.buffers().unwrap().all;
    let hoard: Vec<Frame> = (0..all).map_while(|_| backend.packet(&[])).collect();
    assert_eq!(hoard.len(), all);
    send(&mut client, &[b"x"]);
    assert!(receive(&mut server).is_empty());
    assert_eq!(server.device.stats().rx_no_buffer, 1);
    drop(hoard);
    assert_eq!(receive(&mut server), [b"x"]);
}

/// A client of this test, which can send any message.
struct Peer {
    connection: Connection,
    rings: Option<Rings>,
}

fn call(path: &Path) -> Connection {
    let socket = socket_with(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )
    .unwrap();
    connect(&socket, &SocketAddrUnix::new(path).unwrap()).unwrap();
    Connection::new(socket)
}

fn receive_message(connection: &Connection) -> Message {
    let mut received = None;
    wait_for("an answer", || {
        received = connection.receive().unwrap();
        received.is_some()
    });
    received.unwrap().0
}

impl Peer {
    fn connect(path: &Path) -> Peer {
        let config = ClientConfig {
            to_server: 1,
            to_client: 1,
            log2_len: 4,
            buffer_size: 256,
        };
        let connection = call(path);
        let mut session = Session::new(0, "test", "peer", config);
        let notifier = eventfd(0, EventfdFlags::NONBLOCK).unwrap();
        let mut made = None;
        loop {
            match session.receive(&receive_message(&connection)).unwrap() {
                Step::Begin(layout, message) => {
                    made = Some(Rings::create(&layout).unwrap());
                    connection.send(&message, None).unwrap();
                }
                Step::Send(message, with) => {
                    let file = match with {
                        Attachment::Nothing => None,
                        Attachment::Memory => made.as_ref().map(|(_, file)| file.as_fd()),
                        Attachment::Interrupt(..) => Some(notifier.as_fd()),
                    };
                    connection.send(&message, file).unwrap();
                }
                Step::Connected(_) => {
                    let rings = made.map(|(rings, _)| rings);
                    return Peer { connection, rings };
                }
                Step::Closed => panic!("sent away"),
            }
        }
    }

    fn is_sent_away(&self, why: &str) {
        let Message::Disconnect { reason, .. } = receive_message(&self.connection) else {
            panic!("not sent away");
        };
        assert!(reason.to_string().contains(why), "{reason}");
    }
}

#[test]
fn a_peer_that_violates_the_protocol_is_disconnected_with_a_reason_and_may_connect_again() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("m");
    let backend = HeapBackend::new();
    let mut server = open(&backend, &spec(&path, 0, true), 1).unwrap();
    for violations in 1..4 {
        let mut peer = Peer::connect(&path);
        link_is(&server, true);
        let rings = peer.rings.as_mut().unwrap();
        let sender = &mut rings.senders[0];
        sender.ready().unwrap();
        assert_eq!(sender.send(b"an honest word"), Ok(Sent::Yes));
        sender.publish();
        wait_for("the peer receives", || {
            receive(&mut server) == [b"an honest word"]
        });
        // The index of the ring to the server, which is first in the memory.
        rings
            .memory
            .buffer(0, 6, 2)
            .unwrap()
            .write(&1000_u16.to_le_bytes());
        wait_for("it is noticed", || {
            receive(&mut server);
            server.device.stats().rx_errors == violations
        });
        peer.is_sent_away("index moved from 1 to 1000");
        link_is(&server, false);
    }
}

#[test]
fn one_interface_has_one_peer_and_others_are_told() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("m");
    let backend = HeapBackend::new();
    let _server = open(&backend, &spec(&path, 0, true), 1).unwrap();
    let first = Peer::connect(&path);
    for (id, why) in [(0, "already has a client"), (9, "no interface 9")] {
        let second = call(&path);
        receive_message(&second);
        let config = ClientConfig {
            to_server: 1,
            to_client: 1,
            log2_len: 4,
            buffer_size: 256,
        };
        let mut session = Session::new(id, "test", "second", config);
        let hello = millrace_memif::server::Session::<()>::hello(
            "x",
            millrace_memif::server::Limits {
                to_server: 1,
                to_client: 1,
            },
        );
        let Ok(Step::Begin(_, init)) = session.receive(&hello) else {
            panic!()
        };
        second.send(&init, None).unwrap();
        Peer {
            connection: second,
            rings: None,
        }
        .is_sent_away(why);
    }
    assert!(first.connection.receive().unwrap().is_none());
}

#[test]
fn clients_that_send_nothing_do_not_keep_others_out() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("m");
    let backend = HeapBackend::new();
    let server = open(&backend, &spec(&path, 0, true), 1).unwrap();
    let silent: Vec<Connection> = (0..60).map(|_| call(&path)).collect();
    let _peer = Peer::connect(&path);
    link_is(&server, true);
    drop(silent);
}

#[test]
fn a_peer_hears_that_its_port_goes() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("m");
    let backend = HeapBackend::new();
    let first = open(&backend, &spec(&path, 0, true), 1).unwrap();
    let _second = open(&backend, &spec(&path, 1, true), 1).unwrap();
    let peer = Peer::connect(&path);
    drop(first);
    peer.is_sent_away("port is closed");
}

#[test]
fn a_server_that_is_none_is_left_and_looked_for_again() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("m");
    let listener = socket_with(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )
    .unwrap();
    rustix::net::bind(&listener, &SocketAddrUnix::new(&path).unwrap()).unwrap();
    rustix::net::listen(&listener, 4).unwrap();
    let backend = HeapBackend::new();
    let client = open(&backend, &spec(&path, 0, false), 1).unwrap();
    for said in [Message::Ack, Message::disconnect(&"go away")] {
        let connection = Connection::new(rustix::net::accept(&listener).unwrap());
        connection.send(&said, None).unwrap();
        wait_for("it hangs up", || {
            matches!(connection.receive(), Err(millrace_memif::ConnectionError::Closed))
        });
    }
    assert!(!client.device.info().link_up);
}
