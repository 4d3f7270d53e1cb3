//! A bridge of Linux as a bridge of the configuration.

use serde_json::{Map, Value as Json, json};

use super::ports;
use super::state::{FdbEntry, Link, State};
use crate::finding::Findings;
use crate::numbers::Taken;

/// Times of the kernel are in hundredths of a second (USER_HZ).
const TICKS_PER_SECOND: u64 = 100;

/// The name of the port that leads to the machine, in a bridge with VLANs.
const HOST: &str = "host";

/// Settings of a bridge with another value than the kernel's default: the default, and what comes closest.
const SETTINGS: [(&str, u64, &str); 7] = [
    (
        "mcast_querier",
        0,
        "no queries are sent: expected a router or another bridge that sends them",
    ),
    ("mcast_router", 1, "multicast is flooded"),
    (
        "nf_call_iptables",
        0,
        "expected a function `firewall` of a chain, or flow entries",
    ),
    (
        "nf_call_ip6tables",
        0,
        "expected a function `firewall` of a chain, or flow entries",
    ),
    ("nf_call_arptables", 0, "expected flow entries"),
    ("fdb_max_learned", 0, "expected `mac_table_size`"),
    ("mcast_vlan_snooping", 0, "multicast is flooded"),
];

/// Returns the bridge as a table of the configuration.
pub(super) fn bridge(state: &State, link: &Link, findings: &mut Findings) -> Json {
    let name = link.name.as_str();
    let data = link.data();
    let number = |key: &str| data[key].as_u64();
    let filters = number("vlan_filtering") == Some(1);
    let mut table = Map::new();
    table.insert("name".to_owned(), json!(name));
    table.insert("place".to_owned(), json!(name));
    table.insert("fail_mode".to_owned(), json!("standalone"));
    if let Some(ticks) = number("ageing_time").filter(|ticks| *ticks != 30_000) {
        table.insert(
            "mac_ageing_s".to_owned(),
            json!((ticks / TICKS_PER_SECOND).clamp(10, 1_000_000)),
        );
        if ticks < 10 * TICKS_PER_SECOND {
            findings.difference(
                name,
                format!("ageing_time {ticks} (1/100 s): addresses stay for 10 s, the shortest time here"),
            );
        }
    }
    let runs_stp = number("stp_state").is_some_and(|state| state != 0);
    if runs_stp {
        let seconds = |key: &str| number(key).map(|ticks| ticks / TICKS_PER_SECOND);
        table.insert(
            "rstp".to_owned(),
            json!({
                "version": "stp",
                "priority": number("priority").map(|priority| priority / 4096 * 4096),
                "hello_time_s": seconds("hello_time"),
                "max_age_s": seconds("max_age"),
                "forward_delay_s": seconds("forward_delay"),
            }),
        );
    }
    if filters
        && data["vlan_protocol"]
            .as_str()
            .is_some_and(|protocol| protocol != "802.1Q")
    {
        findings.difference(name, "vlan_protocol 802.1ad: VLANs are those of 802.1Q tags here");
    }
    for (key, default, instead) in SETTINGS {
        if let Some(value) = number(key).filter(|value| *value != default) {
            findings.difference(name, format!("{key} {value}: {instead}"));
        }
    }
    if number("mcast_snooping") == Some(1) {
        findings.note(
            name,
            "mcast_snooping 1: multicast is flooded to all ports of its VLAN",
        );
    }
    let mask = data["group_fwd_mask"].as_str().unwrap_or("0");
    if !matches!(mask, "0" | "0x0") {
        findings.note(name, format!("group_fwd_mask {mask}: without RSTP and LLDP, frames to 01:80:c2:00:00:0x are packets like any other"));
    }
    for entry in state.entries.iter().filter(|entry| entry.bridge == name) {
        let FdbEntry { interface, mac, .. } = entry;
        findings.difference(
            name,
            format!("the static entry {mac} at {interface}: expected `millrace flow add {name} eth_dst={mac},actions=output:{interface}`"),
        );
    }
    let mut taken = Taken::default();
    let mut members: Vec<&Link> = state
        .links
        .values()
        .filter(|port| port.master() == Some(name))
        .collect();
    // The kernel numbers the ports of a bridge.
    members.sort_by_key(|port| (ports::number(port), port.name.clone()));
    let mut made: Vec<Json> = members
        .iter()
        .map(|port| {
            let vlans = filters.then(|| state.vlans.get(&port.name).cloned().unwrap_or_default());
            let number = taken.take(ports::number(port));
            ports::port(name, port, number, vlans.as_ref(), runs_stp, findings)
        })
        .collect();
    host(state, name, filters, &mut table, &mut made, &mut taken, findings);
    table.insert("port".to_owned(), json!(made));
    Json::Object(table)
}

/// Adds the interface of the machine at the bridge: the device of the bridge itself, if the machine uses it.
fn host(
    state: &State,
    name: &str,
    filters: bool,
    table: &mut Map<String, Json>,
    ports: &mut Vec<Json>,
    taken: &mut Taken,
    findings: &mut Findings,
) {
    let addresses = state.addresses.get(name);
    let above: Vec<&Link> = state
        .links
        .values()
        .filter(|link| link.json["link"].as_str() == Some(name))
        .collect();
    if addresses.is_none() && above.is_empty() {
        findings.note(name, format!("the machine has no address at {name}, and gets no interface there; `local = \"tap\"` makes one"));
        return;
    }
    if filters {
        // The VLANs of the LOCAL port cannot be restricted, so the interface is a port, whose name is not the bridge's.
        let mut port = Map::new();
        port.insert("name".to_owned(), json!(HOST));
        port.insert("place".to_owned(), json!(name));
        port.insert("number".to_owned(), json!(taken.take(None).raw()));
        port.insert("device".to_owned(), json!(format!("tap:{name}")));
        state
            .vlans
            .get(name)
            .cloned()
            .unwrap_or_default()
            .write(&mut port, name, findings);
        ports.push(Json::Object(port));
    } else {
        table.insert("local".to_owned(), json!("tap"));
    }
    for address in addresses.into_iter().flatten() {
        findings.note(name, format!("address {address}: the interface {name} is a new one; to set it: ip address add {address} dev {name}"));
    }
    for link in above {
        findings.difference(name, format!("{}: an interface of kind {} above {name}: make it again after the start, or use `[[interface]]` (docs/routing.md)", link.name, link.kind()));
    }
}
