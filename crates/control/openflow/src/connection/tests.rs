//! Tests of a connection: HELLO, echoes, requests in several messages, and the auxiliary connection over datagrams.

use millrace_flow::{Instructions, Match};
use millrace_types::{Priority, TableId};

use super::*;
use crate::flow_mod::FlowMod;
use crate::multipart::table_features::TableFeatures;
use crate::multipart::{MultipartRequest, RequestBody};

fn bytes_of(message: &Message, xid: u32) -> Vec<u8> {
    let mut out = Vec::new();
    encode(message, Xid(xid), &mut out).unwrap();
    out
}

fn sent(connection: &mut Connection) -> Vec<(Header, Message)> {
    let mut messages = Vec::new();
    let mut rest = connection.output();
    while let Some(header) = Header::parse(rest) {
        let (message, tail) = rest.split_at(usize::from(header.length));
        messages.push(decode(message).unwrap());
        rest = tail;
    }
    let size = connection.output().len();
    connection.wrote(size, Time::ZERO);
    messages
}

fn fresh() -> Connection {
    Connection::new(Settings::default(), Time::ZERO)
}

fn ready() -> Connection {
    let mut connection = fresh();
    connection.receive(&bytes_of(&Message::Hello(Hello::OURS), 1), Time::ZERO);
    assert!(matches!(connection.poll(), Some(Event::Ready)));
    sent(&mut connection);
    connection
}

/// Takes the next event, which must be a rejection. Returns its xid and its error.
fn rejected(connection: &mut Connection) -> (Xid, ErrorCode) {
    match connection.poll() {
        Some(Event::Rejected(rejection)) => match rejection.reply() {
            Message::Error(error) => {
                assert_eq!(&error.data[..], rejection.head.bytes());
                (rejection.header.xid, error.code)
            }
            other => panic!("expected an error, found {other}"),
        },
        other => panic!("expected a rejection, found {other:?}"),
    }
}

fn error_code(messages: &[(Header, Message)]) -> ErrorCode {
    match messages {
        [(_, Message::Error(error))] => error.code,
        other => panic!("expected one error, found {other:?}"),
    }
}

#[test]
fn hello_is_sent_at_once_and_makes_the_connection_ready() {
    let mut connection = fresh();
    assert_eq!(sent(&mut connection)[0].1, Message::Hello(Hello::OURS));
    assert!(!connection.is_ready());
    connection.receive(&[1, 0, 0, 16, 0, 0, 0, 9, 0, 1, 0, 8, 0, 0, 0, 18], Time::ZERO);
    assert!(matches!(connection.poll(), Some(Event::Ready)));
    assert!(connection.is_ready());
}

#[test]
fn a_peer_of_another_version_gets_hello_failed_with_a_text() {
    let mut connection = fresh();
    sent(&mut connection);
    connection.receive(&[1, 0, 0, 8, 0, 0, 0, 9], Time::ZERO);
    assert!(matches!(
        connection.poll(),
        Some(Event::Closed(CloseReason::Incompatible { version: 1 }))
    ));
    let messages = sent(&mut connection);
    assert_eq!(error_code(&messages), ErrorCode::OFPHFC_INCOMPATIBLE);
    assert_eq!(messages[0].0.xid, Xid(9));
    assert!(connection.poll().is_none() && !connection.wants_input());
}

#[test]
fn a_malformed_hello_is_named() {
    let mut connection = fresh();
    sent(&mut connection);
    // An element of 3 bytes.
    connection.receive(&[4, 0, 0, 16, 0, 0, 0, 9, 0, 1, 0, 3, 0, 0, 0, 0x10], Time::ZERO);
    let Some(Event::Closed(reason)) = connection.poll() else {
        panic!("not closed")
    };
    assert_eq!(reason, CloseReason::MalformedHello(DecodeError::Length));
    assert_eq!(error_code(&sent(&mut connection)), ErrorCode::OFPBRC_BAD_LEN);
}

#[test]
fn what_comes_before_hello_is_refused() {
    let mut connection = fresh();
    sent(&mut connection);
    connection.receive(&bytes_of(&Message::FeaturesRequest, 7), Time::ZERO);
    assert!(matches!(
        connection.poll(),
        Some(Event::Closed(CloseReason::NotHello { type_: 5 }))
    ));
    assert_eq!(error_code(&sent(&mut connection)), ErrorCode::OFPBRC_BAD_TYPE);
}

#[test]
fn requests_come_out_in_order_with_their_heads() {
    let mut connection = ready();
    let flow_mod = FlowMod::add(TableId(0), Priority(1), Match::any(), Instructions::default());
    let stream = [
        bytes_of(&Message::FlowMod(flow_mod.clone()), 5),
        bytes_of(&Message::BarrierRequest, 6),
    ]
    .concat();
    connection.receive(&stream, Time::ZERO);
    let Some(Event::Request(request)) = connection.poll() else {
        panic!()
    };
    assert_eq!(
        (request.xid, &request.message),
        (Xid(5), &Message::FlowMod(flow_mod))
    );
    assert_eq!(request.head.bytes(), &stream[..56]);
    let Some(Event::Request(request)) = connection.poll() else {
        panic!()
    };
    assert_eq!(request.message, Message::BarrierRequest);
    assert!(connection.poll().is_none());
}

#[test]
fn a_malformed_request_is_answered_and_the_next_one_is_read() {
    let mut connection = ready();
    let stream = [
        vec![4, 99, 0, 8, 0, 0, 0, 1],
        bytes_of(&Message::BarrierReply, 2),
        bytes_of(&Message::BarrierRequest, 3),
    ]
    .concat();
    connection.receive(&stream, Time::ZERO);
    for xid in [1, 2] {
        assert_eq!(rejected(&mut connection), (Xid(xid), ErrorCode::OFPBRC_BAD_TYPE));
    }
    assert!(matches!(connection.poll(), Some(Event::Request(_))));
}

#[test]
fn a_length_that_cannot_be_is_answered_and_ends_the_connection() {
    let mut connection = ready();
    connection.receive(&[4, 2, 0, 3, 0, 0, 0, 8, 1, 2, 3], Time::ZERO);
    assert!(matches!(
        connection.poll(),
        Some(Event::Closed(CloseReason::Framing { length: 3 }))
    ));
    assert_eq!(error_code(&sent(&mut connection)), ErrorCode::OFPBRC_BAD_LEN);
}

#[test]
fn an_echo_is_answered_with_its_data() {
    let mut connection = ready();
    let data: Box<[u8]> = b"still there?".as_slice().into();
    connection.receive(&bytes_of(&Message::EchoRequest(data.clone()), 8), Time::ZERO);
    assert!(connection.poll().is_none());
    let messages = sent(&mut connection);
    assert_eq!(messages[0].0.xid, Xid(8));
    assert_eq!(messages[0].1, Message::EchoReply(data));
}

#[test]
fn a_silent_peer_is_asked_three_times_and_then_given_up() {
    let mut connection = ready();
    for seconds in [5, 10, 15] {
        assert_eq!(connection.deadline(), Some(Time::from_secs(seconds)));
        connection.tick(Time::from_secs(seconds));
        assert!(matches!(
            sent(&mut connection)[..],
            [(_, Message::EchoRequest(_))]
        ));
        assert!(connection.poll().is_none());
    }
    connection.tick(Time::from_secs(20));
    assert!(matches!(
        connection.poll(),
        Some(Event::Closed(CloseReason::EchoTimeout))
    ));
}

#[test]
fn any_bytes_show_that_the_peer_is_alive() {
    let mut connection = ready();
    connection.tick(Time::from_secs(5));
    connection.receive(
        &bytes_of(&Message::EchoReply(Box::default()), 1),
        Time::from_secs(6),
    );
    assert!(connection.poll().is_none());
    assert_eq!(connection.deadline(), Some(Time::from_secs(11)));
}

#[test]
fn a_peer_that_takes_a_long_reply_slowly_is_alive_and_one_that_does_not_is_not() {
    let mut connection = ready();
    connection.send_encoded(&[0; 100_000]);
    connection.wrote(30_000, Time::from_secs(4));
    assert_eq!(connection.deadline(), Some(Time::from_secs(9)));
    connection.wrote(0, Time::from_secs(8));
    assert_eq!(connection.deadline(), Some(Time::from_secs(9)));
}

#[test]
fn a_peer_that_says_no_hello_is_given_up() {
    let mut connection = fresh();
    connection.tick(Time::from_secs(9));
    assert!(connection.poll().is_none());
    connection.tick(Time::from_secs(10));
    assert!(matches!(
        connection.poll(),
        Some(Event::Closed(CloseReason::HelloTimeout))
    ));
}

#[test]
fn a_peer_that_sends_its_hello_byte_by_byte_is_given_up_at_the_same_time() {
    for mut connection in [fresh(), datagrams()] {
        sent(&mut connection);
        let at = Time::from_millis(9_900);
        connection.receive(&[4, 0, 0xff], at);
        connection.tick(at);
        assert!(connection.poll().is_none());
        assert_eq!(connection.deadline(), Some(Time::from_secs(10)));
        connection.tick(Time::from_secs(10));
        assert!(matches!(
            connection.poll(),
            Some(Event::Closed(CloseReason::HelloTimeout))
        ));
    }
}

#[test]
fn a_peer_that_does_not_read_is_not_served() {
    let mut connection = ready();
    let request = bytes_of(&Message::EchoRequest(vec![0; 60_000].into()), 1);
    let mut fed = 0;
    while connection.wants_input() {
        connection.receive(&request, Time::ZERO);
        assert!(connection.poll().is_none());
        fed += 1;
        assert!(fed < 100);
    }
    assert!(connection.output().len() < 1_200_000);
    assert!(connection.is_congested());
    sent(&mut connection);
    assert!(connection.wants_input() && !connection.is_congested());
}

fn table(number: u8) -> TableFeatures {
    TableFeatures {
        table: TableId(number),
        name: String::new(),
        metadata_match: 0,
        metadata_write: 0,
        config: 0,
        max_entries: 0,
        properties: Vec::new(),
    }
}

/// Returns a message of a TABLE_FEATURES request with xid 4.
fn part(more: bool, number: u8) -> Vec<u8> {
    let body = RequestBody::TableFeatures(vec![table(number)]);
    bytes_of(&Message::MultipartRequest(MultipartRequest { more, body }), 4)
}

/// Returns a message like that of [`part`], but its table has a property of unknown type.
fn bad_part(more: bool, number: u8) -> Vec<u8> {
    let mut bytes = part(more, number);
    let entry = HEADER_SIZE + 8;
    bytes.extend([0x12, 0x34, 0, 4, 0, 0, 0, 0]);
    let [size, entry_size] = [bytes.len(), bytes.len() - entry].map(|size| (size as u16).to_be_bytes());
    bytes[2..4].copy_from_slice(&size);
    bytes[entry..entry + 2].copy_from_slice(&entry_size);
    bytes
}

fn next_tables(connection: &mut Connection) -> Vec<TableFeatures> {
    match connection.poll() {
        Some(Event::Request(Request {
            message:
                Message::MultipartRequest(MultipartRequest {
                    body: RequestBody::TableFeatures(tables),
                    ..
                }),
            ..
        })) => tables,
        other => panic!("expected TABLE_FEATURES, found {other:?}"),
    }
}

#[test]
fn table_features_in_several_messages_become_one_request() {
    let mut connection = ready();
    connection.receive(
        &[part(true, 0), part(true, 1), part(false, 2)].concat(),
        Time::ZERO,
    );
    assert_eq!(next_tables(&mut connection), [table(0), table(1), table(2)]);
}

#[test]
fn a_request_of_which_one_message_is_refused_is_answered_with_one_error_and_not_carried_out() {
    for messages in [
        vec![bad_part(true, 0), part(false, 1)],
        vec![bad_part(true, 0), part(true, 1), bad_part(false, 2)],
        vec![part(true, 0), bad_part(true, 1), part(true, 2), part(false, 3)],
        vec![part(true, 0), part(true, 1), bad_part(false, 2)],
    ] {
        let mut connection = ready();
        connection.receive(&messages.concat(), Time::ZERO);
        assert_eq!(rejected(&mut connection), (Xid(4), ErrorCode::OFPTFFC_BAD_TYPE));
        let event = connection.poll();
        assert!(event.is_none(), "{event:?}");
        // The xid can be used again.
        connection.receive(&part(false, 5), Time::ZERO);
        assert_eq!(next_tables(&mut connection), [table(5)]);
    }
}

#[test]
fn a_refused_request_does_not_take_away_requests_of_other_types_or_xids() {
    let mut connection = ready();
    let desc = bytes_of(
        &Message::MultipartRequest(MultipartRequest::new(RequestBody::Desc)),
        4,
    );
    let mut other = part(false, 7);
    other[7] = 5;
    connection.receive(&[bad_part(true, 0), desc, other].concat(), Time::ZERO);
    rejected(&mut connection);
    assert!(matches!(connection.poll(), Some(Event::Request(_))));
    assert_eq!(next_tables(&mut connection), [table(7)]);
    assert!(connection.poll().is_none());
}

#[test]
fn a_request_that_another_one_ends_is_not_carried_out_in_part() {
    let mut connection = ready();
    let mut other = [part(true, 7), part(false, 8)];
    other.iter_mut().for_each(|part| part[7] = 5);
    let [begin, end] = other;
    connection.receive(&[part(true, 0), begin, part(false, 1), end].concat(), Time::ZERO);
    let refused = (Xid(4), ErrorCode::OFPBRC_MULTIPART_BUFFER_OVERFLOW);
    assert_eq!(rejected(&mut connection), refused);
    assert_eq!(next_tables(&mut connection), [table(7), table(8)]);
    assert!(connection.poll().is_none());
}

#[test]
fn an_endless_request_is_refused_before_it_fills_memory_and_its_end_is_ignored() {
    let mut connection = ready();
    let body = RequestBody::TableFeatures(Vec::new());
    let empty = bytes_of(
        &Message::MultipartRequest(MultipartRequest { more: true, body }),
        4,
    );
    for _ in 0..(1 << 20) / empty.len() {
        connection.receive(&empty, Time::ZERO);
        assert!(connection.poll().is_none());
    }
    connection.receive(&empty, Time::ZERO);
    let refused = (Xid(4), ErrorCode::OFPBRC_MULTIPART_BUFFER_OVERFLOW);
    assert_eq!(rejected(&mut connection), refused);
    connection.receive(&[empty, part(true, 1), part(false, 2)].concat(), Time::ZERO);
    assert!(connection.poll().is_none());
    connection.receive(&part(false, 3), Time::ZERO);
    assert_eq!(next_tables(&mut connection), [table(3)]);
}

fn datagrams() -> Connection {
    let settings = Settings {
        is_datagram: true,
        ..Settings::default()
    };
    Connection::new(settings, Time::ZERO)
}

#[test]
fn over_datagrams_hello_is_repeated_until_something_comes() {
    let mut connection = datagrams();
    for second in [2, 4, 6, 8] {
        assert_eq!(sent(&mut connection).len(), 1);
        connection.tick(Time::from_secs(second) - Duration::from_millis(1));
        assert!(sent(&mut connection).is_empty());
        connection.tick(Time::from_secs(second));
    }
    connection.tick(Time::from_secs(10));
    assert!(matches!(
        connection.poll(),
        Some(Event::Closed(CloseReason::HelloTimeout))
    ));
}

#[test]
fn over_datagrams_any_message_of_our_version_stands_for_a_lost_hello() {
    let mut connection = datagrams();
    connection.receive(&bytes_of(&Message::FeaturesRequest, 7), Time::ZERO);
    assert!(matches!(connection.poll(), Some(Event::Ready)));
    assert!(matches!(connection.poll(), Some(Event::Request(request)) if request.xid == Xid(7)));
    let mut other = datagrams();
    let mut bytes = bytes_of(&Message::FeaturesRequest, 7);
    bytes[0] = 5;
    other.receive(&bytes, Time::ZERO);
    assert!(matches!(
        other.poll(),
        Some(Event::Closed(CloseReason::NotHello { .. }))
    ));
}

#[test]
fn over_datagrams_half_a_message_spoils_nothing_and_messages_that_must_not_be_lost_are_refused() {
    let mut connection = datagrams();
    connection.receive(&bytes_of(&Message::Hello(Hello::OURS), 1), Time::ZERO);
    assert!(matches!(connection.poll(), Some(Event::Ready)));
    sent(&mut connection);
    connection.receive(&[4, 5, 0, 80, 0, 0, 0, 1], Time::ZERO);
    assert!(connection.poll().is_none());
    connection.receive(&[4, 5, 0, 3, 0, 0, 0, 1], Time::ZERO);
    assert!(connection.poll().is_none());
    connection.receive(&bytes_of(&Message::EchoRequest(Box::default()), 2), Time::ZERO);
    assert!(connection.poll().is_none());
    assert!(matches!(sent(&mut connection)[..], [(_, Message::EchoReply(_))]));
    connection.receive(&bytes_of(&Message::BarrierRequest, 3), Time::ZERO);
    assert_eq!(rejected(&mut connection), (Xid(3), ErrorCode::OFPBRC_BAD_TYPE));
}

#[test]
fn a_peer_has_its_time_to_answer_also_when_it_is_asked_late() {
    let mut connection = ready();
    // An ECHO_REQUEST is due after 5 seconds, and every 5 seconds from then on.
    connection.tick(Time::from_secs(60));
    assert!(matches!(
        sent(&mut connection)[..],
        [(_, Message::EchoRequest(_))]
    ));
    assert_eq!(connection.deadline(), Some(Time::from_secs(65)));
    connection.tick(Time::from_secs(64));
    assert!(connection.poll().is_none());
    connection.receive(
        &bytes_of(&Message::EchoReply(Box::default()), 1),
        Time::from_secs(64),
    );
    assert_eq!(connection.deadline(), Some(Time::from_secs(69)));
}
