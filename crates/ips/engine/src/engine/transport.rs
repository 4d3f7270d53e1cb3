//! The transport layer of a flow: from a packet's segment or datagram to the parser.

use millrace_wire::IpProto;
use millrace_wire::tcp::flags;

use super::{BUFFER_SIZE, Engine, SPARE_PART};
use crate::flow::{Direction, Flow, FlowState};
use crate::packet::Packet;
use crate::settings::Mode;
use crate::tcp::normalize::{Edits, SegmentLocation};
use crate::tcp::{Session, TcpProblem};

impl Engine {
    /// Applies a packet to the transport state of its flow, and passes data that became inspectable to the
    /// parser. Marks the packet that ends the handshake. Returns the changes of the packet that the normaliser asks for.
    pub(super) fn transport(
        &mut self,
        packet: &mut Packet<'_>,
        flow: &mut Flow,
        direction: Direction,
    ) -> Result<Option<(Edits, SegmentLocation)>, TcpProblem> {
        let Some(tcp) = &packet.tcp else {
            if flow.is_two_way() {
                flow.state = FlowState::Established;
                flow.was_established = true;
            }
            if packet.protocol == IpProto::UDP.0 && !packet.payload.is_empty() && !packet.is_tunnel {
                flow.app.datagram(&flow.key, direction, packet.payload);
            }
            return Ok(None);
        };
        // Under overload, new connections are inspected to half the depth.
        let depth = match self.overload.sheds_depth {
            true => self.tcp.depth / 2,
            false => self.tcp.depth,
        };
        let counters = &mut self.counters.tcp;
        let was_seen = flow.tcp.is_some();
        if !was_seen {
            let Some(session) = Session::begin(tcp, &self.tcp, depth) else {
                counters.problems[TcpProblem::Midstream as usize] += 1;
                return Err(TcpProblem::Midstream);
            };
            counters.sessions += 1;
            flow.begin_tcp(session);
        }
        let Some(session) = &mut flow.tcp else {
            return Ok(None);
        };
        let needed = self.segment_bytes + packet.payload.len();
        if needed + self.buffer_bytes > self.settings.segment_bytes {
            // Buffers that are kept for later connections are freed first.
            self.buffers.clear();
            self.buffer_bytes = 0;
        }
        // In mode `ips`, the last part of the memory is reserved for data in order, because they fill holes and so free
        // memory.
        let limit = self.settings.segment_bytes;
        let is_full = needed > limit - limit / SPARE_PART
            && (needed > limit || self.settings.mode == Mode::Ips && !session.continues(tcp, direction));
        if !packet.payload.is_empty()
            && session.needs_buffer(direction)
            && let Some(buffer) = self.buffers.pop()
        {
            self.buffer_bytes -= buffer.capacity();
            session.give_buffer(direction, buffer);
        }
        let result = if is_full && !packet.payload.is_empty() {
            Err(TcpProblem::Memory)
        } else if self.settings.checks_checksums && !packet.checksum_is_right() {
            Err(TcpProblem::Checksum)
        } else {
            session.segment(packet, tcp, direction, &self.tcp, counters)
        };
        let accepted = match result {
            Ok(accepted) => accepted,
            Err(problem) => {
                counters.problems[problem as usize] += 1;
                return Err(problem);
            }
        };
        let (app, key, expectations) = (&mut flow.app, &flow.key, &mut self.expectations);
        // The sender sends nothing after the segment that closes the connection, so the engine does not wait
        // for missing data.
        let is_last = session.is_closing() && tcp.flags & (flags::FIN | flags::RST) != 0;
        for side in Direction::BOTH {
            // In mode `ids`, data are inspected when their receiver sends a packet, even if they were
            // acknowledged before.
            if self.settings.mode == Mode::Ids && side == direction && !is_last && !session.is_closing() {
                continue;
            }
            session.deliver(side, &self.tcp, is_last && side == direction, counters, |chunk| {
                expectations.apply(key, app, &chunk);
                app.stream(key, chunk);
            });
        }
        let has_begun = flow.state == FlowState::New && session.state() == FlowState::Established;
        let is_empty = |side| session.stream(side).is_none_or(|stream| stream.sent() == 0);
        packet.ends_handshake = has_begun && was_seen && Direction::BOTH.into_iter().all(is_empty);
        flow.state = session.state();
        flow.was_established |= flow.state == FlowState::Established;
        session.charge(&mut self.segment_bytes);
        if accepted.edits.is_empty() {
            return Ok(None);
        }
        let Some(location) = SegmentLocation::of(packet) else {
            // A segment made of fragments cannot be rewritten. Its last fragment is dropped, so that the
            // segment does not arrive.
            self.counters.tcp.problems[TcpProblem::Fragmented as usize] += 1;
            return Err(TcpProblem::Fragmented);
        };
        accepted.edits.count(&mut self.counters.tcp);
        Ok(Some((accepted.edits, location)))
    }

    /// Charges the memory of a flow's streams to the pool. A closed connection releases the buffers that it
    /// no longer needs.
    pub(super) fn charge(&mut self, flow: &mut Flow) {
        if let Some(session) = &mut flow.tcp {
            if flow.state == FlowState::Closed {
                self.keep_buffers(session, false);
            }
            session.charge(&mut self.segment_bytes);
        }
    }

    /// Keeps the buffers that a connection no longer needs, for later connections.
    pub(super) fn keep_buffers(&mut self, session: &mut Session, has_ended: bool) {
        for buffer in session.release(has_ended) {
            let size = self.buffer_bytes + buffer.capacity();
            if self.buffers.len() < self.buffers.capacity()
                && buffer.capacity() <= BUFFER_SIZE
                && size <= self.settings.segment_bytes / SPARE_PART
            {
                self.buffer_bytes = size;
                self.buffers.push(buffer);
            }
        }
    }
}
