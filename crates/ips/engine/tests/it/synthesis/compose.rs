//! A flow on which a rule fires, and one with its pattern broken.

use core::net::Ipv4Addr;

use millrace_ips_engine::app::AppProtocol;
use millrace_ips_engine::detect::program::{
    AppTest, BitMode, BitTable, Effect, Endpoint, Operation, PacketTest, Side, StateTest,
};
use millrace_ips_engine::detect::{Rule, RuleType, Ruleset};
use millrace_ips_engine::flow::Direction;
use millrace_ips_rules::buffers::Buffer;
use millrace_ips_rules::options::number::{Comparison, NumberField};
use millrace_ips_rules::options::words::TextField;

use super::conversation::{Conversation, Fields, ICMP, TCP, UDP};
use super::failure::Failure;
use super::fill::{base64, fill, holds};
use super::parts::{Parts, break_pattern};
use super::random::Random;
use super::tls::Handshake;
use super::{dns, http};

/// The frames of a flow on which a rule fires, and of one with its pattern broken.
pub(crate) struct Flow {
    pub(crate) whole: Vec<Vec<u8>>,
    pub(crate) broken: Option<Vec<Vec<u8>>>,
}

/// Returns an address of an end.
fn address(end: &Endpoint, other: Ipv4Addr) -> Option<Ipv4Addr> {
    let Some(ranges) = &end.addresses else {
        return Some(other);
    };
    let is_in = |number: u128| {
        ranges
            .first()
            .iter()
            .any(|(low, high)| (*low..=*high).contains(&number))
    };
    if is_in(u128::from(u32::from(other))) {
        return Some(other);
    }
    let (low, high) = *ranges.first().iter().find(|(_, high)| *high > 0x0100_0000)?;
    let number = (low.max(0x0100_0000) + 1).min(high);
    Some(Ipv4Addr::from(u32::try_from(number).ok()?))
}

fn port(end: &Endpoint, usual: &[u16]) -> Option<u16> {
    let Some(ranges) = &end.ports else {
        return usual.first().copied();
    };
    let is_in = |port: u16| {
        ranges
            .first()
            .iter()
            .any(|(low, high)| (*low..=*high).contains(&port.into()))
    };
    usual.iter().copied().find(|port| is_in(*port)).or_else(|| {
        let (low, high) = *ranges.first().iter().find(|(_, high)| *high > 0)?;
        u16::try_from(low.max(1).min(high)).ok()
    })
}

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

fn is_to_client(rule: &Rule) -> bool {
    match rule.flow.direction {
        Some(direction) => direction == Direction::ToClient,
        None => rule.buffers.iter().any(|test| OF_SERVER.contains(&test.buffer)),
    }
}

/// Returns the protocol of the flow: `None` is the bare transport.
fn app(rule: &Rule) -> Result<Option<AppProtocol>, Failure> {
    let named = rule.app.iter().find_map(|test| match test {
        AppTest::Protocol {
            protocols,
            is_negated: false,
        } => protocols.first().copied(),
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
struct Draft<'a> {
    rule: &'a Rule,
    app: Option<AppProtocol>,
    is_reply: bool,
    handshake: Handshake,
    seed: u64,
}

impl Draft<'_> {
    /// Returns the messages, with true for those of the server.
    fn messages(&self, parts: &Parts, payload: &[u8]) -> Result<Vec<(bool, Vec<u8>)>, Failure> {
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
                if parts.is_empty() && payload.first() == Some(&22) {
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

    /// Returns the bytes in which free bytes of the payload lie.
    fn base(&self) -> Vec<u8> {
        match self.app {
            Some(AppProtocol::Dns) => dns::message(b"host.example", self.is_reply).unwrap_or_default(),
            Some(AppProtocol::Smb) => {
                b"\0\0\0\x54\xffSMB\x73\0\0\0\0\x18\x07\xc8\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"
                    .to_vec()
            }
            _ => Vec::new(),
        }
    }
}

/// Returns a value that satisfies a comparison.
fn satisfying(comparison: Comparison) -> u64 {
    match comparison {
        Comparison::Equal(n)
        | Comparison::LessOrEqual(n)
        | Comparison::GreaterOrEqual(n)
        | Comparison::Within(n, _) => n,
        Comparison::NotEqual(n) | Comparison::Greater(n) | Comparison::Between(n, _) => n + 1,
        Comparison::Less(n) => n.saturating_sub(1),
    }
}

/// Fields of headers, conditions on the size of the payload, and bytes that the server (true) or the client sends before.
type OfPacket = (Fields, Vec<Operation>, Option<(bool, usize)>);

/// Returns the conditions on packets, as fields of headers and the size of the payload.
fn packet_fields(rule: &Rule) -> Result<OfPacket, Failure> {
    let mut fields = Fields::default();
    let (mut sizes, mut stream) = (Vec::new(), None);
    for test in &rule.packet {
        match test {
            PacketTest::Number(field, comparison) => {
                let value = satisfying(*comparison);
                match field {
                    NumberField::Dsize => sizes.push(Operation::Size(*comparison)),
                    NumberField::Ttl => fields.ttl = value as u8,
                    NumberField::Tos => fields.tos = value as u8,
                    NumberField::IpId => fields.id = value as u16,
                    NumberField::IcmpType => fields.icmp.0 = value as u8,
                    NumberField::IcmpCode => fields.icmp.1 = value as u8,
                    NumberField::IcmpId => fields.icmp.2 = value as u16,
                    NumberField::IcmpSeq => fields.icmp.3 = value as u16,
                    NumberField::TcpSeq => fields.seq = value as u32,
                    NumberField::TcpAck => fields.ack = value as u32,
                    NumberField::TcpWindow => fields.window = value as u16,
                    _ => return Err(Failure::Option(field.keyword())),
                }
            }
            PacketTest::TcpFlags {
                mode: BitMode::Exact | BitMode::All,
                bits,
                ..
            } => fields.flags = Some(*bits as u8),
            PacketTest::FragBits {
                mode: BitMode::Exact | BitMode::All | BitMode::Any,
                bits,
            } => fields.fragment_bits = *bits,
            PacketTest::StreamSize { side, comparison } if *side != Side::Both => {
                let is_upper = matches!(comparison, Comparison::Less(_) | Comparison::LessOrEqual(_));
                stream = (!is_upper).then(|| (*side == Side::Server, satisfying(*comparison) as usize));
            }
            PacketTest::IpProtocol(_) => {}
            _ => return Err(Failure::Option("flags, fragbits or sameip")),
        }
    }
    Ok((fields, sizes, stream))
}

/// Returns the rule that makes a state, if there is one.
fn maker<'a>(all: &'a Ruleset, test: &StateTest, random: &mut Random) -> Option<&'a Rule> {
    let sets = |effect: &Effect| match (effect, test) {
        (
            Effect::Bits {
                table,
                bits,
                value: Some(true),
                ..
            },
            StateTest::Bits {
                table: asked,
                bits: some,
                ..
            },
        ) => {
            let is_address = |table: BitTable| table != BitTable::Flow;
            (table == asked || is_address(*table) && is_address(*asked))
                && some.iter().any(|bit| bits.contains(bit))
        }
        (Effect::Counter { counter, .. }, StateTest::Counter { counter: asked, .. }) => counter == asked,
        _ => false,
    };
    let rules: Vec<&Rule> = all
        .rules
        .iter()
        .filter(|rule| rule.effects.iter().any(sets))
        .collect();
    (!rules.is_empty()).then(|| random.choose(&rules))
}

/// Makes the conversation of a rule, and one with its pattern broken. `depth` counts the rules whose state is made first.
fn conversation(
    all: &Ruleset,
    rule: &Rule,
    random: &mut Random,
    depth: usize,
) -> Result<(Conversation, Option<Conversation>), Failure> {
    let (fields, sizes, stream) = packet_fields(rule)?;
    let app = app(rule)?;
    let is_reply = is_to_client(rule);
    let hashes = [
        Buffer::Ja3Hash,
        Buffer::Ja3sHash,
        Buffer::TlsCertFingerprint,
        Buffer::Ja4Hash,
    ];
    if rule.buffers.iter().any(|test| hashes.contains(&test.buffer)) {
        return Err(Failure::Hash);
    }
    let mut extra = Vec::new();
    let mut handshake = Handshake {
        minor: 3,
        ..Handshake::default()
    };
    for test in &rule.app {
        match test {
            AppTest::Number(NumberField::Urilen, comparison) => {
                extra.push((Buffer::HttpUri, vec![Operation::Size(*comparison)]));
            }
            AppTest::Protocol { .. } => {}
            AppTest::Field(TextField::TlsSubject, text) => handshake.subject = text.trim_matches('"').into(),
            AppTest::Field(TextField::TlsIssuer, text) => handshake.issuer = text.trim_matches('"').into(),
            AppTest::Field(TextField::TlsVersion | TextField::SslVersion, text) => {
                handshake.minor = if text.contains("1.0") { 1 } else { 3 };
            }
            AppTest::Field(TextField::SslState, _) => {}
            AppTest::Field(field, _) => return Err(Failure::Option(field.keyword())),
            AppTest::Number(field, _) => return Err(Failure::Option(field.keyword())),
        }
    }
    let mut parts = Parts::of_rule(rule, &extra, random).map_err(Failure::Buffer)?;
    let draft = Draft {
        rule,
        app,
        is_reply,
        handshake,
        seed: random.0,
    };
    let lists: Vec<&[Operation]> = match (rule.payload.is_empty(), sizes.is_empty()) {
        (true, true) => Vec::new(),
        _ => vec![&rule.payload, &sizes],
    };
    let mut payload = match lists.is_empty() {
        true => Vec::new(),
        false => fill(&lists, &draft.base(), random).ok_or(Failure::Payload)?,
    };
    let usual: &[u16] = match app {
        Some(AppProtocol::Http) => &[80, 8080],
        Some(AppProtocol::Dns) => &[53],
        Some(AppProtocol::Tls) => &[443],
        Some(AppProtocol::Smtp) => &[25],
        Some(AppProtocol::Ftp) => &[21],
        Some(AppProtocol::Ssh) => &[22],
        Some(AppProtocol::Smb) => &[445],
        _ => &[4000, 80, 443],
    };
    let (client, server) = match is_reply {
        true => (&rule.destination, &rule.source),
        false => (&rule.source, &rule.destination),
    };
    let protocol = match (app, rule.protocol.ip.first()) {
        (Some(AppProtocol::Dns), None) => UDP,
        (_, Some(protocol)) => *protocol,
        (_, None) => TCP,
    };
    let base = Conversation {
        protocol,
        client: (
            address(client, Ipv4Addr::new(192, 168, 1, 5)).ok_or(Failure::Address)?,
            port(client, &[40_000, 1024]).ok_or(Failure::Address)?,
        ),
        server: (
            address(server, Ipv4Addr::new(198, 51, 100, 7)).ok_or(Failure::Address)?,
            port(server, usual).ok_or(Failure::Address)?,
        ),
        fields,
        messages: Vec::new(),
        count: 1,
    };
    let mut before = Vec::new();
    for test in &rule.state {
        let is_negated = matches!(test, StateTest::Bits { is_negated: true, .. });
        if is_negated {
            continue;
        }
        if depth > 3 {
            return Err(Failure::State);
        }
        let maker = maker(all, test, random).ok_or(Failure::State)?;
        let (first, _) = conversation(all, maker, random, depth + 1)?;
        before.extend(first.messages);
    }
    let count = rule.rate.as_ref().map_or(1, |rate| {
        if rate.kind.is_some() {
            rate.count
        } else {
            rate.count + 1
        }
    });
    let finish = |messages: Vec<(bool, Vec<u8>)>| {
        let mut all = before.clone();
        if let Some((is_server, size)) = stream.filter(|(_, size)| *size < 60_000) {
            all.push((is_server, vec![b'-'; size]));
        }
        all.extend(messages);
        Conversation {
            messages: all,
            count: u16::try_from(count).unwrap_or(1).clamp(1, 600),
            ..base.clone()
        }
    };
    let whole = finish(draft.messages(&parts, &payload)?);
    let is_broken = match &rule.fast_pattern {
        Some(pattern) => match pattern.test.and_then(|at| rule.buffers.get(usize::from(at))) {
            Some(test) => parts.break_pattern(test, &pattern.bytes),
            None => break_pattern(&mut payload, &pattern.bytes, |bytes| holds(&rule.payload, bytes)),
        },
        None => false,
    };
    let broken = is_broken
        .then(|| draft.messages(&parts, &payload).ok().map(finish))
        .flatten();
    // Another part of the message may have the pattern, too.
    let has_pattern = |broken: &Conversation| {
        let pattern = rule
            .fast_pattern
            .as_ref()
            .map_or(&b""[..], |pattern| &pattern.bytes);
        let is_there = |(_, bytes): &(bool, Vec<u8>)| {
            let mut windows = bytes.windows(pattern.len().max(1));
            windows.any(|window| window.eq_ignore_ascii_case(pattern))
        };
        broken.messages.iter().any(is_there)
    };
    let broken = match broken.filter(|broken| !has_pattern(broken)) {
        Some(broken) => Some(broken),
        None => elsewhere(rule, &whole),
    };
    Ok((whole, broken))
}

/// Returns the conversation with ends that the rule does not name, or with another protocol.
fn elsewhere(rule: &Rule, whole: &Conversation) -> Option<Conversation> {
    let mut broken = whole.clone();
    let is_other = |end: &Endpoint, address: Ipv4Addr| {
        let number = u128::from(u32::from(address));
        let ranges = end.addresses.as_ref();
        ranges.is_some_and(|ranges| {
            !ranges
                .first()
                .iter()
                .any(|(low, high)| (*low..=*high).contains(&number))
        })
    };
    let candidates = [
        Ipv4Addr::new(203, 0, 113, 9),
        Ipv4Addr::new(10, 9, 9, 9),
        Ipv4Addr::new(100, 64, 1, 1),
    ];
    for candidate in candidates {
        if is_other(&rule.source, candidate) || is_other(&rule.destination, candidate) {
            broken.client.0 = candidate;
            broken.server.0 = candidate;
            return Some(broken);
        }
    }
    if rule.destination.ports.is_some() || rule.source.ports.is_some() {
        (broken.client.1, broken.server.1) = (1, 2);
        return Some(broken);
    }
    if let Some(flags) = &mut broken.fields.flags {
        *flags ^= 0x3f;
        return Some(broken);
    }
    if whole.protocol == ICMP {
        broken.fields.icmp = (200, 200, 0xfffe, 0xfffe);
        return Some(broken);
    }
    None
}

/// Makes the frames of a rule.
pub(crate) fn synthesise(
    all: &Ruleset,
    rule: &Rule,
    random: &mut Random,
    depth: usize,
) -> Result<Flow, Failure> {
    if rule.kind == RuleType::IpOnly
        && rule.source.addresses.is_none()
        && rule.destination.addresses.is_none()
    {
        return Err(Failure::Option("none but the protocol"));
    }
    let (whole, broken) = conversation(all, rule, random, depth)?;
    Ok(Flow {
        whole: whole.frames(),
        broken: broken.map(|broken| broken.frames()),
    })
}
