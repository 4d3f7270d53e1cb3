//! The OpenConfig view: openconfig-interfaces, openconfig-if-ethernet, openconfig-if-aggregate and openconfig-vlan, as the
//! module ygot v0.36.0 carries them, over the ports of the bridges.
//!
//! An interface is a port; its name is `BRIDGE/PORT`.
//!
//! | path below /interfaces/interface[name] | port of the configuration |
//! | --- | --- |
//! | `config/enabled` | `down`, reversed |
//! | `config/mtu` | `mtu` |
//! | `ethernet/switched-vlan/config` | `vlan`, `trunks` |
//! | `state`, `ethernet/state`, `aggregation/state` | the running port |
//!
//! Everything that the view cannot say, such as the device, stays as it is. A port cannot be made here, because it needs a device; it can be
//! removed.

use std::sync::LazyLock;

use millrace_yang::interfaces::{
    Link, MTU_DEFAULT, Port, counter, link, ports, retain_ports, set_enabled, set_mtu, word,
};
use millrace_yang::schema::{Kind, Node, Type};
use serde_json::{Map, Value as Json, json};
use tonic::Status;

use crate::proto::gnmi::ModelData;

const INTERFACES: &str = "openconfig-interfaces";
const ETHERNET: &str = "openconfig-if-ethernet";
const AGGREGATE: &str = "openconfig-if-aggregate";
const VLAN: &str = "openconfig-vlan";
/// The largest VLAN id.
const VLAN_MAX: u64 = 4094;

/// Returns the models of the view, with the revisions of ygot v0.36.0.
pub fn models() -> Vec<ModelData> {
    [
        (INTERFACES, "2016-12-22"),
        (ETHERNET, "2016-12-22"),
        (AGGREGATE, "2016-12-22"),
        (VLAN, "2016-05-26"),
    ]
    .map(|(name, version)| ModelData {
        name: name.to_owned(),
        organization: "OpenConfig working group".to_owned(),
        version: version.to_owned(),
    })
    .to_vec()
}

fn node(name: &str, module: &'static str, kind: Kind, config: bool) -> Node {
    Node {
        name: name.to_owned(),
        module,
        doc: String::new(),
        kind,
        default: None,
        required: false,
        config,
    }
}

fn container(name: &str, module: &'static str, config: bool, nodes: Vec<Node>) -> Node {
    let presence = false;
    node(name, module, Kind::Container { presence, nodes }, config)
}

fn leaf(name: &str, kind: Type, config: bool) -> Node {
    node(name, "", Kind::Leaf(kind), config)
}

fn text() -> Type {
    Type::Text("text".to_owned())
}

fn words(list: &[&str]) -> Type {
    Type::Choice(
        list.iter()
            .map(|word| ((*word).to_owned(), String::new()))
            .collect(),
    )
}

fn number(max: u64) -> Type {
    Type::Integer {
        min: 0,
        max,
        unit: "",
    }
}

/// Returns the nodes at the top of the view.
pub fn nodes() -> &'static [Node] {
    static NODES: LazyLock<Vec<Node>> = LazyLock::new(|| {
        let interface = Kind::List {
            keys: vec!["name".to_owned()],
            nodes: interface(),
        };
        vec![container(
            "interfaces",
            INTERFACES,
            true,
            vec![node("interface", "", interface, true)],
        )]
    });
    &NODES
}

fn interface() -> Vec<Node> {
    let common = |config: bool| {
        vec![
            leaf("name", text(), config),
            leaf("type", text(), config),
            leaf("mtu", number(u64::from(u16::MAX)), config),
            leaf("enabled", Type::Bool, config),
        ]
    };
    let mut state = common(false);
    state.extend([
        leaf("ifindex", number(u64::from(u32::MAX)), false),
        leaf("admin-status", words(&["UP", "DOWN", "TESTING"]), false),
        leaf(
            "oper-status",
            words(&[
                "UP",
                "DOWN",
                "TESTING",
                "UNKNOWN",
                "DORMANT",
                "NOT_PRESENT",
                "LOWER_LAYER_DOWN",
            ]),
            false,
        ),
    ]);
    let counters = [
        "in-octets",
        "in-discards",
        "in-errors",
        "out-octets",
        "out-discards",
        "out-errors",
    ];
    let counters = counters.map(|name| leaf(name, number(u64::MAX), false));
    state.push(container("counters", "", false, counters.to_vec()));
    let vlans = Type::NumberOrText("a VLAN id, or a range as 10..20".to_owned());
    let vlan = |config: bool| {
        vec![
            leaf("interface-mode", words(&["ACCESS", "TRUNK"]), config),
            leaf("native-vlan", number(VLAN_MAX), config),
            leaf("access-vlan", number(VLAN_MAX), config),
            node("trunk-vlans", "", Kind::LeafList(vlans.clone()), config),
        ]
    };
    let switched = container(
        "switched-vlan",
        VLAN,
        true,
        vec![
            container("config", "", true, vlan(true)),
            container("state", "", false, vlan(false)),
        ],
    );
    let ethernet = vec![
        leaf("mac-address", text(), false),
        leaf("hw-mac-address", text(), false),
    ];
    let aggregation = vec![
        leaf("lag-type", words(&["LACP", "STATIC"]), false),
        leaf("min-links", number(u64::from(u16::MAX)), false),
    ];
    vec![
        leaf("name", text(), true),
        container("config", "", true, common(true)),
        container("state", "", false, state),
        container(
            "ethernet",
            ETHERNET,
            true,
            vec![container("state", "", false, ethernet), switched],
        ),
        container(
            "aggregation",
            AGGREGATE,
            true,
            vec![container("state", "", false, aggregation)],
        ),
    ]
}

/// Returns the VLAN settings of a port; empty for one that carries every VLAN.
fn switched_vlan(port: &Map<String, Json>) -> Map<String, Json> {
    let trunks = port
        .get("trunks")
        .and_then(Json::as_array)
        .filter(|trunks| !trunks.is_empty());
    let vlan = port.get("vlan").filter(|vlan| !vlan.is_null());
    let mut table = Map::new();
    match (trunks, vlan) {
        (None, None) => {}
        (None, Some(vlan)) => {
            table.insert("interface-mode".to_owned(), json!("ACCESS"));
            table.insert("access-vlan".to_owned(), vlan.clone());
        }
        (Some(trunks), native) => {
            table.insert("interface-mode".to_owned(), json!("TRUNK"));
            if let Some(native) = native {
                table.insert("native-vlan".to_owned(), native.clone());
            }
            table.insert("trunk-vlans".to_owned(), json!(trunks));
        }
    }
    table
}

/// Returns the configuration of an interface in the view.
fn config(port: &Port<'_>) -> Map<String, Json> {
    Map::from_iter([
        ("name".to_owned(), json!(port.name)),
        ("type".to_owned(), json!(port.kind())),
        ("mtu".to_owned(), port.mtu()),
        ("enabled".to_owned(), json!(port.is_enabled())),
    ])
}

/// Returns `/interfaces/interface` without state: what a Set edits.
pub(crate) fn configuration(document: &Map<String, Json>) -> Map<String, Json> {
    let entries: Vec<Json> = ports(document)
        .map(|port| {
            let mut entry = Map::new();
            entry.insert("config".to_owned(), Json::Object(config(&port)));
            let vlan = switched_vlan(port.port);
            if !vlan.is_empty() {
                entry.insert("ethernet".to_owned(), json!({"switched-vlan": {"config": vlan}}));
            }
            entry.insert("name".to_owned(), json!(port.name));
            Json::Object(entry)
        })
        .collect();
    let mut top = Map::new();
    if !entries.is_empty() {
        top.insert("interfaces".to_owned(), json!({"interface": entries}));
    }
    top
}

/// Returns `/interfaces` with the state of running ports.
pub(crate) fn interfaces(document: &Map<String, Json>, state: &Map<String, Json>) -> Json {
    let mut top = configuration(document);
    let mut interfaces = top
        .remove("interfaces")
        .unwrap_or_else(|| json!({"interface": []}));
    let entries = interfaces.get_mut("interface").and_then(Json::as_array_mut);
    for (entry, port) in entries.into_iter().flatten().zip(ports(document)) {
        let running = port.running(state);
        let mut shown = entry.get("config").cloned().unwrap_or_default();
        if let (Some(table), Some(running)) = (shown.as_object_mut(), running) {
            fill(table, running);
        }
        let vlan = switched_vlan(port.port);
        let mut ethernet = Map::new();
        if let Some(mac) = running.and_then(|running| running.get("mac")) {
            ethernet.insert(
                "state".to_owned(),
                json!({"mac-address": mac, "hw-mac-address": mac}),
            );
        }
        if !vlan.is_empty() {
            ethernet.insert("switched-vlan".to_owned(), json!({"config": vlan, "state": vlan}));
        }
        if let Some(table) = entry.as_object_mut() {
            table.insert("state".to_owned(), shown);
            if !ethernet.is_empty() {
                table.insert("ethernet".to_owned(), Json::Object(ethernet));
            }
            if let Some(lag) = port.lag() {
                let kind = match word(lag, "mode") {
                    "on" => "STATIC",
                    _ => "LACP",
                };
                let links = lag.get("min_links").cloned().unwrap_or_else(|| json!(1));
                let state = json!({"state": {"lag-type": kind, "min-links": links}});
                table.insert("aggregation".to_owned(), state);
            }
        }
    }
    interfaces
}

/// Adds the state of a running port to `state` of its interface.
fn fill(table: &mut Map<String, Json>, running: &Map<String, Json>) {
    let mut set = |name: &str, value: Json| drop(table.insert(name.to_owned(), value));
    if let Some(number) = running.get("number") {
        set("ifindex", number.clone());
    }
    let admin = match word(running, "admin") {
        "down" => "DOWN",
        _ => "UP",
    };
    set("admin-status", json!(admin));
    let oper = match link(running) {
        Link::Up => "UP",
        Link::Missing => "NOT_PRESENT",
        Link::Down => "DOWN",
    };
    set("oper-status", json!(oper));
    let counters = json!({
        "in-octets": counter(running, "rx", "bytes"),
        "in-discards": counter(running, "rx", "drops"),
        "in-errors": counter(running, "rx", "errors"),
        "out-octets": counter(running, "tx", "bytes"),
        "out-discards": counter(running, "tx", "drops"),
        "out-errors": counter(running, "tx", "errors"),
    });
    set("counters", counters);
}

/// Writes an edited view back into the document. Ports that left the view are removed, and nothing else is touched.
///
/// # Errors
/// `INVALID_ARGUMENT` for an interface that is no port, and for VLANs that no port can have.
pub(crate) fn write_back(view: &Map<String, Json>, document: &mut Map<String, Json>) -> Result<(), Status> {
    let none = Vec::new();
    let entries = view
        .get("interfaces")
        .and_then(|top| top.get("interface"))
        .and_then(Json::as_array)
        .unwrap_or(&none);
    let names: Vec<String> = ports(document).map(|port| port.name).collect();
    for entry in entries {
        let name = entry.get("name").and_then(Json::as_str).unwrap_or_default();
        if !names.iter().any(|known| known == name) {
            return Err(Status::invalid_argument(format!(
                "interface {name}: no port has this name, and a port needs a device: make it by origin millrace, \
                 /bridge[name]/port[name]"
            )));
        }
    }
    let find = |name: &str| {
        entries
            .iter()
            .find(|entry| entry.get("name").and_then(Json::as_str) == Some(name))
    };
    retain_ports(document, |name, bridge, port| match find(name) {
        Some(entry) => update(name, entry, bridge, port).map(|()| true),
        None => Ok(false),
    })
}

fn update(
    name: &str,
    entry: &Json,
    bridge: &Map<String, Json>,
    port: &mut Map<String, Json>,
) -> Result<(), Status> {
    let empty = Map::new();
    let wanted = entry.get("config").and_then(Json::as_object).unwrap_or(&empty);
    let present = config(&Port {
        name: name.to_owned(),
        bridge,
        port,
    });
    for fixed in ["name", "type"] {
        let given = wanted.get(fixed).map(bare);
        if given.is_some_and(|given| Some(given) != present.get(fixed).map(bare)) {
            let text = format!(
                "interface {name}: config/{fixed} follows from the port: expected {}",
                present[fixed]
            );
            return Err(Status::invalid_argument(text));
        }
    }
    let enabled = wanted.get("enabled").and_then(Json::as_bool).unwrap_or(true);
    let mtu = wanted.get("mtu").cloned().unwrap_or_else(|| json!(MTU_DEFAULT));
    set_enabled(port, enabled);
    set_mtu(port, mtu);
    let vlan = entry
        .get("ethernet")
        .and_then(|ethernet| ethernet.get("switched-vlan"))
        .and_then(|vlan| vlan.get("config"))
        .and_then(Json::as_object)
        .unwrap_or(&empty);
    if *vlan != switched_vlan(port) {
        set_vlan(name, vlan, port)?;
    }
    Ok(())
}

/// Returns an identity without its module.
fn bare(value: &Json) -> String {
    let text = millrace_yang::schema::text_of(value);
    text.rsplit(':').next().unwrap_or_default().to_owned()
}

fn set_vlan(name: &str, vlan: &Map<String, Json>, port: &mut Map<String, Json>) -> Result<(), Status> {
    let refuse = |text: &str| {
        Err(Status::invalid_argument(format!(
            "interface {name}: switched-vlan: {text}"
        )))
    };
    let access = vlan.get("access-vlan");
    let native = vlan.get("native-vlan");
    let trunks = vlan.get("trunk-vlans").and_then(Json::as_array);
    let mode = match vlan.get("interface-mode").and_then(Json::as_str) {
        Some(mode) => mode,
        None if trunks.is_some() || native.is_some() => "TRUNK",
        None => "ACCESS",
    };
    port.remove("vlan");
    port.remove("trunks");
    let untagged = match mode {
        "ACCESS" if trunks.is_some() || native.is_some() => {
            return refuse("native-vlan and trunk-vlans belong to interface-mode TRUNK");
        }
        "ACCESS" => access,
        _ if access.is_some() => return refuse("access-vlan belongs to interface-mode ACCESS"),
        _ => native,
    };
    if let Some(untagged) = untagged {
        port.insert("vlan".to_owned(), untagged.clone());
    }
    let mut tagged = Vec::new();
    for range in trunks.into_iter().flatten() {
        let text = bare(range);
        let (first, last) = text.split_once("..").unwrap_or((&text, &text));
        let id = |text: &str| {
            text.trim()
                .parse::<u64>()
                .ok()
                .filter(|id| (1..=VLAN_MAX).contains(id))
        };
        match (id(first), id(last)) {
            (Some(first), Some(last)) if first <= last => tagged.extend(first..=last),
            _ => return refuse("trunk-vlans: expected VLAN ids from 1 to 4094, or ranges as 10..20"),
        }
    }
    tagged.sort_unstable();
    tagged.dedup();
    if mode == "TRUNK" && tagged.is_empty() {
        return refuse(
            "interface-mode TRUNK needs trunk-vlans; without switched-vlan a port carries every VLAN",
        );
    }
    if !tagged.is_empty() {
        port.insert("trunks".to_owned(), json!(tagged));
    }
    Ok(())
}
