//! Steps that all orders share: conditions, execution by the engine, answer.

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use millrace_ix_model::{Applied, Key, ObjectId, Operation, Refusal, ServiceId, ServiceKeyId};
use millrace_ix_service::{OrderError, OrderOptions, OrderRequest};
use millrace_ix_store::Revision;
use serde::Serialize;

use crate::access::{Access, Principal};
use crate::app::App;
use crate::names::Names;
use crate::problem::Problem;
use crate::request::Conditions;
use crate::view::{Conflict, Ordered, PlannedSwitch};

/// An operation, and the prefix of its fields in the request body.
pub(crate) type Step = (Operation, &'static str);

/// The service that an earlier operation of the same order created.
pub(crate) const CREATED_SERVICE: ServiceId = ServiceId(0);

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
    let additions = Additions::default();
    order_with(app, principal, conditions, expected, (additions, steps), body).await
}

/// Parts of an order beside its steps.
#[derive(Default)]
pub(crate) struct Additions {
    /// The operations that the engine itself executes first: what permits the rest.
    pub(crate) granted: Vec<Operation>,
    /// The conflicts of a new filter with others.
    pub(crate) conflicts: Vec<Conflict>,
}

/// Passes an order with additions to the engine, and returns the response.
pub(crate) async fn order_with(
    app: &App,
    principal: &Principal,
    conditions: &Conditions,
    expected: Option<(ObjectId, u64)>,
    (additions, steps): (Additions, Vec<Step>),
    body: &impl Serialize,
) -> Result<Response, Problem> {
    let user = principal
        .actor
        .user
        .map(|user| user.to_string())
        .unwrap_or_default();
    let order = OrderRequest {
        operations: steps.iter().map(|(operation, _)| operation.clone()).collect(),
        actor: principal.actor.clone(),
        options: OrderOptions {
            if_match: expected.map(|(object, revision)| (object, Revision(revision))),
            idempotency: conditions.idempotency(&user, body),
            dry_run: conditions.dry_run,
            confirm_within: conditions.confirm_within,
            granted: additions.granted,
        },
    };
    let outcome = match app.engine.order(order).await {
        Ok(outcome) => outcome,
        Err(OrderError::Refused(refusal)) => {
            return Err(Names(principal).problem(located(&steps, refusal)));
        }
        Err(error) => return Err(error.into()),
    };
    // A DELETE that waits for a second person creates an approval, but is answered like any DELETE.
    let created = conditions.is_post() && !conditions.dry_run && !outcome.applied.created.is_empty();
    let mut ordered = view(conditions.dry_run, &outcome);
    ordered.conflicts = additions.conflicts;
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

/// Returns the problem of a refused order, with the position in the body.
fn located(steps: &[Step], refusal: Refusal) -> Problem {
    let step = refusal.step.and_then(|step| usize::try_from(step).ok());
    let refused_step = step.and_then(|step| steps.get(step.checked_sub(1)?));
    refused(refusal, refused_step.map_or("", |(_, prefix)| prefix))
}

fn refused(mut refusal: Refusal, prefix: &str) -> Problem {
    if let Some(field) = &refusal.field
        && (prefix != END_POINTER_PREFIX || matches!(field.as_str(), "connection" | "vlan" | "capacity_mbps"))
    {
        refusal.field = Some(format!("{prefix}{field}"));
    }
    crate::refusal::problem(&refusal)
}

fn view(dry_run: bool, outcome: &millrace_ix_service::Ordered) -> Ordered {
    let exchange = &outcome.after;
    // A service key that the same order has redeemed is of no use to anybody.
    let is_open = |key: &ServiceKeyId| {
        let found = exchange.service_keys.get(key);
        found.is_none_or(|key| key.redeemed_by.is_none())
    };
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
        .filter(is_open)
        .and_then(|key| exchange.service_keys.get(&key));
    let created: Vec<ObjectId> = created
        .iter()
        .copied()
        .filter(|object| !matches!(object, ObjectId::ServiceKey(key) if !is_open(key)))
        .collect();
    Ordered {
        dry_run,
        change: outcome.change.map(|change| format!("ch-{change}")),
        created: texts(&created),
        changed: texts(changed),
        deleted: texts(deleted),
        plan: outcome
            .entries
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
        effects: outcome.effects.clone(),
        conflicts: Vec::new(),
        vlan: end.map(|config| config.vlan.to_string()),
        secret: key.filter(|_| !dry_run).map(|key| key.secret.clone()),
    }
}
