//! Queues and policers of ports with their counters.

use millrace_agent::BridgeControl;
use millrace_api::view;
use millrace_datapath::io::Backend;
use millrace_model as model;
use millrace_pipeline::ColorCount;
use millrace_types::PortNo;

/// Returns all queues of a bridge, ordered by port and number.
pub(super) fn queues<B: Backend>(control: &BridgeControl<B>) -> Vec<view::EgressQueue> {
    let now = control.datapath().now();
    let mut list = Vec::new();
    for (number, status) in control.ports() {
        for queue in control.datapath().queues(*number) {
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

/// Returns the policer of a port, if it has one.
pub(super) fn policer<B: Backend>(
    control: &BridgeControl<B>,
    number: PortNo,
    port: &model::Port,
) -> Option<view::Policer> {
    let [green, yellow, red] = control.datapath().policed(number)?;
    let given = port.policer.as_ref()?;
    Some(view::Policer {
        kind: given.kind.to_string(),
        cir_bps: given.cir.get().bps(),
        second_bps: given.pir.or(given.eir).map(|rate| rate.get().bps()),
        green: colored(&given.green, green),
        yellow: colored(&given.yellow, yellow),
        red: colored(&given.red, red),
    })
}

fn colored(action: &model::ColorAction, count: ColorCount) -> view::Colored {
    let marks = action.dscp.is_some() || action.pcp.is_some() || action.mpls_tc.is_some();
    view::Colored {
        action: if marks {
            "mark".to_owned()
        } else {
            action.action.to_string()
        },
        packets: count.packets,
        bytes: count.bytes,
    }
}
