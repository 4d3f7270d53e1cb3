//! The object `dns`, and the names of its numbers (IANA, Domain Name System Parameters).

use std::borrow::Cow;

use millrace_ips_engine::app::record::{DNS_NAME_SIZE, DnsRecord, DnsResource};

use crate::object::{Object, values};
use crate::place::Place;
use crate::{Layout, Version};

/// The flags of a DNS header, with their names in EVE.
const FLAGS: [(&str, u16); 6] = [
    ("qr", 1 << 15),
    ("aa", 1 << 10),
    ("tc", 1 << 9),
    ("rd", 1 << 8),
    ("ra", 1 << 7),
    ("z", 1 << 6),
];

/// Types whose data are an object.
const SOA: u16 = 6;
const SRV: u16 = 33;
const SSHFP: u16 = 44;
/// Types whose data are a name: NS, CNAME, PTR, MX.
const NAMES: [u16; 4] = [2, 5, 12, 15];
/// The record whose data are a list of options.
const OPT: u16 = 41;

const TYPES: [(u16, &str); 41] = [
    (1, "A"),
    (2, "NS"),
    (3, "MD"),
    (4, "MF"),
    (5, "CNAME"),
    (6, "SOA"),
    (7, "MB"),
    (8, "MG"),
    (9, "MR"),
    (10, "NULL"),
    (11, "WKS"),
    (12, "PTR"),
    (13, "HINFO"),
    (14, "MINFO"),
    (15, "MX"),
    (16, "TXT"),
    (17, "RP"),
    (18, "AFSDB"),
    (24, "SIG"),
    (25, "KEY"),
    (28, "AAAA"),
    (29, "LOC"),
    (33, "SRV"),
    (35, "NAPTR"),
    (37, "CERT"),
    (39, "DNAME"),
    (41, "OPT"),
    (43, "DS"),
    (44, "SSHFP"),
    (46, "RRSIG"),
    (47, "NSEC"),
    (48, "DNSKEY"),
    (50, "NSEC3"),
    (51, "NSEC3PARAM"),
    (52, "TLSA"),
    (64, "SVCB"),
    (65, "HTTPS"),
    (99, "SPF"),
    (250, "TSIG"),
    (252, "AXFR"),
    (255, "ANY"),
];

const RCODES: [&str; 11] = [
    "NOERROR", "FORMERR", "SERVFAIL", "NXDOMAIN", "NOTIMP", "REFUSED", "YXDOMAIN", "YXRRSET", "NXRRSET",
    "NOTAUTH", "NOTZONE",
];

/// Returns the name of a record type, or its number.
pub(crate) fn type_name(number: u16) -> Cow<'static, str> {
    match TYPES.iter().find(|(known, _)| *known == number) {
        Some((_, name)) => Cow::Borrowed(name),
        None => Cow::Owned(number.to_string()),
    }
}

/// Returns the name of a response code, or its number.
fn rcode_name(number: u16) -> Cow<'static, str> {
    match RCODES.get(usize::from(number)) {
        Some(name) => Cow::Borrowed(name),
        None => Cow::Owned(number.to_string()),
    }
}

/// Writes the fields of a message. The object of an alert in version 2 has the message within `query` or `answer`.
pub(crate) fn message(
    out: &mut Object<'_>,
    fields: &DnsRecord,
    transaction: Option<u64>,
    place: Place,
    layout: &Layout,
) {
    match (layout.version, place) {
        (Version::Seven, Place::Alert) if fields.is_answer => {
            out.object("answer", |out| version_2(out, fields, 0, transaction));
        }
        (Version::Seven, Place::Alert) => {
            out.array("query", 0..fields.questions.len(), |out, question| {
                version_2(out, fields, question, transaction);
            });
        }
        (Version::Seven, Place::Record { question }) => version_2(out, fields, question, transaction),
        (Version::Eight, _) => version_3(out, fields, transaction),
    }
}

fn version_2(out: &mut Object<'_>, fields: &DnsRecord, question: usize, transaction: Option<u64>) {
    let kind = match fields.is_answer {
        true => "answer",
        false => "query",
    };
    if fields.is_answer {
        out.field("version", 2);
    }
    out.field("type", kind);
    if let Some(transaction) = transaction {
        out.field("tx_id", transaction);
    }
    out.field("id", fields.id);
    if fields.is_answer {
        flags(out, fields.flags);
    }
    out.field("opcode", fields.flags >> 11 & 15);
    if let Some((name, kind, _)) = fields.questions.get(question) {
        owner(out, name);
        out.field("rrtype", type_name(*kind));
    }
    if fields.is_answer {
        answer(out, fields);
    }
}

fn version_3(out: &mut Object<'_>, fields: &DnsRecord, transaction: Option<u64>) {
    let kind = match fields.is_answer {
        true => "response",
        false => "request",
    };
    out.field("version", 3).field("type", kind);
    if let Some(transaction) = transaction {
        out.field("tx_id", transaction);
    }
    out.field("id", fields.id);
    flags(out, fields.flags);
    out.field("opcode", fields.flags >> 11 & 15);
    if !fields.is_answer {
        out.field("rcode", rcode_name(fields.flags & 15));
    }
    out.array("queries", &fields.questions, |out, (name, kind, _)| {
        owner(out, name);
        out.field("rrtype", type_name(*kind));
    });
    if fields.is_answer {
        answer(out, fields);
    }
}

fn flags(out: &mut Object<'_>, flags: u16) {
    out.field("flags", format!("{flags:x}"));
    for (name, bit) in FLAGS {
        if flags & bit != 0 {
            out.field(name, true);
        }
    }
}

/// Writes response code and records: those of the answer section in full, and once more their data by type.
fn answer(out: &mut Object<'_>, fields: &DnsRecord) {
    out.field("rcode", rcode_name(fields.flags & 15));
    if !fields.answers.is_empty() {
        out.array("answers", &fields.answers, resource)
            .object("grouped", |out| grouped(out, &fields.answers));
    }
    for (name, resources) in [
        ("authorities", &fields.authorities),
        ("additionals", &fields.additionals),
    ] {
        if !resources.is_empty() {
            out.array(name, resources, resource);
        }
    }
}

/// Writes a name, and whether it was cut.
fn owner(out: &mut Object<'_>, name: &[u8]) {
    out.bytes("rrname", name);
    if name.len() >= DNS_NAME_SIZE {
        out.field("rrname_truncated", true);
    }
}

fn resource(out: &mut Object<'_>, resource: &DnsResource) {
    owner(out, &resource.name);
    out.field("rrtype", type_name(resource.kind))
        .field("ttl", resource.ttl)
        .unless_empty("rdata", &resource.data);
    if resource.data.len() == DNS_NAME_SIZE && NAMES.contains(&resource.kind) {
        out.field("rdata_truncated", true);
    }
    if let Some(name) = object_name(resource) {
        out.object(name, |out| values(out, &resource.fields));
    } else if resource.kind == OPT {
        values(out, &resource.fields);
    }
}

/// Returns the name of the object with the data of a record, if they are one.
fn object_name(resource: &DnsResource) -> Option<&'static str> {
    match resource.kind {
        _ if resource.fields.list.is_empty() => None,
        SOA => Some("soa"),
        SRV => Some("srv"),
        SSHFP => Some("sshfp"),
        _ => None,
    }
}

/// Writes the data of records by type, in the order of the first record of each type. Types whose data are not decoded have
/// none.
fn grouped(out: &mut Object<'_>, resources: &[DnsResource]) {
    let has_data = |resource: &DnsResource| !resource.data.is_empty() || object_name(resource).is_some();
    for (at, first) in resources.iter().enumerate() {
        let is_known = resources[..at]
            .iter()
            .any(|earlier| earlier.kind == first.kind && has_data(earlier));
        if is_known || !has_data(first) {
            continue;
        }
        let of_type = || {
            resources[at..]
                .iter()
                .filter(|resource| resource.kind == first.kind && has_data(resource))
        };
        let name = type_name(first.kind);
        match object_name(first) {
            Some(_) => {
                let objects = of_type().filter(|resource| object_name(resource).is_some());
                out.array(&name, objects, |out, resource| values(out, &resource.fields));
            }
            None => {
                let texts: Vec<_> = of_type()
                    .map(|resource| crate::text::text(&resource.data))
                    .collect();
                out.field(&name, texts);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use millrace_ips_engine::app::record::Fields;
    use serde_json::{Value, json};

    use super::*;

    fn resource(kind: u16, data: &str) -> DnsResource {
        DnsResource {
            name: b"example.com".to_vec(),
            kind,
            class: 1,
            ttl: 60,
            data: data.as_bytes().to_vec(),
            fields: Fields::default(),
        }
    }

    fn written(record: &DnsRecord, place: Place, version: Version) -> Value {
        let layout = Layout {
            version,
            packets: false,
            packet_anomalies: true,
            netflow: true,
            ..Layout::default()
        };
        let mut out = Vec::new();
        let mut object = Object::begin(&mut out);
        message(&mut object, record, Some(1), place, &layout);
        object.end();
        serde_json::from_slice(&out).unwrap()
    }

    #[test]
    fn data_of_answers_are_grouped_by_type() {
        let mut soa = resource(SOA, "");
        soa.fields
            .text("mname", b"ns.example.com")
            .number("serial", 7_u32);
        let record = DnsRecord {
            is_answer: true,
            flags: 0x8180,
            questions: vec![(b"example.com".to_vec(), 255, 1)],
            answers: vec![
                resource(1, "192.0.2.1"),
                resource(46, ""),
                soa,
                resource(28, "2001:0db8:0000:0000:0000:0000:0000:0001"),
                resource(1, "192.0.2.2"),
            ],
            ..DnsRecord::default()
        };
        for version in [Version::Seven, Version::Eight] {
            let object = written(&record, Place::RECORD, version);
            assert_eq!(
                object["grouped"],
                json!({
                    "A": ["192.0.2.1", "192.0.2.2"],
                    "SOA": [{"mname": "ns.example.com", "serial": 7}],
                    "AAAA": ["2001:0db8:0000:0000:0000:0000:0000:0001"],
                })
            );
            assert_eq!(object["answers"][2]["soa"]["serial"], 7);
            assert_eq!(
                object["answers"][1],
                json!({"rrname": "example.com", "rrtype": "RRSIG", "ttl": 60})
            );
        }
    }

    #[test]
    fn an_alert_of_version_2_has_its_message_within_query_or_answer() {
        let mut record = DnsRecord {
            questions: vec![(b"a".to_vec(), 1, 1), (b"b".to_vec(), 28, 1)],
            ..DnsRecord::default()
        };
        let object = written(&record, Place::Alert, Version::Seven);
        let names: Vec<_> = object["query"]
            .as_array()
            .unwrap()
            .iter()
            .map(|query| &query["rrname"])
            .collect();
        assert_eq!(names, ["a", "b"]);
        assert_eq!(
            written(&record, Place::Record { question: 1 }, Version::Seven)["rrname"],
            "b"
        );
        assert_eq!(
            written(&record, Place::Alert, Version::Eight)["queries"][1]["rrtype"],
            "AAAA"
        );
        record.is_answer = true;
        assert_eq!(
            written(&record, Place::Alert, Version::Seven)["answer"]["rcode"],
            "NOERROR"
        );
    }
}
