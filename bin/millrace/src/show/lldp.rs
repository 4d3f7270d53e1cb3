//! `millrace show lldp`.

use millrace_api::client::{Client, ClientError};
use millrace_api::view::{LagMember, Lldp};
use serde::Serialize;

use crate::human::or_dash;
use crate::table::Table;

/// A port and its LLDP.
#[derive(Serialize)]
pub(super) struct PortLldp {
    port: String,
    lldp: Lldp,
}

/// Returns the ports of a bridge, and the members of its LAGs, that have LLDP.
pub(super) fn ports(client: &Client, bridge: &str) -> Result<Vec<PortLldp>, ClientError> {
    let ports = client.ports(bridge)?.into_iter();
    let ports = ports.map(|port| (port.name, port.lldp));
    let lags = client.lags()?.into_iter().filter(|lag| lag.bridge == bridge);
    let members = lags.flat_map(|lag| {
        let named = move |member: LagMember| (format!("{}/{}", lag.port, member.name), member.lldp);
        lag.members.into_iter().map(named)
    });
    let with_lldp = ports.chain(members).filter_map(|(port, lldp)| {
        let lldp = lldp?;
        Some(PortLldp { port, lldp })
    });
    Ok(with_lldp.collect())
}

/// Returns a row for each neighbour.
pub(super) fn table(list: &[PortLldp]) -> Table {
    let headings = [
        "PORT",
        "SYSTEM",
        "CHASSIS",
        "ITS PORT",
        "DESCRIPTION",
        "CAPABILITIES",
        "MANAGEMENT",
        ">VLAN",
        ">EXPIRES IN",
    ];
    let empty = if list.is_empty() {
        "no port has LLDP: `lldp` in the bridge enables it"
    } else {
        "no neighbours"
    };
    let mut table = Table::new(&headings, empty);
    for PortLldp { port, lldp } in list {
        for neighbour in &lldp.neighbours {
            table.row([
                port.clone(),
                or_dash(neighbour.system_name.clone()),
                neighbour.chassis.clone(),
                neighbour.port.clone(),
                or_dash(neighbour.port_description.clone()),
                neighbour.capabilities.join(","),
                neighbour.management.join(","),
                or_dash(neighbour.port_vlan),
                format!("{}s", neighbour.expires_in_s),
            ]);
        }
    }
    table
}
