//! The memory pool of parsers and detection, and the steps that free memory when the pool is full.
//!
//! ```text
//!  pool full ─▶ free memory kept for later flows ─▶ forget files that come in ranges
//!            ─▶ free the largest of 1,024 parsers ─▶ free own parser
//! ```
//!
//! The pool is within its limit after each packet. Only the packet's own flow grows, and this flow is the
//! last to free its parser.

use super::Engine;
use crate::event::Events;
use crate::flow::{Direction, Flow};
use crate::history;
use crate::packet::Packet;
use crate::policy::Cause;
use crate::verdict::Verdict;

impl Engine {
    /// Charges the memory of a flow's parser and detection to the pool. Returns the policy's decision about
    /// the packet if the flow had to free its parser.
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
        let beside = self.flows.spare_bytes() + self.ranged_files.size();
        match self.parser_bytes + beside > self.settings.parser_bytes {
            true => self.shed_parsers(packet, flow, out),
            false => None,
        }
    }

    /// Frees memory of parsers until the pool is within its limit.
    #[cold]
    fn shed_parsers(&mut self, packet: &Packet<'_>, flow: &mut Flow, out: &mut Events) -> Option<Verdict> {
        self.flows.free_spare();
        if self.parser_bytes + self.ranged_files.size() > self.settings.parser_bytes {
            self.ranged_files.clear();
        }
        if self.parser_bytes <= self.settings.parser_bytes {
            return None;
        }
        if let Some((index, memory)) = self.flows.largest()
            && memory > flow.charged
            && let Some(mut other) = self.flows.take(index)
        {
            let subject = Packet::pseudo(&other.key, Direction::ToServer, packet.time);
            // The verdict about the other flow applies to its later packets, not to this packet.
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
