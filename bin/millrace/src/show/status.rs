//! `millrace show status`: the desired and the running state, and the problems between them.

use millrace_api::client::{Client, ClientError};
use millrace_api::view::{self, format_utc};
use serde::Serialize;

use crate::human::{or_dash, span};

/// The content of `show status`.
#[derive(Serialize)]
pub(super) struct Status {
    version: view::Version,
    ready: view::Ready,
    status: view::Status,
    pending: Option<view::ConfirmPending>,
}

/// Reads the status from the daemon.
pub(super) fn status(client: &Client) -> Result<Status, ClientError> {
    Ok(Status {
        version: client.version()?,
        ready: client.ready()?,
        status: client.status()?,
        pending: client.confirmation()?.pending,
    })
}

impl Status {
    /// Returns the status in words.
    pub(super) fn text(&self) -> String {
        let Status {
            version,
            ready,
            status,
            pending,
        } = self;
        let dpdk = match &version.dpdk {
            None => "built without DPDK".to_owned(),
            Some(dpdk) if !dpdk.used => format!("DPDK {} not used (--no-dpdk)", dpdk.version),
            Some(dpdk) if dpdk.huge_pages => format!("DPDK {} with huge pages", dpdk.version),
            Some(dpdk) => format!("DPDK {} without huge pages", dpdk.version),
        };
        let mut lines = vec![
            format!(
                "millrace {}, {dpdk}, up {}",
                version.version,
                span(version.uptime_seconds)
            ),
            if ready.ready {
                "ready".to_owned()
            } else {
                format!("not ready: {}", ready.reasons.join("; "))
            },
            format!(
                "configuration: revision {} desired, {} running, {}",
                status.desired_revision,
                or_dash(status.running_revision),
                match status.state {
                    view::Reconciliation::Settled => "settled",
                    view::Reconciliation::Working => "being changed",
                    view::Reconciliation::Degraded => "degraded",
                }
            ),
        ];
        if let Some(pending) = pending {
            lines.push(format!(
                "revision {} is rolled back at {} unless `millrace confirm` is run before",
                pending.revision,
                format_utc(pending.deadline)
            ));
        }
        lines.extend(status.problems.iter().map(problem));
        if !status.restart_needed_for.is_empty() {
            lines.push(format!(
                "a restart of millraced is needed for {}",
                status.restart_needed_for.join(", ")
            ));
        }
        lines.join("\n") + "\n"
    }
}

fn problem(problem: &view::StatusProblem) -> String {
    format!(
        "! {}: {}\n  to fix it: {}",
        problem.subject, problem.message, problem.next_step
    )
}

/// Returns the differences between the desired and the running state as `show status` prints them.
pub(crate) fn problems(list: &[view::StatusProblem]) -> String {
    list.iter().map(|item| problem(item) + "\n").collect()
}
