//! The columns of bridges and ports in a spanning tree, and what `stp/show` and `rstp/show` print of it, as Open vSwitch 3.1 does.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use millrace_ovsdb::{Datum, Row};

use crate::rows::row;
use crate::state::{State, TreeBridge, TreePort, TreeState, TreeTimes, capital};

/// Returns an address without colons.
fn digits(bridge: &TreeBridge) -> String {
    bridge.address.split(':').collect()
}

/// Returns an identifier in the form of STP.
fn stp_id(bridge: &TreeBridge) -> String {
    format!("{:04x}.{}", bridge.priority, digits(bridge))
}

/// Returns an identifier in the form of RSTP.
fn rstp_id(bridge: &TreeBridge) -> String {
    format!(
        "{:x}.{:03x}.{}",
        bridge.priority >> 12,
        bridge.priority & 0xfff,
        digits(bridge)
    )
}

/// Returns the columns of a bridge.
pub(crate) fn of_bridge(is_stp: bool, tree: Option<&TreeState>) -> Row {
    let (mut stp, mut rstp) = (BTreeMap::new(), BTreeMap::new());
    match tree {
        Some(tree) if is_stp => {
            stp.insert("stp_bridge_id", stp_id(&tree.bridge));
            stp.insert("stp_designated_root", stp_id(&tree.root));
            stp.insert("stp_root_path_cost", tree.root_path_cost.to_string());
        }
        Some(tree) => {
            rstp.insert("rstp_bridge_id", rstp_id(&tree.bridge));
            rstp.insert("rstp_root_id", rstp_id(&tree.root));
            rstp.insert("rstp_root_path_cost", tree.root_path_cost.to_string());
            rstp.insert("rstp_designated_id", rstp_id(&tree.designated));
            rstp.insert("rstp_designated_port_id", format!("{:04x}", tree.designated_port));
            rstp.insert("rstp_bridge_port_id", format!("{:04x}", tree.bridge_port));
        }
        None => {}
    }
    row([("status", Datum::map(stp)), ("rstp_status", Datum::map(rstp))])
}

fn count(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// Returns the columns of a port.
pub(crate) fn of_port(is_stp: bool, port: Option<&TreePort>) -> Row {
    let (mut status, mut statistics) = (BTreeMap::new(), BTreeMap::new());
    let (mut rstp_status, mut rstp_statistics) = (BTreeMap::new(), BTreeMap::new());
    match port {
        Some(port) if is_stp => {
            status.insert("stp_port_id", port.id.to_string());
            status.insert("stp_state", port.stp_state().to_owned());
            status.insert("stp_sec_in_state", port.state_s.to_string());
            status.insert("stp_role", port.stp_role().to_owned());
            statistics.insert("stp_tx_count", count(port.sent));
            statistics.insert("stp_rx_count", count(port.received));
            statistics.insert("stp_error_count", count(port.discarded));
        }
        Some(port) => {
            rstp_status.insert("rstp_port_id", format!("{:04x}", port.id));
            rstp_status.insert("rstp_port_role", capital(port.role));
            rstp_status.insert("rstp_port_state", rstp_state(port));
            rstp_status.insert("rstp_designated_bridge_id", rstp_id(&port.designated));
            rstp_status.insert("rstp_designated_port_id", format!("{:04x}", port.designated_port));
            rstp_status.insert("rstp_designated_path_cost", port.designated_path_cost.to_string());
            rstp_statistics.insert("rstp_tx_count", count(port.sent));
            rstp_statistics.insert("rstp_rx_count", count(port.received));
            rstp_statistics.insert("rstp_error_count", count(port.discarded));
            rstp_statistics.insert("rstp_uptime", count(port.uptime_s));
        }
        None => {}
    }
    row([
        ("status", Datum::map(status)),
        ("statistics", Datum::map(statistics)),
        ("rstp_status", Datum::map(rstp_status)),
        ("rstp_statistics", Datum::map(rstp_statistics)),
    ])
}

fn rstp_state(port: &TreePort) -> String {
    match port.role {
        "disabled" => "Disabled".to_owned(),
        _ => capital(port.state),
    }
}

/// Which of both protocols a bridge has, or a command is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Protocol {
    Stp,
    Rstp,
}

impl Protocol {
    /// Returns the beginning of the keys of `other_config` that belong to it.
    pub(crate) fn prefix(self) -> &'static str {
        match self {
            Protocol::Stp => "stp",
            Protocol::Rstp => "rstp",
        }
    }
}

/// Returns the answer to `stp/show` and `rstp/show`.
///
/// # Errors
/// The error for `ovs-appctl`.
pub(crate) fn show(state: &State, protocol: Protocol, name: Option<&str>) -> Result<String, String> {
    let trees: Vec<(&str, &TreeState)> = state
        .bridges
        .iter()
        .filter(|(bridge, _)| name.is_none_or(|name| name == bridge.as_str()))
        .filter_map(|(bridge, state)| Some((bridge.as_str(), state.tree.as_ref()?)))
        .filter(|(_, tree)| tree.is_stp == (protocol == Protocol::Stp))
        .collect();
    if trees.is_empty() && name.is_some() {
        return Err(match protocol {
            Protocol::Stp => "no such stp object".to_owned(),
            Protocol::Rstp => "No such RSTP object".to_owned(),
        });
    }
    let mut text = String::new();
    for (bridge, tree) in trees {
        show_one(&mut text, protocol, bridge, tree);
    }
    Ok(text)
}

fn show_one(text: &mut String, protocol: Protocol, name: &str, tree: &TreeState) {
    // Names are padded, the first one otherwise in STP.
    let width = 15;
    let first_width = match protocol {
        Protocol::Stp => 13,
        Protocol::Rstp => 15,
    };
    let details = |text: &mut String, bridge: &TreeBridge, times: TreeTimes| {
        for (key, value) in [
            ("stp-priority", bridge.priority.to_string()),
            ("stp-system-id", bridge.address.clone()),
            ("stp-hello-time", format!("{}s", times.hello_s)),
            ("stp-max-age", format!("{}s", times.max_age_s)),
            ("stp-fwd-delay", format!("{}s", times.forward_delay_s)),
        ] {
            let width = if key == "stp-priority" { first_width } else { width };
            let _infallible = writeln!(text, "  {key:<width$} {value}");
        }
    };
    let _infallible = writeln!(text, "---- {name} ----\nRoot ID:");
    details(text, &tree.root, tree.root_times);
    if tree.root == tree.bridge {
        text.push_str("  This bridge is the root\n");
    } else {
        let root_port = tree
            .ports
            .iter()
            .find(|(_, port)| port.role == "root")
            .map_or("", |(name, _)| name);
        let _infallible = writeln!(
            text,
            "  {:<width$} {root_port}\n  {:<width$} {}",
            "root-port", "root-path-cost", tree.root_path_cost
        );
    }
    text.push_str("\nBridge ID:\n");
    details(text, &tree.bridge, tree.own_times);
    let cost_width = match protocol {
        Protocol::Stp => 5,
        Protocol::Rstp => 8,
    };
    let _infallible = writeln!(
        text,
        "\n  {:<10} {:<10} {:<10} {:<cost_width$} {:<8}\n  {dashes} {dashes} {dashes} {} -------",
        "Interface",
        "Role",
        "State",
        "Cost",
        "Pri.Nbr",
        "-".repeat(cost_width),
        dashes = "-".repeat(10),
    );
    for (port_name, port) in tree.ports.iter().filter(|(_, port)| port.role != "disabled") {
        let (role, state) = match protocol {
            Protocol::Stp => (port.stp_role().to_owned(), port.stp_state().to_owned()),
            Protocol::Rstp => (capital(port.role), rstp_state(port)),
        };
        let _infallible = writeln!(
            text,
            "  {port_name:<10} {role:<10} {state:<10} {:<cost_width$} {}.{}",
            port.path_cost,
            port.id >> 8 & 0xf0,
            port.id & 0xfff,
        );
    }
    text.push('\n');
}
