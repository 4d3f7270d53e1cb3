//! The switch as the agent sees and changes it.

use std::collections::BTreeSet;

use millrace_api::client::{ChangeOptions, Client as Rest, ClientError};
use millrace_api::view::{
    Link, LinkState, Operation, Problem, Reconciliation, Revision, State, StateKind, Status as SwitchStatus,
};
use millrace_fleet::{Document, Fault, Outcome, Record, SCHEMA, Status, View, foreign};
use serde_json::Value as Json;

/// The number of revisions in which the one of a document is looked for after a restart.
const HISTORY_LEN: usize = 200;

/// The outcome of a document at the switch.
pub(super) enum Taken {
    /// This revision runs and waits for its confirmation.
    Pending(u64),
    /// It is what runs.
    Same(u64),
    /// Not now, for this reason.
    NotNow(String),
    /// Somebody changed the configuration meanwhile: read again.
    Stale,
    /// The switch refuses it.
    Refused(Vec<Fault>),
}

/// Returns what does not run, in words.
fn shortfalls(status: &SwitchStatus) -> impl Iterator<Item = String> + '_ {
    let problems = status.problems.iter();
    problems.map(|problem| format!("{}: {}", problem.subject, problem.message))
}

/// Returns what the switch says of itself.
pub(super) fn view(rest: &Rest) -> Result<View, ClientError> {
    let (status, ready) = (rest.status()?, rest.ready()?);
    let pending = rest.confirmation()?.pending.map(|pending| pending.revision);
    Ok(View {
        head: status.desired_revision,
        pending,
        running: status.running_revision,
        problems: shortfalls(&status).chain(ready.reasons).collect(),
    })
}

/// Returns the status for others.
pub(super) fn status(rest: &Rest, record: Option<&Record>) -> Status {
    let found = || -> Result<Status, ClientError> {
        let (version, status, ready) = (rest.version()?, rest.status()?, rest.ready()?);
        let owners = rest.owners()?.objects;
        let has_taken = record.is_some_and(|record| record.outcome == Outcome::Applied);
        Ok(Status {
            schema: SCHEMA,
            version: version.version,
            healthy: ready.ready && status.state == Reconciliation::Settled,
            revision: status.desired_revision,
            detached: has_taken && !owners.iter().any(|owned| owned.owner == "etcd"),
            links_down: links_down(rest)?,
            shortfalls: shortfalls(&status).collect(),
        })
    };
    found().unwrap_or_else(|error| Status {
        schema: SCHEMA,
        shortfalls: vec![format!("the switch: {error}")],
        ..Status::default()
    })
}

fn links_down(rest: &Rest) -> Result<Vec<String>, ClientError> {
    let state: State = rest.get("/api/v1/state?kinds=links")?;
    let links = state.state.get(&StateKind::Links).into_iter().flatten();
    let is_down = |value: &Json| {
        let link: Option<Link> = serde_json::from_value(value.clone()).ok();
        link.is_some_and(|link| link.link != LinkState::Up)
    };
    Ok(links
        .filter(|(_, value)| is_down(value))
        .map(|(name, _)| name.clone())
        .collect())
}

/// Returns the start of the comment of a document's revision.
fn mark(record: &Record) -> String {
    format!("document {} of epoch {}", record.mod_revision, record.epoch)
}

/// Returns what became of a document whose commit may have happened before a restart; `None` if it has not.
pub(super) fn found(rest: &Rest, record: &Record) -> Result<Option<(Outcome, u64)>, ClientError> {
    let revisions = rest.revisions(HISTORY_LEN)?;
    let is_own = |revision: &&Revision| {
        revision.origin == "etcd"
            && revision.external == Some(record.mod_revision)
            && revision.comment.starts_with(&mark(record))
    };
    let Some(own) = revisions.revisions.iter().find(is_own) else {
        return Ok(None);
    };
    if revisions
        .pending
        .is_some_and(|pending| pending.revision == own.number)
    {
        return Ok(Some((Outcome::Trying, own.number)));
    }
    let is_return = |revision: &Revision| {
        revision.number == own.number + 1
            && matches!(
                revision.operation,
                Operation::Expired { .. } | Operation::Cancelled { .. }
            )
    };
    let outcome = match revisions.revisions.iter().any(is_return) {
        true => Outcome::Returned,
        false => Outcome::Applied,
    };
    Ok(Some((outcome, own.number)))
}

/// Returns the errors of a document with objects of others.
pub(super) fn owned_by_others(rest: &Rest, document: &Document) -> Result<Vec<Fault>, ClientError> {
    let owners = rest.owners()?.objects;
    let pairs = owners
        .iter()
        .map(|owned| (owned.object.as_str(), owned.owner.as_str()));
    let fault = |(object, owner): (&str, &str)| {
        let detail = format!(
            "{} belongs to {owner}: `millrace fleet attach` on the switch gives it to etcd",
            object.replacen('/', " ", 1)
        );
        Fault::at(format!("/{object}"), detail)
    };
    Ok(foreign(&document.config, pairs).into_iter().map(fault).collect())
}

/// Gives a document to the switch, on top of the revision `base`.
pub(super) fn commit(rest: &Rest, document: &Document, record: &Record, base: u64) -> Taken {
    let comment = match document.comment.is_empty() {
        true => mark(record),
        false => format!("{}: {}", mark(record), document.comment),
    };
    let options = ChangeOptions {
        confirm_within: Some(document.confirm_within),
        author: document.author.clone(),
        comment,
        keep_others: true,
        origin: Some("etcd".to_owned()),
        external: Some(record.mod_revision),
        ..ChangeOptions::default()
    };
    let config = Json::Object(document.config.clone());
    match rest.replace_config(&config, Some(base), &options) {
        Ok(done) => match done.pending {
            Some(pending) => Taken::Pending(pending.revision),
            None => Taken::Same(done.revision.number),
        },
        Err(ClientError::Problem(problem)) => refused(&problem),
        Err(error) => Taken::NotNow(error.to_string()),
    }
}

fn refused(problem: &Problem) -> Taken {
    match (problem.status, problem.kind.as_ref()) {
        (412, _) => Taken::Stale,
        (400 | 413 | 422, _) | (409, "/problems/owned") => Taken::Refused(faults(problem)),
        _ => Taken::NotNow(problem.detail.clone()),
    }
}

fn faults(problem: &Problem) -> Vec<Fault> {
    match problem.errors.is_empty() {
        true => vec![Fault::whole(&problem.detail)],
        false => problem
            .errors
            .iter()
            .map(|error| Fault::at(&error.pointer, &error.detail))
            .collect(),
    }
}

/// Returns what did not run before a document.
pub(super) fn problems(rest: &Rest) -> BTreeSet<String> {
    view(rest).map(|view| view.problems).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use millrace_api::view::ProblemKind;

    #[test]
    fn what_may_succeed_later_is_no_refusal() {
        let of = |kind| refused(&Problem::new(kind, "x"));
        assert!(matches!(of(ProblemKind::Invalid), Taken::Refused(_)));
        assert!(matches!(of(ProblemKind::Owned), Taken::Refused(_)));
        assert!(matches!(of(ProblemKind::TooLarge), Taken::Refused(_)));
        assert!(matches!(of(ProblemKind::Conflict), Taken::NotNow(_)));
        assert!(matches!(of(ProblemKind::Locked), Taken::NotNow(_)));
        assert!(matches!(of(ProblemKind::Unauthorized), Taken::NotNow(_)));
        assert!(matches!(of(ProblemKind::Stale), Taken::Stale));
    }
}
