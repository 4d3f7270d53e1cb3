//! The state of the follower of an Open vSwitch database.

use millrace_api::view;
use millrace_ovs::Severity;
use millrace_ovs_follower::{Phase, Status};

/// Returns the problems for `millrace show status`: a database that is not followed, and rows that are not in effect.
pub(super) fn problems(status: &Status) -> Vec<view::StatusProblem> {
    let mut problems = Vec::new();
    let server = status.server.as_deref().unwrap_or_default();
    let of_server = match (status.phase, &status.last_error) {
        (Phase::Connecting, Some(error)) => {
            Some((error.clone(), "start ovsdb-server, or unset `connect` of [ovsdb]"))
        }
        (Phase::WaitingForLock, _) => Some((
            "another process holds the lock ovs_vswitchd".to_owned(),
            "stop ovs-vswitchd; this switch takes the lock then",
        )),
        (Phase::Following, _) => status
            .waits_for
            .clone()
            .map(|reason| (reason, "it is tried again")),
        _ => None,
    };
    problems.extend(of_server.map(|(message, next_step)| view::StatusProblem {
        subject: format!("ovsdb {server}"),
        message,
        next_step: next_step.to_owned(),
    }));
    let refused = status
        .faults
        .iter()
        .filter(|fault| fault.severity == Severity::Refused);
    problems.extend(refused.map(|fault| view::StatusProblem {
        subject: format!("ovsdb, {}", fault.row),
        message: fault.reason.clone(),
        next_step: "change the row, as with ovs-vsctl (docs/ovsdb.md)".to_owned(),
    }));
    problems
}

/// Returns the view of the follower.
pub(super) fn view(status: Status) -> view::Ovsdb {
    view::Ovsdb {
        server: status.server,
        state: match status.phase {
            Phase::Off => view::OvsdbState::Off,
            Phase::Connecting => view::OvsdbState::Connecting,
            Phase::WaitingForLock => view::OvsdbState::WaitingForLock,
            Phase::Following => view::OvsdbState::Following,
        },
        since_seconds: status.since.map_or(0.0, |since| since.elapsed().as_secs_f64()),
        last_error: status.last_error,
        waits_for: status.waits_for,
        next_cfg: status.next_cfg,
        cur_cfg: status.cur_cfg,
        rows: status.rows as u64,
        memory_bytes: status.memory as u64,
        connections: status.connections,
        transactions: status.transactions,
        faults: status
            .faults
            .into_iter()
            .map(|fault| view::OvsdbFault {
                row: fault.row.to_string(),
                refused: fault.severity == Severity::Refused,
                reason: fault.reason,
            })
            .collect(),
    }
}
