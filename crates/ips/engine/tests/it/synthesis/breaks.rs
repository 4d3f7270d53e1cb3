//! Conversations of a rule in which one condition is broken, and all others are left as they are.
//!
//! A condition on bytes is broken by a change of the bytes: the operations before the condition still match, and the
//! condition does not. The bytes of the conversation are compared again, because a broken condition that another part of the
//! conversation happens to satisfy says nothing.

use core::fmt;
use core::net::Ipv4Addr;

use millrace_ips_engine::app::AppProtocol;
use millrace_ips_engine::detect::Ruleset;
use millrace_ips_engine::detect::program::{AppTest, Effect, Endpoint, PacketTest, StateTest};
use millrace_ips_rules::options::number::NumberField;
use millrace_ips_rules::options::state::RateKind;
use millrace_ips_rules::options::words::TextField;

use super::break_bytes::of_bytes;
use super::compose::{Made, state_messages};
use super::conversation::{Conversation, ICMP, Message, TCP, UDP};
use super::ends::is_in;
use super::packet::broken_fields;
use super::random::Random;

/// The kinds of conditions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Content,
    ForbiddenContent,
    Expression,
    ForbiddenExpression,
    Number,
    DataAt,
    Size,
    Address,
    Port,
    Direction,
    Established,
    Transport,
    Header,
    Field,
    State,
    ForbiddenState,
    Rate,
}

impl Kind {
    pub(crate) const ALL: [Kind; 17] = [
        Kind::Content,
        Kind::ForbiddenContent,
        Kind::Expression,
        Kind::ForbiddenExpression,
        Kind::Number,
        Kind::DataAt,
        Kind::Size,
        Kind::Address,
        Kind::Port,
        Kind::Direction,
        Kind::Established,
        Kind::Transport,
        Kind::Header,
        Kind::Field,
        Kind::State,
        Kind::ForbiddenState,
        Kind::Rate,
    ];
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::Content => "a content that must be there",
            Kind::ForbiddenContent => "a content that must not be there",
            Kind::Expression => "an expression that must match",
            Kind::ForbiddenExpression => "an expression that must not match",
            Kind::Number => "a number in the bytes (byte_test, byte_jump, byte_math)",
            Kind::DataAt => "data at a place (isdataat)",
            Kind::Size => "a size (bsize, dsize, urilen)",
            Kind::Address => "an address",
            Kind::Port => "a port",
            Kind::Direction => "the direction",
            Kind::Established => "an established connection",
            Kind::Transport => "the transport protocol",
            Kind::Header => "a field of a header (flags, itype, ttl)",
            Kind::Field => "a field of TLS (tls.subject, tls.version)",
            Kind::State => "a bit or counter that must be set",
            Kind::ForbiddenState => "a bit that must not be set",
            Kind::Rate => "the count of a threshold",
        })
    }
}

/// A conversation in which a condition is broken.
pub(crate) struct Broken {
    pub(crate) conversation: Conversation,
    /// Numbers of bits that must be set for the conversation to be a test, and of those that must not be.
    pub(crate) needs: Vec<u32>,
    pub(crate) excludes: Vec<u32>,
    /// The part of the conversation on which the rule must not fire by itself.
    pub(crate) before: Option<Conversation>,
}

impl From<Conversation> for Broken {
    fn from(conversation: Conversation) -> Broken {
        Broken {
            conversation,
            needs: Vec::new(),
            excludes: Vec::new(),
            before: None,
        }
    }
}

/// Returns the conversation with a condition of a kind broken. The outer option is none if the rule has none of the
/// kind, the inner one if no way was found to break it.
pub(crate) fn broken(
    all: &Ruleset,
    made: &Made<'_>,
    kind: Kind,
    random: &mut Random,
) -> Option<Option<Broken>> {
    let rule = made.rule;
    let whole = || made.conversation().ok();
    match kind {
        Kind::Content
        | Kind::ForbiddenContent
        | Kind::Expression
        | Kind::ForbiddenExpression
        | Kind::Number
        | Kind::DataAt
        | Kind::Size => of_bytes(made, kind, random),
        Kind::Address => {
            let (client, server) = made.ends();
            if rule.is_bidirectional || client.addresses.is_none() && server.addresses.is_none() {
                return None;
            }
            let candidates = [
                Ipv4Addr::new(203, 0, 113, 9),
                Ipv4Addr::new(192, 168, 44, 9),
                Ipv4Addr::new(100, 64, 1, 1),
            ];
            let mut conversation = whole()?;
            let own = (conversation.client.0, conversation.server.0);
            let mut pairs: Vec<(Ipv4Addr, Ipv4Addr)> = candidates.iter().map(|it| (*it, own.1)).collect();
            pairs.extend(candidates.iter().map(|it| (own.0, *it)));
            pairs.extend([(candidates[0], candidates[2]), (candidates[1], candidates[1])]);
            // Both directions carry messages.
            let is_other = |(client, server): &(Ipv4Addr, Ipv4Addr)| {
                !made.is_between(*client, *server) && !made.is_between(*server, *client)
            };
            let found = pairs.into_iter().find(is_other);
            Some(found.map(|(client, server)| {
                (conversation.client.0, conversation.server.0) = (client, server);
                conversation.into()
            }))
        }
        Kind::Port => {
            let (client, server) = made.ends();
            let has_ports = matches!(made.frame.protocol, TCP | UDP);
            if !has_ports || rule.is_bidirectional || client.ports.is_none() && server.ports.is_none() {
                return None;
            }
            let candidates = [2, 7, 9999, 31_337, 61_001];
            Some(whole().and_then(|mut conversation| {
                let is_other = |end: &Endpoint, port: u16| {
                    end.ports
                        .as_ref()
                        .is_some_and(|ranges| !is_in(ranges.first(), port.into()))
                };
                if let Some(other) = candidates.into_iter().find(|it| is_other(server, *it)) {
                    conversation.server.1 = other;
                } else {
                    conversation.client.1 = candidates.into_iter().find(|it| is_other(client, *it))?;
                }
                // Flows have successive ports of the client.
                conversation.count = 1;
                Some(conversation.into())
            }))
        }
        Kind::Direction => direction(made),
        Kind::Established => {
            if rule.flow.is_established != Some(true) || made.draft.app.is_some() {
                return None;
            }
            Some(whole().and_then(|mut conversation| {
                match made.frame.protocol {
                    TCP => conversation.fields.flags = Some(0x18),
                    UDP => conversation
                        .messages
                        .retain(|(is_server, _)| *is_server == made.draft.is_reply),
                    _ => return None,
                }
                Some(conversation.into())
            }))
        }
        Kind::Transport => {
            let [protocol] = rule.protocol.ip[..] else {
                return None;
            };
            let other = match protocol {
                TCP => UDP,
                UDP => TCP,
                ICMP => UDP,
                _ => return None,
            };
            Some(whole().and_then(|mut conversation| {
                conversation.protocol = other;
                let is_short = |(_, bytes): &(bool, Vec<u8>)| bytes.len() < 60_000;
                conversation
                    .messages
                    .iter()
                    .all(is_short)
                    .then(|| conversation.into())
            }))
        }
        Kind::Header => {
            let is_header = |test: &PacketTest| {
                matches!(test, PacketTest::TcpFlags { .. })
                    || matches!(test, PacketTest::Number(field, _) if *field != NumberField::Dsize)
            };
            rule.packet.iter().any(is_header).then(|| {
                let mut conversation = whole()?;
                conversation.fields = broken_fields(rule, &conversation.fields, random)?;
                Some(conversation.into())
            })
        }
        Kind::Field => {
            let mut made = made.clone();
            let test = rule.app.iter().find_map(|test| match test {
                AppTest::Field(field, text) => Some((*field, text)),
                _ => None,
            })?;
            let own = &mut made.draft.handshake;
            match test {
                (TextField::TlsSubject, _) => own.subject = b"CN=other.example".to_vec(),
                (TextField::TlsIssuer, _) => own.issuer = b"CN=other.example".to_vec(),
                (TextField::TlsVersion | TextField::SslVersion, text) if !text.contains(',') => {
                    own.minor = if own.minor == 3 { 1 } else { 3 };
                }
                _ => return None,
            }
            Some(made.conversation().ok().map(Broken::from))
        }
        Kind::State => {
            let (index, _) = made.before.first()?;
            let excludes = bits(made.rule.state.get(*index)?);
            let mut made = made.clone();
            made.before.remove(0);
            Some(made.conversation().ok().map(|conversation| Broken {
                excludes,
                ..conversation.into()
            }))
        }
        Kind::ForbiddenState => {
            let is_negated = |test: &&StateTest| matches!(test, StateTest::Bits { is_negated: true, .. });
            let test = rule.state.iter().find(is_negated)?;
            let mut made = made.clone();
            Some((|| {
                let messages = state_messages(all, rule, test, random, 0).ok()?;
                made.before.insert(0, (usize::MAX, messages.clone()));
                let conversation = made.conversation().ok()?;
                let before = Conversation {
                    messages,
                    ..conversation.clone()
                };
                Some(Broken {
                    needs: bits(test),
                    before: Some(before),
                    ..conversation.into()
                })
            })())
        }
        Kind::Rate => {
            let rate = rule.rate()?;
            // A limit lets the first alert through.
            let is_limit = rate.kind == Some(RateKind::Limit);
            if is_limit || made.frame.count < 2 {
                return None;
            }
            Some(whole().and_then(|mut conversation| {
                let is_counted = |(is_server, _): &&Message| *is_server == made.draft.is_reply;
                let mut of_flow = conversation.messages.iter().filter(is_counted).count().max(1);
                // Data are counted as a packet and as a part of the stream.
                of_flow *= if rule.on_packets && rule.on_stream { 2 } else { 1 };
                conversation.count = (made.frame.count - 1) / u16::try_from(of_flow).ok()?;
                (conversation.count > 0).then(|| conversation.into())
            }))
        }
    }
}

/// Returns the bits that a condition names.
fn bits(test: &StateTest) -> Vec<u32> {
    match test {
        StateTest::Bits { bits, .. } => bits.clone(),
        StateTest::Counter { .. } => Vec::new(),
    }
}

/// Returns true if one of the rules sets a bit of a list.
pub(crate) fn sets(all: &Ruleset, sids: &[u32], bits: &[u32]) -> bool {
    let is_one = |effect: &Effect| match effect {
        Effect::Bits {
            bits: some, value, ..
        } => *value != Some(false) && some.iter().any(|bit| bits.contains(bit)),
        Effect::Counter { .. } => false,
    };
    all.rules
        .iter()
        .any(|rule| sids.contains(&rule.sid) && rule.effects.iter().any(is_one))
}

/// Breaks the direction: the same bytes are sent by the other end of the connection, or from the other side.
fn direction(made: &Made<'_>) -> Option<Option<Broken>> {
    let rule = made.rule;
    let (client, server) = made.ends();
    if rule.is_bidirectional {
        return None;
    }
    let is_bare = made.draft.app.is_none() && matches!(made.frame.protocol, TCP | UDP);
    // The first packet of a flow is the client's.
    let is_directed = rule.flow.direction.is_some() && made.frame.fields.flags.is_none();
    let has_sides = client.addresses.is_some() || server.addresses.is_some();
    if !(has_sides || is_bare && is_directed) {
        return None;
    }
    let Ok(mut conversation) = made.conversation() else {
        return Some(None);
    };
    if is_bare && is_directed {
        // The header still holds: only the end that opened the connection is another.
        (conversation.client, conversation.server) = (conversation.server, conversation.client);
        for (is_server, _) in &mut conversation.messages {
            *is_server = !*is_server;
        }
        let sender = !made.draft.is_reply;
        if made.frame.protocol == UDP && conversation.messages.first().is_some_and(|it| it.0) {
            // The first datagram is the client's.
            conversation.messages.insert(0, (false, b"-".to_vec()));
        }
        let is_sent = conversation
            .messages
            .iter()
            .any(|(is_server, _)| *is_server == sender);
        return Some(is_sent.then(|| conversation.into()));
    }
    (conversation.client.0, conversation.server.0) = (conversation.server.0, conversation.client.0);
    let ends = (conversation.client.0, conversation.server.0);
    // Datagrams of DNS that are not made of parts, and packets in which no byte matters, are sent by both ends.
    let is_of_dns = made.draft.app == Some(AppProtocol::Dns) && made.parts.is_empty();
    let is_empty = made.draft.app.is_none() && rule.payload.is_empty();
    let is_two_way = is_of_dns || is_empty;
    let is_broken = !made.is_between(ends.0, ends.1) && !is_two_way;
    Some(is_broken.then(|| conversation.into()))
}
