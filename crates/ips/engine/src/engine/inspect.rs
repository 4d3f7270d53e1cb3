//! Inspection of a packet and of the pending stream data of its flow, and the decision that follows.

use super::decided::rejection;
use super::{Engine, evidence};
use crate::detect::{Inspection, Ruleset};
use crate::event::{Event, Events, PacketSource, RuleId};
use crate::flow::{Direction, Flow, FlowVerdict};
use crate::history;
use crate::packet::Packet;
use crate::policy::Cause;
use crate::settings::{Encryption, Mode};
use crate::tcp::{Stream, StreamWindow};
use crate::verdict::{Action, Verdict};

impl Engine {
    /// Evaluates the rules on a packet, and on the pending stream data of its direction.
    pub(super) fn inspect(
        &mut self,
        rules: &Ruleset,
        packet: &Packet<'_>,
        flow: &mut Flow,
        direction: Direction,
        out: &mut Events,
    ) -> Verdict {
        let events = out.list.len();
        let limits = self.detector.limits_len();
        let is_closing = flow.tcp.as_ref().is_some_and(|session| session.is_closing());
        let flushes = core::mem::take(&mut flow.app.flushes_raw[direction.index()]) || is_closing;
        let mut action = self.inspect_once(rules, packet, flow, direction, flushes, out);
        // Data after a hole become inspectable once the data before the hole are inspected.
        while flow
            .tcp
            .as_ref()
            .is_some_and(|session| session.waits_behind_hole(direction))
        {
            self.complete_alerts(events, flow, direction, out);
            let (app, key, expectations) = (&mut flow.app, &flow.key, &mut self.expectations);
            if let Some(session) = &mut flow.tcp {
                let counters = &mut self.counters.tcp;
                session.deliver(direction, &self.tcp, false, counters, |chunk| {
                    expectations.apply(key, app, &chunk);
                    app.stream(key, chunk);
                });
            }
            action = action.max(self.inspect_once(rules, &pseudo(packet), flow, direction, true, out));
        }
        if let Some(other) = flow.app.caught_up.take()
            && other != direction
        {
            self.complete_alerts(events, flow, direction, out);
            let pseudo = Packet::pseudo(&flow.key, other, packet.time);
            let flushes = core::mem::take(&mut flow.app.flushes_raw[other.index()]);
            action = action.max(self.inspect_once(rules, &pseudo, flow, other, flushes, out));
        }
        if flow.app.is_paused() {
            action = action.max(self.inspect_all_held(rules, packet, flow, direction, out));
        }
        self.charge(flow);
        if !flow.app.expected.is_empty() {
            let announced = flow.app.expected.drain(..);
            announced.for_each(|expectation| self.expectations.add(expectation));
        }
        let mut verdict = self.apply(action, flow);
        let cause = match self.detector.limits_len() != limits {
            true => Some(Cause::MatchLimit),
            false if flow.app.has_failed && !flow.has_exception(Cause::ParserError) => {
                Some(Cause::ParserError)
            }
            false if flow.app.is_ambiguous && !flow.has_exception(Cause::AmbiguousMessage) => {
                Some(Cause::AmbiguousMessage)
            }
            false => None,
        };
        let limited = self
            .detector
            .take_limited()
            .filter(|_| cause == Some(Cause::MatchLimit));
        let rule = limited
            .and_then(|index| rules.rules.get(index as usize))
            .map(|rule| RuleId {
                gid: rule.gid,
                sid: rule.sid,
            });
        let decided = cause.and_then(|cause| self.exception_of_rule(cause, rule, packet, Some(flow), out));
        if let Some(decided) = decided {
            verdict = verdict.max(decided);
        }
        // The flag is needed even when no records are kept: a flow with an alert is not bypassed.
        flow.is_alerted |= out.list[events..]
            .iter()
            .any(|event| matches!(event, Event::Alert(_)));
        self.bypass(flow);
        self.finish_transactions(events, packet, flow, direction, out);
        match self.charge_parser(packet, flow, out) {
            Some(decided) => verdict.max(decided),
            None => verdict,
        }
    }

    /// Adds flow and transaction to the alerts among the events from index `first` on, before another inspection,
    /// which may remove the transactions.
    fn complete_alerts(&self, first: usize, flow: &Flow, direction: Direction, out: &mut Events) {
        if self.keeps_records() {
            history::complete_alerts(&mut out.list[first..], flow, direction);
        }
    }

    /// Adds flow and transaction to the alerts among the events from index `first` on. Reports and removes the
    /// transactions that are complete and inspected.
    fn finish_transactions(
        &mut self,
        first: usize,
        packet: &Packet<'_>,
        flow: &mut Flow,
        direction: Direction,
        out: &mut Events,
    ) {
        self.complete_alerts(first, flow, direction, out);
        self.store_files(flow, out);
        if self.keeps_records() {
            let source = PacketSource::of(packet);
            history::report_frames(flow, packet.number, packet.time, source, out);
            history::report_complete(flow, packet, out);
        } else if let Some(frames) = &mut flow.app.frames {
            // Under overload, they are not reported.
            frames.take_reports();
        }
        flow.app.remove_finished_transactions();
    }

    /// Reports the bytes of complete files that rules store.
    pub(super) fn store_files(&mut self, flow: &mut Flow, out: &mut Events) {
        if flow.app.settings.store_limit == 0 {
            return;
        }
        if flow.app.transactions.has_ranges {
            let of_flow = flow.app.stores[Direction::ToClient.index()];
            self.ranged_files.note_stored(of_flow, &flow.app.transactions);
        }
        history::store_files(flow, out);
    }

    /// Joins the new bytes of ranges to their files, so that the rules see the places where ranges meet, and whole files.
    fn join_ranges(&mut self, flow: &mut Flow, packet: &Packet<'_>) {
        let app = &mut flow.app;
        if app.transactions.has_ranges {
            let (settings, transactions) = (&app.settings, &mut app.transactions);
            self.ranged_files
                .join(&flow.key, settings, transactions, packet.time);
        }
    }

    /// Evaluates the rules once on a packet, on the stream data that are due, and on the transactions of a direction.
    pub(super) fn inspect_once(
        &mut self,
        rules: &Ruleset,
        packet: &Packet<'_>,
        flow: &mut Flow,
        direction: Direction,
        flushes: bool,
        out: &mut Events,
    ) -> Action {
        self.join_ranges(flow, packet);
        // In mode `ips`, a retransmitted segment is inspected again with the current stream data.
        let repeats =
            self.settings.mode == Mode::Ips && !packet.payload.is_empty() && !packet.is_rejected_by_stream;
        let buffer = flow
            .tcp
            .as_mut()
            .and_then(|session| session.take_for_inspection(direction, &self.tcp, flushes, repeats));
        let window = buffer.as_ref().map(|buffer| buffer.window());
        // Bytes before the change of keys are searched, whenever they are due. A flow of TLS is encrypted as a whole, from the
        // packet on that follows the one which shows it.
        let hidden_from = flow.app.encrypted_from[direction.index()]
            .filter(|from| packet.is_encrypted || *from > 0 && self.settings.encryption != Encryption::Full);
        let window = match hidden_from {
            Some(from) => window.and_then(|window| window.before(from)),
            None => window,
        };
        let inspection = Inspection {
            packet,
            flow: Some(&mut *flow),
            direction,
            has_stream_data: window.is_some(),
            stream: window,
            now: packet.time,
        };
        let first = out.list.len();
        let mut action = self.detector.inspect(rules, inspection, out);
        let reduced = buffer.as_ref().zip(window);
        let reduced = reduced.and_then(|(buffer, window)| Some((buffer.without_urgent(&window)?, window)));
        if let Some((reduced, whole)) = reduced {
            action =
                action.max(self.inspect_again(rules, packet, flow, (direction, reduced.window(&whole)), out));
        }
        if flow.app.is_paused() {
            action = self.inspect_held(rules, packet, flow, (direction, window), (first, action), out);
        }
        if self.settings.evidence && out.list.len() > first && !packet.is_rejected_by_stream {
            let held = match &buffer {
                Some(buffer) => Some(buffer.all()),
                None => flow
                    .tcp
                    .as_ref()
                    .and_then(|session| session.stream(direction))
                    .map(Stream::held),
            };
            if let Some(held) = held {
                let (alerts, is_due) = (&mut out.list[first..], window.is_some());
                evidence::add_stream(alerts, rules, flow, direction, (held, is_due));
            }
        }
        if let Some(session) = &mut flow.tcp
            && let Some(buffer) = buffer
        {
            session.put_back(direction, buffer, self.settings.mode);
        }
        action
    }

    /// Evaluates the rules once more, on another reading of the stream data of a packet. A rule that matched on the first one,
    /// among the events from index `first` on, raises no second alert.
    #[cold]
    fn inspect_again(
        &mut self,
        rules: &Ruleset,
        packet: &Packet<'_>,
        flow: &mut Flow,
        (direction, window): (Direction, StreamWindow<'_>),
        out: &mut Events,
    ) -> Action {
        let known: Vec<_> = out.list.iter().filter_map(rule_of).collect();
        let first = out.list.len();
        let subject = pseudo(packet);
        let inspection = Inspection {
            packet: &subject,
            flow: Some(flow),
            direction,
            has_stream_data: true,
            stream: Some(window),
            now: packet.time,
        };
        let action = self.detector.inspect(rules, inspection, out);
        let mut at = 0;
        out.list.retain(|event| {
            at += 1;
            at <= first || rule_of(event).is_none_or(|rule| !known.contains(&rule))
        });
        action
    }

    /// Parses the held bytes of a direction in parts, and evaluates the rules on the transactions of each part.
    /// `first` is the index of the first event of the preceding inspection, `action` the decision so far. A rule that
    /// passes the flow ends the evaluation, as it does among the matches of one part.
    #[cold]
    fn inspect_held(
        &mut self,
        rules: &Ruleset,
        packet: &Packet<'_>,
        flow: &mut Flow,
        (direction, stream): (Direction, Option<StreamWindow<'_>>),
        (mut first, mut action): (usize, Action),
        out: &mut Events,
    ) -> Action {
        let key = flow.key;
        loop {
            self.finish_transactions(first, packet, flow, direction, out);
            if action == Action::PassFlow {
                flow.app.skip_inspection(&key);
                return action;
            }
            if !flow.app.resume(&key, direction) {
                return action;
            }
            self.join_ranges(flow, packet);
            first = out.list.len();
            let inspection = Inspection {
                packet,
                flow: Some(&mut *flow),
                direction,
                has_stream_data: stream.is_some(),
                stream,
                now: packet.time,
            };
            action = action.max(self.detector.inspect_transactions(rules, inspection, out));
        }
    }

    /// Parses all held bytes, and evaluates the rules on their transactions, alternately for both directions:
    /// uninspected transactions of one direction may block the bytes of the other.
    #[cold]
    pub(super) fn inspect_all_held(
        &mut self,
        rules: &Ruleset,
        packet: &Packet<'_>,
        flow: &mut Flow,
        direction: Direction,
        out: &mut Events,
    ) -> Action {
        let mut action = Action::None;
        let mut side = direction;
        while flow.app.is_paused() {
            side = side.reverse();
            let subject = match side == direction {
                true => pseudo(packet),
                false => Packet::pseudo(&flow.key, side, packet.time),
            };
            let flushes = core::mem::take(&mut flow.app.flushes_raw[side.index()]);
            action = action.max(self.inspect_once(rules, &subject, flow, side, flushes, out));
        }
        action
    }

    /// Applies the action of the matching rules to the flow, and returns the decision about the packet.
    fn apply(&self, action: Action, flow: &mut Flow) -> Verdict {
        match action {
            Action::None | Action::PassPacket => return Verdict::Pass,
            Action::PassFlow => {
                flow.verdict = FlowVerdict::Pass;
                return Verdict::Pass;
            }
            Action::DropPacket => {}
            Action::DropFlow | Action::RejectSource | Action::RejectDestination | Action::RejectBoth => {
                if self.settings.mode == Mode::Ips {
                    flow.verdict = FlowVerdict::Drop;
                }
            }
        }
        self.inline(rejection(action, self.detector.drop_reason()))
    }
}

/// Returns packet, generator and rule of an alert; `None` for another event.
fn rule_of(event: &Event) -> Option<(u64, u32, u32)> {
    match event {
        Event::Alert(alert) => Some((alert.subject.packet, alert.gid, alert.sid)),
        _ => None,
    }
}

/// Returns a pseudo packet: a copy of `packet` without the payload.
fn pseudo<'a>(packet: &Packet<'a>) -> Packet<'a> {
    Packet {
        payload: &[],
        is_pseudo: true,
        ..*packet
    }
}
