//! The prefilter: one search for each kind of inspected bytes, which finds the rules that need an evaluation.
//!
//! ```text
//!  packets by protocol and direction ─┐
//!  stream by direction ───────────────┼─▶ Group: scanner ──▶ pattern ──▶ rules
//!  buffer with transforms ┘         names (hash of a suffix at a label) ──▶ rules
//!  rules without a pattern ────────────────────────────▶ lists that are always evaluated
//! ```
//!
//! A rule is in the group of its fast pattern. A rule that is not in a group is no candidate for the bytes of
//! that group, and cannot match there. The evaluation of candidates thus gives the same alerts as the
//! evaluation of all rules.

use std::collections::HashMap;

use millrace_ips_rules::buffers::Buffer;
use millrace_ips_rules::options::number::Comparison;
use millrace_ips_rules::options::transform::Transform;
use millrace_ips_rules::options::words::TextField;
use millrace_ips_scan::{Backend, Pattern, Scanner, build};

use super::compile::{Hook, buffer_directions};
use super::direct::{Direct, DirectDraft};
use super::program::{AppTest, Operand, Operation, PacketTest, Rule, RuleType, Step};
use crate::app::{AppProtocol, Transaction};
use crate::flow::Direction;

/// The class of a packet by its protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Class {
    Tcp,
    Udp,
    Icmp,
    Other,
}

impl Class {
    const LEN: usize = 4;

    /// Returns the class of an IP protocol.
    pub(super) fn of(protocol: u8) -> Class {
        match protocol {
            6 => Class::Tcp,
            17 => Class::Udp,
            1 | 58 => Class::Icmp,
            _ => Class::Other,
        }
    }
}

/// Rules by their pattern or name. A rule is a candidate only if its pattern or name occurs.
#[derive(Debug, Default)]
pub(super) struct Group {
    scanner: Option<Box<dyn Scanner>>,
    /// The rules of each pattern.
    rules: Vec<Vec<u32>>,
    /// The rules of each name, by the hash of the name from its end.
    names: HashMap<u64, Vec<u32>>,
    /// The rules that are found without a search.
    pub(super) direct: Direct,
    /// The rules that are always candidates.
    pub(super) always: Vec<u32>,
}

/// Hash of names from their last byte on (FNV-1a).
const FNV_BASIS: u64 = 0xcbf2_9ce4_8422_2325;
const FNV_PRIME: u64 = 0x0000_0100_0000_01b3;

#[inline]
fn extend(hash: u64, byte: u8) -> u64 {
    (hash ^ u64::from(byte.to_ascii_lowercase())).wrapping_mul(FNV_PRIME)
}

impl Group {
    /// Calls `hit` with each rule whose pattern ends after the first `from` bytes, or whose name is the end
    /// of the bytes from a label on. One rule may be named several times.
    pub(super) fn scan(&self, bytes: &[u8], from: usize, hit: &mut dyn FnMut(u32)) {
        if let Some(scanner) = &self.scanner {
            scanner.scan_new(bytes, from, &mut |id, _| {
                for &rule in self.rules.get(id as usize).map(Vec::as_slice).unwrap_or_default() {
                    hit(rule);
                }
            });
        }
        if !self.names.is_empty() {
            let mut hash = FNV_BASIS;
            for (at, byte) in bytes.iter().enumerate().rev() {
                hash = extend(hash, *byte);
                if (at == 0 || *byte == b'.')
                    && let Some(rules) = self.names.get(&hash)
                {
                    rules.iter().for_each(|rule| hit(*rule));
                }
            }
        }
    }

    /// Returns true if there is nothing to search.
    pub(super) fn is_empty(&self) -> bool {
        self.scanner.is_none() && self.names.is_empty()
    }

    /// Returns the number of bytes before the new ones that a scan repeats.
    pub(super) fn look_back(&self) -> usize {
        let longest = self.scanner.as_ref().map_or(0, |scanner| scanner.longest());
        longest.saturating_sub(1)
    }
}

/// A group under construction.
#[derive(Default)]
struct Draft {
    patterns: HashMap<(Vec<u8>, bool), Vec<u32>>,
    names: HashMap<u64, Vec<u32>>,
    direct: DirectDraft,
    always: Vec<u32>,
}

impl Draft {
    /// Adds a rule over payloads.
    fn add_raw(&mut self, index: u32, rule: &Rule) {
        if !self.direct.add(index, rule) {
            self.add(index, rule);
        }
    }

    fn add(&mut self, index: u32, rule: &Rule) {
        match &rule.fast_pattern {
            Some(pattern) => {
                let bytes = match pattern.nocase {
                    true => pattern.bytes.to_ascii_lowercase(),
                    false => pattern.bytes.clone(),
                };
                self.patterns
                    .entry((bytes, pattern.nocase))
                    .or_default()
                    .push(index);
            }
            None => self.always.push(index),
        }
    }

    fn build(self, backend: Option<Backend>) -> Group {
        let mut patterns = Vec::with_capacity(self.patterns.len());
        let mut rules = Vec::with_capacity(self.patterns.len());
        let mut sorted: Vec<_> = self.patterns.into_iter().collect();
        sorted.sort_unstable();
        for ((bytes, nocase), of_pattern) in sorted {
            patterns.push(Pattern {
                id: rules.len() as u32,
                bytes,
                nocase,
            });
            rules.push(of_pattern);
        }
        let mut always = self.always;
        // A back end that cannot hold the patterns is replaced by one that can. Without a back end, all rules
        // are candidates.
        let scanner = backend.filter(|_| !patterns.is_empty()).and_then(|backend| {
            build(backend, &patterns)
                .or_else(|_| build(Backend::Windows, &patterns))
                .ok()
        });
        let mut direct = self.direct;
        if scanner.is_none() {
            always.extend(rules.iter().flatten());
        }
        if backend.is_none() {
            always.extend(direct.rules());
            direct = DirectDraft::default();
        }
        always.sort_unstable();
        Group {
            scanner,
            rules,
            names: self.names,
            direct: direct.build(),
            always,
        }
    }
}

/// The hooks and the rules without pattern of a protocol.
#[derive(Debug, Default)]
pub(super) struct TransactionGroup {
    /// The hooks that rules of the protocol search, by direction.
    pub(super) hooks: [Vec<u16>; 2],
    /// The rules without a pattern in a buffer.
    pub(super) always: Vec<u32>,
}

/// The prefilter of a rule set.
#[derive(Debug, Default)]
pub(super) struct Prefilter {
    /// Rules over packets, by class and direction.
    pub(super) packets: [[Group; 2]; Class::LEN],
    /// Rules that may match packets of a TCP stream, by direction: those over streams alone may not.
    pub(super) packets_in_stream: [Group; 2],
    /// Rules over packets of TCP and not over streams, by direction: the search of a stream does not find these rules.
    pub(super) packets_in_window: [Group; 2],
    /// Rules over streams, by direction.
    pub(super) stream: [Group; 2],
    /// Rules over buffers, by hook.
    pub(super) hooks: Vec<Group>,
    /// Rules over transactions, by protocol.
    pub(super) transactions: HashMap<AppProtocol, TransactionGroup>,
    /// Rules over frames, by protocol.
    frames: HashMap<AppProtocol, TransactionGroup>,
    /// Rules over anomalies. They are evaluated when a flow has a new anomaly that belongs to no transaction.
    pub(super) events: Vec<u32>,
    /// Rules over events of the decoder and of the TCP engine. They are evaluated on packets that have events.
    pub(super) packet_events: Vec<u32>,
    /// Rules that are evaluated once for each direction of a flow.
    pub(super) ip_only: Vec<u32>,
}

/// Returns true if a rule tests an anomaly and no other field or buffer of a transaction.
fn is_over_events(rule: &Rule) -> bool {
    let is_event = |test: &AppTest| matches!(test, AppTest::Field(TextField::AppLayerEvent, _));
    let is_other = |test: &AppTest| !is_event(test) && !matches!(test, AppTest::Protocol(_));
    rule.buffers.is_empty() && rule.app.iter().any(is_event) && !rule.app.iter().any(is_other)
}

/// Returns true if the hook has names that rules compare completely or at their end.
fn is_name(hook: &Hook) -> bool {
    let is_buffer = matches!(
        hook.buffer,
        Buffer::DnsQuery | Buffer::DnsQueryName | Buffer::TlsSni | Buffer::HttpHost | Buffer::HttpHostRaw
    );
    is_buffer && matches!(hook.transforms[..], [] | [Step::Plain(Transform::DotPrefix)])
}

/// Returns the hash of the name that a buffer must equal or end with, if the operations require such a name
/// from a label on.
fn name_of(operations: &[Operation], has_dot: bool) -> Option<u64> {
    let sizes = operations.iter().filter_map(|operation| match operation {
        Operation::Size(Comparison::Equal(size)) => Some(*size),
        _ => None,
    });
    let sizes: Vec<u64> = sizes.collect();
    operations.iter().find_map(|operation| {
        let Operation::Content(content) = operation else {
            return None;
        };
        if content.is_negated {
            return None;
        }
        let is_start = content.offset == Some(Operand::Number(0))
            && content.depth == Some(Operand::Number(content.pattern.len() as i64));
        let is_sized = sizes.contains(&(content.pattern.len() as u64));
        let is_whole = is_sized || content.endswith && is_start;
        let is_suffix = content.endswith && content.pattern.first() == Some(&b'.');
        // A complete name always begins at a label; after `dotprefix` it begins with the dot.
        if !is_suffix && !is_whole || has_dot && content.pattern.first() != Some(&b'.') {
            return None;
        }
        Some(
            content
                .pattern
                .iter()
                .rev()
                .fold(FNV_BASIS, |hash, byte| extend(hash, *byte)),
        )
    })
}

impl Prefilter {
    /// Distributes the rules.
    pub(super) fn new(rules: &[Rule], hooks: &[Hook], backend: Option<Backend>) -> Prefilter {
        let mut packets: [[Draft; 2]; Class::LEN] = Default::default();
        let (mut stream, mut in_stream, mut in_window): ([Draft; 2], [Draft; 2], [Draft; 2]) =
            Default::default();
        let mut drafts: Vec<Draft> = hooks.iter().map(|_| Draft::default()).collect();
        let mut transactions: HashMap<AppProtocol, TransactionGroup> = HashMap::new();
        let mut frames: HashMap<AppProtocol, TransactionGroup> = HashMap::new();
        let (mut events, mut ip_only, mut packet_events) = (Vec::new(), Vec::new(), Vec::new());
        for (index, rule) in rules.iter().enumerate() {
            let at = index as u32;
            match rule.kind {
                RuleType::IpOnly => ip_only.push(at),
                RuleType::DecoderEvent => packet_events.push(at),
                RuleType::Transaction => {
                    if is_over_events(rule) {
                        events.push(at);
                    }
                    let test = rule.fast_pattern.as_ref().and_then(|pattern| pattern.test);
                    let hook = test.and_then(|test| rule.buffers.get(usize::from(test)));
                    let hook = hook.filter(|_| backend.is_some());
                    let groups = match rule.buffers.iter().any(|test| test.buffer.is_frame()) {
                        true => &mut frames,
                        false => &mut transactions,
                    };
                    for app in &rule.protocol.app {
                        let group = groups.entry(*app).or_default();
                        match hook {
                            Some(test) => {
                                let directions = buffer_directions(test.buffer);
                                for (hooks, exists) in group.hooks.iter_mut().zip(directions) {
                                    if exists && !hooks.contains(&test.hook) {
                                        hooks.push(test.hook);
                                    }
                                }
                            }
                            None => group.always.push(at),
                        }
                    }
                    if let Some(test) = hook
                        && let (Some(draft), Some(hook)) = (
                            drafts.get_mut(usize::from(test.hook)),
                            hooks.get(usize::from(test.hook)),
                        )
                    {
                        let has_dot = !hook.transforms.is_empty();
                        let name = is_name(hook)
                            .then(|| name_of(&test.operations, has_dot))
                            .flatten();
                        match name {
                            Some(hash) => draft.names.entry(hash).or_default().push(at),
                            None => draft.add(at, rule),
                        }
                    }
                }
                RuleType::Packet | RuleType::PacketStream | RuleType::Stream | RuleType::AppLayer => {
                    for direction in Direction::BOTH.into_iter().filter(|side| rule.flow.may_be(*side)) {
                        let side = direction.index();
                        // A packet outside of any stream is inspected like a stream.
                        if rule.on_packets || rule.on_stream {
                            for class in classes(rule) {
                                packets[class as usize][side].add_raw(at, rule);
                                if class == Class::Tcp && (rule.on_packets || rule.payload.is_empty()) {
                                    in_stream[side].add_raw(at, rule);
                                }
                                if class == Class::Tcp && !rule.on_stream {
                                    in_window[side].add_raw(at, rule);
                                }
                            }
                        }
                        if rule.on_stream {
                            stream[side].add_raw(at, rule);
                        }
                    }
                }
            }
        }
        let build_both = |drafts: [Draft; 2]| drafts.map(|draft| draft.build(backend));
        Prefilter {
            packets: packets.map(build_both),
            packets_in_stream: build_both(in_stream),
            packets_in_window: build_both(in_window),
            stream: build_both(stream),
            hooks: drafts.into_iter().map(|draft| draft.build(backend)).collect(),
            transactions,
            frames,
            events,
            packet_events,
            ip_only,
        }
    }

    /// Returns the hooks of a transaction or a frame in a direction.
    pub(super) fn transaction(
        &self,
        transaction: &Transaction,
        direction: Direction,
    ) -> Option<(&[u16], &[u32])> {
        let groups = match transaction.frame {
            Some(_) => &self.frames,
            None => &self.transactions,
        };
        let group = groups.get(&transaction.app)?;
        Some((&group.hooks[direction.index()], &group.always))
    }
}

/// Returns the classes of packets to which a rule applies.
fn classes(rule: &Rule) -> Vec<Class> {
    let all = [Class::Tcp, Class::Udp, Class::Icmp, Class::Other];
    let is_of = |class: &Class| {
        let is_asked = |protocol: &u8| Class::of(*protocol) == *class;
        let by_header = &rule.protocol.ip;
        let by_option = rule.packet.iter().all(|test| match test {
            PacketTest::IpProtocol(Comparison::Equal(protocol)) => {
                u8::try_from(*protocol).is_ok_and(|protocol| is_asked(&protocol))
            }
            _ => true,
        });
        by_option && (by_header.is_empty() || by_header.iter().any(is_asked))
    };
    all.into_iter().filter(is_of).collect()
}
