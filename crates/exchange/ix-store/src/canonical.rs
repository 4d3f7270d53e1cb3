//! Canonical JSON (RFC 8785): one byte sequence for each value, so that two programs compute the same hash.
//!
//! Numbers are integers of at most 2^53 - 1 in absolute value, which every JSON parser holds exactly. Values with other
//! numbers are refused: the audit chain has none, and the formatting of fractions is the part of RFC 8785 that
//! independent implementations get wrong.

use serde_json::Value;

/// The largest integer up to which a double holds every integer exactly (RFC 7493, section 2.2).
const MAX_SAFE_INTEGER: u64 = (1 << 53) - 1;

/// A value has no canonical form here.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the number {number} is not an integer between -(2^53 - 1) and 2^53 - 1; write it as a string")]
pub struct CanonicalError {
    /// The number, in decimal.
    pub number: String,
}

/// Returns the canonical form of an object with these members.
///
/// # Errors
/// As [`canonical`].
pub(crate) fn canonical_object(members: Vec<(&str, &Value)>) -> Result<String, CanonicalError> {
    let mut out = String::new();
    write_object(members, &mut out)?;
    Ok(out)
}

/// Returns the canonical form of `value`, as RFC 8785 defines it.
///
/// # Errors
/// [`CanonicalError`] for a number that is a fraction or too large.
pub fn canonical(value: &Value) -> Result<String, CanonicalError> {
    let mut out = String::new();
    write(value, &mut out)?;
    Ok(out)
}

fn write(value: &Value, out: &mut String) -> Result<(), CanonicalError> {
    match value {
        Value::Null => out.push_str("null"),
        Value::Bool(true) => out.push_str("true"),
        Value::Bool(false) => out.push_str("false"),
        Value::Number(number) => {
            let magnitude = number.as_u64().or_else(|| number.as_i64().map(i64::unsigned_abs));
            if magnitude.is_none_or(|magnitude| magnitude > MAX_SAFE_INTEGER) {
                return Err(CanonicalError {
                    number: number.to_string(),
                });
            }
            out.push_str(&number.to_string());
        }
        Value::String(text) => write_string(text, out),
        Value::Array(items) => {
            out.push('[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                write(item, out)?;
            }
            out.push(']');
        }
        Value::Object(members) => {
            write_object(
                members.iter().map(|(name, value)| (&**name, value)).collect(),
                out,
            )?;
        }
    }
    Ok(())
}

fn write_object(mut members: Vec<(&str, &Value)>, out: &mut String) -> Result<(), CanonicalError> {
    // RFC 8785, section 3.2.3: names are ordered by their UTF-16 code units.
    members.sort_unstable_by(|(one, _), (two, _)| one.encode_utf16().cmp(two.encode_utf16()));
    out.push('{');
    for (index, (name, value)) in members.into_iter().enumerate() {
        if index > 0 {
            out.push(',');
        }
        write_string(name, out);
        out.push(':');
        write(value, out)?;
    }
    out.push('}');
    Ok(())
}

/// Writes a string with the escapes of RFC 8785, section 3.2.2.2: short forms where JSON has them, `\u00xx` for other
/// control characters, and nothing else.
fn write_string(text: &str, out: &mut String) {
    out.push('"');
    for character in text.chars() {
        match character {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\u{8}' => out.push_str("\\b"),
            '\t' => out.push_str("\\t"),
            '\n' => out.push_str("\\n"),
            '\u{c}' => out.push_str("\\f"),
            '\r' => out.push_str("\\r"),
            control if control < ' ' => out.push_str(&format!("\\u{:04x}", u32::from(control))),
            other => out.push(other),
        }
    }
    out.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn names_are_ordered_by_utf_16_code_units() {
        // RFC 8785, section 3.2.3: the example with names from several planes.
        let value =
            json!({"\u{20ac}": 1, "\r": 2, "\u{fb33}": 3, "1": 4, "\u{1f600}": 5, "\u{80}": 6, "\u{f6}": 7});
        let expected =
            "{\"\\r\":2,\"1\":4,\"\u{80}\":6,\"\u{f6}\":7,\"\u{20ac}\":1,\"\u{1f600}\":5,\"\u{fb33}\":3}";
        assert_eq!(canonical(&value).unwrap(), expected);
    }

    #[test]
    fn strings_have_the_shortest_escapes() {
        let value = json!("\u{20ac}$\u{f}\nA'B\"\\/\u{7f}");
        assert_eq!(
            canonical(&value).unwrap(),
            "\"\u{20ac}$\\u000f\\nA'B\\\"\\\\/\u{7f}\""
        );
    }

    #[test]
    fn spaces_and_order_of_the_input_do_not_matter() {
        let parse = |text: &str| canonical(&serde_json::from_str(text).unwrap()).unwrap();
        assert_eq!(
            parse(r#"{ "b" : [ 1 , true , null ] , "a" : { } }"#),
            r#"{"a":{},"b":[1,true,null]}"#
        );
    }

    #[test]
    fn fractions_and_large_integers_are_refused() {
        for value in [
            json!(0.5),
            json!(1u64 << 53),
            json!(-(1i64 << 53)),
            json!(u64::MAX),
        ] {
            assert!(canonical(&value).is_err(), "{value}");
        }
        assert_eq!(
            canonical(&json!([(1u64 << 53) - 1, -5])).unwrap(),
            "[9007199254740991,-5]"
        );
    }
}
