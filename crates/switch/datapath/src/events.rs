//! Bounded queues from the workers to the control side of a bridge: packet_ins for the controllers, learned addresses,
//! and copies of packets for captures and traces.
//!
//! A full queue refuses values, so that no worker waits. Learned addresses and packet_ins have separate
//! queues, so that a flood of one kind does not starve the other.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::Thread;

use crossbeam_queue::ArrayQueue;
use millrace_pipeline::{Learn, PacketInInfo};
use millrace_types::{PortNo, Time};
use millrace_wire::Packet;

use crate::capture::{CAPTURES_MAX, Captures};

/// Capacity of the queue of packet_ins.
const PACKET_INS_LEN: usize = 1024;
/// Capacity of the queue of learned addresses.
const LEARNS_LEN: usize = 1024;
/// Capacity of the queue of address resolution packets at the underlays of tunnels.
const NEIGHBOURS_LEN: usize = 256;
/// Capacity of the queue of OAM frames: the frames of 100 sessions with an interval of 50 ms, for half a
/// second.
const OAM_LEN: usize = 1024;
/// Capacity of the queue of captured packets.
const TAPPED_LEN: usize = 4096;

/// The direction of a captured packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    /// Received by the switch.
    Rx,
    /// Sent by the switch.
    Tx,
    /// Received by the switch, and traced by the live trace of this number.
    Traced(u64),
}

/// A copy of a packet for a capture or a trace.
#[derive(Debug)]
pub struct CapturedPacket<P> {
    /// The port at which the packet was received or sent.
    pub port: PortNo,
    /// The direction of the packet.
    pub direction: Direction,
    /// One bit for each capture that selects the packet, by capture number; none for a live trace.
    pub captures: u64,
    /// The time at which the worker received the burst of the packet.
    pub time: Time,
    /// The copy.
    pub packet: P,
}

/// The queues of one bridge.
pub(crate) struct Events<P> {
    packet_ins: ArrayQueue<(PacketInInfo, P)>,
    learns: ArrayQueue<Learn>,
    neighbours: ArrayQueue<(PortNo, P)>,
    oam: ArrayQueue<(PortNo, Time, P)>,
    captured: ArrayQueue<CapturedPacket<P>>,
    /// Packets that each capture selected and lost since the last read, by capture number.
    capture_losses: [AtomicU64; CAPTURES_MAX],
    /// The thread to unpark.
    control: Thread,
}

impl<P: Packet> Events<P> {
    pub(crate) fn new(control: Thread) -> Arc<Events<P>> {
        Arc::new(Events {
            packet_ins: ArrayQueue::new(PACKET_INS_LEN),
            learns: ArrayQueue::new(LEARNS_LEN),
            neighbours: ArrayQueue::new(NEIGHBOURS_LEN),
            oam: ArrayQueue::new(OAM_LEN),
            captured: ArrayQueue::new(TAPPED_LEN),
            capture_losses: [const { AtomicU64::new(0) }; CAPTURES_MAX],
            control,
        })
    }

    /// Queues a packet_in. Returns true if there was room.
    pub(crate) fn push_packet_in(&self, info: PacketInInfo, packet: P) -> bool {
        let pushed = self.packet_ins.push((info, packet)).is_ok();
        self.control.unpark();
        pushed
    }

    /// Queues a learned address. If the queue is full, the address is learned from its next packet.
    pub(crate) fn push_learn(&self, learn: Learn) {
        if self.learns.push(learn).is_ok() {
            self.control.unpark();
        }
    }

    /// Queues a packet of address resolution. If the queue is full, the packet is lost, and its sender
    /// repeats it.
    pub(crate) fn push_neighbour(&self, underlay: PortNo, packet: P) {
        if self.neighbours.push((underlay, packet)).is_ok() {
            self.control.unpark();
        }
    }

    /// Queues a frame of OAM with the time of its arrival. Returns true if there was room.
    pub(crate) fn push_oam(&self, port: PortNo, time: Time, packet: P) -> bool {
        let pushed = self.oam.push((port, time, packet)).is_ok();
        self.control.unpark();
        pushed
    }

    /// Queues a copy. If the queue is full, the loss is counted for each capture of the packet.
    pub(crate) fn push_captured(&self, captured: CapturedPacket<P>) {
        match self.captured.push(captured) {
            Ok(()) => self.control.unpark(),
            Err(captured) => self.count_losses(captured.captures),
        }
    }

    /// Counts a lost packet for each capture whose bit is set.
    fn count_losses(&self, captures: u64) {
        for (number, losses) in self.capture_losses.iter().enumerate() {
            if captures >> number & 1 == 1 {
                losses.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Returns the number of packets that a capture lost since the last call, and resets it to zero.
    pub(crate) fn take_capture_losses(&self, number: u8) -> u64 {
        self.capture_losses[usize::from(number) % CAPTURES_MAX].swap(0, Ordering::Relaxed)
    }

    /// Copies a packet for the captures that select it.
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
        if captures == 0 {
            return;
        }
        match packet.try_clone() {
            Some(packet) => self.push_captured(CapturedPacket {
                port,
                direction,
                captures,
                time,
                packet,
            }),
            None => self.count_losses(captures),
        }
    }

    pub(crate) fn pop_packet_in(&self) -> Option<(PacketInInfo, P)> {
        self.packet_ins.pop()
    }

    pub(crate) fn pop_neighbour(&self) -> Option<(PortNo, P)> {
        self.neighbours.pop()
    }

    pub(crate) fn pop_oam(&self) -> Option<(PortNo, Time, P)> {
        self.oam.pop()
    }

    pub(crate) fn pop_learn(&self) -> Option<Learn> {
        self.learns.pop()
    }

    pub(crate) fn pop_captured(&self) -> Option<CapturedPacket<P>> {
        self.captured.pop()
    }
}

#[cfg(test)]
mod tests {
    use millrace_wire::Frame;

    use super::*;

    #[test]
    fn copies_that_find_the_queue_full_are_counted_for_the_captures_that_wanted_them() {
        let events = Events::new(std::thread::current());
        let push = |captures| {
            events.push_captured(CapturedPacket {
                port: PortNo::from_raw(1),
                direction: Direction::Rx,
                captures,
                time: Time::ZERO,
                packet: Frame::new(&[0; 60]),
            });
        };
        for _ in 0..TAPPED_LEN {
            push(0b1);
        }
        assert_eq!(events.take_capture_losses(0), 0);
        push(0b101);
        push(0b100);
        push(1 << 63);
        assert_eq!(
            [0, 1, 2, 63].map(|number| events.take_capture_losses(number)),
            [1, 0, 2, 1]
        );
        assert_eq!(
            events.take_capture_losses(2),
            0,
            "what was read is not counted again"
        );
        assert!(events.pop_captured().is_some());
        push(0b100);
        assert_eq!(events.take_capture_losses(2), 0, "there was room");
    }
}
