//! The interfaces, addresses, VLANs and static entries that the texts say.

use std::collections::BTreeMap;

use serde_json::Value as Json;

use super::vlans::Vlans;
use crate::ImportError;

/// An interface.
#[derive(Debug, Clone)]
pub(crate) struct Link {
    pub(crate) name: String,
    pub(crate) json: Json,
}

impl Link {
    /// Returns the kind: `bridge`, `veth`, `vxlan`; empty for a device of hardware.
    pub(crate) fn kind(&self) -> &str {
        self.json["linkinfo"]["info_kind"].as_str().unwrap_or("")
    }

    /// Returns the settings of the device.
    pub(crate) fn data(&self) -> &Json {
        &self.json["linkinfo"]["info_data"]
    }

    /// Returns the settings of the interface as a port of a bridge.
    pub(crate) fn port_data(&self) -> &Json {
        &self.json["linkinfo"]["info_slave_data"]
    }

    pub(crate) fn master(&self) -> Option<&str> {
        self.json["master"].as_str()
    }
}

/// A static entry of a bridge's forwarding database.
#[derive(Debug)]
pub(crate) struct FdbEntry {
    pub(crate) bridge: String,
    pub(crate) interface: String,
    pub(crate) mac: String,
}

/// The contents of all texts.
#[derive(Debug, Default)]
pub(crate) struct State {
    /// The interfaces by name.
    pub(crate) links: BTreeMap<String, Link>,
    /// Addresses with prefixes, by interface; those of the link are left out.
    pub(crate) addresses: BTreeMap<String, Vec<String>>,
    pub(crate) vlans: BTreeMap<String, Vlans>,
    /// Static entries of forwarding databases.
    pub(crate) entries: Vec<FdbEntry>,
    /// True if a text has the kinds of interfaces (`-d`).
    pub(super) has_details: bool,
}

impl State {
    pub(super) fn add(&mut self, name: &str, bytes: &[u8]) -> Result<(), ImportError> {
        let json: Json = serde_json::from_slice(bytes)
            .map_err(|error| ImportError::new(name, format!("no JSON ({error}): expected the output of `ip -d -j link`, `bridge -j vlan` or `bridge -j fdb`")))?;
        let items = json
            .as_array()
            .ok_or_else(|| ImportError::new(name, "expected a list, as `ip -j` prints it"))?;
        for item in items {
            let Some(interface) = item["ifname"].as_str().filter(|interface| !interface.is_empty()) else {
                continue;
            };
            if let Some(found) = item.get("vlans") {
                let vlans = self.vlans.entry(interface.to_owned()).or_default();
                vlans
                    .add(found)
                    .map_err(|reason| ImportError::new(name, format!("{interface}: {reason}")))?;
            } else if item.get("mac").is_some() {
                self.entry(interface, item);
            } else {
                self.link(interface, item);
            }
            for address in item["addr_info"].as_array().into_iter().flatten() {
                if let (Some(local), Some(length), true) = (
                    address["local"].as_str(),
                    address["prefixlen"].as_u64(),
                    address["scope"] != "link",
                ) {
                    let addresses = self.addresses.entry(interface.to_owned()).or_default();
                    let text = format!("{local}/{length}");
                    if !addresses.contains(&text) {
                        addresses.push(text);
                    }
                }
            }
        }
        Ok(())
    }

    fn link(&mut self, name: &str, item: &Json) {
        self.has_details |= item.get("linkinfo").is_some();
        let known = self.links.get(name);
        // The text with the details counts: `ip -j address` may have none.
        if known.is_none_or(|known| known.json.get("linkinfo").is_none()) {
            let link = Link {
                name: name.to_owned(),
                json: item.clone(),
            };
            self.links.insert(name.to_owned(), link);
        }
    }

    fn entry(&mut self, interface: &str, item: &Json) {
        let is_own = item["flags"]
            .as_array()
            .is_some_and(|flags| flags.iter().any(|flag| flag == "self"));
        if let (Some(bridge), "static", false, Some(mac)) = (
            item["master"].as_str(),
            item["state"].as_str().unwrap_or(""),
            is_own,
            item["mac"].as_str(),
        ) {
            self.entries.push(FdbEntry {
                bridge: bridge.to_owned(),
                interface: interface.to_owned(),
                mac: mac.to_owned(),
            });
        }
    }
}
