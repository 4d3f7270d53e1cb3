//! Each anomaly that a rule may name is raised by some flow: no rule over `app-layer-event` loads and can never match.

use millrace_ips_engine::Mode;
use millrace_ips_engine::app::EVENTS;
use millrace_ips_engine::detect::CompileSettings;

use crate::fields::link_frame;
use crate::frames::{alerts, rules, tcp, udp};
use crate::protocols;
use crate::synthesis::dns::message;
use crate::synthesis::tls::Handshake;

/// A message, and true if the server sends it.
type Message = (bool, Vec<u8>);

fn client(bytes: impl Into<Vec<u8>>) -> Message {
    (false, bytes.into())
}

fn server(bytes: impl Into<Vec<u8>>) -> Message {
    (true, bytes.into())
}

/// Returns a flow that raises an anomaly of HTTP.
fn http(event: &str) -> Vec<Message> {
    let request = |head: &str| vec![client(format!("POST /x HTTP/1.1\r\nHost: a\r\n{head}"))];
    let response = |text: &str| vec![client("GET /x HTTP/1.1\r\nHost: a\r\n\r\n"), server(text)];
    let headers = |text: &str| response(&format!("HTTP/1.1 200 OK\r\n{text}"));
    let first_line = |line: &str| vec![client(format!("{line}\r\nHost: a\r\n\r\n"))];
    let form = |body: &str| {
        let size = body.len();
        let kind = "Content-Type: multipart/form-data; boundary=b\r\n";
        request(&format!("{kind}Content-Length: {size}\r\n\r\n{body}"))
    };
    match event {
        "100_continue_already_seen" => {
            response("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No\r\n\r\n")
        }
        "abnormal_ce_header" => headers("Content-Encoding: compress\r\nContent-Length: 1\r\n\r\nx"),
        "ambiguous_body" => response("HTTP/1.1 304 No\r\nContent-Length: 4\r\n\r\nbody"),
        "ambiguous_chunk" => request("Transfer-Encoding: chunked\r\n\r\n1\nx\r\n0\r\n\r\n"),
        "ambiguous_content_encoding" => headers("Content-Encoding: xgzip\r\nContent-Length: 1\r\n\r\nx"),
        "ambiguous_content_length" => request("Content-Length: 1, 2\r\n\r\nxx"),
        "ambiguous_header_end" => request(" \r\n\r\n"),
        "ambiguous_header_name" => request("Content_Length: 1\r\n\r\n"),
        "ambiguous_header_value" => request("X: \0\r\n\r\n"),
        "ambiguous_line_end" => request("X: y\n\r\n"),
        "ambiguous_start_line" => first_line("GET /a b HTTP/1.1"),
        "ambiguous_transfer_encoding" => request("Transfer-Encoding: xchunked\r\n\r\n"),
        "compression_bomb" => {
            let gzip = |data: &[u8]| {
                let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
                std::io::Write::write_all(&mut encoder, data).unwrap();
                encoder.finish().unwrap()
            };
            let body = gzip(&gzip(&vec![0; 32 << 20]));
            let head = format!(
                "HTTP/1.1 200 OK\r\nContent-Encoding: gzip, gzip\r\nContent-Length: {}\r\n\r\n",
                body.len()
            );
            vec![
                client("GET /x HTTP/1.1\r\nHost: a\r\n\r\n"),
                server([head.into_bytes(), body].concat()),
            ]
        }
        "ambiguous_tunnel" => vec![
            client("CONNECT a:1 HTTP/1.1\r\nHost: a\r\n\r\n"),
            client("GET / HTTP/1.1\r\n\r\n"),
        ],
        "double_encoded_uri" => first_line("GET /%2561 HTTP/1.1"),
        "file_name_too_long" => {
            let name = "n".repeat(2000);
            headers(&format!(
                "Content-Disposition: attachment; filename={name}\r\nContent-Length: 1\r\n\r\nx"
            ))
        }
        "invalid_authority_port" => first_line("GET http://a:99999/ HTTP/1.1"),
        "invalid_server_port_in_request" => vec![client("GET / HTTP/1.1\r\nHost: a:99999\r\n\r\n")],
        "invalid_transfer_encoding_value_in_response" => headers("Transfer-Encoding: zip\r\n\r\nx"),
        "multipart_no_filedata" => {
            form("--b\r\nContent-Disposition: form-data; name=\"f\"; filename=\"f\"\r\n\r\n\r\n--b--\r\n")
        }
        "range_invalid" => headers("Content-Range: bytes 9-1/5\r\nContent-Length: 1\r\n\r\nx"),
        "request_auth_unrecognized" => request("Authorization: NTLM a\r\nContent-Length: 0\r\n\r\n"),
        "request_line_incomplete" => vec![client("GET /x HTTP/1.1")],
        "request_line_invalid" => request("Content-Length: 0\r\n\r\nG(T / HTTP/1.1\r\nHost: a\r\n\r\n"),
        "request_server_port_tcp_port_mismatch" => {
            vec![client("GET / HTTP/1.1\r\nHost: a:8080\r\n\r\n")]
        }
        "response_multipart_byteranges" => {
            headers("Content-Type: multipart/byteranges; boundary=b\r\nContent-Length: 1\r\n\r\nx")
        }
        "duplicate_content_length_field_in_request" => {
            request("Content-Length: 1\r\nContent-Length: 2\r\n\r\nxx")
        }
        "duplicate_content_length_field_in_response" => {
            headers("Content-Length: 1\r\nContent-Length: 2\r\n\r\nxx")
        }
        "gzip_decompression_failed" => headers("Content-Encoding: gzip\r\nContent-Length: 5\r\n\r\nplain"),
        "request_header_host_invalid" => vec![client("GET / HTTP/1.1\r\nHost: a b\r\n\r\n")],
        "host_header_ambiguous" => vec![client("GET http://b/ HTTP/1.1\r\nHost: a\r\n\r\n")],
        "invalid_content_length_field_in_request" => request("Content-Length: x\r\n\r\n"),
        "invalid_content_length_field_in_response" => headers("Content-Length: x\r\n\r\n"),
        "invalid_request_chunk_len" => request("Transfer-Encoding: chunked\r\n\r\nzz\r\n"),
        "invalid_request_field_folding" => vec![client("GET / HTTP/1.1\r\n X: y\r\nHost: a\r\n\r\n")],
        "invalid_response_chunk_len" => headers("Transfer-Encoding: chunked\r\n\r\nzz\r\n"),
        "invalid_response_field_folding" => headers(" X: y\r\nContent-Length: 0\r\n\r\n"),
        "invalid_transfer_encoding_value_in_request" => request("Transfer-Encoding: zip\r\n\r\n"),
        "method_delim_non_compliant" => first_line("GET\t/ HTTP/1.1"),
        "missing_host_header" => vec![client("GET / HTTP/1.1\r\n\r\n")],
        "multipart_generic_error" => {
            form("--b\nContent-Disposition: form-data; name=\"f\"; filename=\"f\"\n\nx\n--b--\n")
        }
        "multipart_invalid_header" => form(&format!("--b\r\n{}", "x".repeat(200_000))),
        "multipart_too_many_files" => {
            let part = "--b\r\nContent-Disposition: form-data; name=\"f\"; filename=\"f\"\r\n\r\nx\r\n";
            form(&(part.repeat(300) + "--b--\r\n"))
        }
        "request_body_unexpected" => request("Content-Length: 0\r\n\r\njunk\r\n"),
        "request_chunk_extension" => request("Transfer-Encoding: chunked\r\n\r\n1;a=b\r\nx\r\n0\r\n\r\n"),
        "request_field_missing_colon" => request("no colon\r\n\r\n"),
        "request_field_too_long" => request(&format!("X: {}", "y".repeat(20_000))),
        "request_header_invalid" => request("X@: y\r\n\r\n"),
        "request_header_repetition" => request("X: y\r\nX: z\r\n\r\n"),
        "request_line_leading_whitespace" => first_line(" GET / HTTP/1.1"),
        "request_line_missing_protocol" => first_line("GET /"),
        "request_too_many_headers" => {
            request(&((0..1100).map(|at| format!("X{at}: y\r\n")).collect::<String>() + "\r\n"))
        }
        "response_abnormal_transfer_encoding" => headers("Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n"),
        "response_body_unexpected" => headers("Content-Length: 0\r\n\r\njunk\r\n"),
        "response_chunk_extension" => headers("Transfer-Encoding: chunked\r\n\r\n1;a=b\r\nx\r\n0\r\n\r\n"),
        "response_chunked_old_proto" => {
            response("HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n")
        }
        "response_field_missing_colon" => headers("no colon\r\nContent-Length: 0\r\n\r\n"),
        "response_field_too_long" => headers(&format!("X: {}", "y".repeat(20_000))),
        "response_header_invalid" => headers("X@: y\r\nContent-Length: 0\r\n\r\n"),
        "response_header_repetition" => headers("X: y\r\nX: z\r\nContent-Length: 0\r\n\r\n"),
        "response_invalid_protocol" => response("HTTP/9.9 200 OK\r\nContent-Length: 0\r\n\r\n"),
        "response_invalid_status" => response("HTTP/1.1 xyz OK\r\nContent-Length: 0\r\n\r\n"),
        "response_too_many_headers" => {
            headers(&((0..1100).map(|at| format!("X{at}: y\r\n")).collect::<String>() + "\r\n"))
        }
        "too_many_encoding_layers" => {
            headers("Content-Encoding: gzip, gzip, gzip, gzip\r\nContent-Length: 1\r\n\r\nx")
        }
        "unable_to_match_response_to_request" => {
            let answer = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
            response(&answer.repeat(2))
        }
        "uri_delim_non_compliant" => first_line("GET /\tHTTP/1.1"),
        "request_uri_host_invalid" => first_line("GET http://a^b/ HTTP/1.1"),
        _ => Vec::new(),
    }
}

/// Returns a flow that raises an anomaly of SMTP.
fn smtp(event: &str) -> Vec<Message> {
    let commands = |commands: &str| vec![server("220 x\r\n"), client(commands)];
    let mail = |mail: &str| {
        let mut flow = vec![server("220 x\r\n")];
        for command in ["HELO a", "MAIL FROM:<a@a>", "RCPT TO:<b@b>"] {
            flow.extend([client(format!("{command}\r\n")), server("250 ok\r\n")]);
        }
        flow.extend([client("DATA\r\n"), server("354 go\r\n")]);
        flow.extend([client(format!("{mail}\r\n.\r\n")), server("250 ok\r\n")]);
        flow
    };
    let attachment = |coding: &str, body: &str| {
        let kind =
            "Content-Type: application/x; name=\"a\"\r\nContent-Disposition: attachment; filename=\"a\"";
        format!("{kind}\r\nContent-Transfer-Encoding: {coding}\r\n\r\n{body}\r\n")
    };
    match event {
        "bare_line_feed_at_end_of_mail" => mail("Subject: a\r\n\r\nbody\n.\nmore"),
        "bdat_chunk_len_exceeded" => commands("HELO a\r\nBDAT 99999999999999999999999\r\n"),
        "data_command_rejected" => {
            let mut flow = mail("");
            flow.truncate(8);
            flow.push(server("554 no\r\n"));
            flow
        }
        "invalid_pipelined_sequence" => {
            vec![
                server("220 x\r\n"),
                client("STARTTLS\r\nNOOP\r\n"),
                server("220 go\r\n"),
            ]
        }
        "invalid_reply" => vec![server("220 x\r\n"), client("HELO a\r\n"), server("xyz\r\n")],
        "max_command_line_len_exceeded" => commands(&"A".repeat(20_000)),
        "max_reply_line_len_exceeded" => {
            vec![
                server("220 x\r\n"),
                client("HELO a\r\n"),
                server("2".repeat(20_000)),
            ]
        }
        "mime_long_enc_line" => mail(&attachment("base64", &"QUJD".repeat(30))),
        "mime_long_header_name" => mail(&format!("{}: x\r\n\r\nx", "X".repeat(1200))),
        "mime_long_line" => mail(&format!("Subject: a\r\n\r\n{}", "x".repeat(1200))),
        "too_many_commands" => commands(&"NOOP\r\nBDAT 0\r\n".repeat(400)),
        "too_many_recipients" => commands(&"RCPT TO:<b@b>\r\n".repeat(3000)),
        "mime_bound_too_long" => mail(&format!(
            "Content-Type: multipart/mixed; boundary={}\r\n\r\nx",
            "b".repeat(500)
        )),
        "mime_invalid_base64" => mail(&attachment("base64", "QU*JD!!!RA=x=")),
        "mime_invalid_qp" => mail(&attachment("quoted-printable", "a=zz=b")),
        "mime_long_header_value" => mail(&format!(
            "{}\r\nx",
            "X: yyyyyyyyyyyyyyyyyyyyyyyyyyyyy\r\n".repeat(20_000)
        )),
        "mime_malformed_msg" => mail("Content-Type: multipart/mixed\r\n\r\nx"),
        "mime_too_many_attachments" => {
            let part = format!("--b\r\n{}", attachment("7bit", "x"));
            mail(&format!(
                "Content-Type: multipart/mixed; boundary=b\r\n\r\n{}--b--",
                part.repeat(300)
            ))
        }
        "no_server_welcome_message" => vec![
            client("HELO a\r\nMAIL FROM:<a@a>\r\n"),
            server("250 ok\r\n250 ok\r\n"),
        ],
        "tls_rejected" => vec![
            server("220 x\r\n"),
            client("STARTTLS\r\nNOOP\r\n"),
            server("454 no\r\n"),
        ],
        "unable_to_match_reply_with_request" => {
            vec![
                server("220 x\r\n"),
                client("HELO a\r\n"),
                server("250 ok\r\n250 ok\r\n"),
            ]
        }
        _ => Vec::new(),
    }
}

/// Returns a flow that raises an anomaly of TLS.
fn tls(event: &str) -> Vec<Message> {
    let handshake = Handshake {
        minor: 3,
        ..Handshake::default()
    };
    let hello = handshake.client();
    let behind = |record: &[u8]| vec![client([&hello, record].concat())];
    let message = |kind: u8, body: &[u8]| {
        let size = body.len() as u8;
        [&[22, 3, 3, 0, size + 4, kind, 0, 0, size], body].concat()
    };
    // A hello with one cipher suite and these extensions.
    let with_extensions = |extensions: &[u8]| {
        let size = extensions.len() as u8;
        let body = [
            &[3, 3][..],
            &[7; 32],
            &[0, 0, 2, 0, 0x9c, 1, 0, 0, size],
            extensions,
        ]
        .concat();
        vec![client(message(1, &body))]
    };
    let name = |kind: u8| vec![0, 0, 0, 6, 0, 4, kind, 0, 1, b'a'];
    match event {
        "certificate_invalid_length" => vec![client(hello), server(message(11, &[0, 0, 4, 0, 0, 9, 1]))],
        "dataleak_heartbeat_mismatch" => {
            let keys = [20, 3, 3, 0, 1, 1];
            let beat = |size: u8| [&keys[..], &[24, 3, 3, 0, size], &vec![9; usize::from(size)]].concat();
            vec![client([&hello, &beat(20)[..]].concat()), server(beat(60))]
        }
        "handshake_invalid_length" => behind(&[22, 3, 3, 0, 4, 1, 0xff, 0xff, 0xff]),
        "heartbeat_message" => behind(&[24, 3, 3, 0, 4, 1, 0, 1, 7]),
        "invalid_heartbeat_message" => behind(&[24, 3, 3, 0, 4, 9, 0, 1, 7]),
        "overflow_heartbeat_message" => behind(&[24, 3, 3, 0, 3, 1, 0x40, 0]),
        "invalid_sni_length" => with_extensions(&[0, 0, 0, 6, 0, 9, 0, 0, 1, b'a']),
        "error_message_encountered" => behind(&[21, 3, 3, 0, 2, 2, 40]),
        "invalid_certificate" => vec![client(hello), server(message(11, &[0, 0, 5, 0, 0, 2, 1, 1]))],
        "invalid_handshake_message" => behind(&message(1, &[3, 3])),
        "invalid_record_length" => behind(&[22, 3, 3, 0xff, 0xff, 1]),
        "invalid_record_type" => behind(&[99, 3, 3, 0, 1, 0]),
        "invalid_record_version" => behind(&[22, 9, 9, 0, 1, 0]),
        "invalid_sni_type" => with_extensions(&name(9)),
        "invalid_sslv2_header" => vec![client(hello), server([0x80, 3, 4, 0, 0, 0])],
        "multiple_sni_extensions" => with_extensions(&[name(0), name(0)].concat()),
        _ => Vec::new(),
    }
}

/// Returns a flow that raises an anomaly of DNS over UDP: a query, and a message of its client or of its server.
fn dns(event: &str) -> Vec<Message> {
    let query = message(b"a.example", false).unwrap();
    let header = |flags: [u8; 2]| [&[0, 9][..], &flags, &[0, 1, 0, 0, 0, 0, 0, 0]].concat();
    let with_name = |name: &[u8]| [&header([1, 0])[..], name, &[0, 1, 0, 1]].concat();
    let second = match event {
        "infinite_loop" => client(with_name(&[0xc0, 12])),
        "invalid_opcode" => client([&header([0x79, 0])[..], &query[12..]].concat()),
        "malformed_data" => client(header([1, 0])),
        "name_too_long" => {
            let label = [&[63][..], &[b'a'; 63]].concat();
            client(with_name(&[label.repeat(20), vec![0]].concat()))
        }
        "not_request" => client([&header([0x81, 0])[..], &query[12..]].concat()),
        "not_response" => server([&header([1, 0])[..], &query[12..]].concat()),
        "too_many_labels" => client(with_name(&[b"\x01a".repeat(300), vec![0]].concat())),
        "z_flag_set" => client([&header([1, 0x40])[..], &query[12..]].concat()),
        _ => return Vec::new(),
    };
    vec![client(query), second]
}

/// Returns a flow that raises an anomaly of another protocol.
fn other(protocol: &str, event: &str) -> Vec<Message> {
    const WRITE: &[u8] = b"\0\x07\0\0\0\x06\x01\x05\0\xac\xff\0";
    let frame = link_frame(b"\xc0\xc1\x01");
    let smb = |command: u8, next: u8| {
        let mut message = [&b"\xfeSMB\x40\0"[..], &[0; 58]].concat();
        (message[12], message[20]) = (command, next);
        message
    };
    let modbus = |function: u8, data: &[u8]| {
        let size = 2 + data.len() as u8;
        [&[0, 7, 0, 0, 0, size, 1, function][..], data].concat()
    };
    let session = |message: &[u8]| [&[0, 0, 0, message.len() as u8][..], message].concat();
    let frame_of = |first: u8, size: usize| {
        let masked = [
            first,
            0xff,
            0,
            0,
            0,
            0,
            0,
            (size >> 16) as u8,
            (size >> 8) as u8,
            size as u8,
        ];
        client([&masked[..], &[0; 4], &vec![b'x'; size]].concat())
    };
    let upgrade = || {
        let head = "Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
        vec![
            client(format!("GET / HTTP/1.1\r\nHost: a\r\n{head}")),
            server(format!("HTTP/1.1 101 Switching Protocols\r\n{head}")),
        ]
    };
    match (protocol, event) {
        ("ftp", "request_command_too_long") => {
            vec![
                server("220 x\r\n"),
                client(format!("USER {}\r\n", "a".repeat(5000))),
            ]
        }
        ("ftp", "response_command_too_long") => vec![
            server("220 x\r\n"),
            client("USER a\r\n"),
            server(format!("331 {}\r\n", "a".repeat(5000))),
        ],
        ("dnp3", "too_long_reassembly") => other("dnp3", "fragment_too_long"),
        ("modbus", "flooded") => vec![client(WRITE.repeat(70))],
        ("modbus", "invalid_exception_code") => vec![client(WRITE), server(modbus(0x85, &[9]))],
        ("modbus", "invalid_function_code") => vec![client(modbus(0, &[0, 1, 0, 1]))],
        ("modbus", "invalid_unit_identifier") => {
            let mut message = WRITE.to_vec();
            message[6] = 250;
            vec![client(message)]
        }
        ("modbus", "invalid_value") => vec![client(modbus(5, &[0, 1, 0x12, 0x34]))],
        ("modbus", "value_mismatch") => vec![client(WRITE), server(modbus(5, &[0, 0xac, 0, 0]))],
        ("smb", "request_to_client") => vec![client(session(&smb(0, 0))), server(session(&smb(0, 0)))],
        ("smb", "response_to_server") => {
            let mut answer = smb(0, 0);
            answer[16] = 1;
            vec![client(session(&answer))]
        }
        ("smb", "file_overlap") => {
            let write = [&smb(9, 0)[..], &[49, 0, 112, 0, 4, 0, 0, 0], &[0; 40], b"data"].concat();
            vec![client(session(&write).repeat(2))]
        }
        ("ssh", "long_kex_record") => vec![
            server("SSH-2.0-a\r\n"),
            client(b"SSH-2.0-b\r\n\0\0\x9c\x40\x04\x14"),
        ],
        ("websocket", "skip_end_of_payload") => [upgrade(), vec![frame_of(0x82, 100_000)]].concat(),
        ("websocket", "reassembly_limit_reached") => {
            [upgrade(), vec![frame_of(2, 60_000), frame_of(0x80, 60_000)]].concat()
        }
        ("applayer", "detect_protocol_only_one_direction") => {
            vec![client("GET / HTTP/1.1\r\nHost: a\r\n\r\n"), server("hello\r\n")]
        }
        ("applayer", "mismatch_protocol_both_directions") => {
            vec![
                client("GET / HTTP/1.1\r\nHost: a\r\n\r\n"),
                server("SSH-2.0-a\r\n"),
            ]
        }
        ("applayer", "wrong_direction_first_data") => vec![
            server("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"),
            client("GET / HTTP/1.1\r\nHost: a\r\n\r\n"),
        ],
        ("applayer", "proto_detection_skipped") => vec![client(vec![0xee; 9000])],
        ("applayer", "no_tls_after_starttls" | "unexpected_protocol") => vec![
            server("* OK x\r\n"),
            client("a STARTTLS\r\n"),
            server("a OK go\r\n"),
            client("GET / HTTP/1.1\r\nHost: a\r\n\r\n"),
        ],
        ("applayer", "inspection_incomplete") => vec![
            server("* OK x\r\n"),
            client("a STARTTLS\r\n"),
            server("a OK go\r\n"),
        ]
        .into_iter()
        .chain([client("EHLO a\r\n"), server("220 x\r\n")])
        .chain([client("RCPT TO:<b@b>\r\n".repeat(3000))])
        .collect(),
        ("dnp3", "bad_link_crc" | "bad_transport_crc") => {
            let mut wrong = frame.clone();
            wrong[if event == "bad_link_crc" { 8 } else { 11 }] ^= 1;
            vec![client([frame, wrong].concat())]
        }
        ("dnp3", "flooded") => vec![client(frame.repeat(501))],
        ("dnp3", "too_many_objects") => {
            let object = [60, 2, 6];
            let objects = [&[0xc1, 1][..], &object.repeat(2049)].concat();
            let segment = |(at, part): (usize, &[u8])| {
                let first = if at == 0 { 0x40 } else { 0 };
                let last = if (at + 1) * 15 >= objects.len() { 0x80 } else { 0 };
                link_frame(&[&[first | last | (at & 0x3f) as u8][..], part].concat())
            };
            vec![client(
                objects
                    .chunks(15)
                    .enumerate()
                    .flat_map(segment)
                    .collect::<Vec<u8>>(),
            )]
        }
        ("dnp3", "too_many_points") => {
            vec![client(
                [frame, link_frame(b"\xc2\xc1\x02\x1e\x01\x01\0\0\xff\xff")].concat(),
            )]
        }
        ("dnp3", "unknown_object") => {
            vec![client(
                [frame, link_frame(b"\xc2\xc1\x02\x56\x01\x07\x01\0")].concat(),
            )]
        }
        ("dnp3", "fragment_too_long") => {
            let segment = |at: u16| {
                let first = if at == 0 { 0x40 } else { 0 };
                link_frame(&[&[first | (at & 0x3f) as u8][..], &[1; 15]].concat())
            };
            vec![client((0..1200).flat_map(segment).collect::<Vec<u8>>())]
        }
        ("dnp3", "len_too_small") => vec![client([&frame[..], &[5, 0x64, 4, 0, 0, 0, 0, 0, 0, 0]].concat())],
        ("dnp3", "malformed") => vec![client([&frame[..], b"junk-junk-junk"].concat())],
        ("dnp3", "unexpected_segment") => vec![client([frame, link_frame(b"\x82\xc1\x01")].concat())],
        ("ftp", "too_many_commands") => vec![server("220 x\r\n"), client("NOOP\r\n".repeat(3000))],
        ("modbus", "exception") => vec![client(WRITE), server(b"\0\x07\0\0\0\x03\x01\x85\x02")],
        ("modbus", "invalid_length") => vec![client([WRITE, &[0, 8, 0, 0, 0, 0, 0, 0]].concat())],
        ("modbus", "invalid_protocol_id") => {
            vec![client(
                [WRITE, b"\0\x08\0\x01\0\x06\x01\x05\0\xac\xff\0"].concat(),
            )]
        }
        ("modbus", "unsolicited_response") => {
            vec![client(WRITE), server(b"\0\x09\0\0\0\x06\x01\x05\0\xac\xff\0")]
        }
        ("pop3", "reply_without_command") => {
            vec![server("+OK x\r\n"), client("NOOP\r\n"), server("+OK\r\n+OK\r\n")]
        }
        ("pop3", "unknown_command") => vec![server("+OK x\r\n"), client("XYZZY\r\n")],
        ("pop3", "incorrect_argument_count") => vec![server("+OK x\r\n"), client("TOP 1\r\n")],
        ("pop3", "too_many_commands") => vec![server("+OK x\r\n"), client("NOOP\r\n".repeat(1000))],
        ("smb", "malformed_data") => {
            let negotiate = [&[0, 0, 0, 64][..], &smb(0, 0)].concat();
            vec![client(
                [negotiate, [&[0, 0, 0, 40][..], &[b'x'; 40]].concat()].concat(),
            )]
        }
        ("smb", "record_overflow") => {
            let negotiate = [&[0, 0, 0, 64][..], &smb(0, 0)].concat();
            let large = [&[0, 0xff, 0xff, 0xff][..], &smb(9, 64), &[0; 100]].concat();
            vec![client([negotiate, large].concat())]
        }
        ("sip", "invalid_data") => vec![
            client("INVITE sip:bob@example.org SIP/2.0\r\nl: 0\r\n\r\n"),
            client("INVITE\r\n\r\n"),
        ],
        ("ssh", "invalid_banner") => vec![server("SSH-2.0-a\r\n"), client("SSH-x\r\n")],
        ("ssh", "invalid_record") => vec![
            server("SSH-2.0-a\r\n"),
            client(b"SSH-2.0-b\r\n\xff\xff\xff\xff\xff\xff\xff"),
        ],
        ("ssh", "long_banner") => vec![
            server("SSH-2.0-a\r\n"),
            client(format!("SSH-2.0-{}\r\n", "b".repeat(1000))),
        ],
        _ => Vec::new(),
    }
}

#[test]
fn each_anomaly_is_raised_by_some_flow() {
    let mut problems = Vec::new();
    for event in EVENTS {
        // Events of protocol detection have no protocol.
        let (protocol, name) = event.split_once('.').or_else(|| event.split_once('_')).unwrap();
        let listed = protocols::anomaly(event);
        let is_udp = listed.as_ref().is_some_and(|(_, is_udp, _)| *is_udp);
        let (port, messages) = match protocol {
            _ if let Some((port, _, messages)) = listed => (port, messages),
            "http" => (80, http(name)),
            "smtp" => (25, smtp(name)),
            "tls" => (443, tls(name)),
            "dns" => (53, dns(name)),
            "mdns" => (5353, dns(name)),
            "dnp3" => (20_000, other(protocol, name)),
            "ftp" => (21, other(protocol, name)),
            "modbus" => (502, other(protocol, name)),
            "pop3" => (110, other(protocol, name)),
            "smb" => (445, other(protocol, name)),
            "sip" => (5060, other(protocol, name)),
            "websocket" => (80, other(protocol, name)),
            "applayer" => (9999, other(protocol, name)),
            _ => (22, other(protocol, name)),
        };
        let frames = match protocol {
            _ if is_udp || matches!(protocol, "dns" | "mdns" | "sip") => messages
                .iter()
                .map(|(is_reply, bytes)| udp(port, *is_reply, bytes))
                .collect(),
            _ => tcp(port, &messages, 1000),
        };
        let text = format!("alert ip any any -> any any (app-layer-event:{event}; sid:1;)");
        let rules = rules(&text, &CompileSettings::default());
        // In mode `ips`, the packets of some anomalies are changed or refused before rules see them.
        let modes: &[Mode] = match protocol {
            "http" if name == "ambiguous_tunnel" => &[Mode::Ips],
            "http" | "http2" | "smtp" | "tls" | "dns" | "dnp3" | "ftp" | "modbus" | "pop3" | "smb"
            | "sip" | "snmp" | "ssh" | "applayer" => &[Mode::Ids],
            _ => &[Mode::Ids, Mode::Ips],
        };
        let is_raised = |mode: &Mode| alerts(&rules, &frames, *mode) == [1];
        if messages.is_empty() || !modes.iter().all(is_raised) {
            problems.push(*event);
        }
    }
    assert!(problems.is_empty(), "not raised: {problems:?}");
}
