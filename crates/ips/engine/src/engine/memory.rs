//! The pool of parsers: what parsers and detection keep for flows, and what is given up when the pool is full.
//!
//! ```text
//!  full ─▶ memory kept for later flows ─▶ the parser of the flow that holds most, among 1,024 and this one ─▶ policy
//! ```
//!
//! The pool is within its limit after each packet: only the flow of the packet grows, and it is the last to give up.

use super::Engine;
use crate::event::Events;
use crate::flow::{Direction, Flow};
use crate::history;
use crate::packet::Packet;
use crate::policy::Cause;
use crate::verdict::Verdict;

impl Engine {
    /// Charges what the parser and detection keep for a flow. Returns the decision about the packet if its flow had to give
    /// up its parser.
    pub(super) fn charge_parser(
        &mut self,
        packet: &Packet<'_>,
        flow: &mut Flow,
        out: &mut Events,
    ) -> Option<Verdict> {
        if !flow.app.take_changed() {
            return None;
        }
        let memory = flow.parser_memory();
        self.parser_bytes = self.parser_bytes + memory - flow.charged;
        flow.charged = memory;
        match self.parser_bytes + self.flows.spare_bytes() > self.settings.parser_bytes {
            true => self.shed_parsers(packet, flow, out),
            false => None,
        }
    }

    /// Gives up memory of parsers until the pool is within its limit.
    #[cold]
    fn shed_parsers(&mut self, packet: &Packet<'_>, flow: &mut Flow, out: &mut Events) -> Option<Verdict> {
        self.flows.free_spare();
        if self.parser_bytes <= self.settings.parser_bytes {
            return None;
        }
        if let Some((index, memory)) = self.flows.largest()
            && memory > flow.charged
            && let Some(mut other) = self.flows.take(index)
        {
            let subject = Packet::pseudo(&other.key, Direction::ToServer, packet.time);
            // The verdict of the other flow holds for its later packets.
            let _decided = self.give_up_parser(&subject, &mut other, out);
            self.flows.put(index, other);
        }
        match self.parser_bytes > self.settings.parser_bytes {
            true => self.give_up_parser(packet, flow, out),
            false => None,
        }
    }

    /// Frees the parser of a flow, and returns the decision of the policy.
    fn give_up_parser(&mut self, packet: &Packet<'_>, flow: &mut Flow, out: &mut Events) -> Option<Verdict> {
        self.counters.parsers_given_up += 1;
        if self.keeps_records() {
            history::report_unfinished(flow, packet.time, out);
        }
        flow.give_up_parser();
        let memory = flow.parser_memory();
        self.parser_bytes = self.parser_bytes + memory - flow.charged;
        flow.charged = memory;
        self.exception(Cause::ParserMemory, packet, Some(flow), out)
    }
}
