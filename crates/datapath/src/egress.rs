//! Where a worker puts packets that the pipeline is done with: transmit buffers of its own ports, inboxes
//! of the workers that own the others, and the event queues of the control side.

use std::sync::Arc;

use crossbeam_queue::ArrayQueue;
use millrace_pipeline::{Counters, DropReason, Egress, Learn, PacketInInfo};
use millrace_types::{PortNo, QueueId, Time};
use millrace_wire::Packet;

use crate::counters::PortCounters;
use crate::events::{Direction, Events, Tapped};
use crate::io::{Burst, TxQueue};

/// A packet on its way to the worker that owns its port's transmit queue.
pub(crate) struct Handoff<P> {
    pub(crate) bridge: u32,
    pub(crate) port: PortNo,
    pub(crate) packet: P,
}

/// A worker's inbox.
pub(crate) type Inbox<P> = Arc<ArrayQueue<Handoff<P>>>;

/// How a worker sends to a port.
pub(crate) enum Path<P> {
    /// Through a queue of its own.
    Queue(Box<dyn TxQueue<P>>),
    /// Through the worker that owns a queue.
    Worker(Inbox<P>),
}

/// A port as one worker sends to it.
pub(crate) struct TxPort<P> {
    pub(crate) port: PortNo,
    pub(crate) path: Path<P>,
    pub(crate) counters: Arc<PortCounters>,
    pub(crate) buffer: Box<Burst<P>>,
}

impl<P: Packet> TxPort<P> {
    /// Sends what the device takes. The rest waits in the buffer for the next poll.
    #[inline]
    fn flush(&mut self) {
        let Path::Queue(queue) = &mut self.path else {
            return;
        };
        let (packets, bytes) = (self.buffer.len(), total_size(&self.buffer));
        queue.tx_burst(&mut self.buffer);
        self.counters.tx_packets.add((packets - self.buffer.len()) as u64);
        self.counters
            .tx_bytes
            .add((bytes - total_size(&self.buffer)) as u64);
    }
}

#[inline]
fn total_size<P: Packet>(burst: &Burst<P>) -> usize {
    burst.iter().map(Packet::len).sum()
}

/// The ports of one bridge as one worker sends to them.
pub(crate) struct TxPorts<P> {
    ports: Vec<TxPort<P>>,
    /// Index in `ports` plus one, by port number, for the numbers that everybody uses.
    direct: Box<[u16; TxPorts::<()>::DIRECT]>,
}

impl<P> TxPorts<P> {
    const DIRECT: usize = 1024;

    pub(crate) fn new() -> TxPorts<P> {
        TxPorts {
            ports: Vec::new(),
            direct: Box::new([0; TxPorts::<()>::DIRECT]),
        }
    }

    pub(crate) fn insert(&mut self, port: TxPort<P>) {
        self.ports.push(port);
        self.index();
    }

    pub(crate) fn remove(&mut self, port: PortNo) -> Option<TxPort<P>> {
        let at = self.ports.iter().position(|held| held.port == port)?;
        let removed = self.ports.swap_remove(at);
        self.index();
        Some(removed)
    }

    fn index(&mut self) {
        self.direct.fill(0);
        for (place, port) in (1..).zip(&self.ports) {
            if let Some(slot) = self.direct.get_mut(port.port.raw() as usize) {
                *slot = place;
            }
        }
    }

    #[inline]
    fn find(&mut self, port: PortNo) -> Option<&mut TxPort<P>> {
        match self.direct.get(port.raw() as usize) {
            Some(place) => self.ports.get_mut(usize::from(*place).wrapping_sub(1)),
            None => self.ports.iter_mut().find(|held| held.port == port),
        }
    }
}

impl<P: Packet> TxPorts<P> {
    /// Sends what is buffered, and says whether something still is.
    pub(crate) fn flush(&mut self) -> bool {
        let mut waiting = false;
        for port in &mut self.ports {
            if !port.buffer.is_empty() {
                port.flush();
                waiting |= !port.buffer.is_empty();
            }
        }
        waiting
    }
}

/// What the pipeline of one bridge in one worker sends into.
pub(crate) struct WorkerEgress<'a, P> {
    pub(crate) bridge: u32,
    pub(crate) tx: &'a mut TxPorts<P>,
    pub(crate) events: &'a Events<P>,
    /// This worker's, for the drops that happen here.
    pub(crate) counters: &'a Counters,
    pub(crate) now: Time,
}

impl<P: Packet> WorkerEgress<'_, P> {
    /// Sends a packet that another worker processed.
    pub(crate) fn deliver(&mut self, port: PortNo, packet: P) {
        self.transmit(port, None, packet);
    }
}

impl<P: Packet> Egress<P> for WorkerEgress<'_, P> {
    #[inline]
    fn transmit(&mut self, port: PortNo, _queue: Option<QueueId>, packet: P) {
        let Some(tx) = self.tx.find(port) else {
            self.counters.drops.add(DropReason::NoSuchPort, 1);
            return;
        };
        if self.events.taps_len() != 0 {
            self.events.tap(port, Direction::Tx, self.now, &packet);
        }
        match &tx.path {
            Path::Queue(_) => {
                if tx.buffer.is_full() {
                    tx.flush();
                    if tx.buffer.is_full() {
                        tx.counters.tx_dropped.add(1);
                        self.counters.drops.add(DropReason::TransmitFull, 1);
                        return;
                    }
                }
                tx.buffer.push(packet);
            }
            Path::Worker(inbox) => {
                let handoff = Handoff {
                    bridge: self.bridge,
                    port,
                    packet,
                };
                if inbox.push(handoff).is_err() {
                    tx.counters.tx_dropped.add(1);
                    self.counters.drops.add(DropReason::TransmitFull, 1);
                }
            }
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

    fn traced(&mut self, trace: u64, in_port: PortNo, packet: P) {
        let direction = Direction::Traced(trace);
        self.events.push_tapped(Tapped {
            port: in_port,
            direction,
            time: self.now,
            packet,
        });
    }
}
