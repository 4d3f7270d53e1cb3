//! The drift of a switch: its entries that differ from the plan, now and at earlier comparisons.

use axum::Json;
use axum::extract::State;
use millrace_ix_engine::Drift;
use millrace_ix_model::{OperationKind, SwitchId, Timestamp};
use millrace_ix_service::{self as service, EntryOwner, FabricKey};
use serde::Serialize;
use utoipa::ToSchema;

use crate::access::Access;
use crate::app::App;
use crate::problem::Problem;

/// The number of present differences that an answer names.
const NAMED_MAX: usize = 100;

/// The drift of a switch, without entries of changes in progress.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct SwitchDrift {
    /// The number of entries that differ from the plan now.
    differing: usize,
    /// The first 100 of them.
    entries: Vec<DriftedEntry>,
    /// The last comparisons since the start of the engine that have found differences, the newest first; at most 20.
    findings: Vec<DriftFinding>,
}

/// A comparison of a switch with the plan that has found differences.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct DriftFinding {
    /// The time of the comparison.
    found_at: String,
    /// The number of entries that differed, with those of changes in progress.
    differing: usize,
    /// True if somebody beside the engine has changed the switch during its connection.
    by_another: bool,
    /// The first 20 of the entries, without those of changes in progress.
    entries: Vec<DriftedEntry>,
    /// The time at which the switch equalled the plan again; null while it differs.
    #[schema(required)]
    mended_at: Option<String>,
}

/// An entry of a switch that differs from the plan.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct DriftedEntry {
    /// `flow`, `group` or `meter`.
    kind: &'static str,
    /// The table of a flow entry; null for groups and meters.
    #[schema(required)]
    table: Option<u8>,
    /// The priority of a flow entry; null for groups and meters.
    #[schema(required)]
    priority: Option<u16>,
    /// The number of a group or meter; null for flow entries.
    #[schema(required)]
    number: Option<u32>,
    /// The match of a flow entry, as ovs-ofctl prints it; null for groups and meters.
    #[schema(required)]
    matching: Option<String>,
    /// `added`, `removed` or `changed`, at the switch.
    difference: &'static str,
    /// The owner of a flow entry: `service`, `end`, `filter` or `switch`; null if it is unknown.
    #[schema(required)]
    owner: Option<&'static str>,
    /// The service, end or filter.
    #[schema(required)]
    object: Option<String>,
    /// The name of the service, of the connection of an end, or of the account of a filter.
    #[schema(required)]
    name: Option<String>,
}

/// Read the entries of a switch that differ from the plan, now and at earlier comparisons
#[utoipa::path(get, path = "/api/v1/switches/{id}/drift", tag = "fabric", params(("id" = String, Path, description = "The switch")),
    responses((status = 200, body = SwitchDrift), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn read(
    State(app): State<App>,
    access: Access<SwitchId>,
) -> Result<Json<SwitchDrift>, Problem> {
    access.require(OperationKind::ReadFabric)?;
    access.object()?;
    let now = app.engine.drift(access.id(), NAMED_MAX).await?;
    let findings = access.principal().snapshot.drift_findings(access.id());
    Ok(Json(SwitchDrift {
        differing: now.total,
        entries: now.entries.iter().map(drifted).collect(),
        findings: findings.map(finding).collect(),
    }))
}

fn finding(found: &service::DriftFinding) -> DriftFinding {
    let time = |at: millrace_ix_store::UnixMillis| Timestamp::from_millis(at.0).to_string();
    DriftFinding {
        found_at: time(found.found_at),
        differing: found.entries,
        by_another: found.by_another,
        entries: found.named.iter().map(drifted).collect(),
        mended_at: found.mended_at.map(time),
    }
}

fn drifted(found: &service::DriftedEntry) -> DriftedEntry {
    let (kind, flow, number) = match &found.key {
        FabricKey::Flow(flow) => ("flow", Some(flow), None),
        FabricKey::Group(group) => ("group", None, Some(group.0)),
        FabricKey::Meter(meter) => ("meter", None, Some(meter.0)),
    };
    let matching = flow.and_then(|flow| flow.matching.to_match().ok());
    let (owner, name) = match &found.owner {
        Some(EntryOwner::Service { name, .. }) => (Some("service"), Some(name)),
        Some(EntryOwner::End { connection, .. }) => (Some("end"), Some(connection)),
        Some(EntryOwner::Filter { account, .. }) => (Some("filter"), Some(account)),
        Some(EntryOwner::Base) => (Some("switch"), None),
        None => (None, None),
    };
    DriftedEntry {
        kind,
        table: flow.map(|flow| flow.table.0),
        priority: flow.map(|flow| flow.priority.0),
        number,
        matching: matching.map(|matching| matching.to_string()),
        difference: match found.drift {
            Drift::Added => "added",
            Drift::Removed => "removed",
            Drift::Changed => "changed",
        },
        owner,
        object: found
            .owner
            .as_ref()
            .and_then(EntryOwner::object)
            .map(|id| id.to_string()),
        name: name.cloned(),
    }
}
