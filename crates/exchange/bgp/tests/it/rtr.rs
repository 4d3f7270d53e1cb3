//! The client of RTR caches: versions and sessions of the protocol (RFC 8210, sections 5.1 and 7).

use millrace_bgp::rtr::{Client, ErrorCode, RtrError};
use millrace_types::{Duration, Time};

pub(crate) const SERIAL_NOTIFY: u8 = 0;
pub(crate) const SERIAL_QUERY: u8 = 1;
pub(crate) const RESET_QUERY: u8 = 2;
pub(crate) const CACHE_RESPONSE: u8 = 3;
pub(crate) const IPV4_PREFIX: u8 = 4;
pub(crate) const END_OF_DATA: u8 = 7;
pub(crate) const CACHE_RESET: u8 = 8;
pub(crate) const ERROR_REPORT: u8 = 10;

pub(crate) fn pdu(version: u8, kind: u8, field: u16, body: &[u8]) -> Vec<u8> {
    let mut bytes = vec![version, kind];
    bytes.extend(field.to_be_bytes());
    bytes.extend((8 + body.len() as u32).to_be_bytes());
    bytes.extend(body);
    bytes
}

/// Returns a response with one prefix, in session 7 with serial number 5.
fn set(version: u8) -> Vec<u8> {
    let prefix = [1, 24, 24, 0, 192, 0, 2, 0, 0, 0, 0xfb, 0xf4];
    let mut end = vec![0, 0, 0, 5];
    if version > 0 {
        end.extend([100_u32, 10, 600].iter().flat_map(|secs| secs.to_be_bytes()));
    }
    [
        pdu(version, CACHE_RESPONSE, 7, &[]),
        pdu(version, IPV4_PREFIX, 0, &prefix),
        pdu(version, END_OF_DATA, 7, &end),
    ]
    .concat()
}

/// Returns a client that is connected and has sent its query.
fn connected() -> Client {
    let mut client = Client::new(100);
    client.connected(Time::ZERO);
    client.take_output();
    client
}

#[test]
fn a_cache_reset_and_an_older_version_ask_again() {
    let now = Time::ZERO;
    let mut client = Client::new(100);
    client.connected(now);
    client.take_output();
    client.receive(&pdu(0, ERROR_REPORT, 4, &[0; 8]), now).unwrap();
    assert_eq!(client.take_output(), pdu(0, RESET_QUERY, 0, &[]));
    client.receive(&pdu(0, CACHE_RESPONSE, 9, &[]), now).unwrap();
    client
        .receive(&pdu(0, END_OF_DATA, 9, &[0, 0, 0, 1]), now)
        .unwrap();
    client.receive(&pdu(0, CACHE_RESET, 0, &[]), now).unwrap();
    assert_eq!(client.take_output(), pdu(0, RESET_QUERY, 0, &[]));
}

/// Returns a client that has a set, and has sent a Serial Query.
fn asking(now: Time) -> Client {
    let mut client = connected();
    assert_eq!(client.receive(&set(1), now), Ok(true));
    let notify = pdu(1, SERIAL_NOTIFY, 7, &6_u32.to_be_bytes());
    assert_eq!(client.receive(&notify, now), Ok(false));
    assert_eq!(client.take_output(), pdu(1, SERIAL_QUERY, 7, &5u32.to_be_bytes()));
    client
}

#[test]
fn every_connection_asks_for_everything_because_a_restarted_cache_may_reuse_its_session() {
    let now = Time::ZERO;
    let mut client = connected();
    assert_eq!(client.receive(&set(1), now), Ok(true));
    client.connection_lost();
    client.connected(now);
    assert_eq!(client.take_output(), pdu(1, RESET_QUERY, 0, &[]));
    assert!(!client.has_loaded(), "the set of before is not fresh");
    // The same session and serial number, without a payload.
    let empty = [pdu(1, CACHE_RESPONSE, 7, &[]), set(1).split_off(8 + 20)].concat();
    assert_eq!(client.receive(&empty, now), Ok(true));
    assert_eq!(client.vrps(now).unwrap().len(), 0);
}

#[test]
fn a_restarted_cache_flushes_the_set_and_is_asked_for_everything() {
    let now = Time::ZERO;
    let mut report = 0u32.to_be_bytes().to_vec();
    report.extend(19u32.to_be_bytes());
    report.extend(b"Session ID mismatch");
    // RFC 8210, section 5.1: the cache or the client finds the mismatch, in any PDU that has a session.
    let findings = [
        pdu(1, ERROR_REPORT, 0, &report),
        pdu(1, CACHE_RESPONSE, 8, &[]),
        [pdu(1, CACHE_RESPONSE, 7, &[]), pdu(1, END_OF_DATA, 8, &[0; 16])].concat(),
        [pdu(1, CACHE_RESPONSE, 7, &[]), pdu(1, SERIAL_NOTIFY, 8, &[0; 4])].concat(),
    ];
    for found in findings {
        let mut client = asking(now);
        let failed = client.receive(&found, now);
        assert!(
            matches!(
                failed,
                Err(RtrError::OtherSession { known: 7, found: 8 }
                    | RtrError::Reported {
                        code: ErrorCode(0),
                        ..
                    })
            ),
            "{failed:?}"
        );
        assert_eq!(client.vrps(now), None, "flushed");
        let sent = client.take_output();
        match failed {
            Err(RtrError::OtherSession { .. }) => {
                assert_eq!((sent[1], sent[2], sent[3]), (ERROR_REPORT, 0, 0));
            }
            _ => assert!(sent.is_empty(), "no Error Report answers an Error Report"),
        }
        client.connection_lost();
        client.connected(now);
        assert!(!client.has_loaded());
        assert_eq!(client.take_output(), pdu(1, RESET_QUERY, 0, &[]));
        assert_eq!(client.receive(&set(1), now), Ok(true));
        assert_eq!(client.vrps(now).unwrap().len(), 1);
    }
}

#[test]
fn an_error_that_ends_the_connection_is_followed_by_a_reset_query_and_extends_no_expiry() {
    let now = Time::ZERO;
    for code in [1, 3, 5, 6, 7, 8, 99] {
        let mut client = asking(now);
        let failed = client.receive(&pdu(1, ERROR_REPORT, code, &[0; 8]), now);
        assert!(matches!(failed, Err(RtrError::Reported { .. })), "{code}");
        assert_eq!(
            client.vrps(now).unwrap().len(),
            1,
            "{code}: the set stays until it expires"
        );
        for secs in (1..=600).step_by(50) {
            let at = now + Duration::from_secs(secs);
            client.connection_lost();
            client.connected(at);
            assert_eq!(client.take_output(), pdu(1, RESET_QUERY, 0, &[]), "{code}");
            assert!(client.receive(&pdu(1, ERROR_REPORT, code, &[0; 8]), at).is_err());
            assert_eq!(client.vrps(at).is_some(), secs < 600);
        }
        client.connection_lost();
        let expiry = now + Duration::from_secs(600);
        assert_eq!(client.deadline(), Some(expiry));
        assert_eq!(client.poll(expiry), Ok(true));
        assert_eq!(client.vrps(expiry), None);
    }
}

#[test]
fn a_serial_notify_before_the_first_answer_is_ignored_in_every_version() {
    let now = Time::ZERO;
    for version in 0..=2 {
        let mut client = connected();
        let notify = pdu(version, SERIAL_NOTIFY, 7, &5_u32.to_be_bytes());
        assert_eq!(client.receive(&notify, now), Ok(false), "{version}");
        assert!(client.take_output().is_empty());
        assert_eq!(client.receive(&set(1), now), Ok(true), "{version}");
        let notify = pdu(1, SERIAL_NOTIFY, 7, &6_u32.to_be_bytes());
        assert_eq!(client.receive(&notify, now), Ok(false));
        assert_eq!(
            client.take_output(),
            pdu(1, SERIAL_QUERY, 7, &5_u32.to_be_bytes())
        );
    }
}

#[test]
fn a_cache_that_is_replaced_by_an_older_or_a_newer_one_is_asked_for_everything() {
    let now = Time::ZERO;
    let mut client = connected();
    assert_eq!(client.receive(&set(1), now), Ok(true));
    // The new cache answers in version 0.
    client.connection_lost();
    client.connected(now);
    assert_eq!(client.take_output(), pdu(1, RESET_QUERY, 0, &[]));
    assert_eq!(client.receive(&set(0), now), Ok(false), "the same set");
    assert!(client.has_loaded());
    // The next cache has version 1 again.
    client.connection_lost();
    client.connected(now);
    assert_eq!(client.take_output(), pdu(1, RESET_QUERY, 0, &[]));
    assert_eq!(client.receive(&set(1), now), Ok(false));
    assert!(client.has_loaded());
}

#[test]
fn a_cache_that_refuses_the_version_and_closes_the_connection_is_asked_in_its_version() {
    let now = Time::ZERO;
    let mut client = connected();
    client.receive(&pdu(0, ERROR_REPORT, 4, &[0; 8]), now).unwrap();
    client.connection_lost();
    client.connected(now);
    assert_eq!(client.take_output(), pdu(0, RESET_QUERY, 0, &[]));
    // A cache that supports only version 1 has taken its place.
    let refused = client.receive(&pdu(1, ERROR_REPORT, 4, &[0; 8]), now);
    assert!(matches!(
        refused,
        Err(RtrError::Reported {
            code: ErrorCode(4),
            ..
        })
    ));
    client.connection_lost();
    client.connected(now);
    assert_eq!(client.take_output(), pdu(1, RESET_QUERY, 0, &[]));
}

fn prefix(is_announced: bool, third: u8) -> Vec<u8> {
    let body = [
        u8::from(is_announced),
        24,
        24,
        0,
        192,
        0,
        third,
        0,
        0,
        0,
        0xfb,
        0xf4,
    ];
    pdu(1, IPV4_PREFIX, 0, &body)
}

fn end(serial: u32) -> Vec<u8> {
    let mut body = serial.to_be_bytes().to_vec();
    body.extend([100u32, 10, 600].iter().flat_map(|secs| secs.to_be_bytes()));
    pdu(1, END_OF_DATA, 7, &body)
}

#[test]
fn a_set_counts_from_its_end_and_is_then_kept_up_by_differences() {
    let now = Time::from_secs(1);
    let mut client = Client::new(100);
    client.connected(now);
    assert_eq!(client.take_output(), pdu(1, RESET_QUERY, 0, &[]));
    let mut bytes = pdu(1, CACHE_RESPONSE, 7, &[]);
    bytes.extend(prefix(true, 2));
    bytes.extend(prefix(true, 3));
    assert_eq!(client.receive(&bytes, now), Ok(false));
    assert_eq!(client.vrps(now), None);
    // The client receives the bytes one by one.
    let changes: Vec<_> = end(5)
        .iter()
        .map(|byte| client.receive(&[*byte], now).unwrap())
        .collect();
    assert_eq!(changes.iter().filter(|changed| **changed).count(), 1);
    assert_eq!(client.vrps(now).unwrap().len(), 2);
    assert_eq!(
        client.receive(&pdu(1, SERIAL_NOTIFY, 7, &5u32.to_be_bytes()), now),
        Ok(false)
    );
    assert!(client.take_output().is_empty());
    client
        .receive(&pdu(1, SERIAL_NOTIFY, 7, &6u32.to_be_bytes()), now)
        .unwrap();
    assert_eq!(client.take_output(), pdu(1, SERIAL_QUERY, 7, &5u32.to_be_bytes()));
    let mut bytes = pdu(1, CACHE_RESPONSE, 7, &[]);
    bytes.extend(prefix(false, 2));
    bytes.extend(end(6));
    assert_eq!(client.receive(&bytes, now), Ok(true));
    assert_eq!(client.vrps(now).unwrap().len(), 1);
    assert_eq!(client.deadline(), Some(now + Duration::from_secs(100)));
    assert_eq!(client.vrps(now + Duration::from_secs(600)), None, "expired");
}

#[test]
fn a_cache_without_data_is_asked_again_and_the_set_stays_until_it_expires() {
    let now = Time::ZERO;
    let after = |secs| now + Duration::from_secs(secs);
    let no_data = pdu(1, ERROR_REPORT, 2, &[0; 8]);
    let mut client = Client::new(100);
    client.connected(now);
    client.take_output();
    assert_eq!(client.receive(&no_data, now), Ok(false));
    assert_eq!(
        (client.take_output(), client.deadline()),
        (vec![], Some(after(60)))
    );
    assert!(client.lacks_data() && !client.has_loaded());
    client.connected(now);
    client.take_output();
    let set = [pdu(1, CACHE_RESPONSE, 7, &[]), prefix(true, 2), end(5)].concat();
    assert_eq!(client.receive(&set, now), Ok(true));
    assert!(client.has_loaded() && !client.lacks_data());
    // The cache loses its data in the middle of a response to the query after the refresh time.
    assert_eq!(client.poll(after(100)), Ok(false));
    assert_eq!(client.take_output(), pdu(1, SERIAL_QUERY, 7, &5u32.to_be_bytes()));
    let broken = [pdu(1, CACHE_RESPONSE, 7, &[]), prefix(false, 2), no_data.clone()].concat();
    assert_eq!(client.receive(&broken, after(100)), Ok(false));
    assert!(client.take_output().is_empty());
    assert_eq!(client.vrps(after(100)).unwrap().len(), 1);
    assert_eq!(client.deadline(), Some(after(110)));
    for secs in (110..600).step_by(10) {
        assert_eq!(client.poll(after(secs)), Ok(false));
        assert_eq!(client.take_output(), pdu(1, RESET_QUERY, 0, &[]));
        assert_eq!(client.receive(&no_data, after(secs)), Ok(false));
    }
    assert_eq!(client.deadline(), Some(after(600)));
    assert_eq!(client.poll(after(600)), Ok(true), "expired");
    assert_eq!(client.vrps(after(600)), None);
    assert_eq!(client.poll(after(600)), Ok(false));
    assert_eq!(client.take_output(), pdu(1, RESET_QUERY, 0, &[]));
    assert_eq!(
        client.receive(&set, after(601)),
        Ok(true),
        "the same set counts again"
    );
    assert_eq!(client.vrps(after(601)).unwrap().len(), 1);
}

#[test]
fn the_timers_of_a_cache_are_taken_within_their_bounds() {
    let now = Time::ZERO;
    let mut client = Client::new(100);
    client.connected(now);
    let mut body = 5u32.to_be_bytes().to_vec();
    body.extend([u32::MAX; 3].iter().flat_map(|secs| secs.to_be_bytes()));
    let set = [pdu(1, CACHE_RESPONSE, 7, &[]), pdu(1, END_OF_DATA, 7, &body)].concat();
    assert_eq!(client.receive(&set, now), Ok(true), "an empty set is one, too");
    assert_eq!(client.deadline(), Some(now + Duration::from_secs(86_400)));
    client.receive(&pdu(1, ERROR_REPORT, 2, &[0; 8]), now).unwrap();
    assert_eq!(client.deadline(), Some(now + Duration::from_secs(7200)));
    client.connected(now);
    assert!(!client.has_loaded());
}

#[test]
fn what_the_protocol_forbids_ends_the_connection() {
    let fails = |bytes: &[u8]| {
        let mut client = Client::new(1);
        client.connected(Time::ZERO);
        client.receive(bytes, Time::ZERO).unwrap_err()
    };
    assert!(matches!(fails(&prefix(true, 1)), RtrError::Protocol { .. }));
    assert!(matches!(
        fails(&[1, 3, 0, 0, 0, 0, 0, 7]),
        RtrError::Protocol { .. }
    ));
    assert!(matches!(fails(&end(1)), RtrError::Protocol { .. }));
    let mut bytes = pdu(1, CACHE_RESPONSE, 7, &[]);
    bytes.extend(prefix(true, 1));
    bytes.extend(prefix(true, 2));
    assert_eq!(fails(&bytes), RtrError::TooMany(1));
    let mut report = 0u32.to_be_bytes().to_vec();
    report.extend(4u32.to_be_bytes());
    report.extend(b"n\x1bo!");
    assert_eq!(
        fails(&pdu(1, ERROR_REPORT, 3, &report)),
        RtrError::Reported {
            code: ErrorCode(3),
            text: "no!".to_owned()
        }
    );
}
