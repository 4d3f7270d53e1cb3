//! The certificate by which a switch is known. Without it, everybody with a certificate of a trusted authority could speak as
//! any switch of the exchange.
//!
//! ```text
//!   [openflow.certificates] has entries   the entry of the datapath id, and no other
//!   otherwise                             the certificate of the first connection, which the database keeps ("pinned")
//!                                         a switch that came by TLS once is not believed without it any more
//! ```

use std::collections::BTreeMap;

use millrace_ix_model::SwitchId;
use millrace_ix_service::Handle;
use millrace_ix_store::{AuditEntry, sha256_hex};
use millrace_types::Dpid;
use serde_json::json;

/// Returns the key of the pinned certificate of a datapath id, among the values that the database keeps.
fn key(dpid: Dpid) -> String {
    format!("switch-certificate/{dpid}")
}

/// Checks that a connection may speak as a switch, by its certificate in DER. The certificate of the first connection is
/// pinned.
///
/// # Errors
/// The reason, for the log.
pub(crate) async fn check(
    handle: &Handle,
    switch: SwitchId,
    dpid: Dpid,
    certificate: Option<&[u8]>,
    inventory: &BTreeMap<String, String>,
) -> Result<(), String> {
    let found = certificate.map(sha256_hex);
    if !inventory.is_empty() {
        return check_inventory(dpid, found.as_deref(), inventory);
    }
    let new = found.clone();
    let pinned = handle.store(move |store, _| {
        let pinned = store.credential(&key(dpid))?;
        if let (None, Some(new)) = (&pinned, new) {
            store.put_credential(&key(dpid), Some(new.as_bytes()))?;
        }
        Ok(pinned)
    });
    let pinned = pinned
        .await
        .map_err(|error| format!("the certificate of the switch cannot be looked up: {error}"))?;
    match (pinned, found) {
        (None, None) => Ok(()),
        (None, Some(found)) => {
            tracing::warn!(%switch, %dpid, sha256 = found, "the first certificate of this switch is pinned: compare it with the switch's");
            let recorded = handle.record(entry("pin_certificate", switch, Some(&found)));
            recorded.await.map_err(|error| error.to_string())
        }
        (Some(pinned), Some(found)) if pinned == found.as_bytes() => Ok(()),
        (Some(_), Some(found)) => Err(format!(
            "the certificate {found} is not the one of the switch's first connection: if the switch has a new one, order \
             `millrace-ix forget-certificate {dpid}`"
        )),
        (Some(_), None) => Err(format!(
            "the switch is known by its certificate, and this connection has none: expected one to an ssl: listener, or \
             `millrace-ix forget-certificate {dpid}`"
        )),
    }
}

fn check_inventory(
    dpid: Dpid,
    found: Option<&str>,
    inventory: &BTreeMap<String, String>,
) -> Result<(), String> {
    let expected = inventory
        .get(&dpid.to_string())
        .ok_or("openflow.certificates has no certificate for this datapath id")?;
    let found = found.ok_or("the connection has no certificate, and openflow.certificates is set")?;
    if found.eq_ignore_ascii_case(expected) {
        Ok(())
    } else {
        Err("another certificate is registered for this datapath id in openflow.certificates".to_owned())
    }
}

/// Forgets the pinned certificate of a datapath id: the next connection brings a new one. Returns false if none was pinned.
///
/// # Errors
/// The database cannot be written.
pub(crate) async fn forget(handle: &Handle, dpid: Dpid) -> anyhow::Result<bool> {
    let snapshot = handle.snapshot();
    let mut switches = snapshot.exchange.switches.iter();
    let switch = switches.find(|(_, switch)| switch.dpid == dpid);
    let object = switch.map_or_else(|| dpid.to_string(), |(id, _)| id.to_string());
    let known = handle.store(move |store, _| store.credential(&key(dpid))).await?;
    if known.is_none() {
        return Ok(false);
    }
    handle
        .record(AuditEntry {
            object,
            ..entry("forget_certificate", SwitchId(0), None)
        })
        .await?;
    handle
        .store(move |store, _| store.put_credential(&key(dpid), None))
        .await?;
    Ok(true)
}

fn entry(action: &str, switch: SwitchId, sha256: Option<&str>) -> AuditEntry {
    AuditEntry {
        actor: "system".to_owned(),
        action: action.to_owned(),
        object: switch.to_string(),
        detail: sha256.map_or_else(|| json!({}), |sha256| json!({ "sha256": sha256 })),
    }
}
