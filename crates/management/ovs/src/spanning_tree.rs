//! STP and RSTP of bridges and ports.

use millrace_model as model;

use crate::fault::{Faults, RowName};
use crate::keys;
use crate::one::One;
use crate::rows::View;
use crate::trees::Protocol;
use crate::values::number;

/// The keys of `other_config` of a bridge that are read here.
pub(crate) const BRIDGE_KEYS: [&str; 13] = [
    "stp-system-id",
    "stp-priority",
    "stp-hello-time",
    "stp-max-age",
    "stp-forward-delay",
    "rstp-address",
    "rstp-priority",
    "rstp-ageing-time",
    "rstp-force-protocol-version",
    "rstp-max-age",
    "rstp-forward-delay",
    "rstp-transmit-hold-count",
    "rstp-hello-time",
];

/// The keys of `other_config` of a port that are read here.
pub(crate) const PORT_KEYS: [&str; 12] = [
    "stp-enable",
    "stp-port-num",
    "stp-port-priority",
    "stp-path-cost",
    "rstp-enable",
    "rstp-port-num",
    "rstp-port-priority",
    "rstp-path-cost",
    "rstp-port-admin-edge",
    "rstp-port-auto-edge",
    "rstp-port-mcheck",
    "rstp-admin-p2p-mac",
];

/// Returns the protocol of a bridge. Of both, Open vSwitch takes RSTP.
pub(crate) fn protocol(view: &View<'_>) -> Option<Protocol> {
    match (view.is_true("rstp_enable"), view.is_true("stp_enable")) {
        (true, _) => Some(Protocol::Rstp),
        (false, true) => Some(Protocol::Stp),
        (false, false) => None,
    }
}

/// Names the keys of the protocol that a bridge does not have.
fn name_other(view: &View<'_>, row: &RowName, tree: Option<Protocol>, keys: &[&str], faults: &mut Faults) {
    let own = tree.map_or(String::new(), |protocol| format!("{}-", protocol.prefix()));
    for (key, value) in view.map("other_config") {
        if !keys.contains(&key) || !own.is_empty() && key.starts_with(&own) {
            continue;
        }
        let protocol = key.split('-').next().unwrap_or("");
        faults.ignore(
            row,
            format!("other_config:{key}={value} has no effect: the bridge has no {protocol}_enable=true"),
        );
    }
}

/// The keys of the protocol of a bridge in `other_config` of a row.
struct Keys<'a> {
    view: View<'a>,
    prefix: &'static str,
    row: &'a RowName,
}

impl<'a> Keys<'a> {
    /// Returns the value of a key, which is named without the protocol.
    fn value(&self, key: &str) -> Option<&'a str> {
        let key = format!("{}-{key}", self.prefix);
        self.view.map("other_config").get(key.as_str()).copied()
    }

    /// Returns the number that a key has, brought into its range.
    fn number(&self, key: &str, min: u32, max: u32, faults: &mut Faults) -> Option<u32> {
        let text = self.value(key)?;
        match number(text, min, max, "a number") {
            Ok(value) => Some(value),
            Err(reason) => {
                self.ignore(key, text, &reason, faults);
                None
            }
        }
    }

    /// Returns the truth of a key.
    fn flag(&self, key: &str, faults: &mut Faults) -> Option<bool> {
        let key = format!("{}-{key}", self.prefix);
        keys::flag(&self.view, "other_config", &key, self.row, faults)
    }

    /// Says why the value of a key has no effect.
    fn ignore(&self, key: &str, text: &str, reason: &str, faults: &mut Faults) {
        let prefix = self.prefix;
        faults.ignore(
            self.row,
            format!("other_config:{prefix}-{key}={text} has no effect: {reason}"),
        );
    }
}

/// Sets the spanning tree of a bridge.
pub(crate) fn bridge(one: &mut One<'_, '_>, view: &View<'_>, row: &RowName, bridge: &mut model::Bridge) {
    let faults = &mut *one.faults;
    name_other(view, row, one.tree, &BRIDGE_KEYS, faults);
    let Some(protocol) = one.tree else {
        return;
    };
    if protocol == Protocol::Rstp && view.is_true("stp_enable") {
        faults.ignore(
            row,
            "stp_enable has no effect beside rstp_enable: expected one of them",
        );
    }
    let is_stp = protocol == Protocol::Stp;
    let keys = Keys {
        view: *view,
        prefix: protocol.prefix(),
        row,
    };
    let mut made = model::Rstp::new();
    if is_stp {
        made.version = model::RstpVersion::Stp;
    }
    match keys.value("force-protocol-version").filter(|_| !is_stp) {
        None | Some("2") => {}
        Some("0") => made.version = model::RstpVersion::Stp,
        Some(text) => keys.ignore("force-protocol-version", text, "expected 0 or 2", faults),
    }
    let small = |value: u32| u8::try_from(value).unwrap_or(u8::MAX);
    let most = if is_stp { 65_535 } else { 61_440 };
    if let Some(value) = keys.number("priority", 0, most, faults) {
        // In RSTP the standard has multiples of 4096.
        let value = if is_stp { value } else { value / 4096 * 4096 };
        let value = u16::try_from(value).unwrap_or(u16::MAX);
        made.priority = model::BridgePriority::new(value).unwrap_or(made.priority);
    }
    if let Some(value) = keys.number("hello-time", 1, 10, faults) {
        made.hello_time_s = model::HelloTime::new(small(value)).unwrap_or(made.hello_time_s);
    }
    if let Some(value) = keys.number("max-age", 6, 40, faults) {
        made.max_age_s = model::MaxAge::new(small(value)).unwrap_or(made.max_age_s);
    }
    if let Some(value) = keys.number("forward-delay", 4, 30, faults) {
        made.forward_delay_s = model::ForwardDelay::new(small(value)).unwrap_or(made.forward_delay_s);
    }
    if let Some(value) = keys.number("transmit-hold-count", 1, 10, faults) {
        made.transmit_hold_count = model::HoldCount::new(small(value)).unwrap_or(made.transmit_hold_count);
    }
    let address = if is_stp { "system-id" } else { "address" };
    if let Some(text) = keys.value(address) {
        match text.parse() {
            Ok(mac) => made.address = Some(mac),
            Err(error) => {
                let error: model::UnicastMacError = error;
                keys.ignore(address, text, &error.to_string(), faults);
            }
        }
    }
    if let Some(text) = keys.value("ageing-time") {
        keys.ignore("ageing-time", text, "expected mac-aging-time", faults);
    }
    bridge.rstp = Some(made);
}

/// Sets the part of a port in the spanning tree.
pub(crate) fn port(one: &mut One<'_, '_>, view: &View<'_>, row: &RowName, port: &mut model::Port) {
    let faults = &mut *one.faults;
    name_other(view, row, one.tree, &PORT_KEYS, faults);
    let Some(protocol) = one.tree else {
        return;
    };
    let keys = Keys {
        view: *view,
        prefix: protocol.prefix(),
        row,
    };
    let mut made = model::PortRstp::new();
    // Internal ports take no part, as in Open vSwitch.
    made.enabled =
        keys.flag("enable", faults) != Some(false) && !matches!(port.device, model::Device::Tap(_));
    if let Some(text) = keys
        .value("port-num")
        .filter(|text| text.parse() != Ok(port.number.raw()))
    {
        let reason = format!("the number in BPDUs is that of OpenFlow, {}", port.number);
        keys.ignore("port-num", text, &reason, faults);
    }
    match keys.number("path-cost", 0, 200_000_000, faults) {
        // RSTP in Open vSwitch takes 0 for none, too.
        Some(0) => keys.ignore("path-cost", "0", "expected 1 to 200000000", faults),
        cost => made.path_cost = cost.and_then(|cost| model::PathCost::new(cost).ok()),
    }
    if let Some(value) = keys.number("port-priority", 0, 255, faults) {
        // Of STP, Open vSwitch takes all 8 bits; RSTP has 4 of them.
        let rounded = u8::try_from(value / 16 * 16).unwrap_or(0);
        if protocol == Protocol::Stp && u32::from(rounded) != value {
            let reason = format!("priorities are multiples of 16, and {rounded} is in effect");
            keys.ignore("port-priority", &value.to_string(), &reason, faults);
        }
        made.priority = model::PortPriority::new(rounded).unwrap_or(made.priority);
    }
    if protocol == Protocol::Rstp {
        made.edge = match (
            keys.flag("port-admin-edge", faults),
            keys.flag("port-auto-edge", faults),
        ) {
            (Some(true), _) => model::RstpEdge::Yes,
            (_, Some(false)) => model::RstpEdge::No,
            _ => model::RstpEdge::Auto,
        };
        made.point_to_point = match keys.value("admin-p2p-mac") {
            Some("true" | "1") => model::RstpPointToPoint::Yes,
            Some("false" | "0") => model::RstpPointToPoint::No,
            None | Some("auto" | "2") => model::RstpPointToPoint::Auto,
            Some(text) => {
                keys.ignore("admin-p2p-mac", text, "expected true, false or auto", faults);
                model::RstpPointToPoint::Auto
            }
        };
        if keys.flag("port-mcheck", faults) == Some(true) {
            keys.ignore(
                "port-mcheck",
                "true",
                "a port that met a bridge of STP speaks STP until its link goes down",
                faults,
            );
        }
    }
    if made != model::PortRstp::new() {
        port.rstp = Some(made);
    }
}
