//! Lagopus' configuration DSL (Lagopus, "Lagopus software switch datastore and DSL syntax"): one command a line.
//!
//! ```text
//! interface if01 create -type ethernet-rawsock -device eth1
//! port port01 create -interface if01 -queue q1
//! channel ch01 create -dst-addr 127.0.0.1 -protocol tcp
//! controller c01 create -channel ch01
//! bridge br01 create -controller c01 -port port01 1 -dpid 0x1
//! bridge br01 enable
//! ```
//!
//! Objects refer to each other by name, as bridges to ports, ports to interfaces, queues and policers, and bridges to controllers,
//! controllers to channels. The whole file is read before they are followed.

mod device;
mod objects;
mod quality;

use std::collections::BTreeMap;

use serde_json::{Map, Value as Json, json};

use crate::document;
use crate::finding::Findings;
use crate::numbers::Taken;
use crate::{ImportError, Imported};
use objects::{Object, Objects, number};

/// The port of a controller in Lagopus unless `-dst-port` names another.
const CONTROLLER_PORT: &str = "6633";

/// Capabilities and queues of a bridge that have no counterpart and need none: the switch has the first, and the second are memory.
const BRIDGE_NOTES: [&str; 20] = [
    "flow-statistics",
    "group-statistics",
    "port-statistics",
    "queue-statistics",
    "table-statistics",
    "max-buffered-packets",
    "max-ports",
    "max-flows",
    "block-looping-ports",
    "action-type",
    "instruction-type",
    "reserved-port-type",
    "group-type",
    "group-capability",
    "packet-inq-size",
    "packet-inq-max-batches",
    "up-streamq-size",
    "up-streamq-max-batches",
    "down-streamq-size",
    "down-streamq-max-batches",
];

/// Reads a file in DSL syntax. `name` is the name of the file for findings.
///
/// # Errors
/// The file is no UTF-8, in lagosh's configuration syntax, or has no object of Lagopus.
pub fn read(name: &str, bytes: &[u8]) -> Result<Imported, ImportError> {
    let text = std::str::from_utf8(bytes)
        .map_err(|_| ImportError::new(name, "expected commands of Lagopus' DSL as UTF-8"))?;
    let mut findings = Findings::default();
    let objects = objects::read(name, text, &mut findings)?;
    let tls = objects.settings("tls");
    let mut bridges = Vec::new();
    let mut used = Vec::new();
    for (bridge_name, bridge) in objects.of("bridge") {
        let mut reader = Reader {
            objects: &objects,
            findings: &mut findings,
            used: &mut used,
        };
        bridges.push(reader.bridge(bridge_name, bridge, tls));
    }
    for kind in [
        "port",
        "interface",
        "channel",
        "controller",
        "queue",
        "policer",
        "policer-action",
    ] {
        for (object, found) in objects.of(kind) {
            if !used.contains(&(kind, object.to_owned())) {
                findings.note(&found.place, format!("{kind} {object}: no bridge uses it"));
            }
        }
    }
    let config = document::settle(json!({ "bridge": bridges }), name, &mut findings);
    Ok(Imported {
        config,
        findings: findings.0,
    })
}

struct Reader<'a, 'f> {
    objects: &'a Objects,
    findings: &'f mut Findings,
    /// The objects that a bridge refers to, by kind and name.
    used: &'f mut Vec<(&'static str, String)>,
}

impl<'a> Reader<'a, '_> {
    /// Returns an object that another one names.
    fn named(&mut self, place: &str, kind: &'static str, name: &str) -> Option<&'a Object> {
        self.used.push((kind, name.to_owned()));
        let found = self.objects.get(kind, name);
        if found.is_none() {
            self.findings
                .difference(place, format!("{kind} {name} is not in the file"));
        }
        found
    }

    fn bridge(&mut self, name: &str, bridge: &'a Object, tls: Option<&Object>) -> Json {
        let mut table = Map::new();
        table.insert("name".to_owned(), json!(name));
        table.insert("place".to_owned(), json!(bridge.place));
        let mut ports = Vec::new();
        let mut taken = Taken::default();
        let mut controllers: BTreeMap<String, u64> = BTreeMap::new();
        let mut has_tls = false;
        for (option, values) in bridge.options() {
            let value = values.first().map_or("", String::as_str);
            let place = &bridge.place;
            match option {
                "dpid" => match number(value) {
                    Some(dpid) => {
                        table.insert("dpid".to_owned(), json!(format!("{dpid:016x}")));
                    }
                    None => self.findings.difference(place, format!("-dpid {value}: expected a number")),
                },
                "fail-mode" => {
                    table.insert("fail_mode".to_owned(), json!(value));
                }
                "l2-bridge" if value.eq_ignore_ascii_case("true") => {
                    table.insert("fail_mode".to_owned(), json!("standalone"));
                    self.findings.difference(
                        place,
                        "-l2-bridge true: the learning bridge forwards while no controller is connected; with one, expected an entry with actions=NORMAL, or `pipeline = \"normal\"` of its ports",
                    );
                }
                "l2-bridge" => {}
                "mactable-ageing-time" => self.number(&mut table, place, option, "mac_ageing_s", value),
                "mactable-max-entries" => self.number(&mut table, place, option, "mac_table_size", value),
                "max-tables" => self.number(&mut table, place, option, "tables", value),
                "reassemble-ip-fragments" if value.eq_ignore_ascii_case("true") => {
                    table.insert("fragments".to_owned(), json!("reassemble"));
                }
                "reassemble-ip-fragments" => {}
                "controller" => {
                    if let Some((target, is_auxiliary)) = self.controller(place, value) {
                        has_tls |= target.starts_with("tls:");
                        *controllers.entry(target).or_default() += u64::from(is_auxiliary);
                    }
                }
                "port" => {
                    let wanted = values.get(1).and_then(|text| number(text));
                    let number = taken.take(wanted.and_then(|number| u32::try_from(number).ok())).raw();
                    if wanted != Some(u64::from(number)) {
                        self.findings.difference(place, format!("-port {}: the port gets the number {number}", values.join(" ")));
                    }
                    ports.extend(self.port(place, value, number));
                }
                "mactable-entry" => self.findings.difference(
                    place,
                    format!("-mactable-entry {}: MAC addresses are learned; expected a flow entry (`millrace flow add`)", values.join(" ")),
                ),
                option if BRIDGE_NOTES.contains(&option) => {
                    self.findings.note(place, format!("-{option} {}: no setting is needed", values.join(" ")));
                }
                _ => self.findings.difference(place, format!("-{option} {}: not known here", values.join(" "))),
            }
        }
        if !bridge.is_enabled {
            self.findings.note(
                &bridge.place,
                format!("bridge {name} is not enabled in the file; here it runs"),
            );
        }
        if has_tls {
            self.tls(&mut table, &bridge.place, tls);
        }
        let controllers: Vec<Json> = controllers
            .into_iter()
            .map(|(target, auxiliary)| match auxiliary {
                0 => json!(target),
                auxiliary => json!({"target": target, "auxiliary": auxiliary}),
            })
            .collect();
        table.insert("controllers".to_owned(), json!(controllers));
        table.insert("port".to_owned(), json!(ports));
        Json::Object(table)
    }

    fn number(&mut self, table: &mut Map<String, Json>, place: &str, option: &str, key: &str, value: &str) {
        match number(value) {
            Some(number) => drop(table.insert(key.to_owned(), json!(number))),
            None => self
                .findings
                .difference(place, format!("-{option} {value}: expected a number")),
        }
    }

    /// Returns the target of a controller, and true if the connection is auxiliary.
    fn controller(&mut self, place: &str, name: &str) -> Option<(String, bool)> {
        let controller = self.named(place, "controller", name)?;
        let place = &controller.place;
        let mut target = None;
        let mut is_auxiliary = false;
        for (option, values) in controller.options() {
            let value = values.first().map_or("", String::as_str);
            match option {
                "channel" => target = self.channel(place, value),
                "connection-type" => is_auxiliary = value == "auxiliary",
                "role" if value == "equal" => {}
                "role" => self.findings.note(
                    place,
                    format!("-role {value}: a controller asks for its role itself"),
                ),
                _ => self
                    .findings
                    .difference(place, format!("-{option} {value}: not known here")),
            }
        }
        if target.is_none() {
            self.findings.difference(
                place,
                format!("controller {name} has no channel, and is left out"),
            );
        }
        Some((target?, is_auxiliary))
    }

    fn channel(&mut self, place: &str, name: &str) -> Option<String> {
        let channel = self.named(place, "channel", name)?;
        let place = &channel.place;
        let (mut host, mut port, mut protocol) = (None, CONTROLLER_PORT, "tcp");
        for (option, values) in channel.options() {
            let value = values.first().map_or("", String::as_str);
            match option {
                "dst-addr" => host = Some(value),
                "dst-port" => port = value,
                "protocol" => protocol = value.trim_end_matches('6'),
                "local-addr" if matches!(value, "0.0.0.0" | "::") => {}
                "local-port" if value == "0" => {}
                "local-addr" | "local-port" => {
                    self.findings.note(
                        place,
                        format!("-{option} {value}: the system chooses the source of the connection"),
                    );
                }
                _ => self
                    .findings
                    .difference(place, format!("-{option} {value}: not known here")),
            }
        }
        let host = host?;
        Some(match host.contains(':') {
            true => format!("{protocol}:[{host}]:{port}"),
            false => format!("{protocol}:{host}:{port}"),
        })
    }

    fn tls(&mut self, table: &mut Map<String, Json>, place: &str, tls: Option<&Object>) {
        let file = |option: &str| {
            let of = tls.and_then(|tls| tls.options().find(|(name, _)| *name == option));
            of.and_then(|(_, values)| values.first().cloned())
        };
        match (file("private-key"), file("cert-file"), file("certificate-store")) {
            (Some(key), Some(certificate), Some(store)) => {
                let authority = format!("{}/ca.pem", store.trim_end_matches('/'));
                self.findings.difference(
                    place,
                    format!("tls: Lagopus takes authorities from the folder {store} and rules from -trust-point-conf: expected one file of authorities, here {authority}"),
                );
                let files = json!({"private_key": key, "certificate": certificate, "ca_certificate": authority});
                table.insert("tls".to_owned(), files);
            }
            _ => self.findings.difference(
                place,
                "tls: expected -cert-file, -private-key and -certificate-store for a controller with -protocol tls",
            ),
        }
    }

    fn port(&mut self, place: &str, name: &str, number: u32) -> Option<Json> {
        let port = self.named(place, "port", name)?;
        let place = &port.place;
        let mut table = Map::new();
        table.insert("name".to_owned(), json!(name));
        table.insert("place".to_owned(), json!(place));
        table.insert("number".to_owned(), json!(number));
        let mut queues = Vec::new();
        for (option, values) in port.options() {
            let value = values.first().map_or("", String::as_str);
            match option {
                "interface" => self.interface(place, value, &mut table),
                "queue" => {
                    if let Some(queue) = self.named(place, "queue", value) {
                        queues.extend(quality::queue(value, queue, self.findings));
                    }
                }
                "policer" => {
                    if let Some(policer) = self.named(place, "policer", value) {
                        let action = policer
                            .value("action")
                            .map(|action| self.named(place, "policer-action", action));
                        let policer = quality::policer(value, policer, action.flatten(), self.findings);
                        table.extend(policer.map(|policer| ("policer".to_owned(), policer)));
                    }
                }
                _ => self
                    .findings
                    .difference(place, format!("-{option} {}: not known here", values.join(" "))),
            }
        }
        if !queues.is_empty() {
            table.insert("queue".to_owned(), json!(queues));
        }
        if !table.contains_key("device") {
            self.findings.difference(
                place,
                format!(
                    "port {name} has no interface that is known here: expected a device in place of `memory`"
                ),
            );
            table.insert("device".to_owned(), json!("memory"));
        }
        Some(Json::Object(table))
    }

    fn interface(&mut self, place: &str, name: &str, table: &mut Map<String, Json>) {
        let Some(interface) = self.named(place, "interface", name) else {
            return;
        };
        match device::device(interface) {
            Ok(device) => {
                if let Some(mtu) = interface.value("mtu").and_then(number) {
                    match device.strip_prefix("kernel:") {
                        Some(kernel) if mtu != 1500 => self.findings.note(
                            &interface.place,
                            format!(
                                "-mtu {mtu}: the kernel sets it: expected `ip link set {kernel} mtu {mtu}`"
                            ),
                        ),
                        Some(_) => {}
                        None => drop(table.insert("mtu".to_owned(), json!(mtu))),
                    }
                }
                table.insert("device".to_owned(), json!(device));
            }
            Err(reason) => {
                self.findings.difference(
                    &interface.place,
                    format!("interface {name}: {reason}; the port has the device `memory` until then"),
                );
                table.insert("device".to_owned(), json!("memory"));
            }
        }
        for (option, values) in interface.options() {
            if !device::KNOWN.contains(&option) {
                self.findings.note(
                    &interface.place,
                    format!("-{option} {}: no counterpart", values.join(" ")),
                );
            }
        }
    }
}
