//! Answers to the command line, as JSON.

use anyhow::{Result, bail};
use millrace_ix_engine::{Mode, SyncState};
use millrace_ix_model::{ObjectId, Quarantine, ServiceId};
use millrace_ix_service::{ClockJump, ClockStatus, Ordered, Snapshot};
use serde_json::{Value, json};

/// Returns the outcome of an order.
pub(super) fn order(ordered: &Ordered) -> Value {
    json!({
        "change": ordered.change, "revision": ordered.revision, "applied": ordered.applied,
        "deletions": ordered.deletions, "problems": ordered.problems,
        "entries": ordered.entries, "effects": ordered.effects, "repeated": ordered.repeated,
    })
}

/// Returns the state of the engine's clock.
pub(super) fn clock(status: &ClockStatus) -> Value {
    let jump = |jump: &ClockJump| json!({"time": jump.at, "millis": jump.millis, "text": jump.to_string()});
    json!({
        "time": status.time, "ahead_millis": status.ahead_millis,
        "jumps": status.jumps.iter().map(jump).collect::<Vec<_>>(),
    })
}

/// Returns the mode, the switches, the trunks and the open changes.
pub(super) fn status(snapshot: &Snapshot) -> Value {
    let mode = match snapshot.mode {
        Mode::Normal => json!({"name": "normal"}),
        Mode::ReadOnly { switch, theirs, ours } => {
            json!({"name": "read_only", "switch": format!("sw-{switch}"), "their_revision": theirs, "revision": ours})
        }
    };
    let switches: Vec<Value> = snapshot
        .exchange
        .switches
        .iter()
        .map(|(id, switch)| {
            let status = snapshot.switches.get(id);
            let (state, differing) = match status.map(|status| status.state) {
                None | Some(SyncState::Disconnected) => ("disconnected", None),
                Some(SyncState::Unknown) => ("unknown", None),
                Some(SyncState::Known { differing: 0 }) => ("in_sync", Some(0)),
                Some(SyncState::Known { differing }) => ("differs", Some(differing)),
            };
            json!({
                "id": id, "name": switch.name, "dpid": switch.dpid.to_string(), "state": state, "differing": differing,
                "entries": status.map(|status| status.entries), "foreign": status.map(|status| status.foreign),
            })
        })
        .collect();
    let changes: Vec<Value> = snapshot
        .changes
        .iter()
        .map(|change| {
            let switches: Vec<String> = change
                .switches
                .iter()
                .map(|switch| format!("sw-{switch}"))
                .collect();
            json!({
                "id": change.change, "phase": format!("{:?}", change.phase).to_lowercase(),
                "waits_for_switches": switches, "waits_for_changes": change.changes,
                "objects": snapshot.change_objects.get(&change.change),
            })
        })
        .collect();
    let word = |up: Option<bool>| up.map_or("unknown", |up| if up { "up" } else { "down" });
    let trunks: Vec<Value> = snapshot
        .exchange
        .trunks
        .iter()
        .map(|(id, trunk)| {
            json!({
                "id": id, "name": trunk.name, "ends": trunk.ends, "drained": trunk.drained,
                "state": word(snapshot.trunk_up(*id)),
            })
        })
        .collect();
    json!({
        "mode": mode, "revision": snapshot.revision, "switches": switches, "trunks": trunks, "changes": changes,
    })
}

/// Returns the ends in quarantine, with what was found there.
pub(super) fn quarantine(snapshot: &Snapshot) -> Value {
    let configs = snapshot.exchange.configs.iter();
    let ends = configs.filter_map(|(id, config)| {
        let Quarantine::Running { clean_since } = config.quarantine else {
            return None;
        };
        let list = snapshot.quarantine.get(id);
        let findings: Vec<Value> = list
            .into_iter()
            .flat_map(|list| &list.findings)
            .map(|finding| {
                let frame: String = finding.frame.iter().map(|byte| format!("{byte:02x}")).collect();
                json!({
                    "at": finding.at, "check": finding.check, "text": finding.text, "count": finding.count, "frame": frame,
                })
            })
            .collect();
        Some(json!({
            "end": id, "service": config.service, "connection": config.connection, "account": config.account,
            "clean_since": clean_since, "seen": list.is_some_and(millrace_ix_service::Quarantined::is_seen), "findings": findings,
        }))
    });
    ends.collect()
}

/// Returns a service with its ends; `None` if there is none.
pub(super) fn service(snapshot: &Snapshot, id: ServiceId) -> Option<Value> {
    let service = snapshot.exchange.services.get(&id)?;
    let ends: Vec<_> = snapshot.exchange.ends(id).collect();
    let shown = snapshot.shown(id)?;
    let ends: Vec<Value> = ends
        .iter()
        .map(|(end, config)| {
            json!({
                "id": end, "connection": config.connection, "vlan": config.vlan.to_string(),
                "capacity_mbps": config.capacity_mbps,
            })
        })
        .collect();
    Some(json!({
        "id": id, "name": service.name, "kind": service.kind, "account": service.account, "peer": service.peer,
        "generation": service.generation, "state": shown.state, "status": shown.status, "ends": ends,
    }))
}

/// Returns the objects whose identifier is the prefix or begins with its letters; all without a prefix.
pub(super) fn objects(snapshot: &Snapshot, prefix: Option<&str>) -> Result<Value> {
    if let Some(prefix) = prefix {
        match prefix.parse::<ObjectId>() {
            Ok(id) if snapshot.exchange.object(id).is_none() => {
                bail!("there is no {id}: `millrace-ix objects` lists all objects");
            }
            // The number 1 stands for any: the prefix is the first part of an identifier.
            Err(error) if format!("{prefix}-1").parse::<ObjectId>().is_err() => {
                bail!("{error}, or a prefix of identifiers, such as cn");
            }
            _ => {}
        }
    }
    let is_wanted = |id: &ObjectId| {
        let text = id.to_string();
        prefix.is_none_or(|prefix| text == prefix || text.split('-').next() == Some(prefix))
    };
    let objects = snapshot.exchange.ids().filter(is_wanted);
    let values = objects
        .filter_map(|id| {
            let mut value = serde_json::to_value(snapshot.exchange.object(id)?).ok()?;
            let members = value.as_object_mut()?;
            members.insert("id".to_owned(), json!(id));
            members.insert("revision".to_owned(), json!(snapshot.revisions.of(id)));
            Some(value)
        })
        .collect();
    Ok(values)
}
