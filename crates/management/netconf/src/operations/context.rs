//! The common parts of operations: the session that asks, its parameters, and the documents.

use millrace_yang::data::trimmed;
use millrace_yang::datastore::{Client, Datastore};
use millrace_yang::schema::configuration;
use millrace_yang::xml::{Attribute, Element};

use crate::notification::Subscription;
use crate::reply::{Reply, RpcError};
use crate::shared::{Candidate, Shared, State};

/// The session that asks, and what it may use.
pub(crate) struct Context<'a> {
    pub(crate) id: u32,
    pub(crate) client: &'a Client,
    pub(crate) shared: &'a Shared,
    pub(crate) store: &'a mut dyn Datastore,
    /// The revision of a confirmed commit of this session without `persist`.
    pub(crate) unconfirmed: &'a mut Option<u64>,
    pub(crate) subscription: &'a mut Option<Subscription>,
    /// The attributes of `rpc`, which may declare the prefixes of a filter.
    pub(crate) attributes: &'a [Attribute],
}

pub(super) type Outcome = Result<Reply, Vec<RpcError>>;

pub(super) fn shortened(text: &str) -> String {
    text.chars().take(64).collect()
}

pub(super) fn unknown(element: &Element) -> Vec<RpcError> {
    let message = format!(
        "the operation has no parameter `{}` here",
        shortened(&element.name)
    );
    vec![
        RpcError::new("protocol", "unknown-element", message)
            .with_info("bad-element", shortened(&element.name)),
    ]
}

pub(super) fn missing(name: &str) -> Vec<RpcError> {
    let message = format!("the element `{name}` is missing");
    vec![RpcError::new("protocol", "missing-element", message).with_info("bad-element", name)]
}

pub(super) fn invalid(message: impl Into<String>) -> Vec<RpcError> {
    vec![RpcError::new("protocol", "invalid-value", message)]
}

pub(super) fn one(error: impl Into<RpcError>) -> Vec<RpcError> {
    vec![error.into()]
}

/// A datastore that an operation names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Name {
    Running,
    Candidate,
}

/// Returns the element inside of `source` or `target`.
pub(super) fn named<'a>(operation: &'a Element, parameter: &str) -> Result<&'a Element, Vec<RpcError>> {
    let parameter = operation.child(parameter).ok_or_else(|| missing(parameter))?;
    parameter
        .children
        .first()
        .ok_or_else(|| missing("running or candidate"))
}

pub(super) fn datastore(element: &Element) -> Result<Name, Vec<RpcError>> {
    match element.name.as_str() {
        "running" => Ok(Name::Running),
        "candidate" => Ok(Name::Candidate),
        _ => Err(unknown(element)),
    }
}

/// Returns the candidate, or `running` as an unchanged one.
pub(super) fn candidate(state: &State, store: &mut dyn Datastore) -> Result<Candidate, Vec<RpcError>> {
    match &state.candidate {
        Some(candidate) => Ok(candidate.clone()),
        None => running(store),
    }
}

/// Returns `running` as a trimmed document.
pub(super) fn running(store: &mut dyn Datastore) -> Result<Candidate, Vec<RpcError>> {
    let snapshot = store.running().map_err(one)?;
    Ok(Candidate {
        base: snapshot.revision,
        document: trimmed(configuration(), &snapshot.document),
    })
}

/// Checks that no other session has locked the candidate.
pub(super) fn unlocked(state: &State, id: u32) -> Result<(), Vec<RpcError>> {
    match state.candidate_lock {
        Some(holder) if holder != id => Err(vec![
            RpcError::new(
                "protocol",
                "in-use",
                format!("session {holder} has locked the candidate"),
            )
            .with_info("session-id", holder.to_string()),
        ]),
        _ => Ok(()),
    }
}
