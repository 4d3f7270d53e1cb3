//! The normalised URI of a request, as libhtp's IDS personality defines it: percent and %u encoding are decoded once,
//! backslashes become slashes, runs of slashes one slash, and dot segments are removed (RFC 3986, section 5.2.4).

use memchr::memchr;

/// The parts of a request URI that other buffers and the normalised form need.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Uri<'a> {
    /// Host of an absolute URI, without port.
    pub(super) host: Option<&'a [u8]>,
    /// Port of an absolute URI, as text.
    pub(super) port: Option<&'a [u8]>,
    path: Option<&'a [u8]>,
    query: Option<&'a [u8]>,
    fragment: Option<&'a [u8]>,
}

impl<'a> Uri<'a> {
    /// Returns the parts of a URI; every byte string is a URI.
    pub(super) fn parse(text: &'a [u8]) -> Uri<'a> {
        let mut uri = Uri::default();
        let mut rest = text;
        if rest.first() != Some(&b'/')
            && let Some(colon) = rest.iter().position(|&byte| byte == b':')
        {
            rest = uri.parse_authority(&rest[colon + 1..]);
        }
        let path_size = rest
            .iter()
            .position(|byte| b"?#".contains(byte))
            .unwrap_or(rest.len());
        uri.path = (path_size > 0).then_some(&rest[..path_size]);
        rest = &rest[path_size..];
        if let Some(query) = rest.strip_prefix(b"?") {
            let size = query.iter().position(|&byte| byte == b'#').unwrap_or(query.len());
            uri.query = Some(&query[..size]);
            rest = &query[size..];
        }
        uri.fragment = rest.strip_prefix(b"#");
        uri
    }

    /// Returns the host and port of an authority ("host:port" after CONNECT, the value of a Host header).
    pub(super) fn parse_host(text: &'a [u8]) -> Uri<'a> {
        let mut uri = Uri::default();
        uri.parse_host_and_port(text);
        uri
    }

    /// Parses "//user:password@host:port" at the beginning of the text after a scheme, and returns the rest.
    fn parse_authority(&mut self, text: &'a [u8]) -> &'a [u8] {
        let mut rest = text;
        if let Some(authority) = rest
            .strip_prefix(b"//")
            .filter(|authority| authority.first() != Some(&b'/'))
        {
            rest = authority;
            let size = authority
                .iter()
                .position(|byte| b"/?#".contains(byte))
                .unwrap_or(authority.len());
            if let Some(at) = authority[..size].iter().position(|&byte| byte == b'@') {
                rest = &authority[at + 1..];
            }
        } else if rest.first() == Some(&b'/') {
            return rest;
        }
        self.parse_host_and_port(rest)
    }

    fn parse_host_and_port(&mut self, text: &'a [u8]) -> &'a [u8] {
        let text = text.trim_ascii_start();
        let size = match text.first() {
            Some(b'[') => match text.iter().position(|byte| b"]/?#".contains(byte)) {
                Some(end) if text[end] == b']' => end + 1,
                end => end.unwrap_or(text.len()),
            },
            _ => text
                .iter()
                .position(|byte| b"/?#:".contains(byte))
                .unwrap_or(text.len()),
        };
        if size == 0 {
            return text;
        }
        self.host = Some(text[..size].trim_ascii_end());
        let rest = &text[size..];
        let Some(port) = rest.strip_prefix(b":") else {
            return rest;
        };
        let size = port
            .iter()
            .position(|byte| b"/?#".contains(byte))
            .unwrap_or(port.len());
        self.port = Some(port[..size].trim_ascii());
        &port[size..]
    }

    /// Returns path, query and fragment in their normal form; `None` if there is none of them.
    pub(super) fn normalise(&self) -> Option<Vec<u8>> {
        let mut out = Vec::new();
        if let Some(path) = self.path {
            out = match is_normal(path) {
                true => path.to_vec(),
                false => remove_dot_segments(&decode_path(path)),
            };
        }
        if let Some(query) = self.query {
            out.push(b'?');
            decode(query, &mut out);
        }
        if let Some(fragment) = self.fragment {
            out.push(b'#');
            decode(fragment, &mut out);
        }
        let has_part = self.path.is_some() || self.query.is_some() || self.fragment.is_some();
        has_part.then_some(out)
    }
}

/// Returns true if the normal form of a path is the path itself, as that of most paths is: nothing is encoded, and no segment is
/// empty or begins with a dot.
fn is_normal(path: &[u8]) -> bool {
    let mut is_first = true;
    path.iter().all(|&byte| {
        let is_odd = matches!(byte, b'%' | b'\\' | 0xc0 | 0xc1);
        let was_first = core::mem::replace(&mut is_first, byte == b'/');
        !(is_odd || was_first && byte == b'.')
    }) && !path.windows(2).any(|pair| pair == b"//")
}

/// Decodes the percent and %u encoding of a query or fragment once; invalid encoding stays as it is.
fn decode(text: &[u8], out: &mut Vec<u8>) {
    let encoded = memchr(b'%', text).unwrap_or(text.len());
    let (plain, text) = text.split_at(encoded);
    out.extend_from_slice(plain);
    let mut at = 0;
    while at < text.len() {
        let (byte, size) = decode_one(&text[at..]);
        out.push(byte);
        at += size;
    }
}

/// Decodes a path, converts backslashes, decodes overlong UTF-8 and compresses slashes.
fn decode_path(text: &[u8]) -> Vec<u8> {
    let mut decoded = Vec::with_capacity(text.len());
    decode(text, &mut decoded);
    let mut out: Vec<u8> = Vec::with_capacity(decoded.len());
    let mut at = 0;
    while at < decoded.len() {
        // Two-byte sequences that begin with C0 or C1 are overlong forms of ASCII (RFC 3629, section 10).
        let (mut byte, size) = match decoded[at..] {
            [first @ (0xc0 | 0xc1), second @ 0x80..=0xbf, ..] => (((first & 1) << 6) | (second & 0x3f), 2),
            [byte, ..] => (byte, 1),
            [] => break,
        };
        at += size;
        if byte == b'\\' {
            byte = b'/';
        }
        if byte != b'/' || out.last() != Some(&b'/') {
            out.push(byte);
        }
    }
    out
}

/// Returns the byte that `text` begins with after decoding, and how many bytes its encoding has.
fn decode_one(text: &[u8]) -> (u8, usize) {
    match text {
        [b'%', b'u' | b'U', a, b, c, d, ..] => match (hex(*a, *b), hex(*c, *d)) {
            (Some(high), Some(low)) => (best_fit(high, low), 6),
            _ => (b'%', 1),
        },
        [b'%', high, low, ..] => hex(*high, *low).map_or((b'%', 1), |byte| (byte, 3)),
        [byte, ..] => (*byte, 1),
        [] => (0, 0),
    }
}

/// Returns the byte of a UTF-16 code unit: itself below 256, ASCII for the full-width forms, else a question mark.
fn best_fit(high: u8, low: u8) -> u8 {
    match (high, low) {
        (0, low) => low,
        (0xff, 0x01..=0x5e) => low + 0x20,
        _ => b'?',
    }
}

/// Returns the value of two hexadecimal digits.
pub(in crate::app) fn hex(high: u8, low: u8) -> Option<u8> {
    let high = char::from(high).to_digit(16)?;
    let low = char::from(low).to_digit(16)?;
    u8::try_from(high * 16 + low).ok()
}

/// Removes "." and ".." segments. A path that ends in one of them loses the slash before it.
fn remove_dot_segments(path: &[u8]) -> Vec<u8> {
    let mut out: Vec<u8> = Vec::with_capacity(path.len());
    let mut rest = path;
    // All prefixes "./" and "../" are removed.
    loop {
        if let Some(tail) = rest.strip_prefix(b"../").or_else(|| rest.strip_prefix(b"./")) {
            rest = tail;
        } else if rest == b"." || rest == b".." {
            return out;
        } else {
            break;
        }
    }
    while let [first, tail @ ..] = rest {
        if *first != b'/' {
            out.push(*first);
            rest = tail;
        } else if tail.starts_with(b"../") || tail == b".." {
            let parent = out.iter().rposition(|&byte| byte == b'/').unwrap_or(0);
            out.truncate(parent);
            rest = &tail[2..];
        } else if tail.starts_with(b"./") || tail == b"." {
            rest = &tail[1..];
        } else {
            out.push(b'/');
            rest = tail;
        }
    }
    if out.is_empty() && path.first() == Some(&b'/') {
        out.push(b'/');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn normal(uri: &str) -> String {
        String::from_utf8_lossy(&Uri::parse(uri.as_bytes()).normalise().unwrap_or_default()).into_owned()
    }

    #[test]
    fn encodings_are_decoded_once() {
        assert_eq!(normal("/%41%u0042?%43"), "/AB?C");
        assert_eq!(normal("/%2541"), "/%41");
        assert_eq!(normal("/%zz%u12"), "/%zz%u12");
        assert_eq!(normal("/%uff0e%uff0e/etc"), "/etc");
    }

    #[test]
    fn separators_and_dot_segments_have_one_form() {
        assert_eq!(normal("/a//b\\c/%5c/d"), "/a/b/c/d");
        assert_eq!(normal("/a/./b/../../c"), "/c");
        assert_eq!(normal("/../../etc/passwd"), "/etc/passwd");
        assert_eq!(normal("/a%c0%afb/%c0%ae%c0%ae/c"), "/a/c");
        assert_eq!(normal("/a/b/.."), "/a");
    }

    #[test]
    fn a_path_that_is_normal_has_itself_as_its_normal_form() {
        const BYTES: &[u8] = b"/.a%4\\\xc0\xaf\xc1?";
        // All paths of five of these bytes.
        for number in 0..BYTES.len().pow(5) {
            let path: Vec<u8> = (0..5)
                .map(|place| BYTES[number / BYTES.len().pow(place) % BYTES.len()])
                .collect();
            if is_normal(&path) {
                assert_eq!(remove_dot_segments(&decode_path(&path)), path);
            }
        }
        assert!(is_normal(b"/catalogue/index.html") && is_normal(b"") && is_normal(b"/"));
        assert!(!is_normal(b"/a/.b") && !is_normal(b"/a//b") && !is_normal(b".a"));
    }

    #[test]
    fn an_absolute_uri_gives_host_and_path() {
        let uri = Uri::parse(b"http://user:pw@Example.com:8080/a?b=c://d");
        assert_eq!(uri.host, Some(&b"Example.com"[..]));
        assert_eq!(uri.port, Some(&b"8080"[..]));
        assert_eq!(normal("http://user:pw@Example.com:8080/a?b=c://d"), "/a?b=c://d");
        assert_eq!(Uri::parse(b"http://[::1]:81/x").host, Some(&b"[::1]"[..]));
        assert_eq!(Uri::parse_host(b"a.example:443").port, Some(&b"443"[..]));
    }

    #[test]
    fn a_uri_without_path_has_no_normal_form() {
        assert_eq!(Uri::parse(b"").normalise(), None);
        assert_eq!(Uri::parse(b"http://a").normalise(), None);
    }
}
