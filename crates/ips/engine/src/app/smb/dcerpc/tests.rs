//! Tests of the parser of DCE/RPC.

use super::*;
use crate::app::heap::Heap;

const PIPE: Carrier = Carrier {
    is_recorded: false,
    app: AppProtocol::Smb,
    command: b"",
};

/// Returns a PDU of a request or response.
pub(in crate::app::smb) fn message(kind: u8, flags: u8, stub: &[u8]) -> Vec<u8> {
    let size = u16::try_from(HEADER + 8 + stub.len()).unwrap().to_le_bytes();
    let mut out = vec![
        5, 0, kind, flags, 0x10, 0, 0, 0, size[0], size[1], 0, 0, 1, 0, 0, 0,
    ];
    out.extend_from_slice(&[0; 8]);
    out.extend_from_slice(stub);
    out
}

#[test]
fn fragments_of_a_call_join_in_any_segmentation() {
    let call = [message(REQUEST, 1, b"one"), message(REQUEST, 2, b"two")].concat();
    let answer = message(RESPONSE, 3, b"three");
    for step in [1, 7, 1000] {
        let mut dcerpc = Dcerpc::default();
        let mut out = Transactions::default();
        for (direction, bytes) in [(Direction::ToServer, &call), (Direction::ToClient, &answer)] {
            for bytes in bytes.chunks(step) {
                dcerpc.data(StreamChunk::of(direction, bytes), &mut out);
            }
        }
        assert_eq!(out.list.len(), 1);
        let transaction = &out.list[0];
        assert_eq!(
            transaction.buffer(Buffer::DceStubData, Direction::ToServer),
            Some(&b"onetwo"[..])
        );
        assert_eq!(
            transaction.buffer(Buffer::DceStubData, Direction::ToClient),
            Some(&b"three"[..])
        );
        assert!(transaction.is_complete());
    }
}

#[test]
fn a_pdu_of_a_context_ends_a_message_and_a_call_does_not() {
    let mut dcerpc = Dcerpc::default();
    for (kind, ends) in [(11, true), (12, true), (REQUEST, false), (14, true)] {
        let bytes = message(kind, 3, b"");
        let chunk = StreamChunk::of(Direction::ToServer, &bytes);
        dcerpc.data(chunk, &mut Transactions::default());
        assert_eq!((dcerpc.ends_message(), dcerpc.ends_message()), (ends, false));
    }
}

#[test]
fn a_call_before_the_end_of_an_answer_takes_none_of_the_answer() {
    let mut calls = Calls::default();
    let mut out = Transactions::default();
    for (direction, bytes) in [
        (Direction::ToServer, message(REQUEST, 3, b"first")),
        (Direction::ToClient, message(RESPONSE, 1, b"an")),
        (Direction::ToServer, message(REQUEST, 3, b"second")),
        (Direction::ToClient, message(RESPONSE, 2, b"swer")),
    ] {
        assert!(calls.data(&bytes, direction, PIPE, &mut out));
    }
    let stub = |index: usize, direction| out.list[index].buffer(Buffer::DceStubData, direction);
    assert_eq!(stub(0, Direction::ToClient), Some(&b"answer"[..]));
    assert_eq!(stub(1, Direction::ToServer), Some(&b"second"[..]));
    assert_eq!(stub(1, Direction::ToClient), None);
}

/// Returns a PDU of a request or response of a call.
fn of_call(call: u8, kind: u8, flags: u8, stub: &[u8]) -> Vec<u8> {
    let mut out = message(kind, flags, stub);
    out[12] = call;
    out
}

#[test]
fn fragments_of_calls_with_other_numbers_do_not_mix_and_a_first_fragment_begins_a_call() {
    let mut calls = Calls::default();
    let mut out = Transactions::default();
    for (direction, bytes) in [
        (Direction::ToServer, of_call(1, REQUEST, 1, b"one ")),
        (Direction::ToServer, of_call(2, REQUEST, 1, b"two ")),
        (Direction::ToServer, of_call(1, REQUEST, 2, b"ends")),
        (Direction::ToServer, of_call(2, REQUEST, 1, b"again ")),
        (Direction::ToServer, of_call(2, REQUEST, 2, b"ends")),
        (Direction::ToClient, of_call(2, RESPONSE, 3, b"second")),
        (Direction::ToClient, of_call(1, RESPONSE, 3, b"first")),
    ] {
        assert!(calls.data(&bytes, direction, PIPE, &mut out));
    }
    let stub = |index: usize, direction| {
        let stub = out.list[index].buffer(Buffer::DceStubData, direction);
        String::from_utf8_lossy(stub.unwrap_or_default()).into_owned()
    };
    let stubs: Vec<_> = Direction::BOTH
        .iter()
        .flat_map(|side| (0..3).map(|at| stub(at, *side)))
        .collect();
    assert_eq!(stubs, ["one ends", "two ", "again ends", "first", "", "second"]);
}

/// Returns a bind with contexts: number, and first byte of the interface.
pub(in crate::app) fn bind(contexts: &[(u8, u8)]) -> Vec<u8> {
    let mut body = vec![0; 8];
    body.extend([contexts.len() as u8, 0, 0, 0]);
    for (id, interface) in contexts {
        body.extend([*id, 0, 1, 0, 0x78, 0x56, 0x34, *interface, 0x34, 0x12, 0xcd, 0xab]);
        body.extend([0xef, 0, 1, 0x23, 0x45, 0x67, 0x89, 0xac, 3, 0, 0, 0]);
        body.extend([0; 20]);
    }
    let size = (HEADER + body.len()) as u8;
    [
        &[5, 0, BIND, 3, 0x10, 0, 0, 0, size, 0, 0, 0, 1, 0, 0, 0][..],
        &body,
    ]
    .concat()
}

#[test]
fn a_call_has_the_interface_of_its_context() {
    let mut call = message(REQUEST, 3, b"");
    (call[20], call[22]) = (1, 15);
    let mut calls = Calls::default();
    let mut out = Transactions::default();
    for bytes in [bind(&[(0, 0x11), (1, 0x12)]), call] {
        assert!(calls.data(&bytes, Direction::ToServer, PIPE, &mut out));
    }
    let Record::Smb(record) = &out.list[0].record else {
        panic!("a record of a call")
    };
    let expected = DcerpcCall {
        interfaces: [(b"12345678-1234-abcd-ef00-0123456789ac".to_vec(), [3, 0])]
            .into_iter()
            .collect(),
        operation: 15,
        request: Some(REQUEST),
        identifier: 1,
        fragments: [1, 0],
        ..DcerpcCall::default()
    };
    assert_eq!(record.dcerpc, Some(expected));
}

#[test]
fn calls_share_the_interfaces_that_were_proposed_for_their_context() {
    let mut calls = Calls::default();
    let mut out = Transactions::default();
    let mut feed = |bytes: &[u8], out: &mut Transactions| {
        assert!(calls.data(bytes, Direction::ToServer, PIPE, out));
        calls.heap()
    };
    for first in (0..200).step_by(4) {
        let contexts = [0, 1, 2, 3].map(|at| (0, first + at));
        feed(&bind(&contexts), &mut out);
    }
    let before = feed(&[], &mut out);
    feed(&message(REQUEST, 3, b""), &mut out);
    feed(&bind(&[(0, 255)]), &mut out);
    let after = feed(&message(REQUEST, 3, b""), &mut out);
    let of = |at: usize| match &out.list[at].record {
        Record::Smb(record) => record.dcerpc.clone().unwrap().interfaces,
        other => panic!("{other:?}"),
    };
    assert_eq!((of(0).iter().count(), of(1).iter().count()), (200, 201));
    assert!(of(0).iter().eq(of(1).iter().skip(1)));
    // The calls themselves hold none.
    assert!(after - before < 400, "{before} {after}");
    assert!(out.heap() < 4 * size_of::<Transaction>() + 2000, "{}", out.heap());
}

#[test]
fn binds_over_tcp_are_transactions_with_the_results_of_their_contexts() {
    let mut dcerpc = Dcerpc::default();
    let mut out = Transactions::default();
    let mut send = |bytes: &[u8], direction| {
        for byte in bytes {
            dcerpc.data(StreamChunk::of(direction, &[*byte]), &mut out);
        }
    };
    send(&bind(&[(0, 0x11), (1, 0x12)]), Direction::ToServer);
    // The address "135" with its NUL, and two results.
    let mut results = vec![0; 8];
    results.extend(b"\x04\0135\0\0\0\x02\0\0\0");
    results.extend([&[0; 24][..], &[2, 0, 1, 0], &[0; 20]].concat());
    let mut ack = message(BIND_ACK, 3, &results[8..]);
    ack[16..24].copy_from_slice(&results[..8]);
    send(&ack, Direction::ToClient);
    send(&message(REQUEST, 1, b"one"), Direction::ToServer);
    send(&message(REQUEST, 2, b"two."), Direction::ToServer);
    send(&message(FAULT, 3, b"why"), Direction::ToClient);
    let calls: Vec<DcerpcCall> = out
        .list
        .iter_mut()
        .filter_map(|it| call_of(it).cloned())
        .collect();
    let shown = |at: usize| (calls[at].request, calls[at].answer);
    assert_eq!(calls.len(), 2);
    assert_eq!(shown(0), (Some(BIND), Some(BIND_ACK)));
    assert_eq!(calls[0].results, [0, 2]);
    assert_eq!(calls[0].interfaces.iter().count(), 2);
    assert_eq!(shown(1), (Some(REQUEST), Some(FAULT)));
    assert_eq!((calls[1].fragments, calls[1].stub_sizes), ([2, 0], [7, 0]));
    assert!(out.list.iter().all(Transaction::is_complete));
}

#[test]
fn other_bytes_are_no_call() {
    let mut out = Transactions::default();
    assert!(!Calls::default().data(b"GET / HTTP/1.1", Direction::ToServer, PIPE, &mut out));
    assert!(out.list.is_empty());
}

/// Parses messages over TCP, each in steps of a size; returns request and answer of each transaction, and its stub data.
type Seen = (Option<u8>, Option<u8>, [Vec<u8>; 2]);

fn seen(messages: &[(Direction, u64, Vec<u8>)], step: usize) -> Vec<Seen> {
    let (mut dcerpc, mut out) = (Dcerpc::default(), Transactions::default());
    for (direction, gap, bytes) in messages {
        for (at, bytes) in bytes.chunks(step).enumerate() {
            let mut chunk = StreamChunk::of(*direction, bytes);
            chunk.gap_before = if at == 0 { *gap } else { 0 };
            assert_eq!(dcerpc.data(chunk, &mut out), Outcome::Continue);
        }
    }
    let of = |transaction: &mut Transaction| {
        assert!(transaction.is_complete());
        let stubs = Direction::BOTH.map(|direction| {
            let stub = transaction.buffer(Buffer::DceStubData, direction);
            stub.unwrap_or_default().to_vec()
        });
        let call = call_of(transaction).unwrap();
        (call.request, call.answer, stubs)
    };
    out.list.iter_mut().map(of).collect()
}

#[test]
fn an_answer_without_a_request_is_a_transaction_in_any_segmentation() {
    let (client, server) = (Direction::ToServer, Direction::ToClient);
    let messages = [
        (server, 0, of_call(1, RESPONSE, 1, b"an")),
        (server, 0, of_call(1, RESPONSE, 2, b"swer")),
        (server, 0, of_call(2, FAULT, 3, b"")),
        (server, 0, of_call(3, BIND_ACK, 3, b"")),
        (client, 0, of_call(4, REQUEST, 3, b"call")),
        (server, 0, of_call(4, RESPONSE, 3, b"reply")),
    ];
    let stubs = |one: &[u8], two: &[u8]| [one.to_vec(), two.to_vec()];
    for step in [1, 7, 1000] {
        let expected = [
            (None, Some(RESPONSE), stubs(b"", b"answer")),
            (None, Some(FAULT), stubs(b"", b"")),
            (None, Some(BIND_ACK), stubs(b"", b"")),
            (Some(REQUEST), Some(RESPONSE), stubs(b"call", b"reply")),
        ];
        assert_eq!(seen(&messages, step), expected, "{step}");
    }
}

#[test]
fn behind_lost_bytes_parsing_continues_with_the_next_pdu() {
    let (client, server) = (Direction::ToServer, Direction::ToClient);
    // The rest of a PDU, in which bytes look like the beginning of another.
    let rest = [
        &b"stub\x05\0\0\x03\x20\0\0\0 of\x05"[..],
        &of_call(2, REQUEST, 3, b"two"),
    ]
    .concat();
    let messages = [
        (client, 0, of_call(1, REQUEST, 1, b"one")),
        (client, 9, rest),
        (server, 0, of_call(1, RESPONSE, 3, b"first")),
        (server, 0, of_call(2, RESPONSE, 3, b"second")),
        (server, 5, of_call(3, RESPONSE, 3, b"third")),
    ];
    let stubs = |one: &[u8], two: &[u8]| [one.to_vec(), two.to_vec()];
    for step in [1, 7, 1000] {
        let expected = [
            (Some(REQUEST), Some(RESPONSE), stubs(b"one", b"first")),
            (Some(REQUEST), Some(RESPONSE), stubs(b"two", b"second")),
            (None, Some(RESPONSE), stubs(b"", b"third")),
        ];
        assert_eq!(seen(&messages, step), expected, "{step}");
    }
}

#[test]
fn bytes_that_are_no_pdu_behind_lost_ones_are_not_kept() {
    let (mut dcerpc, mut out) = (Dcerpc::default(), Transactions::default());
    let mut chunk = StreamChunk::of(Direction::ToServer, &[VERSION; 4096]);
    chunk.gap_before = 1;
    for _ in 0..64 {
        assert_eq!(dcerpc.data(chunk, &mut out), Outcome::Continue);
        chunk.gap_before = 0;
    }
    assert!(dcerpc.heap() < 3 * 4096, "{}", dcerpc.heap());
    assert!(out.list.is_empty());
}

#[test]
fn a_call_has_the_versions_of_the_protocol_and_of_its_interface() {
    let mut bind = bind(&[(0, 0x11)]);
    // The minor versions of the protocol and, behind the UUID and the major version, of the interface.
    (bind[1], bind[16 + 12 + 4 + 16 + 2]) = (1, 2);
    let (mut dcerpc, mut out) = (Dcerpc::default(), Transactions::default());
    dcerpc.data(StreamChunk::of(Direction::ToServer, &bind), &mut out);
    let call = call_of(&mut out.list[0]).unwrap();
    let versions: Vec<_> = call.interfaces.iter().map(|(_, version)| *version).collect();
    assert_eq!((call.minor_version, &versions[..]), (1, &[[3, 2]][..]));
}
