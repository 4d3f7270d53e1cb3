//! Steps that all orders share: conditions, execution by the engine, answer.

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use millrace_ix_model::{
    Actor, Applied, ConfigId, Exchange, Key, ObjectId, Operation, Refusal, ServiceId, ServiceKeyId, Timestamp,
};
use serde::Serialize;

use crate::access::{Access, Principal};
use crate::app::App;
use crate::names::Names;
use crate::problem::Problem;
use crate::request::Conditions;
use crate::service::{CREATED_SERVICE, Order, Outcome, ServiceError};
use crate::view::{Ordered, PlannedSwitch};

/// An operation, and the prefix of its fields in the request body.
pub(crate) type Step = (Operation, &'static str);

/// The prefix of JSON pointers to fields of the principal's own end in the body. Other fields of an order do
/// not have it.
pub(crate) const END_POINTER_PREFIX: &str = "end.";

/// Passes an order to the engine, and returns the response.
///
/// `expected` is the object, with the revision that the client has read.
pub(crate) async fn order(
    app: &App,
    principal: &Principal,
    conditions: &Conditions,
    expected: Option<(ObjectId, u64)>,
    steps: Vec<Step>,
    body: &impl Serialize,
) -> Result<Response, Problem> {
    let user = principal
        .actor
        .user
        .map(|user| user.to_string())
        .unwrap_or_default();
    let order = Order {
        actor: principal.actor.clone(),
        operations: steps.iter().map(|(operation, _)| operation.clone()).collect(),
        expected,
        idempotency: conditions.idempotency(&user, body),
        dry_run: conditions.dry_run,
        confirm_within: conditions.confirm_within,
    };
    let outcome = match app.service.order(order).await {
        Ok(outcome) => outcome,
        Err(ServiceError::Refused(refusal)) => {
            return Err(Names(principal).problem(locate(app, principal, &steps, refusal)));
        }
        Err(error) => return Err(error.into()),
    };
    // A DELETE that waits for a second person creates an approval, but is answered like any DELETE.
    let created = conditions.is_post() && !conditions.dry_run && !outcome.applied.created.is_empty();
    let ordered = view(app, conditions.dry_run, &outcome);
    let status = if created {
        StatusCode::CREATED
    } else {
        StatusCode::OK
    };
    Ok((status, Json(ordered)).into_response())
}

/// Passes an order about one object to the engine. The caller has checked the permission.
///
/// If the principal cannot see the object, the request gets the stored answer to an earlier request with the
/// same idempotency key. Without a stored answer, it gets the answer for a missing object, byte for byte.
pub(crate) async fn order_about<K: Key>(
    app: &App,
    access: &Access<K>,
    conditions: &Conditions,
    expected: Option<(ObjectId, u64)>,
    steps: Vec<Step>,
    body: &impl Serialize,
) -> Result<Response, Problem> {
    let object: ObjectId = access.id().into();
    // No object has revision 0. Without a stored answer, the engine therefore executes nothing.
    let expected = if access.is_hidden() {
        Some((object, 0))
    } else {
        expected
    };
    match order(app, access.principal(), conditions, expected, steps, body).await {
        Err(problem) if access.is_hidden() && problem.code != Some("key-reused") => {
            Err(Problem::absent(object))
        }
        ordered => ordered,
    }
}

/// Returns the object and the revision that an order expects; `None` if it expects none.
pub(crate) fn expected_revision<K: Key>(
    access: &Access<K>,
    conditions: &Conditions,
) -> Result<Option<(ObjectId, u64)>, Problem> {
    if access.is_hidden() {
        return Ok(None);
    }
    let object: ObjectId = access.id().into();
    conditions.expected(object, access.principal().snapshot.revision_of(object))
}

/// Returns the problem of a refused order, with the position in the body. Tries the steps one after the other
/// to find the refused one.
fn locate(app: &App, principal: &Principal, steps: &[Step], refusal: Refusal) -> Problem {
    let [(_, only)] = steps else {
        let mut exchange = Exchange::clone(&app.snapshot().exchange);
        let mut service = None;
        for (operation, pointer) in steps {
            match exchange.apply(
                &principal.actor,
                app.now(),
                with_service(operation.clone(), service),
            ) {
                Ok(applied) => service = service.or_else(|| applied.first::<ServiceId>()),
                Err(refusal) => return refused(refusal, pointer),
            }
        }
        return refused(refusal, "");
    };
    refused(refusal, only)
}

/// Returns the operation for the service that an earlier operation has created.
pub(crate) fn with_service(mut operation: Operation, created: Option<ServiceId>) -> Operation {
    if let (Operation::ConfigureEnd { service, .. }, Some(created)) = (&mut operation, created)
        && *service == CREATED_SERVICE
    {
        *service = created;
    }
    operation
}

/// Returns the operation for the end that an earlier operation has created.
fn with_end(mut operation: Operation, created: Option<ConfigId>) -> Operation {
    if let (Operation::AddMac { config, .. }, Some(created)) = (&mut operation, created)
        && *config == ConfigId(0)
    {
        *config = created;
    }
    operation
}

/// Executes operations in order on an exchange.
pub(crate) fn apply_all(
    exchange: &mut Exchange,
    actor: &Actor,
    now: Timestamp,
    operations: &[Operation],
) -> Result<Applied, Refusal> {
    let mut all = Applied::default();
    for operation in operations {
        let operation = with_service(operation.clone(), all.first::<ServiceId>());
        let operation = with_end(operation, all.first::<ConfigId>());
        let applied = exchange.apply(actor, now, operation)?;
        let is_new = |id: &ObjectId| !all.created.contains(id) && !all.changed.contains(id);
        let changed: Vec<ObjectId> = applied.changed.into_iter().filter(is_new).collect();
        all.changed.extend(changed);
        all.created.extend(applied.created);
        all.deleted.extend(applied.deleted);
    }
    Ok(all)
}

fn refused(mut refusal: Refusal, prefix: &str) -> Problem {
    if let Some(field) = &refusal.field
        && (prefix != END_POINTER_PREFIX || matches!(field.as_str(), "connection" | "vlan" | "capacity_mbps"))
    {
        refusal.field = Some(format!("{prefix}{field}"));
    }
    crate::refusal::problem(&refusal)
}

fn view(app: &App, dry_run: bool, outcome: &Outcome) -> Ordered {
    let snapshot = app.snapshot();
    let exchange = outcome.preview.as_ref().unwrap_or(&snapshot.exchange);
    let texts = |objects: &[ObjectId]| objects.iter().map(ToString::to_string).collect::<Vec<_>>();
    let Applied {
        created,
        changed,
        deleted,
    } = &outcome.applied;
    let end = created.iter().chain(changed).find_map(|object| match object {
        ObjectId::Config(id) => exchange.configs.get(id),
        _ => None,
    });
    let key = outcome
        .applied
        .first::<ServiceKeyId>()
        .and_then(|key| exchange.service_keys.get(&key));
    Ordered {
        dry_run,
        change: outcome.change.map(|change| format!("ch-{change}")),
        created: texts(created),
        changed: texts(changed),
        deleted: texts(deleted),
        plan: outcome
            .plan
            .iter()
            .map(|(id, entries)| PlannedSwitch {
                switch: exchange
                    .switches
                    .get(id)
                    .map_or_else(|| id.to_string(), |switch| switch.name.clone()),
                added: entries.added,
                changed: entries.changed,
                removed: entries.removed,
            })
            .collect(),
        vlan: end.map(|config| config.vlan.to_string()),
        secret: key.filter(|_| !dry_run).map(|key| key.secret.clone()),
    }
}
