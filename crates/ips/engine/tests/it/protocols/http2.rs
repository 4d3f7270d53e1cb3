//! HTTP/2 in clear: the keywords of HTTP hold on its streams, and those of DNS on messages that it carries.

use super::{Case, Message, client, server};

pub(crate) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const PUSH_PROMISE: u8 = 5;
const CONTINUATION: u8 = 9;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
const PADDED: u8 = 8;

/// Returns a frame (RFC 9113, section 4.1).
pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let size = (payload.len() as u32).to_be_bytes();
    [&size[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// Returns a header block of literal fields that enter no table (RFC 7541, section 6.2.2).
pub(crate) fn block(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut out = Vec::new();
    for (name, value) in fields {
        out.push(0);
        for text in [name, value] {
            out.push(text.len() as u8);
            out.extend_from_slice(text.as_bytes());
        }
    }
    out
}

fn request(path: &str) -> Vec<u8> {
    block(&[
        (":method", "GET"),
        (":scheme", "http"),
        (":path", path),
        (":authority", "Example.com:8080"),
        ("user-agent", "tests"),
        ("cookie", "a=b"),
        ("cookie", "c=d"),
    ])
}

pub(super) fn http2_case() -> Case {
    let first = request("/a/%66ile.exe?x=y");
    let (head, tail) = first.split_at(20);
    let answer = block(&[
        (":status", "200"),
        ("content-type", "text/plain"),
        ("server", "tests"),
    ]);
    let padded = [&[3][..], b"MZ half", &[0; 3]].concat();
    Case {
        protocol: "http",
        is_udp: false,
        port: 80,
        messages: vec![
            client([PREFACE, &frame(SETTINGS, 0, 0, &[])].concat()),
            server(frame(SETTINGS, 0, 0, &[])),
            client(
                [
                    // The header block is in two frames; another stream begins before the first is answered.
                    frame(HEADERS, END_STREAM, 1, head),
                    frame(CONTINUATION, END_HEADERS, 1, tail),
                    frame(
                        HEADERS,
                        END_HEADERS,
                        3,
                        &block(&[(":method", "POST"), (":path", "/form"), ("x-odd", "1")]),
                    ),
                    frame(DATA, END_STREAM, 3, b"name=value"),
                ]
                .concat(),
            ),
            server(
                [
                    // A request that the server promises, on the stream 2.
                    frame(
                        PUSH_PROMISE,
                        END_HEADERS,
                        3,
                        &[
                            &[0, 0, 0, 2][..],
                            &block(&[(":method", "GET"), (":path", "/pushed"), ("x-push", "1")]),
                        ]
                        .concat(),
                    ),
                    frame(HEADERS, END_HEADERS, 3, &block(&[(":status", "404")])),
                    frame(HEADERS, END_HEADERS, 1, &answer),
                    frame(DATA, PADDED, 1, &padded),
                    frame(DATA, END_STREAM, 3, b"no such page"),
                    frame(DATA, END_STREAM, 1, b" and half"),
                ]
                .concat(),
            ),
        ],
        hold: vec![
            "http.method; content:\"GET\";",
            "http.uri; content:\"/a/file.exe\";",
            "http.uri.raw; content:\"/a/%66ile.exe\";",
            "http.host; content:\"example.com\"; endswith; startswith;",
            "http.user_agent; content:\"tests\";",
            "http.cookie; content:\"a=b|3b 20|c=d\";",
            "http.header; content:\"user-agent|3a 20|tests\";",
            "http.protocol; content:\"HTTP/2\";",
            "http.request_line; content:\"GET /a/%66ile.exe?x=y HTTP/2\";",
            "http.request_body; content:\"name=value\";",
            "http.stat_code; content:\"404\";",
            "http.server; content:\"tests\";",
            "http.content_type; content:\"text/plain\";",
            "file.data; content:\"MZ half and half\";",
            "file.name; content:\"file.exe\";",
            "filemagic:\"executable\";",
            "http2.header_name; content:\"x-odd\";",
            "http2.header; content:\"agent: tests\";",
            "http2.header; content:\"::authority: Example.com::8080\"; startswith; endswith;",
            "flow:to_client; http2.header_name; content:\"x-push\";",
            "http.uri; content:\"/form\"; http.method; content:\"POST\";",
        ],
        fail: vec![
            // Each condition holds on another stream.
            "http.uri; content:\"/form\"; http.method; content:\"GET\";",
            "http.uri; content:\"/a/file.exe\"; http.request_body; content:\"name\";",
            "http.stat_code; content:\"404\"; file.data; content:\"MZ\";",
            "http2.header_name; content:\"x-other\";",
            "http2.header; content:\"agent: other\";",
            "http2.header; content:\"GET\"; content:\"authority\";",
            "http.uri; content:\"/pushed\";",
            "flow:to_server; http2.header_name; content:\"x-push\";",
            "http.request_body; content:\"MZ\";",
        ],
    }
}

/// Returns an upgrade to HTTP/2 whose server answers the request at once, on the stream 1, and the messages that follow it.
pub(crate) fn upgraded(body: &[u8]) -> Vec<Message> {
    let request = "POST /a/%66ile.exe?x=y HTTP/1.1\r\nHost: Example.com:8080\r\nConnection: Upgrade, HTTP2-Settings\r\n\
        Upgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\nContent-Length: 4\r\nX-Odd: 1\r\n\r\nsent";
    let switching = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n";
    let answer = block(&[
        (":status", "203"),
        ("content-type", "text/plain"),
        ("server", "tests"),
    ]);
    let data = body.chunks(16_000).map(|part| frame(DATA, 0, 1, part));
    let response = [
        &switching[..],
        &frame(SETTINGS, 0, 0, &[0, 3, 0, 0, 0, 100]),
        &frame(HEADERS, END_HEADERS, 1, &answer),
        &data.collect::<Vec<_>>().concat(),
        &frame(DATA, END_STREAM, 1, b""),
    ];
    let second = block(&[(":method", "GET"), (":path", "/second")]);
    vec![
        client(request),
        server(response.concat()),
        client(
            [
                PREFACE,
                &frame(SETTINGS, 0, 0, &[]),
                &frame(HEADERS, END_HEADERS | END_STREAM, 3, &second),
            ]
            .concat(),
        ),
        server(frame(
            HEADERS,
            END_HEADERS | END_STREAM,
            3,
            &block(&[(":status", "404")]),
        )),
    ]
}

pub(super) fn upgrade_case() -> Case {
    Case {
        protocol: "http2",
        is_udp: false,
        port: 80,
        messages: upgraded(b"MZ of the first stream"),
        hold: vec![
            "http.method; content:\"POST\";",
            "http.uri; content:\"/a/file.exe?x=y\"; startswith; endswith;",
            "http.uri.raw; content:\"/a/%66ile.exe\";",
            "http.protocol; content:\"HTTP/2\"; flow:to_server;",
            "http.host; content:\"example.com\"; startswith; endswith;",
            "http.header; content:\"X-Odd|3a 20|1|0d 0a|\";",
            "http.uri; content:\"file.exe\"; http.header; content:\"h2c\"; http.request_body; content:\"sent\";",
            "http2.header_name; content:\"X-Odd\";",
            "http.stat_code; content:\"203\"; http.server; content:\"tests\"; file.data; content:\"MZ of\";",
            "file.name; content:\"file.exe\";",
            "http.uri; content:\"/second\";",
            "http.stat_code; content:\"404\";",
        ],
        fail: vec![
            "http.stat_code; content:\"101\";",
            "http.uri; content:\"/second\"; http.method; content:\"POST\";",
            "http.stat_code; content:\"404\"; file.data; content:\"MZ\";",
            "http.protocol; content:\"HTTP/1\";",
        ],
    }
}

/// A query for example.com in the path, and its answer with the address 192.0.2.1 in a body (RFC 8484, section 4).
pub(super) fn dns_case() -> Case {
    const QUERY: &str = "AAABAAABAAAAAAAAB2V4YW1wbGUDY29tAAABAAE";
    let answer = b"\0\0\x81\x80\0\x01\0\x01\0\0\0\0\x07example\x03com\0\0\x01\0\x01\xc0\x0c\0\x01\0\x01\0\0\0\x3c\0\x04\xc0\0\x02\x01";
    Case {
        protocol: "dns",
        is_udp: false,
        port: 80,
        messages: vec![
            client(
                [
                    PREFACE,
                    &frame(
                        HEADERS,
                        END_HEADERS | END_STREAM,
                        1,
                        &block(&[
                            (":method", "GET"),
                            (":path", &format!("/dns-query?ct&dns={QUERY}")),
                        ]),
                    ),
                ]
                .concat(),
            ),
            server(
                [
                    frame(
                        HEADERS,
                        END_HEADERS,
                        1,
                        &block(&[(":status", "200"), ("content-type", "application/dns-message")]),
                    ),
                    frame(DATA, END_STREAM, 1, answer),
                ]
                .concat(),
            ),
        ],
        hold: vec![
            "dns.query; content:\"example.com\";",
            "dns.answers.rrname; content:\"example.com\";",
            "dns.rcode:0;",
        ],
        fail: vec!["dns.query; content:\"example.org\";", "dns.rcode:3;"],
    }
}

/// Returns the case of rules of DNS over HTTP/2.
pub(super) fn doh2_case() -> Case {
    Case {
        protocol: "doh2",
        hold: vec![
            "dns.query; content:\"example.com\";",
            "dns.rcode:0;",
            "http.uri; content:\"/dns-query\";",
            "http.stat_code; content:\"200\";",
            "app-layer-protocol:doh2;",
            "app-layer-protocol:http2;",
        ],
        fail: vec!["dns.rcode:3;", "http.uri; content:\"/other\";"],
        ..dns_case()
    }
}

/// Returns the flow that raises an anomaly of HTTP/2.
pub(super) fn anomaly(event: &str) -> Vec<Message> {
    let messages = |frames: &[Vec<u8>]| vec![client([PREFACE, &frames.concat()].concat())];
    let headers =
        |flags, stream, fields: &[(&str, &str)]| frame(HEADERS, END_HEADERS | flags, stream, &block(fields));
    let get = |fields: &[(&str, &str)]| {
        let fields = [&[(":method", "GET"), (":path", "/")], fields].concat();
        messages(&[headers(END_STREAM, 1, &fields)])
    };
    let dns = |method| [(method, "POST"), ("content-type", "application/dns-message")];
    let data: Vec<Vec<u8>> = (0..5).map(|_| frame(DATA, 0, 1, &[0; 16 << 10])).collect();
    match event {
        "authority_host_mismatch" => get(&[(":authority", "a.example"), ("host", "b.example")]),
        "data_stream_zero" => messages(&[frame(DATA, 0, 0, b"x")]),
        "dns_request_too_long" => messages(&[headers(0, 1, &dns(":method")), data.concat()]),
        "dns_response_too_long" => {
            let mut messages = get(&[]);
            messages.push(server([headers(0, 1, &dns(":status")), data.concat()].concat()));
            messages
        }
        "invalid_client_magic" => vec![client(b"PRI * HTTP/2.0\r\n\r\nSM bytes")],
        "invalid_frame_data" => messages(&[frame(DATA, PADDED, 1, &[9, 1])]),
        "invalid_frame_header" => messages(&[frame(CONTINUATION, 0, 1, b"x")]),
        "invalid_header" => messages(&[frame(HEADERS, END_HEADERS, 1, &[0xff, 0x7f])]),
        "reassembly_limit_reached" => {
            let parts = (0..5).map(|_| frame(CONTINUATION, 0, 1, &[0x82; 16 << 10]));
            messages(&[vec![frame(HEADERS, 0, 1, &[0x82])], parts.collect()].concat())
        }
        "stream_id_reuse" => {
            let mut messages = get(&[]);
            messages.push(client(frame(DATA, 0, 1, b"more")));
            messages
        }
        "too_many_streams" => {
            let open = |stream: u32| headers(0, 2 * stream + 1, &[(":method", "GET"), (":path", "/")]);
            messages(&(0..129_u32).map(open).collect::<Vec<_>>())
        }
        "userinfo_in_uri" => get(&[(":authority", "user@example.com")]),
        _ => Vec::new(),
    }
}
