//! The state of one interface that its queues, its control thread and its device share.

use core::sync::atomic::{AtomicU64, Ordering};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use crossbeam_queue::ArrayQueue;
use millrace_memif::ProtocolViolation;
use millrace_memif::client::ClientConfig;
use millrace_memif::ring::{Receiver, Rings, Sender};
use millrace_memif::server::Limits;

use super::ring_mailbox::{ConnectedRing, RingMailbox};
use crate::io::notifier::Notifier;
use crate::io::peer::{CloseLog, Counters, WakeEvent};
use crate::io::vnic::VnicSpec;

/// Binary logarithm of the number of descriptors of rings that the switch creates.
const LOG2_RING: u8 = 10;
/// Minimum size of a buffer that the switch creates, in bytes.
const BUFFER_SIZE: u32 = 2048;
/// Size of a frame's headers in bytes: Ethernet header and two VLAN tags.
const FRAME_OVERHEAD: usize = 22;

pub(super) struct Interface {
    /// The name, as configured.
    pub(super) name: String,
    pub(super) id: u32,
    pub(super) rx: Box<[RingMailbox<Receiver>]>,
    pub(super) tx: RingMailbox<Sender>,
    pub(super) counters: Counters,
    pub(super) notifier: Arc<Notifier>,
    /// Maximum size of a frame in bytes.
    pub(super) frame_size: usize,
    /// The number of the current connection; 0 for none.
    connection: AtomicU64,
    /// Number of connections so far.
    connections: AtomicU64,
    /// Protocol violations that workers found, each with the number of its connection.
    violations: ArrayQueue<(u64, ProtocolViolation)>,
    /// Wakes the control thread of the interface.
    wake: Arc<WakeEvent>,
    close_log: CloseLog,
}

impl Interface {
    pub(super) fn new(spec: &VnicSpec, id: u32, queues: u16, mtu: u16, wake: Arc<WakeEvent>) -> Interface {
        Interface {
            name: spec.to_string(),
            id,
            rx: (0..queues).map(|_| RingMailbox::new()).collect(),
            tx: RingMailbox::new(),
            counters: Counters::default(),
            notifier: Arc::default(),
            frame_size: usize::from(mtu) + FRAME_OVERHEAD,
            connection: AtomicU64::new(0),
            connections: AtomicU64::new(0),
            // Each queue finds at most one violation in each connection, and two connections may exist: a closed one
            // and the current one.
            violations: ArrayQueue::new(2 * (usize::from(queues) + 1)),
            wake,
            close_log: CloseLog::default(),
        }
    }

    /// Returns the number of rings that a client may create.
    pub(super) fn limits(&self) -> Limits {
        let rings = self.rx.len() as u16;
        Limits {
            to_server: rings,
            to_client: rings,
        }
    }

    /// Returns the rings to create as a client. Both directions have the same number, as some servers require; the
    /// switch sends on the first ring.
    pub(super) fn client_config(&self) -> ClientConfig {
        let rings = self.rx.len() as u16;
        ClientConfig {
            to_server: rings,
            to_client: rings,
            log2_len: LOG2_RING,
            buffer_size: BUFFER_SIZE.max(self.frame_size as u32),
        }
    }

    /// Returns true if a peer is connected.
    pub(super) fn is_connected(&self) -> bool {
        self.connection.load(Ordering::Acquire) != 0
    }

    /// Passes the rings of a connection to the workers; called by the control thread. Rings beyond the
    /// switch's queues were rejected before; rings that the switch does not send on are dropped.
    pub(super) fn connect(&self, rings: Rings, notifier: Option<OwnedFd>) {
        let connection = self.connections.fetch_add(1, Ordering::Relaxed) + 1;
        while self.violations.pop().is_some() {}
        self.notifier.set_eventfd(notifier);
        // The sender is posted first, so that received packets can be answered.
        let ring = rings.senders.into_iter().next();
        self.tx.post(ring.map(|ring| ConnectedRing { ring, connection }));
        let mut receivers = rings.receivers.into_iter();
        for mailbox in &self.rx {
            let ring = receivers.next();
            mailbox.post(ring.map(|ring| ConnectedRing { ring, connection }));
        }
        // A link that is up accepts packets. Violations that workers found in the meantime are in
        // `violations`.
        self.connection.store(connection, Ordering::Release);
    }

    /// Takes the rings from the workers; called by the control thread.
    pub(super) fn disconnect(&self) {
        self.connection.store(0, Ordering::Release);
        for mailbox in &self.rx {
            mailbox.post(None);
        }
        self.tx.post(None);
        self.notifier.set_eventfd(None);
    }

    /// Drops the rings that workers have returned; called by the control thread. Once each worker has polled
    /// after a connection closed, this call unmaps the last memory of that connection.
    pub(super) fn collect(&self) {
        for mailbox in &self.rx {
            mailbox.collect();
        }
        self.tx.collect();
    }

    /// Returns the protocol violation that a worker found in the current connection; called by the control thread.
    pub(super) fn violation(&self) -> Option<ProtocolViolation> {
        let current = self.connection.load(Ordering::Acquire);
        core::iter::from_fn(|| self.violations.pop())
            .find(|(connection, _)| *connection == current)
            .map(|(_, violation)| violation)
    }

    /// Reports a protocol violation by the peer; called by a worker, once for each ring.
    #[cold]
    pub(super) fn report_violation(&self, connection: u64, violation: ProtocolViolation) {
        let _oldest = self.violations.force_push((connection, violation));
        self.wake.wake();
    }

    /// Notifies the peer, which sleeps; called by a worker.
    #[cold]
    pub(super) fn notify(&self) {
        if !self.notifier.notify() {
            self.wake.wake();
        }
    }

    /// Logs why a peer's connection was closed, with the number of closes that were not logged.
    pub(super) fn log_closed(&self, reason: &dyn core::fmt::Display) {
        self.close_log.log(&self.name, reason);
    }
}
