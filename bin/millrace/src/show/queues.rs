//! `millrace show queues` and `millrace show policers`.

use millrace_api::client::{Client, ClientError};
use millrace_api::view::{Colored, EgressQueue, Policer};
use millrace_types::BitRate;
use serde::Serialize;

use crate::human::span;
use crate::table::Table;

/// Returns a row for each queue.
pub(super) fn table(list: &[EgressQueue]) -> Table {
    let headings = [
        "PORT", ">QUEUE", ">PRIO", ">WEIGHT", ">MIN", ">MAX", ">PACKETS", ">BYTES", ">DROPS", ">WAITING",
        ">AGE",
    ];
    let rate =
        |bps: Option<u64>| bps.map_or_else(|| "-".to_owned(), |bps| BitRate::from_bps(bps).to_string());
    let mut table = Table::new(&headings, "no port has queues");
    for queue in list {
        table.row([
            queue.port.clone(),
            queue.id.to_string(),
            queue.priority.to_string(),
            queue.weight.to_string(),
            rate(queue.min_bps),
            rate(queue.max_bps),
            queue.packets.to_string(),
            queue.bytes.to_string(),
            queue.drops.to_string(),
            format!("{}/{}", queue.waiting_packets, queue.length),
            span(queue.duration_seconds),
        ]);
    }
    table
}

/// A policer and its port.
#[derive(Serialize)]
pub(super) struct PortPolicer {
    port: String,
    policer: Policer,
}

/// Returns the policers of a bridge.
pub(super) fn policed(client: &Client, bridge: &str) -> Result<Vec<PortPolicer>, ClientError> {
    let ports = client.ports(bridge)?.into_iter();
    let policed = ports.filter_map(|port| {
        let policer = port.policer?;
        Some(PortPolicer {
            port: port.name,
            policer,
        })
    });
    Ok(policed.collect())
}

/// Returns a row for each policer.
pub(super) fn policers(list: &[PortPolicer]) -> Table {
    let headings = [
        "PORT",
        "TYPE",
        ">COMMITTED",
        ">PEAK/EXCESS",
        ">GREEN",
        "",
        ">YELLOW",
        "",
        ">RED",
        "",
    ];
    let mut table = Table::new(&headings, "no port has a policer");
    for PortPolicer { port, policer } in list {
        let rate = |bps: u64| BitRate::from_bps(bps).to_string();
        let packets = |colored: &Colored| colored.packets.to_string();
        table.row([
            port.clone(),
            policer.kind.clone(),
            rate(policer.cir_bps),
            policer.second_bps.map_or_else(|| "-".to_owned(), rate),
            packets(&policer.green),
            policer.green.action.clone(),
            packets(&policer.yellow),
            policer.yellow.action.clone(),
            packets(&policer.red),
            policer.red.action.clone(),
        ]);
    }
    table
}
