//! The columns that the switch writes: of each row the whole state, of which only what changed is sent.

use std::collections::BTreeMap;

use millrace_ovsdb::{Datum, Operation, Row, RowRef, Uuid};

use crate::place::{BridgeRow, ControllerRow, InterfaceRow, MirrorRow, Translation};
use crate::rows::row;
use crate::state::{BridgeState, ChannelState, LagState, PortState, State, TunnelEgress};
use crate::trees;

/// The columns that the switch wrote in this session.
#[derive(Debug, Default)]
pub struct Written(BTreeMap<(&'static str, Uuid), Row>);

/// The types of datapaths that clients may name.
const DATAPATH_TYPES: [&str; 2] = ["netdev", "system"];

/// The types of interfaces that the switch has without DPDK, and those that need it.
const INTERFACE_TYPES: [&str; 8] = [
    "afxdp-nonpmd",
    "dpdkvhostuserclient",
    "gre",
    "gtpu",
    "internal",
    "patch",
    "tap",
    "vxlan",
];
const DPDK_INTERFACE_TYPES: [&str; 2] = ["afxdp", "dpdk"];

impl Written {
    /// Returns the operations that make the database equal to the state, `cur_cfg` last, and notes them as written. `before` is
    /// the state of the last call, if that had the same translation: rows of what did not change are left alone then.
    pub fn changes(
        &mut self,
        translation: &Translation,
        state: &State,
        before: Option<&State>,
        schema_version: &str,
    ) -> Vec<Operation> {
        let mut rows = BTreeMap::new();
        for bridge in &translation.rows {
            let now = state.bridges.get(&bridge.name);
            let before = before.map(|before| before.bridges.get(&bridge.name));
            if before != Some(now) {
                bridge_rows(bridge, now, before, &mut rows);
            }
        }
        let mut operations: Vec<Operation> = rows
            .iter()
            .filter_map(|((table, uuid), columns)| self.changed(table, *uuid, columns))
            .collect();
        if let Some(root) = translation.root {
            let columns = root_row(translation, state, schema_version);
            operations.extend(self.changed("Open_vSwitch", root, &columns));
            rows.insert(("Open_vSwitch", root), columns);
        }
        match before {
            Some(_) => self.0.extend(rows),
            None => self.0 = rows,
        }
        operations
    }

    /// Forgets what was written: the next call writes everything.
    pub fn forget(&mut self) {
        self.0.clear();
    }

    fn changed(&self, table: &'static str, uuid: Uuid, columns: &Row) -> Option<Operation> {
        let before = self.0.get(&(table, uuid));
        let is_new = |name: &String, value: &Datum| before.and_then(|row| row.get(name)) != Some(value);
        let columns: Row = columns
            .iter()
            .filter(|(name, value)| is_new(name, value))
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect();
        (!columns.is_empty()).then_some(Operation::Update {
            table,
            rows: RowRef::Uuid(uuid),
            columns,
        })
    }
}

type Rows = BTreeMap<(&'static str, Uuid), Row>;

fn none() -> Datum {
    Datum::from(None::<i64>)
}

fn root_row(translation: &Translation, state: &State, schema_version: &str) -> Row {
    let dpdk = DPDK_INTERFACE_TYPES.into_iter().filter(|_| state.has_dpdk);
    let mut columns = row([
        ("datapath_types", Datum::set(DATAPATH_TYPES)),
        ("iface_types", Datum::set(INTERFACE_TYPES.into_iter().chain(dpdk))),
        ("dpdk_initialized", Datum::from(state.has_dpdk)),
        ("dpdk_version", Datum::from(state.dpdk_version.clone())),
        ("cur_cfg", Datum::from(translation.next_cfg)),
    ]);
    if translation.lacks_version {
        columns.insert("ovs_version".to_owned(), Datum::from(state.version.as_str()));
    }
    if translation.lacks_db_version && !schema_version.is_empty() {
        columns.insert("db_version".to_owned(), Datum::from(schema_version));
    }
    columns
}

fn bridge_rows(
    bridge: &BridgeRow,
    state: Option<&BridgeState>,
    before: Option<Option<&BridgeState>>,
    rows: &mut Rows,
) {
    let mut columns = row([
        ("datapath_id", Datum::from(state.map(|state| state.dpid.clone()))),
        ("datapath_version", Datum::from("<built-in>")),
    ]);
    let tree = state.and_then(|state| state.tree.as_ref());
    columns.extend(trees::of_bridge(bridge.has_stp, tree));
    rows.insert(("Bridge", bridge.uuid), columns);
    for controller in &bridge.controllers {
        let channel = state.and_then(|state| {
            state
                .channels
                .iter()
                .find(|channel| channel.target == controller.target)
        });
        rows.insert(
            ("Controller", controller.uuid),
            controller_row(controller, channel),
        );
    }
    for mirror in &bridge.mirrors {
        rows.insert(("Mirror", mirror.uuid), mirror_row(mirror, state));
    }
    for port in &bridge.ports {
        let lag = state
            .and_then(|state| state.lags.get(&port.name))
            .filter(|_| port.is_bond);
        let active = lag
            .and_then(LagState::active_member)
            .map(|member| member.mac.clone());
        let mut columns = row([("bond_active_slave", Datum::from(active))]);
        let tree = tree
            .and_then(|tree| tree.ports.get(&port.name))
            .filter(|_| !port.is_bond);
        columns.extend(trees::of_port(bridge.has_stp, tree));
        rows.insert(("Port", port.uuid), columns);
        for interface in &port.interfaces {
            if before.is_none_or(|before| of_interface(interface, before) != of_interface(interface, state)) {
                let mut columns = interface_row(interface, state);
                if port.is_bond && !port.has_lacp {
                    // A bond without LACP hears a partner all the same, and uses it.
                    columns.insert("lacp_current".to_owned(), none());
                }
                rows.insert(("Interface", interface.uuid), columns);
            }
        }
    }
}

fn controller_row(controller: &ControllerRow, channel: Option<&ChannelState>) -> Row {
    let mut status = BTreeMap::new();
    // A listener has no state of its own in Open vSwitch.
    if let Some(channel) = channel.filter(|channel| channel.state != "IDLE") {
        status.insert("state", channel.state.to_owned());
        if channel.is_connected {
            status.insert("sec_since_connect", channel.since_s.to_string());
        }
    }
    let error = controller
        .error
        .clone()
        .or_else(|| channel.and_then(|channel| channel.last_error.clone()));
    if let Some(error) = error {
        status.insert("last_error", error);
    }
    row([
        (
            "is_connected",
            Datum::from(channel.is_some_and(|channel| channel.is_connected)),
        ),
        ("role", Datum::from(channel.and_then(|channel| channel.role))),
        ("status", Datum::map(status)),
    ])
}

fn mirror_row(mirror: &MirrorRow, bridge: Option<&BridgeState>) -> Row {
    let running = mirror
        .model_name
        .as_ref()
        .and_then(|name| bridge?.mirrors.get(name));
    let number = |count| i64::try_from(count).unwrap_or(i64::MAX);
    let statistics = running.map(|count| {
        [
            ("tx_packets", number(count.packets)),
            ("tx_bytes", number(count.bytes)),
        ]
    });
    row([("statistics", Datum::map(statistics.into_iter().flatten()))])
}

/// Returns what the row of an interface shows of the state: its port, and why there is none.
fn of_interface<'a>(
    interface: &InterfaceRow,
    bridge: Option<&'a BridgeState>,
) -> (Option<&'a PortState>, Option<&'a String>) {
    let (ports, problems) = bridge.map(|bridge| (&bridge.ports, &bridge.problems)).unzip();
    (
        ports.and_then(|ports| ports.get(&interface.name)),
        problems.and_then(|problems| problems.get(&interface.name)),
    )
}

fn interface_row(interface: &InterfaceRow, bridge: Option<&BridgeState>) -> Row {
    let port = bridge
        .and_then(|bridge| bridge.ports.get(&interface.name))
        .filter(|_| interface.number.is_some());
    let Some((port, number)) = port.zip(interface.number) else {
        return failed_row(interface, bridge);
    };
    running_row(interface, port, number.raw())
}

fn running_row(interface: &InterfaceRow, port: &PortState, number: u32) -> Row {
    // The number of LOCAL in a database is that of OpenFlow 1.0.
    let number = if number == millrace_types::PortNo::LOCAL.raw() {
        65_534
    } else {
        i64::from(number)
    };
    let up_down = |is_up| Datum::from(if is_up { "up" } else { "down" });
    let has_device = !matches!(interface.kind.as_str(), "patch" | "vxlan" | "gre" | "gtpu");
    let mut columns = row([
        ("ofport", Datum::from(number)),
        ("error", Datum::from(interface.error.clone())),
        ("mac_in_use", Datum::from(port.mac.as_str())),
        ("admin_state", up_down(port.is_up)),
        ("link_state", up_down(port.has_link)),
        ("ifindex", Datum::from(port.ifindex.unwrap_or(0))),
        (
            "link_resets",
            Datum::from(i64::try_from(port.link_resets).unwrap_or(i64::MAX)),
        ),
        ("statistics", Datum::map(port.statistics.clone())),
    ]);
    columns.insert("lacp_current".to_owned(), Datum::from(port.lacp_current));
    let speed = port.speed.and_then(|speed| i64::try_from(speed).ok());
    columns.insert("link_speed".to_owned(), Datum::from(speed));
    columns.insert("duplex".to_owned(), Datum::from(speed.map(|_| "full")));
    let mtu = has_device.then_some(port.mtu);
    columns.insert("mtu".to_owned(), Datum::from(mtu));
    columns.insert("status".to_owned(), Datum::map(status(port, has_device)));
    columns
}

/// Returns the column `status` of an interface that runs.
fn status(port: &PortState, has_device: bool) -> BTreeMap<&'static str, String> {
    let mut status = BTreeMap::new();
    if let Some(driver) = port.driver.as_ref().filter(|_| has_device) {
        status.insert("driver_name", driver.clone());
    }
    let Some(tunnel) = &port.tunnel else {
        return status;
    };
    if let Some(TunnelEgress {
        interface,
        has_carrier,
    }) = &tunnel.egress
    {
        let carrier = if *has_carrier { "up" } else { "down" };
        status.insert("tunnel_egress_iface", interface.clone());
        status.insert("tunnel_egress_iface_carrier", carrier.to_owned());
    }
    if let Some(problem) = &tunnel.problem {
        status.insert("tunnel_problem", problem.clone());
    }
    status
}

fn failed_row(interface: &InterfaceRow, bridge: Option<&BridgeState>) -> Row {
    let name = &interface.name;
    let problem = bridge.and_then(|bridge| bridge.problems.get(name));
    let error = interface.error.clone().unwrap_or_else(|| match problem {
        Some(reason) => format!("could not open network device {name} ({reason})"),
        None => format!("could not open network device {name} (the switch does not run it yet)"),
    });
    let mut columns = row([("ofport", Datum::from(-1i64)), ("error", Datum::from(error))]);
    for column in [
        "mac_in_use",
        "admin_state",
        "link_state",
        "link_speed",
        "duplex",
        "mtu",
        "ifindex",
        "link_resets",
        "lacp_current",
    ] {
        columns.insert(column.to_owned(), none());
    }
    columns.insert("statistics".to_owned(), Datum::map(BTreeMap::<&str, i64>::new()));
    columns.insert("status".to_owned(), Datum::map(BTreeMap::<&str, &str>::new()));
    columns
}
