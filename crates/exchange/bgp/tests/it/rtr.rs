//! The client of RTR caches: versions and sessions of the protocol (RFC 8210, sections 5.1 and 7).

use millrace_bgp::rtr::{Client, RtrError};
use millrace_types::Time;

const SERIAL_NOTIFY: u8 = 0;
const SERIAL_QUERY: u8 = 1;
const RESET_QUERY: u8 = 2;
const CACHE_RESPONSE: u8 = 3;
const IPV4_PREFIX: u8 = 4;
const END_OF_DATA: u8 = 7;
const CACHE_RESET: u8 = 8;
const ERROR_REPORT: u8 = 10;

fn pdu(version: u8, kind: u8, field: u16, body: &[u8]) -> Vec<u8> {
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

#[test]
fn a_cache_with_a_new_session_is_asked_for_everything_at_the_next_connection() {
    let now = Time::ZERO;
    let mut client = Client::new(100);
    client.connected(now);
    assert_eq!(client.receive(&set(1), now), Ok(true));
    client.connection_lost();
    client.connected(now);
    assert_eq!(client.take_output(), pdu(1, SERIAL_QUERY, 7, &5u32.to_be_bytes()));
    let other = pdu(1, CACHE_RESPONSE, 8, &[]);
    assert!(matches!(client.receive(&other, now), Err(RtrError::Protocol(_))));
    client.connection_lost();
    client.connected(now);
    assert_eq!(client.take_output(), pdu(1, RESET_QUERY, 0, &[]));
    assert_eq!(
        client.vrps(now).unwrap().len(),
        1,
        "the old set counts until it expires"
    );
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
    client.take_output();
    assert!(matches!(client.receive(&set(0), now), Err(RtrError::Protocol(_))));
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
    assert!(matches!(refused, Err(RtrError::Reported { code: 4, .. })));
    client.connection_lost();
    client.connected(now);
    assert_eq!(client.take_output(), pdu(1, RESET_QUERY, 0, &[]));
}
