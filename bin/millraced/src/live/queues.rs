//! Queues of ports with their counters.

use millrace_agent::BridgeControl;
use millrace_api::view;
use millrace_datapath::io::Backend;
use millrace_model as model;

/// All queues of a bridge, in order of ports and numbers.
pub(super) fn queues<B: Backend>(control: &BridgeControl<B>) -> Vec<view::EgressQueue> {
    let now = control.datapath.now();
    let mut list = Vec::new();
    for (number, status) in &control.ports {
        for queue in control.datapath.queues(*number) {
            let given = status
                .model
                .egress_queues
                .iter()
                .find(|given| given.id == queue.id);
            let given = given.cloned().unwrap_or_else(|| model::Queue::new(queue.id));
            let bps = |rate: Option<model::Rate>| rate.map(|rate| rate.get().bps());
            list.push(view::EgressQueue {
                port: status.model.name.to_string(),
                id: queue.id.0,
                min_bps: bps(given.min_rate),
                max_bps: bps(given.max_rate),
                priority: given.priority.get(),
                weight: given.weight.get(),
                length: given.length.get(),
                packets: queue.stats.tx_packets,
                bytes: queue.stats.tx_bytes,
                drops: queue.stats.dropped,
                waiting_packets: queue.stats.waiting_packets as u64,
                waiting_bytes: queue.stats.waiting_bytes as u64,
                duration_seconds: now.since(queue.since).as_secs_f64(),
            });
        }
    }
    list
}
