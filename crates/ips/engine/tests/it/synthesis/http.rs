//! HTTP/1.1 requests and responses that contain given parts.

use millrace_ips_rules::buffers::Buffer;

use super::parts::Parts;
use super::random::Random;

/// The headers that have a buffer of their own.
const NAMED: [(Buffer, &str); 12] = [
    (Buffer::HttpHost, "Host"),
    (Buffer::HttpHostRaw, "Host"),
    (Buffer::HttpUserAgent, "User-Agent"),
    (Buffer::HttpReferer, "Referer"),
    (Buffer::HttpContentType, "Content-Type"),
    (Buffer::HttpAccept, "Accept"),
    (Buffer::HttpAcceptEnc, "Accept-Encoding"),
    (Buffer::HttpAcceptLang, "Accept-Language"),
    (Buffer::HttpConnection, "Connection"),
    (Buffer::HttpContentLen, "Content-Length"),
    (Buffer::HttpLocation, "Location"),
    (Buffer::HttpServer, "Server"),
];

/// The name of a header, and the bytes after the colon.
type Header = (Vec<u8>, Vec<u8>);

/// Returns the bytes after the colon of a header. Parsers strip leading blanks, so a value that begins with one gets an `x`.
fn value(bytes: &[u8]) -> Vec<u8> {
    let mut value = bytes.to_vec();
    if value.first() == Some(&b' ') {
        value.insert(0, b'x');
    }
    [b" ", &value[..]].concat()
}

/// Returns the headers of a message with a body of this size, in their order.
fn headers(parts: &Parts, is_request: bool, body: usize, random: &mut Random) -> Vec<Header> {
    let mut own: Vec<Header> = Vec::new();
    for (buffer, name) in NAMED {
        if let Some(bytes) = parts.of(buffer) {
            own.push((name.into(), value(bytes)));
        }
    }
    let cookie = if is_request { "Cookie" } else { "Set-Cookie" };
    for buffer in [Buffer::HttpCookie, Buffer::HttpCookieRaw] {
        own.extend(parts.of(buffer).map(|bytes| (cookie.into(), value(bytes))));
    }
    let mut lines: Vec<Header> = Vec::new();
    for text in [parts.of(Buffer::HttpHeader), parts.of(Buffer::HttpHeaderRaw)]
        .into_iter()
        .flatten()
    {
        for (at, line) in split(text, b"\r\n")
            .into_iter()
            .enumerate()
            .filter(|(_, line)| !line.is_empty())
        {
            let colon = line.iter().position(|byte| *byte == b':');
            let is_name = |name: &[u8]| !name.is_empty() && name.iter().all(u8::is_ascii_graphic);
            match colon {
                None if at > 0 && is_name(line) => lines.push(([line, b"a"].concat(), b" x".to_vec())),
                Some(0) => lines.push((b"X-Text".to_vec(), line[1..].to_vec())),
                Some(colon)
                    if is_name(&line[..colon])
                        && (at > 0 || text.starts_with(b"\r\n") || random.below(4) > 0) =>
                {
                    lines.push((line[..colon].to_vec(), line[colon + 1..].to_vec()));
                }
                _ => {
                    let name: &[u8] = random.choose(&[b"User-Agent", b"X-Text", b"Content-Type", b"X-Text"]);
                    lines.push((name.to_vec(), value(line)));
                }
            }
        }
    }
    for (_, value) in own.iter_mut().chain(&mut lines) {
        // Parsers take all trailing carriage returns as part of the line end.
        while value.last() == Some(&b'\r') {
            value.pop();
        }
        if value.len() > 1 && value.last() == Some(&b' ') {
            value.push(b'x');
        }
    }
    let is_same = |a: &[u8], b: &[u8]| a.eq_ignore_ascii_case(b);
    own.retain(|(name, _)| !lines.iter().any(|(other, _)| is_same(name, other)));
    let mut all = match random.one_in(2) {
        true => [lines, own].concat(),
        false => [own, lines].concat(),
    };
    let has = |all: &[Header], name: &str| all.iter().any(|(other, _)| is_same(other, name.as_bytes()));
    let names = parts.of(Buffer::HttpHeaderNames);
    if is_request && !has(&all, "Host") && (names.is_none() || random.one_in(2)) && random.below(8) > 0 {
        let at = if random.one_in(2) { 0 } else { all.len() };
        all.insert(at, (b"Host".to_vec(), b" host.example".to_vec()));
    }
    if let Some(names) = names {
        let mut ordered: Vec<Header> = Vec::new();
        for name in split(names, b"\r\n").into_iter().filter(|name| !name.is_empty()) {
            let known = all.iter().position(|(other, _)| is_same(other, name));
            let value = match known {
                Some(at) => all.remove(at).1,
                None if is_same(name, b"Content-Length") => format!(" {body}").into_bytes(),
                None if is_same(name, b"Host") => b" host.example".to_vec(),
                None => b" x".to_vec(),
            };
            ordered.push((name.to_vec(), value));
        }
        all = match random.one_in(2) {
            true => [all, ordered].concat(),
            false => [ordered, all].concat(),
        };
    }
    if !has(&all, "Content-Length") && !has(&all, "Transfer-Encoding") && (body > 0 || !is_request) {
        let at = if random.one_in(2) { 0 } else { all.len() };
        all.insert(at, (b"Content-Length".to_vec(), format!(" {body}").into_bytes()));
    }
    all
}

/// Splits a text at a separator.
pub(crate) fn split<'a>(text: &'a [u8], separator: &[u8]) -> Vec<&'a [u8]> {
    let mut pieces = Vec::new();
    let mut from = 0;
    while let Some(at) = text[from..]
        .windows(separator.len())
        .position(|window| window == separator)
    {
        pieces.push(&text[from..from + at]);
        from += at + separator.len();
    }
    pieces.push(&text[from..]);
    pieces
}

fn message(first: Vec<u8>, headers: Vec<Header>, body: &[u8]) -> Vec<u8> {
    let mut bytes = first;
    bytes.extend(b"\r\n");
    for (name, value) in headers {
        bytes.extend([&name[..], b":", &value, b"\r\n"].concat());
    }
    bytes.extend(b"\r\n");
    bytes.extend(body);
    bytes
}

/// Returns the URI whose normalised form is `text`.
fn encoded(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    for byte in text {
        match byte {
            b'%' | b'\\' | 0..=b' ' | 0x7f..=0xff => out.extend(format!("%{byte:02x}").bytes()),
            byte => out.push(*byte),
        }
    }
    out
}

/// Returns a request whose raw bytes contain `payload`.
pub(crate) fn request(parts: &Parts, payload: &[u8], random: &mut Random) -> Vec<u8> {
    let is_alone = parts.is_empty();
    if is_alone && payload.first().is_some_and(u8::is_ascii_uppercase) && !payload.is_empty() {
        let mut bytes = payload.to_vec();
        if !payload.windows(4).any(|window| window == b"\r\n\r\n") {
            let has_line = payload.windows(2).any(|window| window == b"\r\n");
            let is_line = payload.windows(6).any(|window| window == b" HTTP/");
            bytes.extend(match (has_line, is_line) {
                (true, _) if payload.ends_with(b"\r\n") => &b"\r\n"[..],
                (true, _) | (false, true) => b"\r\n\r\n",
                (false, false) => b" HTTP/1.1\r\nHost: a\r\n\r\n",
            });
        }
        return bytes;
    }
    // A payload that begins with a method is the beginning of the request.
    let (own_method, own_line, payload) = beginning(payload);
    let file = parts.of(Buffer::FileData);
    let body = [
        parts.of(Buffer::HttpRequestBody).or(file).unwrap_or_default(),
        payload,
    ]
    .concat();
    let default: &[u8] = if body.is_empty() { b"GET" } else { b"POST" };
    let default = own_method.as_deref().unwrap_or(default);
    let method = parts.of(Buffer::HttpMethod).unwrap_or(default);
    let mut uri = match parts.of(Buffer::HttpUri) {
        Some(uri) => encoded(uri),
        None => Vec::new(),
    };
    if let Some(raw) = parts.of(Buffer::HttpUriRaw) {
        match random.below(3) {
            0 => uri = raw.to_vec(),
            1 => uri = [raw, &uri].concat(),
            _ => uri.extend(raw),
        }
    }
    if uri.is_empty() || uri[0] != b'/' && random.below(4) > 0 && !uri.starts_with(b"http") {
        uri.insert(0, b'/');
    }
    let protocol = parts.of(Buffer::HttpProtocol).unwrap_or(b"HTTP/1.1");
    let mut first = match parts.of(Buffer::HttpRequestLine) {
        None if own_line.is_some() => line(own_line.unwrap_or_default(), method, &uri, random),
        Some(text) => line(text, method, &uri, random),
        None => [method, b" ", &uri, b" ", protocol].concat(),
    };
    let mut headers = headers(parts, true, body.len(), random);
    if let Some(start) = parts.of(Buffer::HttpStart) {
        let mut lines = split(start, b"\r\n").into_iter();
        let top = lines.next().unwrap_or_default();
        // The text may be the end of the first line, or lines below it.
        if top.contains(&b' ') && (!top.contains(&b':') || top.windows(6).any(|it| it == b" HTTP/")) {
            first = line(top, method, &uri, random);
        } else if !top.is_empty() {
            lines = split(start, b"\r\n").into_iter();
        }
        let mut own: Vec<Header> = Vec::new();
        for line in lines.filter(|line| !line.is_empty()) {
            let (name, rest) = match line.iter().position(|byte| *byte == b':') {
                Some(colon) => (&line[..colon], line[colon + 1..].to_vec()),
                None => (line, b" x".to_vec()),
            };
            let rest = if rest.iter().all(|byte| *byte == b' ') {
                b" host.example".to_vec()
            } else {
                rest
            };
            own.push((name.to_vec(), rest));
        }
        headers.retain(|(name, _)| !own.iter().any(|(other, _)| other.eq_ignore_ascii_case(name)));
        headers = [own, headers].concat();
    }
    message(first, headers, &body)
}

/// Splits the method, or a line that continues after the method, from the beginning of a payload.
fn beginning(payload: &[u8]) -> (Option<Vec<u8>>, Option<&[u8]>, &[u8]) {
    let blank = payload.iter().position(|byte| *byte == b' ').unwrap_or(0);
    let (word, rest) = payload.split_at(blank);
    let method = word.to_ascii_uppercase();
    let known: [&[u8]; 5] = [b"GET", b"POST", b"HEAD", b"PUT", b"OPTIONS"];
    if !known.contains(&&method[..]) {
        return (None, None, payload);
    }
    match rest.get(1) {
        Some(b'/') => {
            let end = payload.windows(2).position(|pair| pair == b"\r\n");
            let (line, rest) = payload.split_at(end.unwrap_or(payload.len()));
            (
                Some(method),
                Some(line),
                rest.strip_prefix(b"\r\n").unwrap_or(rest),
            )
        }
        _ => (Some(method), None, rest.get(1..).unwrap_or_default()),
    }
}

/// Returns a request line that contains a text.
fn line(text: &[u8], method: &[u8], uri: &[u8], random: &mut Random) -> Vec<u8> {
    let is_method = |word: &[u8]| !word.is_empty() && word.iter().all(u8::is_ascii_uppercase);
    let word = text.split(|byte| *byte == b' ').next().unwrap_or_default();
    let mut line = match (is_method(word) && text.contains(&b' '), text.first()) {
        (true, _) => text.to_vec(),
        // The text begins with the end of the URI, or with all of it.
        (false, Some(b'/')) if random.one_in(2) => [method, b" ", text].concat(),
        (false, Some(b' ')) => [method, b" ", uri, text].concat(),
        (false, _) => {
            let head = text.split(|byte| *byte == b' ').next().unwrap_or_default();
            let kept = uri.strip_suffix(head).unwrap_or(uri);
            [method, b" ", kept, text].concat()
        }
    };
    match line.windows(6).position(|window| window == b" HTTP/") {
        None if line.ends_with(b" ") => line.extend(b"HTTP/1.1"),
        None => line.extend(b" HTTP/1.1"),
        Some(at) => {
            let version = line.split_off(at + 6);
            let is_known = version == b"1.1" || version == b"1.0";
            line.extend(if is_known { &version[..] } else { b"1.1" });
        }
    }
    line
}

/// Returns a response whose raw bytes contain `payload`.
pub(crate) fn response(parts: &Parts, payload: &[u8], random: &mut Random) -> Vec<u8> {
    if payload.starts_with(b"HTTP/") && parts.is_empty() {
        let end: &[u8] = match payload.windows(4).any(|window| window == b"\r\n\r\n") {
            true => b"",
            false => b"\r\n\r\n",
        };
        return [payload, end].concat();
    }
    let file = parts.of(Buffer::FileData);
    let body = [
        parts.of(Buffer::HttpResponseBody).or(file).unwrap_or_default(),
        payload,
    ]
    .concat();
    if let Some(start) = parts.of(Buffer::HttpStart) {
        let end: &[u8] = if start.ends_with(b"\r\n\r\n") {
            b""
        } else {
            b"\r\n\r\n"
        };
        return [start, end, &body].concat();
    }
    let code = parts.of(Buffer::HttpStatCode).unwrap_or(b"200");
    let text = parts.of(Buffer::HttpStatMsg).unwrap_or(b"OK");
    let protocol = parts.of(Buffer::HttpProtocol).unwrap_or(b"HTTP/1.1");
    let first = match parts.of(Buffer::HttpResponseLine) {
        Some(line) if line.starts_with(b"HTTP/") => line.to_vec(),
        Some(line) => [b"HTTP/1.1 200 ", line].concat(),
        None => [protocol, b" ", code, b" ", text].concat(),
    };
    message(first, headers(parts, false, body.len(), random), &body)
}
