//! A row of the table `Bridge` as the settings of a bridge.

use millrace_model as model;

use crate::fault::{Faults, RowName};
use crate::ipfix;
use crate::keys;
use crate::lldp;
use crate::one::One;
use crate::rows::View;
use crate::spanning_tree;
use crate::unread;
use crate::values::{bounded, number};

/// The number of flow tables of a bridge of Open vSwitch.
const TABLES: u8 = 254;

/// Returns the bridge without ports and controllers.
///
/// # Errors
/// The reason why there can be no such bridge.
pub(crate) fn bridge(
    one: &mut One<'_, '_>,
    view: &View<'_>,
    name: model::BridgeName,
) -> Result<model::Bridge, String> {
    let row = view.row_name();
    let mut bridge = model::Bridge::new(name);
    if let Some(kind) = view
        .text("datapath_type")
        .filter(|kind| !matches!(*kind, "system" | "netdev"))
    {
        return Err(format!(
            "datapath_type {kind}: expected netdev, system or nothing"
        ));
    }
    bridge.fail_mode = match view.text("fail_mode") {
        Some("secure") => model::FailMode::Secure,
        _ => model::FailMode::Standalone,
    };
    bridge.local = model::LocalPort::Tap;
    bridge.tables = model::TableCount::new(TABLES).unwrap_or(model::TableCount::DEFAULT);
    bridge.tls.clone_from(&one.tls);
    protocols(view, &row, one.faults);
    other_config(view, &row, &mut bridge, one.faults);
    flood_vlans(view, &row, &mut bridge, one.faults);
    spanning_tree::bridge(one, view, &row, &mut bridge);
    lldp::bridge(one.replica, view, &mut bridge);
    sflow(one, view, &row, &mut bridge);
    ipfix::bridge(one, view, &row, &mut bridge);
    flow_tables(one, view, &row, &mut bridge);
    for (column, has, instead) in [
        ("netflow", view.has("netflow"), "sFlow or IPFIX"),
        (
            "mcast_snooping_enable",
            view.is_true("mcast_snooping_enable"),
            "nothing: multicast is flooded",
        ),
        ("auto_attach", view.has("auto_attach"), "nothing"),
    ] {
        if has {
            one.faults
                .refuse(&row, format!("{column}: not available; instead: {instead}"));
        }
    }
    Ok(bridge)
}

/// Names the versions of OpenFlow that the switch does not speak.
fn protocols(view: &View<'_>, row: &RowName, faults: &mut Faults) {
    let others: Vec<&str> = view
        .texts("protocols")
        .filter(|version| *version != "OpenFlow13")
        .collect();
    if !others.is_empty() {
        faults.ignore(
            row,
            format!(
                "protocols: {} has no effect: the switch speaks OpenFlow13",
                others.join(",")
            ),
        );
    }
}

/// Sets the VLANs that learn no addresses.
fn flood_vlans(view: &View<'_>, row: &RowName, bridge: &mut model::Bridge, faults: &mut Faults) {
    for raw in view.integers("flood_vlans") {
        match u16::try_from(raw).ok().map(millrace_types::Vid::new) {
            Some(Ok(vid)) if (1..=4094).contains(&vid.raw()) => bridge.flood_vlans.push(vid),
            _ => faults.ignore(
                row,
                format!("flood_vlans: {raw} has no effect: expected 1 to 4094"),
            ),
        }
    }
}

/// Keys of `other_config` that are read here, and `hwaddr`, the address of the LOCAL port.
const READ: [&str; 7] = [
    "datapath-id",
    "mac-aging-time",
    "mac-table-size",
    "dp-desc",
    "dp-sn",
    "forward-bpdu",
    "hwaddr",
];

fn other_config(view: &View<'_>, row: &RowName, bridge: &mut model::Bridge, faults: &mut Faults) {
    bridge.forward_bpdu = keys::flag(view, "other_config", "forward-bpdu", row, faults) == Some(true);
    for (key, value) in &view.map("other_config") {
        let parsed = match *key {
            "datapath-id" => dpid(value).map(|dpid| bridge.dpid = Some(dpid)),
            // Values out of range are raised or lowered to it, as in Open vSwitch.
            "mac-aging-time" => number(value, 15, 3600, "15 to 3600 seconds")
                .map(|age| bridge.mac_ageing_s = model::MacAgeing::new(age).unwrap_or(bridge.mac_ageing_s)),
            "mac-table-size" => number(value, 16, 1_000_000, "10 to 1000000 addresses").map(|size| {
                bridge.mac_table_size = model::MacTableSize::new(size).unwrap_or(bridge.mac_table_size);
            }),
            "dp-desc" => text(value).map(|text| bridge.description.datapath = Some(text)),
            "dp-sn" => text(value).map(|text| bridge.description.serial = text),
            _ => Ok(()),
        };
        if let Err(reason) = parsed {
            faults.ignore(row, format!("other_config:{key}={value} has no effect: {reason}"));
        }
    }
    let is_read = |key: &str| READ.contains(&key) || spanning_tree::BRIDGE_KEYS.contains(&key);
    keys::check(view, "other_config", row, is_read, faults);
}

fn dpid(text: &str) -> Result<millrace_types::Dpid, String> {
    // Open vSwitch takes exactly 16 digits, or fewer after 0x; zero is none.
    let digits = text.strip_prefix("0x").unwrap_or(text);
    let is_whole = text.len() > digits.len() || digits.len() == 16;
    match u64::from_str_radix(digits, 16) {
        Ok(id) if id != 0 && is_whole && digits.bytes().all(|c| c.is_ascii_hexdigit()) => {
            Ok(millrace_types::Dpid(id))
        }
        _ => Err("expected 16 hex digits, not all zero".to_owned()),
    }
}

fn text<const MAX: usize>(text: &str) -> Result<model::DescriptionText<MAX>, String> {
    text.parse()
        .map_err(|error: model::DescriptionError| error.to_string())
}

fn sflow(one: &mut One<'_, '_>, view: &View<'_>, row: &RowName, bridge: &mut model::Bridge) {
    let Some(sflow) = view.refer(one.replica, "sflow", "sFlow").into_iter().next() else {
        return;
    };
    let row = sflow.named(&row.name);
    let mut collectors = Vec::new();
    for target in sflow.texts("targets") {
        match target.parse::<model::Collector>() {
            Ok(collector) => collectors.push(collector),
            Err(error) => one.faults.refuse(&row, format!("targets: {error}")),
        }
    }
    let agent = sflow.text("agent").unwrap_or("");
    let Ok(agent) = agent.parse() else {
        one.faults.refuse(&row, format!("agent {agent}: expected the IP address by which collectors identify the switch; names of interfaces are not resolved here"));
        return;
    };
    let mut made = model::Sflow::new(agent, collectors);
    let mut read = |column: &str, default, max| bounded(&sflow, column, default, max, &row, one.faults);
    // The defaults are those of Open vSwitch.
    made.sampling_rate =
        model::SamplingRate::new(read("sampling", 400, 16_777_215)).unwrap_or(made.sampling_rate);
    let polling = u16::try_from(read("polling", 30, 3600)).unwrap_or(30);
    made.polling_interval_s = model::PollingInterval::new(polling).unwrap_or(made.polling_interval_s);
    let header = u16::try_from(read("header", 128, 256).max(64)).unwrap_or(128);
    made.header_size = model::SampledHeaderSize::new(header).unwrap_or(made.header_size);
    bridge.sflow = Some(made);
}

fn flow_tables(one: &mut One<'_, '_>, view: &View<'_>, row: &RowName, bridge: &mut model::Bridge) {
    for (number, table) in view.numbered(one.replica, "flow_tables", "Flow_Table") {
        let row = table.named(&format!("{} of {}", number, row.name));
        let Some(model_number) = u8::try_from(number)
            .ok()
            .and_then(|number| model::TableNumber::new(number).ok())
        else {
            one.faults
                .refuse(&row, format!("flow_tables key {number}: expected 0 to 253"));
            continue;
        };
        unread::check(&table, &row, one.faults);
        let mut made = model::Table::new(model_number);
        if let Some(name) = table.text("name") {
            match name.parse() {
                Ok(name) => made.name = Some(name),
                Err(error) => one.faults.ignore(&row, format!("name: {error}")),
            }
        }
        if let Some(limit) = table.integer("flow_limit") {
            let limit = u32::try_from(limit).unwrap_or(u32::MAX).min(4_000_000);
            match model::TableSize::new(limit) {
                Ok(limit) => made.max_entries = Some(limit),
                Err(error) => one.faults.refuse(&row, format!("flow_limit: {error}")),
            }
        }
        if table.text("overflow_policy") == Some("evict") {
            made.when_full = model::WhenFull::Evict;
        }
        bridge.table_settings.push(made);
    }
}
