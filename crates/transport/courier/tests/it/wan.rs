//! Transfers over emulated paths: loss, delay, reordering, duplicates, corruption, smaller packets, other addresses, insiders.

use crate::emulated::Network;
use crate::memory::{MemorySource, MemoryStore, content};
use crate::testbed::{ReceiverSpec, ReceiverThread};
use crate::trees::tree;
use millrace_courier::files::{FilesError, Source, Value};
use millrace_courier::identity::Identity;
use millrace_courier::local::{LocalSource, LocalStore, PlaceOptions, ScanOptions};
use millrace_courier::{Event, Outcome, SendOptions, Session, send_over};
use millrace_transport::extent::Layout;
use millrace_types::BitRate;
use std::collections::HashSet;
use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime};
use tempfile::TempDir;

const SENDER: &str = "10.0.0.1:5000";
/// The time after which a transfer counts as stalled. It takes a second on an idle machine.
const BOUND: Duration = Duration::from_secs(60);
const RECEIVER: &str = "10.0.0.2:7800";

fn address(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

fn options(megabits: u64) -> SendOptions {
    SendOptions {
        rate: Some(BitRate::from_bps(megabits * 1_000_000)),
        ..SendOptions::default()
    }
}

/// A directory to send and one to receive into.
struct Directories {
    from: PathBuf,
    to: PathBuf,
    _dir: TempDir,
}

impl Directories {
    fn new() -> Directories {
        let dir = tempfile::tempdir().unwrap();
        let [from, to] = ["from", "to"].map(|name| dir.path().join(name));
        fs::create_dir(&from).unwrap();
        fs::create_dir(&to).unwrap();
        Directories { from, to, _dir: dir }
    }

    /// Starts a receiver into the directory, at an end of the network.
    fn receiver(&self, network: &Network, spec: ReceiverSpec) -> ReceiverThread {
        let store = LocalStore::new(&self.to, PlaceOptions::default());
        ReceiverThread::start_over(network.end(RECEIVER), Vec::new(), store, spec)
    }

    /// Returns the contents of the directory as a source.
    fn source(&self, stop_on_change: bool) -> LocalSource {
        let options = ScanOptions {
            stop_on_change,
            ..ScanOptions::default()
        };
        LocalSource::scan(&[self.from.join("")], &options).unwrap()
    }
}

/// Sends bytes over a network. Returns true if they arrived unchanged, and the events of the sender.
fn transfer(network: &Network, size: usize, on_event: impl FnMut(&Event)) -> (bool, Vec<Event>) {
    transfer_with(network, size, ReceiverSpec::default().silence, on_event)
}

/// Sends bytes as [`transfer`] does, between ends that wait this long for a silent peer.
fn transfer_with(
    network: &Network,
    size: usize,
    silence: Duration,
    mut on_event: impl FnMut(&Event),
) -> (bool, Vec<Event>) {
    let store = MemoryStore::default();
    let spec = ReceiverSpec {
        silence,
        ..ReceiverSpec::default()
    };
    let receiver = ReceiverThread::start_over(network.end(RECEIVER), Vec::new(), store.clone(), spec);
    let mut source = MemorySource::new(content(size, 3));
    let mut events = Vec::new();
    let outcomes = send_over(
        network.end(SENDER),
        &mut source,
        &Identity::generate().unwrap(),
        vec![receiver.target("a")],
        SendOptions {
            silence,
            ..options(100)
        },
        None,
        &mut |event| {
            on_event(&event);
            events.push(event);
        },
    );
    assert_eq!(outcomes.unwrap(), [Outcome::Delivered], "{events:?}");
    receiver.join();
    let equal = store.0.lock().bytes == source.bytes;
    (equal, events)
}

#[test]
fn bytes_arrive_over_fifty_milliseconds_and_one_percent_of_loss() {
    let network = Network::new(&[("delay", "25ms"), ("loss", "1%"), ("rate", "100Mbps")]);
    // The rate on such paths is measured in virtual time: gates T1 and T2 (docs/gates.md).
    assert!(transfer(&network, 4 << 20, |_| {}).0);
}

#[test]
fn duplicates_reordering_and_undetectable_corruption_change_nothing() {
    let network = Network::new(&[
        ("delay", "10ms"),
        ("jitter", "3ms"),
        ("order", "reordering"),
        ("duplicate", "2%"),
        ("corrupt", "1%,bits=3,undetectable"),
    ]);
    assert!(transfer(&network, 2 << 20, |_| {}).0);
}

#[test]
fn a_path_that_drops_full_packets_is_used_with_small_ones() {
    let network = Network::new(&[("delay", "2ms"), ("mtu", "1300")]);
    assert!(transfer(&network, 2 << 20, |_| {}).0);
}

#[test]
fn a_sender_whose_address_changes_goes_on() {
    let network = Network::new(&[("delay", "5ms"), ("rate", "40Mbps")]);
    let mut moved = None;
    // The receiver learns the address from a probe of the control channel (sender/tests.rs). Its keep-alive is due after
    // a quarter of this, ten times the bound.
    let silence = 40 * BOUND;
    let (equal, events) = transfer_with(&network, 6 << 20, silence, |event| {
        if let Some(moved) = moved {
            let rest = Instant::now().saturating_duration_since(moved);
            assert!(rest < BOUND, "{rest:?} after the address changed: {event:?}");
        } else if matches!(event, Event::Progress { verified, .. } if *verified > 0) {
            moved = Some(Instant::now());
            network.translate(address(SENDER), address("10.0.0.1:6000"));
        }
    });
    assert!(equal && moved.is_some());
    assert!(
        !events.iter().any(|event| matches!(event, Event::Lost { .. })),
        "{events:?}"
    );
}

#[test]
fn a_receiver_whose_address_changes_is_found_and_the_transfer_goes_on() {
    let network = Network::new(&[("delay", "5ms"), ("rate", "40Mbps")]);
    let (mut moved, mut found) = (None, None);
    // The idle timeout is far beyond the bound: only the probe of the receiver can tell where it is.
    let silence = 40 * BOUND;
    let (equal, events) = transfer_with(&network, 6 << 20, silence, |event| match (event, moved) {
        (Event::Progress { verified, .. }, None) if *verified > 1 << 20 => {
            moved = Some((Instant::now(), *verified));
            network.translate(address(RECEIVER), address("10.0.0.3:7900"));
        }
        (Event::Accepted { present, .. }, Some((at, verified))) => {
            found = Some((at.elapsed(), *present, verified));
        }
        _ => {}
    });
    let (stalled, present, verified) = found.unwrap();
    assert!(equal && stalled < BOUND, "{stalled:?}");
    // The bytes of extents that were verified before are not sent again.
    assert!(present >= verified, "{present} of {verified} bytes are kept");
    let lost = events.iter().filter_map(|event| match event {
        Event::Lost { reason, .. } => Some(reason.as_str()),
        _ => None,
    });
    assert_eq!(
        lost.collect::<Vec<_>>(),
        ["it has moved to 10.0.0.3:7900, where it is dialled again"]
    );
}

#[test]
fn copies_of_a_receivers_datagrams_from_other_addresses_move_nothing() {
    let network = Network::new(&[("delay", "5ms"), ("rate", "40Mbps")]);
    let victim = address("10.0.0.9:9");
    let (mut copied, mut size) = (0, 0);
    let (equal, events) = transfer(&network, 6 << 20, |event| {
        if matches!(event, Event::Progress { .. }) {
            // Those of the control channel, too: somebody on the path sees all of them, and sends them as the victim.
            for datagram in network.sent_to(address(SENDER)) {
                network.spoof(victim, address(SENDER), &datagram);
                (copied, size) = (copied + 1, size + datagram.len());
            }
        }
    });
    assert!(equal && copied > 20, "{copied}");
    assert!(
        !events.iter().any(|event| matches!(event, Event::Lost { .. })),
        "{events:?}"
    );
    // QUIC may answer a datagram of no connection by a shorter one (RFC 9000, section 10.3). No data goes there.
    let to_victim = network.sent_to(victim);
    let is_data = |datagram: &Vec<u8>| datagram[0] & 0xc0 == 0;
    assert!(!to_victim.iter().any(is_data));
    assert!(to_victim.iter().map(Vec::len).sum::<usize>() <= size);
}

#[test]
fn replayed_and_spoofed_datagrams_change_nothing_and_earn_nothing() {
    let network = Network::new(&[("delay", "2ms"), ("rate", "40Mbps")]);
    let victim = address("10.0.0.9:9");
    let mut replayed = 0;
    let (equal, _) = transfer(&network, 6 << 20, |event| {
        if matches!(event, Event::Progress { .. }) && replayed < 50_000 {
            // Every datagram is sent again, in both directions, and also from an address that never asked for
            // anything.
            for datagram in network.sent_to(address(RECEIVER)).iter().take(2_000) {
                network.spoof(victim, address(RECEIVER), datagram);
            }
            replayed += network.replay();
        }
    });
    assert!(equal && replayed > 100, "{replayed}");
    let to_victim: usize = network.sent_to(victim).iter().map(Vec::len).sum();
    let from_victim = 2_000 * 100;
    assert!(to_victim <= 3 * from_victim, "{to_victim} bytes");
}

#[test]
fn a_lost_peer_is_dialled_again_and_the_transfer_goes_on() {
    let dirs = Directories::new();
    let (from, to) = (&dirs.from, &dirs.to);
    fs::write(from.join("large"), content(12 << 20, 5)).unwrap();
    let settings = [("delay", "5ms"), ("rate", "40Mbps")];
    let network = Network::new(&settings);
    let spec = ReceiverSpec {
        silence: Duration::from_secs(1),
        ..ReceiverSpec::default()
    };
    let receiver = dirs.receiver(&network, spec);
    let source = dirs.source(false);
    let options = SendOptions {
        silence: Duration::from_secs(1),
        ..options(40)
    };
    let targets = vec![receiver.target("a")];
    let identity = Identity::generate().unwrap();
    let sender =
        Session::send_over(network.end(SENDER), Box::new(source), identity, targets, options).unwrap();
    let (mut cut, mut lost, mut present) = (false, false, Vec::new());
    for event in sender.events() {
        match event {
            Event::Progress { verified, .. } if verified > 2 << 20 && !cut => {
                cut = true;
                network.change(&[("loss", "100%")]);
            }
            // On a busy machine, a peer may be silent for a second before the outage, too.
            Event::Lost { .. } if cut => {
                lost = true;
                network.change(&settings);
            }
            Event::Accepted { present: bytes, .. } => present.push(bytes),
            _ => {}
        }
    }
    assert_eq!(sender.join().unwrap(), [Outcome::Delivered]);
    assert_eq!(receiver.join(), [Outcome::Delivered]);
    assert!(lost, "the outage outlasts the silence");
    assert!(present.len() > 1 && present[0] == 0, "{present:?}");
    assert!(present.last().is_some_and(|kept| *kept > 0), "{present:?}");
    assert!(tree(from) == tree(to));
}

#[test]
fn a_transfer_goes_on_after_an_interruption_though_its_ticket_has_expired() {
    let settings = [("delay", "5ms"), ("rate", "40Mbps")];
    let silence = Duration::from_secs(1);
    let bytes = content(8 << 20, 5);
    let mut expiry = Duration::from_secs(2);
    // On a busy machine, the ticket may expire before the sender has begun, or the transfer end before the outage.
    loop {
        let network = Network::new(&settings);
        let spec = ReceiverSpec {
            silence,
            expiry,
            once: false,
            ..ReceiverSpec::default()
        };
        let store = MemoryStore::default();
        let receiver = ReceiverThread::start_over(network.end(RECEIVER), Vec::new(), store.clone(), spec);
        let expires = receiver.ticket.expires;
        let (mut cut, mut lost) = (false, false);
        let options = SendOptions {
            silence,
            ..options(40)
        };
        let (identity, targets) = (Identity::generate().unwrap(), vec![receiver.target("a")]);
        let source = Box::new(MemorySource::new(bytes.clone()));
        let sender = Session::send_over(network.end(SENDER), source, identity, targets, options).unwrap();
        for event in sender.events() {
            match event {
                Event::Accepted { .. } if !cut => {
                    cut = true;
                    network.change(&[("loss", "100%")]);
                    let left = expires.duration_since(SystemTime::now()).unwrap_or_default();
                    std::thread::sleep(left + Duration::from_secs(1));
                }
                Event::Lost { .. } if cut => {
                    lost = true;
                    network.change(&settings);
                }
                _ => {}
            }
        }
        let outcomes = sender.join().unwrap();
        receiver.stop();
        if cut && lost {
            assert_eq!(outcomes, [Outcome::Delivered]);
            assert!(store.0.lock().bytes == bytes);
            return;
        }
        expiry *= 2;
    }
}

/// An insider on the path, who holds the content key: some packets have wrong bytes, but all keys are right.
struct Forged {
    source: LocalSource,
    done: HashSet<u64>,
    bytes: Vec<u8>,
}

impl Source for Forged {
    fn manifest(&self) -> &[u8] {
        self.source.manifest()
    }
    fn layout(&self) -> Layout {
        self.source.layout()
    }
    fn check_have(&mut self, extent: u64, value: &Value) -> Result<bool, FilesError> {
        self.source.check_have(extent, value)
    }
    fn read(&mut self, address: u64, len: usize) -> Result<&[u8], FilesError> {
        self.bytes = self.source.read(address, len)?.to_vec();
        // One packet in a hundred, the first time it is sealed.
        if (address / 1_424).is_multiple_of(100) && self.done.insert(address) {
            self.bytes[len / 2] ^= 0x40;
        }
        Ok(&self.bytes)
    }
    fn poll_value(&mut self) -> Option<(u64, Value)> {
        self.source.poll_value()
    }
    fn value(&self, extent: u64) -> Option<Value> {
        self.source.value(extent)
    }
    fn group_values(&mut self, extent: u64) -> Result<Vec<Value>, FilesError> {
        self.source.group_values(extent)
    }
    fn poll_withdrawn(&mut self) -> Option<(u64, String)> {
        self.source.poll_withdrawn()
    }
    fn root(&self) -> Option<Value> {
        self.source.root()
    }
}

#[test]
fn bytes_that_an_insider_forged_are_never_committed() {
    let dirs = Directories::new();
    let (from, to) = (&dirs.from, &dirs.to);
    for index in 0..8 {
        fs::write(from.join(format!("file-{index}")), content(500_000, index + 1)).unwrap();
    }
    let network = Network::new(&[("delay", "2ms")]);
    let receiver = dirs.receiver(&network, ReceiverSpec::default());
    let source = dirs.source(false);
    let (done, bytes) = (HashSet::new(), Vec::new());
    let mut source = Forged { source, done, bytes };
    let outcomes = send_over(
        network.end(SENDER),
        &mut source,
        &Identity::generate().unwrap(),
        vec![receiver.target("a")],
        options(100),
        None,
        &mut |_| {
            // A file has its name only with the right bytes. Temporary files vanish at any moment.
            for entry in fs::read_dir(to).unwrap() {
                let name = entry.unwrap().file_name();
                if !name.to_string_lossy().starts_with('.') {
                    let (sent, committed) = (fs::read(from.join(&name)), fs::read(to.join(&name)));
                    assert!(sent.unwrap() == committed.unwrap(), "{name:?}");
                }
            }
        },
    );
    assert_eq!(outcomes.unwrap(), [Outcome::Delivered]);
    receiver.join();
    assert!(
        source.done.len() > 20,
        "{} packets were forged",
        source.done.len()
    );
    assert!(tree(from) == tree(to));
}

#[test]
fn a_file_that_changes_while_it_is_sent_is_withdrawn_and_the_others_arrive() {
    let dirs = Directories::new();
    let (from, to) = (&dirs.from, &dirs.to);
    fs::write(from.join("a"), content(6 << 20, 1)).unwrap();
    fs::write(from.join("b"), content(2 << 20, 2)).unwrap();
    let network = Network::new(&[("delay", "2ms")]);
    for stop_on_change in [false, true] {
        let receiver = dirs.receiver(&network, ReceiverSpec::default());
        let mut source = dirs.source(stop_on_change);
        let mut changed = false;
        let outcomes = send_over(
            network.end(SENDER),
            &mut source,
            &Identity::generate().unwrap(),
            vec![receiver.target("a")],
            options(40),
            None,
            &mut |event| {
                if matches!(event, Event::Accepted { .. } | Event::Progress { .. }) && !changed {
                    changed = true;
                    let mut bytes = fs::read(from.join("a")).unwrap();
                    bytes[5 << 20] ^= 1;
                    fs::write(from.join("a"), bytes).unwrap();
                }
            },
        )
        .unwrap();
        assert!(
            !to.join("a").exists(),
            "the old bytes, or a mixture, are not committed"
        );
        if !stop_on_change {
            let is_named = |outcomes: &[Outcome]| matches!(outcomes, [Outcome::Integrity { reason }] if reason.contains("1 files changed"));
            assert!(is_named(&outcomes), "{outcomes:?}");
            assert!(
                is_named(&receiver.join()),
                "the receiver's exit status tells it, too"
            );
            assert!(fs::read(to.join("b")).unwrap() == fs::read(from.join("b")).unwrap());
        } else {
            assert!(
                matches!(&outcomes[..], [Outcome::Integrity { .. }]),
                "{outcomes:?}"
            );
            receiver.stop();
        }
    }
}

#[test]
fn the_verdict_does_not_depend_on_the_size_of_a_file_that_is_withdrawn() {
    for size in [900_000, 6 << 20] {
        let dirs = Directories::new();
        fs::write(dirs.from.join("a"), content(size, 1)).unwrap();
        let network = Network::new(&[("delay", "2ms")]);
        let receiver = dirs.receiver(&network, ReceiverSpec::default());
        let mut source = dirs.source(false);
        fs::write(dirs.from.join("a"), content(size + 1, 2)).unwrap();
        let outcomes = send_over(
            network.end(SENDER),
            &mut source,
            &Identity::generate().unwrap(),
            vec![receiver.target("a")],
            options(40),
            None,
            &mut |_| {},
        );
        let is_left_out = |outcomes: &[Outcome]| matches!(outcomes, [Outcome::Integrity { .. }]);
        assert!(is_left_out(&outcomes.unwrap()), "{size}");
        receiver.wait_for(
            |event| matches!(event, Event::File { problem: Some(problem), .. } if problem.starts_with("a: ")),
        );
        assert!(is_left_out(&receiver.join()), "{size}");
        assert_eq!(fs::read_dir(&dirs.to).unwrap().count(), 0);
    }
}

/// Rows T3 and T5: a receiver with a tenth of the rate, and one that joins late, do not slow down the others.
#[test]
fn a_slow_receiver_and_a_late_one_slow_nobody_and_get_everything() {
    let network = Network::new(&[("delay", "5ms"), ("rate", "40Mbps")]);
    let addresses = [RECEIVER, "10.0.0.3:7800", "10.0.0.4:7800", "10.0.0.5:7800"];
    // Alone, the slow one would take more than a minute.
    let slow = [("delay", "5ms"), ("rate", "400kbps")];
    network.set_path(SENDER, addresses[0], &slow);
    let stores = [(); 4].map(|()| MemoryStore::default());
    let receivers: Vec<_> = addresses
        .iter()
        .zip(&stores)
        .map(|(address, store)| {
            ReceiverThread::start_over(
                network.end(address),
                Vec::new(),
                store.clone(),
                ReceiverSpec::default(),
            )
        })
        .collect();
    let names = ["slow", "b", "c", "late"];
    let mut targets: Vec<_> = receivers
        .iter()
        .zip(names)
        .map(|(receiver, name)| receiver.target(name))
        .collect();
    let late = targets.pop();
    let bytes = content(4 << 20, 8);
    let source = MemorySource::new(bytes.clone());
    let identity = Identity::generate().unwrap();
    let options = SendOptions::default();
    let sender =
        Session::send_over(network.end(SENDER), Box::new(source), identity, targets, options).unwrap();
    let (mut late, mut slow_verified, mut order) = (late, 0, Vec::new());
    for event in sender.events() {
        match event {
            Event::Progress { peer, verified, .. } => {
                if peer == "slow" {
                    slow_verified = verified;
                } else if verified > 1 << 20
                    && let Some(target) = late.take()
                {
                    sender.handle().add_target(target);
                }
            }
            Event::Done { peer, .. } => {
                order.push((peer, slow_verified));
                if ["b", "c"]
                    .iter()
                    .all(|fast| order.iter().any(|(peer, _)| peer == fast))
                {
                    network.set_path(SENDER, addresses[0], &[("delay", "5ms"), ("rate", "40Mbps")]);
                }
            }
            _ => {}
        }
    }
    assert_eq!(sender.join().unwrap(), vec![Outcome::Delivered; 4]);
    // When the late one joins depends on how busy the machine is.
    order.retain(|(peer, _)| peer != "late");
    let (last, fast) = order.split_last().unwrap();
    assert_eq!(last.0, "slow", "{order:?}");
    for (peer, slow_verified) in fast {
        assert!(
            *slow_verified <= 2 << 20,
            "{peer} waited for the slow one: {order:?}"
        );
    }
    for (receiver, store) in receivers.into_iter().zip(&stores) {
        receiver.join();
        assert!(store.0.lock().bytes == bytes);
    }
}
