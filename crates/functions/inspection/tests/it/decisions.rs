//! Decisions about packets: verdicts, answers to rejected packets, shunned flows, policies, overload.

use millrace_inspection::{IDS, IPS};
use millrace_nf::flow::{Endpoint, FlowId};
use millrace_nf::{Direction, ShunAction, ShunnedFlow, Verdict};
use millrace_types::Duration;
use millrace_wire::tcp::flags::{ACK, RST};
use millrace_wire::{Frame, ipv4, tcp};

use crate::bed::{ATTACK, CLIENT, HOST_A, HOST_B, SERVER, Segment, TestBed, data, datagram, ethernet};

const BOTH: &str = r#"rejectboth tcp any any -> any any (msg:"attack"; content:"attack"; sid:1;)"#;

/// Returns the TCP resets that the function sent, with their directions: ports, sequence number and flags.
fn resets(bed: &TestBed) -> Vec<(Direction, u16, u32, u16)> {
    let reset = |(direction, frame): (Direction, &[u8])| {
        let ip = ipv4::View::new(&frame[14..]).unwrap();
        let tcp = tcp::View::new(ip.payload()).unwrap();
        (direction, tcp.src(), tcp.seq(), tcp.flags())
    };
    bed.effects.sent().map(reset).collect()
}

#[test]
fn a_rejected_connection_is_reset_at_both_ends_and_its_flow_is_shunned() {
    let mut bed = TestBed::made(&IPS, &[], BOTH);
    bed.handshake();
    assert!(bed.send(data(0, b"attack")).is_dropped());
    let wanted = [
        (Direction::Backward, 80, SERVER + 1, RST | ACK),
        (Direction::Forward, 40_000, CLIENT + 1, RST | ACK),
    ];
    assert_eq!(resets(&bed), wanted);
    let shuns = bed.effects.shuns();
    assert_eq!((shuns.len(), shuns[0].action), (1, ShunAction::Drop));
    assert!(bed.is_attack_found());
    assert_eq!((bed.counter("rejected"), bed.counter("dropped")), (2, 1));
    // A switch that does not shun passes the next packet: it is dropped all the same.
    assert!(bed.send(data(6, b"more")).is_dropped());
    assert_eq!(bed.counter("dropped_flow"), 1);
}

#[test]
fn a_rejected_datagram_is_answered_by_icmp() {
    let rule = r#"reject udp any any -> any any (msg:"attack"; content:"attack"; sid:1;)"#;
    let mut bed = TestBed::made(&IPS, &[], rule);
    assert!(bed.send(datagram(b"attack")).is_dropped());
    let sent: Vec<_> = bed.effects.sent().collect();
    assert_eq!(sent.len(), 1);
    let ip = ipv4::View::new(&sent[0].1[14..]).unwrap();
    assert_eq!(
        (sent[0].0, ip.dst(), ip.payload()[0]),
        (Direction::Backward, HOST_A, 3)
    );
}

#[test]
fn an_alert_changes_nothing_and_a_passed_flow_is_shunned() {
    let rules = r#"
        alert tcp any any -> any any (msg:"word"; content:"word"; sid:1;)
        pass tcp any any -> any any (msg:"friend"; content:"friend"; sid:2;)"#;
    let mut bed = TestBed::made(&IPS, &[], rules);
    bed.handshake();
    assert!(!bed.send(data(0, b"word")).is_dropped());
    assert!(bed.effects.shuns().is_empty() && bed.is_attack_found());
    assert!(!bed.send(data(4, b"friend")).is_dropped());
    assert_eq!(bed.effects.shuns()[0].action, ShunAction::Pass);
    let mut bed = TestBed::made(&IPS, &["shun=no"], rules);
    bed.handshake();
    bed.send(data(0, b"friend"));
    assert!(bed.effects.shuns().is_empty());
}

#[test]
fn a_passed_connection_goes_on_after_its_shun_ended_with_and_without_a_vlan_tag() {
    let end = |address: std::net::Ipv4Addr, port| Endpoint {
        address: address.to_ipv6_mapped().octets(),
        port,
    };
    let rule = r#"pass tcp any any -> any any (msg:"friend"; content:"friend"; sid:2;)"#;
    // The timeout of a passed flow is 100 s, and that of a shunned one an hour.
    let cases = [(1, Verdict::Next), (150, Verdict::Drop)];
    for (vlan, (wait, expected)) in cases
        .map(|case| (0, case))
        .into_iter()
        .chain(cases.map(|case| (5, case)))
    {
        let mut bed = TestBed::made(&IPS, &[], rule);
        let send = |bed: &mut TestBed, packet: Vec<u8>| {
            let mut bytes = ethernet(&packet);
            if vlan != 0 {
                bytes.splice(12..12, [0x81, 0, 0, vlan]);
            }
            bed.frame(&mut Frame::new(&bytes), Direction::Forward)
        };
        for packet in crate::packets::handshake() {
            send(&mut bed, packet);
        }
        send(&mut bed, data(0, b"friend"));
        assert_eq!(bed.effects.shuns().len(), 1);
        bed.now = bed.now + Duration::from_secs(180);
        bed.function.tick(bed.now);
        bed.function.shun_ended(&ShunnedFlow {
            flow: FlowId {
                source: end(HOST_A, 40_000),
                destination: end(HOST_B, 80),
                proto: 6,
            },
            vlans: [vlan.into(), 0],
            action: ShunAction::Pass,
            packets: 1000,
            bytes: 1 << 20,
        });
        bed.now = bed.now + Duration::from_secs(wait);
        let given = send(&mut bed, data(6, b"more"));
        assert_eq!(given, expected, "VLAN {vlan} after {wait} s");
    }
}

#[test]
fn a_flow_that_the_switch_does_not_know_is_not_shunned() {
    let rule = r#"pass udp any any -> any any (msg:"all"; sid:2;)"#;
    for (tags, shuns) in [(0, 1), (2, 1), (3, 0)] {
        let mut bed = TestBed::made(&IPS, &[], rule);
        let mut bytes = ethernet(&datagram(b"x"));
        bytes.splice(12..12, [0x81, 0, 0, 5].repeat(tags));
        bed.frame(&mut Frame::new(&bytes), Direction::Forward);
        assert_eq!(bed.effects.shuns().len(), shuns, "{tags} tags");
    }
}

#[test]
fn ids_raises_the_alert_and_drops_and_sends_nothing() {
    let mut bed = TestBed::made(&IDS, &[], BOTH);
    bed.handshake();
    assert!(!bed.send(data(0, b"attack")).is_dropped());
    bed.finish();
    assert_eq!(bed.effects.sent().count(), 0);
    assert!(bed.is_attack_found());
}

#[test]
fn without_rules_the_policy_decides() {
    for (settings, passes) in [
        (&[][..], false),
        (&["profile=open"], true),
        (&["on_no_rules=pass-packet"], true),
    ] {
        let mut bed = TestBed::without_rules(&IPS, settings);
        assert_eq!(!bed.send(datagram(b"x")).is_dropped(), passes, "{settings:?}");
        assert_eq!(bed.counter("policy_no_rules"), 1);
    }
    assert!(
        !TestBed::without_rules(&IDS, &[])
            .send(datagram(b"x"))
            .is_dropped()
    );
}

#[test]
fn a_connection_without_handshake_is_treated_by_its_policy_and_reported_once() {
    let cases = [
        ("on_midstream=drop-flow", true, Some(ShunAction::Drop), 0),
        ("on_midstream=drop-packet", true, None, 0),
        ("on_midstream=bypass", false, Some(ShunAction::Pass), 0),
        ("on_midstream=reject", true, Some(ShunAction::Drop), 2),
        ("on_midstream=ignore", false, None, 0),
    ];
    for (setting, is_dropped, shun, sent) in cases {
        let mut bed = TestBed::made(
            &IPS,
            &[setting],
            "alert tcp any any -> any any (content:\"never\"; sid:1;)",
        );
        assert_eq!(bed.send(data(0, b"x")).is_dropped(), is_dropped, "{setting}");
        assert_eq!(
            bed.effects.shuns().first().map(|shun| shun.action),
            shun,
            "{setting}"
        );
        assert_eq!(bed.effects.sent().count(), sent, "{setting}");
        bed.send(data(1, b"y"));
        let events = bed.events();
        let anomalies = events.iter().filter(|event| event["event_type"] == "anomaly");
        let names: Vec<_> = anomalies.map(|event| event["anomaly"]["event"].clone()).collect();
        assert_eq!(names, ["midstream"], "{setting}");
        assert!(bed.counter("policy_midstream") >= 1);
    }
}

#[test]
fn a_full_flow_table_refuses_new_flows_and_keeps_established_ones() {
    let flood = |settings: &[&str]| {
        let mut bed = TestBed::made(&IPS, settings, ATTACK);
        let connection = |bed: &mut TestBed, port: u16| {
            let packets = crate::packets::handshake_of(port);
            packets
                .into_iter()
                .map(|packet| bed.send(packet))
                .any(|sent| sent.is_dropped())
        };
        let refused = (1..=200).filter(|port| connection(&mut bed, 1000 + port)).count();
        (refused, bed)
    };
    let (refused, mut bed) = flood(&["flows=64"]);
    assert!((136..150).contains(&refused), "{refused}");
    assert!(bed.counter("policy_flow_table") >= 136);
    assert_eq!(bed.counter("flows_evicted"), 0);
    let first = Segment {
        port: 1001,
        data: b"attack",
        ..Segment::default()
    };
    assert!(bed.send(first.packet()).is_dropped(), "it is still inspected");
    let (refused, mut bed) = flood(&["flows=64", "on_flow_table=ignore"]);
    assert_eq!(refused, 0);
    assert!(bed.counter("flows_evicted") >= 136);
}

#[test]
fn a_packet_of_several_segments_is_inspected_as_a_whole() {
    let mut bed = TestBed::inline();
    let whole = ethernet(&datagram(b"long frames hide an attack"));
    let mut frame = Frame::segmented(&whole, 60);
    assert_eq!(bed.frame(&mut frame, Direction::Forward), Verdict::Drop);
    assert_eq!((bed.counter("segmented"), bed.counter("unreadable")), (1, 0));
    // A change within the first segment is made. A change that also needs another segment is impossible.
    bed.handshake();
    bed.send(data(0, b"harmless"));
    let mut again = Frame::segmented(&ethernet(&data(0, b"harmFULL")), 57);
    assert_eq!(bed.frame(&mut again, Direction::Forward), Verdict::Drop);
    assert_eq!(bed.counter("unreadable"), 1);
    let mut again = Frame::segmented(&ethernet(&data(0, b"HARMless")), 60);
    assert_eq!(bed.frame(&mut again, Direction::Forward), Verdict::Next);
    assert_eq!(&again.bytes()[54..], b"harmless");
}

#[test]
fn under_overload_records_go_first_and_with_profile_open_new_flows_pass() {
    let mut bed = TestBed::made(&IPS, &["profile=open"], ATTACK);
    bed.load = 200;
    bed.send(datagram(b"one"));
    assert_eq!(bed.counter("overload_level"), 1);
    bed.load = 255;
    let open = crate::packets::handshake_of(5000);
    for packet in open {
        assert!(!bed.send(packet).is_dropped());
    }
    assert_eq!(bed.counter("overload_level"), 3);
    assert!(bed.counter("policy_overload") >= 1);
    let attack = Segment {
        port: 5000,
        data: b"attack",
        ..Segment::default()
    };
    assert!(
        !bed.send(attack.packet()).is_dropped(),
        "the flow is not inspected"
    );
    assert!(bed.events().iter().all(|event| event["event_type"] != "flow"));
    // The load falls by one level at a time.
    bed.load = 0;
    for _ in 0..8 {
        bed.now = bed.now + Duration::from_secs(1);
        bed.send(datagram(b"two"));
    }
    assert_eq!(bed.counter("overload_level"), 0);
    let mut closed = TestBed::made(&IPS, &[], ATTACK);
    closed.load = 255;
    closed.handshake();
    assert!(
        closed.send(data(0, b"attack")).is_dropped(),
        "closed: what passes is inspected"
    );
}

#[test]
fn alerts_without_room_are_counted_and_change_no_verdict() {
    let rule = r#"alert udp any any -> any any (msg:"each"; sid:1;)"#;
    let mut bed = TestBed::made(&IPS, &["events=alerts"], rule);
    let sent = 3000;
    for number in 0..sent {
        let mut packet = datagram(b"x");
        // Each packet has a source of its own, so that it begins a flow.
        packet[14..16].copy_from_slice(&(number as u16).to_be_bytes());
        packet[10..12].fill(0);
        let checksum = millrace_wire::checksum::internet(&packet[..20]);
        packet[10..12].copy_from_slice(&checksum.to_be_bytes());
        packet[26..28].fill(0);
        assert!(!bed.send(packet).is_dropped());
    }
    let lost = bed.counter("events_lost");
    let alerts = bed.counter("alerts");
    let written = bed
        .events()
        .iter()
        .filter(|event| event["event_type"] == "alert")
        .count() as u64;
    assert_eq!(alerts, sent);
    assert_eq!((written, lost), (1024, sent - 1024));
}

#[test]
fn fragments_of_tcp_are_dropped_if_asked() {
    let mut bed = TestBed::made(&IPS, &["tcp_fragments=drop"], ATTACK);
    bed.handshake();
    let pieces = crate::packets::fragments(&data(0, b"0123456789012345"), 24);
    assert!(pieces.into_iter().all(|piece| bed.send(piece).is_dropped()));
    let datagrams = crate::packets::fragments(&datagram(b"0123456789012345"), 8);
    assert!(!bed.send_all(datagrams));
}

#[test]
fn events_have_flow_numbers_that_json_readers_keep_and_times_of_the_world() {
    let mut bed = TestBed::inline();
    bed.handshake();
    bed.send(data(0, b"attack"));
    let events = bed.events();
    let alert = events
        .iter()
        .find(|event| event["event_type"] == "alert")
        .unwrap();
    let id = alert["flow_id"].as_u64().unwrap();
    assert!(id < 1 << 53 && id & 0xffff_ffff == 1, "{id}");
    assert!(
        alert["timestamp"]
            .as_str()
            .unwrap()
            .starts_with("1970-01-01T00:16:40")
    );
    assert_eq!(alert["alert"]["action"], "blocked");
    assert_eq!(alert["dest_ip"], HOST_B.to_string());
}
