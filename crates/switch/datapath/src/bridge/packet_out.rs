//! Packets that the control side sends: packet_out.

use std::collections::BTreeMap;

use millrace_pipeline::{Counters, DropReason, Egress, Learn, Origin, PacketInInfo};
use millrace_types::{PortNo, QueueId, Time};

use super::Bridge;
use super::port::BridgePort;
use crate::events::{CapturedPacket, Direction, Events};
use crate::handoff::Destination;
use crate::io::Backend;
use crate::worker::{Command, WorkerHandle};

impl<B: Backend> Bridge<B> {
    /// Executes a list of actions on a packet of the control side (OpenFlow 1.3.5, section 7.3.7). `origin` has the ingress
    /// port. Returns `None` if no buffer is free.
    pub fn packet_out(
        &mut self,
        origin: impl Into<Origin>,
        actions: &[millrace_flow::Action],
        bytes: &[u8],
    ) -> Option<()> {
        let packet = self.backend.packet(bytes)?;
        let now = self.now();
        let mut egress = ControlEgress {
            bridge: self.number,
            workers: &self.workers,
            ports: &self.ports,
            events: &self.events,
            counters: &self.counters,
        };
        self.processor
            .packet_out(self.writer.read(), origin, actions, packet, now, &mut egress);
        Some(())
    }

    /// Sends a frame of a link protocol out of a port or a member of a LAG, even if the port is blocked: neither actions nor
    /// the state of the port apply, and the frame leaves ahead of all packets that wait in the switch. Returns `None` if no buffer is free.
    pub fn send(&mut self, port: PortNo, bytes: &[u8]) -> Option<()> {
        let packet = self.backend.packet(bytes)?;
        let Some(out) = self.ports.get(&port) else {
            self.counters.drops.add(DropReason::NoSuchPort, 1);
            return Some(());
        };
        self.workers[out.owner].send(Command::SendFirst {
            bridge: self.number,
            port,
            packet,
        });
        Some(())
    }
}

/// The egress of packet_outs: the inboxes of the workers that own the ports.
struct ControlEgress<'a, P> {
    bridge: u32,
    workers: &'a [WorkerHandle<P>],
    ports: &'a BTreeMap<PortNo, BridgePort>,
    events: &'a Events<P>,
    counters: &'a Counters,
}

impl<P: millrace_wire::Packet> Egress<P> for ControlEgress<'_, P> {
    fn transmit(&mut self, port: PortNo, queue: Option<QueueId>, packet: P) {
        let Some(out) = self.ports.get(&port) else {
            self.counters.drops.add(DropReason::NoSuchPort, 1);
            return;
        };
        let to = Destination {
            bridge: self.bridge,
            port,
            queue,
        };
        if self.workers[out.owner].inbox.put_one(to, packet).is_err() {
            out.control_counters.tx_dropped.add(1);
            self.counters.drops.add(DropReason::TransmitFull, 1);
        }
    }

    fn packet_in(&mut self, info: PacketInInfo, packet: P) {
        if !self.events.push_packet_in(info, packet) {
            self.counters.drops.add(DropReason::PacketInFull, 1);
        }
    }

    fn learn(&mut self, learn: Learn) {
        self.events.push_learn(learn);
    }

    fn neighbour(&mut self, underlay: PortNo, packet: P) {
        self.events.push_neighbour(underlay, packet);
    }

    fn traced(&mut self, trace: u64, in_port: PortNo, packet: P) {
        let direction = Direction::Traced(trace);
        self.events.push_captured(CapturedPacket {
            port: in_port,
            direction,
            captures: 0,
            time: Time::ZERO,
            packet,
        });
    }
}
