//! The start page: tasks of the user, and numbers of objects by state.

use axum::Json;
use axum::extract::State;
use millrace_ix_model::state::Severity as ModelSeverity;
use millrace_ix_model::{
    Consent, ObjectId, OperationKind, Quarantine, Service, ServiceId, ServiceKind, Timestamp,
};

use super::services::readable;
use crate::access::Principal;
use crate::app::App;
use crate::observed::Target;
use crate::problem::Problem;
use crate::render::{ViewContext, word};
use crate::service::SwitchState;
use crate::view::{Load, Overview, Severity, Task};

/// The time before the expiry of a MAC address at which the expiry becomes a task.
const SOON: std::time::Duration = std::time::Duration::from_secs(24 * 3600);

/// The minimum rate of a destination that counts as attacked, in bit/s.
const ATTACK_BPS_MIN: u64 = 100_000_000;
/// A destination counts as attacked if its rate is more than this multiple of its usual rate.
const ATTACK_FACTOR: u64 = 5;

/// The time after which a switch that still differs from the plan needs attention: the engine reconciles within a minute,
/// and tries a refused entry again after at most another one.
const DIFFERS_AFTER: std::time::Duration = std::time::Duration::from_secs(120);

/// Read what needs attention
#[utoipa::path(get, path = "/api/v1/overview", tag = "overview",
    responses((status = 200, body = Overview), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn overview(
    State(app): State<App>,
    principal: Principal,
) -> Result<Json<Overview>, Problem> {
    let now = app.now();
    let scope = ViewContext::new(&principal, now);
    let exchange = &principal.snapshot.exchange;
    let mut services = readable(&principal);
    let mut tasks = service_tasks(&principal, &scope, &services, now);
    // Every member may read every peering LAN, but the LANs that it has not joined are not its own services.
    let index = principal.snapshot.index();
    services.retain(|(id, service)| {
        let mut ends = index.by_service.get(id).into_iter().flatten();
        service.kind != ServiceKind::ExchangeLan
            || principal.actor.is_operator()
            || ends.any(|end| principal.may_read(*end))
    });
    let readable = exchange
        .connections
        .iter()
        .filter(|(id, _)| principal.may_read(**id));
    let connections: Vec<_> = readable.collect();
    for (id, connection) in &connections {
        if scope.connection_state(connection) == "down" {
            let mut fault = task("connection_down", **id, &connection.name, Severity::Error);
            if principal.actor.is_operator() {
                fault.account = Some(scope.account_name(connection.account));
            }
            tasks.push(fault);
        }
    }
    if let Some(own) = principal
        .actor
        .account
        .filter(|own| principal.may(OperationKind::ReadSamples, *own))
    {
        let targets = app.engine.targets(own);
        for target in targets.iter().filter(|target| is_attacked(target)) {
            tasks.push(task("attack", own, &target.prefix.to_string(), Severity::Error));
        }
    }
    let fabric = principal.may_somewhere(OperationKind::ReadFabric);
    let (mut switches, mut trunks, mut changes_open) = (Vec::new(), Vec::new(), 0);
    if fabric {
        let unwritable = principal.snapshot.unwritable.iter();
        tasks.extend(unwritable.map(|reason| {
            let mut fault = task("database_unwritable", "engine", reason, Severity::Error);
            fault.since = principal.snapshot.silent_since.map(|since| since.to_string());
            fault
        }));
        for (id, switch) in &exchange.switches {
            let state = principal.snapshot.switches.get(id).map(|health| health.state);
            switches.push(state.map_or("unknown", SwitchState::name).to_owned());
            let since = principal
                .snapshot
                .switches
                .get(id)
                .and_then(|health| health.since);
            let fault = match state {
                Some(SwitchState::Unreachable) => Some("switch_unreachable"),
                Some(SwitchState::Drifted) => Some("switch_drifted"),
                Some(SwitchState::Syncing)
                    if since.is_some_and(|since| now.since(since) >= DIFFERS_AFTER) =>
                {
                    Some("switch_differs")
                }
                _ => None,
            };
            if let Some(word) = fault.filter(|_| !switch.retired) {
                let mut fault = task(word, *id, &switch.name, Severity::Error);
                fault.since = since.map(|time| time.to_string());
                fault.members = Some(scope.members_at(*id));
                tasks.push(fault);
            }
        }
        if let Some(switch) = principal.snapshot.read_only() {
            let name = exchange.switches.get(&switch).map(|switch| switch.name.clone());
            tasks.push(task(
                "read_only",
                switch,
                &name.unwrap_or_default(),
                Severity::Error,
            ));
        }
        for (id, trunk) in &exchange.trunks {
            let up = scope.trunk_up(*id);
            let state = match up {
                Some(false) => "down",
                _ if trunk.drained => "drained",
                Some(true) => "up",
                None => "unknown",
            };
            trunks.push(state.to_owned());
            if up == Some(false) {
                let mut fault = task("trunk_down", *id, &trunk.name, Severity::Error);
                fault.members = Some(scope.members_cut_off(trunk));
                tasks.push(fault);
            }
        }
        changes_open = app.engine.changes_open().len();
    }
    let mut load = None;
    if fabric {
        // An approval is a task for every operator except the one who requested it.
        for (id, approval) in &exchange.approvals {
            let view = scope.approval(*id, approval);
            if !view.own {
                tasks.push(task("approval", *id, &view.name, Severity::Warning));
            }
        }
        let loads = app.engine.loads();
        let mut of_connections = connections
            .iter()
            .filter_map(|(id, _)| loads.get(&ObjectId::from(**id)))
            .peekable();
        if of_connections.peek().is_some() {
            load = Some(of_connections.fold(
                Load {
                    in_bps: 0,
                    out_bps: 0,
                },
                |sum, one| Load {
                    in_bps: sum.in_bps.saturating_add(one.in_bps),
                    out_bps: sum.out_bps.saturating_add(one.out_bps),
                },
            ));
        }
    }
    tasks.sort_by(|a, b| (a.severity, &a.task, &a.object).cmp(&(b.severity, &b.task, &b.object)));
    Ok(Json(Overview {
        tasks,
        services: ViewContext::count(
            services
                .iter()
                .map(|(id, service)| word(&scope.shown(*id, service).state)),
        ),
        connections: ViewContext::count(
            connections
                .iter()
                .map(|(_, connection)| scope.connection_state(connection).to_owned()),
        ),
        switches: ViewContext::count(switches.into_iter()),
        trunks: ViewContext::count(trunks.into_iter()),
        changes_open,
        load,
        at: now.to_string(),
        revision: principal.snapshot.revision,
    }))
}

/// Returns true if the rate to a destination is much greater than its usual rate; false if the usual rate is
/// unknown.
fn is_attacked(target: &Target) -> bool {
    let is_unusual = |usual| target.bits_per_s / ATTACK_FACTOR > usual;
    target.bits_per_s > ATTACK_BPS_MIN && target.usual_bits_per_s.is_some_and(is_unusual)
}

fn task(task: &str, object: impl ToString + Copy, name: &str, severity: Severity) -> Task {
    Task {
        task: task.to_owned(),
        object: object.to_string(),
        name: name.to_owned(),
        account: None,
        severity,
        until: None,
        since: None,
        members: None,
    }
}

/// Returns the tasks that the services give to the actor's account.
fn service_tasks(
    principal: &Principal,
    scope: &ViewContext<'_>,
    services: &[(ServiceId, &Service)],
    now: Timestamp,
) -> Vec<Task> {
    let exchange = &principal.snapshot.exchange;
    let index = principal.snapshot.index();
    let own = principal.actor.account;
    let mut tasks = Vec::new();
    for &(id, service) in services {
        let ends = index.by_service.get(&id).map(Vec::as_slice).unwrap_or_default();
        let configs = || {
            ends.iter()
                .filter_map(|end| Some((*end, exchange.configs.get(end)?)))
        };
        let has_own_end = configs().any(|(_, config)| Some(config.account) == own);
        if service.peer.is_some() && service.peer == own && service.consent == Consent::Pending {
            let mut invitation = task("accept", id, &service.name, Severity::Warning);
            invitation.account = Some(scope.account_name(service.account));
            tasks.push(invitation);
        } else if Some(service.account) == own
            && service.kind == ServiceKind::P2pVc
            && !has_own_end
            && !matches!(service.consent, Consent::Refused { .. })
            && service.state.is_carried()
        {
            tasks.push(task("configure_end", id, &service.name, Severity::Warning));
        }
        if Some(service.account) == own && matches!(service.consent, Consent::Refused { .. }) {
            tasks.push(task("refused", id, &service.name, Severity::Info));
        }
        for status in scope.shown(id, service).status {
            match (status.tag, status.severity) {
                ("degraded" | "missing", _) => {
                    tasks.push(task("degraded", id, &service.name, Severity::Error));
                }
                ("quarantine_failing", ModelSeverity::Error) => {
                    tasks.push(task("quarantine_failing", id, &service.name, Severity::Error));
                }
                _ => {}
            }
        }
        for (end, config) in configs().filter(|(end, _)| principal.may(OperationKind::AddMac, *end)) {
            let is_failing = tasks
                .last()
                .is_some_and(|task| task.task == "quarantine_failing" && task.object == id.to_string());
            if matches!(config.quarantine, Quarantine::Running { .. }) && !is_failing {
                tasks.push(task("quarantine", id, &service.name, Severity::Info));
            }
            let macs = index.macs.get(&end).map(Vec::as_slice).unwrap_or_default();
            for until in macs.iter().filter_map(|mac| exchange.macs.get(mac)?.valid_until) {
                if until > now && until.since(now) < SOON {
                    let mut ends = task("mac_ends", id, &service.name, Severity::Warning);
                    ends.until = Some(until.to_string());
                    tasks.push(ends);
                }
            }
        }
    }
    tasks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_destination_is_attacked_only_if_its_usual_rate_is_known_and_exceeded() {
        let target = |bits_per_s, usual_bits_per_s| Target {
            prefix: "203.0.113.7/32".parse().unwrap(),
            bits_per_s,
            usual_bits_per_s,
        };
        assert!(is_attacked(&target(1_000_000_000, Some(0))));
        assert!(is_attacked(&target(1_000_000_000, Some(100_000_000))));
        assert!(!is_attacked(&target(1_000_000_000, Some(300_000_000))));
        assert!(!is_attacked(&target(90_000_000, Some(0))));
        assert!(!is_attacked(&target(1_000_000_000, None)));
    }
}
