//! Small pieces of the grammar: quoted texts, numbers, lists.

use crate::refusal::Reason;

/// Returns the value of an option that requires one.
pub(crate) fn required<'a>(value: Option<&'a str>, expected: &'static str) -> Result<&'a str, Reason> {
    match value {
        Some(value) if !value.is_empty() => Ok(value),
        _ => Err(Reason::invalid("the value is missing", expected)),
    }
}

/// Fails if an option that takes no value has one.
pub(crate) fn no_value(value: Option<&str>) -> Result<(), Reason> {
    match value {
        None | Some("") => Ok(()),
        Some(value) => Err(Reason::invalid(format!("the value {}", quote(value)), "no value")),
    }
}

/// Returns a text for a message, in quotes and truncated if it is long.
pub(crate) fn quote(text: &str) -> String {
    const LONGEST: usize = 60;
    if text.chars().count() <= LONGEST {
        return format!("{text:?}");
    }
    let cut: String = text.chars().take(LONGEST).collect();
    format!("{cut:?}…")
}

/// Returns true if the text begins with a `!`, and the text after it.
pub(crate) fn negation(text: &str) -> (bool, &str) {
    match text.strip_prefix('!') {
        Some(rest) => (true, rest.trim_start()),
        None => (false, text),
    }
}

/// Returns the inside of a quoted text, without decoding escapes.
pub(crate) fn inside_quotes(text: &str) -> Result<&str, Reason> {
    text.strip_prefix('"')
        .and_then(|rest| rest.strip_suffix('"'))
        .ok_or_else(|| {
            Reason::invalid(
                format!("{} is not quoted", quote(text)),
                "a text in double quotes",
            )
        })
}

/// Replaces the escapes `\"`, `\;`, `\:` and `\\`; other backslashes remain.
pub(crate) fn unescape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match chars.peek() {
            Some(&next @ ('"' | ';' | ':' | '\\')) if c == '\\' => {
                out.push(next);
                chars.next();
            }
            _ => out.push(c),
        }
    }
    out
}

/// Returns the text in double quotes, in a form that [`unescape`] reads.
pub(crate) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        if matches!(c, '"' | ';' | '\\') {
            out.push('\\');
        }
        out.push(c);
    }
    out.push('"');
    out
}

/// Reads an unsigned number, decimal or with the prefix 0x.
pub(crate) fn number(text: &str, expected: &'static str) -> Result<u64, Reason> {
    let text = text.trim();
    let read = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(hex) if hex.starts_with(|c: char| c.is_ascii_hexdigit()) => u64::from_str_radix(hex, 16).ok(),
        Some(_) => None,
        None if text.starts_with(|c: char| c.is_ascii_digit()) => text.parse().ok(),
        None => None,
    };
    read.ok_or_else(|| Reason::invalid(format!("{} is not a number", quote(text)), expected))
}

/// Reads a number that may have a unit: kb, mb or gb, which are powers of 1024.
pub(crate) fn integer(text: &str, expected: &'static str) -> Result<u64, Reason> {
    const UNITS: &[(&str, u32)] = &[
        ("kib", 10),
        ("mib", 20),
        ("gib", 30),
        ("kb", 10),
        ("mb", 20),
        ("gb", 30),
    ];
    let lower = text.trim().to_ascii_lowercase();
    let unit = match lower.starts_with("0x") {
        true => None,
        false => UNITS
            .iter()
            .find_map(|(unit, shift)| Some((lower.strip_suffix(unit)?, shift))),
    };
    match unit {
        None => number(text, expected),
        Some((count, shift)) => {
            let count = number(count, expected)?;
            count
                .checked_mul(1 << shift)
                .ok_or_else(|| Reason::invalid(format!("{} is too large", quote(text)), expected))
        }
    }
}

/// Reads a number of 32 bits.
pub(crate) fn number32(text: &str, expected: &'static str) -> Result<u32, Reason> {
    let wide = number(text, expected)?;
    u32::try_from(wide).map_err(|_| Reason::invalid(format!("{wide} is too large"), expected))
}

/// Returns the elements of a comma-separated text, trimmed.
pub(crate) fn list(text: &str) -> impl Iterator<Item = &str> {
    text.split(',').map(str::trim)
}

/// Returns true if the text can be the name of a variable, a bit or a protocol: it is printable, without
/// separators and quotes.
pub(crate) fn is_name(text: &str) -> bool {
    let is_allowed = |c: char| {
        c.is_ascii_alphanumeric()
            || matches!(
                c,
                '_' | '.' | '-' | '/' | '@' | '+' | '#' | '*' | '~' | '=' | '?' | '%'
            )
    };
    !text.is_empty() && text.chars().all(is_allowed)
}

/// Declares an enum with one word of the rule language for each variant.
macro_rules! words {
    ($(#[$meta:meta])* $name:ident $expected:literal { $($(#[$vmeta:meta])* $variant:ident $word:literal $(| $alias:literal)*;)* }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum $name { $($(#[$vmeta])* $variant,)* }

        impl $name {
            /// Returns the word of the rule language.
            pub fn word(self) -> &'static str {
                match self { $($name::$variant => $word,)* }
            }

            /// Reads a word.
            pub(crate) fn from_word(text: &str) -> Result<$name, $crate::Reason> {
                match text {
                    $($word $(| $alias)* => Ok($name::$variant),)*
                    _ => Err($crate::Reason::invalid(
                        format!("{} is not known here", $crate::text::quote(text)), $expected)),
                }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.word())
            }
        }
    };
}
pub(crate) use words;
