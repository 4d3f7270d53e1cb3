//! The state of one `nic:` port that its queues, its control thread and its device share.

use core::sync::atomic::{AtomicBool, AtomicU16, AtomicU64};
use std::sync::Arc;

use crossbeam_queue::ArrayQueue;
use millrace_nic::driver::{Receiver, Sender, Violation};

use crate::io::memif::RingMailbox;
use crate::io::peer::{CloseLog, Counters, WakeEvent};

/// The state that the queues, the control thread and the device of a port share.
pub(super) struct Nic {
    /// The name, as configured.
    pub(super) name: String,
    pub(super) rx: Box<[RingMailbox<Receiver>]>,
    pub(super) tx: RingMailbox<Sender>,
    pub(super) counters: Counters,
    pub(super) is_connected: AtomicBool,
    /// Number of queues that the buckets of the connected device name.
    pub(super) queues_in_use: AtomicU16,
    /// Number of connections so far.
    pub(super) connections: AtomicU64,
    /// Violations that workers found, each with the number of its connection.
    pub(super) violations: ArrayQueue<(u64, Violation)>,
    pub(super) wake: Arc<WakeEvent>,
    pub(super) close_log: CloseLog,
}

impl Nic {
    pub(super) fn new(name: String, queues: u16, wake: Arc<WakeEvent>) -> Nic {
        Nic {
            name,
            rx: (0..queues).map(|_| RingMailbox::new()).collect(),
            tx: RingMailbox::new(),
            counters: Counters::default(),
            is_connected: AtomicBool::new(false),
            queues_in_use: AtomicU16::new(0),
            connections: AtomicU64::new(0),
            // Each queue finds at most one violation in each connection, and two connections may exist: a closed one
            // and the current one.
            violations: ArrayQueue::new(2 * (usize::from(queues) + 1)),
            wake,
            close_log: CloseLog::default(),
        }
    }

    /// Tells the control thread that the device violated the interface; called by a worker.
    #[cold]
    pub(super) fn report(&self, connection: u64, violation: Violation) {
        let _full = self.violations.push((connection, violation));
        self.wake.wake();
    }
}
