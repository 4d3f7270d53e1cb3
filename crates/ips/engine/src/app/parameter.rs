//! Parameters of header values (RFC 2045, section 5.1), and their extended form (RFC 2231).

use super::http::hex;

/// Largest number of sections of an extended parameter.
const SECTIONS: usize = 256;

/// The parameters of a header value, in order: names with values.
struct Parameters<'a> {
    /// The text after the parameters that were read, from a semicolon on.
    rest: &'a [u8],
}

/// Returns the number of bytes of a text before the first byte for which `is_end` is true.
fn until(text: &[u8], is_end: impl Fn(u8) -> bool) -> usize {
    text.iter().position(|&byte| is_end(byte)).unwrap_or(text.len())
}

impl<'a> Parameters<'a> {
    fn of(value: &'a [u8]) -> Parameters<'a> {
        Parameters {
            rest: &value[until(value, |byte| byte == b';')..],
        }
    }
}

impl<'a> Iterator for Parameters<'a> {
    type Item = (&'a [u8], Vec<u8>);

    fn next(&mut self) -> Option<(&'a [u8], Vec<u8>)> {
        while let Some(text) = self.rest.strip_prefix(b";") {
            let size = until(text, |byte| b"=;".contains(&byte));
            let (name, rest) = (text[..size].trim_ascii(), &text[size..]);
            self.rest = rest;
            let Some(text) = rest.strip_prefix(b"=").map(<[u8]>::trim_ascii_start) else {
                continue;
            };
            // Quotes count at the beginning of a value only.
            let (value, rest) = match text.strip_prefix(b"\"") {
                Some(quoted) => {
                    let (value, size) = unquoted(quoted);
                    // Without a closing quote, recipients may take the semicolons inside as separators of parameters.
                    (value, size.map_or(rest, |size| &quoted[size..]))
                }
                None => {
                    let end = until(text, |byte| b"; \t\r\n".contains(&byte));
                    (text[..end].to_vec(), rest)
                }
            };
            self.rest = &rest[until(rest, |byte| byte == b';')..];
            return Some((name, value));
        }
        None
    }
}

/// Returns true if words follow an unquoted value of a parameter before the next semicolon. Some recipients take them as a part of
/// the value, some do not. A comment is none (RFC 2045, section 5.1).
pub(in crate::app) fn has_words_behind(value: &[u8], name: &[u8]) -> bool {
    let mut parameters = Parameters::of(value);
    loop {
        let before = parameters.rest;
        match parameters.next() {
            None => return false,
            Some((known, _)) if !known.eq_ignore_ascii_case(name) => {}
            Some((_, value)) => {
                let text = &before[..before.len() - parameters.rest.len()];
                let behind = text.splitn(2, |byte| *byte == b'=').nth(1).unwrap_or_default();
                let words = behind.trim_ascii().strip_prefix(value.as_slice());
                let words = words.unwrap_or_default().trim_ascii_start();
                return !words.is_empty() && words[0] != b'(';
            }
        }
    }
}

/// Returns the text up to a quote and its size including the quote. Without a quote, the size is `None`.
fn unquoted(text: &[u8]) -> (Vec<u8>, Option<usize>) {
    let mut out = Vec::new();
    let mut at = 0;
    while let Some(&byte) = text.get(at) {
        at += 1;
        match (byte, text.get(at)) {
            (b'"', _) => return (out, Some(at)),
            (b'\\', Some(&next @ (b'"' | b'\\'))) => {
                out.push(next);
                at += 1;
            }
            _ => out.push(byte),
        }
    }
    (out, None)
}

/// Returns the value of a parameter of a header value: `name=value` or `name="value"`.
pub(in crate::app) fn parameter(value: &[u8], name: &[u8]) -> Option<Vec<u8>> {
    Parameters::of(value)
        .find(|(known, _)| known.eq_ignore_ascii_case(name))
        .map(|(_, value)| value)
}

/// Returns the value of a parameter in its extended form: `name*=charset'language'value` with escapes, or sections `name*0=` and
/// `name*0*=`. The charset is not applied.
pub(in crate::app) fn extended_parameter(value: &[u8], name: &[u8]) -> Option<Vec<u8>> {
    let mut sections: Vec<(usize, Vec<u8>)> = Vec::new();
    for (known, text) in Parameters::of(value) {
        let Some(star) = known.iter().position(|&byte| byte == b'*') else {
            continue;
        };
        let (head, tail) = (&known[..star], &known[star + 1..]);
        if !head.eq_ignore_ascii_case(name) || sections.len() >= SECTIONS {
            continue;
        }
        let (number, is_escaped) = match tail.strip_suffix(b"*") {
            Some(number) => (number, true),
            None => (tail, tail.is_empty()),
        };
        let number = match number {
            [] => Some(0),
            digits => core::str::from_utf8(digits)
                .ok()
                .and_then(|digits| digits.parse().ok()),
        };
        let Some(number) = number else { continue };
        let text = match is_escaped {
            true => unescaped(without_charset(&text, number)),
            false => text,
        };
        if sections.iter().all(|(known, _)| *known != number) {
            sections.push((number, text));
        }
    }
    sections.sort_by_key(|(number, _)| *number);
    (!sections.is_empty()).then(|| sections.into_iter().flat_map(|(_, text)| text).collect())
}

/// Returns the boundary of a multipart value, in its plain form, else in its extended form. Every character may have a backslash in
/// front in quotes (RFC 2045, section 5.1).
pub(in crate::app) fn boundary_of(value: &[u8]) -> Option<Vec<u8>> {
    let mut boundary = parameter(value, b"boundary").or_else(|| extended_parameter(value, b"boundary"))?;
    boundary.retain(|byte| *byte != b'\\');
    Some(boundary)
}

/// Returns the file names of a Content-Disposition value: the extended form, which recipients prefer if they support it
/// (RFC 6266, section 4.3), then the plain form, if it differs.
pub(in crate::app) fn file_names(value: &[u8]) -> Vec<Vec<u8>> {
    let forms = [
        extended_parameter(value, b"filename"),
        parameter(value, b"filename"),
    ];
    let mut names: Vec<_> = forms.into_iter().flatten().collect();
    names.dedup();
    names
}

/// Returns an escaped section without the charset and the language with which the first section begins.
fn without_charset(text: &[u8], number: usize) -> &[u8] {
    let mut parts = text.splitn(3, |&byte| byte == b'\'');
    match (number, parts.next(), parts.next(), parts.next()) {
        (0, Some(_), Some(_), Some(rest)) => rest,
        _ => text,
    }
}

/// Returns a text with its escapes "%XX" replaced.
fn unescaped(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut at = 0;
    while let Some(&byte) = text.get(at) {
        let value = match text[at..] {
            [b'%', high, low, ..] => hex(high, low),
            _ => None,
        };
        out.push(value.unwrap_or(byte));
        at += if value.is_some() { 3 } else { 1 };
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_may_be_quoted_or_not() {
        assert_eq!(
            parameter(b"a; x=1; boundary=abc; y=2", b"boundary"),
            Some(b"abc".to_vec())
        );
        assert_eq!(
            parameter(b"a; filename=\"a \\\"b\\\".txt\"", b"filename"),
            Some(b"a \"b\".txt".to_vec())
        );
        assert_eq!(parameter(b"a; filename*=x", b"filename"), None);
    }

    #[test]
    fn a_semicolon_in_quotes_separates_no_parameters() {
        for (value, name) in [
            (&b"a; x=\"; filename=no; y=\"; filename=\"yes\""[..], &b"yes"[..]),
            (b"a; x=\"\\\"; filename=no\"; filename=yes", b"yes"),
            // A quote elsewhere, or without an end, hides no parameter.
            (b"a\"; x=b\"c; filename=yes", b"yes"),
            (b"a; x=\"b; filename=yes", b"yes"),
            (b"a; filename; filename = \"yes\" ; z", b"yes"),
        ] {
            assert_eq!(
                parameter(value, b"filename").as_deref(),
                Some(name),
                "{}",
                value.escape_ascii()
            );
        }
    }

    #[test]
    fn a_boundary_has_each_form_of_a_parameter() {
        for value in [
            &b"multipart/mixed; boundary=BxB"[..],
            b"multipart/mixed; boundary=\"B\\xB\"",
            b"multipart/mixed; boundary*0=\"Bx\"; boundary*1=B",
            b"multipart/mixed; boundary*=us-ascii''B%78B",
            b"multipart/mixed; boundary*1=B; boundary*0*=us-ascii'en'B%78",
        ] {
            assert_eq!(
                boundary_of(value).as_deref(),
                Some(&b"BxB"[..]),
                "{}",
                value.escape_ascii()
            );
        }
        assert_eq!(boundary_of(b"multipart/mixed; x=y"), None);
    }

    #[test]
    fn words_behind_an_unquoted_value_are_told() {
        let told = |value: &[u8]| has_words_behind(value, b"boundary");
        assert!(told(b"multipart/mixed; boundary=B B"));
        assert!(told(b"multipart/mixed; x; boundary=--=B B"));
        assert!(told(b"multipart/mixed; x=1; Boundary = B\tcharset; y=2"));
        for value in [
            &b"multipart/mixed; boundary=B"[..],
            b"multipart/mixed; boundary=B ; x=a b",
            b"multipart/mixed; boundary=\"B B\"",
            b"multipart/mixed; boundary=B (a comment)",
            b"multipart/mixed; x=a b",
        ] {
            assert!(!told(value), "{}", value.escape_ascii());
        }
    }

    #[test]
    fn extended_parameters_are_decoded_and_joined() {
        let of = |value: &[u8]| extended_parameter(value, b"filename");
        assert_eq!(of(b"a; filename*=UTF-8''a%20b.exe"), Some(b"a b.exe".to_vec()));
        assert_eq!(of(b"a; filename*=a%2"), Some(b"a%2".to_vec()));
        assert_eq!(
            of(b"a; filename*1=\".ex\"; filename*0*=utf-8'en'x%2Dy; filename*2*=%65"),
            Some(b"x-y.exe".to_vec())
        );
        assert_eq!(of(b"a; filename=x; filename*q=x; name*=x"), None);
    }
}
