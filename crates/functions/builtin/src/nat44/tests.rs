//! Tests of the function `nat44`.

use millrace_nf::Settings;
use millrace_types::Mac;
use millrace_wire::{Builder, Frame, ipv4, udp};

use super::*;

struct TestBed {
    setup: Setup,
    nat: Box<dyn Function>,
}

const INSIDE: [u8; 4] = [192, 168, 0, 5];
const OUTSIDE: [u8; 4] = [203, 0, 113, 1];
const SERVER: [u8; 4] = [198, 51, 100, 7];

impl TestBed {
    fn new(settings: &[&str]) -> TestBed {
        let all = ["outside=203.0.113.1"]
            .into_iter()
            .chain(settings.iter().copied());
        let setup = KIND.setup(&Settings::parse(all).unwrap(), 9, 0);
        let nat = KIND.make_function(&setup).unwrap();
        TestBed { setup, nat }
    }

    fn run(&mut self, bytes: &[u8], direction: Direction, second: u64) -> Option<Vec<u8>> {
        let mut frame = Frame::new(bytes);
        let context = Context::new(Time::from_secs(second), direction);
        let mut verdicts = [Verdict::Next];
        self.nat.process(&context, &mut [&mut frame], &mut verdicts);
        (verdicts == [Verdict::Next]).then(|| frame.bytes().to_vec())
    }
}

fn datagram(from: ([u8; 4], u16), to: ([u8; 4], u16)) -> Vec<u8> {
    let ethernet = Builder::ethernet(Mac([2, 0, 0, 0, 0, 2]), Mac([2, 0, 0, 0, 0, 1]));
    ethernet
        .ipv4(from.0, to.0)
        .udp(from.1, to.1)
        .payload(b"hello")
        .build()
}

/// Returns source and destination, after a check of every checksum.
fn ends(frame: &[u8]) -> (([u8; 4], u16), ([u8; 4], u16)) {
    let flow = FlowPacket::of(&Frame::new(frame)).unwrap();
    let header = &frame[14..34];
    assert_eq!(millrace_wire::checksum::internet(header), 0, "IPv4 checksum");
    let rebuilt = {
        let (s, d) = (flow.id.source, flow.id.destination);
        datagram((v4(s.address), s.port), (v4(d.address), d.port))
    };
    assert_eq!(frame, rebuilt, "UDP checksum");
    let _sizes = (ipv4::MIN_SIZE, udp::SIZE);
    let end = |end: millrace_nf::flow::Endpoint| (v4(end.address), end.port);
    (end(flow.id.source), end(flow.id.destination))
}

#[test]
fn what_goes_out_comes_back_to_where_it_came_from() {
    let mut bed = TestBed::new(&[]);
    let out = bed
        .run(&datagram((INSIDE, 5000), (SERVER, 53)), Direction::Forward, 0)
        .unwrap();
    let (source, destination) = ends(&out);
    assert_eq!((source.0, destination), (OUTSIDE, (SERVER, 53)));
    let back = bed
        .run(&datagram((SERVER, 53), source), Direction::Backward, 1)
        .unwrap();
    assert_eq!(ends(&back), ((SERVER, 53), (INSIDE, 5000)));
    let again = bed
        .run(&datagram((INSIDE, 5000), (SERVER, 54)), Direction::Forward, 2)
        .unwrap();
    assert_eq!(ends(&again).0, source, "endpoint-independent");
    let other = bed
        .run(&datagram((INSIDE, 5001), (SERVER, 53)), Direction::Forward, 2)
        .unwrap();
    assert_ne!(ends(&other).0, source);
    assert_eq!(bed.setup.counters.value("mappings"), Some(2));
}

#[test]
fn nothing_comes_in_that_was_not_asked_for() {
    let mut bed = TestBed::new(&[]);
    assert_eq!(
        bed.run(&datagram((SERVER, 53), (OUTSIDE, 4000)), Direction::Backward, 0),
        None
    );
    assert_eq!(
        bed.run(&datagram((SERVER, 53), (INSIDE, 4000)), Direction::Backward, 0),
        None
    );
    assert_eq!(bed.setup.counters.value("no_mapping"), Some(2));
}

#[test]
fn ports_run_out_and_come_back() {
    let mut bed = TestBed::new(&["ports=4000-4003", "idle_s=10"]);
    let mut ports = std::collections::BTreeSet::new();
    for inside in 0..4 {
        let out = bed
            .run(&datagram((INSIDE, inside), (SERVER, 53)), Direction::Forward, 0)
            .unwrap();
        ports.insert(ends(&out).0.1);
    }
    assert_eq!(ports.into_iter().collect::<Vec<_>>(), [4000, 4001, 4002, 4003]);
    assert_eq!(
        bed.run(&datagram((INSIDE, 9), (SERVER, 53)), Direction::Forward, 5),
        None
    );
    assert!(
        bed.run(&datagram((INSIDE, 9), (SERVER, 53)), Direction::Forward, 10)
            .is_some()
    );
    bed.nat.tick(Time::from_secs(30));
    assert_eq!(bed.setup.counters.value("mappings"), Some(0));
}

#[test]
fn a_new_flow_gets_a_port_if_half_of_them_are_free() {
    let mut bed = TestBed::new(&["ports=1000-2999", "idle_s=10"]);
    let send = |bed: &mut TestBed, inside: u16, second: u64| {
        bed.run(
            &datagram((INSIDE, inside), (SERVER, 53)),
            Direction::Forward,
            second,
        )
        .is_some()
    };
    assert!((0..2_000).all(|inside| send(&mut bed, inside, 0)));
    // Half of the mappings, with adjacent ports, are used further. The others expire.
    assert!((0..1_000).all(|inside| send(&mut bed, inside, 9)));
    (0..2).for_each(|_| bed.nat.tick(Time::from_secs(12)));
    assert_eq!(bed.setup.counters.value("mappings"), Some(1_000));
    assert!((2_000..3_000).all(|inside| send(&mut bed, inside, 12)));
    assert!(!send(&mut bed, 3_000, 12), "all ports are in use");
}

#[test]
fn a_burst_searches_a_bounded_number_of_ports_for_expired_mappings() {
    let mut bed = TestBed::new(&["ports=1000-1127", "idle_s=10"]);
    let from = |inside| datagram((INSIDE, inside), (SERVER, 53));
    for inside in 0..128 {
        let out = bed.run(&from(inside), Direction::Forward, 0).unwrap();
        // The mappings of the ports that are searched first are used further.
        if ends(&out).0.1 <= 1_000 + TRIES as u16 {
            assert!(bed.run(&from(inside), Direction::Forward, 5).is_some());
        }
    }
    let mut burst = |seconds| {
        let mut frames = [from(200), from(201)].map(|bytes| Frame::new(&bytes));
        let mut verdicts = [Verdict::Next; 2];
        let context = Context::new(Time::from_secs(seconds), Direction::Forward);
        let mut packets = frames.each_mut().map(|frame| -> &mut dyn Buffer { frame });
        bed.nat.process(&context, &mut packets, &mut verdicts);
        verdicts
    };
    assert_eq!(
        burst(10),
        [Verdict::Drop; 2],
        "the search has not reached an expired mapping"
    );
    assert_eq!(burst(10), [Verdict::Next; 2]);
}

#[test]
fn each_port_is_free_once_for_any_seed() {
    for seed in [0, 7, u64::MAX - 1, u64::MAX] {
        let settings = Settings::parse(["outside=203.0.113.1", "ports=4000-4002"]).unwrap();
        let nat = Nat::new(&KIND.setup(&settings, seed, 0)).unwrap();
        let mut ports = Vec::from(nat.free[TCP].clone());
        ports.sort_unstable();
        assert_eq!(ports, [4000, 4001, 4002]);
    }
}

#[test]
fn an_established_connection_may_be_idle_for_two_hours() {
    use millrace_wire::tcp::{
        Repr,
        flags::{ACK, FIN, RST, SYN},
    };
    let mut bed = TestBed::new(&[]);
    let segment = |from: ([u8; 4], u16), to: ([u8; 4], u16), flags, payload: &'static [u8]| {
        let ethernet = Builder::ethernet(Mac([2, 0, 0, 0, 0, 2]), Mac([2, 0, 0, 0, 0, 1]));
        let repr = Repr {
            src: from.1,
            dst: to.1,
            flags,
            ..Repr::default()
        };
        ethernet.ipv4(from.0, to.0).tcp(repr).payload(payload).build()
    };
    let (client, server) = ((INSIDE, 5000), (SERVER, 80));
    let out = bed
        .run(&segment(client, server, SYN, b""), Direction::Forward, 0)
        .unwrap();
    let outside = (OUTSIDE, u16::from_be_bytes([out[34], out[35]]));
    let mut back = |flags, payload, second| {
        bed.nat.tick(Time::from_secs(second));
        let segment = segment(server, outside, flags, payload);
        bed.run(&segment, Direction::Backward, second).is_some()
    };
    assert!(back(SYN | ACK, b"", 1) && back(ACK, b"", 2));
    assert!(back(ACK, b"", 2 + 7_439));
    assert!(back(RST, b"", 7_500) && back(ACK, b"data", 7_799));
    assert!(back(ACK, b"", 7_799 + 7_439), "the connection goes on");
    assert!(back(FIN | ACK, b"", 15_300) && back(ACK, b"", 15_599));
    assert!(!back(ACK, b"", 15_899), "closing");
}

#[test]
fn a_connection_that_nobody_answers_does_not_keep_its_port() {
    use millrace_wire::tcp::{Repr, flags::ACK};
    let mut bed = TestBed::new(&["ports=1024-1087"]);
    let repr = Repr {
        flags: ACK,
        ..Repr::default()
    };
    let ethernet = Builder::ethernet(Mac([2, 0, 0, 0, 0, 2]), Mac([2, 0, 0, 0, 0, 1]));
    let segment = ethernet.ipv4(INSIDE, SERVER).tcp(repr).payload(b"data").build();
    for second in [0, 1] {
        assert!(bed.run(&segment, Direction::Forward, second).is_some());
    }
    bed.nat.tick(Time::from_secs(301));
    assert_eq!(bed.setup.counters.value("mappings"), Some(0));
}

#[test]
fn an_error_about_a_translated_packet_finds_its_sender_and_does_not_keep_its_mapping() {
    let mut bed = TestBed::new(&[]);
    let sent = datagram((INSIDE, 5000), (SERVER, 53));
    let out = bed.run(&sent, Direction::Forward, 0).unwrap();
    let mut message = vec![3, 3, 0, 0, 0, 0, 0, 0];
    message.extend_from_slice(&out[14..42]);
    let sum = millrace_wire::checksum::internet(&message);
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    let ethernet = Builder::ethernet(Mac([2, 0, 0, 0, 0, 1]), Mac([2, 0, 0, 0, 0, 2]));
    let mut error = ethernet.ipv4(SERVER, OUTSIDE).payload(&message).build();
    error[23] = 1;
    error[24..26].fill(0);
    let sum = millrace_wire::checksum::internet(&error[14..34]);
    error[24..26].copy_from_slice(&sum.to_be_bytes());
    let back = bed.run(&error, Direction::Backward, 1).unwrap();
    assert_eq!(back[30..34], INSIDE);
    assert_eq!(millrace_wire::checksum::internet(&back[14..34]), 0);
    assert_eq!(millrace_wire::checksum::internet(&back[34..]), 0);
    assert_eq!(
        back[42..62],
        sent[14..34],
        "the packet inside is the one that was sent"
    );
    assert_eq!(back[62..64], 5000_u16.to_be_bytes());
    // Errors are no use of the mapping.
    assert!(bed.run(&error, Direction::Backward, 299).is_some());
    assert_eq!(bed.run(&error, Direction::Backward, 300), None);
}
