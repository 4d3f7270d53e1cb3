//! A flow on which a rule fires, and its parts, from which flows with one broken condition are made.

use core::net::Ipv4Addr;

use millrace_ips_engine::app::AppProtocol;
use millrace_ips_engine::detect::program::{AppTest, Endpoint, Operation, StateTest};
use millrace_ips_engine::detect::{Rule, RuleType, Ruleset};
use millrace_ips_rules::buffers::Buffer;
use millrace_ips_rules::options::number::{Comparison, NumberField};
use millrace_ips_rules::options::words::TextField;

use super::conversation::{Conversation, Message, TCP, UDP, Varies};
use super::ends::{address, is_in, port};
use super::failure::Failure;
use super::fill::fill;
use super::messages::{Draft, app, is_to_client};
use super::packet::{OfPacket, maker, packet_fields};
use super::parts::Parts;
use super::random::Random;
use super::tls::Handshake;

/// A conversation that a rule should fire on, as the parts that it is made of.
#[derive(Clone)]
pub(crate) struct Made<'a> {
    pub(crate) rule: &'a Rule,
    pub(crate) draft: Draft<'a>,
    pub(crate) parts: Parts,
    pub(crate) payload: Vec<u8>,
    /// Sizes that the payload must have.
    pub(crate) sizes: Vec<Comparison>,
    /// Endpoints, headers and the number of flows, without messages.
    pub(crate) frame: Conversation,
    /// The messages that make the state that a condition asks for, with the index of the condition.
    pub(crate) before: Vec<(usize, Vec<Message>)>,
    /// Bytes that the server (true) or the client sends before the messages.
    pub(crate) stream: Option<(bool, usize)>,
}

impl Made<'_> {
    /// Returns the conversation.
    pub(crate) fn conversation(&self) -> Result<Conversation, Failure> {
        let mut messages: Vec<Message> = Vec::new();
        for (_, some) in &self.before {
            messages.extend(some.iter().cloned());
        }
        if let Some((is_server, size)) = self.stream.filter(|(_, size)| *size < 60_000) {
            messages.push((is_server, vec![b'-'; size]));
        }
        messages.extend(self.draft.messages(&self.parts, &self.payload)?);
        Ok(Conversation {
            messages,
            ..self.frame.clone()
        })
    }

    /// Returns true if the header of the rule accepts these addresses.
    pub(crate) fn is_between(&self, client: Ipv4Addr, server: Ipv4Addr) -> bool {
        let is_accepted = |end: &Endpoint, address: Ipv4Addr| {
            let number = u128::from(u32::from(address));
            let ranges = end.addresses.as_ref();
            ranges.is_none_or(|ranges| is_in(ranges.first(), number))
        };
        let (of_client, of_server) = self.ends();
        is_accepted(of_client, client) && is_accepted(of_server, server)
    }

    /// Returns the conditions of the rule on the client and on the server.
    pub(crate) fn ends(&self) -> (&Endpoint, &Endpoint) {
        match self.draft.is_reply {
            true => (&self.rule.destination, &self.rule.source),
            false => (&self.rule.source, &self.rule.destination),
        }
    }
}

/// Returns the ports that servers of a protocol usually have.
fn usual_ports(app: Option<AppProtocol>) -> &'static [u16] {
    match app {
        Some(AppProtocol::Http) => &[80, 8080],
        Some(AppProtocol::Dns) => &[53],
        Some(AppProtocol::Tls) => &[443],
        Some(AppProtocol::Smtp) => &[25],
        Some(AppProtocol::Ftp) => &[21],
        Some(AppProtocol::Ssh) => &[22],
        Some(AppProtocol::Smb) => &[445],
        _ => &[4000, 80, 443],
    }
}

/// Makes the conversation of a rule. `depth` counts the rules whose state is made first.
fn make<'a>(
    all: &'a Ruleset,
    rule: &'a Rule,
    random: &mut Random,
    depth: usize,
) -> Result<Made<'a>, Failure> {
    let OfPacket {
        fields,
        sizes,
        stream,
    } = packet_fields(rule)?;
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
            AppTest::Number(NumberField::Urilen, comparison, _) => {
                extra.push((Buffer::HttpUri, vec![Operation::Size(*comparison)]));
            }
            AppTest::Protocol(_) | AppTest::Progress(_) => {}
            AppTest::Field(TextField::TlsSubject, text) => handshake.subject = text.trim_matches('"').into(),
            AppTest::Field(TextField::TlsIssuer, text) => handshake.issuer = text.trim_matches('"').into(),
            AppTest::Field(TextField::TlsVersion | TextField::SslVersion, text) => {
                handshake.minor = if text.contains("1.0") { 1 } else { 3 };
            }
            AppTest::Field(TextField::SslState, _) => {}
            AppTest::Field(field, _) => return Err(Failure::Option(field.keyword())),
            AppTest::Number(field, ..) => return Err(Failure::Option(field.keyword())),
            AppTest::Digest { field, .. } => return Err(Failure::Option(field.keyword())),
        }
    }
    let parts = Parts::of_rule(rule, &extra, random).map_err(Failure::Buffer)?;
    let draft = Draft {
        rule,
        app,
        is_reply,
        handshake,
        seed: random.0,
    };
    let of_size: Vec<Operation> = sizes.iter().map(|size| Operation::Size(*size)).collect();
    let payload = match rule.payload.is_empty() && sizes.is_empty() {
        true => Vec::new(),
        false => {
            fill(&[&rule.payload, &of_size], &draft.base(), draft.starts(), random).ok_or(Failure::Payload)?
        }
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
    let count = rule.rate().map_or(1, |rate| {
        if rate.kind.is_some() {
            rate.count
        } else {
            rate.count + 1
        }
    });
    let frame = Conversation {
        protocol,
        client: (
            address(client, Ipv4Addr::new(192, 168, 1, 5)).ok_or(Failure::Address)?,
            port(client, &[40_000, 1024]).ok_or(Failure::Address)?,
        ),
        server: (
            address(server, Ipv4Addr::new(198, 51, 100, 7)).ok_or(Failure::Address)?,
            port(server, usual_ports(app)).ok_or(Failure::Address)?,
        ),
        fields,
        messages: Vec::new(),
        count: u16::try_from(count).unwrap_or(1).clamp(1, 600),
        varies: match (&client.ports, &server.ports) {
            (None, _) => Varies::Client,
            (_, None) => Varies::Server,
            _ => Varies::Neither,
        },
    };
    let mut before = Vec::new();
    for (index, test) in rule.state.iter().enumerate() {
        if matches!(test, StateTest::Bits { is_negated: true, .. }) {
            continue;
        }
        before.push((index, state_messages(all, rule, test, random, depth)?));
    }
    Ok(Made {
        rule,
        draft,
        parts,
        payload,
        sizes,
        frame,
        before,
        stream,
    })
}

/// Returns the messages of a rule that makes a state.
pub(crate) fn state_messages(
    all: &Ruleset,
    rule: &Rule,
    test: &StateTest,
    random: &mut Random,
    depth: usize,
) -> Result<Vec<Message>, Failure> {
    if depth > 3 {
        return Err(Failure::State);
    }
    let maker = maker(all, rule, test, random).ok_or(Failure::State)?;
    Ok(make(all, maker, random, depth + 1)?.conversation()?.messages)
}

/// Makes the flow of a rule.
pub(crate) fn synthesise<'a>(
    all: &'a Ruleset,
    rule: &'a Rule,
    random: &mut Random,
) -> Result<Made<'a>, Failure> {
    if rule.kind == RuleType::IpOnly
        && rule.source.addresses.is_none()
        && rule.destination.addresses.is_none()
    {
        return Err(Failure::Option("none but the protocol"));
    }
    make(all, rule, random, 0)
}
