//! `commit` and `cancel-commit` (RFC 6241, sections 8.3.4 and 8.4).
//!
//! A confirmed commit is a commit of the switch that rolls itself back: it outlives this process and the daemon. `persist` is
//! in the comment of the revision, as a digest, so that another session confirms it after any restart.

use std::time::{Duration, Instant};

use millrace_yang::data::completed;
use millrace_yang::datastore::{Change, Pending, confirmation_comment, is_confirmed_by};
use millrace_yang::schema::configuration;
use millrace_yang::xml::Element;

use super::context::{Context, Outcome, candidate, invalid, one, unlocked};
use crate::CONFIRMED_COMMIT;
use crate::reply::{Reply, RpcError};
use crate::shared::{State, Trial};

/// The time for a confirmation unless the client gives one, in seconds (RFC 6241, section 8.4.1).
const CONFIRM_TIMEOUT_S: u64 = 600;

struct Request {
    confirmed: Option<u64>,
    persist: Option<String>,
    persist_id: Option<String>,
}

impl Request {
    fn of(operation: &Element) -> Result<Request, Vec<RpcError>> {
        let text = |name: &str| operation.child(name).map(|child| child.trimmed().to_owned());
        let is_confirmed = operation.child("confirmed").is_some();
        let timeout = match text("confirm-timeout") {
            None => CONFIRM_TIMEOUT_S,
            Some(text) => text
                .parse()
                .ok()
                .filter(|seconds| (1..=86_400).contains(seconds))
                .ok_or_else(|| invalid("confirm-timeout: expected 1 to 86400 seconds"))?,
        };
        let persist = text("persist");
        if persist.is_some() && !is_confirmed {
            return Err(invalid("persist: expected with confirmed; persist-id confirms"));
        }
        Ok(Request {
            confirmed: is_confirmed.then_some(timeout),
            persist,
            persist_id: text("persist-id"),
        })
    }
}

/// Checks that this session may act on the pending commit.
fn own(pending: &Pending, persist_id: Option<&str>, context: &Context<'_>) -> Result<(), Vec<RpcError>> {
    let is_own = match persist_id {
        Some(id) => is_confirmed_by(&pending.comment, CONFIRMED_COMMIT, id),
        None => *context.unconfirmed == Some(pending.revision),
    };
    match (is_own, persist_id) {
        (true, _) => Ok(()),
        (false, Some(_)) => Err(invalid("persist-id is not that of the pending commit")),
        (false, None) => {
            let message = format!(
                "revision {} of another session waits for its confirmation: expected its persist-id",
                pending.revision
            );
            Err(vec![RpcError::new("application", "in-use", message)])
        }
    }
}

/// Ends the confirmed commit that changed nothing. Returns false if there is none that this session may act on.
fn takes_trial(state: &mut State, session: u32, persist_id: Option<&str>) -> bool {
    let taken = state.trial.take_if(|trial| trial.is_of(session, persist_id));
    taken.is_some()
}

pub(super) fn commit(operation: &Element, context: &mut Context<'_>) -> Outcome {
    let request = Request::of(operation)?;
    // Held until the switch has answered: two sessions that commit the candidate commit it once.
    let mut state = context.shared.state();
    unlocked(&state, context.id)?;
    let pending = context.store.pending().map_err(one)?;
    let persist_id = request.persist_id.as_deref();
    match &pending {
        Some(pending) => own(pending, persist_id, context)?,
        None if takes_trial(&mut state, context.id, persist_id) => {}
        None if persist_id.is_some() => {
            return Err(invalid("persist-id: no commit waits for its confirmation"));
        }
        None => {}
    }
    let has_changes = state.candidate.is_some();
    if let (None, Some(pending), false) = (request.confirmed, &pending, has_changes) {
        context.store.confirm(pending.revision).map_err(one)?;
        *context.unconfirmed = None;
        return Ok(Reply::Ok);
    }
    if request.confirmed.is_none() && !has_changes {
        return Ok(Reply::Ok);
    }
    let wanted = candidate(&state, context.store)?;
    let persist = request.persist.as_deref().or(request.persist_id.as_deref());
    let change = Change {
        dry_run: false,
        // A commit that confirms a pending one and has further changes is confirmed below, at once.
        confirm_within: request
            .confirmed
            .or_else(|| pending.as_ref().map(|_| CONFIRM_TIMEOUT_S)),
        comment: match (request.confirmed, persist) {
            (Some(_), Some(id)) => confirmation_comment(CONFIRMED_COMMIT, id),
            (Some(_), None) => CONFIRMED_COMMIT.to_owned(),
            (None, _) => "NETCONF commit".to_owned(),
        },
    };
    let document = completed(configuration(), &wanted.document);
    let revision = context
        .store
        .replace(&document, wanted.base, &change)
        .map_err(one)?;
    state.candidate = None;
    if let Some(seconds) = request.confirmed
        && context.store.pending().map_err(one)?.is_none()
    {
        state.trial = Some(Trial {
            session: context.id,
            persist: persist.map(str::to_owned),
            until: Instant::now() + Duration::from_secs(seconds),
        });
        return Ok(Reply::Ok);
    }
    *context.unconfirmed = (request.confirmed.is_some() && persist.is_none()).then_some(revision);
    if request.confirmed.is_none() && pending.is_some() {
        context.store.confirm(revision).map_err(one)?;
    }
    Ok(Reply::Ok)
}

pub(super) fn cancel(operation: &Element, context: &mut Context<'_>) -> Outcome {
    let persist_id = operation.child("persist-id").map(Element::trimmed);
    let Some(pending) = context.store.pending().map_err(one)? else {
        if takes_trial(&mut context.shared.state(), context.id, persist_id) {
            return Ok(Reply::Ok);
        }
        let message = "no commit waits for its confirmation";
        return Err(vec![RpcError::new("application", "operation-failed", message)]);
    };
    own(&pending, persist_id, context)?;
    context
        .store
        .cancel(pending.revision, "NETCONF cancel-commit")
        .map_err(one)?;
    *context.unconfirmed = None;
    Ok(Reply::Ok)
}
