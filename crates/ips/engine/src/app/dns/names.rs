//! The names in a response (`dns.response.rrname`, `mdns.response.rrname`).

use super::{TYPE_CNAME, TYPE_MX, TYPE_NS, TYPE_PTR, TYPE_SOA};
use crate::app::record::{DnsRecord, Value};

/// Returns all names of a response: those of its questions and records, and those to which records refer.
pub(in crate::app) fn response_names(record: &DnsRecord) -> Vec<Vec<u8>> {
    let main_server = |(name, value): &(&str, Value)| match value {
        Value::Text(text) if *name == "mname" => Some(text.clone()),
        _ => None,
    };
    let mut names: Vec<Vec<u8>> = record.questions.iter().map(|(name, ..)| name.clone()).collect();
    for resource in [&record.answers, &record.authorities, &record.additionals]
        .into_iter()
        .flatten()
    {
        names.push(resource.name.clone());
        match resource.kind {
            TYPE_NS | TYPE_CNAME | TYPE_PTR | TYPE_MX => names.push(resource.data.clone()),
            TYPE_SOA => names.extend(resource.fields.list.iter().find_map(main_server)),
            _ => {}
        }
    }
    names
}
