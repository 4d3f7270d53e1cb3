//! Tests of the two ends of an emulated path as ports.

use std::num::NonZeroU16;
use std::sync::Arc;
use std::time::{Duration, Instant};

use millrace_wan_emulator::{ClassConfig, DirectionConfig};
use millrace_wire::{Frame, FramePool, Packet};

use super::*;
use crate::io::{Backend, Burst, DeviceOptions, HeapBackend};

const BOUND: Duration = Duration::from_secs(60);

/// Returns a path with 4 MiB of memory and these settings in both directions.
fn spec(settings: &[(&str, &str)]) -> PathSpec {
    let mut config = DirectionConfig::default();
    for (key, text) in settings {
        config.path.set(key, text).unwrap();
    }
    config.memory = Some("4MiB".parse().unwrap());
    PathSpec {
        directions: [config.clone(), config],
        seed: 1,
        scenario: None,
    }
}

fn end(number: usize) -> DeviceSpec {
    DeviceSpec::Wan {
        name: "p".to_owned(),
        end: number,
    }
}

struct Ends {
    backend: HeapBackend,
    a: Opened<Frame>,
    b: Opened<Frame>,
}

impl Ends {
    fn open(spec: &PathSpec) -> Ends {
        let backend = HeapBackend::new();
        backend.wans().configure("p", spec).unwrap();
        let open = |number| backend.open(&end(number), DeviceOptions::PLAIN).unwrap();
        let (a, b) = (open(0), open(1));
        Ends { backend, a, b }
    }

    fn send(&mut self, packets: Vec<Frame>) {
        let mut burst: Burst<Frame> = packets.into_iter().collect();
        self.a.tx[0].tx_burst(&mut burst);
        assert!(burst.is_empty());
    }

    /// Returns the next packets at end b: at least `len`, or fewer if [`BOUND`] passes before.
    fn receive(&mut self, len: usize) -> Vec<Frame> {
        let (mut received, deadline) = (Vec::new(), Instant::now() + BOUND);
        while received.len() < len && Instant::now() < deadline {
            let mut burst = Burst::new();
            self.b.rx[0].rx_burst(&mut burst);
            received.extend(burst);
        }
        received
    }
}

/// Returns a UDP datagram over IPv4 to a UDP port.
fn datagram(port: u16) -> Frame {
    let mut bytes = vec![0; 14 + 20 + 8 + 18];
    bytes[12..14].copy_from_slice(&[8, 0]);
    bytes[14] = 0x45;
    bytes[16..18].copy_from_slice(&46_u16.to_be_bytes());
    bytes[22] = 64;
    bytes[23] = 17;
    bytes[36..38].copy_from_slice(&port.to_be_bytes());
    bytes[38..40].copy_from_slice(&26_u16.to_be_bytes());
    Frame::new(&bytes)
}

#[test]
fn a_packet_comes_out_of_the_other_end_after_the_delay_and_its_due_time_is_told() {
    let mut ends = Ends::open(&spec(&[("delay", "20ms")]));
    assert!(ends.a.device.info().link_up && ends.b.device.info().link_up);
    let sent = Instant::now();
    ends.send(vec![Frame::new(&[7; 60])]);
    let due = ends.b.rx[0].next_due().unwrap();
    assert!(due <= Instant::now() + Duration::from_millis(20));
    let received = ends.receive(1);
    assert_eq!(received, [Frame::new(&[7; 60])]);
    assert!(sent.elapsed() >= Duration::from_millis(20));
    assert_eq!(ends.b.rx[0].next_due(), None);
    let state = &ends.backend.wans().states()[0];
    assert_eq!((state.stats[0].offered, state.stats[0].released), (1, 1));
    assert_eq!(state.stats[1].offered, 0);
}

#[test]
fn a_long_frame_comes_out_whole_over_several_buffers() {
    let pool = FramePool::new(64, 512);
    let wans = Arc::new(Wans::default());
    wans.configure("p", &spec(&[])).unwrap();
    let empty: Empty<Frame> = {
        let pool = pool.clone();
        Arc::new(move |len, burst: &mut Burst<Frame>| {
            burst.extend((0..len).map_while(|_| pool.take(&[])));
        })
    };
    let open = |number| super::open(&end(number), &wans, "p", number, &empty).unwrap();
    let (mut a, mut b) = (open(0), open(1));
    let bytes: Vec<u8> = (0..9000_usize).map(|at| at as u8).collect();
    let mut burst: Burst<Frame> = [Frame::segmented(&bytes, 100)].into_iter().collect();
    a.tx[0].tx_burst(&mut burst);
    let (mut burst, deadline) = (Burst::new(), Instant::now() + BOUND);
    while burst.is_empty() && Instant::now() < deadline {
        b.rx[0].rx_burst(&mut burst);
    }
    assert_eq!(burst[0].bytes(), bytes);
}

#[test]
fn a_gso_packet_is_segmented_before_the_model_sees_it() {
    let mut ends = Ends::open(&spec(&[]));
    let mut bytes = vec![0_u8; 14 + 20 + 20 + 5 * 1000];
    bytes[12..14].copy_from_slice(&[8, 0]);
    bytes[14] = 0x45;
    bytes[16..18].copy_from_slice(&(40 + 5000_u16).to_be_bytes());
    bytes[22] = 64;
    bytes[23] = 6;
    bytes[46] = 0x50;
    let packet = Frame::new(&bytes).to_gso(NonZeroU16::new(1000).unwrap());
    ends.send(vec![packet]);
    let received = ends.receive(5);
    assert_eq!(received.len(), 5);
    assert!(received.iter().all(|segment| segment.len() == 54 + 1000));
    assert_eq!(ends.backend.wans().states()[0].stats[0].offered, 5);
}

#[test]
fn what_is_sent_while_the_other_end_is_no_port_is_refused_and_an_end_can_be_opened_again() {
    let mut ends = Ends::open(&spec(&[]));
    drop(ends.b);
    assert!(!ends.a.device.info().link_up);
    let mut burst: Burst<Frame> = [Frame::new(&[1; 60])].into_iter().collect();
    ends.a.tx[0].tx_burst(&mut burst);
    assert_eq!((burst.len(), ends.a.tx[0].refused(1)), (1, 1));
    ends.b = ends.backend.open(&end(1), DeviceOptions::PLAIN).unwrap();
    ends.a.tx[0].tx_burst(&mut burst);
    assert!(burst.is_empty());
    assert_eq!(ends.receive(1).len(), 1);
}

#[test]
fn an_end_has_one_port_and_a_path_must_be_configured() {
    let ends = Ends::open(&spec(&[]));
    let open = |spec: &DeviceSpec| {
        let opened = ends.backend.open(spec, DeviceOptions::PLAIN);
        opened.err().map(|error| error.to_string()).unwrap_or_default()
    };
    assert!(open(&end(0)).contains("in use"));
    let unknown = DeviceSpec::Wan {
        name: "q".to_owned(),
        end: 0,
    };
    assert!(open(&unknown).contains("[[wan]] with name = \"q\""));
}

#[test]
fn classes_have_paths_of_their_own() {
    let mut wanted = spec(&[]);
    let mut path = wanted.directions[0].path.clone();
    path.set("loss", "100%").unwrap();
    wanted.directions[0].class.push(ClassConfig {
        name: "bad".to_owned(),
        filter: "udp,tp_dst=9".to_owned(),
        path,
    });
    let mut ends = Ends::open(&wanted);
    ends.send(vec![datagram(9), datagram(10)]);
    assert_eq!(ends.receive(1), [datagram(10)]);
    let stats = &ends.backend.wans().states()[0].stats[0];
    let lost: u64 = stats.drops.iter().map(|(_, frames)| *frames).sum();
    assert_eq!((stats.offered, lost), (2, 1));

    wanted.directions[0].class[0].filter = "tp_dst=".to_owned();
    let error = Wans::configure(&Arc::default(), "q", &wanted).unwrap_err();
    assert!(error.to_string().starts_with("a_to_b, class bad: "), "{error}");
}

#[test]
fn a_packet_over_the_mtu_is_answered_at_the_end_that_it_entered() {
    let mut ends = Ends::open(&spec(&[("mtu", "600"), ("over-mtu", "too-big")]));
    let mut bytes = vec![0; 14 + 700];
    bytes[..14].copy_from_slice(&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0]);
    bytes[14..34].copy_from_slice(&[
        0x45, 0, 2, 188, 0, 0, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2,
    ]);
    assert_eq!(ends.a.rx[0].next_due(), None);
    ends.send(vec![Frame::new(&bytes)]);
    assert!(ends.a.rx[0].next_due().is_some_and(|due| due <= Instant::now()));
    let mut burst = Burst::new();
    ends.a.rx[0].rx_burst(&mut burst);
    let packet = burst.pop().unwrap();
    let answer = packet.bytes();
    assert_eq!((&answer[..6], &answer[6..12]), (&bytes[6..12], &bytes[..6]));
    // ICMP, type 3, code 4, with the MTU of the next hop.
    assert_eq!((answer[23], answer[34], answer[35]), (1, 3, 4));
    assert_eq!(answer[40..42], 600_u16.to_be_bytes());
    assert_eq!(ends.a.rx[0].next_due(), None);
    let state = &ends.backend.wans().states()[0];
    assert_eq!((state.stats[0].icmp_errors_sent, state.stats[0].released), (1, 0));
}

#[test]
fn settings_change_under_traffic_for_new_frames_and_what_cannot_change_is_refused() {
    let mut ends = Ends::open(&spec(&[("delay", "100ms")]));
    ends.send(vec![Frame::new(&[1; 60])]);
    let wans = Arc::clone(ends.backend.wans());
    wans.configure("p", &spec(&[("loss", "100%")])).unwrap();
    ends.send(vec![Frame::new(&[2; 60])]);
    assert_eq!(ends.receive(1), [Frame::new(&[1; 60])]);
    let mut other = spec(&[]);
    other.seed = 2;
    let error = wans.configure("p", &other).unwrap_err().to_string();
    assert!(
        error.contains("the seed") && error.contains("To fix it"),
        "{error}"
    );
    assert_eq!(wans.states()[0].spec.seed, 1);
    drop((ends.a, ends.b));
    wans.configure("p", &other).unwrap();
    assert_eq!(wans.states()[0].spec.seed, 2);
    wans.retain(&[]);
    assert!(wans.states().is_empty());
}

#[test]
fn a_scenario_changes_settings_after_a_time() {
    let mut wanted = spec(&[]);
    wanted.scenario = Some(millrace_wan_emulator::Scenario::parse("at 50ms forward loss 100%\n").unwrap());
    let mut ends = Ends::open(&wanted);
    let deadline = Instant::now() + BOUND;
    let lost = |ends: &Ends| -> u64 {
        let drops = &ends.backend.wans().states()[0].stats[0].drops;
        drops.iter().map(|(_, frames)| *frames).sum()
    };
    while lost(&ends) == 0 && Instant::now() < deadline {
        ends.send(vec![Frame::new(&[1; 60])]);
        let mut burst = Burst::new();
        ends.b.rx[0].rx_burst(&mut burst);
    }
    assert!(lost(&ends) > 0);
}

/// Returns the path `spec(&[])` with a scenario.
fn with_scenario(text: &str) -> PathSpec {
    PathSpec {
        scenario: Some(millrace_wan_emulator::Scenario::parse(text).unwrap()),
        ..spec(&[])
    }
}

#[test]
fn the_scenario_of_a_removed_path_does_not_change_the_next_path_of_its_name() {
    let wans: Arc<Wans> = Arc::default();
    wans.configure("p", &with_scenario("at 200ms forward loss 100%\n"))
        .unwrap();
    wans.retain(&[]);
    wans.configure("p", &spec(&[])).unwrap();
    // The later scenario of another path ends the wait.
    wans.configure("q", &with_scenario("at 400ms forward loss 100%\n"))
        .unwrap();
    let losses = |number: usize| wans.states()[number].spec.directions[0].path.loss.0.len();
    let deadline = Instant::now() + BOUND;
    while losses(1) == 0 && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!((losses(0), losses(1)), (0, 1));
}

#[test]
fn the_thread_of_a_scenario_ends_with_its_configuration() {
    let wans: Arc<Wans> = Arc::default();
    for scenario in ["at 10000s loss 1%\n", "at 20000s loss 1%\n"] {
        wans.configure("p", &with_scenario(scenario)).unwrap();
    }
    wans.configure("p", &spec(&[])).unwrap();
    // Each thread has weak references to the registry.
    let deadline = Instant::now() + BOUND;
    while Arc::weak_count(&wans) > 0 && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(Arc::weak_count(&wans), 0);
}
