//! Drops by a device, between the bridge's thread and the thread of the device (ADR 78).
//!
//! ```text
//!   bridge's thread:  Drop, Pass --> operations --> device's thread --> device
//!                     waits <------- executed <----------+
//!                     counters <---- counts <------------+   (each 200 ms, and after each Pass)
//! ```
//! This is the one place where the bridge's thread waits for a device: a rule that drops ends in the device before its end is
//! confirmed. A device that does not answer is given up on: its connection ends, and with it the port's link.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crossbeam_queue::ArrayQueue;

/// The number of operations that may wait.
const OPERATIONS_LEN: usize = 4096;
/// Time within which a device executes what it was asked for.
const EXECUTED_WITHIN: Duration = Duration::from_millis(500);
/// Interval at which the bridge's thread looks whether it has.
const LOOK_INTERVAL: Duration = Duration::from_micros(20);

/// A change of the entry of a slot. Its rows, mask and mark stay.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DropOperation {
    /// The device drops and counts packets that match.
    Drop { slot: u32 },
    /// The device marks packets that match, and its counters of the slot were read after the last packet that it dropped.
    Pass { slot: u32 },
}

/// The drops of one connection with a device.
pub struct DeviceDrops {
    operations: ArrayQueue<DropOperation>,
    submitted: AtomicU64,
    executed: AtomicU64,
    refused: AtomicU64,
    /// By slot, packets and bytes that the device has dropped, as they were read last.
    counts: Box<[[AtomicU64; 2]]>,
    /// True once the connection has ended, or must end.
    is_over: AtomicBool,
    /// Wakes the thread of the device.
    waker: Box<dyn Fn() + Send + Sync>,
}

impl core::fmt::Debug for DeviceDrops {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("DeviceDrops")
            .field("len", &self.len())
            .field("is_over", &self.is_over())
            .finish_non_exhaustive()
    }
}

impl DeviceDrops {
    /// Returns the drops of a device that counts by this many slots. `waker` is called after each operation is submitted.
    pub fn new(len: usize, waker: impl Fn() + Send + Sync + 'static) -> DeviceDrops {
        DeviceDrops {
            operations: ArrayQueue::new(OPERATIONS_LEN),
            submitted: AtomicU64::new(0),
            executed: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            counts: (0..len).map(|_| Default::default()).collect(),
            is_over: AtomicBool::new(false),
            waker: Box::new(waker),
        }
    }

    /// Returns the number of slots whose packets the device can drop: those with lower numbers.
    pub fn len(&self) -> usize {
        self.counts.len()
    }

    /// Returns true if the device can drop packets of no slot.
    pub fn is_empty(&self) -> bool {
        self.counts.is_empty()
    }

    /// Submits an operation. Returns false if the queue is full.
    pub fn submit(&self, operation: DropOperation) -> bool {
        // Counted first: the device's thread may execute it before this returns.
        self.submitted.fetch_add(1, Ordering::Relaxed);
        let is_taken = self.operations.push(operation).is_ok();
        if is_taken {
            (self.waker)();
        } else {
            self.submitted.fetch_sub(1, Ordering::Relaxed);
        }
        is_taken
    }

    /// Returns true if all submitted operations were executed.
    pub fn is_done(&self) -> bool {
        self.executed.load(Ordering::Acquire) >= self.submitted.load(Ordering::Relaxed)
    }

    /// Waits until all submitted operations were executed, or the connection has ended. A device that takes longer than half a
    /// second is given up on.
    pub fn wait(&self) {
        let deadline = Instant::now() + EXECUTED_WITHIN;
        while !self.is_done() && !self.is_over() {
            if Instant::now() >= deadline {
                tracing::warn!(
                    "offload: the device did not end drops within half a second; its connection ends"
                );
                return self.end();
            }
            std::thread::sleep(LOOK_INTERVAL);
        }
    }

    /// Ends the connection, or notes its end: nothing is executed any more, and nobody waits.
    pub fn end(&self) {
        self.is_over.store(true, Ordering::Release);
        (self.waker)();
    }

    /// Returns true once the connection has ended, or must end.
    pub fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }

    /// Returns packets and bytes of a slot that the device has dropped, as they were read last.
    pub fn count(&self, slot: u32) -> [u64; 2] {
        let halves = self.counts.get(slot as usize);
        halves.map_or([0; 2], |halves| {
            halves.each_ref().map(|half| half.load(Ordering::Relaxed))
        })
    }

    /// Returns the number of drops that the device refused.
    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// Returns true if an operation waits; for the thread of the device, as all below.
    pub fn is_waiting(&self) -> bool {
        !self.operations.is_empty()
    }

    /// Returns the next operation.
    pub fn next(&self) -> Option<DropOperation> {
        self.operations.pop()
    }

    /// Notes that an operation was executed.
    pub fn done(&self) {
        self.executed.fetch_add(1, Ordering::Release);
    }

    /// Notes that the device refused to drop packets of a slot: it goes on marking them.
    pub fn refuse(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }

    /// Sets the counters of a slot.
    pub fn set_count(&self, slot: u32, count: [u64; 2]) {
        if let Some(halves) = self.counts.get(slot as usize) {
            halves
                .iter()
                .zip(count)
                .for_each(|(half, value)| half.store(value, Ordering::Relaxed));
        }
    }
}
