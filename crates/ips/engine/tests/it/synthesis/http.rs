//! Requests and responses of HTTP/1.1 that have given parts.

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

type Header = (Vec<u8>, Vec<u8>);

/// Returns the headers of a message with a body of this size, in their order.
fn headers(parts: &Parts, is_request: bool, body: usize, random: &mut Random) -> Vec<Header> {
    let mut own: Vec<Header> = Vec::new();
    for (buffer, name) in NAMED {
        if let Some(value) = parts.of(buffer) {
            own.push((name.into(), value.to_vec()));
        }
    }
    let cookie = if is_request { "Cookie" } else { "Set-Cookie" };
    for buffer in [Buffer::HttpCookie, Buffer::HttpCookieRaw] {
        own.extend(parts.of(buffer).map(|value| (cookie.into(), value.to_vec())));
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
                None if at > 0 && is_name(line) => lines.push(([line, b"a"].concat(), b"x".to_vec())),
                Some(0) => lines.push((b"X-Text".to_vec(), line[1..].trim_ascii_start().to_vec())),
                Some(colon)
                    if is_name(&line[..colon])
                        && (at > 0 || text.starts_with(b"\r\n") || random.below(4) > 0) =>
                {
                    let value = line[colon + 1..].strip_prefix(b" ").unwrap_or(&line[colon + 1..]);
                    lines.push((line[..colon].to_vec(), value.to_vec()));
                }
                _ => {
                    let name: &[u8] = random.choose(&[b"User-Agent", b"X-Text", b"Content-Type", b"X-Text"]);
                    lines.push((name.to_vec(), line.to_vec()));
                }
            }
        }
    }
    // Blanks at the ends of a value are no part of it.
    for (_, value) in own.iter_mut().chain(&mut lines) {
        if value.first() == Some(&b' ') {
            value.insert(0, b'x');
        }
        if value.last() == Some(&b' ') {
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
        all.insert(at, (b"Host".to_vec(), b"host.example".to_vec()));
    }
    if let Some(names) = names {
        let mut ordered: Vec<Header> = Vec::new();
        for name in split(names, b"\r\n").into_iter().filter(|name| !name.is_empty()) {
            let known = all.iter().position(|(other, _)| is_same(other, name));
            let value = match known {
                Some(at) => all.remove(at).1,
                None if is_same(name, b"Content-Length") => body.to_string().into_bytes(),
                None if is_same(name, b"Host") => b"host.example".to_vec(),
                None => b"x".to_vec(),
            };
            ordered.push((name.to_vec(), value));
        }
        all = match random.one_in(2) {
            true => [all, ordered].concat(),
            false => [ordered, all].concat(),
        };
    }
    if !has(&all, "Content-Length") && !has(&all, "Transfer-Encoding") && (body > 0 || !is_request) {
        all.push((b"Content-Length".to_vec(), body.to_string().into_bytes()));
    }
    all
}

/// Splits a text at a separator.
fn split<'a>(text: &'a [u8], separator: &[u8]) -> Vec<&'a [u8]> {
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
        bytes.extend([&name[..], b": ", &value, b"\r\n"].concat());
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

/// Returns a request; `payload` is what the raw bytes must have.
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
    let file = parts.of(Buffer::FileData);
    let body = [
        parts.of(Buffer::HttpRequestBody).or(file).unwrap_or_default(),
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
    let default: &[u8] = if body.is_empty() { b"GET" } else { b"POST" };
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
    let first = match parts.of(Buffer::HttpRequestLine) {
        Some(line) if line.windows(6).any(|window| window == b" HTTP/") => line.to_vec(),
        Some(line) if random.one_in(2) => [line, b" HTTP/1.1"].concat(),
        Some(line) => [method, b" /", line, b" HTTP/1.1"].concat(),
        None => [method, b" ", &uri, b" ", protocol].concat(),
    };
    message(first, headers(parts, true, body.len(), random), &body)
}

/// Returns a response; `payload` is what the raw bytes must have.
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
