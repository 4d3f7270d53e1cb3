//! Text tables of bridges and their OpenFlow objects: flow tables, groups, meters and controllers.

use millrace_api::view;

use crate::human::{or_dash, port, short, span};
use crate::table::Table;

pub(super) fn bridges(list: &[view::Bridge]) -> Table {
    let mut table = Table::new(
        &[
            "BRIDGE",
            "DATAPATH ID",
            "FORWARDING",
            ">PORTS",
            ">FLOWS",
            ">CONTROLLERS",
        ],
        "no bridge runs",
    );
    for bridge in list {
        let forwarding = match bridge.forwarding {
            view::Forwarding::Controlled => "controlled",
            view::Forwarding::Secure => "secure",
            view::Forwarding::Standalone => "standalone",
        };
        table.row([
            bridge.name.clone(),
            bridge.dpid.clone(),
            forwarding.to_owned(),
            bridge.ports.to_string(),
            bridge.flows.to_string(),
            bridge.controllers_connected.to_string(),
        ]);
    }
    table
}

pub(super) fn tables(list: &[view::Table]) -> Table {
    let headings = [
        ">TABLE",
        ">ENTRIES",
        ">MAX",
        ">LOOKUPS",
        ">MATCHES",
        ">HIT",
        "CLASSIFIER",
        ">MEMORY",
    ];
    let mut table = Table::new(&headings, "no table in use");
    // Most of the 255 tables are never used.
    for given in list
        .iter()
        .filter(|table| table.entries > 0 || table.lookups > 0 || table.table == 0)
    {
        let hit = (given.lookups > 0)
            .then(|| format!("{:.1} %", 100.0 * given.matches as f64 / given.lookups as f64));
        table.row([
            given.table.to_string(),
            given.entries.to_string(),
            given.max_entries.to_string(),
            given.lookups.to_string(),
            given.matches.to_string(),
            or_dash(hit),
            given.classifier.clone(),
            or_dash(
                given
                    .memory_bytes
                    .map(|bytes| format!("{}B", short(bytes as f64))),
            ),
        ]);
    }
    table
}

pub(super) fn controllers(list: &[view::Controller]) -> Table {
    let headings = [
        "TARGET",
        "STATE",
        ">SINCE",
        "ROLE",
        ">IN",
        ">OUT",
        ">PACKET-INS DROPPED",
        "LAST ERROR",
    ];
    let mut table = Table::new(&headings, "no controller is configured");
    for given in list {
        let state = match (given.state, given.retry_in_seconds) {
            (view::ControllerState::Listening, _) => "listening".to_owned(),
            (view::ControllerState::Connecting, _) => "connecting".to_owned(),
            (view::ControllerState::Handshake, _) => "handshake".to_owned(),
            (view::ControllerState::Connected, _) => "connected".to_owned(),
            (view::ControllerState::Backoff, Some(seconds)) => format!("again in {}", span(seconds)),
            (view::ControllerState::Backoff, None) => "waiting".to_owned(),
        };
        let role = given.role.map(|role| match role {
            view::Role::Equal => "equal",
            view::Role::Master => "master",
            view::Role::Slave => "slave",
        });
        table.row([
            given.target.clone(),
            state,
            span(given.since_seconds),
            or_dash(role),
            given.messages_in.to_string(),
            given.messages_out.to_string(),
            given.packet_ins_dropped.to_string(),
            or_dash(given.last_error.as_ref()),
        ]);
    }
    table
}

/// Returns a row for each group, and one for each of its buckets.
pub(super) fn groups(list: &[view::Group]) -> Table {
    let headings = [
        ">GROUP", "TYPE", ">PACKETS", ">BYTES", ">USED BY", ">AGE", "BUCKET",
    ];
    let mut table = Table::new(&headings, "there are no groups");
    for given in list {
        table.row([
            given.id.to_string(),
            given.kind.clone(),
            given.packets.to_string(),
            given.bytes.to_string(),
            given.references.to_string(),
            span(given.duration_seconds),
            String::new(),
        ]);
        for bucket in &given.buckets {
            let weight = (given.kind == "select").then(|| format!("weight {}, ", bucket.weight));
            let port = bucket
                .watch_port
                .map(|watched| format!("watches port {}, ", port(watched)));
            let group = bucket
                .watch_group
                .map(|watched| format!("watches group {watched}, "));
            table.row([
                String::new(),
                String::new(),
                bucket.packets.to_string(),
                bucket.bytes.to_string(),
                String::new(),
                String::new(),
                [weight, port, group].into_iter().flatten().collect::<String>() + &bucket.actions,
            ]);
        }
    }
    table
}

/// Returns a row for each meter, and one for each of its bands.
pub(super) fn meters(list: &[view::Meter]) -> Table {
    let headings = [">METER", ">PACKETS", ">BYTES", ">FLOWS", ">AGE", "BAND"];
    let mut table = Table::new(&headings, "there are no meters");
    for given in list {
        table.row([
            given.id.clone(),
            given.packets.to_string(),
            given.bytes.to_string(),
            given.flows.to_string(),
            span(given.duration_seconds),
            String::new(),
        ]);
        for band in &given.bands {
            let levels = band.prec_level.map(|levels| format!(" by {levels}"));
            let burst = band.burst_size.map(|size| format!(", burst {size}"));
            table.row([
                String::new(),
                band.packets.to_string(),
                band.bytes.to_string(),
                String::new(),
                String::new(),
                format!(
                    "{}{} above {} {}{}",
                    band.kind,
                    levels.unwrap_or_default(),
                    band.rate,
                    given.unit,
                    burst.unwrap_or_default()
                ),
            ]);
        }
    }
    table
}

pub(super) fn macs(list: &[view::MacEntry]) -> Table {
    let mut table = Table::new(&["MAC", ">VLAN", ">PORT", ">AGE"], "no address is learned");
    for given in list {
        table.row([
            given.mac.clone(),
            given.vlan.to_string(),
            port(given.port),
            span(given.age_seconds),
        ]);
    }
    table
}
