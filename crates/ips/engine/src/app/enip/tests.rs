//! Tests of the parser of EtherNet/IP.

use super::*;

/// Returns an encapsulated message.
fn encapsulated(command: u16, status: u32, body: &[u8]) -> Vec<u8> {
    let size = u16::try_from(body.len()).unwrap();
    [
        &command.to_le_bytes()[..],
        &size.to_le_bytes(),
        &[7, 0, 0, 0],
        &status.to_le_bytes(),
        &[0; 12],
        body,
    ]
    .concat()
}

/// Returns a list with one item.
fn item(kind: u16, data: &[u8]) -> Vec<u8> {
    let size = u16::try_from(data.len()).unwrap();
    [&[1, 0][..], &kind.to_le_bytes(), &size.to_le_bytes(), data].concat()
}

fn record(direction: Direction, bytes: &[u8]) -> (Fields, bool) {
    let mut out = Transactions::default();
    message(direction, bytes, &mut out);
    let transaction = &mut out.list[0];
    let super::super::record::Record::Fields(fields) = &transaction.record else {
        panic!("fields")
    };
    (Fields::clone(fields), transaction.events.is_empty())
}

#[test]
fn messages_of_the_encapsulation_have_their_values() {
    let list = encapsulated(LIST_IDENTITY, 0, b"");
    let mut expected = Fields::default();
    expected.object("request", |out| {
        out.text("command", b"ListIdentity").text("status", b"Success");
    });
    assert_eq!(record(Direction::ToServer, &list), (expected, true));
    let identity = [
        &[1, 0][..],
        &[0; 16],
        &[1, 0, 14, 0, 58, 0, 21, 2, 0x60, 0, 0xef, 0xbe, 0xad, 0xde, 3],
        b"PLC",
        &[255],
    ]
    .concat();
    let answer = encapsulated(LIST_IDENTITY, 1, &item(0x0c, &identity));
    let mut expected = Fields::default();
    expected.object("response", |out| {
        out.text("command", b"ListIdentity")
            .text("status", b"InvalidCmd")
            .object("identity", |out| {
                out.number("protocol_version", 1_u8)
                    .text("vendor_id", b"1")
                    .text("device_type", b"14")
                    .number("product_code", 58_u8)
                    .text("revision", b"21.2")
                    .number("status", 0x60_u8)
                    .number("serial", 0xdead_beef_u32)
                    .text("product_name", b"PLC")
                    .number("state", 255_u8);
            });
    });
    assert_eq!(record(Direction::ToClient, &answer), (expected, true));
    let session = encapsulated(REGISTER_SESSION, 0, &[1, 0, 2, 0]);
    let mut expected = Fields::default();
    expected.object("request", |out| {
        out.text("command", b"RegisterSession")
            .text("status", b"Success")
            .object("register_session", |out| {
                out.number("protocol_version", 1_u8).number("options", 2_u8);
            });
    });
    assert_eq!(record(Direction::ToServer, &session), (expected, true));
}

#[test]
fn requests_of_cip_have_paths_and_answers_have_status() {
    let path = [0x20, 6, 0x24, 1, 0x30, 3];
    let read = [&[0x0e, 3][..], &path].concat();
    let many = [
        &[MULTIPLE, 2, 0x20, 2, 0x24, 1, 2, 0, 6, 0, 14, 0][..],
        &read,
        &read,
    ]
    .concat();
    let request = encapsulated(
        SEND_RR_DATA,
        0,
        &[&[0; 6][..], &item(UNCONNECTED_DATA, &many)].concat(),
    );
    let segment = |kind: &str, value: u8| {
        let mut out = Fields::default();
        out.text("segment_type", kind.as_bytes()).number("value", value);
        out
    };
    let one = |out: &mut Fields| {
        let list = [("class_id", 6), ("instance_id", 1), ("attribute_id", 3)];
        out.text("service", b"GetAttributeSingle")
            .objects("path", list.map(|(kind, value)| segment(kind, value)).to_vec())
            .text("class_name", b"ConnectionManager");
    };
    let mut single = Fields::default();
    one(&mut single);
    let mut expected = Fields::default();
    expected.object("request", |out| {
        out.text("command", b"SendRRData")
            .text("status", b"Success")
            .object("cip", |out| {
                out.text("service", b"MultipleServicePacket")
                    .objects("path", vec![segment("class_id", 2), segment("instance_id", 1)])
                    .text("class_name", b"MessageRouter")
                    .objects("multiple", vec![single.clone(), single]);
            });
    });
    assert_eq!(record(Direction::ToServer, &request), (expected, true));
    let answer = [0, 0, 0x8e, 0, 0x05, 1, 0x34, 0x12];
    let answer = encapsulated(
        SEND_UNIT_DATA,
        0,
        &[&[0; 6][..], &item(CONNECTED_DATA, &answer)].concat(),
    );
    let mut expected = Fields::default();
    expected.object("response", |out| {
        out.text("command", b"SendUnitData")
            .text("status", b"Success")
            .object("cip", |out| {
                out.text("service", b"GetAttributeSingle")
                    .text("status", b"PathDestinationUnknown")
                    .text("status_extended", b"1234");
            });
    });
    assert_eq!(record(Direction::ToClient, &answer), (expected, true));
    // Cut messages are malformed, and have what was read of them.
    for size in HEADER + 1..request.len() {
        let (found, is_valid) = record(Direction::ToServer, &request[..size]);
        assert!(!is_valid && !found.list.is_empty(), "{size}");
    }
}
