//! `content` with its modifiers, and `pcre`.

use std::fmt::{self, Write};

use crate::Syntax;
use crate::buffers::Buffer;
use crate::limits;
use crate::refusal::Reason;
use crate::text::{inside_quotes, is_name, list, negation, number32, quote, required};

/// A number, or the name of a variable that `byte_extract` or `byte_math` sets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Operand {
    Number(i64),
    /// The value of a variable.
    Name(String),
}

impl Operand {
    /// Reads an operand.
    pub(crate) fn parse(text: &str) -> Result<Operand, Reason> {
        const FORM: &str = "a number, or the name of a variable of byte_extract or byte_math";
        let text = text.trim();
        let (digits, sign) = match text.strip_prefix('-') {
            Some(rest) => (rest, -1),
            None => (text.strip_prefix('+').unwrap_or(text), 1),
        };
        if digits.starts_with(|c: char| c.is_ascii_digit()) {
            let size = crate::text::number(digits, FORM)?;
            let size =
                i64::try_from(size).map_err(|_| Reason::invalid(format!("{size} is too large"), FORM))?;
            return Ok(Operand::Number(sign * size));
        }
        match is_name(text) && text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') {
            true => Ok(Operand::Name(text.to_owned())),
            false => Err(Reason::invalid(format!("{} is neither", quote(text)), FORM)),
        }
    }
}

impl fmt::Display for Operand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Operand::Number(n) => write!(f, "{n}"),
            Operand::Name(name) => f.write_str(name),
        }
    }
}

/// The part of a content that the prefilter uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FastPattern {
    /// The whole content.
    Whole,
    /// The whole content, which only the prefilter evaluates.
    Only,
    /// A part of the content.
    Part {
        /// The offset of the first byte.
        offset: u32,
        /// The number of bytes.
        size: u32,
    },
}

/// A pattern with the positions at which it may occur.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Content {
    /// The bytes.
    pub pattern: Vec<u8>,
    /// True if the pattern must not occur.
    pub is_negated: bool,
    /// True if upper and lower case are equal.
    pub nocase: bool,
    /// The number of bytes, from the offset, that must contain the pattern.
    pub depth: Option<Operand>,
    /// The smallest offset at which the pattern may begin.
    pub offset: Option<Operand>,
    /// The smallest distance from the end of the previous match.
    pub distance: Option<Operand>,
    /// The number of bytes after the previous match that must contain the pattern.
    pub within: Option<Operand>,
    /// True if the pattern must be at the beginning of the buffer.
    pub startswith: bool,
    /// True if the pattern must be at the end of the buffer.
    pub endswith: bool,
    /// True if the pattern is compared with the bytes before any decoding (Snort).
    pub rawbytes: bool,
    /// The part that the prefilter uses, if the rule says so.
    pub fast_pattern: Option<FastPattern>,
    /// The buffer that a modifier after the content names.
    pub buffer: Option<Buffer>,
}

/// Decodes a pattern: text with `|hex|` and the escapes `\"`, `\;`, `\:`, `\\`, `\|`.
pub(crate) fn decode_pattern(text: &str) -> Result<Vec<u8>, Reason> {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        match byte {
            b'\\' => match bytes.next() {
                Some(escaped @ (b'"' | b';' | b':' | b'\\' | b'|')) => out.push(escaped),
                other => {
                    let other = other.map(char::from).map(String::from).unwrap_or_default();
                    let problem = format!("the escape \\{other} is not known");
                    return Err(Reason::invalid(problem, "\\\", \\;, \\:, \\\\ or |hex|"));
                }
            },
            b'|' => hex(&mut bytes, &mut out)?,
            byte => out.push(byte),
        }
        if out.len() > limits::PATTERN_SIZE {
            let limit = limits::PATTERN_SIZE;
            return Err(Reason::Limit {
                unit: "bytes in a content",
                limit,
            });
        }
    }
    if out.is_empty() {
        return Err(Reason::invalid("the pattern is empty", "at least one byte"));
    }
    Ok(out)
}

/// Decodes pairs of hexadecimal digits up to the closing bar.
fn hex(bytes: &mut std::str::Bytes<'_>, out: &mut Vec<u8>) -> Result<(), Reason> {
    const FORM: &str = "pairs of hexadecimal digits between bars, as in |0d 0a|";
    let mut high: Option<u8> = None;
    for byte in bytes.by_ref() {
        let digit = match byte {
            b'0'..=b'9' => byte - b'0',
            b'a'..=b'f' => byte - b'a' + 10,
            b'A'..=b'F' => byte - b'A' + 10,
            b' ' | b'\t' => continue,
            b'|' if high.is_none() => return Ok(()),
            b'|' => return Err(Reason::invalid("a single digit before the bar", FORM)),
            _ => {
                return Err(Reason::invalid(
                    format!("{:?} between bars", char::from(byte)),
                    FORM,
                ));
            }
        };
        match high.take() {
            Some(high) => out.push(high << 4 | digit),
            None => high = Some(digit),
        }
    }
    Err(Reason::invalid("the closing bar is missing", FORM))
}

/// Prints a pattern in quotes, in a form that [`decode_pattern`] reads.
pub fn encode_pattern(pattern: &[u8]) -> String {
    let mut out = String::from("\"");
    let mut in_hex = false;
    for &byte in pattern {
        let is_text = matches!(byte, b' '..=b'~') && !matches!(byte, b'"' | b';' | b'\\' | b'|' | b':');
        if is_text == in_hex {
            out.push('|');
            in_hex = !in_hex;
        } else if in_hex {
            out.push(' ');
        }
        if is_text {
            out.push(char::from(byte));
        } else {
            // Writing to a string does not fail.
            let _ = write!(out, "{byte:02x}");
        }
    }
    out.push_str(if in_hex { "|\"" } else { "\"" });
    out
}

impl Content {
    /// Reads the value of `content`; in Snort 3 modifiers follow after commas.
    pub(crate) fn parse(syntax: Syntax, value: Option<&str>) -> Result<Content, Reason> {
        const FORM: &str = "a pattern in double quotes, as in \"GET|20|/\", or !\"…\"";
        let value = required(value, FORM)?;
        let (is_negated, value) = negation(value);
        let (pattern, modifiers) = match syntax {
            Syntax::Snort3 => match closing_quote(value) {
                Some(end) => (&value[..=end], value[end + 1..].trim_start()),
                None => (value, ""),
            },
            Syntax::Suricata | Syntax::Snort2 => (value, ""),
        };
        let mut content = Content {
            pattern: decode_pattern(inside_quotes(pattern)?)?,
            is_negated,
            ..Content::default()
        };
        if !modifiers.is_empty() {
            let modifiers = modifiers.strip_prefix(',').ok_or_else(|| {
                Reason::invalid(
                    format!("{} after the pattern", quote(modifiers)),
                    "a comma and modifiers",
                )
            })?;
            for modifier in list(modifiers) {
                let (name, value) = match modifier.split_once(char::is_whitespace) {
                    Some((name, value)) => (name, Some(value.trim())),
                    None => (modifier, None),
                };
                if !content.modify(Syntax::Snort3, name, value)? {
                    return Err(Reason::invalid(
                        format!("{} is not a modifier of content", quote(name)),
                        MODIFIERS,
                    ));
                }
            }
        }
        Ok(content)
    }

    /// Applies a modifier; returns false if the keyword is not a modifier.
    pub(crate) fn modify(&mut self, syntax: Syntax, name: &str, value: Option<&str>) -> Result<bool, Reason> {
        const FORM: &str = "a number of bytes, or the name of a variable";
        let place = match name {
            "depth" => &mut self.depth,
            "offset" => &mut self.offset,
            "distance" => &mut self.distance,
            "within" => &mut self.within,
            _ => return self.modify_flag(syntax, name, value),
        };
        if place.is_some() {
            return Err(Reason::invalid(
                "it is given twice for one content",
                "one of each kind of modifier",
            ));
        }
        *place = Some(Operand::parse(required(value, FORM)?)?);
        Ok(true)
    }

    fn modify_flag(&mut self, syntax: Syntax, name: &str, value: Option<&str>) -> Result<bool, Reason> {
        const PART: &str = "nothing, only, or OFFSET,LENGTH";
        match name {
            "nocase" => self.nocase = true,
            "startswith" => self.startswith = true,
            "endswith" => self.endswith = true,
            "rawbytes" => self.rawbytes = true,
            "fast_pattern" => {
                self.fast_pattern = Some(match value {
                    None | Some("") => FastPattern::Whole,
                    Some("only") => FastPattern::Only,
                    Some(value) => {
                        let (offset, size) = value
                            .split_once(',')
                            .ok_or_else(|| Reason::invalid(quote(value), PART))?;
                        FastPattern::Part {
                            offset: number32(offset, PART)?,
                            size: number32(size, PART)?,
                        }
                    }
                });
                return Ok(true);
            }
            "fast_pattern_offset" | "fast_pattern_length" if syntax == Syntax::Snort3 => {
                let given = number32(required(value, "a number of bytes")?, "a number of bytes")?;
                let whole = u32::try_from(self.pattern.len()).unwrap_or(u32::MAX);
                let (mut offset, mut size) = match self.fast_pattern {
                    Some(FastPattern::Part { offset, size }) => (offset, size),
                    _ => (0, whole),
                };
                if name == "fast_pattern_offset" {
                    offset = given;
                } else {
                    size = given;
                }
                self.fast_pattern = Some(FastPattern::Part { offset, size });
                return Ok(true);
            }
            _ => {
                let Some(buffer) = Buffer::modifier(syntax, name) else {
                    return Ok(false);
                };
                if self.buffer.is_some_and(|before| before != buffer) {
                    return Err(Reason::invalid(
                        "the content has another buffer already",
                        "one buffer for each content",
                    ));
                }
                self.buffer = Some(buffer);
            }
        }
        crate::text::no_value(value)?;
        Ok(true)
    }

    /// Prints the content with its modifiers.
    pub(crate) fn print(&self, syntax: Syntax, f: &mut impl Write) -> fmt::Result {
        let (separator, blank) = match syntax {
            Syntax::Snort3 => (",", ' '),
            Syntax::Suricata | Syntax::Snort2 => ("; ", ':'),
        };
        write!(
            f,
            "content:{}{}",
            if self.is_negated { "!" } else { "" },
            encode_pattern(&self.pattern)
        )?;
        let flags = [
            (self.nocase, "nocase"),
            (self.startswith, "startswith"),
            (self.endswith, "endswith"),
            (self.rawbytes, "rawbytes"),
        ];
        for (_, name) in flags.into_iter().filter(|(is_set, _)| *is_set) {
            write!(f, "{separator}{name}")?;
        }
        let operands = [
            ("depth", &self.depth),
            ("offset", &self.offset),
            ("distance", &self.distance),
            ("within", &self.within),
        ];
        for (name, operand) in operands {
            if let Some(operand) = operand {
                write!(f, "{separator}{name}{blank}{operand}")?;
            }
        }
        match (self.fast_pattern, syntax) {
            (None, _) => {}
            (Some(FastPattern::Whole), _) => write!(f, "{separator}fast_pattern")?,
            (Some(FastPattern::Only), _) => write!(f, "{separator}fast_pattern{blank}only")?,
            (Some(FastPattern::Part { offset, size }), Syntax::Snort3) => {
                write!(f, ",fast_pattern_offset {offset},fast_pattern_length {size}")?;
            }
            (Some(FastPattern::Part { offset, size }), _) => {
                write!(f, "{separator}fast_pattern:{offset},{size}")?;
            }
        }
        if let Some(buffer) = self.buffer {
            write!(f, "{separator}{}", buffer.names().modifier)?;
        }
        f.write_str(";")
    }
}

/// The modifiers of contents, for messages.
pub(crate) const MODIFIERS: &str = "nocase, depth, offset, distance, within, startswith, endswith, rawbytes, fast_pattern or the modifier of a buffer";

/// Returns the offset of the quote that closes the quoted text at the beginning of `text`.
fn closing_quote(text: &str) -> Option<usize> {
    let mut is_escaped = false;
    for (at, byte) in text.bytes().enumerate().skip(1) {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = true,
            b'"' => return Some(at),
            _ => {}
        }
    }
    None
}

/// A regular expression with its flags.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pcre {
    /// True if the expression must not match.
    pub is_negated: bool,
    /// The expression between the delimiters, as written.
    pub pattern: String,
    /// The flags after the closing delimiter, as written.
    pub flags: String,
    /// The variables that get the groups: `flow:NAME`, `pkt:NAME` or `alert:NAME` for each, from the first on.
    pub variables: Vec<String>,
}

/// The flags that name a buffer.
const BUFFER_FLAGS: &[(char, Buffer)] = &[
    ('U', Buffer::HttpUri),
    ('I', Buffer::HttpUriRaw),
    ('P', Buffer::HttpRequestBody),
    ('Q', Buffer::HttpResponseBody),
    ('H', Buffer::HttpHeader),
    ('D', Buffer::HttpHeaderRaw),
    ('M', Buffer::HttpMethod),
    ('C', Buffer::HttpCookie),
    ('K', Buffer::HttpCookieRaw),
    ('V', Buffer::HttpUserAgent),
    ('W', Buffer::HttpHost),
    ('Z', Buffer::HttpHostRaw),
    ('S', Buffer::HttpStatCode),
    ('Y', Buffer::HttpStatMsg),
];

impl Pcre {
    /// Reads the value of `pcre`.
    pub(crate) fn parse(value: Option<&str>) -> Result<Pcre, Reason> {
        const FORM: &str = "\"/EXPRESSION/FLAGS\", or !\"/EXPRESSION/FLAGS\"";
        let (is_negated, value) = negation(required(value, FORM)?);
        // Suricata reads an expression without quotes, too.
        let inner = match value.starts_with(['/', 'm']) {
            true => value,
            false => inside_quotes(value)?,
        };
        let wrong = || Reason::invalid(format!("{} has no delimiters", quote(inner)), FORM);
        let (rest, delimiter) = match inner.strip_prefix('m') {
            Some(rest) => (rest, rest.chars().next().ok_or_else(wrong)?),
            None => (inner, '/'),
        };
        if delimiter.is_alphanumeric() || matches!(delimiter, '\\' | '"' | ';' | ' ') {
            return Err(wrong());
        }
        let rest = rest.strip_prefix(delimiter).ok_or_else(wrong)?;
        let is_flag = |c: char| "ismxAEGRBO".contains(c) || BUFFER_FLAGS.iter().any(|(flag, _)| *flag == c);
        let is_variable = |text: &str| {
            let split = text.split_once(':');
            split.is_some_and(|(kind, name)| matches!(kind, "flow" | "pkt" | "alert") && is_name(name))
        };
        // The flags may be followed by the variables that get the groups, whose names may contain the delimiter: the expression
        // ends with the first delimiter behind which there are only flags and variables.
        let is_behind = |text: &str| {
            let (flags, variables) = text.split_once(',').unwrap_or((text, ""));
            flags.trim().chars().all(is_flag)
                && list(variables).all(|variable| variable.is_empty() || is_variable(variable))
        };
        let ends = rest.match_indices(delimiter).filter(|(at, _)| {
            let escapes = rest[..*at].bytes().rev().take_while(|byte| *byte == b'\\');
            escapes.count() % 2 == 0
        });
        let parts = |at: usize| (&rest[..at], &rest[at + delimiter.len_utf8()..]);
        let mut parts = ends.map(|(at, _)| parts(at));
        let (pattern, flags) = parts
            .find(|(_, behind)| is_behind(behind))
            .or_else(|| rest.rsplit_once(delimiter))
            .ok_or_else(wrong)?;
        let (flags, variables) = flags.split_once(',').unwrap_or((flags, ""));
        let flags = flags.trim();
        let variables: Vec<String> = list(variables)
            .filter(|variable| !variable.is_empty())
            .map(str::to_owned)
            .collect();
        if let Some(wrong) = variables.iter().find(|variable| !is_variable(variable)) {
            return Err(Reason::invalid(
                format!("the variable {}", quote(wrong)),
                "flow:NAME, pkt:NAME or alert:NAME for each group",
            ));
        }
        if let Some(flag) = flags.chars().find(|c| !is_flag(*c)) {
            return Err(Reason::invalid(
                format!("the flag {flag:?} is not known"),
                "flags of i s m x A E G R B O and of the buffers U I P Q H D M C K V W Z S Y",
            ));
        }
        if pattern.is_empty() {
            return Err(Reason::invalid("the expression is empty", FORM));
        }
        let pcre = Pcre {
            is_negated,
            pattern: pattern.to_owned(),
            flags: flags.to_owned(),
            variables,
        };
        if BUFFER_FLAGS
            .iter()
            .filter(|(flag, _)| flags.contains(*flag))
            .count()
            > 1
        {
            return Err(Reason::invalid(
                "the flags name several buffers",
                "at most one buffer",
            ));
        }
        Ok(pcre)
    }

    /// Returns true if the match must begin after the end of the previous match.
    pub fn is_relative(&self) -> bool {
        self.flags.contains('R')
    }

    /// Returns the buffer that the flags name.
    pub fn buffer(&self) -> Option<Buffer> {
        let named = BUFFER_FLAGS.iter().find(|(flag, _)| self.flags.contains(*flag))?;
        Some(named.1)
    }
}

impl fmt::Display for Pcre {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.is_negated { "!" } else { "" };
        write!(f, "pcre:{sign}\"/{}/{}", self.pattern, self.flags)?;
        self.variables
            .iter()
            .try_for_each(|variable| write!(f, ", {variable}"))?;
        f.write_str("\";")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_expression_ends_before_its_flags_and_variables() {
        for (value, pattern, flags, variables) in [
            ("\"/a\\/b/i\"", "a\\/b", "i", &[][..]),
            ("\"/a[/]b/\"", "a[/]b", "", &[]),
            // The example of Suricata's documentation, in short.
            (
                "\"/([a-z]+)\\/(.+)$/GUR, flow:ua/ubuntu/repo,flow:ua/i\"",
                "([a-z]+)\\/(.+)$",
                "GUR",
                &["flow:ua/ubuntu/repo", "flow:ua/i"],
            ),
            ("\"/(a)/,pkt:b/i\"", "(a)", "", &["pkt:b/i"]),
            ("\"/a\\\\/i\"", "a\\\\", "i", &[]),
            ("\"m#a/b#,alert:x#y\"", "a/b", "", &["alert:x#y"]),
        ] {
            let pcre = Pcre::parse(Some(value)).unwrap();
            assert_eq!(
                (pcre.pattern.as_str(), pcre.flags.as_str(), &pcre.variables[..]),
                (
                    pattern,
                    flags,
                    &variables
                        .iter()
                        .map(|name| (*name).to_owned())
                        .collect::<Vec<_>>()[..]
                ),
                "{value}"
            );
        }
        for value in ["\"/a/q\"", "\"/a/i, other:x\"", "\"/a\""] {
            assert!(Pcre::parse(Some(value)).is_err(), "{value}");
        }
    }
}
