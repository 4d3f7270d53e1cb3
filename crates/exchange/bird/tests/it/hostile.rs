//! Replies that BIRD never sends, and more routes than the limits permit.

use std::fmt::Write as _;

use millrace_bird::{Client, limits};
use millrace_types::{Duration, Time};
use proptest::prelude::*;

use crate::conversation::{FILTERED, GREETING, NOTHING, PROTOCOLS, RESTRICTED, TAGGED, connected, converse};

fn routes(session: &str, count: usize) -> String {
    let mut text = String::from("1007-Table master4:\n");
    for number in 0..count {
        let [_, a, b, c] = u32::try_from(number).unwrap().to_be_bytes();
        writeln!(
            text,
            "1007-10.{a}.{b}.{c}/32  unicast [{session} 05:33:14.518 from 192.0.2.1] (100) [AS1i]"
        )
        .unwrap();
    }
    text + NOTHING
}

#[test]
fn one_session_with_many_rejected_routes_leaves_room_for_the_others() {
    let flood = routes("AS64500_1", limits::SESSION_ROUTES + 7);
    let filtered = flood.replace(NOTHING, "") + FILTERED;
    let report = converse(
        &mut connected(),
        &[GREETING, RESTRICTED, PROTOCOLS, TAGGED, &filtered],
        4096,
    );
    let report = report.unwrap().unwrap();
    let [first, second, ..] = report.sessions.as_slice() else {
        panic!("{report:?}");
    };
    assert_eq!(
        (first.rejected.len(), first.is_truncated),
        (limits::SESSION_ROUTES, true)
    );
    assert_eq!((second.rejected.len(), second.is_truncated), (2, false));
}

#[test]
fn a_round_with_too_long_answers_ends_with_what_came_first() {
    let mut client = connected();
    converse(&mut client, &[GREETING, RESTRICTED, PROTOCOLS, TAGGED], 4096).unwrap();
    let line = [b"1012-\tBGP.unknown: ".as_slice(), &vec![b'x'; 200 * 1024], b"\n"].concat();
    let mut report = None;
    for _ in 0..=limits::ROUND_SIZE / line.len() {
        report = client.receive(&line, Time::ZERO).unwrap().or(report);
    }
    let report = report.unwrap();
    assert!(report.is_truncated);
    assert_eq!(report.sessions[1].rejected.len(), 2);
    assert_eq!(client.deadline(), None, "the connection is to be closed");
}

#[test]
fn texts_of_peers_are_short_and_have_no_control_characters() {
    let long = "x".repeat(9_000);
    let protocols = format!(
        "1002-a BGP --- start 1 Idle\n1006-  Neighbor address: fe80::1%eth0\n   Neighbor AS: external\n   Last error: Received: \x1b[31m{long}\n0000 \n"
    );
    let report = converse(
        &mut connected(),
        &[GREETING, RESTRICTED, &protocols, NOTHING, NOTHING],
        4096,
    );
    let session = report.unwrap().unwrap().sessions.remove(0);
    let error = session.last_error.unwrap();
    assert!(
        error.starts_with("Received: [31mx") && error.len() <= limits::TEXT_SIZE + '…'.len_utf8(),
        "{error}"
    );
    assert_eq!(
        (session.neighbor.to_string(), session.asn),
        ("fe80::1".to_owned(), None)
    );
}

#[test]
fn routes_with_wrong_prefixes_and_of_unknown_sessions_are_left_out() {
    let filtered = "1007-10.0.0.0/33 unicast [AS64500_1 1] (100)\n1007-      unicast [AS64500_1 1] (100)\n\
        1007-10.0.0.0/8 unicast [] (100)\n1007-10.0.0.0/8 unicast [nobody 1] (100)\n0000 \n";
    let report = converse(
        &mut connected(),
        &[GREETING, RESTRICTED, PROTOCOLS, NOTHING, filtered],
        4096,
    );
    let report = report.unwrap().unwrap();
    assert!(report.sessions.iter().all(|session| session.rejected.is_empty()));
    assert_eq!(report.skipped_lines, 3);
}

/// Passes bytes to a client, and connects the client again after each error.
fn feed(client: &mut Client, bytes: &[u8]) {
    let mut now = Time::ZERO;
    for part in bytes.chunks(64) {
        now = now + Duration::from_secs(1);
        if client.poll(now).is_err() || client.receive(part, now).is_err() || client.deadline().is_none() {
            client.connection_lost();
            client.connected(now);
        }
        let _sent = client.take_output();
    }
}

proptest! {
    #[test]
    fn no_bytes_make_the_client_panic(bytes in proptest::collection::vec(any::<u8>(), 0..2_000)) {
        feed(&mut connected(), &bytes);
    }

    #[test]
    fn no_damage_to_real_answers_makes_the_client_panic(at in 0_usize..12_000, byte: u8, len in 0_usize..40) {
        let mut bytes = [GREETING, RESTRICTED, PROTOCOLS, TAGGED, FILTERED].concat().into_bytes();
        let at = at % bytes.len();
        let end = (at + len).min(bytes.len());
        bytes.splice(at..end, [byte]);
        feed(&mut connected(), &bytes);
    }
}
