//! `millrace show offload`.

use millrace_api::client::Client;
use millrace_api::client::ClientError;
use millrace_api::view::Offload;
use serde::Serialize;

use crate::table::Table;

/// A row: the name of a port that has offload, and its state.
#[derive(Serialize)]
pub(super) struct PortOffload {
    port: String,
    offload: Offload,
}

/// Returns the offload of the ports of a bridge.
pub(super) fn ports(client: &Client, bridge: &str) -> Result<Vec<PortOffload>, ClientError> {
    let ports = client.ports(bridge)?.into_iter();
    let offloaded = ports.filter_map(|port| {
        Some(PortOffload {
            port: port.name,
            offload: port.offload_status?,
        })
    });
    Ok(offloaded.collect())
}

/// Returns the part of `all` in per cent.
fn share(part: u64, all: u64) -> String {
    if all == 0 {
        "-".to_owned()
    } else {
        format!("{:.1}%", part as f64 * 100.0 / all as f64)
    }
}

/// Returns a row for each port.
pub(super) fn table(list: &[PortOffload]) -> Table {
    let headings = [
        "PORT",
        "MODE",
        "LEVEL",
        "BY",
        ">ENTRIES",
        ">PENDING",
        ">MARKED",
        ">USED",
        ">VERIFIED",
        ">MISMATCHES",
        ">DROPPED",
        ">OPS/S",
        ">SAVED NS",
        "REFUSED",
    ];
    let mut table = Table::new(
        &headings,
        "no port has offload: `offload` in a port with a device `nic:PATH` enables it",
    );
    for PortOffload { port, offload } in list {
        let refusals: Vec<String> = offload
            .refusals
            .iter()
            .map(|refusal| format!("{} {}", refusal.reason, refusal.count))
            .collect();
        table.row([
            port.clone(),
            offload.mode.clone(),
            offload.level.clone(),
            offload.by.clone(),
            format!("{}/{}", offload.entries, offload.limit),
            (offload.pending + offload.leaked).to_string(),
            share(offload.marked, offload.packets),
            share(offload.used, offload.packets),
            offload.verified.to_string(),
            offload.mismatches.to_string(),
            offload.dropped.to_string(),
            offload.operations_per_second.to_string(),
            offload
                .saved_nanos
                .map_or_else(|| "-".to_owned(), |nanos| format!("{nanos:.1}")),
            if refusals.is_empty() {
                "-".to_owned()
            } else {
                refusals.join(", ")
            },
        ]);
    }
    table
}
