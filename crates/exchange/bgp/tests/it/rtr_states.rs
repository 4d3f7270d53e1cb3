//! The state machine of an RTR client: every PDU of a cache in every state (RFC 8210 and RFC 6810, sections 5 to 8).

use millrace_bgp::rtr::{Client, ErrorCode, RtrError};
use millrace_types::Time;

use crate::rtr::{
    CACHE_RESET, CACHE_RESPONSE, END_OF_DATA, ERROR_REPORT, IPV4_PREFIX, RESET_QUERY, SERIAL_NOTIFY,
    SERIAL_QUERY, pdu,
};

const IPV6_PREFIX: u8 = 6;
const ROUTER_KEY: u8 = 9;
/// The session and the serial number of the set.
const SESSION: u16 = 7;
const SERIAL: u32 = 5;

/// The state of a client before a PDU arrives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// A Reset Query has no answer yet.
    Reset,
    /// A Serial Query has no answer yet.
    Serial,
    /// The response to a Reset Query has begun.
    InReset,
    /// The response to a Serial Query has begun.
    InSerial,
    /// A set is complete, and no query is open.
    Idle,
}

/// The effect of a PDU.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Effect {
    /// Nothing is sent, and the set stays.
    Nothing,
    /// A Reset Query is sent.
    AsksReset,
    /// A Serial Query is sent.
    AsksSerial,
    /// The set is replaced by one with this number of payloads.
    Set(usize),
    /// The connection ends with an Error Report of this code; the set stays until it expires.
    Fails(u16),
    /// The connection ends with error 0, and the set is flushed.
    Flushes,
    /// The connection ends without an Error Report; the set stays.
    Ends,
    /// The connection ends without an Error Report, and the set is flushed.
    EndsFlushed,
}

use Effect::{AsksReset, AsksSerial, Ends, EndsFlushed, Fails, Flushes, Nothing, Set};

fn prefix(version: u8, flags: u8, third: u8) -> Vec<u8> {
    pdu(
        version,
        IPV4_PREFIX,
        0,
        &[flags, 24, 24, 0, 192, 0, third, 0, 0, 0, 0xfb, 0xf4],
    )
}

fn end(version: u8, session: u16) -> Vec<u8> {
    let mut body = SERIAL.to_be_bytes().to_vec();
    if version > 0 {
        body.extend([100_u32, 10, 600].iter().flat_map(|secs| secs.to_be_bytes()));
    }
    pdu(version, END_OF_DATA, session, &body)
}

/// Returns a client in a state; its set has the payload 192.0.2.0/24 where it has a set.
fn client(version: u8, state: State) -> Client {
    let now = Time::ZERO;
    let mut client = Client::new(10);
    client.connected(now);
    if version == 0 {
        client.receive(&pdu(0, ERROR_REPORT, 4, &[0; 8]), now).unwrap();
    }
    let response = pdu(version, CACHE_RESPONSE, SESSION, &[]);
    if matches!(state, State::Serial | State::InSerial | State::Idle) {
        let set = [response.clone(), prefix(version, 1, 2), end(version, SESSION)].concat();
        assert_eq!(client.receive(&set, now), Ok(true));
    }
    if matches!(state, State::Serial | State::InSerial) {
        let notify = pdu(version, SERIAL_NOTIFY, SESSION, &(SERIAL + 1).to_be_bytes());
        client.receive(&notify, now).unwrap();
    }
    if matches!(state, State::InReset | State::InSerial) {
        client.receive(&response, now).unwrap();
    }
    client.take_output();
    client
}

fn effect(version: u8, state: State, bytes: &[u8]) -> Effect {
    let now = Time::ZERO;
    let mut client = client(version, state);
    let before = client.vrps(now).map(std::collections::BTreeSet::len);
    let result = client.receive(bytes, now);
    let after = client.vrps(now).map(std::collections::BTreeSet::len);
    let sent = client.take_output();
    let kind = sent.get(1).copied();
    let Err(error) = result else {
        return match kind {
            Some(RESET_QUERY) => AsksReset,
            Some(SERIAL_QUERY) => AsksSerial,
            Some(other) => panic!("a PDU of type {other} is sent"),
            None if bytes[1] == END_OF_DATA => Set(after.unwrap()),
            None => {
                assert_eq!(before, after);
                Nothing
            }
        };
    };
    // Whatever the error was, the next connection starts anew.
    client.connection_lost();
    client.connected(now);
    assert_eq!(client.take_output()[1], RESET_QUERY, "{error}");
    let is_flushed = before.is_some() && after.is_none();
    match (kind, is_flushed) {
        (None, true) => EndsFlushed,
        (None, false) => Ends,
        (Some(ERROR_REPORT), is_flushed) => {
            let code = u16::from_be_bytes([sent[2], sent[3]]);
            let copied = u32::from_be_bytes(sent[8..12].try_into().unwrap()) as usize;
            assert_eq!(&sent[12..12 + copied], bytes, "the report has the erroneous PDU");
            assert_eq!(
                sent.len(),
                u32::from_be_bytes(sent[4..8].try_into().unwrap()) as usize
            );
            if is_flushed || matches!(error, RtrError::OtherSession { .. }) {
                assert_eq!((code, after), (ErrorCode::CORRUPT_DATA.0, None));
                return Flushes;
            }
            assert_eq!(before, after);
            Fails(code)
        }
        (Some(other), _) => panic!("a PDU of type {other} is sent"),
    }
}

#[test]
fn every_pdu_has_the_effect_of_the_standard_in_every_state() {
    const STATES: [State; 5] = [
        State::Reset,
        State::Serial,
        State::InReset,
        State::InSerial,
        State::Idle,
    ];
    for version in [0, 1] {
        let any = |kind: u8, field: u16, body: &[u8]| pdu(version, kind, field, body);
        let v6 = [
            1, 32, 48, 0, 0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xfb, 0xf4,
        ];
        let key = |is_known: Effect, outside: Effect| {
            if version == 0 {
                [Fails(5); 5]
            } else {
                [outside, outside, is_known, is_known, outside]
            }
        };
        let short_end = if version == 0 { vec![0; 16] } else { vec![0; 4] };
        // The PDU, and its effect in each state: Reset, Serial, InReset, InSerial, Idle.
        let rows: Vec<(&str, Vec<u8>, [Effect; 5])> = vec![
            (
                "a notify of a new serial",
                any(SERIAL_NOTIFY, SESSION, &9_u32.to_be_bytes()),
                [Nothing, Nothing, Nothing, Nothing, AsksSerial],
            ),
            (
                "a notify of the known serial",
                any(SERIAL_NOTIFY, SESSION, &SERIAL.to_be_bytes()),
                [Nothing; 5],
            ),
            (
                "a notify of another session",
                any(SERIAL_NOTIFY, 8, &9_u32.to_be_bytes()),
                [Nothing, Flushes, Nothing, Flushes, Flushes],
            ),
            (
                "a short notify",
                any(SERIAL_NOTIFY, SESSION, &[0; 3]),
                [Nothing, Fails(0), Fails(0), Fails(0), Fails(0)],
            ),
            (
                "a response",
                any(CACHE_RESPONSE, SESSION, &[]),
                [Nothing, Nothing, Fails(0), Fails(0), Fails(0)],
            ),
            (
                "a response of another session",
                any(CACHE_RESPONSE, 8, &[]),
                [Nothing, Flushes, Fails(0), Flushes, Flushes],
            ),
            (
                "a long response",
                any(CACHE_RESPONSE, SESSION, &[0]),
                [Fails(0); 5],
            ),
            (
                "a new prefix",
                prefix(version, 1, 3),
                [Fails(0), Fails(0), Nothing, Nothing, Fails(0)],
            ),
            (
                "an announced prefix",
                prefix(version, 1, 2),
                [Fails(0), Fails(0), Nothing, Fails(7), Fails(0)],
            ),
            (
                "a withdrawal",
                prefix(version, 0, 2),
                [Fails(0), Fails(0), Fails(6), Nothing, Fails(0)],
            ),
            (
                "an unknown withdrawal",
                prefix(version, 0, 3),
                [Fails(0), Fails(0), Fails(6), Fails(6), Fails(0)],
            ),
            (
                "reserved flags",
                prefix(version, 0x81, 3),
                [Fails(0), Fails(0), Nothing, Nothing, Fails(0)],
            ),
            (
                "a prefix of IPv6",
                any(IPV6_PREFIX, 0, &v6),
                [Fails(0), Fails(0), Nothing, Nothing, Fails(0)],
            ),
            (
                "an IPv4 prefix of the size of IPv6",
                any(IPV4_PREFIX, 0, &v6),
                [Fails(0); 5],
            ),
            (
                "a greatest length below the length",
                any(IPV4_PREFIX, 0, &[1, 24, 23, 0, 192, 0, 3, 0, 0, 0, 0, 1]),
                [Fails(0); 5],
            ),
            (
                "a greatest length above 32",
                any(IPV4_PREFIX, 0, &[1, 24, 33, 0, 192, 0, 3, 0, 0, 0, 0, 1]),
                [Fails(0); 5],
            ),
            (
                "an end",
                end(version, SESSION),
                [Fails(0), Fails(0), Set(0), Set(1), Fails(0)],
            ),
            (
                "an end of another session",
                end(version, 8),
                [Fails(0), Fails(0), Flushes, Flushes, Fails(0)],
            ),
            (
                "an end of the other version's size",
                any(END_OF_DATA, SESSION, &short_end),
                [Fails(0); 5],
            ),
            (
                "a cache reset",
                any(CACHE_RESET, 0, &[]),
                [Fails(0), AsksReset, Fails(0), Fails(0), AsksReset],
            ),
            (
                "a router key",
                any(ROUTER_KEY, 0x0100, &[0; 91]),
                key(Nothing, Fails(0)),
            ),
            (
                "a short router key",
                any(ROUTER_KEY, 0x0100, &[0; 23]),
                key(Fails(0), Fails(0)),
            ),
            (
                "a serial query",
                any(SERIAL_QUERY, SESSION, &[0; 4]),
                [Fails(3); 5],
            ),
            ("a reset query", any(RESET_QUERY, 0, &[]), [Fails(3); 5]),
            ("an unknown type", any(5, 0, &[]), [Fails(5); 5]),
            ("a type of version 2", any(11, 0, &[0; 8]), [Fails(5); 5]),
            (
                "corrupt data",
                any(ERROR_REPORT, 0, &[0; 8]),
                [Ends, EndsFlushed, Ends, EndsFlushed, EndsFlushed],
            ),
            ("an internal error", any(ERROR_REPORT, 1, &[0; 8]), [Ends; 5]),
            ("no data", any(ERROR_REPORT, 2, &[0; 8]), [Nothing; 5]),
            ("an invalid request", any(ERROR_REPORT, 3, &[0; 8]), [Ends; 5]),
            ("an unsupported version", any(ERROR_REPORT, 4, &[0; 8]), [Ends; 5]),
            ("an unsupported type", any(ERROR_REPORT, 5, &[0; 8]), [Ends; 5]),
            (
                "an unknown withdrawal, reported",
                any(ERROR_REPORT, 6, &[0; 8]),
                [Ends; 5],
            ),
            ("a duplicate, reported", any(ERROR_REPORT, 7, &[0; 8]), [Ends; 5]),
            ("an unexpected version", any(ERROR_REPORT, 8, &[0; 8]), [Ends; 5]),
            ("an unknown error", any(ERROR_REPORT, 300, &[]), [Ends; 5]),
            (
                "a PDU of version 2",
                pdu(2, CACHE_RESPONSE, SESSION, &[]),
                [Fails(8); 5],
            ),
        ];
        for (name, bytes, effects) in rows {
            for (state, expected) in STATES.into_iter().zip(effects) {
                assert_eq!(
                    effect(version, state, &bytes),
                    expected,
                    "version {version}, {state:?}: {name}"
                );
            }
        }
    }
}

#[test]
fn a_size_that_no_pdu_has_ends_the_connection_with_a_report() {
    for size in [0_u32, 7, 8193, u32::MAX] {
        let mut client = client(1, State::Idle);
        let mut bytes = vec![1, CACHE_RESPONSE, 0, 7];
        bytes.extend(size.to_be_bytes());
        assert!(matches!(
            client.receive(&bytes, Time::ZERO),
            Err(RtrError::Protocol {
                code: ErrorCode::CORRUPT_DATA,
                ..
            })
        ));
        assert_eq!(client.take_output()[..4], [1, ERROR_REPORT, 0, 0]);
    }
}
