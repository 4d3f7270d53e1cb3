//! The evaluation of a rule set on one packet.

use std::collections::HashMap;

use millrace_ips_pcre as pcre;
use millrace_ips_rules::header::Action as RuleAction;

use super::compile::Ruleset;
use super::evaluate::{self, Limit, Scratch, Subject};
use super::prefilter::Class;
use super::program::{AppTest, PacketTest, Rule, RuleType};
use super::rate::{self, Rates};
use super::state::{self, AddressBits, FlowBits};
use super::transaction::{self, Candidate};
use super::{Inspection, PENDING, conditions, fields};
use crate::app::{AppProtocol, Progress, Transaction};
use crate::event::{self, Alert, Event, Events};
use crate::flow::{Direction, Flow};
use crate::packet::Packet;
use crate::tcp::StreamWindow;
use crate::verdict::Action;

/// Largest number of alerts of a packet, as in the default configuration of Suricata.
const ALERTS: usize = 15;

/// A set of rules that is emptied without touching all of it.
#[derive(Debug, Default)]
pub(super) struct Candidates {
    marks: Vec<u32>,
    epoch: u32,
    list: Vec<u32>,
}

impl Candidates {
    /// Empties the set.
    pub(super) fn begin(&mut self) {
        self.list.clear();
        self.epoch = self.epoch.wrapping_add(1);
        if self.epoch == 0 {
            self.marks.fill(0);
            self.epoch = 1;
        }
    }

    /// Adds a rule.
    #[inline]
    pub(super) fn add(&mut self, rule: u32) {
        let at = rule as usize;
        if at >= self.marks.len() {
            self.marks.resize(at + 1, 0);
        }
        if self.marks[at] != self.epoch {
            self.marks[at] = self.epoch;
            self.list.push(rule);
        }
    }

    /// Removes and returns the rules.
    pub(super) fn take(&mut self) -> impl Iterator<Item = u32> + '_ {
        self.list.drain(..)
    }
}

/// Counters of detection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// Rules that were evaluated.
    pub evaluations: u64,
    /// Alerts that were raised.
    pub alerts: u64,
    /// Alerts of packets that had too many.
    pub alerts_lost: u64,
    /// Evaluations that ended at the budget of steps.
    pub step_limits: u64,
    /// Evaluations that ended at a limit of an expression.
    pub pcre_limits: u64,
    /// Candidates of transactions that were lost for want of room.
    pub candidates_lost: u64,
}

/// A rule that matched the packet.
#[derive(Debug, Clone, Copy)]
struct Match {
    rule: u32,
    transaction: Option<u64>,
}

/// State of detection of a lane: scratch memory, thresholds, bits of hosts and address pairs.
#[derive(Debug)]
pub struct Detector {
    scratch: Scratch,
    /// Largest number of alerts of a packet.
    alerts: usize,
    /// Candidates, and the bytes of a transformed buffer.
    memory: (Candidates, Vec<u8>),
    addresses: AddressBits,
    rates: Rates,
    matches: Vec<Match>,
    counters: Counters,
    /// Number of limits that each rule exceeded.
    limits: HashMap<u32, u64>,
}

impl Default for Detector {
    fn default() -> Detector {
        Detector::new(DetectSettings::default())
    }
}

/// Settings of detection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DetectSettings {
    /// Limits of regular expressions.
    pub pcre: pcre::Limits,
    /// The result of an evaluation that exceeds a limit: a match or none. Either is counted.
    pub limit_matches: bool,
    /// Largest number of alerts of a packet; those of the first rules stay.
    pub alerts: usize,
}

impl Default for DetectSettings {
    fn default() -> DetectSettings {
        DetectSettings {
            pcre: pcre::Limits::default(),
            limit_matches: false,
            alerts: ALERTS,
        }
    }
}

/// The parts of an inspection that do not change.
#[derive(Clone, Copy)]
struct Context<'a> {
    packet: &'a Packet<'a>,
    direction: Direction,
    stream: Option<StreamWindow<'a>>,
}

impl Detector {
    /// Returns a detector without state.
    pub fn new(settings: DetectSettings) -> Detector {
        Detector {
            scratch: Scratch::new(settings.pcre, settings.limit_matches),
            alerts: settings.alerts,
            memory: Default::default(),
            addresses: AddressBits::default(),
            rates: Rates::default(),
            matches: Vec::new(),
            counters: Counters::default(),
            limits: HashMap::new(),
        }
    }

    /// Returns the counters.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Returns how often a rule, by its index, exceeded a limit.
    pub fn limits(&self, rule: u32) -> u64 {
        self.limits.get(&rule).copied().unwrap_or(0)
    }

    /// Forgets the bits of addresses and the counters of thresholds, as between two captures.
    pub fn clear(&mut self) {
        self.addresses.clear();
        self.rates.clear();
    }

    /// Evaluates the rules on a packet, the new stream data, and the transactions of the flow.
    pub fn inspect(&mut self, rules: &Ruleset, what: Inspection<'_>, out: &mut Events) -> Action {
        let Inspection {
            packet,
            mut flow,
            direction,
            stream,
            now: _,
        } = what;
        let context = Context {
            packet,
            direction,
            stream,
        };
        self.matches.clear();
        self.ip_only(rules, context, flow.as_deref());
        self.packet_rules(rules, context, flow.as_deref_mut());
        if let Some(flow) = flow.as_deref_mut() {
            self.transactions(rules, context, flow);
        }
        if self.matches.is_empty() {
            return Action::None;
        }
        self.finish(rules, packet, flow.as_deref(), out)
    }

    /// Evaluates the rules that have no condition but the header, at the first packet of each direction.
    fn ip_only(&mut self, rules: &Ruleset, context: Context<'_>, flow: Option<&Flow>) {
        let is_due = flow.is_none_or(|flow| flow.is_first(context.direction));
        if context.packet.is_pseudo || !is_due {
            return;
        }
        for &index in &rules.prefilter.ip_only {
            let Some(rule) = rules.rules.get(index as usize) else {
                continue;
            };
            if conditions::header(rule, context.packet) {
                self.record(index, rule, context.packet, None, None);
            }
        }
    }

    /// Evaluates the rules over packets and streams.
    fn packet_rules(&mut self, rules: &Ruleset, context: Context<'_>, mut flow: Option<&mut Flow>) {
        let Context {
            packet,
            direction,
            stream,
        } = context;
        let prefilter = &rules.prefilter;
        let candidates = &mut self.memory.0;
        candidates.begin();
        if !packet.is_pseudo {
            let group = &prefilter.packets[Class::of(packet.protocol) as usize];
            group.always.iter().for_each(|rule| candidates.add(*rule));
            if !packet.payload.is_empty() && !packet.hides_payload() {
                group.scan(packet.payload, &mut |rule| candidates.add(rule));
            }
        }
        if let Some(window) = stream {
            let group = &prefilter.stream;
            group.always.iter().for_each(|rule| candidates.add(*rule));
            let pending = flow
                .as_deref_mut()
                .map(|flow| &mut flow.detect.pending[direction.index()]);
            scan_stream(group, &window, pending, candidates);
        }
        candidates.list.sort_unstable();
        let list = std::mem::take(&mut candidates.list);
        for &index in &list {
            let Some(rule) = rules.rules.get(index as usize) else {
                continue;
            };
            if self.packet_rule(index, rule, context, flow.as_deref()) {
                self.record(index, rule, packet, flow.as_deref_mut(), None);
            }
        }
        self.memory.0.list = list;
    }

    /// Returns true if a rule over packets and streams matches.
    fn packet_rule(&mut self, index: u32, rule: &Rule, context: Context<'_>, flow: Option<&Flow>) -> bool {
        let app = flow.and_then(|flow| flow.app.protocol);
        if !self.common(rule, context, flow, app) {
            return false;
        }
        if rule.kind == RuleType::AppLayer
            && rule.payload.is_empty()
            && let Some(flow) = flow
            && flow.detect.raised[context.direction.index()].contains(&index)
        {
            return false;
        }
        self.counters.evaluations += 1;
        self.scratch.begin();
        let is_match = self.payload(rule, context, flow);
        self.note_limit(index);
        is_match
    }

    /// Returns true if the conditions that all types of rules have are satisfied. `app` is the protocol of the transaction, or of the flow: a flow changes it with CONNECT or STARTTLS.
    fn common(
        &self,
        rule: &Rule,
        context: Context<'_>,
        flow: Option<&Flow>,
        app: Option<AppProtocol>,
    ) -> bool {
        let Context {
            packet, direction, ..
        } = context;
        let is_app = rule.protocol.app.is_empty() || app.is_some_and(|app| rule.protocol.app.contains(&app));
        is_app
            && conditions::header(rule, packet)
            && conditions::flow(rule, packet, flow, direction)
            && (!packet.is_pseudo || rule.packet.iter().all(is_of_stream))
            && rule
                .packet
                .iter()
                .all(|test| conditions::packet(test, packet, flow))
            && rule.app.iter().all(|test| match test {
                AppTest::Protocol {
                    protocols,
                    is_negated,
                } => app.is_some_and(|app| protocols.contains(&app) != *is_negated),
                // The others are of transactions.
                AppTest::Field(..) | AppTest::Number(..) => true,
            })
            && rule
                .state
                .iter()
                .all(|test| state::is_true(test, packet, flow.map(|flow| &flow.detect.bits), &self.addresses))
    }

    /// Returns true if the payload of the packet or the stream matches the rule.
    fn payload(&mut self, rule: &Rule, context: Context<'_>, flow: Option<&Flow>) -> bool {
        let Context { packet, stream, .. } = context;
        if rule.payload.is_empty() {
            return !packet.is_pseudo || rule.kind == RuleType::Transaction;
        }
        let is_in_stream = flow.is_some_and(|flow| flow.tcp.is_some());
        if rule.on_stream
            && let Some(window) = stream
        {
            let subject = Subject {
                bytes: window.bytes,
                offset: window.offset,
                is_complete: window.is_end,
            };
            if evaluate::matches(&rule.payload, &subject, &mut self.scratch) {
                return true;
            }
        }
        let on_packet = rule.on_packets || rule.on_stream && !is_in_stream;
        on_packet
            && !packet.is_pseudo
            && !packet.hides_payload()
            && !packet.payload.is_empty()
            && evaluate::matches(&rule.payload, &Subject::whole(packet.payload), &mut self.scratch)
    }

    /// Counts a limit that the evaluation of a rule exceeded.
    fn note_limit(&mut self, index: u32) {
        match self.scratch.limit.take() {
            None => return,
            Some(Limit::Steps) => self.counters.step_limits += 1,
            Some(Limit::Pcre) => self.counters.pcre_limits += 1,
        }
        *self.limits.entry(index).or_default() += 1;
    }

    /// Evaluates the rules over the transactions of a flow.
    fn transactions(&mut self, rules: &Ruleset, context: Context<'_>, flow: &mut Flow) {
        let direction = context.direction;
        let mut transactions = std::mem::take(&mut flow.app.transactions);
        for transaction in &mut transactions.list {
            if transaction.is_inspected[direction.index()]
                || transaction.progress[direction.index()] == Progress::Idle
            {
                continue;
            }
            self.transaction(rules, context, flow, transaction);
            transaction.is_inspected[direction.index()] =
                transaction.progress[direction.index()] == Progress::Complete;
        }
        flow.app.transactions = transactions;
    }

    fn transaction(
        &mut self,
        rules: &Ruleset,
        context: Context<'_>,
        flow: &mut Flow,
        transaction: &mut Transaction,
    ) {
        let direction = context.direction;
        let app = transaction.app;
        let Some((hooks, always)) = rules.prefilter.transaction(app, direction) else {
            return;
        };
        let mut state = std::mem::take(&mut transaction.detect.directions[direction.index()]);
        if !std::mem::replace(&mut state.has_always, true) {
            always.iter().for_each(|rule| state.add(*rule));
        }
        for &index in hooks {
            let at = usize::from(index);
            if let (Some(hook), Some(group)) = (rules.hooks.get(at), rules.prefilter.hooks.get(at)) {
                state.scan(index, hook, group, transaction, direction, &mut self.memory);
            }
        }
        state.candidates.sort_unstable_by_key(|candidate| candidate.rule);
        for candidate in state.candidates.iter_mut().filter(|candidate| !candidate.is_done) {
            let Some(rule) = rules.rules.get(candidate.rule as usize) else {
                continue;
            };
            if self.transaction_rule(rule, candidate, context, flow, transaction) {
                candidate.is_done = true;
                self.record(
                    candidate.rule,
                    rule,
                    context.packet,
                    Some(flow),
                    Some(transaction.id),
                );
            }
        }
        self.counters.candidates_lost += std::mem::take(&mut state.lost);
        transaction.detect.directions[direction.index()] = state;
    }

    /// Returns true if a rule matches a transaction; buffers that matched before count.
    fn transaction_rule(
        &mut self,
        rule: &Rule,
        candidate: &mut Candidate,
        context: Context<'_>,
        flow: &Flow,
        transaction: &Transaction,
    ) -> bool {
        if !self.common(rule, context, Some(flow), Some(transaction.app)) {
            return false;
        }
        let fields = rule.app.iter().all(|test| match test {
            AppTest::Protocol { .. } => true,
            AppTest::Field(field, value) => fields::has(*field, value, transaction, context.direction),
            AppTest::Number(field, comparison) => {
                fields::has_number(*field, *comparison, transaction, context.direction)
            }
        });
        if !fields {
            return false;
        }
        self.counters.evaluations += 1;
        self.scratch.begin();
        let mut all = true;
        for (at, test) in rule.buffers.iter().enumerate() {
            if candidate.matched >> at & 1 != 0 {
                continue;
            }
            let is_match = transaction::matches(
                test,
                transaction,
                context.direction,
                &mut self.scratch,
                &mut self.memory.1,
            );
            self.note_limit(candidate.rule);
            match is_match {
                true => candidate.matched |= 1 << at,
                false => all = false,
            }
        }
        let is_match = all && self.payload(rule, context, Some(flow));
        self.note_limit(candidate.rule);
        is_match
    }

    /// Notes a rule whose conditions are satisfied: its filter, its changes of state, its alert.
    fn record(
        &mut self,
        index: u32,
        rule: &Rule,
        packet: &Packet<'_>,
        mut flow: Option<&mut Flow>,
        transaction: Option<u64>,
    ) {
        if let Some(rate) = &rule.rate
            && rate.kind.is_none()
        {
            let subject = rate::Subject {
                rule: index,
                packet,
                flow: flow.as_deref().map_or(0, |flow| flow.id),
            };
            if !self.rates.passes_filter(subject, rate) {
                return;
            }
        }
        for effect in &rule.effects {
            let bits: Option<&mut FlowBits> = flow.as_deref_mut().map(|flow| &mut flow.detect.bits);
            state::apply(effect, packet, bits, &mut self.addresses);
        }
        if rule.kind == RuleType::AppLayer
            && let Some(flow) = flow
        {
            let direction = match packet.src == flow.key.client && flow.key.client != flow.key.server {
                true => Direction::ToServer,
                false => Direction::ToClient,
            };
            flow.detect.raised[direction.index()].push(index);
        }
        self.matches.push(Match {
            rule: index,
            transaction,
        });
    }

    /// Applies actions and thresholds to the matches, in the order of the rules, and raises the alerts.
    fn finish(
        &mut self,
        rules: &Ruleset,
        packet: &Packet<'_>,
        flow: Option<&Flow>,
        out: &mut Events,
    ) -> Action {
        let mut matches = std::mem::take(&mut self.matches);
        matches.sort_by_key(|found| found.rule);
        let mut decision = Action::None;
        let mut alerts = 0;
        let subject = subject(packet, flow);
        for found in &matches {
            let Some(rule) = rules.rules.get(found.rule as usize) else {
                continue;
            };
            let rate = rate::Subject {
                rule: found.rule,
                packet,
                flow: subject.flow,
            };
            let outcome = self.rates.apply(rate, rule.rate.as_ref(), &rule.thresholds);
            let action = match outcome {
                rate::Outcome::Alert(Some(action)) => action,
                _ => rule.action,
            };
            let action = effect(action, rule, flow.is_some());
            if matches!(action, Action::PassPacket | Action::PassFlow) {
                decision = decision.max(action);
                break;
            }
            decision = decision.max(action);
            if rule.is_silent || rule.action == RuleAction::Sdrop || outcome == rate::Outcome::Silent {
                continue;
            }
            if alerts >= self.alerts {
                self.counters.alerts_lost += 1;
                continue;
            }
            alerts += 1;
            self.counters.alerts += 1;
            out.push(Event::Alert(Alert {
                subject,
                sid: rule.sid,
                gid: rule.gid,
                rev: rule.rev,
                rule: found.rule,
                action,
                app: flow.and_then(|flow| flow.app.protocol),
                transaction: found.transaction,
                context: None,
            }));
        }
        matches.clear();
        self.matches = matches;
        decision
    }
}

/// Scans a stream window, and adds the rules of hits in it and in the windows before that lie in it.
fn scan_stream(
    group: &super::prefilter::Group,
    window: &StreamWindow<'_>,
    pending: Option<&mut Vec<(u32, u64)>>,
    candidates: &mut Candidates,
) {
    let from = window
        .new_from
        .saturating_sub(group.look_back())
        .min(window.bytes.len());
    let Some(pending) = pending.filter(|pending| pending.len() < PENDING) else {
        group.scan(window.bytes, &mut |rule| candidates.add(rule));
        return;
    };
    pending.retain(|(_, offset)| *offset > window.offset);
    pending.iter().for_each(|(rule, _)| candidates.add(*rule));
    let end = window.offset + window.bytes.len() as u64;
    group.scan(&window.bytes[from..], &mut |rule| {
        candidates.add(rule);
        match pending.iter().position(|(known, _)| *known == rule) {
            Some(at) => pending[at].1 = end,
            None if pending.len() < PENDING => pending.push((rule, end)),
            None => {}
        }
    });
}

/// Returns the effect of an action: on the packet or on its flow, by the type of the rule.
fn effect(action: RuleAction, rule: &Rule, has_flow: bool) -> Action {
    let is_flow = has_flow && rule.kind != RuleType::Packet;
    match action {
        RuleAction::Alert | RuleAction::Log => Action::None,
        RuleAction::Pass if is_flow => Action::PassFlow,
        RuleAction::Pass => Action::PassPacket,
        RuleAction::Drop | RuleAction::Sdrop if is_flow => Action::DropFlow,
        RuleAction::Drop | RuleAction::Sdrop => Action::DropPacket,
        RuleAction::Reject => Action::RejectSource,
        RuleAction::RejectDst => Action::RejectDestination,
        RuleAction::RejectBoth => Action::RejectBoth,
    }
}

/// Returns true if a condition holds for a stream, with or without a packet.
fn is_of_stream(test: &PacketTest) -> bool {
    matches!(
        test,
        PacketTest::StreamSize { .. } | PacketTest::SameIp | PacketTest::IpProtocol(_)
    )
}

/// Returns the subject of events about a packet.
fn subject(packet: &Packet<'_>, flow: Option<&Flow>) -> event::Subject {
    event::Subject {
        packet: packet.number,
        time: packet.time,
        flow: flow.map_or(0, |flow| flow.id),
        src: packet.src,
        dst: packet.dst,
        ports: packet.ports,
        protocol: packet.protocol,
    }
}
