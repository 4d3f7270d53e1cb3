use super::*;

fn query(name: &[u8]) -> Vec<u8> {
    let mut data = vec![0x12, 0x34, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    data.extend_from_slice(name);
    data.extend_from_slice(&[0, 1, 0, 1]);
    data
}

fn queries(out: &Transactions) -> Vec<Vec<u8>> {
    let of = |transaction: &crate::app::Transaction| {
        transaction
            .buffers(Buffer::DnsQuery, Direction::ToServer)
            .map(|view| view.bytes.to_vec())
            .collect::<Vec<_>>()
    };
    out.list.iter().flat_map(of).collect()
}

fn datagram(data: &[u8]) -> Transactions {
    let mut out = Transactions::default();
    message(data, Direction::ToServer, &mut out);
    out
}

#[test]
fn names_keep_their_case_and_follow_pointers() {
    let out = datagram(&query(b"\x03wWw\x07example\x03ORG\0"));
    assert_eq!(queries(&out), [b"wWw.example.ORG"]);
    // The second question points at the first name.
    let mut two = query(b"\x01a\x01b\0");
    two[5] = 2;
    two.extend_from_slice(b"\x01c\xc0\x0c\0\x01\0\x01");
    assert_eq!(queries(&datagram(&two)), [&b"a.b"[..], b"c.a.b"]);
}

#[test]
fn a_compression_loop_ends_with_an_event() {
    let out = datagram(&query(b"\x01a\xc0\x0c"));
    assert!(
        out.list[0].events.contains(&"dns.infinite_loop")
            || out.list[0].events.contains(&"dns.too_many_labels")
    );
    let out = datagram(&query(b"\xc0\x0c"));
    assert!(out.list[0].events.contains(&"dns.infinite_loop"));
}

#[test]
fn a_message_of_names_that_all_lead_through_many_pointers_is_malformed() {
    // 200 pointers in a row, each to the one before it, and after them 9,000 questions that point at the last.
    let mut data = vec![0, 0, 1, 0, 0x23, 0x28, 0, 0, 0, 0, 0, 0];
    data.push(0);
    data.extend([0, 1, 0, 1]);
    let first = data.len();
    let mut target = 12_u16;
    let mut chain = Vec::new();
    for index in 0..200_u16 {
        chain.extend((0xc000 | target).to_be_bytes());
        chain.extend([0, 1, 0, 1]);
        target = u16::try_from(first).unwrap() + 6 * index;
    }
    data.extend(&chain);
    while data.len() < 60_000 {
        data.extend((0xc000 | target).to_be_bytes());
        data.extend([0, 1, 0, 1]);
    }
    let out = datagram(&data);
    assert_eq!(out.list[0].events, ["dns.malformed_data"]);
}

#[test]
fn pipelined_messages_over_tcp_are_found_in_any_segmentation() {
    let mut data = Vec::new();
    for name in [&b"\x01a\0"[..], b"\x01b\0", b"\x01c\0"] {
        let message = query(name);
        data.extend_from_slice(&u16::try_from(message.len()).unwrap().to_be_bytes());
        data.extend_from_slice(&message);
    }
    for step in [1, 3, 17, 1000] {
        let mut dns = Dns::new(true);
        let mut out = Transactions::default();
        for bytes in data.chunks(step) {
            let chunk = StreamChunk::of(Direction::ToServer, bytes);
            dns.data(chunk, &mut out);
        }
        assert_eq!(queries(&out), [b"a", b"b", b"c"], "in steps of {step}");
    }
}

#[test]
fn messages_behind_lost_bytes_are_found_in_any_segmentation() {
    let sized = |name: &[u8]| {
        let message = query(name);
        [&(message.len() as u16).to_be_bytes()[..], &message].concat()
    };
    let (lost, behind) = (sized(b"\x01b\0"), [sized(b"\x01c\0"), sized(b"\x01d\0")].concat());
    // The end of the lost message may arrive.
    for (kept, step) in [(0, 1), (0, 1000), (7, 1), (7, 5), (19, 1000)] {
        let mut dns = Dns::new(true);
        let mut out = Transactions::default();
        let first = [sized(b"\x01a\0"), lost[..2].to_vec()].concat();
        dns.data(StreamChunk::of(Direction::ToServer, &first), &mut out);
        let rest = [&lost[lost.len() - kept..], &behind].concat();
        for (at, bytes) in rest.chunks(step).enumerate() {
            let chunk = StreamChunk {
                gap_before: if at == 0 { 3 } else { 0 },
                ..StreamChunk::of(Direction::ToServer, bytes)
            };
            assert_eq!(dns.data(chunk, &mut out), Outcome::Continue);
        }
        assert_eq!(queries(&out), [b"a", b"c", b"d"], "{kept} {step}");
        assert_eq!(dns.pending[0].len(), 0);
    }
}

#[test]
fn an_answer_has_its_records_and_no_query_buffer() {
    let mut data = query(b"\x01a\0");
    (data[2], data[7]) = (0x81, 1);
    data.extend_from_slice(b"\xc0\x0c\0\x01\0\x01\0\0\0\x3c\0\x04\x7f\0\0\x01");
    let mut out = Transactions::default();
    message(&data, Direction::ToClient, &mut out);
    let Record::Dns(record) = &out.list[0].record else {
        panic!("a DNS record")
    };
    assert_eq!(
        (
            record.answers[0].name.as_slice(),
            record.answers[0].data.as_slice()
        ),
        (&b"a"[..], &b"127.0.0.1"[..])
    );
    assert!(queries(&out).is_empty());
    assert!(out.list[0].events.is_empty());
}

#[test]
fn texts_options_and_raw_data_are_read() {
    let mut data = query(b"\x01a\0");
    (data[2], data[7]) = (0x81, 3);
    data[11] = 1;
    data.extend_from_slice(b"\xc0\x0c\0\x10\0\x01\0\0\0\x3c\0\x06\x02ab\x02cd");
    data.extend_from_slice(b"\xc0\x0c\0\x10\0\x01\0\0\0\x3c\0\x03\x02ab");
    data.extend_from_slice(b"\xc0\x0c\0\x0a\0\x01\0\0\0\x3c\0\x02\xff\0");
    // A cookie, and an option that is cut.
    data.extend_from_slice(b"\0\0\x29\x10\0\0\0\0\0\0\x0a\0\x0a\0\x02\x9a\x47\0\x03\0\x09");
    let mut out = Transactions::default();
    message(&data, Direction::ToClient, &mut out);
    let Record::Dns(record) = &out.list[0].record else {
        panic!("a DNS record")
    };
    let found: Vec<_> = record.answers.iter().map(|one| one.data.as_slice()).collect();
    assert_eq!(found, [&b"abcd"[..], b"ab", b"\xff\0"]);
    let mut texts = Fields::default();
    texts.texts("txt", [&b"ab"[..], b"cd"]);
    assert_eq!(record.answers[0].fields, texts);
    assert_eq!(record.answers[1].fields, Fields::default());
    let (mut options, mut cookie) = (Fields::default(), Fields::default());
    cookie.number("code", 10_u8).text("data", b"9a47");
    options.objects("opt", vec![cookie]);
    assert_eq!(record.additionals[0].fields, options);
}

#[test]
fn a_truncated_message_is_malformed_and_keeps_its_questions() {
    let mut data = query(b"\x01a\0");
    data[7] = 1;
    let out = datagram(&data);
    assert_eq!(out.list[0].events, ["dns.malformed_data"]);
    assert_eq!(queries(&out), [b"a"]);
}
