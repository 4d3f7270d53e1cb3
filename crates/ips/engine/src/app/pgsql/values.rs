//! The fields of records of PostgreSQL.

use super::super::framed::{number, take};
use super::super::record::{Fields, Value};

/// Returns a text up to its zero.
pub(super) fn text(bytes: &[u8]) -> &[u8] {
    bytes.split(|byte| *byte == 0).next().unwrap_or_default()
}

/// The parameters whose names in records differ from those in messages (section 20.11); names are compared exactly, as in Suricata.
const RENAMED: &[(&[u8], &[u8])] = &[
    (b"DateStyle", b"date_style"),
    (b"IntervalStyle", b"interval_style"),
    (b"TimeZone", b"time_zone"),
];

/// Returns a parameter as an object with its value by its name.
pub(super) fn parameter(name: &[u8], value: &[u8]) -> Fields {
    let known = RENAMED.iter().find(|(known, _)| *known == name);
    let mut one = Fields::default();
    one.pair("parameter", (known.map_or(name, |(_, known)| known), value));
    one
}

/// Writes the fields of an error or a notice (section 53.8).
pub(super) fn problem(body: &[u8], out: &mut Fields) {
    const NAMES: &[(u8, &str)] = &[
        (b'S', "severity_localizable"),
        (b'V', "severity_non_localizable"),
        (b'C', "code"),
        (b'M', "message"),
        (b'D', "detail"),
        (b'H', "hint"),
        (b'P', "position"),
        (b'F', "file"),
        (b'L', "line"),
        (b'R', "routine"),
    ];
    for field in body.split(|byte| *byte == 0).take(32) {
        let Some((kind, value)) = field.split_first() else {
            continue;
        };
        if let Some((_, name)) = NAMES.iter().find(|(known, _)| known == kind) {
            out.text(name, value);
        }
    }
}

/// The contents of a message of the type `p`, which depend on the request of the server (section 53.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Authentication {
    #[default]
    Password,
    /// The first message of SASL, with its mechanism.
    SaslBegin,
    /// A further message of SASL.
    Sasl,
}

/// Names of mechanisms of SASL in records.
const MECHANISMS: &[(&[u8], &[u8])] = &[
    (b"SCRAM-SHA-256", b"scram_SHA256"),
    (b"SCRAM-SHA-256-PLUS", b"scram_SHA256_plus"),
];

/// Writes a message of the client for its authentication. Passwords are not written.
pub(super) fn credentials(kind: Authentication, body: &[u8], out: &mut Fields) {
    match kind {
        Authentication::Password => {
            out.flag("password_redacted", true);
        }
        Authentication::SaslBegin => {
            let name = text(body);
            let known = MECHANISMS.iter().find(|(known, _)| *known == name);
            out.text(
                "sasl_authentication_mechanism",
                known.map_or(&b"unknown"[..], |(_, name)| name),
            );
            // The size of the response; -1 for none.
            let mut rest = body.get(name.len() + 1..).unwrap_or_default();
            if number(&mut rest, 4).is_some() && !rest.is_empty() {
                out.text("sasl_param", rest);
            }
        }
        Authentication::Sasl => {
            out.text("sasl_response", body);
        }
    }
}

/// Writes a request of the server for an authentication, or its end (section 53.3); returns what the client answers, if it does.
pub(super) fn authentication(mut body: &[u8], out: &mut Fields) -> Option<Authentication> {
    let kind = number(&mut body, 4).unwrap_or(0);
    match kind {
        3 => out.text("message", b"authentication_cleartext_password"),
        5 => out.text("authentication_md5_password", body),
        7 => out.text("message", b"authentication_gss"),
        9 => out.text("message", b"authentication_sspi"),
        10 => out.text("message", b"authentication_sasl"),
        11 => out.text("message", b"authentication_sasl_continue"),
        12 => out.text("authentication_sasl_final", body),
        _ => out.text("message", b"authentication_ok"),
    };
    match kind {
        0 | 12 => None,
        10 => Some(Authentication::SaslBegin),
        11 => Some(Authentication::Sasl),
        _ => Some(Authentication::Password),
    }
}

/// Writes the number of columns of data that follow (CopyInResponse, CopyOutResponse).
pub(super) fn columns(name: &'static str, body: &[u8], out: &mut Fields) {
    // The format of the data comes first.
    let mut rest = body.get(1..).unwrap_or_default();
    if let Some(columns) = number(&mut rest, 2) {
        out.object(name, |out| {
            out.number("columns", columns);
        });
    }
}

/// Adds a message of data to those of a transaction: their number, and their bytes.
pub(super) fn copied(name: &'static str, counter: &'static str, size: u64, out: &mut Fields) {
    if let Some(Value::Object(known)) = out.value(name) {
        for (counter, more) in [(counter, 1), ("data_size", size)] {
            if let Some(Value::Number(number)) = known.value(counter) {
                *number += more;
            }
        }
        return;
    }
    out.object(name, |out| {
        out.number(counter, 1_u64).number("data_size", size);
    });
}

/// Sets a number, also if it is there already.
pub(super) fn count(out: &mut Fields, name: &'static str, value: u64) {
    match out.value(name) {
        Some(Value::Number(known)) => *known = value,
        _ => {
            out.number(name, value);
        }
    }
}

/// Returns the size of the columns of a row in bytes.
pub(super) fn row_size(mut body: &[u8]) -> u64 {
    let columns = number(&mut body, 2).unwrap_or(0);
    let mut sum = 0;
    for _ in 0..columns {
        let Some(size) = number(&mut body, 4) else {
            break;
        };
        // -1 is NULL.
        if size == u64::from(u32::MAX) {
            continue;
        }
        sum += size;
        if take(&mut body, size as usize).is_none() {
            break;
        }
    }
    sum
}
