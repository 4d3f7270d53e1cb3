//! The state of one `nic:` port that its queues, its control thread and its device share.

use core::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use crossbeam_queue::ArrayQueue;
use millrace_nic::driver::{Receiver, Sender, Violation};
use millrace_nic::memory::Memory;
use parking_lot::Mutex;

use super::moves::Moves;
use crate::io::BucketTable;
use crate::io::memif::RingMailbox;
use crate::io::peer::{CloseLog, Counters, WakeEvent};
use crate::offload::fences::Fences;
use crate::offload::{DeviceDrops, DeviceOperation, DeviceOutcome};

/// The number of operations that may wait; of outcomes, twice as many.
const OPERATIONS_LEN: usize = 4096;

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
    /// Number of entries that the connected device holds.
    pub(super) entries: AtomicUsize,
    /// True if the process of the connected device belongs to the user of this process.
    pub(super) is_same_user: AtomicBool,
    pub(super) operations: ArrayQueue<DeviceOperation>,
    pub(super) outcomes: ArrayQueue<DeviceOutcome>,
    /// The drops of the connected device, if it counts them.
    drops: Mutex<Option<Arc<DeviceDrops>>>,
    /// The memory of the connected device.
    pub(super) memory: Mutex<Option<Memory>>,
    /// The table of buckets, if the switch balances it.
    pub(super) table: OnceLock<Arc<dyn BucketTable>>,
    pub(super) moves: Moves,
    /// Numbers of fences go on over connections.
    pub(super) fences: Fences,
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
            entries: AtomicUsize::new(0),
            is_same_user: AtomicBool::new(false),
            operations: ArrayQueue::new(OPERATIONS_LEN),
            outcomes: ArrayQueue::new(2 * OPERATIONS_LEN),
            drops: Mutex::new(None),
            memory: Mutex::new(None),
            table: OnceLock::new(),
            moves: Moves::default(),
            fences: Fences::new(queues),
        }
    }

    /// Returns true if a fence has come through all queues to which buckets belong.
    pub(super) fn has_passed(&self, number: u32) -> bool {
        let queues = self.queues_in_use.load(Ordering::Relaxed).into();
        self.fences.has_passed(number, queues)
    }

    /// Returns the drops of the connected device, if it counts them.
    pub(super) fn drops(&self) -> Option<Arc<DeviceDrops>> {
        self.drops.lock().clone()
    }

    /// Sets the drops of the connected device. Those of the former connection are over.
    pub(super) fn set_drops(&self, drops: Option<Arc<DeviceDrops>>) {
        let mut held = self.drops.lock();
        if let Some(former) = core::mem::replace(&mut *held, drops) {
            former.end();
        }
    }

    /// Tells the control thread that the device violated the interface; called by a worker.
    #[cold]
    pub(super) fn report(&self, connection: u64, violation: Violation) {
        let _full = self.violations.push((connection, violation));
        self.wake.wake();
    }
}
