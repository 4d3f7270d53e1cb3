//! STP and RSTP of bridges and ports.

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

/// Sets the spanning tree of a bridge. Of both protocols, Open vSwitch takes STP.
pub(crate) fn bridge(view: &View<'_>, row: &RowName, bridge: &mut model::Bridge, faults: &mut Faults) {
    let (stp, rstp) = (view.is_true("stp_enable"), view.is_true("rstp_enable"));
    if !stp && !rstp {
        return;
    }
    let prefix = if stp { "stp" } else { "rstp" };
    let other = view.map("other_config");
    let is_stp = stp || other.get("rstp-force-protocol-version") == Some(&"0");
    let value = |key: &str| other.get(format!("{prefix}-{key}").as_str()).copied();
    let mut made = model::Rstp::new();
    if is_stp {
        made.version = model::RstpVersion::Stp;
    }
    let mut set = |key: &str, min, max, put: &mut dyn FnMut(u32)| {
        if let Some(text) = value(key) {
            match number(text, min, max, "a number") {
                Ok(value) => put(value),
                Err(reason) => faults.ignore(
                    row,
                    format!("other_config:{prefix}-{key}={text} has no effect: {reason}"),
                ),
            }
        }
    };
    let small = |value: u32| u8::try_from(value).unwrap_or(u8::MAX);
    set(
        "priority",
        0,
        if is_stp { 65_535 } else { 61_440 },
        &mut |value| {
            // In RSTP the standard has multiples of 4096.
            let value = if is_stp { value } else { value / 4096 * 4096 };
            let value = u16::try_from(value).unwrap_or(u16::MAX);
            made.priority = model::BridgePriority::new(value).unwrap_or(made.priority);
        },
    );
    set("hello-time", 1, 10, &mut |value| {
        made.hello_time_s = model::HelloTime::new(small(value)).unwrap_or(made.hello_time_s);
    });
    set("max-age", 6, 40, &mut |value| {
        made.max_age_s = model::MaxAge::new(small(value)).unwrap_or(made.max_age_s);
    });
    set("forward-delay", 4, 30, &mut |value| {
        made.forward_delay_s = model::ForwardDelay::new(small(value)).unwrap_or(made.forward_delay_s);
    });
    set("transmit-hold-count", 1, 10, &mut |value| {
        made.transmit_hold_count = model::HoldCount::new(small(value)).unwrap_or(made.transmit_hold_count);
    });
    let address = if stp { "stp-system-id" } else { "rstp-address" };
    if let Some(text) = other.get(address) {
        match text.parse() {
            Ok(mac) => made.address = Some(mac),
            Err(error) => {
                let error: model::UnicastMacError = error;
                faults.ignore(
                    row,
                    format!("other_config:{address}={text} has no effect: {error}"),
                );
            }
        }
    }
    if let Some(text) = other.get("rstp-ageing-time").filter(|_| !stp) {
        faults.ignore(
            row,
            format!("other_config:rstp-ageing-time={text} has no effect: expected mac-aging-time"),
        );
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
    let prefix = match of_bridge.version {
        model::RstpVersion::Stp => "stp",
        model::RstpVersion::Rstp => "rstp",
    };
    let other = view.map("other_config");
    let value = |key: &str| other.get(format!("{prefix}-{key}").as_str()).copied();
    let mut made = model::PortRstp::new();
    // Internal ports take no part, as in Open vSwitch.
    made.enabled = value("enable") != Some("false") && !matches!(port.device, model::Device::Tap(_));
    if let Some(text) = value("port-num").filter(|text| text.parse() != Ok(port.number.raw())) {
        faults.ignore(
            row,
            format!(
                "other_config:{prefix}-port-num={text} has no effect: the number in BPDUs is that of OpenFlow, {}",
                port.number
            ),
        );
    }
    let mut set = |key: &str, min, max, put: &mut dyn FnMut(u32)| {
        if let Some(text) = value(key) {
            match number(text, min, max, "a number") {
                Ok(value) => put(value),
                Err(reason) => faults.ignore(
                    row,
                    format!("other_config:{prefix}-{key}={text} has no effect: {reason}"),
                ),
            }
        }
    };
    set("path-cost", 1, 200_000_000, &mut |value| {
        made.path_cost = model::PathCost::new(value).ok();
    });
    set("port-priority", 0, 240, &mut |value| {
        let value = u8::try_from(value / 16 * 16).unwrap_or(0);
        made.priority = model::PortPriority::new(value).unwrap_or(made.priority);
    });
    made.edge = match (value("port-admin-edge"), value("port-auto-edge")) {
        (Some("true"), _) => model::RstpEdge::Yes,
        (_, Some("false")) => model::RstpEdge::No,
        _ => model::RstpEdge::Auto,
    };
    made.point_to_point = match value("admin-p2p-mac").filter(|_| prefix == "rstp") {
        Some("true") => model::RstpPointToPoint::Yes,
        Some("false") => model::RstpPointToPoint::No,
        _ => model::RstpPointToPoint::Auto,
    };
    if value("port-mcheck") == Some("true") {
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
