//! Packets that cannot be inspected as they should be, and flows that need no further inspection.

use core::net::IpAddr;

use millrace_types::Time;
use millrace_wire::tcp::flags;

use super::Engine;
use crate::event::{Event, Events, RuleId};
use crate::flow::{Flow, FlowVerdict, Tuple};
use crate::history;
use crate::packet::Packet;
use crate::policy::{Cause, Overload, Policies, Policy};
use crate::settings::{Encryption, Mode};
use crate::tcp::TcpProblem;
use crate::verdict::{DropReason, Verdict};

impl Engine {
    /// Sets the level of overload for the next frames.
    pub fn set_overload(&mut self, overload: Overload) {
        self.overload = overload;
    }

    /// Returns true if events other than alerts are written.
    pub(super) fn keeps_records(&self) -> bool {
        self.settings.records && !self.overload.sheds_records
    }

    /// Returns the decision about all later packets of the flow of the last frame; [`FlowVerdict::None`] while they are
    /// inspected, and for a frame that has no ports, is a fragment, or carries a tunnel.
    pub fn settled(&self) -> FlowVerdict {
        self.settled.map_or(FlowVerdict::None, |(_, verdict)| verdict)
    }

    /// Notes that later packets of the flow of the last frame will not be seen, until [`Engine::unshun`].
    pub fn shun(&mut self) {
        if let Some((index, _)) = self.settled
            && let Some(mut flow) = self.flows.take(index)
        {
            flow.is_shunned = true;
            self.flows.put(index, flow);
        }
    }

    /// Ends the shun of a flow, and adds the packets and bytes that the engine did not see to the flow's
    /// counters. `vlans` holds the flow's VLAN identifiers, outermost first, and 0 without a tag. The idle
    /// time of the flow starts at `now`.
    pub fn unshun(
        &mut self,
        ends: [(IpAddr, u16); 2],
        protocol: u8,
        vlans: [u16; 2],
        (packets, bytes): (u64, u64),
        now: Time,
    ) {
        let tuple = Tuple::between(ends, protocol, [vlans[0], vlans[1], 0]);
        if let Some(index) = self.flows.find(&tuple)
            && let Some(mut flow) = self.flows.take(index)
        {
            flow.is_shunned = false;
            flow.last = flow.last.max(now);
            flow.counters[0].packets += packets;
            flow.counters[0].bytes += bytes;
            self.flows.put(index, flow);
        }
    }

    /// Returns the decision of a policy about a new flow that cannot be inspected; `None` if the flow may
    /// begin.
    pub(super) fn refuses_flow(
        &mut self,
        packet: &Packet<'_>,
        tuple: &Tuple,
        out: &mut Events,
    ) -> Option<Verdict> {
        let is_refusing = |policies: &Policies, cause| policies.of(cause) != Policy::Ignore;
        let policies = self.settings.policies;
        if self.settings.mode != Mode::Ips {
            return None;
        }
        if self.overload.limits_flows && is_refusing(&policies, Cause::Overload) {
            return self.exception(Cause::Overload, packet, None, out);
        }
        if is_refusing(&policies, Cause::FlowTable) && self.flows.is_full(tuple) {
            return self.exception(Cause::FlowTable, packet, None, out);
        }
        None
    }

    /// Returns the decision about a segment with a problem; `None` if the segment is inspected outside of its
    /// stream.
    pub(super) fn problem(
        &mut self,
        problem: TcpProblem,
        packet: &Packet<'_>,
        flow: &mut Flow,
        out: &mut Events,
    ) -> Option<Verdict> {
        let cause = match problem {
            // An acknowledgment without data needs no inspection.
            TcpProblem::OneSided if packet.payload.is_empty() => return None,
            TcpProblem::OneSided => Cause::OneSided,
            TcpProblem::Midstream => Cause::Midstream,
            TcpProblem::Memory => Cause::SegmentMemory,
            _ => Cause::InvalidTcp,
        };
        self.exception(cause, packet, Some(flow), out)
    }

    /// Returns the decision about a segment with urgent data; `None` if it is inspected: in mode `ips` the normaliser then leaves
    /// one reading of it.
    pub(super) fn urgent(
        &mut self,
        packet: &Packet<'_>,
        flow: &mut Flow,
        out: &mut Events,
    ) -> Option<Verdict> {
        let is_urgent = packet.tcp.is_some_and(|tcp| tcp.has(flags::URG));
        match is_urgent {
            true => self.exception(Cause::Urgent, packet, Some(flow), out),
            false => None,
        }
    }

    /// Returns true if a packet is dropped because the application parser has failed. Rules are not evaluated for a
    /// packet that is dropped here.
    pub(super) fn refuses_message(&mut self, packet: &Packet<'_>, flow: &mut Flow, out: &mut Events) -> bool {
        let policy = self.settings.policies.of(Cause::ParserError);
        let drops = matches!(policy, Policy::DropPacket | Policy::DropFlow);
        let is_new = flow.app.has_failed && !flow.has_exception(Cause::ParserError);
        drops
            && is_new
            && self
                .exception(Cause::ParserError, packet, Some(flow), out)
                .is_some()
    }

    /// Applies the policy of a cause, and returns the policy's decision about the packet. Returns `None` if
    /// the packet is inspected as far as possible, and always in mode `ids`.
    pub(super) fn exception(
        &mut self,
        cause: Cause,
        packet: &Packet<'_>,
        flow: Option<&mut Flow>,
        out: &mut Events,
    ) -> Option<Verdict> {
        self.exception_of_rule(cause, None, packet, flow, out)
    }

    /// Applies the policy of a cause as [`Engine::exception`] does, and names the rule of the cause.
    pub(super) fn exception_of_rule(
        &mut self,
        cause: Cause,
        rule: Option<RuleId>,
        packet: &Packet<'_>,
        flow: Option<&mut Flow>,
        out: &mut Events,
    ) -> Option<Verdict> {
        if self.settings.mode != Mode::Ips {
            return None;
        }
        let policy = self.settings.policies.of(cause);
        self.counters.exceptions[cause as usize] += 1;
        let mut is_new = true;
        let mut id = 0;
        if let Some(flow) = flow {
            id = flow.id;
            is_new = !flow.has_exception(cause);
            flow.exceptions |= 1 << cause as u16;
            match policy {
                Policy::Bypass => flow.verdict = FlowVerdict::Bypass,
                Policy::DropFlow | Policy::Reject => flow.verdict = FlowVerdict::Drop,
                Policy::Ignore | Policy::PassPacket | Policy::DropPacket => {}
            }
        }
        if is_new && self.keeps_records() {
            out.push(Event::Exception(
                history::subject_of(packet, id),
                cause,
                policy,
                rule,
            ));
        }
        match policy {
            Policy::Ignore => None,
            Policy::PassPacket | Policy::Bypass => Some(Verdict::Pass),
            Policy::DropPacket | Policy::DropFlow => Some(Verdict::Drop(DropReason::Policy(cause))),
            Policy::Reject => Some(Verdict::Reject {
                source: true,
                destination: true,
            }),
        }
    }

    /// Ends the inspection of an encrypted flow, if the settings ask for it, and of a flow that a rule bypasses. Under overload, also ends the
    /// inspection of a large flow without an alert.
    pub(super) fn bypass(&self, flow: &mut Flow) {
        if flow.verdict != FlowVerdict::None {
            return;
        }
        let is_encrypted = flow.app.is_encrypted() && self.settings.encryption == Encryption::Bypass;
        let is_elephant = || {
            let size: u64 = flow.counters.iter().map(|counters| counters.bytes).sum();
            self.overload.sheds_depth && size > self.settings.bypass_size && !flow.is_alerted
        };
        if is_encrypted || flow.is_bypassed || is_elephant() {
            flow.verdict = FlowVerdict::Bypass;
        }
    }
}
