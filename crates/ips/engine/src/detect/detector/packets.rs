//! The rules over addresses, packets and streams.

use millrace_ips_rules::header::Action as RuleAction;

use super::decision::is_once;
use super::{Context, Detector, GroupId, is_in_stream, subjects};
use crate::detect::candidates::Candidates;
use crate::detect::compile::Ruleset;
use crate::detect::conditions;
use crate::detect::flow_state::PENDING;
use crate::detect::prefilter::{Class, Group};
use crate::detect::program::Rule;
use crate::detect::subject::Subject;
use crate::flow::Flow;
use crate::tcp::StreamWindow;

impl Detector {
    /// Evaluates the rules that have only conditions of the header, at the first packet of each direction that is inspected:
    /// packets that were dropped before do not count. An ICMP error about the flow does not stand for its packets, nor for
    /// other errors, which any router may send: rules with an action apply to each of them.
    pub(super) fn ip_only(&mut self, rules: &Ruleset, context: Context<'_>, mut flow: Option<&mut Flow>) {
        let Context {
            packet, direction, ..
        } = context;
        if packet.is_pseudo {
            return;
        }
        let (mut is_own, mut are_alerts_due) = (true, true);
        if let Some(flow) = flow.as_deref_mut() {
            let done = &mut flow.detect.ip_only[direction.index()];
            is_own = flow.key.has_ends_of(packet, direction);
            are_alerts_due = !done.on_own && (is_own || !done.on_error);
            if is_own && done.on_own {
                return;
            }
            match is_own {
                true => done.on_own = true,
                false => done.on_error = true,
            }
        }
        for &index in &rules.prefilter.ip_only {
            let Some(rule) = rules.rules.get(index as usize) else {
                continue;
            };
            let is_due = are_alerts_due || !matches!(rule.action, RuleAction::Alert | RuleAction::Log);
            if is_due && conditions::header(rule, packet) {
                // An ICMP error does not change the state of the flow that it quotes.
                let own = flow.as_deref_mut().filter(|_| is_own);
                self.record(index, rule, context, own, None);
            }
        }
    }

    /// Evaluates the rules over packets and streams.
    pub(super) fn packet_rules(
        &mut self,
        rules: &Ruleset,
        context: Context<'_>,
        mut flow: Option<&mut Flow>,
    ) {
        let Context {
            packet,
            direction,
            stream,
            ..
        } = context;
        let prefilter = &rules.prefilter;
        // A rule with other endpoints cannot match in this direction of the flow. The groups of a direction have no rule that asks for
        // the other one.
        let is_possible = |rule: u32| {
            let rule = rules.rules.get(rule as usize);
            rule.is_some_and(|rule| conditions::header(rule, packet))
        };
        self.memory.0.begin();
        if !packet.is_pseudo {
            let class = Class::of(packet.protocol) as usize;
            // If the stream window has the bytes of the packet, the scan of the window finds the rules that
            // are also over streams.
            let is_in_window = stream.is_some_and(|window| {
                let new = window.bytes.get(window.new_from..).unwrap_or_default();
                !packet.is_rejected_by_stream && new.starts_with(packet.payload)
            });
            let groups = match (is_in_window, is_in_stream(packet, flow.as_deref())) {
                (true, _) => &prefilter.packets_in_window,
                (false, true) => &prefilter.packets_in_stream,
                (false, false) => &prefilter.packets[class],
            };
            let group = &groups[direction.index()];
            let candidates = &mut self.memory.0;
            group.always.iter().for_each(|rule| candidates.add(*rule));
            let payload = Subject::whole(packet.payload);
            group.direct.find(packet, &[payload], &mut |rule| {
                candidates.add_if(rule, is_possible);
            });
            if !packet.payload.is_empty() && !packet.hides_payload() {
                let known = candidates.list.len();
                let sample = self.begin_sample();
                let candidates = &mut self.memory.0;
                group.scan(packet.payload, 0, &mut |rule| {
                    candidates.add_if(rule, is_possible);
                });
                let hits = candidates.list.len() - known;
                self.end_group(sample, GroupId::Packets(class as u8), hits, packet.payload.len());
            }
        }
        if let Some(window) = stream {
            let group = &prefilter.stream[direction.index()];
            let sample = self.begin_sample();
            let candidates = &mut self.memory.0;
            let known = candidates.list.len();
            group.always.iter().for_each(|rule| candidates.add(*rule));
            let pending = flow
                .as_deref_mut()
                .map(|flow| &mut flow.detect.pending[direction.index()]);
            let [last, all] = subjects(&window);
            let payload = Subject::whole(packet.payload);
            group.direct.find(packet, &[last, all, payload], &mut |rule| {
                candidates.add_if(rule, is_possible);
            });
            scan_stream(group, &window, pending, candidates, is_possible);
            let hits = candidates.list.len() - known;
            self.end_group(sample, GroupId::Stream, hits, window.bytes.len());
        }
        if !packet.events.is_empty() {
            let candidates = &mut self.memory.0;
            prefilter
                .packet_events
                .iter()
                .for_each(|rule| candidates.add(*rule));
        }
        self.memory.0.list.sort_unstable();
        let list = std::mem::take(&mut self.memory.0.list);
        for &index in &list {
            self.evaluate(rules, index, context, flow.as_deref_mut());
        }
        self.memory.0.list = list;
    }

    /// Evaluates a rule over packets and streams, and records its match.
    pub(super) fn evaluate(
        &mut self,
        rules: &Ruleset,
        index: u32,
        context: Context<'_>,
        flow: Option<&mut Flow>,
    ) {
        let Some(rule) = rules.rules.get(index as usize) else {
            return;
        };
        let sample = self.begin_sample();
        let is_match = self.packet_rule(index, rule, context, flow.as_deref());
        self.end_rule(sample, index, is_match);
        if is_match {
            self.record(index, rule, context, flow, None);
        }
    }

    /// Returns true if a rule over packets and streams matches.
    fn packet_rule(&mut self, index: u32, rule: &Rule, context: Context<'_>, flow: Option<&Flow>) -> bool {
        let app = flow.and_then(|flow| flow.app.detected_in(context.direction));
        if !self.common(rule, context, flow, app) {
            return false;
        }
        if is_once(rule)
            && let Some(flow) = flow
            && flow.detect.raised[context.direction.index()].contains(&index)
        {
            return false;
        }
        self.counters.evaluations += 1;
        self.scratch.begin();
        let is_match = self.payload(rule, context, flow);
        self.note_limit(index, rule);
        is_match
    }
}

/// Scans the new bytes of a stream window. Adds the possible rules of the new hits, and the rules of earlier
/// hits that are still inside the window.
fn scan_stream(
    group: &Group,
    window: &StreamWindow<'_>,
    pending: Option<&mut Vec<(u32, u64)>>,
    candidates: &mut Candidates,
    is_possible: impl Fn(u32) -> bool,
) {
    let from = window
        .new_from
        .saturating_sub(group.look_back())
        .min(window.bytes.len());
    let Some(pending) = pending.filter(|pending| pending.len() < PENDING) else {
        group.scan(window.bytes, 0, &mut |rule| {
            candidates.add_if(rule, &is_possible);
        });
        return;
    };
    pending.retain(|(_, offset)| *offset > window.offset);
    pending.iter().for_each(|(rule, _)| candidates.add(*rule));
    let end = window.offset + window.bytes.len() as u64;
    let known = window.new_from.min(window.bytes.len()) - from;
    group.scan(&window.bytes[from..], known, &mut |rule| {
        match pending.iter().position(|(known, _)| *known == rule) {
            Some(at) => pending[at].1 = end,
            None if !is_possible(rule) => return,
            None if pending.len() < PENDING => pending.push((rule, end)),
            None => {}
        }
        candidates.add(rule);
    });
}
