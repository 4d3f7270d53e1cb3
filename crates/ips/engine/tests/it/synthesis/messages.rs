//! The messages of a conversation, by the protocol that a rule asks for.

use millrace_ips_engine::app::AppProtocol;
use millrace_ips_engine::detect::Rule;
use millrace_ips_engine::detect::program::AppTest;
use millrace_ips_engine::flow::Direction;
use millrace_ips_rules::buffers::Buffer;
use millrace_ips_rules::options::words::TextField;

use super::conversation::{Message, TCP, UDP};
use super::failure::Failure;
use super::fill::base64;
use super::parts::Parts;
use super::random::Random;
use super::tls::Handshake;
use super::{dns, http};

/// The buffers of a server's messages.
const OF_SERVER: [Buffer; 13] = [
    Buffer::HttpStatCode,
    Buffer::HttpStatMsg,
    Buffer::HttpResponseBody,
    Buffer::HttpResponseLine,
    Buffer::HttpServer,
    Buffer::HttpLocation,
    Buffer::TlsCertSubject,
    Buffer::TlsCertIssuer,
    Buffer::TlsCertSerial,
    Buffer::TlsCertFingerprint,
    Buffer::TlsCerts,
    Buffer::Ja3sHash,
    Buffer::DnsAnswerName,
];

/// Returns true if the rule inspects messages of the server.
pub(crate) fn is_to_client(rule: &Rule) -> bool {
    match rule.flow.direction {
        Some(direction) => direction == Direction::ToClient,
        None => rule.buffers.iter().any(|test| OF_SERVER.contains(&test.buffer)),
    }
}

/// Returns the protocol of the flow: `None` is the bare transport.
pub(crate) fn app(rule: &Rule) -> Result<Option<AppProtocol>, Failure> {
    let named = rule.app.iter().find_map(|test| match test {
        AppTest::Protocol(test) if !test.is_negated => test.protocols.first().copied(),
        AppTest::Field(
            TextField::TlsSubject
            | TextField::TlsIssuer
            | TextField::TlsVersion
            | TextField::SslVersion
            | TextField::SslState,
            _,
        ) => Some(AppProtocol::Tls),
        _ => None,
    });
    let list = &rule.protocol.app;
    let usual = [
        AppProtocol::Http,
        AppProtocol::Tls,
        AppProtocol::Dns,
        AppProtocol::Smtp,
    ];
    let first = usual
        .into_iter()
        .find(|app| list.contains(app))
        .or(list.first().copied());
    if let Some(app) = named.or(first) {
        return Ok(Some(app));
    }
    let of_buffer = rule.buffers.first().map(|test| test.buffer);
    Ok(of_buffer.map(|buffer| {
        let name = format!("{buffer:?}");
        match () {
            () if name.starts_with("Tls") || name.starts_with("Ja3") => AppProtocol::Tls,
            () if name.starts_with("Dns") => AppProtocol::Dns,
            () => AppProtocol::Http,
        }
    }))
}

/// The messages that a rule asks for.
#[derive(Clone)]
pub(crate) struct Draft<'a> {
    pub(crate) rule: &'a Rule,
    pub(crate) app: Option<AppProtocol>,
    pub(crate) is_reply: bool,
    pub(crate) handshake: Handshake,
    pub(crate) seed: u64,
}

impl Draft<'_> {
    /// Returns the messages, with true for those of the server.
    pub(crate) fn messages(&self, parts: &Parts, payload: &[u8]) -> Result<Vec<Message>, Failure> {
        let mut random = Random(self.seed);
        let random = &mut random;
        let is_reply = self.is_reply;
        match self.app {
            Some(AppProtocol::Http) => {
                if !is_reply {
                    let request = http::request(parts, payload, random);
                    return Ok(vec![
                        (false, request),
                        (true, b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n".to_vec()),
                    ]);
                }
                let request = b"GET / HTTP/1.1\r\nHost: host.example\r\n\r\n".to_vec();
                Ok(vec![
                    (false, request),
                    (true, http::response(parts, payload, random)),
                ])
            }
            Some(AppProtocol::Dns) => {
                let name = parts.of(Buffer::DnsQuery).or(parts.of(Buffer::DnsQueryName));
                if name.is_none() && !payload.is_empty() {
                    return Ok(vec![
                        (is_reply, payload.to_vec()),
                        (!is_reply, payload.to_vec()),
                        (is_reply, payload.to_vec()),
                    ]);
                }
                let name = name.unwrap_or(b"host.example");
                let query = dns::message(name, false).ok_or(Failure::Name)?;
                let answer = dns::message(name, true).ok_or(Failure::Name)?;
                Ok(vec![
                    (false, query.clone()),
                    (true, answer.clone()),
                    (false, query),
                    (true, answer),
                ])
            }
            Some(AppProtocol::Tls) => {
                // Bytes after the beginning of a record with a certificate are part of the certificate.
                let (payload, has_record) = match payload.strip_prefix(RECORD) {
                    Some(rest) => (rest, true),
                    None => (payload, false),
                };
                if parts.is_empty() && !has_record && payload.first() == Some(&22) {
                    return Ok(vec![(is_reply, payload.to_vec())]);
                }
                let of = |buffer| parts.of(buffer).map(<[u8]>::to_vec);
                let serial = |text: Vec<u8>| -> Vec<u8> {
                    let digits = |pair: &[u8]| {
                        u8::from_str_radix(std::str::from_utf8(pair).unwrap_or(""), 16).unwrap_or(1)
                    };
                    text.split(|byte| *byte == b':').map(digits).collect()
                };
                let own = &self.handshake;
                let handshake = Handshake {
                    name: of(Buffer::TlsSni).or(Some(b"host.example".to_vec())),
                    subject: of(Buffer::TlsCertSubject).unwrap_or_else(|| own.subject.clone()),
                    issuer: of(Buffer::TlsCertIssuer).unwrap_or_else(|| own.issuer.clone()),
                    serial: of(Buffer::TlsCertSerial).map_or(vec![1], serial),
                    inside: [of(Buffer::TlsCerts).unwrap_or_default(), payload.to_vec()].concat(),
                    minor: own.minor,
                };
                let mut messages = vec![(false, handshake.client())];
                messages.push((true, handshake.server().ok_or(Failure::Name)?));
                Ok(messages)
            }
            Some(AppProtocol::Smtp) => {
                let mut text = b"From: a\r\nTo: b\r\nMIME-Version: 1.0\r\n".to_vec();
                if let Some(file) = parts.of(Buffer::FileData) {
                    text.extend(b"Content-Type: application/octet-stream\r\nContent-Disposition: attachment; filename=\"a\"\r\nContent-Transfer-Encoding: base64\r\n\r\n");
                    for line in base64(file).chunks(72) {
                        text.extend([line, b"\r\n"].concat());
                    }
                }
                text.extend([payload, b"\r\n.\r\n"].concat());
                Ok(vec![
                    (true, b"220 host.example ESMTP\r\n".to_vec()),
                    (false, b"EHLO a\r\n".to_vec()),
                    (true, b"250 host.example\r\n".to_vec()),
                    (false, b"MAIL FROM:<a@host.example>\r\n".to_vec()),
                    (true, b"250 ok\r\n".to_vec()),
                    (false, b"RCPT TO:<b@host.example>\r\n".to_vec()),
                    (true, b"250 ok\r\n".to_vec()),
                    (false, b"DATA\r\n".to_vec()),
                    (true, b"354 go\r\n".to_vec()),
                    (false, text),
                ])
            }
            Some(AppProtocol::Ftp) if parts.is_empty() => {
                let mut messages = vec![(true, b"220 ftp\r\n".to_vec()), (false, b"USER a\r\n".to_vec())];
                messages.push((is_reply, [payload, b"\r\n"].concat()));
                Ok(messages)
            }
            Some(AppProtocol::Ssh) => {
                let proto = parts.of(Buffer::SshProto).unwrap_or(b"2.0");
                let software = parts.of(Buffer::SshSoftware).unwrap_or(b"x");
                let banner = [b"SSH-", proto, b"-", software, b"\r\n"].concat();
                let banner = if payload.is_empty() {
                    banner
                } else {
                    [payload, b"\r\n"].concat()
                };
                Ok(vec![(!is_reply, b"SSH-2.0-y\r\n".to_vec()), (is_reply, banner)])
            }
            Some(AppProtocol::Smb) if parts.is_empty() => Ok(vec![(is_reply, payload.to_vec())]),
            Some(app) => Err(Failure::Protocol(Some(app))),
            None if !parts.is_empty() => Err(Failure::Protocol(None)),
            None => Ok(match self.rule.protocol.ip.first() {
                // The first datagram of a flow is from the client; both directions make it established.
                Some(&UDP) if is_reply => vec![(false, b"-".to_vec()), (true, payload.to_vec())],
                Some(&UDP) => vec![
                    (false, payload.to_vec()),
                    (true, b"-".to_vec()),
                    (false, payload.to_vec()),
                ],
                Some(&TCP) | None if is_reply => vec![(false, b"-".to_vec()), (true, payload.to_vec())],
                _ => vec![(is_reply, payload.to_vec())],
            }),
        }
    }

    /// Returns the base, from which the free bytes of the payload are taken.
    pub(crate) fn base(&self) -> Vec<u8> {
        match self.app {
            Some(AppProtocol::Dns) => dns::message(b"host.example", self.is_reply).unwrap_or_default(),
            Some(AppProtocol::Smb) => SMB.to_vec(),
            Some(AppProtocol::Tls) if self.is_reply => RECORD.to_vec(),
            _ => Vec::new(),
        }
    }

    /// Returns the offsets in the base after which contents without a fixed place are put.
    pub(crate) fn starts(&self) -> &'static [usize] {
        match self.app {
            // After the header, the labels of the name, and the name.
            Some(AppProtocol::Dns) => &[0, 12, 25, 26, 30],
            Some(AppProtocol::Smb) => &[0, 36, 60],
            Some(AppProtocol::Tls) if self.is_reply => &[0, 9, 9],
            _ => &[0],
        }
    }
}

/// The beginning of a TLS record with a certificate. Its length fields are zero here.
const RECORD: &[u8] = b"\x16\x03\x03\0\0\x0b\0\0\0";

/// A message of SMB1: a request to set up a session.
const SMB: &[u8] = b"\0\0\0\x54\xffSMB\x73\0\0\0\0\x18\x07\xc8\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0";
