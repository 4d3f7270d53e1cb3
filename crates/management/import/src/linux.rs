//! Bridges of Linux, as `ip -d -j link` (or `ip -d -j address`), `bridge -j vlan` and `bridge -j fdb` of iproute2 print them.
//!
//! Each interface of a bridge becomes a port with the device `kernel:INTERFACE`, whatever its kind: the kernel keeps its veth,
//! VLAN, bond, VXLAN and tap devices, and the switch takes the place of the bridge alone.

mod bridge;
mod ports;
mod state;
mod vlans;

use serde_json::{Value as Json, json};

use crate::document;
use crate::finding::Findings;
use crate::{ImportError, Imported};
use state::State;

/// Reads what the commands printed: the name of each text for findings, and the text.
///
/// # Errors
/// A text is none of these, or none has a bridge with its details.
pub fn read(texts: &[(&str, &[u8])]) -> Result<Imported, ImportError> {
    let mut state = State::default();
    for (name, bytes) in texts {
        state.add(name, bytes)?;
    }
    let name = texts.first().map_or("", |(name, _)| *name);
    if state.links.values().any(|link| !link.json["master"].is_null()) && !state.has_details {
        return Err(ImportError::new(
            name,
            "interfaces without their kinds: expected the output of `ip -d -j link`, with -d",
        ));
    }
    let mut findings = Findings::default();
    let bridges: Vec<Json> = state
        .links
        .values()
        .filter(|link| link.kind() == "bridge")
        .map(|link| bridge::bridge(&state, link, &mut findings))
        .collect();
    if bridges.is_empty() {
        return Err(ImportError::new(
            name,
            "no bridge: expected the output of `ip -d -j link` on a machine with one",
        ));
    }
    let config = document::settle(json!({ "bridge": bridges }), name, &mut findings);
    Ok(Imported {
        config,
        findings: findings.0,
    })
}
