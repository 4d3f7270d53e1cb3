//! The scheduler of a port: queues with guarantees, limits, priorities and weights, and the port's own rate.
//!
//! Time is an argument, and the module does not depend on workers or devices, so that tests run in simulated
//! time. The scheduler guarantees the following, and `tests/it/scheduler/` shows it:
//!
//! * Packets of one queue leave in the order of their arrival; none is lost or duplicated. A full queue
//!   refuses packets (tail drop) and counts them.
//! * Over any time a queue sends no more than its `max_rate` allows, and a port no more than its `rate`, plus one
//!   burst: a millisecond at the rate, or two full frames.
//! * A queue with packets gets its `min_rate`, whatever the other queues demand, as long as the port can send all
//!   guarantees.
//! * The rest of the capacity goes to the queues of the highest priority that have packets, in proportion to their
//!   weights (surplus round robin: a queue may exceed its quantum by less than a packet, which its next quantum is
//!   reduced by).
//!
//! ```text
//!  enqueue --> queue: FIFO, max_rate, min_rate, priority, weight
//!                |
//!                v  dequeue, while the port's rate has credit
//!  1. Which queues have packets, and credit of their max_rate?
//!  2. Do some of these have credit of their min_rate? -- yes --> the next of them, by priority, then in turn
//!  3. Else: the highest priority among them, by surplus round robin
//! ```
//!
//! The port's rate, or a device that takes no more packets, holds back all queues alike.
//! [`Scheduler::eligible_at`] returns the time at which a packet may leave again, so that a worker may sleep
//! until then.

mod counters;
mod credit;
mod plan;
mod queue;
mod scheduler;

pub(crate) use counters::PortQueues;
pub use counters::{QueueCounters, QueueCountersMap, QueueStats, QueueStatus};
pub use plan::{PortPlan, QUEUES_MAX, QueuePlan};
pub use scheduler::Scheduler;
