//! A port of a bridge of Linux as a port of the configuration.

use millrace_types::PortNo;
use serde_json::{Map, Value as Json, json};

use super::state::Link;
use super::vlans::Vlans;
use crate::finding::Findings;

/// Settings of a port with another value than the kernel's default: the default, and what comes closest.
const SETTINGS: [(&str, bool, &str); 9] = [
    (
        "hairpin",
        false,
        "a packet never leaves where it arrived: expected an entry with actions=IN_PORT",
    ),
    (
        "isolated",
        false,
        "expected flow entries that drop packets between these ports",
    ),
    (
        "learning",
        true,
        "every port learns: expected flow entries for its hosts",
    ),
    (
        "locked",
        false,
        "expected flow entries that drop packets of other hosts",
    ),
    (
        "mab",
        false,
        "expected flow entries that drop packets of other hosts",
    ),
    ("neigh_suppress", false, "ARP and neighbour discovery are flooded"),
    ("proxy_arp", false, "ARP is flooded"),
    ("proxy_arp_wifi", false, "ARP is flooded"),
    (
        "vlan_tunnel",
        false,
        "expected a device `vxlan:…,key=…` for each VLAN (docs/tunnels.md)",
    ),
];

/// The settings that decide about flooding, all true by default.
const FLOODING: [&str; 3] = ["flood", "mcast_flood", "bcast_flood"];

/// Returns the number of a port in the kernel's bridge.
pub(super) fn number(link: &Link) -> Option<u32> {
    let text = link.port_data()["no"].as_str()?;
    u32::from_str_radix(text.strip_prefix("0x").unwrap_or(text), 16).ok()
}

/// Returns the port as a table of the configuration.
pub(super) fn port(
    bridge: &str,
    link: &Link,
    number: PortNo,
    vlans: Option<&Vlans>,
    runs_stp: bool,
    findings: &mut Findings,
) -> Json {
    let place = format!("{bridge}, {}", link.name);
    let data = link.port_data();
    let mut port = Map::new();
    port.insert("name".to_owned(), json!(link.name));
    port.insert("place".to_owned(), json!(place));
    port.insert("number".to_owned(), json!(number.raw()));
    port.insert("device".to_owned(), json!(format!("kernel:{}", link.name)));
    if let Some(vlans) = vlans {
        vlans.write(&mut port, &place, findings);
    }
    let floods: Vec<bool> = FLOODING.iter().filter_map(|key| data[*key].as_bool()).collect();
    if floods.len() == FLOODING.len() && floods.iter().all(|floods| !floods) {
        port.insert("no_flood".to_owned(), json!(true));
    } else {
        for key in FLOODING.iter().filter(|key| data[**key] == json!(false)) {
            findings.difference(
                &place,
                format!("{key} off: `no_flood` is about unknown, multicast and broadcast packets together"),
            );
        }
    }
    for (key, default, instead) in SETTINGS {
        if data[key].as_bool().is_some_and(|value| value != default) {
            findings.difference(
                &place,
                format!("{key} {}: {instead}", if default { "off" } else { "on" }),
            );
        }
    }
    if let Some(backup) = data["backup_port"].as_str() {
        findings.difference(
            &place,
            format!("backup_port {backup}: expected a fast-failover group"),
        );
    }
    if runs_stp {
        let mut rstp = Map::new();
        if let Some(cost) = data["cost"].as_u64() {
            rstp.insert("path_cost".to_owned(), json!(cost));
        }
        if let Some(priority) = data["priority"].as_u64().filter(|priority| *priority != 32) {
            // The kernel has 6 bits, the standard four of eight.
            rstp.insert("priority".to_owned(), json!((priority * 4 / 16 * 16).min(240)));
        }
        for (key, name) in [("guard", "bpdu_guard"), ("root_block", "root_guard")] {
            if data[key] == json!(true) {
                rstp.insert(name.to_owned(), json!(true));
            }
        }
        port.insert("rstp".to_owned(), Json::Object(rstp));
    } else {
        for key in ["guard", "root_block"] {
            if data[key] == json!(true) {
                findings.difference(
                    &place,
                    format!("{key} on without STP: expected `[bridge.rstp]` with `bpdu_guard`"),
                );
            }
        }
    }
    if link.kind() == "vxlan" {
        let of = |key: &str| link.data()[key].as_str().unwrap_or("IP").to_owned();
        findings.note(
            &place,
            format!(
                "a VXLAN of the kernel, which stays; without the kernel: device = \"vxlan:remote={},local={},underlay=PORT,key={}\" (docs/tunnels.md)",
                of("remote"),
                of("local"),
                link.data()["id"]
            ),
        );
    }
    Json::Object(port)
}
