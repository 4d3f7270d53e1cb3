//! Flows whose packets passed without inspection, and later flows on the same ports.

use millrace_ips_engine::{FlowVerdict, Mode, Policies, Settings};
use millrace_types::Duration;
use millrace_wire::IpProto;
use millrace_wire::tcp::flags;

use crate::bed::{
    ATTACK, CLIENT, HOST_A, HOST_B, Segment, TestBed, acknowledgment, data, datagram, handshake, ip,
};

const FRIEND: &str = r#"pass tcp any any -> any any (msg:"friend"; content:"friend"; sid:2;)"#;

/// Returns true if an attack in two segments on a new connection is found.
fn finds_attack(bed: &mut TestBed) -> bool {
    bed.handshake();
    bed.send(data(0, b"att"));
    bed.send(data(3, b"ack")).is_dropped() && bed.is_attack_found()
}

#[test]
fn a_connection_behind_a_bypassed_flow_is_inspected() {
    let settings = Settings {
        mode: Mode::Ips,
        policies: Policies::open(),
        ..Settings::default()
    };
    let mut bed = TestBed::with(settings, ATTACK);
    // An acknowledgment without a handshake: `on_midstream` is bypass.
    assert!(!bed.send(data(0, &[])).is_dropped());
    assert_eq!(bed.engine.settled(), FlowVerdict::Bypass);
    assert!(finds_attack(&mut bed));
}

#[test]
fn a_connection_behind_a_passed_one_is_inspected_even_with_the_same_numbers() {
    let mut bed = TestBed::new(Mode::Ips, &format!("{ATTACK}\n{FRIEND}"));
    bed.handshake();
    assert!(!bed.send(data(0, b"friend")).is_dropped());
    assert_eq!(bed.engine.settled(), FlowVerdict::Pass);
    assert!(!bed.send(data(6, b"attack")).is_dropped());
    assert!(finds_attack(&mut bed));
    // A dropped connection stays dropped.
    assert!(bed.send_all(handshake()));
}

#[test]
fn beside_the_path_a_syn_that_is_sent_again_does_not_end_a_passed_flow() {
    let rule = r#"pass tcp any any -> any any (msg:"all"; sid:3;)"#;
    let mut bed = TestBed::new(Mode::Ids, rule);
    let [syn, ..] = handshake();
    bed.send_all([syn.clone(), syn]);
    assert_eq!(bed.engine.settled(), FlowVerdict::Pass);
    bed.finish();
    assert_eq!(bed.engine.flow_counters().created, 1);
}

#[test]
fn the_switch_does_not_treat_flows_of_icmp() {
    let rule = "drop ip any any -> any any (msg:\"listed\"; sid:1;)";
    let mut bed = TestBed::new(Mode::Ips, rule);
    for kind in [8, 13] {
        let message = [&[kind, 0, 0, 0, 0, 7, 0, 1], &[0; 12][..]].concat();
        assert!(
            bed.send(ip((HOST_A, HOST_B), IpProto::ICMPV4, &message))
                .is_dropped()
        );
        assert_eq!(bed.engine.settled(), FlowVerdict::None);
    }
    assert!(bed.send(datagram(b"x")).is_dropped());
    assert_eq!(bed.engine.settled(), FlowVerdict::Drop);
}

#[test]
fn the_time_of_a_flow_begins_anew_when_its_shun_ends() {
    let mut bed = TestBed::new(Mode::Ips, &format!("{ATTACK}\n{FRIEND}"));
    bed.handshake();
    bed.send(data(0, b"friend"));
    bed.engine.shun();
    let ends = [(HOST_A.into(), 40_000), (HOST_B.into(), 80)];
    bed.now = bed.now + Duration::from_secs(180);
    bed.engine.unshun(ends, 6, [0; 2], (1000, 1 << 20), bed.now);
    bed.now = bed.now + Duration::from_secs(1);
    assert!(!bed.send(data(6, b"more")).is_dropped());
    assert!(!bed.send(acknowledgment(10)).is_dropped());
    // Without a shun, the engine forgets the connection, so its next packets lack a handshake.
    bed.now = bed.now + Duration::from_secs(101);
    let late = Segment {
        data: b"late",
        ..Segment::default()
    };
    assert!(bed.send(late.packet()).is_dropped());
}

#[test]
fn data_behind_a_hole_are_inspected_at_a_reset_and_at_the_end() {
    const RULE: &str = "alert tcp any any -> any any (content:\"attack\"; sid:1;)\n\
        alert tcp any any -> any any (content:\"before\"; sid:2;)";
    let mut variants = 0;
    for (mode, hole, is_acknowledged, has_reset, cut) in [Mode::Ids, Mode::Ips]
        .into_iter()
        .flat_map(|mode| [1, 2, 1459, 20_000].map(|hole| (mode, hole)))
        .flat_map(|(mode, hole)| [true, false].map(|acked| (mode, hole, acked)))
        .flat_map(|(mode, hole, acked)| [true, false].map(|reset| (mode, hole, acked, reset)))
        .flat_map(|(mode, hole, acked, reset)| (0..=6).map(move |cut| (mode, hole, acked, reset, cut)))
    {
        variants += 1;
        let mut bed = TestBed::new(mode, RULE);
        bed.handshake();
        bed.send(data(0, b"before"));
        let behind = 6 + hole;
        let (first, second) = b"attack".split_at(cut);
        for (at, part) in [(behind, first), (behind + cut as u32, second)] {
            if !part.is_empty() {
                bed.send(data(at, part));
            }
        }
        if is_acknowledged {
            bed.send(acknowledgment(behind + 6));
        }
        if has_reset {
            let reset = Segment {
                flags: flags::RST | flags::ACK,
                seq: CLIENT.wrapping_add(1 + if is_acknowledged { behind + 6 } else { 6 }),
                ..Segment::default()
            };
            bed.send(reset.packet());
        }
        bed.finish();
        let what =
            format!("{mode:?}, hole of {hole}, acknowledged {is_acknowledged}, reset {has_reset}, {cut}");
        assert_eq!(bed.sids(), [1, 2].into(), "{what}");
    }
    assert!(variants >= 200, "{variants}");
}
