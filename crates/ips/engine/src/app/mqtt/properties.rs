//! Texts and the properties of MQTT 5 (OASIS, "MQTT Version 5.0", section 2.2.2): numbers, texts and bytes by their identifiers.

use crate::app::framed::{hex, number, take};
use crate::app::record::{Fields, Value};

/// Removes a text with its size from the front (section 1.5.4).
pub(super) fn text<'a>(bytes: &mut &'a [u8]) -> Option<&'a [u8]> {
    let size = number(bytes, 2)?;
    take(bytes, size as usize)
}

/// The form of a property (section 2.2.2.2).
#[derive(Clone, Copy)]
enum Form {
    /// A big-endian number of this size in bytes.
    Number(usize),
    /// A number in up to four groups of seven bits.
    Variable,
    Text,
    /// Bytes, in hexadecimal digits.
    Binary,
    /// A key and a value, both texts.
    Pair,
}

/// The properties by their identifiers, with their names in records.
const PROPERTIES: &[(u8, &str, Form)] = &[
    (1, "payload_format_indicator", Form::Number(1)),
    (2, "message_expiry_interval", Form::Number(4)),
    (3, "content_type", Form::Text),
    (8, "response_topic", Form::Text),
    (9, "correlation_data", Form::Binary),
    (11, "subscription_identifier", Form::Variable),
    (17, "session_expiry_interval", Form::Number(4)),
    (18, "assigned_client_identifier", Form::Text),
    (19, "server_keep_alive", Form::Number(2)),
    (21, "authentication_method", Form::Text),
    (22, "authentication_data", Form::Binary),
    (23, "request_problem_information", Form::Number(1)),
    (24, "will_delay_interval", Form::Number(4)),
    (25, "request_response_information", Form::Number(1)),
    (26, "response_information", Form::Text),
    (28, "server_reference", Form::Text),
    (31, "reason_string", Form::Text),
    (33, "receive_maximum", Form::Number(2)),
    (34, "topic_alias_maximum", Form::Number(2)),
    (35, "topic_alias", Form::Number(2)),
    (36, "maximum_qos", Form::Number(1)),
    (37, "retain_available", Form::Number(1)),
    (38, "user_property", Form::Pair),
    (39, "maximum_packet_size", Form::Number(4)),
    (40, "wildcard_subscription_available", Form::Number(1)),
    (41, "subscription_identifiers_available", Form::Number(1)),
    (42, "shared_subscription_available", Form::Number(1)),
];

/// Removes a number in up to four groups of seven bits from the front (section 1.5.5).
fn variable(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for at in 0..4 {
        let byte = number(bytes, 1)?;
        value |= (byte & 0x7f) << (7 * at);
        if byte & 0x80 == 0 {
            break;
        }
    }
    Some(value)
}

/// Removes the properties of version 5 from the front (section 2.2.2), and writes them. What follows an unknown one is not read.
pub(super) fn properties(version: u8, bytes: &mut &[u8], out: &mut Fields) -> Option<()> {
    if version < 5 {
        return Some(());
    }
    let size = variable(bytes)? as usize;
    let mut rest = take(bytes, size)?;
    let mut found = Fields::default();
    while found.list.len() < crate::app::record::FIELD_LIST && property(&mut rest, &mut found).is_some() {}
    if !found.list.is_empty() {
        out.list.push(("properties", Value::Object(found)));
    }
    Some(())
}

/// Removes a property from the front, and writes it.
fn property(rest: &mut &[u8], out: &mut Fields) -> Option<()> {
    let identifier = number(rest, 1)? as u8;
    let (_, name, form) = PROPERTIES.iter().find(|(known, ..)| *known == identifier)?;
    let is_known = out.value(name).is_some();
    let mut value = Fields::default();
    match form {
        Form::Number(size) => value.number(name, number(rest, *size)?),
        Form::Variable => value.number(name, variable(rest)?),
        Form::Text => value.text(name, text(rest)?),
        Form::Binary => value.text(name, &hex(text(rest)?)),
        Form::Pair => {
            let (key, value) = (text(rest)?, text(rest)?);
            // A field of a record has one value, and those of the protocol have the names of its table.
            if PROPERTIES.iter().all(|(_, known, _)| known.as_bytes() != key) {
                out.pair(name, (key, value));
            }
            return Some(());
        }
    };
    if !is_known {
        out.list.append(&mut value.list);
    }
    Some(())
}
