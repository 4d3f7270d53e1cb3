//! Transfers through memif ports: the switch's side of both is the datapath's device, and a thread moves frames between them.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use millrace_courier::identity::Identity;
use millrace_courier::io::DatagramIo;
use millrace_courier::io::via::Via;
use millrace_courier::{Event, Outcome, SendOptions, send_over};
use millrace_datapath::io::{
    Backend, Burst, DeviceOptions, DeviceSpec, HeapBackend, Opened, SocketAccess, VnicKind, VnicSpec,
};
use millrace_types::BitRate;
use millrace_wire::Frame;
use nix::poll::{PollFd, PollFlags, poll};

use crate::memory::{MemorySource, MemoryStore, content};
use crate::testbed::{ReceiverSpec, ReceiverThread};

/// Two ports whose frames a thread moves from one to the other.
struct Cable {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Cable {
    fn start(folder: &Path) -> Cable {
        let backend = HeapBackend::new();
        let open = |name: &str| {
            let spec = VnicSpec {
                kind: VnicKind::Memif { id: 0 },
                path: folder.join(name),
                access: Some(SocketAccess {
                    owner: None,
                    group: None,
                    mode: 0o600,
                }),
            };
            backend
                .open(&DeviceSpec::Vnic(spec), DeviceOptions::PLAIN)
                .unwrap()
        };
        let mut ports = [open("a"), open("b")];
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                let [a, b] = &mut ports;
                let moved = forward(a, b) + forward(b, a);
                if moved == 0 {
                    std::thread::sleep(Duration::from_micros(50));
                }
            }
        });
        Cable {
            stop,
            thread: Some(thread),
        }
    }
}

impl Drop for Cable {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

fn forward(from: &mut Opened<Frame>, to: &mut Opened<Frame>) -> usize {
    let mut burst = Burst::new();
    from.rx[0].rx_burst(&mut burst);
    let frames = burst.len();
    to.tx[0].tx_burst(&mut burst);
    frames
}

fn via(folder: &Path, port: &str, addresses: &[&str]) -> Via {
    let socket: PathBuf = folder.join(port);
    let mut text = format!("memif:{},queues=2", socket.display());
    for address in addresses {
        text += &format!(",address={address}");
    }
    text.parse().unwrap()
}

fn open(via: &Via, port: u16) -> Box<dyn DatagramIo> {
    via.open_memif(port).unwrap().unwrap()
}

/// Sends over memif ports with these addresses; `on_event` sees the sender's events. Returns true if the bytes are equal.
fn transfer(
    folder: &Path,
    size: usize,
    options: SendOptions,
    addresses: [&[&str]; 2],
    on_event: &mut dyn FnMut(Event),
) -> bool {
    let [a, b] = [("a", addresses[0]), ("b", addresses[1])].map(|(port, own)| via(folder, port, own));
    let store = MemoryStore::default();
    let ips = b.ips();
    let receiver = ReceiverThread::start_over(open(&b, 7_800), ips, store.clone(), ReceiverSpec::default());
    let mut source = MemorySource::new(content(size, 9));
    let outcomes = send_over(
        open(&a, Via::dynamic_port().unwrap()),
        &mut source,
        &Identity::generate().unwrap(),
        vec![receiver.target("b")],
        options,
        None,
        on_event,
    );
    let outcomes = outcomes.unwrap();
    let received = receiver.stop();
    assert_eq!(
        (outcomes, received),
        (vec![Outcome::Delivered], vec![Outcome::Delivered])
    );
    store.0.lock().bytes == source.bytes
}

#[test]
fn bytes_pass_two_memif_ports_of_a_switch_without_the_kernels_network() {
    for addresses in [
        [&["192.0.2.1/24"][..], &["192.0.2.2/24"]],
        [&["2001:db8::1/64"], &["2001:db8::2/64"]],
        // The receiver's ticket has both; the sender's addresses are mapped.
        [&["192.0.2.1/24", "2001:db8::1/64"], &["192.0.2.2/24"]],
    ] {
        let folder = tempfile::tempdir().unwrap();
        let _cable = Cable::start(folder.path());
        let is_equal = transfer(
            folder.path(),
            5 << 20 | 1_234,
            SendOptions::default(),
            addresses,
            &mut |_| {},
        );
        assert!(is_equal);
    }
}

#[test]
fn a_transfer_survives_a_restart_of_the_switch() {
    let folder = tempfile::tempdir().unwrap();
    let mut cable = Some(Cable::start(folder.path()));
    let options = SendOptions {
        rate: Some(BitRate::from_bps(40_000_000)),
        ..SendOptions::default()
    };
    let mut restarts = 0;
    let is_equal = transfer(
        folder.path(),
        8 << 20,
        options,
        [&["192.0.2.1/24"], &["192.0.2.2/24"]],
        &mut |event| {
            if restarts == 0
                && let Event::Progress { verified, .. } = event
                && verified > 0
            {
                cable = None;
                cable = Some(Cable::start(folder.path()));
                restarts += 1;
            }
        },
    );
    assert!(is_equal && restarts == 1);
}

#[test]
fn a_port_whose_switch_restarts_becomes_readable_when_a_datagram_arrives() {
    let folder = tempfile::tempdir().unwrap();
    let mut cable = Some(Cable::start(folder.path()));
    let mut from = open(&via(folder.path(), "a", &["192.0.2.1/24"]), 1);
    let mut to = open(&via(folder.path(), "b", &["192.0.2.2/24"]), 2);
    for round in 0..3_u8 {
        if round > 0 {
            drop(cable.take());
            cable = Some(Cable::start(folder.path()));
        }
        let deadline = Instant::now() + Duration::from_secs(60);
        let mut arrived = false;
        while !arrived {
            assert!(
                Instant::now() < deadline,
                "nothing arrived after {round} restarts"
            );
            for io in [&mut from, &mut to] {
                io.on_timeout(Instant::now()).unwrap();
                io.flush().unwrap();
            }
            from.send("192.0.2.2:2".parse().unwrap(), &[round]).unwrap();
            from.flush().unwrap();
            // The sending end answers ARP requests.
            while from.receive().unwrap().is_some() {}
            // The test behaves as an event loop: without an event, it does not poll the port.
            let mut fds = [PollFd::new(to.descriptor(), PollFlags::POLLIN)];
            if poll(&mut fds, 5_u8).unwrap() > 0 {
                while let Some(burst) = to.receive().unwrap() {
                    arrived |= burst.bytes == [round];
                }
            }
        }
    }
}

#[test]
fn an_address_that_another_host_has_is_not_used() {
    let folder = tempfile::tempdir().unwrap();
    let _cable = Cable::start(folder.path());
    let mut first = open(&via(folder.path(), "a", &["192.0.2.1/24"]), 1);
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = Arc::clone(&stop);
    let answering = std::thread::spawn(move || {
        while !stopped.load(Ordering::Relaxed) {
            first.receive().unwrap();
            std::thread::sleep(Duration::from_millis(1));
        }
    });
    // The MAC address is derived from the IP address, unless another one is set.
    let mut second = via(folder.path(), "b", &["192.0.2.1/24"]);
    second.mac = Some(millrace_types::Mac([2, 0, 0, 0, 0, 2]));
    // On a busy machine, the other host may answer the probes too late.
    let deadline = Instant::now() + Duration::from_secs(60);
    let error = loop {
        match second.open_memif(1) {
            Err(error) => break error.to_string(),
            Ok(port) => drop(port),
        }
        assert!(Instant::now() < deadline, "the address is used");
    };
    stop.store(true, Ordering::Relaxed);
    assert!(
        error.contains("another host has the address 192.0.2.1"),
        "{error}"
    );
    answering.join().unwrap();
}
