//! More messages in one chunk than the list of transactions holds: rules see each of them.

use millrace_ips_engine::{Event, Mode, Policies, Settings};

use crate::bed::{HOST_A, HOST_B, TestBed, acknowledgment, data};
use crate::conversation::Conversation;

const MODES: [Mode; 2] = [Mode::Ids, Mode::Ips];

/// Returns `count` requests. Rules match those whose index is in `evil`.
fn requests(count: usize, evil: &[usize]) -> Vec<u8> {
    let of = |at: usize| match evil.contains(&at) {
        true => &b"GET /evil HTTP/1.1\r\n\r\n"[..],
        false => b"GET / HTTP/1.1\r\n\r\n",
    };
    (0..count).flat_map(of).copied().collect()
}

#[test]
fn a_segment_that_fills_a_hole_hides_no_request_in_front_of_many() {
    let rules = r#"
drop http any any -> any any (http.uri; content:"/evil"; sid:1;)
alert http any any -> any any (http.uri; content:"/evil"; pkt_data; content:"GET / HTTP"; sid:2;)
"#;
    for mode in MODES {
        for evil in [0, 255, 256, 300, 599] {
            let mut bed = TestBed::new(mode, rules);
            bed.handshake();
            let bytes = requests(600, &[evil]);
            let segments: Vec<_> = bytes.chunks(1400).collect();
            for (at, part) in segments.iter().enumerate().skip(1) {
                assert!(!bed.send(data(1400 * at as u32, part)).is_dropped());
            }
            let is_dropped = bed.send(data(0, segments[0])).is_dropped();
            bed.send(acknowledgment(bytes.len() as u32));
            bed.finish();
            assert_eq!(is_dropped, mode == Mode::Ips, "{evil}");
            let alerts = |sid| {
                let list = bed.events().iter();
                list.filter(|event| matches!(event, Event::Alert(alert) if alert.sid == sid))
                    .count()
            };
            assert_eq!((alerts(1), alerts(2)), (1, 1), "{mode:?}, {evil}");
        }
    }
}

#[test]
fn a_rule_that_passes_the_flow_ends_the_evaluation_of_all_parts_of_a_chunk() {
    let rules = r#"
pass http any any -> any any (http.uri; content:"/good"; sid:1;)
drop http any any -> any any (http.uri; content:"/evil"; sid:2;)
"#;
    for mode in MODES {
        // The pass rule matches in the first part of the chunk, or in a later one.
        for before in [0, 600] {
            let mut bed = TestBed::new(mode, rules);
            let mut talk = Conversation::open(&mut bed, (HOST_A, 40_000), (HOST_B, 80));
            let good = b"GET /good HTTP/1.1\r\n\r\n";
            let bytes = [&requests(before, &[])[..], good, &requests(600, &[300, 599])].concat();
            assert!(!talk.client(&mut bed, &bytes), "{mode:?}, {before}");
            assert!(!talk.client(&mut bed, &requests(1, &[0])), "{mode:?}, {before}");
            talk.close(&mut bed);
            bed.finish();
            assert_eq!(bed.alerts(), 0, "{mode:?}, {before}");
        }
    }
}

#[test]
fn an_alert_on_a_request_that_is_not_kept_has_its_record() {
    for mode in MODES {
        let settings = Settings {
            mode,
            records: true,
            ..Settings::default()
        };
        let rule = r#"alert http any any -> any any (http.uri; content:"/evil"; sid:1;)"#;
        let mut bed = TestBed::with(settings, rule);
        let mut talk = Conversation::open(&mut bed, (HOST_A, 40_000), (HOST_B, 80));
        talk.client(&mut bed, &requests(2000, &[0, 1000]));
        talk.close(&mut bed);
        bed.finish();
        let alerts = bed.events().iter().filter_map(|event| match event {
            Event::Alert(alert) => alert.context.as_ref(),
            _ => None,
        });
        let records: Vec<_> = alerts.map(|context| format!("{:?}", context.record)).collect();
        assert_eq!(records.len(), 2, "{mode:?}");
        assert!(
            records.iter().all(|record| record.starts_with("Http")),
            "{records:?}"
        );
    }
}

#[test]
fn an_alert_before_a_hole_has_its_record_if_many_requests_follow() {
    let settings = Settings {
        mode: Mode::Ids,
        records: true,
        ..Settings::default()
    };
    let rule = r#"alert http any any -> any any (http.uri; content:"/evil"; sid:1;)"#;
    let mut bed = TestBed::with(settings, rule);
    bed.handshake();
    let head = b"POST /evil HTTP/1.1\r\nContent-Length: 12\r\n\r\nseen";
    let behind = [&b"rest"[..], &requests(2000, &[])].concat();
    let hole = head.len() as u32 + 4;
    for (at, part) in behind.chunks(1400).enumerate() {
        bed.send(data(hole + 1400 * at as u32, part));
    }
    // The acknowledgment of bytes that were not seen ends the wait for them. The next segment of the client brings the bytes on
    // both sides of the hole to inspection.
    let end = hole + behind.len() as u32;
    bed.send(data(0, head));
    bed.send(acknowledgment(end));
    bed.send(data(end, b""));
    bed.finish();
    let alerts = bed.events().iter().filter_map(|event| match event {
        Event::Alert(alert) => alert.context.as_ref(),
        _ => None,
    });
    let records: Vec<_> = alerts.map(|context| format!("{:?}", context.record)).collect();
    assert_eq!(records.len(), 1);
    assert!(records[0].starts_with("Http"), "{records:?}");
}

#[test]
fn many_messages_of_modbus_in_both_directions_hide_none() {
    let rule = "drop modbus any any -> any any (modbus_func:5; sid:1;)";
    let message = |function: u8| [0, 1, 0, 0, 0, 6, 1, function, 0, 1, 0, 0];
    let many = message(3).repeat(700);
    let evil = [&message(5)[..], &many].concat();
    for mode in MODES {
        for from_client in [true, false] {
            let settings = Settings {
                mode,
                policies: Policies::closed(),
                ..Settings::default()
            };
            let mut bed = TestBed::with(settings, rule);
            let mut talk = Conversation::open(&mut bed, (HOST_A, 40_000), (HOST_B, 502));
            assert!(!talk.client(&mut bed, &many));
            let is_dropped = match from_client {
                true => talk.client(&mut bed, &evil),
                false => talk.server(&mut bed, &evil),
            };
            talk.close(&mut bed);
            bed.finish();
            assert!(bed.is_attack_found(), "{mode:?}, {from_client}");
            assert_eq!(is_dropped, mode == Mode::Ips);
        }
    }
}

#[test]
fn many_messages_at_the_end_of_a_flow_are_inspected() {
    let mut bed = TestBed::new(
        Mode::Ids,
        r#"alert http any any -> any any (http.uri; content:"/evil"; sid:1;)"#,
    );
    bed.handshake();
    let bytes = requests(2000, &[0, 1999]);
    for (at, part) in bytes.chunks(1400).enumerate() {
        bed.send(data(1400 * at as u32, part));
    }
    bed.finish();
    assert_eq!(bed.alerts(), 2);
}
