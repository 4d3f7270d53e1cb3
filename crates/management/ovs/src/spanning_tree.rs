//! STP and RSTP of bridges and ports.

use std::collections::BTreeMap;

use millrace_model as model;

use crate::fault::{Faults, RowName};
use crate::rows::View;
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

/// The keys of one protocol in `other_config` of a row.
struct Keys<'a> {
    other: BTreeMap<&'a str, &'a str>,
    prefix: &'static str,
    row: &'a RowName,
}

impl<'a> Keys<'a> {
    /// Returns the value of a key, which is named without the protocol.
    fn value(&self, key: &str) -> Option<&'a str> {
        self.other.get(format!("{}-{key}", self.prefix).as_str()).copied()
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

    /// Says why the value of a key has no effect.
    fn ignore(&self, key: &str, text: &str, reason: &str, faults: &mut Faults) {
        let prefix = self.prefix;
        faults.ignore(
            self.row,
            format!("other_config:{prefix}-{key}={text} has no effect: {reason}"),
        );
    }
}

/// Sets the spanning tree of a bridge. Of both protocols, Open vSwitch takes STP.
pub(crate) fn bridge(view: &View<'_>, row: &RowName, bridge: &mut model::Bridge, faults: &mut Faults) {
    let (stp, rstp) = (view.is_true("stp_enable"), view.is_true("rstp_enable"));
    if !stp && !rstp {
        return;
    }
    let keys = Keys {
        other: view.map("other_config"),
        prefix: if stp { "stp" } else { "rstp" },
        row,
    };
    let is_stp = stp || keys.value("force-protocol-version") == Some("0");
    let mut made = model::Rstp::new();
    if is_stp {
        made.version = model::RstpVersion::Stp;
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
    let address = if stp { "system-id" } else { "address" };
    if let Some(text) = keys.value(address) {
        match text.parse() {
            Ok(mac) => made.address = Some(mac),
            Err(error) => {
                let error: model::UnicastMacError = error;
                keys.ignore(address, text, &error.to_string(), faults);
            }
        }
    }
    if !stp && let Some(text) = keys.value("ageing-time") {
        keys.ignore("ageing-time", text, "expected mac-aging-time", faults);
    }
    bridge.rstp = Some(made);
}

/// Sets the part of a port in the spanning tree.
pub(crate) fn port(
    view: &View<'_>,
    row: &RowName,
    bridge: &model::Bridge,
    port: &mut model::Port,
    faults: &mut Faults,
) {
    let Some(of_bridge) = &bridge.rstp else {
        return;
    };
    let keys = Keys {
        other: view.map("other_config"),
        prefix: match of_bridge.version {
            model::RstpVersion::Stp => "stp",
            model::RstpVersion::Rstp => "rstp",
        },
        row,
    };
    let mut made = model::PortRstp::new();
    // Internal ports take no part, as in Open vSwitch.
    made.enabled = keys.value("enable") != Some("false") && !matches!(port.device, model::Device::Tap(_));
    if let Some(text) = keys
        .value("port-num")
        .filter(|text| text.parse() != Ok(port.number.raw()))
    {
        let reason = format!("the number in BPDUs is that of OpenFlow, {}", port.number);
        keys.ignore("port-num", text, &reason, faults);
    }
    if let Some(value) = keys.number("path-cost", 1, 200_000_000, faults) {
        made.path_cost = model::PathCost::new(value).ok();
    }
    if let Some(value) = keys.number("port-priority", 0, 240, faults) {
        let value = u8::try_from(value / 16 * 16).unwrap_or(0);
        made.priority = model::PortPriority::new(value).unwrap_or(made.priority);
    }
    made.edge = match (keys.value("port-admin-edge"), keys.value("port-auto-edge")) {
        (Some("true"), _) => model::RstpEdge::Yes,
        (_, Some("false")) => model::RstpEdge::No,
        _ => model::RstpEdge::Auto,
    };
    made.point_to_point = match keys.value("admin-p2p-mac").filter(|_| keys.prefix == "rstp") {
        Some("true") => model::RstpPointToPoint::Yes,
        Some("false") => model::RstpPointToPoint::No,
        _ => model::RstpPointToPoint::Auto,
    };
    if keys.value("port-mcheck") == Some("true") {
        faults.ignore(
            row,
            "other_config:rstp-port-mcheck=true has no effect: a port that met a bridge of STP speaks STP until its link goes down"
                .to_owned(),
        );
    }
    if made != model::PortRstp::new() {
        port.rstp = Some(made);
    }
}
