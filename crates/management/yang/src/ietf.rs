//! The view of ietf-interfaces (RFC 8343) and ietf-ip (RFC 8344): the ports of bridges, and the interfaces of the router.
//!
//! | node of `/interfaces/interface[name]` | port `BRIDGE/PORT` | interface of the router |
//! | --- | --- | --- |
//! | `type` | `ethernetCsmacd`, `ieee8023adLag` | `l3ipvlan` |
//! | `enabled` | `down`, reversed | `true` |
//! | `ipv4`, `ipv6`: `address`, `mtu` | | `address`, `mtu` |
//! | state | the running port | the running interface |
//!
//! The view owns what the table names. An interface cannot be made here, because a port needs a device, and an interface of the router
//! a bridge. Where one request edits a value by the view and by the module of the switch, the view counts, unless it gives the value
//! that was there before: a client that sends back what it read and changed one of both places changes that one.

use std::net::IpAddr;
use std::sync::LazyLock;

use serde_json::{Map, Value as Json, json};

use crate::edit::{EditError, Problem};
use crate::interfaces::{
    self, Link, MTU_DEFAULT, Port, counter, link, ports, set_enabled, set_mtu, tables, word,
};
use crate::schema::{Kind, Node, Type, configuration};

/// The member of the tree that is the view.
pub const INTERFACES: &str = "interfaces";
const MODULE: &str = "ietf-interfaces";
const IP: &str = "ietf-ip";
/// The type of an interface of the router.
const ROUTED: &str = "iana-if-type:l3ipvlan";

/// A module of a standard, as `get-schema` hands it out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Standard {
    pub name: &'static str,
    pub revision: &'static str,
    /// The features that the switch has.
    pub features: &'static [&'static str],
    /// False for a module of types alone, which others import.
    pub is_implemented: bool,
    pub text: &'static str,
}

/// The modules of the view, and those that they import.
pub const MODULES: [Standard; 5] = [
    Standard {
        name: MODULE,
        revision: "2018-02-20",
        features: &["if-mib"],
        is_implemented: true,
        text: include_str!("../modules/ietf-interfaces@2018-02-20.yang"),
    },
    Standard {
        name: IP,
        revision: "2018-02-22",
        features: &[],
        is_implemented: true,
        text: include_str!("../modules/ietf-ip@2018-02-22.yang"),
    },
    Standard {
        name: "iana-if-type",
        revision: "2014-05-08",
        features: &[],
        is_implemented: true,
        text: include_str!("../modules/iana-if-type@2014-05-08.yang"),
    },
    Standard {
        name: "ietf-yang-types",
        revision: "2013-07-15",
        features: &[],
        is_implemented: false,
        text: include_str!("../modules/ietf-yang-types@2013-07-15.yang"),
    },
    Standard {
        name: "ietf-inet-types",
        revision: "2013-07-15",
        features: &[],
        is_implemented: false,
        text: include_str!("../modules/ietf-inet-types@2013-07-15.yang"),
    },
];

fn node(name: &str, module: &'static str, kind: Kind, default: Option<Json>, config: bool) -> Node {
    Node {
        name: name.to_owned(),
        module,
        doc: String::new(),
        kind,
        default,
        required: false,
        config,
    }
}

fn leaf(name: &str, kind: Type) -> Node {
    node(name, "", Kind::Leaf(kind), None, true)
}

fn state(name: &str, kind: Type) -> Node {
    Node::state(name, "", Kind::Leaf(kind))
}

fn number(min: u64, max: u64) -> Type {
    Type::Integer { min, max, unit: "" }
}

fn text(form: &str) -> Type {
    Type::Text(form.to_owned())
}

/// Returns the container of a version of IP.
fn ip(name: &str, mtu_min: u64, mtu_max: u64, prefix_max: u64, form: &str) -> Node {
    let address = vec![
        leaf("ip", text(form)),
        leaf("prefix-length", number(0, prefix_max)),
        state("origin", text("an origin")),
    ];
    let nodes = vec![
        node("enabled", "", Kind::Leaf(Type::Bool), Some(json!(true)), true),
        // The default of the standard is false; the interfaces of a router forward.
        leaf("forwarding", Type::Bool),
        leaf("mtu", number(mtu_min, mtu_max)),
        node(
            "address",
            "",
            Kind::List {
                keys: vec!["ip".to_owned()],
                nodes: address,
            },
            None,
            true,
        ),
    ];
    node(
        name,
        IP,
        Kind::Container {
            presence: true,
            nodes,
        },
        None,
        true,
    )
}

/// Returns the node at the top of the view.
fn top() -> Node {
    let counter = |name: &str| state(name, number(0, u64::MAX));
    let mut statistics = vec![state("discontinuity-time", text("a time"))];
    statistics.extend(
        [
            "in-octets",
            "in-discards",
            "in-errors",
            "out-octets",
            "out-discards",
            "out-errors",
        ]
        .map(counter),
    );
    let statistics = Kind::Container {
        presence: false,
        nodes: statistics,
    };
    let kind = Type::Identity {
        module: "iana-if-type",
        prefix: "ianaift",
    };
    let interface = vec![
        leaf("name", text("text")),
        leaf("type", kind),
        node("enabled", "", Kind::Leaf(Type::Bool), Some(json!(true)), true),
        state("admin-status", text("a state")),
        state("oper-status", text("a state")),
        state("if-index", number(1, u64::from(i32::MAX.unsigned_abs()))),
        state("phys-address", text("a MAC address")),
        state("speed", number(0, u64::MAX)),
        Node::state("statistics", "", statistics),
        ip("ipv4", 68, u64::from(u16::MAX), 32, "an IPv4 address"),
        ip("ipv6", 1280, u64::from(u32::MAX), 128, "an IPv6 address"),
    ];
    let list = node(
        "interface",
        "",
        Kind::List {
            keys: vec!["name".to_owned()],
            nodes: interface,
        },
        None,
        true,
    );
    let presence = false;
    let nodes = vec![list];
    node(
        INTERFACES,
        MODULE,
        Kind::Container { presence, nodes },
        None,
        true,
    )
}

/// Returns the nodes of the view.
pub fn nodes() -> &'static [Node] {
    static NODES: LazyLock<Vec<Node>> = LazyLock::new(|| vec![top()]);
    &NODES
}

/// Returns all nodes that can be edited: those of the configuration, and those of the view.
pub fn editable() -> &'static [Node] {
    static NODES: LazyLock<Vec<Node>> = LazyLock::new(|| {
        let mut nodes = configuration().to_vec();
        nodes.push(top());
        nodes
    });
    &NODES
}

/// Returns an address of an interface of the router in its parts.
fn parts(address: &Json) -> Option<(IpAddr, u64)> {
    let (ip, length) = address.as_str()?.split_once('/')?;
    Some((ip.parse().ok()?, length.parse().ok()?))
}

/// Returns the addresses of a table of `[[interface]]`.
fn addresses(interface: &Map<String, Json>) -> impl Iterator<Item = (IpAddr, u64)> {
    let all = interface.get("address").and_then(Json::as_array);
    all.into_iter().flatten().filter_map(parts)
}

fn of_port(port: &Port<'_>) -> Map<String, Json> {
    let mut entry = Map::new();
    entry.insert("name".to_owned(), json!(port.name));
    entry.insert("type".to_owned(), json!(port.kind()));
    if !port.is_enabled() {
        entry.insert("enabled".to_owned(), json!(false));
    }
    entry
}

fn of_interface(interface: &Map<String, Json>) -> Map<String, Json> {
    let mut entry = Map::new();
    entry.insert("name".to_owned(), json!(word(interface, "name")));
    entry.insert("type".to_owned(), json!(ROUTED));
    for (version, is_it) in [
        ("ipv4", IpAddr::is_ipv4 as fn(&IpAddr) -> bool),
        ("ipv6", IpAddr::is_ipv6),
    ] {
        let list: Vec<Json> = addresses(interface)
            .filter(|(ip, _)| is_it(ip))
            .map(|(ip, length)| json!({"ip": ip.to_string(), "prefix-length": length}))
            .collect();
        if list.is_empty() {
            continue;
        }
        let mut table = Map::new();
        table.insert("forwarding".to_owned(), json!(true));
        if let Some(mtu) = interface.get("mtu").filter(|mtu| **mtu != json!(MTU_DEFAULT)) {
            table.insert("mtu".to_owned(), mtu.clone());
        }
        table.insert("address".to_owned(), Json::Array(list));
        entry.insert(version.to_owned(), Json::Object(table));
    }
    entry
}

fn with_entries(entries: impl Iterator<Item = Json>) -> Map<String, Json> {
    let entries: Vec<Json> = entries.collect();
    match entries.is_empty() {
        true => Map::new(),
        false => Map::from_iter([(INTERFACES.to_owned(), json!({"interface": entries}))]),
    }
}

/// Returns the view of a document, without state: a map with the member `interfaces`, or without members if there are none.
pub fn view(document: &Map<String, Json>) -> Map<String, Json> {
    let entries = ports(document).map(|port| of_port(&port));
    let entries = entries.chain(tables(document, "interface").map(of_interface));
    with_entries(entries.map(Json::Object))
}

/// Returns the view of a document with the state of the running switch.
pub fn view_with_state(document: &Map<String, Json>, state: &Map<String, Json>) -> Map<String, Json> {
    let started = state.get("started");
    let mut entries = Vec::new();
    for port in ports(document) {
        let mut entry = of_port(&port);
        fill(&mut entry, port.running(state), port.is_enabled(), started);
        entries.push(Json::Object(entry));
    }
    for interface in tables(document, "interface") {
        let mut entry = of_interface(interface);
        let running = tables(state, "interface").find(|one| one.get("name") == interface.get("name"));
        fill(&mut entry, running, true, started);
        for version in ["ipv4", "ipv6"] {
            let list = entry
                .get_mut(version)
                .and_then(|table| table.get_mut("address"))
                .and_then(Json::as_array_mut);
            for address in list.into_iter().flatten().filter_map(Json::as_object_mut) {
                address.insert("origin".to_owned(), json!("static"));
            }
        }
        entries.push(Json::Object(entry));
    }
    with_entries(entries.into_iter())
}

/// Adds the state of an interface.
fn fill(
    entry: &mut Map<String, Json>,
    running: Option<&Map<String, Json>>,
    is_enabled: bool,
    started: Option<&Json>,
) {
    let mut set = |name: &str, value: Json| drop(entry.insert(name.to_owned(), value));
    let is_up = running.map_or(is_enabled, |running| word(running, "admin") != "down");
    set("admin-status", json!(if is_up { "up" } else { "down" }));
    let oper = match running.map(link) {
        Some(Link::Up) => "up",
        Some(Link::Down) => "down",
        Some(Link::Missing) | None => "not-present",
    };
    set("oper-status", json!(oper));
    let Some(running) = running else { return };
    for (name, of) in [
        ("if-index", "if_index"),
        ("phys-address", "mac"),
        ("speed", "speed_bps"),
    ] {
        if let Some(value) = running.get(of).filter(|value| !value.is_null()) {
            set(name, value.clone());
        }
    }
    if let Some(started) = started {
        set(
            "statistics",
            json!({
                "discontinuity-time": started,
                "in-octets": counter(running, "rx", "bytes"),
                "in-discards": counter(running, "rx", "drops"),
                "in-errors": counter(running, "rx", "errors"),
                "out-octets": counter(running, "tx", "bytes"),
                "out-discards": counter(running, "tx", "drops"),
                "out-errors": counter(running, "tx", "errors"),
            }),
        );
    }
}

/// Returns the entries of a view.
fn entries(view: &Map<String, Json>) -> Vec<&Map<String, Json>> {
    match view.get(INTERFACES).and_then(Json::as_object) {
        Some(top) => tables(top, "interface").collect(),
        None => Vec::new(),
    }
}

fn find<'a>(entries: &[&'a Map<String, Json>], name: &str) -> Option<&'a Map<String, Json>> {
    let is_it = |entry: &&&Map<String, Json>| word(entry, "name") == name;
    entries.iter().find(is_it).copied()
}

/// Writes the difference between two states of the view into a document. `removes` tells if an entry that is gone removes its port or
/// interface: it does unless the whole document was given anew.
pub fn write_back(
    before: &Map<String, Json>,
    after: &Map<String, Json>,
    removes: bool,
    document: &mut Map<String, Json>,
    errors: &mut Vec<EditError>,
) {
    let present = view(document);
    let (old, new, present) = (entries(before), entries(after), entries(&present));
    for entry in &new {
        let name = word(entry, "name");
        let base = find(&old, name).or_else(|| find(&present, name));
        let change = Change { name, base, entry };
        match find(&present, name) {
            None if base.is_some_and(|base| base == *entry) => {}
            None => change.fail(errors, "", no_such(name)),
            Some(_) if name.contains('/') => change.of_port(document, errors),
            Some(_) => change.of_interface(document, errors),
        }
    }
    if !removes {
        return;
    }
    let is_gone = |name: &str| find(&old, name).is_some() && find(&new, name).is_none();
    let kept: Result<(), std::convert::Infallible> =
        interfaces::retain_ports(document, |name, _, _| Ok(!is_gone(name)));
    let Ok(()) = kept;
    if let Some(list) = document.get_mut("interface").and_then(Json::as_array_mut) {
        list.retain(|interface| !is_gone(interface.get("name").and_then(Json::as_str).unwrap_or_default()));
        if list.is_empty() {
            document.remove("interface");
        }
    }
}

fn no_such(name: &str) -> String {
    match name.contains('/') {
        true => {
            "no port has this name, and a port needs a device: make it in /bridge/port of the module millrace"
                .to_owned()
        }
        false => "no interface of the router has this name, and one needs a VRF and a bridge: make it in /interface of the module \
                  millrace; a port is BRIDGE/PORT"
            .to_owned(),
    }
}

/// The change of one interface.
struct Change<'a> {
    name: &'a str,
    base: Option<&'a Map<String, Json>>,
    entry: &'a Map<String, Json>,
}

impl Change<'_> {
    fn fail(&self, errors: &mut Vec<EditError>, place: &str, message: impl Into<String>) {
        errors.push(EditError {
            path: format!("/{INTERFACES}/interface[name='{}']{place}", self.name),
            problem: Problem::InvalidValue(message.into()),
        });
    }

    /// Returns the values before and after, if they differ.
    fn differing(&self, name: &str) -> Option<(Option<&Json>, Option<&Json>)> {
        let (old, new) = (self.base.and_then(|base| base.get(name)), self.entry.get(name));
        (old != new).then_some((old, new))
    }

    fn check_type(&self, errors: &mut Vec<EditError>) {
        if let Some((Some(old), Some(new))) = self.differing("type") {
            let text = format!(
                "{}: follows from the port: expected {}",
                as_text(new),
                as_text(old)
            );
            self.fail(errors, "/type", text);
        }
    }

    fn of_port(&self, document: &mut Map<String, Json>, errors: &mut Vec<EditError>) {
        self.check_type(errors);
        for version in ["ipv4", "ipv6"] {
            if self.entry.contains_key(version) {
                let text = "a port has no addresses: expected an interface of the router, /interface of the module millrace";
                self.fail(errors, &format!("/{version}"), text);
            }
        }
        let Some((_, enabled)) = self.differing("enabled") else {
            return;
        };
        let is_enabled = enabled.and_then(Json::as_bool).unwrap_or(true);
        let done: Result<(), std::convert::Infallible> =
            interfaces::retain_ports(document, |name, _, port| {
                if name == self.name {
                    set_enabled(port, is_enabled);
                }
                Ok(true)
            });
        let Ok(()) = done;
    }

    fn of_interface(&self, document: &mut Map<String, Json>, errors: &mut Vec<EditError>) {
        self.check_type(errors);
        if self.entry.get("enabled") == Some(&json!(false)) {
            self.fail(
                errors,
                "/enabled",
                "an interface of the router is enabled while it exists: expected true, or the ports of its VLAN",
            );
        }
        let none = Map::new();
        let of = |entry: &Map<String, Json>, version: &str| {
            entry
                .get(version)
                .and_then(Json::as_object)
                .unwrap_or(&none)
                .clone()
        };
        let list = document.get_mut("interface").and_then(Json::as_array_mut);
        let mut tables = list.into_iter().flatten().filter_map(Json::as_object_mut);
        let Some(table) = tables.find(|table| word(table, "name") == self.name) else {
            return;
        };
        let mut mtu = Vec::new();
        let mut wanted: Vec<(IpAddr, u64)> = addresses(table).collect();
        for version in ["ipv4", "ipv6"] {
            let Some((old, _)) = self.differing(version) else {
                continue;
            };
            let new = of(self.entry, version);
            let old = old.and_then(Json::as_object).cloned().unwrap_or_default();
            let place = format!("/{version}");
            if new.get("enabled") == Some(&json!(false)) {
                self.fail(
                    errors,
                    &format!("{place}/enabled"),
                    "expected true; without addresses there is no such traffic",
                );
            }
            if new.get("forwarding") == Some(&json!(false)) {
                self.fail(
                    errors,
                    &format!("{place}/forwarding"),
                    "the router forwards: expected true",
                );
            }
            if old.get("mtu") != new.get("mtu") && !new.is_empty() {
                mtu.push(new.get("mtu").cloned().unwrap_or_else(|| json!(MTU_DEFAULT)));
            }
            let is_v4 = version == "ipv4";
            let mut given = Vec::new();
            for address in interfaces::tables(&new, "address") {
                let ip = word(address, "ip").parse::<IpAddr>().ok();
                let length = address.get("prefix-length").and_then(Json::as_u64);
                match (ip.filter(|ip| ip.is_ipv4() == is_v4), length) {
                    (Some(ip), Some(length)) => given.push((ip, length)),
                    (None, _) => {
                        let text = format!(
                            "`{}`: expected an {} address",
                            word(address, "ip").chars().take(64).collect::<String>(),
                            if is_v4 { "IPv4" } else { "IPv6" }
                        );
                        self.fail(errors, &format!("{place}/address"), text);
                    }
                    (Some(ip), None) => errors.push(EditError {
                        path: format!(
                            "/{INTERFACES}/interface[name='{}']{place}/address[ip='{ip}']",
                            self.name
                        ),
                        problem: Problem::MissingKey("prefix-length".to_owned()),
                    }),
                }
            }
            // Addresses that stay keep their place: the first one is the source of what the router sends.
            wanted.retain(|address| address.0.is_ipv4() != is_v4 || given.contains(address));
            let added: Vec<_> = given.into_iter().filter(|one| !wanted.contains(one)).collect();
            wanted.extend(added);
        }
        match mtu.as_slice() {
            [first, .., last] if first != last => {
                let text = "one MTU holds for both versions: expected the same value in ipv4 and ipv6";
                self.fail(errors, "/ipv6/mtu", text);
            }
            [first, ..] => set_mtu(table, first.clone()),
            [] => {}
        }
        let list: Vec<Json> = wanted
            .iter()
            .map(|(ip, length)| json!(format!("{ip}/{length}")))
            .collect();
        match list.is_empty() {
            true => drop(table.remove("address")),
            false => drop(table.insert("address".to_owned(), Json::Array(list))),
        }
    }
}

fn as_text(value: &Json) -> String {
    crate::schema::text_of(value)
}
