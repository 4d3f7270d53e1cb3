//! PDUs are read as they were written, and any bytes are read or refused.

use millrace_agentx::pdu::{Content, HEADER_SIZE, Header, Pdu, Range};
use millrace_agentx::{Oid, Value};
use proptest::prelude::*;

fn oid() -> impl Strategy<Value = Oid> + Clone {
    let short = prop::collection::vec(any::<u32>(), 0..20)
        .prop_map(|rest| Oid::new(&[&[1, 3, 6, 1, 2], rest.as_slice()].concat()));
    let long = prop::collection::vec(any::<u32>(), 0..20).prop_map(|parts| Oid::new(&parts));
    prop_oneof![short, long]
}

fn value() -> impl Strategy<Value = Value> + Clone {
    prop_oneof![
        any::<i32>().prop_map(Value::Integer),
        prop::collection::vec(any::<u8>(), 0..40).prop_map(Value::OctetString),
        oid().prop_map(Value::ObjectId),
        any::<[u8; 4]>().prop_map(Value::IpAddress),
        any::<u32>().prop_map(Value::Counter32),
        any::<u32>().prop_map(Value::Gauge32),
        any::<u32>().prop_map(Value::TimeTicks),
        any::<u64>().prop_map(Value::Counter64),
        prop::collection::vec(any::<u8>(), 0..40).prop_map(Value::Opaque),
        Just(Value::Null),
        Just(Value::NoSuchObject),
        Just(Value::NoSuchInstance),
        Just(Value::EndOfMibView),
    ]
}

fn content() -> impl Strategy<Value = Content> {
    let range =
        (oid(), any::<bool>(), oid()).prop_map(|(start, includes, end)| Range { start, includes, end });
    let ranges = prop::collection::vec(range, 0..5);
    let bindings = prop::collection::vec((oid(), value()), 0..5);
    prop_oneof![
        (any::<u8>(), "[a-z]{0,9}").prop_map(|(timeout_s, description)| Content::Open {
            timeout_s,
            description
        }),
        any::<u8>().prop_map(|reason| Content::Close { reason }),
        (any::<u8>(), oid()).prop_map(|(priority, subtree)| Content::Register { priority, subtree }),
        ranges.clone().prop_map(Content::Get),
        ranges.clone().prop_map(Content::GetNext),
        (any::<u16>(), any::<u16>(), ranges).prop_map(|(non_repeaters, repetitions, ranges)| {
            Content::GetBulk {
                non_repeaters,
                repetitions,
                ranges,
            }
        }),
        bindings.clone().prop_map(Content::Notify),
        (any::<u16>(), any::<u16>(), bindings).prop_map(|(error, index, bindings)| Content::Response {
            error,
            index,
            bindings
        }),
        Just(Content::Ping),
        Just(Content::TestSet),
    ]
}

fn read(bytes: &[u8]) -> Option<Pdu> {
    let header = Header::parse(bytes.first_chunk::<HEADER_SIZE>()?).ok()?;
    Pdu::parse(header, bytes.get(HEADER_SIZE..HEADER_SIZE + header.size)?).ok()
}

proptest! {
    #[test]
    fn a_pdu_is_read_as_it_was_written(
        session in any::<u32>(), transaction in any::<u32>(), packet in any::<u32>(), context in "[a-z]{0,9}", content in content()
    ) {
        let pdu = Pdu { session, transaction, packet, context, content };
        prop_assert_eq!(read(&pdu.emit()), Some(pdu));
    }

    #[test]
    fn any_bytes_are_read_or_refused(
        kind in 0u8..20, flags in any::<u8>(), payload in prop::collection::vec(any::<u8>(), 0..300)
    ) {
        let mut bytes = vec![1, kind, flags, 0];
        bytes.extend([0; 12]);
        let size = payload.len() as u32;
        bytes.extend(if flags & 0x10 != 0 { size.to_be_bytes() } else { size.to_le_bytes() });
        bytes.extend(&payload);
        let _any = read(&bytes);
    }
}

#[test]
fn the_byte_order_of_a_pdu_is_that_of_its_flags() {
    // A Get of sysDescr.0 in the order of little-endian machines, as a master agent on one may send it.
    let mut bytes = vec![1, 5, 0, 0];
    for word in [7u32, 8, 9, 20] {
        bytes.extend(word.to_le_bytes());
    }
    bytes.extend([3, 2, 0, 0]);
    for part in [1u32, 1, 0] {
        bytes.extend(part.to_le_bytes());
    }
    bytes.extend([0, 0, 0, 0]);
    let pdu = read(&bytes).unwrap();
    assert_eq!((pdu.session, pdu.transaction, pdu.packet), (7, 8, 9));
    let Content::Get(ranges) = pdu.content else {
        panic!("{:?}", pdu.content)
    };
    assert_eq!(ranges[0].start.to_string(), "1.3.6.1.2.1.1.0");
}
