//! Check of the daemon: it responds, and reports its problems.

use millrace_api::client::ClientError;
use millrace_api::view::Reconciliation;
use millrace_types::ErrorChain;

use super::finding::Finding;
use crate::output::Session;

pub(super) fn answers(session: &Session) -> Finding {
    const SUBJECT: &str = "millraced";
    let status = session
        .client()
        .and_then(|client| Ok((client.version()?, client.status()?)));
    match status {
        Ok((version, status)) if status.state == Reconciliation::Settled => Finding::good(
            SUBJECT,
            format!(
                "{} responds, revision {} runs",
                version.version, status.desired_revision
            ),
        ),
        Ok((version, status)) => {
            let problem = |problem: &millrace_api::view::StatusProblem| {
                format!(
                    "{}: {} (to fix it: {})",
                    problem.subject, problem.message, problem.next_step
                )
            };
            let problems: Vec<String> = status.problems.iter().map(problem).collect();
            let found = format!(
                "{} responds, but does not run completely as configured",
                version.version
            );
            let next_step = if problems.is_empty() {
                "a change is being applied: run `millrace doctor` again".to_owned()
            } else {
                problems.join("\n")
            };
            Finding::note(SUBJECT, found, next_step)
        }
        Err(error) if matches!(error.downcast_ref(), Some(ClientError::Unreachable { .. })) => Finding::note(
            SUBJECT,
            format!("does not respond at {}", session.api()),
            "start it: sudo millraced --config FILE; if it has another address: millrace --api URL doctor",
        ),
        Err(error) => Finding::note(
            SUBJECT,
            ErrorChain(error.as_ref()).to_string(),
            "see --api, --token-file and --ca in `millrace --help`",
        ),
    }
}
