//! Orders of IX-API clients, and the principal with the exchange after an order.

use millrace_ix_model::{
    Account, AccountId, Applied, Config, ConfigId, Operation, OperationKind, Service, ServiceId, reason,
};
use millrace_ix_service::{OrderOptions, OrderRequest};
use serde::Serialize;
use serde_json::json;

use super::records::Record;
use super::view::{IxApiProperties, State, Stateful, Status};
use crate::access::Principal;
use crate::app::App;
use crate::names::Names;
use crate::problem::{Problem, ProblemKind};
use crate::render::ViewContext;
use crate::request::Conditions;

/// The largest number of contacts, of MAC addresses, and of joining rules of an account or service.
const RECORDS_MAX: usize = 1000;

/// Sends an order to the engine. A request with an `Idempotency-Key` is executed once.
pub(crate) async fn order(
    app: &App,
    principal: &Principal,
    conditions: &Conditions,
    operations: Vec<Operation>,
    body: &impl Serialize,
) -> Result<Applied, Problem> {
    order_granted(app, principal, conditions, (Vec::new(), operations), body).await
}

/// Sends an order to the engine, which first executes operations of its own: what permits the rest.
pub(crate) async fn order_granted(
    app: &App,
    principal: &Principal,
    conditions: &Conditions,
    (granted, operations): (Vec<Operation>, Vec<Operation>),
    body: &impl Serialize,
) -> Result<Applied, Problem> {
    if operations.is_empty() {
        return Ok(Applied::default());
    }
    let user = principal
        .actor
        .user
        .map(|user| user.to_string())
        .unwrap_or_default();
    let order = OrderRequest {
        operations,
        actor: principal.actor.clone(),
        options: OrderOptions {
            idempotency: conditions.idempotency(&user, body),
            granted,
            ..OrderOptions::default()
        },
    };
    match app.engine.order(order).await {
        Ok(ordered) => Ok(ordered.applied),
        Err(error) => Err(Names(principal).problem(error.into())),
    }
}

/// Sends an order in the name of the engine itself.
pub(crate) async fn order_as_system(app: &App, operations: Vec<Operation>) -> Result<Applied, Problem> {
    Ok(app
        .engine
        .order(OrderRequest::of_system(operations))
        .await?
        .applied)
}

/// Returns the principal with the newest snapshot of the exchange.
pub(crate) fn renewed(app: &App, principal: &Principal) -> Principal {
    Principal {
        snapshot: app.snapshot(),
        ..principal.clone()
    }
}

/// Returns the identifier of the created object of type `K`.
pub(crate) fn created<K: millrace_ix_model::Key>(applied: &Applied) -> Result<K, Problem> {
    applied
        .first::<K>()
        .ok_or_else(|| Problem::new(ProblemKind::Internal, "the order created nothing"))
}

/// Rejects an operation that the permission table does not permit for the account.
pub(crate) fn require(principal: &Principal, kind: OperationKind, account: AccountId) -> Result<(), Problem> {
    // The staff may write for all accounts, and an absent one has the relation of a foreign one.
    let is_there = principal.snapshot.exchange.accounts.contains_key(&account);
    if is_there && principal.may(kind, account) {
        return Ok(());
    }
    if !principal.may_read(account) {
        return Err(Problem::absent(account));
    }
    Err(Problem::because(ProblemKind::Forbidden, reason::forbidden()).with_code("forbidden"))
}

/// Refuses a new record if the records that `is_own` selects have reached the maximum, so that no account
/// fills the exchange's database.
pub(crate) fn check_room<T: Record>(app: &App, is_own: impl Fn(&T) -> bool) -> Result<(), Problem> {
    let own = app.records.all::<T>().into_iter();
    if own.filter(|(_, record)| is_own(record)).count() < RECORDS_MAX {
        return Ok(());
    }
    let detail = format!("there are {RECORDS_MAX} objects of this kind: delete one first");
    Err(Problem::new(ProblemKind::Conflict, detail))
}

/// Returns the facts about an object that IX-API has and the model does not.
pub(crate) fn ix_api_properties(app: &App, id: impl std::fmt::Display) -> IxApiProperties {
    app.records
        .find(&format!("{}-{id}", IxApiProperties::PREFIX))
        .unwrap_or_default()
}

/// Returns true if an end of a peering LAN may be named to everybody: its member has consented, or has not answered and may be found.
/// The member list, the looking glass and IX-API name the same ends.
pub(crate) fn is_listed(app: &App, end: ConfigId, account: &Account) -> bool {
    ix_api_properties(app, end).listed.unwrap_or(account.discoverable)
}

/// Refuses a reference that another object of the account has: an order with it would be taken for a repetition. `others` are the other
/// objects, with the references of their orders, or without them if the model compares those.
pub(crate) fn check_reference<'a, K: std::fmt::Display>(
    app: &App,
    reference: Option<&String>,
    mut others: impl Iterator<Item = (K, Option<&'a String>)>,
) -> Result<(), Problem> {
    let Some(reference) = reference.filter(|reference| !reference.is_empty()) else {
        return Ok(());
    };
    super::view::check_text("external_ref", reference, 128)?;
    let same = others
        .find(|(id, ordered)| ix_api_properties(app, id).reference(*ordered).as_ref() == Some(reference));
    match same {
        None => Ok(()),
        Some((other, _)) => {
            let reason = reason::external_ref_taken(other, reference);
            Err(Problem::because(ProblemKind::Conflict, reason)
                .with_code("conflict")
                .with_error("/external_ref", "conflict"))
        }
    }
}

/// Writes the facts about an object that the model does not have, if they have changed. An entry in the audit
/// chain is written first. It names the changed facts, but has the values only of `public` and `listed`, so
/// that it contains no addresses of people.
pub(crate) async fn put_properties(
    app: &App,
    principal: &Principal,
    id: impl std::fmt::Display,
    facts: &IxApiProperties,
) -> Result<(), Problem> {
    let (before, after) = (json!(ix_api_properties(app, &id)), json!(facts));
    let changed: Vec<&String> = after
        .as_object()
        .into_iter()
        .flatten()
        .filter(|(name, value)| before[*name] != **value)
        .map(|(name, _)| name)
        .collect();
    if changed.is_empty() {
        return Ok(());
    }
    let mut detail = json!({ "changed": changed });
    for name in ["public", "listed"] {
        if before[name] != after[name] {
            detail[name] = after[name].clone();
        }
    }
    app.record(&principal.audit_name(), "set_properties", &id, detail)
        .await?;
    Ok(app
        .records
        .put(&format!("{}-{id}", IxApiProperties::PREFIX), facts)
        .await?)
}

/// Returns the state of a service.
pub(crate) fn service_state(app: &App, principal: &Principal, id: ServiceId, service: &Service) -> Stateful {
    let now = app.now();
    Stateful::of(&ViewContext::new(principal, now).shown(id, service), now)
}

/// Returns the state of an end: the state of its service, or `testing` while the end is in quarantine.
pub(crate) fn end_state(app: &App, principal: &Principal, _id: ConfigId, config: &Config) -> Stateful {
    let Some(service) = principal.snapshot.exchange.services.get(&config.service) else {
        return Stateful::plain(State::Decommissioned);
    };
    let mut stateful = service_state(app, principal, config.service, service);
    if service.kind == millrace_ix_model::ServiceKind::ExchangeLan {
        // The state of the LAN does not apply to the end, because the quarantine of one member does not
        // affect the other members.
        stateful = if config.quarantine.is_over() {
            Stateful::plain(State::Production)
        } else {
            let message =
                "the end is in quarantine: the exchange waits for minutes without an offending frame";
            Stateful {
                state: State::Testing,
                status: vec![Status::info("quarantine", message, app.now())],
            }
        };
    }
    if config.shut_down {
        let message = "the end is shut down: open it again with PUT /api/v1/configs/{id}/shut-down";
        stateful
            .status
            .push(Status::warning("shut-down", message, app.now()));
    }
    stateful
}
