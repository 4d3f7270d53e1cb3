//! Patch ports: two interfaces that name each other are the ends of one link.

use std::collections::BTreeMap;

use millrace_ovsdb::{Replica, Uuid};

use crate::rows::View;

/// The peer of a patch port.
#[derive(Debug, Clone)]
pub(crate) struct Link {
    /// The name of the link: of the two names of its ends, the first. No two interfaces of a database have one name.
    pub(crate) name: String,
}

/// Returns the links of patch ports that name each other.
pub(crate) fn links(replica: &Replica, bridges: &[View<'_>]) -> BTreeMap<Uuid, Link> {
    let mut patches: BTreeMap<&str, (Uuid, &str)> = BTreeMap::new();
    for bridge in bridges {
        for port in bridge.refer(replica, "ports", "Port") {
            for interface in port.refer(replica, "interfaces", "Interface") {
                if let (Some("patch"), Some(name), Some(peer)) = (
                    interface.text("type"),
                    interface.text("name"),
                    interface.map("options").get("peer").copied(),
                ) {
                    patches.insert(name, (interface.uuid, peer));
                }
            }
        }
    }
    let names_each_other =
        |name: &str, peer: &str| name != peer && patches.get(peer).is_some_and(|(_, back)| *back == name);
    patches
        .iter()
        .filter(|(name, (_, peer))| names_each_other(name, peer))
        .map(|(name, (uuid, peer))| {
            let name = (*name).min(*peer).to_owned();
            (*uuid, Link { name })
        })
        .collect()
}
