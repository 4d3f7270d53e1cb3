//! Queues and rates of a port, as the data plane wants them.

use millrace_datapath::schedule::{PortPlan, QueuePlan};
use millrace_model as model;

/// What is configured of a port's queues.
pub(super) fn plan_of(port: &model::Port) -> PortPlan {
    let queue = |queue: &model::Queue| QueuePlan {
        id: queue.id,
        min_rate: queue.min_rate.map(model::Rate::get),
        max_rate: queue.max_rate.map(model::Rate::get),
        priority: queue.priority.get(),
        weight: queue.weight.get(),
        packets_max: queue.length.get() as usize,
        bytes_max: queue.size.map(|size| size.get().into()),
    };
    PortPlan {
        rate: port.rate.map(model::Rate::get),
        overhead: port.frame_overhead.get(),
        queues: port.egress_queues.iter().map(queue).collect(),
    }
}
