//! The object `mdns` (RFC 6762): names and types in small letters, the data of a record by its type, and flags as a list.

use millrace_ips_engine::app::record::{DnsRecord, DnsResource};

use crate::dns::type_name;
use crate::object::{Object, values};
use crate::text::text;

/// The flags of a header with their names (RFC 1035, section 4.1.1; RFC 6840, section 5.7).
const FLAGS: [(&str, u16); 7] = [
    ("aa", 1 << 10),
    ("tc", 1 << 9),
    ("rd", 1 << 8),
    ("ra", 1 << 7),
    ("z", 1 << 6),
    ("ad", 1 << 5),
    ("cd", 1 << 4),
];
const TXT: u16 = 16;

/// Writes a message.
pub(crate) fn message(out: &mut Object<'_>, fields: &DnsRecord) {
    let kind = match fields.is_answer {
        true => "response",
        false => "request",
    };
    out.field("type", kind).field("id", fields.id);
    let flags: Vec<&str> = FLAGS
        .into_iter()
        .filter(|(_, bit)| fields.flags & bit != 0)
        .map(|(name, _)| name)
        .collect();
    if !flags.is_empty() {
        out.field("flags", flags);
    }
    out.field("opcode", fields.flags >> 11 & 15)
        .field("rcode", fields.flags & 15);
    if !fields.questions.is_empty() {
        out.array("queries", &fields.questions, |out, (name, kind, _)| {
            out.bytes("rrname", name)
                .field("rrtype", type_name(*kind).to_ascii_lowercase());
        });
    }
    for (name, resources) in [
        ("answers", &fields.answers),
        ("authorities", &fields.authorities),
        ("additionals", &fields.additionals),
    ] {
        if !resources.is_empty() {
            out.array(name, resources, resource);
        }
    }
}

fn resource(out: &mut Object<'_>, resource: &DnsResource) {
    out.bytes("rrname", &resource.name);
    let name = type_name(resource.kind).to_ascii_lowercase();
    match resource.fields.list.as_slice() {
        [] if resource.kind == TXT => {
            out.field(&name, [text(&resource.data)]);
        }
        [] => {
            out.unless_empty(&name, &resource.data);
        }
        // Several texts, and options, are a list by the name of the type.
        [(known, _)] if *known == name => values(out, &resource.fields),
        _ => {
            out.object(&name, |out| values(out, &resource.fields));
        }
    }
}

#[cfg(test)]
mod tests {
    use millrace_ips_engine::app::record::Fields;
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn a_message_has_its_data_by_type() {
        let of = |name: &str, kind, data: &str| DnsResource {
            name: name.as_bytes().to_vec(),
            kind,
            class: 1,
            ttl: 60,
            data: data.as_bytes().to_vec(),
            fields: Fields::default(),
        };
        let mut service = of("a.local", 33, "");
        service.fields.number("port", 5353_u16);
        let mut texts = of("a.local", 16, "path=/v=1");
        texts.fields.texts("txt", [&b"path=/"[..], b"v=1"]);
        let record = DnsRecord {
            id: 7,
            is_answer: true,
            flags: 0x8430,
            questions: vec![(b"_http._tcp.local".to_vec(), 12, 1)],
            answers: vec![
                of("_http._tcp.local", 12, "a.local"),
                texts,
                of("b.local", 16, "v=2"),
            ],
            additionals: vec![service, of("a.local", 1, "192.0.2.1"), of("a.local", 47, "")],
            ..DnsRecord::default()
        };
        let mut out = Vec::new();
        let mut object = Object::begin(&mut out);
        message(&mut object, &record);
        object.end();
        let written: Value = serde_json::from_slice(&out).unwrap();
        assert_eq!(
            written,
            json!({
                "type": "response", "id": 7, "flags": ["aa", "ad", "cd"], "opcode": 0, "rcode": 0,
                "queries": [{"rrname": "_http._tcp.local", "rrtype": "ptr"}],
                "answers": [
                    {"rrname": "_http._tcp.local", "ptr": "a.local"},
                    {"rrname": "a.local", "txt": ["path=/", "v=1"]},
                    {"rrname": "b.local", "txt": ["v=2"]},
                ],
                "additionals": [
                    {"rrname": "a.local", "srv": {"port": 5353}},
                    {"rrname": "a.local", "a": "192.0.2.1"},
                    {"rrname": "a.local"},
                ],
            })
        );
    }
}
