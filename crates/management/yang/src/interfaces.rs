//! The ports of bridges as interfaces, by the name `BRIDGE/PORT`: what the view of OpenConfig and that of the IETF have in common.

use serde_json::{Map, Value as Json, json};

/// The default MTU of a port and of an interface of the router, in bytes.
pub const MTU_DEFAULT: u64 = 1500;

/// A port of a document as an interface.
#[derive(Debug, Clone)]
pub struct Port<'a> {
    /// The name of the interface.
    pub name: String,
    pub bridge: &'a Map<String, Json>,
    pub port: &'a Map<String, Json>,
}

/// The operational state of an interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Link {
    Up,
    Down,
    /// The device could not be opened.
    Missing,
}

/// Returns the items of a list of tables.
pub fn tables<'a>(table: &'a Map<String, Json>, key: &str) -> impl Iterator<Item = &'a Map<String, Json>> {
    let items = table.get(key).and_then(Json::as_array);
    items.into_iter().flatten().filter_map(Json::as_object)
}

/// Returns a text of a table; empty without one.
pub fn word<'a>(table: &'a Map<String, Json>, key: &str) -> &'a str {
    table.get(key).and_then(Json::as_str).unwrap_or_default()
}

/// Returns the name of a port as an interface.
pub fn name_of(bridge: &Map<String, Json>, port: &Map<String, Json>) -> String {
    format!("{}/{}", word(bridge, "name"), word(port, "name"))
}

/// Returns the ports of all bridges.
pub fn ports(document: &Map<String, Json>) -> impl Iterator<Item = Port<'_>> {
    tables(document, "bridge").flat_map(|bridge| {
        tables(bridge, "port").map(move |port| Port {
            name: name_of(bridge, port),
            bridge,
            port,
        })
    })
}

impl<'a> Port<'a> {
    /// Returns true unless the port is down by configuration.
    pub fn is_enabled(&self) -> bool {
        self.port.get("down").and_then(Json::as_bool) != Some(true)
    }

    /// Returns the MTU of the port.
    pub fn mtu(&self) -> Json {
        let mtu = self.port.get("mtu").cloned();
        mtu.unwrap_or_else(|| json!(MTU_DEFAULT))
    }

    /// Returns the LAG that is the device of the port.
    pub fn lag(&self) -> Option<&'a Map<String, Json>> {
        let name = word(self.port, "device").strip_prefix("lag:")?;
        tables(self.bridge, "lag").find(|lag| word(lag, "name") == name)
    }

    /// Returns the type of the interface, an identity of iana-if-type.
    pub fn kind(&self) -> &'static str {
        match self.lag() {
            Some(_) => "iana-if-type:ieee8023adLag",
            None => "iana-if-type:ethernetCsmacd",
        }
    }

    /// Returns the running port in the state of the switch.
    pub fn running<'b>(&self, state: &'b Map<String, Json>) -> Option<&'b Map<String, Json>> {
        let (bridge, name) = (word(self.bridge, "name"), word(self.port, "name"));
        tables(state, "port").find(|one| word(one, "bridge") == bridge && word(one, "name") == name)
    }
}

/// Returns the operational state of a running port or interface.
pub fn link(running: &Map<String, Json>) -> Link {
    match word(running, "link") {
        "up" => Link::Up,
        "missing" => Link::Missing,
        _ => Link::Down,
    }
}

/// Returns a counter of a running port or interface, `rx` or `tx`; 0 without one.
pub fn counter(running: &Map<String, Json>, direction: &str, name: &str) -> Json {
    let table = running.get(direction).and_then(Json::as_object);
    let value = table.and_then(|table| table.get(name));
    value.cloned().unwrap_or_else(|| json!(0))
}

/// Sets a key of a trimmed table.
pub fn set(table: &mut Map<String, Json>, key: &str, value: Json, default: &Json) {
    match value == *default {
        true => drop(table.remove(key)),
        false => drop(table.insert(key.to_owned(), value)),
    }
}

/// Enables or disables a port.
pub fn set_enabled(port: &mut Map<String, Json>, is_enabled: bool) {
    set(port, "down", json!(!is_enabled), &json!(false));
}

/// Sets the MTU of a port or an interface of the router.
pub fn set_mtu(table: &mut Map<String, Json>, mtu: Json) {
    set(table, "mtu", mtu, &json!(MTU_DEFAULT));
}

/// Edits each port by a function, which gets its name and its bridge as it was before; ports for which it returns false are removed.
///
/// # Errors
/// The first error of the function.
pub fn retain_ports<E>(
    document: &mut Map<String, Json>,
    mut edit: impl FnMut(&str, &Map<String, Json>, &mut Map<String, Json>) -> Result<bool, E>,
) -> Result<(), E> {
    let bridges = document.get_mut("bridge").and_then(Json::as_array_mut);
    for bridge in bridges.into_iter().flatten().filter_map(Json::as_object_mut) {
        let before = bridge.clone();
        let Some(ports) = bridge.get_mut("port").and_then(Json::as_array_mut) else {
            continue;
        };
        let mut kept = Vec::new();
        for mut port in std::mem::take(ports) {
            if let Some(table) = port.as_object_mut()
                && edit(&name_of(&before, table), &before, table)?
            {
                kept.push(port);
            }
        }
        *ports = kept;
    }
    Ok(())
}
