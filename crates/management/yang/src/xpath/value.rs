//! Values, and how they become others (XPath 1.0, sections 3.4 and 4).

/// The value of an expression.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Value {
    /// Numbers of nodes in document order.
    Nodes(Vec<u32>),
    Number(f64),
    Text(String),
    Boolean(bool),
}

impl Value {
    /// Returns the value as a truth value.
    pub(super) fn is_true(&self) -> bool {
        match self {
            Value::Nodes(nodes) => !nodes.is_empty(),
            Value::Number(number) => *number != 0.0 && !number.is_nan(),
            Value::Text(text) => !text.is_empty(),
            Value::Boolean(value) => *value,
        }
    }
}

/// Returns a number as text, without an exponent.
pub(super) fn text_of(number: f64) -> String {
    if number.is_nan() {
        "NaN".to_owned()
    } else if number.is_infinite() {
        (if number > 0.0 { "Infinity" } else { "-Infinity" }).to_owned()
    } else if number == 0.0 {
        // The negative zero has no sign.
        "0".to_owned()
    } else {
        number.to_string()
    }
}

/// Returns a text as number: digits, perhaps with a point and a minus; NaN for anything else.
pub(super) fn number_of(text: &str) -> f64 {
    let text = text.trim_matches([' ', '\t', '\r', '\n']);
    let digits = text.strip_prefix('-').unwrap_or(text);
    let is_number = digits.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.')
        && digits.bytes().any(|byte| byte.is_ascii_digit());
    match is_number {
        true => text.parse().unwrap_or(f64::NAN),
        false => f64::NAN,
    }
}

/// Returns the whole number nearest to a number, the greater one of two.
pub(super) fn rounded(number: f64) -> f64 {
    match number.fract() == 0.0 {
        true => number,
        false => (number + 0.5).floor(),
    }
}
