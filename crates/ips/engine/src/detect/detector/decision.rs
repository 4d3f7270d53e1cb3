//! The rules that matched: their changes of state, their rates, their actions and alerts.

use millrace_ips_rules::header::Action as RuleAction;

use super::{Context, Detector, Match};
use crate::app::AppProtocol;
use crate::detect::compile::Ruleset;
use crate::detect::evaluate::{CAPTURES, Captured};
use crate::detect::flow_state::OVERRULED;
use crate::detect::program::{CaptureScope, Rule, RuleType};
use crate::detect::rate;
use crate::detect::state::{self, FlowBits};
use crate::event::{self, Alert, Event, Events};
use crate::flow::{Direction, Flow};
use crate::mode::Mode;
use crate::packet::Packet;
use crate::verdict::{Action, DropReason};

impl Detector {
    /// Handles a rule whose conditions are satisfied: applies its changes of state, and adds it to the matches.
    pub(super) fn record(
        &mut self,
        index: u32,
        rule: &Rule,
        context: Context<'_>,
        mut flow: Option<&mut Flow>,
        transaction: Option<u64>,
    ) {
        let Context {
            packet, direction, ..
        } = context;
        for effect in &rule.effects {
            let bits: Option<&mut FlowBits> = flow.as_deref_mut().map(|flow| &mut flow.detect.bits);
            state::apply(effect, packet, bits, &mut self.addresses);
        }
        if let Some(flow) = flow.as_deref_mut() {
            flow.is_bypassed |= rule.bypasses;
        }
        if is_once(rule)
            && let Some(flow) = flow.as_deref_mut()
        {
            flow.detect.raised[direction.index()].push(index);
        }
        let mut captured = Vec::new();
        for group in self.scratch.captured.drain(..) {
            let Captured { scope, name, value } = group;
            match (scope, flow.as_deref_mut()) {
                (CaptureScope::Flow, Some(flow)) => flow.detect.bits.set_variable(name, value),
                (CaptureScope::Packet, _) if self.packet_variables.len() < CAPTURES => {
                    self.packet_variables.push((name, value));
                }
                (CaptureScope::Flow | CaptureScope::Packet, _) => {}
                (CaptureScope::Alert, _) => captured.push((name, value)),
            }
        }
        let captured = match captured.is_empty() {
            true => None,
            false => {
                self.captured.push(captured);
                u16::try_from(self.captured.len() - 1).ok()
            }
        };
        let json = match self.scratch.sets.found.is_empty() {
            true => None,
            false => u16::try_from(self.found_json.len()).ok(),
        };
        if json.is_some() {
            self.found_json.push(std::mem::take(&mut self.scratch.sets.found));
        }
        self.matches.push(Match {
            rule: index,
            transaction,
            frame: None,
            is_reading: false,
            json,
            captured,
        });
    }

    /// Applies actions and thresholds to the matches, in the order of the rules, and raises the alerts.
    pub(super) fn finish(
        &mut self,
        rules: &Ruleset,
        packet: &Packet<'_>,
        mut flow: Option<&mut Flow>,
        out: &mut Events,
    ) -> Action {
        let mut matches = std::mem::take(&mut self.matches);
        matches.sort_by_key(|found| found.rule);
        let mut decision = Action::None;
        // Further readings of a message have only the alerts that the others leave.
        let own = matches.iter().filter(|found| !found.is_reading).count();
        let limits = [self.alerts, self.alerts.saturating_sub(own)];
        let mut alerts = [0; 2];
        let subject = subject(packet, flow.as_deref());
        // An ICMP error is inspected with the flow that it quotes, although its sender need not belong to the flow: a
        // verdict on it applies to the packet alone.
        let is_own = |flow: &Flow| {
            Direction::BOTH
                .iter()
                .any(|side| flow.key.has_ends_of(packet, *side))
        };
        let has_flow = !matches.is_empty() && flow.as_deref().is_some_and(is_own);
        let app = flow.as_deref().and_then(|flow| flow.app.protocol);
        for (at, found) in matches.iter().enumerate() {
            let Some(rule) = rules.rules.get(found.rule as usize) else {
                continue;
            };
            let rate = rate::Subject {
                rule: (rule.gid, rule.sid),
                packet,
                flow: subject.flow,
            };
            let outcome = self.rates.apply(rate, &rule.thresholds);
            if outcome == rate::Outcome::Below {
                continue;
            }
            let action = match outcome {
                rate::Outcome::Alert(Some(action)) => action,
                _ => rule.action,
            };
            let action = effect(action, rule, has_flow);
            if matches!(action, Action::PassPacket | Action::PassFlow) {
                decision = decision.max(action);
                if rule.alerts_on_pass && outcome != rate::Outcome::Silent {
                    self.counters.alerts += 1;
                    out.push(Event::Alert(self.alert(rule, found, subject, action, app)));
                }
                if let Some(flow) = flow.as_deref_mut() {
                    match action {
                        Action::PassFlow => flow.detect.passed_by = rule.pass_digest,
                        _ => overrule(rules, &matches[at + 1..], has_flow, &mut flow.detect.overruled),
                    }
                }
                break;
            }
            if action >= Action::DropPacket && decision < Action::DropPacket && self.mode == Mode::Ips {
                let alert = self.alert(rule, found, subject, action, app);
                self.dropping = Some(Box::new(alert));
            }
            if action > decision {
                self.is_rate_filtered = matches!(outcome, rate::Outcome::Alert(Some(_)));
                decision = action;
            }
            if rule.is_silent || rule.action == RuleAction::Sdrop || outcome == rate::Outcome::Silent {
                continue;
            }
            let kind = usize::from(found.is_reading);
            if alerts[kind] >= limits[kind] {
                self.counters.alerts_lost += 1;
                continue;
            }
            alerts[kind] += 1;
            self.counters.alerts += 1;
            let action = self.reported_action(action);
            out.push(Event::Alert(self.alert(rule, found, subject, action, app)));
        }
        matches.clear();
        self.matches = matches;
        decision
    }

    /// Adds the rules that an earlier packet passed over to the matches, see [`FlowState::overruled`].
    pub(super) fn repeat_overruled(&mut self, context: Context<'_>, flow: &mut Flow) {
        let is_own = |flow: &Flow| flow.key.has_ends_of(context.packet, context.direction);
        if flow.detect.overruled.is_empty() || context.packet.is_pseudo || !is_own(flow) {
            return;
        }
        for rule in flow.detect.overruled.drain(..) {
            if !self.matches.iter().any(|found| found.rule == rule) {
                self.matches.push(Match {
                    rule,
                    transaction: None,
                    frame: None,
                    is_reading: false,
                    json: None,
                    captured: None,
                });
            }
        }
    }

    /// Returns the reason of the last decision to drop a packet.
    pub(crate) fn drop_reason(&self) -> DropReason {
        match self.is_rate_filtered {
            true => DropReason::RateFilter,
            false => DropReason::Rule,
        }
    }

    /// Returns the alert of the first rule that dropped or rejected a packet, if one did.
    pub(crate) fn take_dropping(&mut self, packet: u64) -> Option<Box<Alert>> {
        self.dropping.take_if(|alert| alert.subject.packet == packet)
    }

    /// Returns the alert of a match.
    fn alert(
        &self,
        rule: &Rule,
        found: &Match,
        subject: event::Subject,
        action: Action,
        app: Option<AppProtocol>,
    ) -> Alert {
        let json = found.json.and_then(|at| self.found_json.get(usize::from(at)));
        let captured = found.captured.and_then(|at| self.captured.get(usize::from(at)));
        Alert {
            subject,
            sid: rule.sid,
            gid: rule.gid,
            rev: rule.rev,
            rule: found.rule,
            action,
            packet_action: Action::None,
            app,
            transaction: found.transaction,
            frame: found.frame.map(Box::new),
            tunnel: None,
            json: json.cloned().unwrap_or_default(),
            captured: captured.cloned().unwrap_or_default(),
            packet_variables: self.packet_variables.clone(),
            context: None,
            evidence: None,
        }
    }

    /// Returns the action that the alert of a rule shows: only mode `ips` drops.
    fn reported_action(&self, action: Action) -> Action {
        match action {
            Action::DropPacket | Action::DropFlow if self.mode == Mode::Ids => Action::None,
            action => action,
        }
    }
}

/// Keeps the rules among the matches whose action takes the flow: a rule that passes one packet does not pass the flow.
#[cold]
fn overrule(rules: &Ruleset, matches: &[Match], has_flow: bool, overruled: &mut Vec<u32>) {
    for found in matches {
        let Some(rule) = rules.rules.get(found.rule as usize) else {
            continue;
        };
        let is_of_flow = !is_of_packet(rule) && effect(rule.action, rule, has_flow) >= Action::DropFlow;
        if is_of_flow && overruled.len() < OVERRULED && !overruled.contains(&found.rule) {
            overruled.push(found.rule);
        }
    }
}

/// Returns true if a rule matches once in each direction of a flow: it asks for the protocol of the flow, and for no bytes.
pub(super) fn is_once(rule: &Rule) -> bool {
    rule.kind == RuleType::AppLayer && rule.payload.is_empty()
}

/// Returns true if the action of a rule applies to the packet.
fn is_of_packet(rule: &Rule) -> bool {
    matches!(rule.kind, RuleType::Packet | RuleType::DecoderEvent)
}

/// Returns the effect of an action. The type of the rule decides if it applies to the packet or to its flow.
fn effect(action: RuleAction, rule: &Rule, has_flow: bool) -> Action {
    let is_flow = has_flow && !is_of_packet(rule);
    match action {
        RuleAction::Alert | RuleAction::Log | RuleAction::Config => Action::None,
        RuleAction::Pass if is_flow => Action::PassFlow,
        RuleAction::Pass => Action::PassPacket,
        RuleAction::Drop | RuleAction::Sdrop if is_flow => Action::DropFlow,
        RuleAction::Drop | RuleAction::Sdrop => Action::DropPacket,
        RuleAction::Reject => Action::RejectSource,
        RuleAction::RejectDst => Action::RejectDestination,
        RuleAction::RejectBoth => Action::RejectBoth,
    }
}

/// Returns the subject of events about a packet.
pub(super) fn subject(packet: &Packet<'_>, flow: Option<&Flow>) -> event::Subject {
    event::Subject {
        packet: packet.number,
        time: packet.time,
        flow: flow.map_or(0, |flow| flow.id),
        src: packet.src,
        dst: packet.dst,
        ports: packet.ports,
        protocol: packet.protocol,
        icmp: packet.icmp.map(|icmp| (icmp.kind, icmp.code)),
        vlans: packet.vlans,
        source: event::PacketSource::of(packet),
    }
}
