//! A reader of messages, by RFC 7011 alone.

use std::collections::BTreeMap;

use millrace_ipfix::element::*;
use millrace_ipfix::{Builder, HEADER_SIZE, Header, Template, Values};
use proptest::prelude::*;

const FLOW: Template = Template {
    id: 256,
    scopes: 0,
    elements: &[PACKET_DELTA_COUNT, INGRESS_INTERFACE, PROTOCOL_IDENTIFIER],
};
const NAME: Template = Template {
    id: 257,
    scopes: 1,
    elements: &[INGRESS_INTERFACE, INTERFACE_NAME],
};

/// The templates of a domain: their scopes and the element ids with their sizes.
type Templates = BTreeMap<u16, (u16, Vec<(u16, u16)>)>;

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

/// Returns the values of the data records of a message, and adds its templates.
fn read(message: &[u8], templates: &mut Templates) -> Vec<(u16, Vec<Vec<u8>>)> {
    assert_eq!(
        (u16_at(message, 0), usize::from(u16_at(message, 2))),
        (10, message.len())
    );
    let mut records = Vec::new();
    let mut rest = &message[HEADER_SIZE..];
    while !rest.is_empty() {
        let (id, size) = (u16_at(rest, 0), usize::from(u16_at(rest, 2)));
        let (set, next) = rest.split_at(size);
        rest = next;
        let mut set = &set[4..];
        while !set.is_empty() {
            if id < 256 {
                let (template, count) = (u16_at(set, 0), usize::from(u16_at(set, 2)));
                let (scopes, begin) = if id == 3 { (u16_at(set, 4), 6) } else { (0, 4) };
                let fields =
                    (0..count).map(|at| (u16_at(set, begin + at * 4), u16_at(set, begin + at * 4 + 2)));
                templates.insert(template, (scopes, fields.collect()));
                set = &set[begin + count * 4..];
                continue;
            }
            let mut values = Vec::new();
            for (_, size) in &templates[&id].1 {
                let (begin, size) = match (*size, set[0]) {
                    (u16::MAX, 255) => (3, usize::from(u16_at(set, 1))),
                    (u16::MAX, size) => (1, usize::from(size)),
                    (size, _) => (0, usize::from(size)),
                };
                values.push(set[begin..begin + size].to_vec());
                set = &set[begin + size..];
            }
            records.push((id, values));
        }
    }
    records
}

const HEADER: Header = Header {
    export_time: 1,
    sequence: 2,
    domain: 3,
};

proptest! {
    #[test]
    fn every_record_that_was_taken_is_in_its_message_and_no_message_is_too_long(
        size_max in 60usize..2000,
        flows in prop::collection::vec((any::<u64>(), any::<u32>(), any::<u8>()), 0..60),
        names in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..300), 0..10),
    ) {
        let mut templates = Templates::new();
        let mut builder = Builder::new(size_max);
        prop_assert!(builder.template(&FLOW) && builder.template(&NAME) || size_max < 80);
        let mut messages = vec![];
        let mut wanted = vec![];
        let mut add = |builder: &mut Builder, template: &Template, values: &Values, plain: Vec<Vec<u8>>| {
            if !builder.record(template, values) {
                messages.push(builder.take());
                if !builder.record(template, values) {
                    return;
                }
            }
            wanted.push((template.id, plain));
        };
        for (packets, port, protocol) in &flows {
            let values = Values::new().u64(*packets).u32(*port).u8(*protocol);
            let plain = vec![packets.to_be_bytes().to_vec(), port.to_be_bytes().to_vec(), vec![*protocol]];
            add(&mut builder, &FLOW, &values, plain);
        }
        for name in &names {
            add(&mut builder, &NAME, &Values::new().u32(7).bytes(name), vec![7u32.to_be_bytes().to_vec(), name.clone()]);
        }
        messages.push(builder.take());
        // Both templates are known, whether they fitted or not.
        let mut first = Builder::new(200);
        prop_assert!(first.template(&FLOW) && first.template(&NAME));
        prop_assert!(read(&first.take().emit(HEADER), &mut templates).is_empty());
        prop_assert_eq!(&templates[&257], &(1, vec![(10, 4), (82, u16::MAX)]));
        let mut found = vec![];
        for body in &messages {
            let message = body.emit(HEADER);
            prop_assert!(message.len() <= size_max.max(HEADER_SIZE));
            let records = read(&message, &mut templates);
            prop_assert_eq!(records.len() as u32, body.records);
            found.extend(records);
        }
        prop_assert_eq!(found, wanted);
    }
}

#[test]
fn a_record_of_another_size_than_its_template_is_refused() {
    let mut builder = Builder::new(1400);
    assert!(!builder.record(&FLOW, &Values::new().u64(1).u32(2)));
    assert!(builder.is_empty());
    assert!(builder.record(&FLOW, &Values::new().u64(1).u32(2).u8(3)));
    assert_eq!(builder.take().records, 1);
    assert!(builder.is_empty());
}
