//! Tests of the parser of DNP3.

use super::*;
use crate::app::record::{Dnp3Objects, Fields, Value};

/// Returns a frame with user data.
fn frame(data: &[u8]) -> Vec<u8> {
    let mut frame = vec![0x05, 0x64, (data.len() + COUNTED) as u8, 0xc4, 10, 0, 1, 0];
    frame.extend(crc(&frame).to_le_bytes());
    for block in data.chunks(BLOCK) {
        frame.extend_from_slice(block);
        frame.extend(crc(block).to_le_bytes());
    }
    frame
}

fn run(bytes: &[u8], step: usize) -> Transactions {
    let (mut dnp3, mut out) = (Dnp3::default(), Transactions::default());
    for bytes in bytes.chunks(step) {
        let chunk = StreamChunk::of(Direction::ToServer, bytes);
        assert_eq!(dnp3.data(chunk, &mut out), Outcome::Continue);
    }
    out
}

#[test]
fn the_checksum_is_that_of_the_standard() {
    // The check value of CRC-16/DNP.
    assert_eq!(crc(b"123456789"), 0xea82);
}

#[test]
fn a_fragment_in_two_segments_is_a_transaction() {
    // A read of class 1, 2 and 3 objects, then a response with indications.
    let read = b"\xc1\x01\x3c\x02\x06\x3c\x03\x06\x3c\x04\x06";
    let first = [&[0x40 | 3][..], &read[..4]].concat();
    let second = [&[0x80 | 4][..], &read[4..]].concat();
    let response = b"\xc0\xc1\x81\x90\x00\x01\x02\x00\x00\x00\x81";
    let bytes = [frame(&first), frame(&second), frame(response)].concat();
    for step in 1..bytes.len() {
        let out = run(&bytes, step);
        assert_eq!(out.list.len(), 2, "{step}");
        let side = Direction::ToServer;
        assert_eq!(out.list[0].buffer(Buffer::Dnp3Data, side), Some(&read[..]));
        let record = |at: usize| match &out.list[at].record {
            Record::Dnp3(record) => (**record).clone(),
            _ => panic!("a record of DNP3"),
        };
        let kinds = |record: Dnp3Record| -> Vec<(u8, u8)> {
            let kind = |objects: &Dnp3Objects| (objects.group, objects.variation);
            record.objects.iter().map(kind).collect()
        };
        assert_eq!(kinds(record(0)), [(60, 2), (60, 3), (60, 4)]);
        assert_eq!((record(1).function, record(1).indications), (129, Some(0x9000)));
        assert_eq!((record(1).destination, record(1).source), (10, 1));
        assert_eq!((record(1).link_control, record(1).control), (0xc4, 0xc1));
        assert!(record(0).is_complete && record(1).is_complete);
    }
}

#[test]
fn bytes_that_begin_no_frame_hide_no_frame_behind_them() {
    let attack = frame(b"\xc0\xc1\x02\x50\x01\x00\x07\x07\x00");
    let mut bad_header = frame(b"\xc0\xc1\x01");
    bad_header[2] = 255;
    for (junk, event) in [
        (&b"junk"[..], "dnp3.malformed"),
        (&[0x05], "dnp3.malformed"),
        (&[0x05, 0x64, 0x04], "dnp3.len_too_small"),
        (&bad_header, "dnp3.bad_link_crc"),
    ] {
        let bytes = [&frame(b"\xc0\xc0\x01"), junk, &attack].concat();
        for step in 1..bytes.len() {
            let out = run(&bytes, step);
            assert_eq!(out.list.len(), 2, "{junk:x?} {step}");
            assert_eq!(
                out.list[1].buffer(Buffer::Dnp3Data, Direction::ToServer),
                Some(&b"\xc1\x02\x50\x01\x00\x07\x07\x00"[..])
            );
            assert!(out.events.contains(&event), "{event}");
        }
    }
}

#[test]
fn wrong_checksums_and_segments_out_of_order_are_events() {
    let mut bytes = frame(b"\xc0\xc1\x01");
    bytes[11] ^= 1;
    assert_eq!(run(&bytes, 100).events, ["dnp3.bad_transport_crc"]);
    assert_eq!(
        run(&frame(b"\x82\xc1\x01"), 100).events,
        ["dnp3.unexpected_segment"]
    );
}

/// Returns the record of a fragment.
fn record(fragment: &[u8]) -> Dnp3Record {
    let out = run(&frame(&[&[0xc0], fragment].concat()), 100);
    match &out.list[0].record {
        Record::Dnp3(record) => (**record).clone(),
        _ => panic!("a record of DNP3"),
    }
}

fn header(kind: (u8, u8), qualifier: u8, range: [u32; 3], data: &[u8]) -> Dnp3Objects {
    let ((group, variation), [start, stop, count]) = (kind, range);
    Dnp3Objects {
        group,
        variation,
        qualifier,
        start,
        stop,
        count,
        data: data.to_vec(),
    }
}

#[test]
fn objects_behind_data_are_found_by_the_sizes_of_the_standard() {
    // Ten single bits, then two counters with flag behind one-byte indices, then a time.
    let packed = b"\x01\x01\x00\x00\x09\xff\x03";
    let counters = b"\x14\x01\x17\x02\x05\x01\x01\0\0\0\x06\x01\x02\0\0\0";
    let time = b"\x32\x01\x07\x01\x01\x02\x03\x04\x05\x06";
    let fragment = [&b"\xc1\x81\0\0"[..], packed, counters, time].concat();
    let record = record(&fragment);
    assert_eq!(
        record.objects,
        [
            header((1, 1), 0, [0, 9, 10], b"\xff\x03"),
            header((20, 1), 0x17, [0, 0, 2], &counters[4..]),
            header((50, 1), 7, [0, 0, 1], &time[4..]),
        ]
    );
    assert!(record.is_complete);
}

#[test]
fn objects_behind_data_of_unknown_size_are_said_to_be_missing() {
    // Group 86 describes data sets, whose sizes vary.
    let unknown = record(b"\xc1\x02\x56\x01\x07\x01\0\0\x3c\x02\x06");
    assert_eq!(
        unknown.objects,
        [header((86, 1), 7, [0, 0, 1], b"\0\0\x3c\x02\x06")]
    );
    assert!(!unknown.is_complete);
    // A file transfer says the size of its object.
    let free = record(b"\xc1\x19\x46\x03\x5b\x01\x02\0\xaa\xbb\x3c\x02\x06");
    assert_eq!(
        free.objects,
        [
            header((70, 3), 0x5b, [0, 0, 1], b"\x02\0\xaa\xbb"),
            header((60, 2), 6, [0, 0, 0], b"")
        ]
    );
    // More objects than bytes follow.
    let short = record(b"\xc1\x81\0\0\x1e\x01\x01\0\0\xff\0\x01\x02\x03");
    assert_eq!(
        short.objects,
        [header((30, 1), 1, [0, 0xff, 0x100], b"\x01\x02\x03")]
    );
    assert!(!short.is_complete);
}

/// Returns the values of a point without the flags that are not set.
fn shown(fields: &Fields) -> Vec<(&'static str, Value)> {
    let is_set = |(name, value): &&(&str, Value)| *value != Value::Number(0) || matches!(*name, "index");
    fields.list.iter().filter(is_set).cloned().collect()
}

#[test]
fn points_have_the_values_of_their_objects() {
    let number = |name, value: u64| (name, Value::Number(value));
    // A control block for point 10, as in the example of section 11.6.6; single bits 3 to 5; an analog input of each form.
    let control = record(b"\xc1\x05\x0c\x01\x28\x01\0\x0a\0\x41\x01\xfa\0\0\0\xfa\0\0\0\0");
    assert_eq!(
        shown(&control.objects[0].points()[0]),
        [
            number("prefix", 10),
            number("index", 10),
            number("opcode", 1),
            number("tcc", 1),
            number("count", 1),
            number("ontime", 250),
            number("offtime", 250),
        ]
    );
    let bits = record(b"\xc1\x81\0\0\x01\x01\0\x03\x05\x05");
    let points = bits.objects[0].points();
    let states: Vec<_> = points.iter().map(|point| shown(point)).collect();
    assert_eq!(
        states,
        [
            vec![number("index", 3), number("state", 1)],
            vec![number("index", 4)],
            vec![number("index", 5), number("state", 1)],
        ]
    );
    let analog = record(
        b"\xc1\x81\0\0\x1e\x02\0\x01\x01\x21\xfe\xff\x1e\x05\0\0\0\x01\0\0\xc0\x3f\x20\x03\x17\x01\x07\x01\x05\0\0\0\x01\x02\x03\x04\x05\x06",
    );
    let all: Vec<_> = analog
        .objects
        .iter()
        .map(|objects| shown(&objects.points()[0]))
        .collect();
    assert_eq!(
        all,
        [
            vec![
                number("index", 1),
                number("online", 1),
                number("over_range", 1),
                ("value", Value::Signed(-2)),
            ],
            vec![
                number("index", 0),
                number("online", 1),
                ("value", Value::Float(1.5_f64.to_bits()))
            ],
            vec![
                number("prefix", 7),
                number("index", 7),
                number("online", 1),
                ("value", Value::Signed(5)),
                number("timestamp", 0x0605_0403_0201),
            ],
        ]
    );
    // A read has no data.
    assert_eq!(record(b"\xc1\x01\x1e\x02\0\x01\x01").objects[0].points(), []);
}

#[test]
fn points_and_objects_of_a_fragment_are_bounded() {
    let events = |fragment: &[u8]| {
        let segments: Vec<u8> = fragment
            .chunks(200)
            .enumerate()
            .flat_map(|(at, part)| {
                let first = if at == 0 { 0x40 } else { 0 };
                let last = if (at + 1) * 200 >= fragment.len() { 0x80 } else { 0 };
                frame(&[&[first | last | (at & 0x3f) as u8][..], part].concat())
            })
            .collect();
        run(&segments, 1000).list[0].events.clone()
    };
    let headers = [&b"\xc1\x01"[..], &b"\x3c\x02\x06".repeat(2049)].concat();
    assert_eq!(events(&headers), ["dnp3.too_many_objects"]);
    assert_eq!(
        events(b"\xc1\x81\0\0\x1e\x01\x01\0\0\xff\xff"),
        ["dnp3.too_many_points"]
    );
    assert_eq!(
        events(b"\xc1\x81\0\0\x56\x01\x07\x01\0\0"),
        ["dnp3.unknown_object"]
    );
    let packed = [&b"\xc1\x81\0\0\x01\x01\x01\0\0\xff\x3f"[..], &[0xff; 2048]].concat();
    assert_eq!(events(&packed), [""; 0]);
}

#[test]
fn more_requests_without_a_response_than_suricata_accepts_are_a_flood_once() {
    let request = frame(b"\xc0\xc1\x01");
    let floods = |count: usize| {
        let out = run(&request.repeat(count), 500);
        let raised = out
            .list
            .iter()
            .filter(|transaction| transaction.events.contains(&"dnp3.flooded"));
        raised.count()
    };
    assert_eq!([32, 33, 300].map(floods), [0, 1, 1]);
    let mut dnp3 = Dnp3::default();
    let mut raised = 0;
    for _ in 0..1200 {
        let mut out = Transactions::default();
        dnp3.data(StreamChunk::of(Direction::ToServer, &request), &mut out);
        raised += out
            .list
            .iter()
            .flat_map(|transaction| &transaction.events)
            .count();
    }
    assert_eq!(raised, 1);
}
