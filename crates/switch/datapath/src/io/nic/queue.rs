//! The queues of a NIC, which workers own.

use std::sync::Arc;

use millrace_nic::Completion;
use millrace_nic::completion::flag;
use millrace_nic::driver::{Entry, Receiver, Sender, Violation};
use millrace_pipeline::MarkColumn;
use millrace_wire::Packet;

use super::moves::QueueMove;
use super::state::Nic;
use crate::io::allocate::Empty;
use crate::io::memif::ConnectedRing;
use crate::io::peer::count;
use crate::io::{Burst, RxQueue, TxQueue};

pub(super) struct Rx<P> {
    nic: Arc<Nic>,
    queue: usize,
    connected: Option<ConnectedRing<Receiver>>,
    empty: Empty<P>,
    /// The marks of the last burst, if they are kept.
    column: Option<Box<MarkColumn>>,
    moving: QueueMove,
    /// True if the last burst ended at a fence that the queue may not pass yet.
    is_held: bool,
}

impl<P> Rx<P> {
    pub(super) fn new(nic: Arc<Nic>, queue: u16, empty: Empty<P>) -> Rx<P> {
        Rx {
            nic,
            queue: queue.into(),
            connected: None,
            empty,
            column: None,
            moving: QueueMove::default(),
            is_held: false,
        }
    }

    /// Returns true if the last burst ended at a fence that the queue may not pass yet.
    #[cfg(test)]
    pub(super) fn waits_at_fence(&self) -> bool {
        self.is_held
    }
}

/// Copies received frames into the packets of a burst, from position `first` on, and notes fences. `note` gets the position and
/// the completion of each frame. Returns the position behind the last frame, and the violation that ended the connection, if any.
#[inline]
fn fill<P: Packet>(
    (nic, queue): (&Nic, usize),
    (moving, is_held): (&mut QueueMove, &mut bool),
    ring: &mut Receiver,
    (burst, first): (&mut Burst<P>, usize),
    mut note: impl FnMut(usize, &Completion),
) -> (usize, Result<usize, Violation>) {
    let mut next = first;
    *is_held = false;
    let table = nic.table.get();
    let received = ring.receive(|entry| match entry {
        Entry::Frame { completion, bytes } => {
            let Some(packet) = burst.get_mut(next) else {
                return false;
            };
            match packet.append(bytes.size()) {
                Some(room) => {
                    bytes.read(room);
                    note(next, &completion);
                    if let Some(table) = table {
                        table.count(completion.bucket);
                    }
                    next += 1;
                }
                // The frame is longer than a buffer of the switch; the packet takes the next one.
                None => count(&nic.counters.rx_errors, 1),
            }
            true
        }
        Entry::Fence(number) => {
            *is_held = !moving.may_pass(&nic.moves, queue, number);
            if !*is_held {
                nic.fences.note(queue, number);
            }
            !*is_held
        }
    });
    (next, received)
}

impl<P: Packet> RxQueue<P> for Rx<P> {
    #[inline]
    fn rx_burst(&mut self, burst: &mut Burst<P>) {
        let mailbox = &self.nic.rx[self.queue];
        if let Some(column) = &mut self.column {
            column.clear();
        }
        mailbox.update(&mut self.connected);
        let Some(connected) = &mut self.connected else {
            return;
        };
        let ready = connected.ring.ready(burst.remaining_capacity());
        if ready == 0 {
            return;
        }
        let first = burst.len();
        (self.empty)(ready, burst);
        if burst.len() == first {
            // Frames wait in the ring until a buffer is free.
            return count(&self.nic.counters.no_buffer, 1);
        }
        let (nic, ring) = ((&*self.nic, self.queue), &mut connected.ring);
        let moving = (&mut self.moving, &mut self.is_held);
        // Two copies of the loop: without marks, a packet costs no test for them.
        let (next, received) = match &mut self.column {
            None => fill(nic, moving, ring, (&mut *burst, first), |_, _| {}),
            Some(column) => fill(nic, moving, ring, (&mut *burst, first), |at, completion| {
                let mark = if completion.has(flag::MARK) {
                    completion.mark
                } else {
                    0
                };
                let hash = completion.has(flag::HASH).then_some(completion.hash);
                column.set(at, mark, hash);
            }),
        };
        burst.truncate(next);
        if let Err(violation) = received {
            count(&self.nic.counters.rx_errors, 1);
            if let Some(connected) = self.connected.take() {
                self.nic.report(connected.connection, violation);
                mailbox.retire(connected);
            }
        }
    }

    fn has_fences(&self) -> bool {
        self.nic.table.get().is_some()
    }

    #[inline]
    fn settled(&mut self) {
        self.moving.settle(&self.nic.moves, self.queue);
    }

    fn keep_marks(&mut self, is_kept: bool) {
        self.column = is_kept.then(Box::default);
    }

    #[inline]
    fn marks(&self) -> Option<&MarkColumn> {
        self.column.as_deref()
    }
}

pub(super) struct Tx {
    nic: Arc<Nic>,
    connected: Option<ConnectedRing<Sender>>,
    /// True if the first unsent frame is longer than a buffer of the device.
    is_too_long: bool,
}

impl Tx {
    pub(super) fn new(nic: Arc<Nic>) -> Tx {
        Tx {
            nic,
            connected: None,
            is_too_long: false,
        }
    }
}

impl<P: Packet> TxQueue<P> for Tx {
    #[inline]
    fn tx_burst(&mut self, burst: &mut Burst<P>) {
        self.nic.tx.update(&mut self.connected);
        self.is_too_long = false;
        let Some(connected) = &mut self.connected else {
            return;
        };
        let ring = &mut connected.ring;
        let room = match ring.room() {
            Ok(room) => usize::from(room),
            Err(violation) => {
                if let Some(connected) = self.connected.take() {
                    self.nic.report(connected.connection, violation);
                    self.nic.tx.retire(connected);
                }
                return;
            }
        };
        let mut sent = 0;
        for packet in burst.iter().take(room) {
            if packet.len() > ring.frame_size() {
                self.is_too_long = true;
                break;
            }
            let mut slices = arrayvec::ArrayVec::<&[u8], 64>::new();
            packet.each_segment(&mut |bytes| {
                let _longer_chain = slices.try_push(bytes);
            });
            if !ring.send(packet.len(), slices.into_iter()) {
                self.is_too_long = true;
                break;
            }
            sent += 1;
        }
        ring.publish();
        drop(burst.drain(..sent));
    }

    fn refused(&self, left: usize) -> usize {
        match &self.connected {
            // Packets do not wait for a device: they would be outdated when one connects.
            None => left,
            Some(_) => self.is_too_long.into(),
        }
    }
}
