//! Moves of buckets from queue to queue in the device, without reordering a flow.
//!
//! ```text
//!   device:   ... old table | fence | new table ...        in each queue, in order with its packets
//!   queue A (loses buckets):  packets before the fence are taken, leave the worker, and the worker says so: settled
//!   queue B (gains buckets):  stops at the fence until every queue that loses buckets has settled, then goes on
//! ```
//! B delays its packets by the time that A's worker takes for what was in its queue. It drops none: they wait in the ring, and the
//! device drops only what a full ring has no room for. Two queues that lose and gain wait at their fences for each other's
//! packets before them, which both have taken, so neither waits for ever. A device that loses a fence is given up on after a
//! time: queues go on, and packets may be reordered.

use core::sync::atomic::{AtomicU32, Ordering};

use millrace_nic::Command;
use millrace_nic::command::BUCKETS_LEN_MAX;

/// The move that is under way, or the last one. The control thread begins it; each worker reports its queue.
#[derive(Debug, Default)]
pub(super) struct Moves {
    /// The number of the fence.
    fence: AtomicU32,
    /// One bit for each queue that loses buckets.
    losing: AtomicU32,
    /// One bit for each queue that gains buckets.
    gaining: AtomicU32,
    /// One bit for each losing queue whose packets before the fence have left its worker.
    settled: AtomicU32,
}

/// The state of a queue at the fence of a move.
#[derive(Debug, Default)]
pub(super) struct QueueMove {
    /// The fence that was reached last.
    reached: u32,
    /// The fence up to which packets were taken that have not all left the worker.
    unsettled: Option<u32>,
}

impl Moves {
    /// Begins a move of buckets from `old` to `new`, the queues of all buckets, behind a fence that is sent after this.
    pub(super) fn begin(&self, fence: u32, old: &[u8], new: &[u8]) {
        let (mut losing, mut gaining) = (0, 0);
        for (old, new) in old.iter().zip(new).filter(|(old, new)| old != new) {
            losing |= 1_u32 << (old & 31);
            gaining |= 1_u32 << (new & 31);
        }
        self.settled.store(0, Ordering::Relaxed);
        self.losing.store(losing, Ordering::Relaxed);
        self.gaining.store(gaining, Ordering::Relaxed);
        self.fence.store(fence, Ordering::Release);
    }

    /// Lets all queues go on.
    pub(super) fn give_up(&self) {
        self.settled.store(u32::MAX, Ordering::Release);
    }

    /// Returns true if all packets from before the move have left their workers.
    pub(super) fn has_settled(&self) -> bool {
        let losing = self.losing.load(Ordering::Relaxed);
        self.settled.load(Ordering::Acquire) & losing == losing
    }
}

impl QueueMove {
    /// Returns true if the queue may go on behind a fence that it has reached. `queue` is its number.
    pub(super) fn may_pass(&mut self, moves: &Moves, queue: usize, fence: u32) -> bool {
        if moves.fence.load(Ordering::Acquire) != fence {
            // It belongs to an entry that was removed, or to a move that has ended.
            return true;
        }
        let is_in = |queues: &AtomicU32| queues.load(Ordering::Relaxed) >> (queue & 31) & 1 == 1;
        if self.reached != fence {
            self.reached = fence;
            if is_in(&moves.losing) {
                self.unsettled = Some(fence);
            }
        }
        !is_in(&moves.gaining) || moves.has_settled()
    }

    /// Notes that all packets that the queue has delivered so far have left the worker.
    #[inline]
    pub(super) fn settle(&mut self, moves: &Moves, queue: usize) {
        if let Some(fence) = self.unsettled.take()
            && moves.fence.load(Ordering::Acquire) == fence
        {
            moves.settled.fetch_or(1 << (queue & 31), Ordering::Release);
        }
    }
}

/// Returns the commands that give all buckets their queues, behind a fence.
pub(super) fn bucket_commands(queues: &[u8], fence: Option<u32>) -> Vec<Command> {
    let chunks = (0..queues.len())
        .step_by(BUCKETS_LEN_MAX)
        .zip(queues.chunks(BUCKETS_LEN_MAX));
    let mut commands: Vec<Command> = chunks
        .map(|(first, queues)| Command::SetBuckets {
            first: first as u16,
            queues: queues.to_vec(),
        })
        .collect();
    commands.push(Command::Commit { fence });
    commands
}

#[cfg(test)]
mod tests;
