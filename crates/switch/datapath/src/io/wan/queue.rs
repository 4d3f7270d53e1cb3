//! The queues of an end, which workers own.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use millrace_flow::{FlowKey, Rule};
use millrace_types::Time;
use millrace_wan_emulator::{Frame, IcmpErrors, Receiver, Sender};
use millrace_wire::segment::GsoLayout;
use millrace_wire::{Depth, Layers, Packet};

use super::registry::{BorrowedHalf, End, FRAME_MAX, Ring};
use crate::io::allocate::Empty;
use crate::io::{Burst, RxQueue, TxQueue};

/// Returns the time of the paths' clock.
fn now(epoch: Instant) -> Time {
    Time::from_nanos(epoch.elapsed().as_nanos() as u64)
}

/// Adds to a counter that one thread writes.
fn count(counter: &AtomicU64, add: u64) {
    counter.store(counter.load(Ordering::Relaxed) + add, Ordering::Relaxed);
}

/// The transmit queue of an end, for packets into the path.
pub(super) struct Tx {
    sender: BorrowedHalf<Sender<Ring>>,
    end: Arc<End>,
    /// The rules of the classes after the default one; the first that matches decides.
    classes: Box<[Rule]>,
    /// A copy in one piece of a packet that has several buffers.
    scratch: Vec<u8>,
    epoch: Instant,
}

impl Tx {
    pub(super) fn new(
        sender: BorrowedHalf<Sender<Ring>>,
        end: Arc<End>,
        classes: Box<[Rule]>,
        epoch: Instant,
    ) -> Tx {
        Tx {
            sender,
            end,
            classes,
            scratch: Vec::with_capacity(FRAME_MAX),
            epoch,
        }
    }

    /// Offers a packet, or each segment of a GSO packet, so that one random loss takes one segment.
    fn offer<P: Packet>(&mut self, packet: &P, arrival: Time) {
        if packet.segment_size().is_none() {
            return self.offer_frame(packet, arrival);
        }
        let Some(layout) = GsoLayout::of(packet) else {
            return count(&self.end.tx_errors, 1);
        };
        for number in 0..layout.count() {
            match layout.segment(packet, number) {
                Some(segment) => self.offer_frame(&segment, arrival),
                None => return count(&self.end.tx_errors, 1),
            }
        }
    }

    fn offer_frame<P: Packet>(&mut self, packet: &P, arrival: Time) {
        let Some(sender) = self.sender.get_mut() else {
            return;
        };
        let class = match &*self.classes {
            [] => 0,
            classes => class_of(classes, packet.head()),
        };
        let head = packet.head();
        if head.len() == packet.len() {
            sender.offer(arrival, class, head);
            return;
        }
        if packet.len() > FRAME_MAX {
            return count(&self.end.tx_errors, 1);
        }
        // The packet never exceeds the capacity of `scratch`, so nothing is allocated.
        self.scratch.clear();
        let scratch = &mut self.scratch;
        packet.each_segment(&mut |bytes| scratch.extend_from_slice(bytes));
        sender.offer(arrival, class, &self.scratch);
    }
}

/// Returns the number of the class of a frame; 0 is the default.
fn class_of(classes: &[Rule], head: &[u8]) -> usize {
    let mut key = FlowKey::default();
    key.extract(head, &Layers::parse(head, Depth::All));
    let found = classes.iter().position(|rule| rule.matches(&key));
    found.map_or(0, |index| index + 1)
}

impl<P: Packet> TxQueue<P> for Tx {
    fn tx_burst(&mut self, burst: &mut Burst<P>) {
        if !self.end.peer_is_open() {
            return;
        }
        // New settings apply from this burst on.
        if let Some(sender) = self.sender.get_mut() {
            sender.publish();
        }
        let arrival = now(self.epoch);
        for packet in burst.iter() {
            self.offer(packet, arrival);
        }
        if let Some(sender) = self.sender.get_mut() {
            sender.publish();
        }
        P::discard(burst);
    }

    /// Refuses all packets while the other end is closed, so that they do not wait for it.
    fn refused(&self, left: usize) -> usize {
        if self.end.peer_is_open() { 0 } else { left }
    }

    /// Returns true: [`Tx`] makes the segments itself and offers them to the model one by one, so that at most one
    /// segment has a buffer.
    fn takes_gso(&mut self, _: &P, _: &GsoLayout) -> bool {
        true
    }
}

/// The frames that leave an end: frames from the other end, and ICMP errors about frames that entered here.
pub(super) struct OutOfPath {
    pub(super) receiver: BorrowedHalf<Receiver<Ring>>,
    pub(super) icmp_errors: BorrowedHalf<IcmpErrors>,
}

/// The receive queue of an end, for packets out of the path.
pub(super) struct Rx<P> {
    frames: OutOfPath,
    end: Arc<End>,
    buffers: Buffers<P>,
    epoch: Instant,
}

/// Empty packets, to be filled with frames.
struct Buffers<P> {
    empty: Empty<P>,
    spare: Box<Burst<P>>,
    /// A copy in one piece of a frame that needs several buffers.
    scratch: Box<[u8]>,
}

impl<P: Packet> Rx<P> {
    pub(super) fn new(frames: OutOfPath, end: Arc<End>, empty: Empty<P>, epoch: Instant) -> Rx<P> {
        Rx {
            frames,
            end,
            buffers: Buffers {
                empty,
                spare: Box::new(Burst::new()),
                scratch: vec![0; FRAME_MAX].into_boxed_slice(),
            },
            epoch,
        }
    }

    /// Takes ICMP errors, as many as the burst has room for.
    #[cold]
    fn take_icmp_errors(&mut self, burst: &mut Burst<P>) {
        let Some(icmp_errors) = self.frames.icmp_errors.get_mut() else {
            return;
        };
        while !burst.is_full() && self.buffers.replenish(burst.remaining_capacity()) {
            let Some(frame) = icmp_errors.take() else { break };
            match self.buffers.packet(&frame) {
                Some(packet) => burst.push(packet),
                None => count(&self.end.rx_no_buffer, 1),
            }
        }
        icmp_errors.free();
    }
}

impl<P: Packet> Buffers<P> {
    /// Returns true if there is an empty packet. Fetches `wanted` empty packets if there was none.
    #[inline]
    fn replenish(&mut self, wanted: usize) -> bool {
        if self.spare.is_empty() {
            (self.empty)(wanted, &mut self.spare);
        }
        !self.spare.is_empty()
    }

    /// Returns a packet with a frame; `None` if not enough buffers are free.
    #[inline]
    fn packet(&mut self, frame: &Frame<'_, Ring>) -> Option<P> {
        let mut packet = self.spare.pop()?;
        let size = frame.len();
        if let Some(place) = packet.append(size) {
            frame.copy_to(place);
            return Some(packet);
        }
        frame.copy_to(self.scratch.get_mut(..size)?);
        self.chained(packet, size)
    }

    /// Returns a packet with the frame in `scratch`, in as many buffers as the frame needs.
    #[cold]
    fn chained(&mut self, mut packet: P, size: usize) -> Option<P> {
        let mut left = self.scratch.get(..size)?;
        let room = packet.room().min(left.len());
        let (first, rest) = left.split_at(room);
        packet.append(room)?.copy_from_slice(first);
        left = rest;
        while !left.is_empty() {
            if self.spare.is_empty() {
                (self.empty)(1, &mut self.spare);
            }
            let mut tail = self.spare.pop()?;
            let (part, rest) = left.split_at(tail.room().clamp(1, left.len()));
            tail.append(part.len())?.copy_from_slice(part);
            packet.chain(tail).ok()?;
            left = rest;
        }
        Some(packet)
    }
}

impl<P: Packet> RxQueue<P> for Rx<P> {
    fn rx_burst(&mut self, burst: &mut Burst<P>) {
        let icmp_errors = self.frames.icmp_errors.get_mut();
        if icmp_errors.is_some_and(|errors| !errors.is_empty()) {
            self.take_icmp_errors(burst);
        }
        let Some(receiver) = self.frames.receiver.get_mut() else {
            return;
        };
        let time = now(self.epoch);
        let mut took = false;
        while !burst.is_full() && receiver.in_flight() > 0 {
            if !self.buffers.replenish(burst.remaining_capacity()) {
                // The frame stays in the ring until a buffer is free.
                count(&self.end.rx_no_buffer, 1);
                break;
            }
            let Some(frame) = receiver.take(time) else { break };
            took = true;
            match self.buffers.packet(&frame) {
                Some(packet) => burst.push(packet),
                None => count(&self.end.rx_no_buffer, 1),
            }
        }
        if took {
            receiver.free();
        }
    }

    fn next_due(&mut self) -> Option<Instant> {
        if !self.frames.icmp_errors.get_mut()?.is_empty() {
            return Some(self.epoch);
        }
        let due = self.frames.receiver.get_mut()?.next_due()?;
        Some(self.epoch + Duration::from_nanos(due.nanos()))
    }
}
