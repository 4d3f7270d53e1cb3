//! The evaluation of a rule set on one packet, with the conditions that all types of rules have.

mod costs;
mod decision;
mod packets;
mod profile;
mod trace;
mod transactions;

use std::collections::HashMap;

use millrace_ips_pcre as pcre;
use millrace_ips_rules::options::number::{Comparison, NumberField};

use costs::Profile;
use trace::Tracer;

pub use costs::{Clock, Cost, Costs, GroupId};
pub use trace::{Condition, TraceOutcome, TracePlace, TraceRecord};

use super::candidates::Candidates;
use super::compile::Ruleset;
use super::dataset::FoundJson;
use super::evaluate::{self, Limit, Scratch};
use super::program::{AppTest, PacketTest, Rule, RuleType};
use super::rate::Rates;
use super::state::{self, AddressBits};
use super::subject::Subject;
use super::{Inspection, conditions, reload, transform};
use crate::app::{AppProtocol, FrameView};
use crate::event::{Alert, Event, Events};
use crate::flow::{Direction, Flow};
use crate::mode::Mode;
use crate::packet::Packet;
use crate::tcp::{LOOK_BACK, StreamWindow};
use crate::verdict::Action;

/// Largest number of alerts of a packet, as in the default configuration of Suricata.
const ALERTS: usize = 15;

/// Size in bytes of the part of a stream, including the new bytes, that mode `ips` inspects with each packet.
/// Suricata documents 2,560, varied at random by up to a tenth. The value here agrees with its recorded
/// alerts.
const WINDOW: usize = LOOK_BACK;

/// Counters of detection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// Rules that were evaluated.
    pub evaluations: u64,
    /// Alerts that were raised.
    pub alerts: u64,
    /// Alerts that were lost because their packet had too many.
    pub alerts_lost: u64,
    /// Evaluations that ended because the budget of steps was used up.
    pub step_limits: u64,
    /// Evaluations that ended at a limit of an expression.
    pub pcre_limits: u64,
    /// Number of the last rule that exceeded a limit; 0 if there is none.
    pub limited_sid: u64,
    /// Counters of thresholds and detection filters that were lost because the table was full.
    pub rates_lost: u64,
    /// Bits of hosts and address pairs that were not set because the table was full.
    pub bits_lost: u64,
    /// Values of sets that were not added or removed because the set had too many changes.
    pub values_lost: u64,
}

/// A rule that matched the packet.
#[derive(Debug, Clone, Copy)]
struct Match {
    rule: u32,
    transaction: Option<u64>,
    frame: Option<FrameView>,
    /// True if the transaction is one of a further reading of its message.
    is_reading: bool,
    /// The index in [`Detector::found_json`] of the JSON values of sets that the rule found.
    json: Option<u16>,
    /// The index in [`Detector::captured`] of the names and values that the rule captured for its alerts.
    captured: Option<u16>,
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
    /// The JSON values of sets that matching rules found.
    found_json: Vec<Vec<FoundJson>>,
    /// Names and values that expressions of matching rules captured for their alerts.
    captured: Vec<Vec<(Vec<u8>, Vec<u8>)>>,
    /// Names and values that expressions of matching rules captured for all alerts of the packet.
    packet_variables: Vec<(Vec<u8>, Vec<u8>)>,
    /// The alert of the rule that dropped the last packet that one dropped.
    dropping: Option<Box<Alert>>,
    counters: Counters,
    /// True if a rate filter changed the action of the rule that decided last about a packet.
    is_rate_filtered: bool,
    /// The steps of expressions for a packet and for a flow.
    budgets: (u64, u64),
    /// The packet of the budget in use, and the steps that are left for it.
    budget: (u64, u64),
    /// The last rule that exceeded a limit.
    limited: Option<u32>,
    /// The generation of the rule set to which the indexes of rules belong.
    generation: u64,
    /// How often each rule exceeded a limit.
    limits: HashMap<u32, u64>,
    profile: Option<Box<Profile>>,
    tracer: Option<Box<Tracer>>,
    mode: Mode,
}

impl Default for Detector {
    fn default() -> Detector {
        Detector::new(DetectSettings::default(), Mode::default())
    }
}

/// Settings of detection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DetectSettings {
    /// Limits of regular expressions.
    pub pcre: pcre::Limits,
    /// True if an evaluation that exceeds a limit counts as a match. The excess is counted in either case.
    pub limit_matches: bool,
    /// Largest number of alerts of a packet; the alerts of the first rules are kept.
    pub alerts: usize,
    /// Largest number of counters of rates, and of bits of addresses, that are kept at a time.
    pub table_len: usize,
    /// Steps that the expressions of all rules may take for one packet. A step visits at most 64 bytes.
    pub packet_steps: u64,
    /// Steps that they may take for the packets of a flow: a flow has at most this number, and gets 16,384 more with
    /// each packet.
    pub flow_steps: u64,
}

/// Steps of expressions that a flow gets with each packet.
const STEPS_REFILLED: u64 = 16 << 10;

impl Default for DetectSettings {
    fn default() -> DetectSettings {
        DetectSettings {
            pcre: pcre::Limits::default(),
            limit_matches: false,
            alerts: ALERTS,
            table_len: 1 << 16,
            packet_steps: 256 << 10,
            flow_steps: 512 << 10,
        }
    }
}

/// The parts of an inspection that are the same for all rules.
#[derive(Clone, Copy)]
struct Context<'a> {
    packet: &'a Packet<'a>,
    direction: Direction,
    has_stream_data: bool,
    stream: Option<StreamWindow<'a>>,
}

impl Detector {
    /// Returns a detector without state for a mode of the engine.
    pub fn new(settings: DetectSettings, mode: Mode) -> Detector {
        Detector {
            scratch: Scratch::new(settings.pcre, settings.limit_matches),
            alerts: settings.alerts,
            memory: Default::default(),
            addresses: AddressBits::new(settings.table_len),
            rates: Rates::new(settings.table_len),
            matches: Vec::new(),
            found_json: Vec::new(),
            captured: Vec::new(),
            packet_variables: Vec::new(),
            dropping: None,
            counters: Counters::default(),
            is_rate_filtered: false,
            budgets: (settings.packet_steps, settings.flow_steps),
            budget: (0, 0),
            limited: None,
            generation: 0,
            limits: HashMap::new(),
            profile: None,
            tracer: None,
            mode,
        }
    }

    /// Returns the counters.
    pub fn counters(&self) -> Counters {
        Counters {
            rates_lost: self.rates.lost,
            bits_lost: self.addresses.lost,
            values_lost: self.scratch.sets.lost,
            ..self.counters
        }
    }

    /// Returns how often rules exceeded limits.
    pub(crate) fn limits_len(&self) -> u64 {
        self.counters.step_limits + self.counters.pcre_limits
    }

    /// Returns how often a rule, by its index, exceeded a limit.
    pub fn limits(&self, rule: u32) -> u64 {
        self.limits.get(&rule).copied().unwrap_or(0)
    }

    /// Returns the last rule that exceeded a limit since the last call, by its index.
    pub(crate) fn take_limited(&mut self) -> Option<u32> {
        self.limited.take()
    }

    /// Returns the rules that exceeded a limit, by their index, each with the number of times.
    pub fn limited_rules(&self) -> impl Iterator<Item = (u32, u64)> {
        self.limits.iter().map(|(rule, count)| (*rule, *count))
    }

    /// Sets the budget of expressions for an inspection: what is left for the packet, and for its flow.
    fn begin_budget(&mut self, packet: u64, flow: Option<&mut Flow>) {
        let is_new = self.budget.0 != packet || packet == 0;
        if is_new {
            self.budget = (packet, self.budgets.0);
        }
        let of_flow = flow.map_or(u64::MAX, |flow| {
            if is_new {
                let used = &mut flow.detect.steps_used;
                *used = used.saturating_sub(STEPS_REFILLED);
            }
            self.budgets.1.saturating_sub(flow.detect.steps_used)
        });
        self.scratch.set_budget(self.budget.1.min(of_flow));
    }

    /// Takes the steps since [`Detector::begin_budget`] from the budgets of packet and flow.
    fn end_budget(&mut self, before: u64, flow: Option<&mut Flow>) {
        let used = before.saturating_sub(self.scratch.budget());
        self.budget.1 = self.budget.1.saturating_sub(used);
        if let Some(flow) = flow {
            flow.detect.steps_used = flow.detect.steps_used.saturating_add(used);
        }
    }

    /// Removes the bits of addresses and the counters of thresholds, for example between two captures.
    pub fn clear(&mut self) {
        self.addresses.clear();
        self.rates.clear();
        self.scratch.sets.clear();
    }

    /// Evaluates the rules on a packet, the new stream data, and the transactions of the flow.
    pub fn inspect(&mut self, rules: &Ruleset, what: Inspection<'_>, out: &mut Events) -> Action {
        let Inspection {
            packet,
            mut flow,
            direction,
            has_stream_data,
            stream,
            now: _,
        } = what;
        let context = Context {
            packet,
            direction,
            has_stream_data,
            stream,
        };
        if self.generation != rules.numbers.generation {
            // The indexes of the rules have changed.
            self.limits.clear();
            self.generation = rules.numbers.generation;
        }
        if let Some(flow) = flow.as_deref_mut()
            && flow.detect.generation != rules.numbers.generation
        {
            reload::renumber(flow, &rules.numbers);
        }
        self.matches.clear();
        self.found_json.clear();
        self.captured.clear();
        self.packet_variables.clear();
        self.begin_budget(packet.number, flow.as_deref_mut());
        let budget = self.scratch.budget();
        self.ip_only(rules, context, flow.as_deref_mut());
        self.packet_rules(rules, context, flow.as_deref_mut());
        if let Some(flow) = flow.as_deref_mut() {
            self.transactions(rules, context, flow);
            self.repeat_overruled(context, flow);
        }
        self.end_budget(budget, flow.as_deref_mut());
        self.decide(rules, context, flow, out)
    }

    /// Evaluates the rules on further transactions that came with a packet, after [`Detector::inspect`].
    pub(crate) fn inspect_transactions(
        &mut self,
        rules: &Ruleset,
        what: Inspection<'_>,
        out: &mut Events,
    ) -> Action {
        let context = Context {
            packet: what.packet,
            direction: what.direction,
            has_stream_data: what.has_stream_data,
            stream: what.stream,
        };
        self.matches.clear();
        self.found_json.clear();
        self.captured.clear();
        self.packet_variables.clear();
        let mut flow = what.flow;
        self.begin_budget(what.packet.number, flow.as_deref_mut());
        let budget = self.scratch.budget();
        if let Some(flow) = flow.as_deref_mut() {
            self.transactions(rules, context, flow);
        }
        self.end_budget(budget, flow.as_deref_mut());
        self.decide(rules, context, flow, out)
    }

    /// Evaluates only the rules over events of a packet.
    pub(crate) fn inspect_events(
        &mut self,
        rules: &Ruleset,
        what: Inspection<'_>,
        out: &mut Events,
    ) -> Action {
        let context = Context {
            packet: what.packet,
            direction: what.direction,
            has_stream_data: false,
            stream: None,
        };
        self.matches.clear();
        self.found_json.clear();
        self.captured.clear();
        self.packet_variables.clear();
        let mut flow = what.flow;
        self.begin_budget(what.packet.number, flow.as_deref_mut());
        let budget = self.scratch.budget();
        for &index in &rules.prefilter.packet_events {
            self.evaluate(rules, index, context, flow.as_deref_mut());
        }
        self.end_budget(budget, flow.as_deref_mut());
        self.decide(rules, context, flow, out)
    }

    /// Applies the rules that matched, and returns their action.
    fn decide(
        &mut self,
        rules: &Ruleset,
        context: Context<'_>,
        mut flow: Option<&mut Flow>,
        out: &mut Events,
    ) -> Action {
        self.trace_packet(rules, context, flow.as_deref());
        if let Some(frames) = flow
            .as_deref_mut()
            .and_then(|flow| flow.app.frames.as_deref_mut())
        {
            frames.remove_inspected(context.direction);
        }
        if !self.scratch.sets.reported.is_empty() {
            let changes = self.scratch.sets.reported.drain(..);
            changes.for_each(|change| out.push(Event::Set(change)));
        }
        let first = out.list.len();
        let action = match self.matches.is_empty() {
            true => Action::None,
            false => self.finish(rules, context.packet, flow, out),
        };
        self.complete_trace(rules, &out.list[first..]);
        action
    }

    /// Returns true if a rule disables the tracking of the flow for a packet. It is asked before the packet has one.
    pub(crate) fn untracks(&self, rules: &Ruleset, packet: &Packet<'_>) -> bool {
        let context = Context {
            packet,
            direction: Direction::ToServer,
            has_stream_data: false,
            stream: None,
        };
        let mut untracked = rules
            .untracked
            .iter()
            .filter_map(|index| rules.rules.get(*index as usize));
        untracked.any(|rule| self.common(rule, context, None, None))
    }

    /// Returns true if the conditions that all types of rules have are satisfied. `app` is the protocol of
    /// the transaction if there is one. Otherwise it is the protocol of the flow, which CONNECT or STARTTLS
    /// can change.
    fn common(
        &self,
        rule: &Rule,
        context: Context<'_>,
        flow: Option<&Flow>,
        app: Option<AppProtocol>,
    ) -> bool {
        let Context {
            packet,
            direction,
            has_stream_data,
            ..
        } = context;
        let is_app = rule.protocol.app.is_empty()
            || app.is_some_and(|app| rule.protocol.app.contains(&app))
                && (!rule.protocol.carries_dns || flow.is_some_and(|flow| flow.app.carries_dns));
        // The fastest tests come first; tests of addresses are the slowest.
        is_app
            && conditions::flow(rule, packet, flow, direction)
            && (!packet.is_pseudo || rule.packet.iter().all(is_of_stream))
            && rule
                .packet
                .iter()
                .all(|test| conditions::packet(test, packet, flow) && !(has_stream_data && is_empty(test)))
            && conditions::header(rule, packet)
            && rule.app.iter().all(|test| match test {
                AppTest::Protocol(test) => conditions::protocol(test, app, flow),
                // Fields and numbers belong to transactions, where they are tested.
                AppTest::Field(..) | AppTest::Number(..) | AppTest::Digest { .. } | AppTest::Progress(_) => {
                    true
                }
            })
            && rule
                .state
                .iter()
                .all(|test| state::is_true(test, packet, flow.map(|flow| &flow.detect.bits), &self.addresses))
    }

    /// Returns true if the payload of the packet or the stream matches the rule.
    fn payload(&mut self, rule: &Rule, context: Context<'_>, flow: Option<&Flow>) -> bool {
        let Context { packet, stream, .. } = context;
        if !rule.headers.is_empty() && !self.headers(rule, packet) {
            return false;
        }
        if rule.payload.is_empty() {
            return !packet.is_pseudo || rule.kind == RuleType::Transaction;
        }
        if rule.on_stream
            && let Some(window) = stream
            && self.window(rule, &window)
        {
            return true;
        }
        let on_packet = rule.on_packets || rule.on_stream && !is_in_stream(packet, flow);
        on_packet
            && !packet.is_pseudo
            && !packet.hides_payload()
            && !packet.payload.is_empty()
            && evaluate::matches(&rule.payload, &Subject::whole(packet.payload), &mut self.scratch)
    }

    /// Returns true if the headers and addresses of the packet match the rule.
    fn headers(&mut self, rule: &Rule, packet: &Packet<'_>) -> bool {
        !packet.is_pseudo
            && rule.headers.iter().all(|test| {
                let mut address = [0; 16];
                let Some(bytes) = conditions::buffer(test.buffer, packet, &mut address) else {
                    return false;
                };
                if test.transforms.is_empty() {
                    return evaluate::matches(&test.operations, &Subject::whole(bytes), &mut self.scratch);
                }
                let mut transformed = std::mem::take(&mut self.memory.1);
                transform::apply(
                    &test.transforms,
                    bytes,
                    &mut transformed,
                    self.scratch.expressions(),
                );
                let is_match =
                    evaluate::matches(&test.operations, &Subject::whole(&transformed), &mut self.scratch);
                self.memory.1 = transformed;
                is_match
            })
    }

    /// Returns true if the rule matches the last part of a stream window. Also returns true if it matches the
    /// whole window and did not match the part that was inspected before.
    fn window(&mut self, rule: &Rule, window: &StreamWindow<'_>) -> bool {
        let [last, all] = subjects(window);
        if evaluate::matches(&rule.payload, &last, &mut self.scratch) {
            return true;
        }
        let before = Subject {
            bytes: &window.bytes[..window.new_from],
            is_complete: false,
            ..all
        };
        (last.bytes.len() < all.bytes.len() || window.offset > 0)
            && evaluate::matches(&rule.payload, &all, &mut self.scratch)
            && !evaluate::matches(&rule.payload, &before, &mut self.scratch)
    }

    /// Counts a limit that the evaluation of a rule exceeded.
    fn note_limit(&mut self, index: u32, rule: &Rule) {
        match self.scratch.limit.take() {
            None => return,
            Some(Limit::Steps) => self.counters.step_limits += 1,
            Some(Limit::Pcre) => self.counters.pcre_limits += 1,
        }
        self.limited = Some(index);
        self.counters.limited_sid = u64::from(rule.sid);
        *self.limits.entry(index).or_default() += 1;
    }
}

/// Returns true if the stream of a flow has the payload of a packet.
fn is_in_stream(packet: &Packet<'_>, flow: Option<&Flow>) -> bool {
    flow.is_some_and(|flow| flow.tcp.is_some()) && !packet.is_rejected_by_stream
}

/// Returns the bytes of a stream window to which rules are applied: its last part, then the whole.
fn subjects<'a>(window: &StreamWindow<'a>) -> [Subject<'a>; 2] {
    let StreamWindow { bytes, new_from, .. } = *window;
    // As observed, `depth` and `offset` count from the first byte of the last part. In mode `ids` the
    // last part is the chunk. In mode `ips` the last part also contains bytes before the packet, so a
    // match in them is repeated with the next packet.
    let from = match window.is_chunk {
        true => new_from,
        false => bytes.len().saturating_sub(WINDOW).min(new_from),
    };
    let subject = |bytes, offset| Subject {
        bytes,
        offset,
        is_complete: window.is_end,
        is_dce_big_endian: false,
    };
    [subject(&bytes[from..], 0), subject(bytes, window.offset)]
}

/// Returns true if a condition requires an empty payload. As observed in the alerts of Suricata, a packet
/// with which stream data become inspectable never satisfies it.
fn is_empty(test: &PacketTest) -> bool {
    matches!(test, PacketTest::Number(NumberField::Dsize, Comparison::Equal(0)))
}

/// Returns true if a condition holds for a stream, with or without a packet.
fn is_of_stream(test: &PacketTest) -> bool {
    matches!(
        test,
        PacketTest::StreamSize { .. } | PacketTest::SameIp | PacketTest::IpProtocol(_)
    )
}
