//! Exhaustion: the memory stays within the settings, and established connections survive.

use millrace_ips_engine::detect::DetectSettings;
use millrace_ips_engine::event::RuleId;
use millrace_ips_engine::{Cause, Event, Mode, Overload, Policies, Settings};
use millrace_types::Duration;
use millrace_wire::IpProto;

use crate::bed::{
    ATTACK, Segment, TestBed, acknowledgment, data, datagram, fragment, handshake_of, ip, with_ident,
};

fn settings() -> Settings {
    Settings {
        mode: Mode::Ips,
        flows: 2048,
        segment_bytes: 1 << 20,
        fragment_bytes: 256 << 10,
        ..Settings::default()
    }
}

/// Returns a SYN of a random source.
fn syn(number: u32) -> Vec<u8> {
    let mut packet = handshake_of((number % 60_000) as u16 + 1)[0].clone();
    let source = 0x0b00_0000u32 + number / 60_000 + number % 251 * 65_536;
    packet[12..16].copy_from_slice(&source.to_be_bytes());
    packet
}

#[test]
fn a_flood_of_syn_segments_leaves_established_connections() {
    let mut bed = TestBed::with(settings(), ATTACK);
    let ports = 10_000..10_200;
    for port in ports.clone() {
        bed.send_all(handshake_of(port));
    }
    for number in 0..40_000 {
        bed.send(syn(number));
        assert!(bed.engine.flows() <= 2048);
    }
    let mut survivors = 0;
    for port in ports {
        let segment = Segment {
            port,
            data: b"data",
            ..Segment::default()
        };
        // The engine has forgotten a connection that was given up: its packet lacks a handshake, and is
        // dropped in line.
        survivors += u32::from(!bed.send(segment.packet()).is_dropped());
    }
    assert!(survivors >= 180, "{survivors} of 200 connections survived");
}

#[test]
fn idle_flows_end_and_their_places_are_used_again() {
    let mut bed = TestBed::with(settings(), ATTACK);
    for number in 0..20_000u32 {
        bed.now = bed.now + Duration::from_millis(100);
        bed.send(syn(number));
    }
    assert!(bed.engine.flows() <= 2048);
    assert!(bed.engine.flow_counters().timeouts > 10_000);
}

#[test]
fn streams_with_holes_stay_inside_the_memory() {
    let mut bed = TestBed::with(settings(), ATTACK);
    for port in 1..60 {
        bed.send_all(handshake_of(port));
        for at in 0..60u32 {
            let segment = Segment {
                port,
                data: &[b'x'; 1000],
                seq: Segment::default().seq + 1 + at * 1001,
                ..Segment::default()
            };
            bed.send(segment.packet());
            assert!(bed.engine.memory() <= 1 << 20, "{}", bed.engine.memory());
        }
    }
    let memory = millrace_ips_engine::tcp::TcpProblem::Memory as usize;
    assert!(bed.engine.counters().tcp.problems[memory] > 0);
    bed.finish();
    assert_eq!((bed.engine.memory(), bed.engine.flows()), (0, 0));
}

#[test]
fn streams_with_holes_do_not_stop_data_in_order() {
    let mut bed = TestBed::with(settings(), ATTACK);
    for port in 1..60 {
        bed.send_all(handshake_of(port));
        for at in 0..60u32 {
            let segment = Segment {
                port,
                data: &[b'x'; 1000],
                seq: Segment::default().seq + 1400 + at * 1000,
                ..Segment::default()
            };
            bed.send(segment.packet());
        }
    }
    let before = bed.engine.memory();
    let first = |port, data| Segment {
        port,
        data,
        ..Segment::default()
    };
    // The segment that fills a hole frees memory, as far as its receiver acknowledges the data.
    assert!(!bed.send(first(1, &[b'x'; 1400]).packet()).is_dropped());
    let answer = Segment {
        from_client: false,
        seq: Segment::default().ack,
        ack: Segment::default().seq + 61_400,
        ..first(1, &[])
    };
    bed.send(answer.packet());
    bed.send_all(handshake_of(70));
    assert!(!bed.send(first(70, &[b'x'; 1400]).packet()).is_dropped());
    let more = Segment {
        seq: Segment::default().seq + 61_400,
        ..first(1, &[b'x'; 1400])
    };
    assert!(!bed.send(more.packet()).is_dropped());
    assert!(
        bed.engine.memory() < before - 30_000,
        "{} of {before}",
        bed.engine.memory()
    );
}

#[test]
fn fragments_that_never_end_stay_inside_the_memory() {
    for mode in [Mode::Ids, Mode::Ips] {
        let settings = Settings { mode, ..settings() };
        let mut bed = TestBed::with(settings, ATTACK);
        let whole = ip(
            ([10, 0, 0, 1].into(), [10, 0, 0, 2].into()),
            IpProto(99),
            &[1; 64],
        );
        for ident in 0..5000 {
            bed.send(fragment(&with_ident(&whole, ident), 0, true, &[1; 64]));
            assert!(bed.engine.memory() <= 256 << 10);
        }
    }
}

#[test]
fn a_stream_that_nobody_acknowledges_stays_inside_the_memory() {
    let mut bed = TestBed::with(settings(), ATTACK);
    bed.handshake();
    for at in 0..60u32 {
        bed.send(data(at * 1000, &[b'x'; 1000]));
        assert!(bed.engine.memory() <= 1 << 20);
    }
}

#[test]
fn under_overload_new_connections_are_inspected_half_as_deep_and_others_as_before() {
    let settings = Settings {
        stream_depth: 8000,
        ..settings()
    };
    let mut bed = TestBed::with(settings, ATTACK);
    let mut is_dropped_behind = |port: u16, overload: Overload| {
        bed.engine.set_overload(Overload::NONE);
        if [2, 4].contains(&port) {
            bed.engine.set_overload(overload);
        }
        assert!(!bed.send_all(handshake_of(port)));
        bed.engine.set_overload(overload);
        let first = Segment::default().seq;
        let mut segment = |at: u32, data: &[u8]| {
            let segment = Segment {
                port,
                data,
                seq: first + at,
                ..Segment::default()
            };
            bed.send(segment.packet()).is_dropped()
        };
        for at in 0..5 {
            assert!(!segment(at * 1000, &[b'x'; 1000]));
        }
        segment(5000, b"attack")
    };
    assert!(
        is_dropped_behind(1, Overload::DEPTH),
        "it began before the overload"
    );
    assert!(!is_dropped_behind(2, Overload::DEPTH), "it began under overload");
    assert!(is_dropped_behind(3, Overload::NONE));
    assert!(
        is_dropped_behind(4, Overload::FLOWS),
        "limits of new flows leave the depth as it is"
    );
}

#[test]
fn under_overload_a_large_flow_is_bypassed_unless_it_had_an_alert() {
    let rules = format!("{ATTACK}\nalert tcp any any -> any any (content:\"probe\"; sid:2;)");
    for (beginning, overload, is_inspected) in [
        (b"hello", Overload::DEPTH, false),
        (b"probe", Overload::DEPTH, true),
        (b"hello", Overload::FLOWS, true),
        (b"hello", Overload::NONE, true),
    ] {
        // The engine writes no records, but still knows that a rule raised an alert.
        let settings = Settings {
            bypass_size: 4000,
            records: false,
            ..settings()
        };
        let mut bed = TestBed::with(settings, &rules);
        bed.handshake();
        bed.engine.set_overload(overload);
        bed.send(data(0, beginning));
        for at in 0..5 {
            assert!(!bed.send(data(5 + at * 1000, &[b'x'; 1000])).is_dropped());
        }
        let is_dropped = bed.send(data(5005, b"attack")).is_dropped();
        assert_eq!(is_dropped, is_inspected, "{beginning:?} {overload:?}");
    }
}

#[test]
fn a_connection_in_the_memory_of_another_has_none_of_its_state() {
    let mut bed = TestBed::with(settings(), ATTACK);
    for port in 1..40_u16 {
        bed.send_all(handshake_of(port));
        let segment = Segment {
            port,
            data: b"att",
            ..Segment::default()
        };
        assert!(!bed.send(segment.packet()).is_dropped());
        // Half of the pattern stays in the stream; the flow ends, and the next one begins in its memory.
        bed.now = bed.now + Duration::from_secs(1000);
        bed.send(syn(port.into()));
    }
    assert!(bed.engine.flow_counters().timeouts > 30);
    bed.send_all(handshake_of(100));
    let segment = |at: u32, data: &'static [u8]| {
        let first = Segment::default().seq;
        Segment {
            port: 100,
            data,
            seq: first + at,
            ..Segment::default()
        }
    };
    assert!(!bed.send(segment(0, b"ack").packet()).is_dropped());
    assert!(bed.send(segment(3, b"attack").packet()).is_dropped());
}

#[test]
fn a_closed_connection_gives_its_memory_back() {
    use millrace_wire::tcp::flags::{ACK, FIN};
    let mut bed = TestBed::with(settings(), ATTACK);
    for port in 1..1000 {
        bed.send_all(handshake_of(port));
        let segment = |from_client: bool, at: (u32, u32), flags: u16, data: &'static [u8]| {
            let client = Segment::default();
            let (own, other) = match from_client {
                true => (client.seq + at.0, client.ack + at.1),
                false => (client.ack + at.1, client.seq + at.0),
            };
            Segment {
                port,
                from_client,
                seq: own,
                ack: other,
                flags,
                data,
                ..Segment::default()
            }
        };
        let segments = [
            segment(true, (0, 0), ACK, &[b'x'; 1000]),
            segment(false, (1000, 0), ACK, &[b'y'; 1000]),
            segment(true, (1000, 1000), ACK | FIN, &[]),
            segment(false, (1001, 1000), ACK | FIN, &[]),
            segment(true, (1001, 1001), ACK, &[]),
        ];
        for segment in segments {
            assert!(!bed.send(segment.packet()).is_dropped(), "connection {port}");
        }
        assert_eq!(bed.engine.memory(), 0, "connection {port}");
    }
}

#[test]
fn expressions_of_a_packet_and_of_a_flow_end_at_a_budget_and_the_record_names_the_rule() {
    let rules =
        r#"alert tcp any any -> any any (msg:"slow"; content:"aaa"; pcre:"/(?:a|aa|a\b){1,6}[^a]/"; sid:7;)"#;
    for mode in [Mode::Ips, Mode::Ids] {
        let settings = Settings {
            mode,
            records: true,
            policies: Policies::closed(),
            ..Settings::default()
        };
        let mut bed = TestBed::with(settings, rules);
        bed.handshake();
        let is_dropped = bed.send(data(0, &[b'a'; 1400])).is_dropped();
        bed.send(acknowledgment(1400));
        bed.finish();
        assert_eq!(is_dropped, mode == Mode::Ips);
        assert!(bed.engine.detect_counters().pcre_limits > 0, "{mode:?}");
        assert_eq!(bed.engine.detect_counters().limited_sid, 7);
        let named = bed.events().iter().find_map(|event| match event {
            Event::Exception(_, Cause::MatchLimit, _, rule) => *rule,
            _ => None,
        });
        let expected = (mode == Mode::Ips).then_some(RuleId { gid: 1, sid: 7 });
        assert_eq!(named, expected, "{mode:?}");
    }
}

#[test]
fn a_flow_gets_further_steps_with_its_packets_and_no_others() {
    let rules = r#"alert udp any any -> any any (msg:"slow"; pcre:"/(?:a|aa|a\b){1,6}[^a]/"; sid:7;)"#;
    let settings = |flow_steps| Settings {
        detect: DetectSettings {
            packet_steps: u64::MAX,
            flow_steps,
            ..DetectSettings::default()
        },
        ..Settings::default()
    };
    let limits = |flow_steps| {
        let mut bed = TestBed::with(settings(flow_steps), rules);
        for _ in 0..20 {
            bed.send(datagram(&[b'a'; 100]));
        }
        bed.engine.detect_counters().pcre_limits
    };
    assert_eq!(limits(u64::MAX), 0);
    assert!(limits(200 << 10) > 0);
}
