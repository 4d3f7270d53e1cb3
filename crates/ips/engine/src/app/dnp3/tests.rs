//! Tests of the parser of DNP3.

use super::*;
use crate::app::record::Dnp3Objects;

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
    assert_eq!(run(&bytes, 100).events, ["dnp3.bad_link_crc"]);
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

fn header(kind: (u8, u8), qualifier: u8, range: [u32; 3]) -> Dnp3Objects {
    let ((group, variation), [start, stop, count]) = (kind, range);
    Dnp3Objects {
        group,
        variation,
        qualifier,
        start,
        stop,
        count,
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
            header((1, 1), 0, [0, 9, 10]),
            header((20, 1), 0x17, [0, 0, 2]),
            header((50, 1), 7, [0, 0, 1]),
        ]
    );
    assert!(record.is_complete);
}

#[test]
fn objects_behind_data_of_unknown_size_are_said_to_be_missing() {
    // Group 86 describes data sets, whose sizes vary.
    let unknown = record(b"\xc1\x02\x56\x01\x07\x01\0\0\x3c\x02\x06");
    assert_eq!(unknown.objects, [header((86, 1), 7, [0, 0, 1])]);
    assert!(!unknown.is_complete);
    // A file transfer says the size of its object.
    let free = record(b"\xc1\x19\x46\x03\x5b\x01\x02\0\xaa\xbb\x3c\x02\x06");
    assert_eq!(
        free.objects,
        [header((70, 3), 0x5b, [0, 0, 1]), header((60, 2), 6, [0, 0, 0])]
    );
    // More objects than bytes follow.
    let short = record(b"\xc1\x81\0\0\x1e\x01\x01\0\0\xff\xff\x01\x02\x03");
    assert_eq!(short.objects, [header((30, 1), 1, [0, 0xffff, 0x1_0000])]);
    assert!(!short.is_complete);
}
