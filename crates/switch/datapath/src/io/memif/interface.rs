//! One interface: what its queues, its thread and its device share.

use core::sync::atomic::{AtomicU64, Ordering};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use crossbeam_queue::ArrayQueue;
use millrace_memif::ProtocolViolation;
use millrace_memif::client::ClientConfig;
use millrace_memif::ring::{Receiver, Rings, Sender};
use millrace_memif::server::Limits;

use super::seat::{Held, Seat};
use super::{BUFFER_SIZE, FRAME_OVERHEAD, LOG2_RING};
use crate::io::bell::Bell;
use crate::io::peer::{Counters, Told, Wake};
use crate::io::vnic::VnicSpec;

pub(super) struct Interface {
    /// As configured.
    pub(super) name: String,
    pub(super) id: u32,
    pub(super) rx: Box<[Seat<Receiver>]>,
    pub(super) tx: Seat<Sender>,
    pub(super) counters: Counters,
    pub(super) bell: Arc<Bell>,
    /// The longest frame that passes, bytes.
    pub(super) frame_size: usize,
    /// The number of the connection that is up; 0 for none.
    connection: AtomicU64,
    /// How many there were.
    connections: AtomicU64,
    /// What workers found, and in which connection.
    lies: ArrayQueue<(u64, ProtocolViolation)>,
    /// The thread that speaks for it.
    wake: Arc<Wake>,
    told: Told,
}

impl Interface {
    pub(super) fn new(spec: &VnicSpec, id: u32, queues: u16, mtu: u16, wake: Arc<Wake>) -> Interface {
        Interface {
            name: spec.to_string(),
            id,
            rx: (0..queues).map(|_| Seat::new()).collect(),
            tx: Seat::new(),
            counters: Counters::default(),
            bell: Arc::default(),
            frame_size: usize::from(mtu) + FRAME_OVERHEAD,
            connection: AtomicU64::new(0),
            connections: AtomicU64::new(0),
            // Each queue finds one in each connection, and there may be two: one that is over, and one that is up.
            lies: ArrayQueue::new(2 * (usize::from(queues) + 1)),
            wake,
            told: Told::default(),
        }
    }

    /// How many rings a client may bring.
    pub(super) fn limits(&self) -> Limits {
        let rings = self.rx.len() as u16;
        Limits {
            to_server: rings,
            to_client: rings,
        }
    }

    /// What rings we would like to make as a client. As many each way, as some servers want it; we send on the first.
    pub(super) fn wish(&self) -> ClientConfig {
        let rings = self.rx.len() as u16;
        ClientConfig {
            to_server: rings,
            to_client: rings,
            log2_len: LOG2_RING,
            buffer_size: BUFFER_SIZE.max(self.frame_size as u32),
        }
    }

    /// Returns true if a peer is there.
    pub(super) fn is_connected(&self) -> bool {
        self.connection.load(Ordering::Acquire) != 0
    }

    /// The thread's: gives a connection to the workers. Rings beyond our queues were refused; those that we do not send
    /// on are let go.
    pub(super) fn connect(&self, rings: Rings, bell: Option<OwnedFd>) {
        let connection = self.connections.fetch_add(1, Ordering::Relaxed) + 1;
        while self.lies.pop().is_some() {}
        self.bell.set(bell);
        // First what we send on: whoever is heard can be answered.
        let ring = rings.senders.into_iter().next();
        self.tx.give(ring.map(|ring| Held { ring, connection }));
        let mut receivers = rings.receivers.into_iter();
        for seat in &self.rx {
            let ring = receivers.next();
            seat.give(ring.map(|ring| Held { ring, connection }));
        }
        // A link that is said to be up takes packets. What workers find wrong before this waits in `lies` for us.
        self.connection.store(connection, Ordering::Release);
    }

    /// The thread's: takes the connection away.
    pub(super) fn disconnect(&self) {
        self.connection.store(0, Ordering::Release);
        for seat in &self.rx {
            seat.give(None);
        }
        self.tx.give(None);
        self.bell.set(None);
    }

    /// The thread's: drops what workers have left. Nothing of a connection that is over is mapped after this, once each
    /// worker has polled.
    pub(super) fn collect(&self) {
        for seat in &self.rx {
            seat.collect();
        }
        self.tx.collect();
    }

    /// The thread's: what a worker found in the connection that is up.
    pub(super) fn lie(&self) -> Option<ProtocolViolation> {
        let current = self.connection.load(Ordering::Acquire);
        core::iter::from_fn(|| self.lies.pop())
            .find(|(connection, _)| *connection == current)
            .map(|(_, lie)| lie)
    }

    /// A worker's: the peer lies. It is told once for each ring.
    #[cold]
    pub(super) fn accuse(&self, connection: u64, lie: ProtocolViolation) {
        let _oldest = self.lies.force_push((connection, lie));
        self.wake.wake();
    }

    /// A worker's: the peer sleeps.
    #[cold]
    pub(super) fn ring(&self) {
        if !self.bell.ring() {
            self.wake.wake();
        }
    }

    /// Tells the log why a peer was sent away, with how often that was not told.
    pub(super) fn tell(&self, reason: &dyn core::fmt::Display) {
        self.told.tell(&self.name, reason);
    }
}
