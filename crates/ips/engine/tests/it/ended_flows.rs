//! Flows whose packets passed without inspection, and later flows on the same ports.

use millrace_ips_engine::{FlowVerdict, Mode, Policies, Settings};
use millrace_types::Duration;
use millrace_wire::IpProto;

use crate::bed::{ATTACK, HOST_A, HOST_B, Segment, TestBed, acknowledgment, data, datagram, handshake, ip};

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
