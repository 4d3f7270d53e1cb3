//! Bonds: ports with several interfaces. Each is a LAG with a port of the same name.
//!
//! | `lacp` | `bond_mode` | here |
//! | --- | --- | --- |
//! | `active`, `passive` | any | LACP; packets are spread by flow |
//! | `off` | `active-backup`, or none | one interface carries packets, the next one after it |
//! | `off` | `balance-slb` | the same, with a refusal |
//! | `off` | `balance-tcp` | no packets, as in Open vSwitch, which needs LACP for it |

use std::collections::BTreeMap;

use millrace_model as model;
use millrace_ovsdb::Uuid;
use millrace_types::PortNo;

use crate::bond_keys;
use crate::fault::{Faults, RowName};
use crate::interface;
use crate::keys;
use crate::lldp;
use crate::one::One;
use crate::place::{InterfaceRow, PortRow};
use crate::port;
use crate::rows::View;

/// The priority of the interface that `other_config:bond-primary` names: better than that of all others.
const PRIMARY: u16 = 1;

/// Adds a bond to the bridge, and returns its rows.
pub(crate) fn bond<'a>(
    one: &mut One<'a, '_>,
    view: &View<'a>,
    interfaces: &[View<'a>],
    bridge: &mut model::Bridge,
    numbers: &BTreeMap<Uuid, PortNo>,
) -> PortRow {
    let name = view.text("name").unwrap_or("");
    let row = view.row_name();
    let mut result = PortRow::of(view, true, interfaces.iter().map(InterfaceRow::of).collect());
    let made = lag(one, view, &row, name, numbers.get(&view.uuid).copied());
    let (mut lag, mut port) = match made {
        Ok(made) => made,
        Err(reason) => {
            one.faults.refuse(&row, &*reason);
            for interface in &mut result.interfaces {
                interface.error = Some(reason.clone());
            }
            return result;
        }
    };
    let other = view.map("other_config");
    for (interface, row) in interfaces.iter().zip(&mut result.interfaces) {
        let number = numbers.get(&interface.uuid).copied();
        match member(one, interface, bridge, number, &mut port) {
            Ok(mut member) => {
                if other.get("bond-primary") == Some(&member.name.as_str()) {
                    member.priority = model::LacpPriority::new(PRIMARY).unwrap_or(member.priority);
                }
                lag.members.push(member);
                row.number = Some(port.number);
            }
            Err(reason) => {
                one.faults.refuse(&interface.row_name(), &*reason);
                row.error = Some(reason);
            }
        }
    }
    if let Some(primary) = other.get("bond-primary")
        && !interfaces
            .iter()
            .any(|interface| interface.text("name") == Some(primary))
    {
        one.faults.ignore(
            &row,
            format!("other_config:bond-primary={primary} has no effect: expected an interface of the bond"),
        );
    }
    if lag.members.is_empty() {
        return result;
    }
    if view.has("qos") {
        one.faults.refuse(
            &row,
            "qos of a bond is not available: expected meters in flow entries, or a bond without qos",
        );
    }
    port::of_port(one, view, &mut port);
    lldp::port(interfaces, bridge, &mut port, one.faults);
    bridge.ports.push(port);
    bridge.lags.push(lag);
    result
}

/// Returns the LAG and the port of a bond, without members.
///
/// # Errors
/// The reason why there can be no such bond.
fn lag(
    one: &mut One<'_, '_>,
    view: &View<'_>,
    row: &RowName,
    name: &str,
    number: Option<PortNo>,
) -> Result<(model::Lag, model::Port), String> {
    let lag_name: model::LagName = name
        .parse()
        .map_err(|error: model::NameError| error.to_string())?;
    let port_name: model::PortName = name
        .parse()
        .map_err(|error: model::NameError| error.to_string())?;
    let number = number.ok_or("no free OpenFlow port number: expected fewer ports")?;
    let port = model::Port::new(port_name, number, model::Device::Lag(lag_name.clone()));
    let mut lag = model::Lag::new(lag_name);
    let mode = view.text("bond_mode").unwrap_or("active-backup");
    (lag.mode, lag.fallback) = match (view.text("lacp").unwrap_or("off"), mode) {
        ("off", "balance-tcp") => {
            return Err(format!(
                "port {name}: bond_mode balance-tcp needs LACP at both ends: expected lacp=active"
            ));
        }
        ("off", mode) => {
            if mode == "balance-slb" {
                one.faults.refuse(
                    row,
                    "bond_mode balance-slb is not available: one interface carries packets at a time, as with active-backup; \
                     expected lacp=active, with a partner that has LACP",
                );
            }
            (model::LagMode::Passive, model::LagFallback::Individual)
        }
        (lacp, mode) => {
            if mode == "active-backup" && view.has("bond_mode") {
                one.faults.ignore(
                    row,
                    "bond_mode=active-backup has no effect with LACP: packets are spread by flow",
                );
            }
            let fallback = match keys::flag(view, "other_config", "lacp-fallback-ab", row, one.faults) {
                Some(true) => model::LagFallback::Individual,
                _ => model::LagFallback::None,
            };
            let mode = match lacp {
                "passive" => model::LagMode::Passive,
                _ => model::LagMode::Active,
            };
            (mode, fallback)
        }
    };
    if view.is_true("bond_fake_iface") {
        one.faults.ignore(
            row,
            "bond_fake_iface has no effect: the port of the bond stands for all of its interfaces",
        );
    }
    for column in ["bond_updelay", "bond_downdelay"] {
        if let Some(delay) = view.integer(column).filter(|delay| *delay != 0) {
            one.faults.ignore(
                row,
                format!(
                    "{column}={delay} has no effect: an interface carries packets as soon as its link and LACP allow it"
                ),
            );
        }
    }
    other_config(view, row, &mut lag, one.faults);
    Ok((lag, port))
}

/// Keys of `other_config` that the rest of this module reads.
const READ: [&str; 2] = ["lacp-fallback-ab", "bond-primary"];

fn other_config(view: &View<'_>, row: &RowName, lag: &mut model::Lag, faults: &mut Faults) {
    for (key, value) in view.map("other_config") {
        if !bond_keys::KEYS.contains(&key) || READ.contains(&key) {
            continue;
        }
        let expected = match key {
            "lacp-time" => match value {
                "fast" => {
                    lag.rate = model::LagRate::Fast;
                    continue;
                }
                "slow" => continue,
                _ => "expected fast or slow",
            },
            "lacp-system-id" => match value.parse() {
                Ok(system) => {
                    lag.system = Some(system);
                    continue;
                }
                Err(_) => "expected a unicast MAC address",
            },
            "lacp-system-priority" => match priority(value) {
                Some(priority) => {
                    lag.system_priority = priority;
                    continue;
                }
                None => "expected 1 to 65535",
            },
            _ => match keys::reason(view.table, "other_config", key, value) {
                Some((_, instead)) => instead,
                None => continue,
            },
        };
        faults.ignore(
            row,
            format!("other_config:{key}={value} has no effect: {expected}"),
        );
    }
}

fn priority(text: &str) -> Option<model::LacpPriority> {
    let raw = text.parse::<u16>().ok().filter(|raw| *raw != 0)?;
    model::LacpPriority::new(raw).ok()
}

/// Returns an interface as a member, and sets the MTU of the port of its bond.
///
/// # Errors
/// The text of the column `error`.
fn member(
    one: &mut One<'_, '_>,
    view: &View<'_>,
    bridge: &model::Bridge,
    number: Option<PortNo>,
    port: &mut model::Port,
) -> Result<model::LagMember, String> {
    let name = view.text("name").unwrap_or("");
    if name == bridge.name.as_str() {
        return Err(format!(
            "{name}: the LOCAL port is no member of a bond: expected another interface"
        ));
    }
    let member_name: model::PortName = name
        .parse()
        .map_err(|error: model::NameError| error.to_string())?;
    let number = number.ok_or("no free number of a member: expected fewer ports")?;
    let device = interface::device(one, view, name)?;
    if let Some(mtu) = interface::mtu(one, view, &device) {
        port.mtu = mtu;
    }
    let mut member = model::LagMember::new(member_name, number, device);
    member.queues = interface::queues(one, view);
    let row = view.row_name();
    let other = view.map("other_config");
    if let Some(text) = other.get("lacp-port-priority") {
        match priority(text) {
            Some(priority) => member.priority = priority,
            None => one.faults.ignore(
                &row,
                format!("other_config:lacp-port-priority={text} has no effect: expected 1 to 65535"),
            ),
        }
    }
    if let Some(text) = other.get("lacp-port-id")
        && !text.parse::<u16>().is_ok_and(|id| id != 0)
    {
        one.faults.ignore(
            &row,
            format!("other_config:lacp-port-id={text} has no effect: expected 1 to 65535"),
        );
    }
    if let Some(key) = other.get("lacp-aggregation-key") {
        one.faults.ignore(
            &row,
            format!(
                "other_config:lacp-aggregation-key={key} has no effect: the number of the port is the key"
            ),
        );
    }
    for (column, is_set, instead) in [
        (
            "ingress_policing_rate",
            view.integer("ingress_policing_rate").is_some_and(|rate| rate > 0),
            "expected a meter",
        ),
        (
            "ingress_policing_kpkts_rate",
            view.integer("ingress_policing_kpkts_rate")
                .is_some_and(|rate| rate > 0),
            "expected a meter",
        ),
        (
            "bfd:enable",
            view.map("bfd").get("enable") == Some(&"true"),
            "expected LACP",
        ),
        ("cfm_mpid", view.has("cfm_mpid"), "expected LACP"),
    ] {
        if is_set {
            one.faults.refuse(
                &row,
                format!("{column} of an interface of a bond is not available: {instead}"),
            );
        }
    }
    if let Some(mac) = view.text("mac") {
        one.faults.ignore(
            &row,
            format!("mac={mac} has no effect on an interface of a bond: expected `ip link set {name} address {mac}`"),
        );
    }
    Ok(member)
}
