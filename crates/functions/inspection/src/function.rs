//! The function: bursts through the engine, decisions as verdicts and effects, events to the outbox.

use std::sync::Arc;
use std::time::Instant;

use millrace_ips_engine::detect::Ruleset;
use millrace_ips_engine::{
    Cause, Engine, Events, FlowVerdict, Frame, LinkType, Mode, Overload, Policy, Verdict as Decision,
};
use millrace_nf::flow::{Endpoint, FlowPacket};
use millrace_nf::{
    Buffer, Context, Counters, Direction, Effects, Function, Outbox, SettingError, Setup, SharedValue,
    ShunAction, ShunnedFlow, Verdict,
};
use millrace_types::{Duration, Time};

use crate::codec::{Encode, Output};
use crate::counters::{self, Own};
use crate::load::LoadGauge;
use crate::reject::{self, To};
use crate::rules::Rules;
use crate::settings::Config;

/// Time without a packet after which the switch forgets a shunned flow.
const SHUN_IDLE: Duration = Duration::from_secs(60);
/// Packets after which the time of a burst is compared with its budget.
const BUDGET_STEP: usize = 8;
/// Bytes that are allocated for packets of several segments: a GSO packet with its headers.
const SCRATCH_SIZE: usize = 66_000;
/// Bits of a flow number that count flows of one function.
const FLOW_BITS: u32 = 32;

/// One function: an engine with the rules of its hop.
pub(crate) struct Inspector {
    engine: Engine,
    config: Config,
    rules: Option<Arc<Rules>>,
    events: Events,
    outbox: Outbox,
    report: Outbox,
    /// The number of limits that rules had exceeded at the last report.
    reported: u64,
    counters: Counters,
    own: Own,
    load: LoadGauge,
    /// The Unix time at which the clock of the switch was zero.
    zero: Duration,
    /// The bytes of a packet of several segments.
    scratch: Vec<u8>,
    packets: u64,
    /// Unix time of the last burst or tick.
    now: Time,
}

/// Returns true if the switch can shun the flow of a packet: the packet is IP, has at most two VLAN tags, and has no
/// other header between Ethernet and IP.
#[cold]
fn can_be_shunned(packet: &dyn Buffer) -> bool {
    const TAGS_MAX: usize = 2;
    FlowPacket::of(packet).is_some_and(|found| found.layers.vlan_count() <= TAGS_MAX)
}

/// The number of functions created in this process. It distinguishes the flow numbers of different lanes.
static INSTANCES: core::sync::atomic::AtomicU64 = core::sync::atomic::AtomicU64::new(0);

impl Inspector {
    /// Returns a function without flows.
    pub(crate) fn new(setup: &Setup, mode: Mode) -> Result<Inspector, SettingError> {
        let mut config = Config::read(setup, mode)?;
        let instance = INSTANCES.fetch_add(1, core::sync::atomic::Ordering::Relaxed);
        // Numbers of flows stay below 2^53, which JSON readers keep exactly: 11 bits of start time, 10 bits of instance.
        let start = setup.zero_unix_millis / 1000;
        config.engine.first_flow = ((start & 0x7ff) << 10 | instance & 0x3ff) << FLOW_BITS | 1;
        let seed = [setup.seed, setup.seed.rotate_left(32) ^ instance];
        Ok(Inspector {
            engine: Engine::new(config.engine.clone(), seed),
            rules: setup.shared.as_ref().and_then(SharedValue::get),
            events: Events::default(),
            outbox: setup.outbox.clone(),
            report: setup.report.clone(),
            reported: 0,
            counters: setup.counters.clone(),
            own: Own::default(),
            load: LoadGauge::new(config.levels),
            zero: Duration::from_millis(setup.zero_unix_millis),
            scratch: Vec::with_capacity(match setup.table_len(SCRATCH_SIZE) {
                SCRATCH_SIZE => SCRATCH_SIZE,
                _ => 0,
            }),
            packets: 0,
            now: Time::ZERO,
            config,
        })
    }

    /// Returns the Unix time of a time of the switch.
    fn unix(&self, now: Time) -> Time {
        now + self.zero
    }

    /// Returns the verdict for a packet that is not inspected, because there are no rules.
    fn without_rules(&mut self) -> Verdict {
        self.own.exceptions[Cause::NoRules as usize] += 1;
        match (
            self.config.engine.mode,
            self.config.engine.policies.of(Cause::NoRules),
        ) {
            (Mode::Ids, _) | (_, Policy::Ignore | Policy::PassPacket | Policy::Bypass) => {
                self.own.uninspected += 1;
                Verdict::Next
            }
            (Mode::Ips, Policy::DropPacket | Policy::DropFlow | Policy::Reject) => {
                self.own.dropped += 1;
                Verdict::Drop
            }
        }
    }

    /// Inspects a packet.
    #[inline]
    fn inspect(&mut self, ruleset: &Ruleset, packet: &mut dyn Buffer, time: Time) -> Decision {
        self.packets += 1;
        let number = self.packets;
        let (engine, events) = (&mut self.engine, &mut self.events);
        let mut frame = |bytes: &mut [u8]| {
            let frame = Frame {
                bytes,
                link: LinkType(LinkType::ETHERNET),
                time,
                number,
            };
            engine.frame(ruleset, frame, events)
        };
        if packet.head().len() == packet.len() {
            return frame(packet.head_mut());
        }
        self.scratch.clear();
        packet.each_segment(&mut |segment| self.scratch.extend_from_slice(segment));
        self.own.segmented += 1;
        if self.scratch.len() != packet.len() {
            // Bytes that cannot be read cannot be inspected.
            self.own.unreadable += 1;
            return match self.config.engine.mode {
                Mode::Ips => Decision::Drop(millrace_ips_engine::verdict::DropReason::Normalizer),
                Mode::Ids => Decision::Pass,
            };
        }
        let decision = frame(&mut self.scratch);
        if decision != Decision::Rewritten {
            return decision;
        }
        let head = packet.head_mut();
        let (first, rest) = self.scratch.split_at(head.len());
        head.copy_from_slice(first);
        // Only the first segment can be changed. A packet with changes in other segments is dropped.
        let mut at = 0;
        let mut is_same = true;
        let mut is_first = true;
        packet.each_segment(&mut |segment| {
            if core::mem::take(&mut is_first) {
                return;
            }
            is_same &= rest.get(at..at + segment.len()) == Some(segment);
            at += segment.len();
        });
        match is_same {
            true => decision,
            false => {
                self.own.unreadable += 1;
                Decision::Drop(millrace_ips_engine::verdict::DropReason::Normalizer)
            }
        }
    }

    /// Sends a reset or an ICMP error to the source of a rejected packet, to its destination, or to both.
    #[cold]
    fn reject(&mut self, packet: &dyn Buffer, ends: (bool, bool), way: Direction, effects: &mut Effects) {
        let back = match way {
            Direction::Forward => Direction::Backward,
            Direction::Backward => Direction::Forward,
        };
        let wanted = [(ends.0, To::Source, back), (ends.1, To::Destination, way)];
        for (_, to, direction) in wanted.into_iter().filter(|(is_wanted, ..)| *is_wanted) {
            let answer = reject::answer(packet.head(), packet.len(), to);
            match answer.is_some_and(|answer| effects.send(direction, &answer)) {
                true => self.own.rejected += 1,
                false => self.own.not_rejected += 1,
            }
        }
    }

    /// Sends the events of a burst. Events without room are counted; they change no verdict.
    fn send_events(&mut self) {
        self.send_events_with_room();
        self.own.events_lost += self.events.list.len() as u64;
        self.events.list.clear();
    }

    /// Sends events, several in a message, until the outbox is full; the other events stay.
    fn send_events_with_room(&mut self) {
        let size = self.outbox.size();
        let mut events = self.events.list.as_slice();
        while !events.is_empty() {
            let (mut sent, mut tried) = (0, 0);
            let has_room = self.outbox.send(|message| {
                for event in events {
                    let before = message.len();
                    let mut out = Output::new(message, size);
                    event.write(&mut out);
                    let is_complete = out.is_complete();
                    if !is_complete {
                        message.truncate(before);
                        // An event that does not fit into an empty message is lost.
                        tried += usize::from(before == 0);
                        break;
                    }
                    (sent, tried) = (sent + 1, tried + 1);
                }
                sent > 0
            });
            if !has_room && tried == 0 {
                break;
            }
            self.own.events_lost += (tried - sent) as u64;
            events = &events[tried..];
        }
        let rest = events.len();
        let done = self.events.list.len() - rest;
        self.events.list.drain(..done);
    }

    /// Shuns the flow of a packet, if the engine has decided about all of its packets.
    #[inline]
    fn shun(&mut self, packet: &dyn Buffer, index: usize, effects: &mut Effects) {
        let action = match self.engine.settled() {
            FlowVerdict::None => return,
            FlowVerdict::Pass | FlowVerdict::Bypass => ShunAction::Pass,
            FlowVerdict::Drop => ShunAction::Drop,
        };
        if self.config.shuns && can_be_shunned(packet) {
            effects.shun(index, action, SHUN_IDLE);
            self.engine.shun();
        }
    }

    /// Reports the rules that exceeded a limit most often, if there are new ones.
    fn report_limits(&mut self) {
        /// Number of rules that a report names.
        const NAMED: usize = 5;
        let counters = self.engine.detect_counters();
        let limits = counters.step_limits + counters.pcre_limits;
        let Some(rules) = self.rules.as_ref().filter(|_| limits != self.reported) else {
            return;
        };
        let mut limited: Vec<(u32, u64)> = self.engine.detector().limited_rules().collect();
        limited.sort_by_key(|(rule, count)| (core::cmp::Reverse(*count), *rule));
        let others = limited.len().saturating_sub(NAMED);
        let mut text = String::new();
        for (index, count) in limited.into_iter().take(NAMED) {
            if let Some(rule) = rules.ruleset.rules.get(index as usize) {
                text += &format!(
                    "rule {}:{} exceeded a limit of its evaluation {count} times\n",
                    rule.gid, rule.sid
                );
            }
        }
        if others > 0 {
            text += &format!("{others} other rules exceeded a limit, too\n");
        }
        let is_sent = self.report.send(|out| {
            out.extend_from_slice(text.as_bytes());
            true
        });
        if is_sent {
            self.reported = limits;
        }
    }

    fn set_overload(&mut self, level: Overload) {
        self.engine.set_overload(level);
    }
}

impl Function for Inspector {
    fn process(&mut self, context: &Context, burst: &mut [&mut dyn Buffer], verdicts: &mut [Verdict]) {
        // Callers that carry out effects call the other method.
        let mut effects = Effects::refusing();
        self.process_with_effects(context, burst, verdicts, &mut effects);
    }

    fn process_with_effects(
        &mut self,
        context: &Context,
        burst: &mut [&mut dyn Buffer],
        verdicts: &mut [Verdict],
        effects: &mut Effects,
    ) {
        let time = self.unix(context.now);
        self.now = time;
        let Some(rules) = self.rules.clone() else {
            verdicts.fill_with(|| self.without_rules());
            return;
        };
        if let Some(level) = self.load.note(context.load, context.now) {
            self.set_overload(level);
        }
        let start = self.config.burst.map(|budget| (Instant::now(), budget));
        let mut is_over = false;
        for (index, (packet, verdict)) in burst.iter_mut().zip(verdicts).enumerate() {
            if index % BUDGET_STEP == BUDGET_STEP - 1
                && let Some((start, budget)) = start
            {
                is_over = is_over || start.elapsed() > budget;
            }
            if is_over {
                self.own.uninspected += 1;
                continue;
            }
            match self.inspect(&rules.ruleset, *packet, time) {
                Decision::Pass => {}
                Decision::Rewritten => self.own.rewritten += 1,
                Decision::Drop(_) => {
                    self.own.dropped += 1;
                    *verdict = Verdict::Drop;
                }
                Decision::Reject { source, destination } => {
                    self.own.dropped += 1;
                    *verdict = Verdict::Drop;
                    self.reject(&**packet, (source, destination), context.direction, effects);
                }
            }
            self.shun(&**packet, index, effects);
        }
        if !self.events.list.is_empty() {
            self.send_events();
        }
    }

    fn shun_ended(&mut self, flow: &ShunnedFlow) {
        let end = |end: Endpoint| (end.ip(), end.port);
        let ends = [end(flow.flow.source), end(flow.flow.destination)];
        // The time of the last packet is not known: the time-out of the flow starts with this call.
        let counters = (flow.packets, flow.bytes);
        self.engine
            .unshun(ends, flow.flow.proto, flow.vlans, counters, self.now);
    }

    fn share(&mut self, value: SharedValue) -> Option<SharedValue> {
        match value.get::<Rules>() {
            None => Some(value),
            Some(rules) => self.rules.replace(rules).map(SharedValue::from),
        }
    }

    fn tick(&mut self, now: Time) {
        self.now = self.unix(now);
        if let Some(rules) = self.rules.clone() {
            self.engine
                .expire_some(&rules.ruleset, self.now, &mut self.events);
            if !self.events.list.is_empty() {
                self.send_events();
            }
        }
        self.report_limits();
        if let Some(level) = self.load.note(0, now) {
            self.set_overload(level);
        }
        self.own.level = self.load.level() as u64;
        self.own.level_changes = self.load.changes;
        counters::write(&self.counters, &self.engine, &self.own);
    }

    fn finish(&mut self) -> bool {
        if let Some(rules) = self.rules.clone() {
            self.engine.finish(&rules.ruleset, &mut self.events);
        }
        self.send_events_with_room();
        counters::write(&self.counters, &self.engine, &self.own);
        !self.events.list.is_empty()
    }
}
