//! `millrace show rstp`.

use millrace_api::client::{Client, ClientError};
use millrace_api::view::RstpPort;
use serde::Serialize;

use crate::table::Table;

/// A port and its part in the spanning tree.
#[derive(Serialize)]
pub(super) struct PortRstp {
    port: String,
    rstp: RstpPort,
}

/// Returns the ports of a bridge that take part in a spanning tree.
pub(super) fn ports(client: &Client, bridge: &str) -> Result<Vec<PortRstp>, ClientError> {
    let ports = client.ports(bridge)?.into_iter();
    let with_rstp = ports.filter_map(|port| {
        let rstp = port.rstp?;
        Some(PortRstp {
            port: port.name,
            rstp,
        })
    });
    Ok(with_rstp.collect())
}

/// Returns a row for each port.
pub(super) fn table(list: &[PortRstp]) -> Table {
    let headings = [
        "PORT",
        "ROLE",
        "STATE",
        ">COST",
        "EDGE",
        "SENDS",
        "ROOT",
        ">ROOT COST",
        "DESIGNATED BRIDGE",
        ">PORT",
        "GUARD",
    ];
    let mut table = Table::new(&headings, "no port has RSTP: `rstp` in the bridge enables it");
    for PortRstp { port, rstp } in list {
        table.row([
            port.clone(),
            rstp.role.clone(),
            rstp.state.clone(),
            rstp.path_cost.to_string(),
            if rstp.edge { "yes" } else { "no" }.to_owned(),
            rstp.sends.clone(),
            rstp.root.clone(),
            rstp.root_path_cost.to_string(),
            rstp.designated_bridge.clone(),
            rstp.designated_port.to_string(),
            match (rstp.bpdu_guarded, rstp.root_guarded) {
                (true, _) => "bpdu",
                (false, true) => "root",
                (false, false) => "-",
            }
            .to_owned(),
        ]);
    }
    table
}
