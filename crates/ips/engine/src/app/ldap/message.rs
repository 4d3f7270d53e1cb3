//! Messages of LDAP: operations in BER (RFC 4511, sections 4 and 5.1).

use millrace_ips_rules::options::number::NumberField;

use crate::app::ber::{INTEGER, OCTET_STRING, SEQUENCE, element, tagged, unsigned};
use crate::app::framed::Size;
use crate::app::record::{FIELD_LIST, Fields};

/// Largest size of a message; longer ones are refused, as directory servers do.
const MESSAGE_SIZE: usize = 16 << 20;
/// The first byte of a record of TLS with a handshake message (RFC 8446, section 5.1).
pub(super) const TLS_HANDSHAKE: u8 = 0x16;
/// Largest number of attributes of a message that are read.
const ATTRIBUTES: usize = 256;

const ENUMERATED: u8 = 0x0a;
const BOOLEAN: u8 = 0x01;
const SET: u8 = 0x31;
/// Tags of the choice of SASL and of its answer (section 4.2).
const SASL: u8 = 0xa3;
const SASL_ANSWER: u8 = 0x87;
/// The ways to change an attribute by their numbers (section 4.6; RFC 4525, section 3).
const CHANGES: [&str; 4] = ["add", "delete", "replace", "increment"];

/// The operations by the number of their application tag (section 4.2 and following).
const OPERATIONS: &[(u8, &str)] = &[
    (0, "bind_request"),
    (1, "bind_response"),
    (2, "unbind_request"),
    (3, "search_request"),
    (4, "search_result_entry"),
    (5, "search_result_done"),
    (6, "modify_request"),
    (7, "modify_response"),
    (8, "add_request"),
    (9, "add_response"),
    (10, "del_request"),
    (11, "del_response"),
    (12, "mod_dn_request"),
    (13, "mod_dn_response"),
    (14, "compare_request"),
    (15, "compare_response"),
    (16, "abandon_request"),
    (19, "search_result_reference"),
    (23, "extended_request"),
    (24, "extended_response"),
    (25, "intermediate_response"),
];

/// Reads the header of a message: the tag of a sequence, and a length (ITU-T X.690, section 8.1.3).
pub(super) fn size(bytes: &[u8]) -> Size {
    match *bytes {
        [] | [0x30] => Size::Incomplete,
        // StartTLS (section 4.14) was accepted; the bytes wait for the change of protocol.
        [TLS_HANDSHAKE, ..] => Size::Incomplete,
        [0x30, size @ 0..=0x7f, ..] => Size::Known(2 + usize::from(size)),
        [0x30, count @ 0x81..=0x84, ref rest @ ..] => {
            let count = usize::from(count & 0x7f);
            let Some(digits) = rest.get(..count) else {
                return Size::Incomplete;
            };
            let size = digits
                .iter()
                .fold(0, |size, digit| size << 8 | usize::from(*digit));
            match size <= MESSAGE_SIZE {
                true => Size::Known(2 + count + size),
                false => Size::Invalid,
            }
        }
        _ => Size::Invalid,
    }
}

/// The parts of an operation that rules and records name.
#[derive(Default)]
pub(super) struct Operation<'a> {
    pub(super) kind: u8,
    pub(super) dn: Option<&'a [u8]>,
    pub(super) result: Option<u64>,
    pub(super) message: Option<&'a [u8]>,
    pub(super) attributes: Vec<&'a [u8]>,
    pub(super) fields: Fields,
}

/// Returns the identifier and the operation of a message, of which only the first bytes may be there.
pub(super) fn read(bytes: &[u8]) -> Option<(u32, Operation<'_>)> {
    let mut rest = bytes.get(1..)?;
    // The size of the message is known; its content may be cut.
    let first = *rest.first()?;
    rest = rest.get(
        1 + if first & 0x80 != 0 {
            usize::from(first & 0x7f)
        } else {
            0
        }..,
    )?;
    let identifier = unsigned(tagged(&mut rest, INTEGER)?) as u32;
    let tag = *rest.first()?;
    if tag & 0xc0 != 0x40 {
        return None;
    }
    let mut found = Operation {
        kind: tag & 0x1f,
        ..Operation::default()
    };
    let content = match element(&mut rest) {
        Some((_, content)) => content,
        None => return Some((identifier, found)),
    };
    // The content of an operation is read as far as it has its form.
    let _ = operation(content, &mut found);
    Some((identifier, found))
}

fn operation<'a>(mut content: &'a [u8], found: &mut Operation<'a>) -> Option<()> {
    match found.kind {
        0 => {
            let version = unsigned(tagged(&mut content, INTEGER)?);
            let name = tagged(&mut content, OCTET_STRING)?;
            found.dn = Some(name);
            found.fields.number("version", version).text("name", name);
            let mut sasl = tagged(&mut content, SASL)?;
            let mechanism = tagged(&mut sasl, OCTET_STRING)?;
            found.fields.object("sasl", |out| {
                out.text("mechanism", mechanism);
                if let Some(credentials) = tagged(&mut sasl, OCTET_STRING) {
                    out.text("credentials", credentials);
                }
            });
        }
        3 => {
            let base = tagged(&mut content, OCTET_STRING)?;
            found.dn = Some(base);
            found.fields.text("base_object", base);
            let scope = unsigned(tagged(&mut content, ENUMERATED)?);
            let deref = unsigned(tagged(&mut content, ENUMERATED)?);
            let size_limit = unsigned(tagged(&mut content, INTEGER)?);
            let time_limit = unsigned(tagged(&mut content, INTEGER)?);
            let (_, types_only) = element(&mut content)?;
            found
                .fields
                .number("scope", scope)
                .number("deref_alias", deref)
                .number("size_limit", size_limit)
                .number("time_limit", time_limit)
                .flag("types_only", types_only != [0]);
            element(&mut content)?;
            let mut list = tagged(&mut content, SEQUENCE)?;
            while !list.is_empty() && found.attributes.len() < ATTRIBUTES {
                found.attributes.push(tagged(&mut list, OCTET_STRING)?);
            }
            found.fields.texts("attributes", found.attributes.iter().copied());
        }
        4 | 8 => {
            let (dn_name, name) = match found.kind {
                4 => ("base_object", "type"),
                _ => ("entry", "name"),
            };
            let dn = tagged(&mut content, OCTET_STRING)?;
            found.dn = Some(dn);
            found.fields.text(dn_name, dn);
            let mut list = tagged(&mut content, SEQUENCE)?;
            let mut attributes = Vec::new();
            while !list.is_empty() && found.attributes.len() < ATTRIBUTES {
                let (kind, values) = attribute(tagged(&mut list, SEQUENCE)?)?;
                found.attributes.push(kind);
                if attributes.len() < FIELD_LIST {
                    let mut one = Fields::default();
                    one.text(name, kind).texts("values", values);
                    attributes.push(one);
                }
            }
            found.fields.objects("attributes", attributes);
        }
        6 => {
            let dn = tagged(&mut content, OCTET_STRING)?;
            found.dn = Some(dn);
            found.fields.text("object", dn);
            let mut list = tagged(&mut content, SEQUENCE)?;
            let mut changes = Vec::new();
            while !list.is_empty() && found.attributes.len() < ATTRIBUTES {
                let mut change = tagged(&mut list, SEQUENCE)?;
                let number = unsigned(tagged(&mut change, ENUMERATED)?);
                let (kind, values) = attribute(tagged(&mut change, SEQUENCE)?)?;
                found.attributes.push(kind);
                if changes.len() < FIELD_LIST {
                    let known = usize::try_from(number).ok().and_then(|at| CHANGES.get(at));
                    let mut one = Fields::default();
                    one.text("operation", known.unwrap_or(&"unknown").as_bytes())
                        .object("modification", |out| {
                            out.text("attribute_type", kind).texts("attribute_values", values);
                        });
                    changes.push(one);
                }
            }
            found.fields.objects("changes", changes);
        }
        // The name is the content itself (section 4.8).
        10 => {
            found.dn = Some(content);
            found.fields.text("dn", content);
        }
        12 => {
            let dn = tagged(&mut content, OCTET_STRING)?;
            found.dn = Some(dn);
            found.fields.text("entry", dn);
            let new = tagged(&mut content, OCTET_STRING)?;
            let deletes = tagged(&mut content, BOOLEAN)? != [0];
            found.fields.text("new_rdn", new).flag("delete_old_rdn", deletes);
            tagged_texts(content, &[(0x80, "new_superior")], &mut found.fields);
        }
        14 => {
            let dn = tagged(&mut content, OCTET_STRING)?;
            found.dn = Some(dn);
            found.fields.text("entry", dn);
            let mut assertion = tagged(&mut content, SEQUENCE)?;
            let kind = tagged(&mut assertion, OCTET_STRING)?;
            found.attributes.push(kind);
            let value = tagged(&mut assertion, OCTET_STRING)?;
            found.fields.object("attribute_value_assertion", |out| {
                out.text("description", kind).text("value", value);
            });
        }
        16 => {
            found.fields.number("message_id", unsigned(content));
        }
        23 | 25 => tagged_texts(content, &[(0x80, "name"), (0x81, "value")], &mut found.fields),
        1 | 5 | 7 | 9 | 11 | 13 | 15 | 24 => {
            let code = unsigned(tagged(&mut content, ENUMERATED)?);
            let dn = tagged(&mut content, OCTET_STRING)?;
            let message = tagged(&mut content, OCTET_STRING)?;
            found.result = Some(code);
            found.dn = Some(dn);
            found.message = Some(message);
            let known = NumberField::LdapResponsesResultCode.name_of(code);
            let name = known.map_or_else(|| format!("unknown-{code}"), str::to_owned);
            found
                .fields
                .text("result_code", name.as_bytes())
                .text("matched_dn", dn)
                .text("message", message);
            let more: &[(u8, &str)] = match found.kind {
                1 => &[(SASL_ANSWER, "server_sasl_creds")],
                24 => &[(0x8a, "name"), (0x8b, "value")],
                _ => &[],
            };
            tagged_texts(content, more, &mut found.fields);
        }
        _ => {}
    }
    Some(())
}

/// Reads an attribute: its type, and its first values (section 4.1.7).
fn attribute(mut content: &[u8]) -> Option<(&[u8], Vec<&[u8]>)> {
    let kind = tagged(&mut content, OCTET_STRING)?;
    let mut values = tagged(&mut content, SET)?;
    let mut texts = Vec::new();
    while !values.is_empty() && texts.len() < FIELD_LIST {
        texts.push(tagged(&mut values, OCTET_STRING)?);
    }
    Some((kind, texts))
}

/// Writes optional texts by their tags; others are skipped.
fn tagged_texts(mut content: &[u8], names: &[(u8, &'static str)], out: &mut Fields) {
    while let Some((tag, text)) = element(&mut content) {
        if let Some((_, name)) = names.iter().find(|(known, _)| *known == tag)
            && out.value(name).is_none()
        {
            out.text(name, text);
        }
    }
}

/// Returns true if an operation is one of the server.
pub(super) fn is_response(kind: u8) -> bool {
    matches!(kind, 1 | 4 | 5 | 7 | 9 | 11 | 13 | 15 | 19 | 24 | 25)
}

/// Returns the name of an operation.
pub(super) fn name_of(kind: u8) -> &'static str {
    let found = OPERATIONS.iter().find(|(number, _)| *number == kind);
    found.map_or("unknown", |(_, name)| name)
}
