//! What workers tell the control side of a bridge, through bounded queues: packets for the controllers,
//! learned addresses, and copies of packets that a person asked to see.
//!
//! A full queue refuses; nobody waits. Learned addresses and packet-ins have queues of their own, so that a
//! flood of the one does not starve the other.

use std::sync::Arc;
use std::thread::Thread;

use crossbeam_queue::ArrayQueue;
use millrace_pipeline::{Learn, PacketInInfo};
use millrace_types::{PortNo, Time};
use millrace_wire::Packet;

use crate::capture::Captures;

/// Packet-ins that wait for the control side.
const PACKET_INS_LEN: usize = 1024;
/// Learned addresses that wait for the control side.
const LEARNS_LEN: usize = 1024;
/// Packets that ask for addresses under tunnels, and wait for the control side.
const NEIGHBOURS_LEN: usize = 256;
/// Captured packets that wait for the control side.
const TAPPED_LEN: usize = 4096;

/// Which way a captured packet went.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    /// Into the switch.
    Rx,
    /// Out of the switch.
    Tx,
    /// Into the switch, and what the live trace of this number waited for.
    Traced(u64),
}

/// A copy of a packet, for a person.
#[derive(Debug)]
pub struct Tapped<P> {
    /// Where it was seen.
    pub port: PortNo,
    /// Which way it went.
    pub direction: Direction,
    /// A bit for each capture that wants it, by number; none for a live trace.
    pub captures: u64,
    /// When the worker saw its burst.
    pub time: Time,
    /// The copy.
    pub packet: P,
}

/// The queues of one bridge.
pub(crate) struct Events<P> {
    packet_ins: ArrayQueue<(PacketInInfo, P)>,
    learns: ArrayQueue<Learn>,
    neighbours: ArrayQueue<(PortNo, P)>,
    tapped: ArrayQueue<Tapped<P>>,
    /// Whom to wake.
    control: Thread,
}

impl<P: Packet> Events<P> {
    pub(crate) fn new(control: Thread) -> Arc<Events<P>> {
        Arc::new(Events {
            packet_ins: ArrayQueue::new(PACKET_INS_LEN),
            learns: ArrayQueue::new(LEARNS_LEN),
            neighbours: ArrayQueue::new(NEIGHBOURS_LEN),
            tapped: ArrayQueue::new(TAPPED_LEN),
            control,
        })
    }

    /// Returns whether there was room.
    pub(crate) fn push_packet_in(&self, info: PacketInInfo, packet: P) -> bool {
        let pushed = self.packet_ins.push((info, packet)).is_ok();
        self.control.unpark();
        pushed
    }

    /// An address that finds the queue full is learned from its next packet.
    pub(crate) fn push_learn(&self, learn: Learn) {
        if self.learns.push(learn).is_ok() {
            self.control.unpark();
        }
    }

    /// A question or an answer that finds the queue full is lost, and comes again.
    pub(crate) fn push_neighbour(&self, underlay: PortNo, packet: P) {
        if self.neighbours.push((underlay, packet)).is_ok() {
            self.control.unpark();
        }
    }

    /// A copy that finds the queue full is lost to the capture, which says so by its sequence of times.
    pub(crate) fn push_tapped(&self, tapped: Tapped<P>) {
        if self.tapped.push(tapped).is_ok() {
            self.control.unpark();
        }
    }

    /// Copies a packet for the captures that want it.
    #[cold]
    pub(crate) fn tap(
        &self,
        captures: &Captures,
        port: PortNo,
        direction: Direction,
        time: Time,
        packet: &P,
    ) {
        let captures = captures.of(port, direction == Direction::Rx, packet);
        if captures != 0
            && let Some(packet) = packet.try_clone()
        {
            self.push_tapped(Tapped {
                port,
                direction,
                captures,
                time,
                packet,
            });
        }
    }

    pub(crate) fn pop_packet_in(&self) -> Option<(PacketInInfo, P)> {
        self.packet_ins.pop()
    }

    pub(crate) fn pop_neighbour(&self) -> Option<(PortNo, P)> {
        self.neighbours.pop()
    }

    pub(crate) fn pop_learn(&self) -> Option<Learn> {
        self.learns.pop()
    }

    pub(crate) fn pop_tapped(&self) -> Option<Tapped<P>> {
        self.tapped.pop()
    }
}
