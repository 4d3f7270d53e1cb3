//! Which packet of a port leaves when: queues with guarantees, limits, priorities and weights, and the port's own rate.
//!
//! Time is an argument and nothing here knows of workers or devices, so that tests run it in simulated time. What it
//! promises, and tests in `tests/it/scheduler.rs` show:
//!
//! * Packets of one queue leave in the order in which they came; none is lost, none is made up. A full queue refuses
//!   what comes (tail drop) and counts it.
//! * Over any time a queue sends no more than its `max_rate` allows, and a port no more than its `rate`, but for one
//!   burst: a millisecond at the rate, or two full frames.
//! * A queue with packets gets its `min_rate`, whatever the others want, as long as the port can send all guarantees.
//! * What is left after the guarantees goes to the queues of the highest priority that have packets, by turns in
//!   proportion to their weights (surplus round robin: a queue may exceed its turn by less than a packet, and its next
//!   turn is shorter by as much).
//!
//! A port's rate, or a device that takes no more, holds all of them back alike. [`Scheduler::opens`] says when there is
//! something to do again, so that a worker may sleep until then.

mod counters;
mod credit;
mod plan;
mod queue;
mod scheduler;

pub(crate) use counters::PortQueues;
pub use counters::{QueueCounters, QueueCountersMap, QueueStats, QueueStatus};
pub use plan::{PortPlan, QUEUES_MAX, QueuePlan};
pub use scheduler::Scheduler;
