//! EVE fields of application protocols.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use data_encoding::HEXLOWER;
use millrace_ips_engine::Direction;
use millrace_ips_engine::app::record::{
    DcerpcCall, FtpRecord, HttpRecord, Interfaces, Record, SipRecord, SmbRecord, SmtpRecord, SshRecord,
    TlsRecord, Value,
};
use millrace_ips_engine::app::{AppProtocol, smb_status_name, tls_version_name};
use millrace_ips_engine::event::FlowSummary;

use crate::object::{Object, value, values};
use crate::place::Place;
use crate::text::{printable, text};
use crate::{Layout, dnp3, dns, email, mdns, modbus, timestamp};

/// Returns the type of the record of a protocol.
pub(crate) fn event_type(protocol: AppProtocol) -> &'static str {
    match protocol {
        AppProtocol::Dcerpc => "dcerpc",
        AppProtocol::FtpData => "ftp_data",
        AppProtocol::BittorrentDht => "bittorrent_dht",
        // Both versions have one type.
        AppProtocol::Http2 | AppProtocol::Doh2 => "http",
        other => other.name(),
    }
}

/// Writes the protocol of a flow, that of each direction which speaks another one, and that before a change.
pub(crate) fn protocols(line: &mut Object<'_>, flow: &FlowSummary) {
    let Some(app) = flow.app else {
        return;
    };
    line.field("app_proto", app.name());
    if let Some(original) = flow.original_app.filter(|original| *original != app) {
        line.field("app_proto_orig", original.name());
    }
    for (name, other) in ["app_proto_ts", "app_proto_tc"].into_iter().zip(flow.apps) {
        if let Some(other) = other.filter(|other| *other != app) {
            line.field(name, other.name());
        }
    }
}

/// Writes the object of a protocol into an alert or a record, if the protocol has fields.
pub(crate) fn record(
    out: &mut Object<'_>,
    app: AppProtocol,
    record: &Record,
    transaction: Option<u64>,
    place: Place,
    layout: &Layout,
) {
    match record {
        Record::None => {}
        Record::Http(fields) => {
            out.object("http", |out| http(out, fields));
        }
        Record::Dns(fields) => {
            match app {
                AppProtocol::Mdns => out.object("mdns", |out| mdns::message(out, fields)),
                _ => out.object("dns", |out| dns::message(out, fields, transaction, place, layout)),
            };
        }
        Record::Tls(fields) => {
            out.object("tls", |out| tls(out, fields));
        }
        Record::Smtp(fields) => {
            out.object("smtp", |out| smtp(out, fields));
            if let Some(status) = fields.status {
                out.object("email", |out| email::fields(out, fields, status, layout));
            }
        }
        Record::Ftp(fields) => {
            out.object("ftp", |out| ftp(out, fields));
        }
        Record::Ssh(fields) => {
            out.object("ssh", |out| ssh(out, fields));
        }
        Record::Smb(fields) => match (app, &fields.dcerpc) {
            (AppProtocol::Dcerpc, Some(call)) => {
                out.object("dcerpc", |out| {
                    dcerpc(out, call);
                    let major = if call.activity.is_some() { 4 } else { 5 };
                    out.field("rpc_version", format!("{major}.{}", call.minor_version));
                });
            }
            _ => {
                out.object("smb", |out| {
                    if let Some(transaction) = transaction {
                        out.field("id", transaction + 1);
                    }
                    smb(out, fields);
                });
            }
        },
        Record::Sip(fields) => {
            out.object("sip", |out| sip(out, fields));
        }
        Record::Modbus(fields) => {
            out.object("modbus", |out| modbus::messages(out, fields, transaction));
        }
        Record::Dnp3(fields) => {
            out.object("dnp3", |out| dnp3::fragment(out, fields, place));
        }
        Record::Fields(fields) => {
            let beside = |name: &str| app == AppProtocol::Nfs && name == "rpc";
            out.object(event_type(app), |out| {
                // Suricata numbers these transactions in their object, too: all but those of RDP from 1 on.
                match (app, transaction) {
                    (AppProtocol::Pgsql, Some(transaction)) => {
                        out.field("tx_id", transaction + 1);
                    }
                    (AppProtocol::Nfs, Some(transaction)) => {
                        out.field("id", transaction + 1);
                    }
                    (AppProtocol::Rdp, Some(transaction)) => {
                        out.field("tx_id", transaction);
                    }
                    _ => {}
                }
                for (name, one) in fields.list.iter().filter(|(name, _)| !beside(name)) {
                    match (app, *name, one) {
                        (AppProtocol::WebSocket, "payload", Value::Text(payload)) => {
                            out.field("payload_base64", STANDARD.encode(payload))
                                .field("payload_printable", printable(payload));
                        }
                        _ => value(out, name, one),
                    }
                }
            });
            for (name, one) in fields.list.iter().filter(|(name, _)| beside(name)) {
                value(out, name, one);
            }
        }
    }
}

fn sip(out: &mut Object<'_>, fields: &SipRecord) {
    let join = |parts: &[&[u8]]| parts.join(&b' ');
    out.unless_empty("method", &fields.method)
        .unless_empty("uri", &fields.uri)
        .unless_empty("version", &fields.version);
    match fields.code {
        Some(code) => {
            let code = code.to_string();
            out.field("code", code.as_str())
                .unless_empty("reason", &fields.reason)
                .bytes(
                    "response_line",
                    &join(&[&fields.version, code.as_bytes(), &fields.reason]),
                );
        }
        None => {
            out.bytes(
                "request_line",
                &join(&[&fields.method, &fields.uri, &fields.version]),
            );
        }
    }
    if !fields.sdp.list.is_empty() {
        out.object("sdp", |out| values(out, &fields.sdp));
    }
}

fn http(out: &mut Object<'_>, fields: &HttpRecord) {
    if let Some(stream) = fields.http2_stream {
        http2(out, fields, stream);
        if stream == OUTSIDE_STREAMS {
            return;
        }
    }
    out.unless_empty("hostname", &fields.hostname);
    if let Some(port) = fields.port {
        out.field("http_port", port);
    }
    out.unless_empty("url", &fields.url)
        .optional("http_user_agent", fields.user_agent.as_ref())
        .optional("xff", fields.forwarded_for.as_ref())
        .optional("http_content_type", fields.content_type.as_ref());
    if let Some(range) = &fields.content_range {
        out.object("content_range", |out| content_range(out, range));
    }
    out.optional("http_refer", fields.referer.as_ref())
        .unless_empty("http_method", &fields.method)
        .unless_empty("protocol", &fields.protocol);
    if let Some(status) = fields.status {
        out.field("status", status);
    }
    out.optional("redirect", fields.redirect.as_ref())
        .field("length", fields.length);
    if fields.request_length > 0 {
        out.field("request_body_len", fields.request_length);
    }
    if fields.http2_stream.is_none() {
        headers(out, fields);
    }
}

/// Writes the headers of both directions.
fn headers(out: &mut Object<'_>, fields: &HttpRecord) {
    for (name, headers) in ["request_headers", "response_headers"]
        .into_iter()
        .zip(&fields.headers)
    {
        if !headers.is_empty() {
            out.array(name, headers, values);
        }
    }
}

/// The number that frames of HTTP/2 have which belong to the connection (RFC 9113, section 4.1).
const OUTSIDE_STREAMS: u32 = 0;

/// Writes what a stream of HTTP/2 has besides the fields of HTTP/1, or a frame outside of streams.
fn http2(out: &mut Object<'_>, fields: &HttpRecord, stream: u32) {
    out.field("version", "2");
    headers(out, fields);
    out.object("http2", |out| {
        out.field("stream_id", stream);
        for (name, frames) in ["request", "response"].into_iter().zip(&fields.frames) {
            if !frames.list.is_empty() {
                out.object(name, |out| values(out, frames));
            }
        }
    });
}

/// Returns the parts of a Content-Range (RFC 9110, section 14.4) around its slash: the span and the size of the whole.
fn content_range_parts(range: &[u8]) -> Option<(&str, &str)> {
    let text = core::str::from_utf8(range).unwrap_or_default().trim();
    text.strip_prefix("bytes").and_then(|rest| rest.split_once('/'))
}

/// Returns the first and the last byte of a span.
fn ends_of((span, _): (&str, &str)) -> Option<(u64, u64)> {
    let (start, end) = span.split_once('-')?;
    Some((start.trim().parse().ok()?, end.trim().parse().ok()?))
}

/// Returns the first and the last byte that a response of HTTP carries of its file, if it carries a part.
pub(crate) fn part_of_file(record: &Record) -> Option<(u64, u64)> {
    let Record::Http(http) = record else { return None };
    ends_of(content_range_parts(http.content_range.as_deref()?)?)
}

/// Writes a Content-Range: as it is, and its numbers.
fn content_range(out: &mut Object<'_>, range: &[u8]) {
    out.bytes("raw", range);
    let Some(parts) = content_range_parts(range) else {
        return;
    };
    if let Some((start, end)) = ends_of(parts) {
        out.field("start", start).field("end", end);
    }
    if let Ok(size) = parts.1.trim().parse::<u64>() {
        out.field("size", size);
    }
}

fn tls(out: &mut Object<'_>, fields: &TlsRecord) {
    out.optional("subject", fields.subject.as_ref())
        .optional("issuerdn", fields.issuer.as_ref())
        .optional("serial", fields.serial.as_ref())
        .optional("fingerprint", fields.fingerprint.as_ref())
        .optional("sni", fields.sni.as_ref());
    if fields.is_resumed {
        out.field("session_resumed", true);
    }
    out.field("version", tls_version_name(fields.version));
    for (name, time) in [("notbefore", fields.not_before), ("notafter", fields.not_after)] {
        if let Some(time) = time {
            out.field(name, timestamp::seconds(time));
        }
    }
    for (name, fingerprint) in [("ja3", &fields.ja3), ("ja3s", &fields.ja3s)] {
        if let Some((string, hash)) = fingerprint {
            out.object(name, |out| {
                out.bytes("hash", hash).bytes("string", string);
            });
        }
    }
    out.optional("ja4", fields.ja4.as_ref())
        .texts("subjectaltname", &fields.alternative_names)
        .texts("client_alpns", &fields.client_alpns)
        .texts("server_alpns", &fields.server_alpns);
    let chain = |direction: Direction| {
        let details = fields.details.as_ref();
        details.map_or(&[][..], |details| details.chains[direction.index()].as_slice())
    };
    certificates(out, chain(Direction::ToClient));
    if let Some(client) = &fields.client {
        out.object("client", |out| {
            out.bytes("subject", &client.subject)
                .bytes("issuerdn", &client.issuer)
                .bytes("fingerprint", &client.fingerprint)
                .bytes("serial", &client.serial)
                .field("notbefore", timestamp::seconds(client.not_before))
                .field("notafter", timestamp::seconds(client.not_after))
                .texts("subjectaltname", &client.alternative_names);
            certificates(out, chain(Direction::ToServer));
        });
    }
    let hellos = fields.details.iter().flat_map(|details| &details.hellos);
    for (name, hello) in ["client_handshake", "server_handshake"].into_iter().zip(hellos) {
        if !hello.list.is_empty() {
            out.object(name, |out| values(out, hello));
        }
    }
}

/// Writes a chain of certificates in Base64: the first one, and all.
fn certificates(out: &mut Object<'_>, chain: &[Vec<u8>]) {
    if let [first, ..] = chain {
        let chain: Vec<String> = chain.iter().map(|der| STANDARD.encode(der)).collect();
        out.field("certificate", STANDARD.encode(first))
            .field("chain", chain);
    }
}

fn smtp(out: &mut Object<'_>, fields: &SmtpRecord) {
    out.optional("helo", fields.helo.as_ref())
        .optional("mail_from", fields.mail_from.as_ref())
        .texts("rcpt_to", &fields.rcpt_to);
}

fn ftp(out: &mut Object<'_>, fields: &FtpRecord) {
    out.unless_empty("command", &fields.command)
        .unless_empty("command_data", &fields.argument)
        .texts("completion_code", &fields.completion_codes)
        .texts("reply", &fields.replies);
    if let Some(port) = fields.dynamic_port {
        let is_active = matches!(fields.command.as_slice(), b"PORT" | b"EPRT");
        out.field("dynamic_port", port)
            .field("mode", if is_active { "active" } else { "passive" });
    }
    out.field("command_truncated", fields.is_command_cut)
        .field("reply_truncated", fields.is_reply_cut);
    let has_reply = !fields.completion_codes.is_empty();
    out.field("reply_received", if has_reply { "yes" } else { "no" });
}

fn ssh(out: &mut Object<'_>, fields: &SshRecord) {
    let ends = [("client", &fields.client), ("server", &fields.server)];
    for ((name, end), hassh) in ends.into_iter().zip(&fields.hassh) {
        if let Some((protocol, software)) = end {
            out.object(name, |out| {
                out.bytes("proto_version", protocol)
                    .unless_empty("software_version", software);
                if let Some((hash, string)) = hassh {
                    out.object("hassh", |out| {
                        out.bytes("hash", hash).bytes("string", string);
                    });
                }
            });
        }
    }
}

fn smb(out: &mut Object<'_>, fields: &SmbRecord) {
    // A directory has its name in a field of its own.
    let is_directory = fields.more.list.iter().any(|(name, _)| *name == "directory");
    out.unless_empty("dialect", &fields.dialect)
        .unless_empty("command", &fields.command);
    // The answer of a call comes in that of a command that succeeded.
    let is_answered = |call: &DcerpcCall| call.answer.is_some();
    let answered = fields.dcerpc.as_ref().filter(|call| is_answered(call)).map(|_| 0);
    if let Some(status) = fields.status.or(answered) {
        let name = smb_status_name(status);
        out.field("status", name.unwrap_or("UNKNOWN"))
            .field("status_code", format!("0x{status:x}"));
    }
    out.field("session_id", fields.session_id)
        .field("tree_id", fields.tree_id)
        .optional("filename", fields.filename.as_ref().filter(|_| !is_directory))
        .optional("share", fields.share.as_ref());
    if !fields.ntlmssp.list.is_empty() {
        out.object("ntlmssp", |out| values(out, &fields.ntlmssp));
    }
    if let Some(call) = &fields.dcerpc {
        out.object("dcerpc", |out| {
            dcerpc(out, call);
            out.field("opnum", call.operation);
        });
    }
    values(out, &fields.more);
}

/// The names of the types of PDUs (C706, section 12.6.4), and of those that MS-RPCE adds.
const PDUS: [&str; 21] = [
    "REQUEST",
    "PING",
    "RESPONSE",
    "FAULT",
    "WORKING",
    "NOCALL",
    "REJECT",
    "ACK",
    "CL_CANCEL",
    "FACK",
    "CANCEL_ACK",
    "BIND",
    "BINDACK",
    "BINDNAK",
    "ALTER_CONTEXT",
    "ALTER_CONTEXT_RESP",
    "AUTH3",
    "SHUTDOWN",
    "CO_CANCEL",
    "ORPHANED",
    "RTS",
];

/// Writes a call of DCE/RPC, or a bind, and its answer.
fn dcerpc(out: &mut Object<'_>, call: &DcerpcCall) {
    const REQUEST: u8 = 0;
    const RESPONSE: u8 = 2;
    let name = |kind: u8| PDUS.get(usize::from(kind)).copied().unwrap_or("UNKNOWN");
    let [to_server, to_client] = [0, 1].map(|side| (call.fragments[side], call.stub_sizes[side]));
    out.field("request", call.request.map_or("REQUEST_LOST", name));
    if call.request == Some(REQUEST) {
        out.object("req", |out| {
            out.field("opnum", call.operation)
                .field("frag_cnt", to_server.0)
                .field("stub_data_size", to_server.1);
        });
    }
    let interfaces = call.interfaces.iter().take(Interfaces::RECORDED);
    let mut results = call.results.iter();
    out.array("interfaces", interfaces, |out, (uuid, [major, minor])| {
        let uuid = match core::str::from_utf8(uuid) {
            Ok(_) => text(uuid).into_owned(),
            Err(_) => HEXLOWER.encode(uuid),
        };
        out.field("uuid", uuid)
            .field("version", format!("{major}.{minor}"));
        if let Some(result) = results.next() {
            out.field("ack_result", result);
        }
    })
    .field("response", call.answer.map_or("UNREPLIED", name));
    if call.answer == Some(RESPONSE) {
        out.object("res", |out| {
            out.field("frag_cnt", to_client.0)
                .field("stub_data_size", to_client.1);
        });
    }
    match &call.activity {
        Some(activity) => out.bytes("activityuuid", activity).field("seqnum", call.sequence),
        None => out.field("call_id", call.identifier),
    };
}
