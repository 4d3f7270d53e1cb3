//! The journal of changes, and the audit chain.

use std::collections::BTreeSet;
use std::str::FromStr;

use axum::Json;
use axum::extract::{Path, State};
use millrace_ix_model::permission::is_permitted;
use millrace_ix_model::{AccountId, ObjectId, Operation, OperationKind, Relation, Role, Timestamp, UserId};
use millrace_ix_store::{AuditRecord, ChangeRecord, ChangeState, JournalRecord, UnixMillis};
use serde::Deserialize;
use serde_json::json;

use super::objects::may_read_any;
use crate::access::Principal;
use crate::app::App;
use crate::names::Names;
use crate::problem::Problem;
use crate::request::{PageParams, Query};
use crate::view::{AuditEntry, Change, ChangeStep, List};

/// The number of records that are read from the engine in one step.
const CHUNK: usize = 500;
/// The maximum number of records that one request reads, so that a request with a filter that matches nothing
/// ends.
const LOOKED_AT_MAX: usize = 20_000;

/// The number in the identifier of a change: 7 in `ch-7`.
struct ChangeNumber(u64);

impl FromStr for ChangeNumber {
    type Err = ();

    fn from_str(text: &str) -> Result<ChangeNumber, ()> {
        let number = text.strip_prefix("ch-").ok_or(())?;
        number.parse().map(ChangeNumber).map_err(|_| ())
    }
}

/// Returns the name of the user whose identifier is in the journal or the audit chain. For a user of another
/// account, a member gets the name of that account. If the member may not know that account, and `objects`
/// contains no circuit that the member may read, the member gets the account's AS numbers, or the text
/// `another account` if it has none.
fn person(principal: &Principal, actor: &str, objects: &[ObjectId]) -> String {
    let exchange = &principal.snapshot.exchange;
    let user = actor.parse().ok().and_then(|id: UserId| exchange.users.get(&id));
    let Some(user) = user else {
        return actor.to_owned();
    };
    let is_own = |own: AccountId| exchange.descendants(own).contains(&user.account);
    if sees_everybody(principal) || principal.actor.account.is_some_and(is_own) {
        return user.name.clone();
    }
    let is_known =
        principal.knows(user.account) || objects.iter().any(|object| principal.is_of_circuit(*object));
    if !is_known {
        let asns = principal.asns_as_name(user.account);
        return asns.unwrap_or_else(|| "another account".to_owned());
    }
    let account = exchange.accounts.get(&user.account);
    account.map_or_else(|| user.account.to_string(), |account| account.name.clone())
}

/// Returns true if the principal may read the whole audit chain.
fn sees_everybody(principal: &Principal) -> bool {
    is_permitted(&principal.actor, OperationKind::ReadAudit, Relation::Foreign)
}

/// Returns the actor of a change as the journal names it.
fn actor(change: &ChangeRecord) -> &str {
    change.detail["actor"].as_str().unwrap_or_default()
}

/// Returns the objects that a change writes.
fn objects(change: &ChangeRecord) -> Vec<ObjectId> {
    let all = change.detail["objects"].as_array().into_iter().flatten();
    all.filter_map(|id| id.as_str()?.parse().ok()).collect()
}

fn time(at: UnixMillis) -> String {
    Timestamp::from_millis(at.0).to_string()
}

fn view(app: &App, principal: &Principal, change: &ChangeRecord, steps: &[JournalRecord]) -> Change {
    let unconfirmed = app.engine.unconfirmed();
    let waiting = unconfirmed.get(&change.id);
    // An actor who may order the inverse of the change may confirm it.
    let may_undo = |operation: &Operation| {
        let drafted = principal
            .snapshot
            .exchange
            .draft(&principal.actor, app.now(), operation.clone());
        drafted.is_ok()
    };
    let exchange = &principal.snapshot.exchange;
    let fabric = principal.may_somewhere(OperationKind::ReadFabric);
    let switch_name = |id: &millrace_ix_model::SwitchId| {
        exchange
            .switches
            .get(id)
            .map_or_else(|| id.to_string(), |switch| switch.name.clone())
    };
    let objects = objects(change);
    let operation = &change.detail["operations"][0]["operation"];
    Change {
        id: format!("ch-{}", change.id),
        operation: operation.as_str().unwrap_or_default().to_owned(),
        actor: person(principal, actor(change), &objects),
        objects: objects
            .iter()
            .filter(|object| fabric || principal.may_read(**object))
            .map(ToString::to_string)
            .collect(),
        state: change.state.name().to_owned(),
        accepted_at: time(change.accepted_at),
        updated_at: time(change.updated_at),
        waiting_for: app
            .engine
            .waits_for(change.id)
            .iter()
            .filter(|_| fabric)
            .map(switch_name)
            .collect(),
        error: if fabric {
            let refused = refusal_of(change, steps).map(str::to_owned);
            refused.or_else(|| app.engine.refusal_of(change.id))
        } else {
            rollback_reason(change, steps)
        },
        confirm_until: waiting.map(|waiting| time(waiting.until)),
        can_confirm: waiting.is_some_and(|waiting| waiting.inverse.iter().all(may_undo)),
        steps: steps
            .iter()
            .map(|step| ChangeStep {
                state: step.state.name().to_owned(),
                at: time(step.at),
                detail: detail(step).map(str::to_owned).filter(|_| fabric),
            })
            .collect(),
    }
}

/// Returns the reason in a step of a change.
fn detail(step: &JournalRecord) -> Option<&str> {
    step.detail["reason"].as_str()
}

/// Returns the words of the switch that refused a change that was rolled back, as far as the steps are known.
fn refusal_of<'a>(change: &ChangeRecord, steps: &'a [JournalRecord]) -> Option<&'a str> {
    if change.state != ChangeState::RolledBack {
        return None;
    }
    steps.iter().rev().find_map(detail)
}

/// Returns the reason of a rollback for a member, who may not know the switches.
fn rollback_reason(change: &ChangeRecord, steps: &[JournalRecord]) -> Option<String> {
    if change.state != ChangeState::RolledBack {
        return None;
    }
    let error = refusal_of(change, steps).unwrap_or_default().to_ascii_lowercase();
    let cause = if error.contains("table_full") || error.contains("table is full") {
        ", because its flow table is full"
    } else {
        ""
    };
    Some(format!(
        "a switch of the exchange refused the order{cause}: everything is as before. Ask the exchange's staff"
    ))
}

/// Returns true if a user of the principal's account, or of an account below it, ordered a change. The objects of an order
/// that was rolled back may be gone, and its account must still read the reason.
fn is_own(principal: &Principal, change: &ChangeRecord) -> bool {
    let exchange = &principal.snapshot.exchange;
    let user = actor(change).parse().ok();
    let user = user.and_then(|id: UserId| exchange.users.get(&id));
    let (Some(user), Some(own)) = (user, principal.actor.account) else {
        return false;
    };
    exchange.descendants(own).contains(&user.account)
}

/// Returns true if the principal may see a change. Operators see all changes, and members see changes of
/// objects that they may read, and those that their account has ordered. Both need the permission to read changes.
fn may_see(principal: &Principal, change: &ChangeRecord) -> bool {
    principal.actor.is_operator() && principal.may_somewhere(OperationKind::ReadChanges)
        || principal.may_somewhere(OperationKind::ReadChanges)
            && (may_read_any(principal, &objects(change)) || is_own(principal, change))
}

/// The filter of changes.
#[derive(Debug, Clone, Default, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct ChangeFilter {
    /// Only changes of this object; for a service, also changes of its ends.
    object: Option<String>,
    /// Only changes under way, and those that are undone unless somebody confirms them.
    #[serde(default)]
    open: bool,
}

/// Returns an object and, for a service, its ends. Returns nothing if the object does not exist or the
/// principal may not read it.
fn with_parts(principal: &Principal, text: &str) -> BTreeSet<ObjectId> {
    let object = text.parse::<ObjectId>().ok().filter(|id| principal.may_read(*id));
    let ends = match object {
        Some(ObjectId::Service(service)) => Some(principal.snapshot.exchange.ends(service)),
        _ => None,
    };
    let ends = ends.into_iter().flatten().map(|(id, _)| ObjectId::from(id));
    object.into_iter().chain(ends).collect()
}

/// List changes, newest first
///
/// One request reads at most 20,000 records, so a page may be empty and still have a `next`.
#[utoipa::path(get, path = "/api/v1/changes", tag = "changes", params(PageParams, ChangeFilter),
    responses((status = 200, body = List<Change>), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn changes(
    State(app): State<App>,
    principal: Principal,
    Query(page): Query<PageParams>,
    Query(filter): Query<ChangeFilter>,
) -> Result<Json<List<Change>>, Problem> {
    principal.require(OperationKind::ReadChanges)?;
    let limit = page.limit()?;
    let wanted = filter.object.as_deref().filter(|text| !text.is_empty());
    let wanted = wanted.map(|text| with_parts(&principal, text));
    let concerns = |record: &ChangeRecord| match &wanted {
        None => true,
        Some(parts) => objects(record).iter().any(|object| parts.contains(object)),
    };
    let mut before = page.after::<ChangeNumber>()?.map(|ChangeNumber(number)| number);
    let (mut items, mut looked_at, mut more) = (Vec::new(), 0, !filter.open);
    if filter.open {
        let mut open = app.engine.changes_open();
        open.extend(app.engine.unconfirmed().keys());
        for id in open
            .into_iter()
            .rev()
            .filter(|id| before.is_none_or(|before| *id < before))
        {
            if items.len() > limit {
                break;
            }
            // The newest record below the next number.
            let records = app.engine.changes(id.checked_add(1), 1).await?;
            let seen = records
                .iter()
                .filter(|record| record.id == id && concerns(record) && may_see(&principal, record));
            items.extend(seen.map(|record| view(&app, &principal, record, &[])));
        }
    }
    while more && items.len() <= limit && looked_at < LOOKED_AT_MAX {
        let records = app.engine.changes(before, CHUNK).await?;
        more = records.len() == CHUNK;
        looked_at += records.len();
        before = records.last().map(|record| record.id);
        let seen = records
            .iter()
            .filter(|record| concerns(record) && may_see(&principal, record));
        items.extend(seen.map(|record| view(&app, &principal, record, &[])));
    }
    let has_more = items.len() > limit;
    items.truncate(limit);
    // A page that ended because of the maximum continues after the last record that was read.
    let bound = before.filter(|_| more).map(|id| format!("ch-{id}"));
    Ok(Json(List {
        next: items
            .last()
            .filter(|_| has_more)
            .map(|change| change.id.clone())
            .or(bound),
        total: items.len(),
        items,
    }))
}

/// Read a change with its steps
#[utoipa::path(get, path = "/api/v1/changes/{id}", tag = "changes", params(("id" = String, Path, description = "The change")),
    responses((status = 200, body = Change), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn change(
    State(app): State<App>,
    principal: Principal,
    Path(id): Path<String>,
) -> Result<Json<Change>, Problem> {
    let (record, steps) = find(&app, &principal, &id).await?;
    Ok(Json(view(&app, &principal, &record, &steps)))
}

/// Returns a change with its steps, if the principal may see it.
async fn find(
    app: &App,
    principal: &Principal,
    id: &str,
) -> Result<(ChangeRecord, Vec<JournalRecord>), Problem> {
    let found = match id.parse::<ChangeNumber>() {
        Ok(ChangeNumber(number)) => app.engine.change(number).await?,
        Err(()) => None,
    };
    found
        .filter(|(record, _)| may_see(principal, record))
        .ok_or_else(|| Problem::absent(id.chars().take(40).collect::<String>()))
}

/// Confirm a change that was ordered with `confirm_within`, so that it is not undone
///
/// A user who may order the inverse may confirm. A change that does not wait for confirmation is answered
/// with 409.
#[utoipa::path(post, path = "/api/v1/changes/{id}/confirm", tag = "changes", params(("id" = String, Path, description = "The change")),
    responses((status = 200, body = Change), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn confirm(
    State(app): State<App>,
    principal: Principal,
    Path(id): Path<String>,
) -> Result<Json<Change>, Problem> {
    let (record, _) = find(&app, &principal, &id).await?;
    app.engine.confirm(record.id, principal.actor.clone()).await?;
    read_again(&app, &principal, &id).await
}

/// Undo a change that waits for its confirmation, by a new change that is its inverse
#[utoipa::path(post, path = "/api/v1/changes/{id}/revert", tag = "changes", params(("id" = String, Path, description = "The change")),
    responses((status = 200, body = Change), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn revert(
    State(app): State<App>,
    principal: Principal,
    Path(id): Path<String>,
) -> Result<Json<Change>, Problem> {
    let (record, _) = find(&app, &principal, &id).await?;
    app.engine.revert(record.id, principal.actor.clone()).await?;
    read_again(&app, &principal, &id).await
}

/// Returns the new state of a change after a decision about it.
async fn read_again(app: &App, principal: &Principal, id: &str) -> Result<Json<Change>, Problem> {
    let (record, steps) = find(app, principal, id).await?;
    Ok(Json(view(app, principal, &record, &steps)))
}

/// The filter of the audit chain.
#[derive(Debug, Clone, Default, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct AuditFilter {
    /// Only entries of this actor.
    actor: Option<String>,
    /// Only entries about this object.
    object: Option<String>,
}

/// Read the audit chain, newest first
///
/// Operators and the regulator read the complete chain, and each read by the regulator adds an entry. Other
/// users read the entries of the users in their own account. One request reads at most 20,000 entries, so a
/// page may be empty and still have a `next`.
#[utoipa::path(get, path = "/api/v1/audit", tag = "audit", params(PageParams, AuditFilter),
    responses((status = 200, body = List<AuditEntry>), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn audit(
    State(app): State<App>,
    principal: Principal,
    Query(page): Query<PageParams>,
    Query(filter): Query<AuditFilter>,
) -> Result<Json<List<AuditEntry>>, Problem> {
    principal.require(OperationKind::ReadAudit)?;
    let limit = page.limit()?;
    let mut before = page.after::<u64>()?;
    if principal.actor.roles.contains(&Role::Regulator) {
        app.record(&principal.audit_name(), "read_audit", "", json!({}))
            .await?;
    }
    let sees_all = sees_everybody(&principal);
    let exchange = &principal.snapshot.exchange;
    let own = principal
        .actor
        .account
        .map(|account| exchange.descendants(account))
        .unwrap_or_default();
    let people = exchange
        .users
        .iter()
        .filter(|(_, user)| own.contains(&user.account));
    let people: BTreeSet<String> = people.map(|(id, _)| id.to_string()).collect();
    let matches = |text: &str, wanted: &Option<String>| {
        wanted
            .as_deref()
            .filter(|wanted| !wanted.is_empty())
            .is_none_or(|wanted| text == wanted)
    };
    let (mut items, mut looked_at, mut more) = (Vec::new(), 0, true);
    while more && items.len() <= limit && looked_at < LOOKED_AT_MAX {
        let records = app.engine.audit(before, CHUNK).await?;
        more = records.len() == CHUNK;
        looked_at += records.len();
        before = records.last().map(|record| record.serial);
        for AuditRecord {
            serial, body, hash, ..
        } in records
        {
            let names = Names(&principal);
            let text = |name: &str| body[name].as_str().unwrap_or_default();
            let (by, object) = (text("actor"), text("object"));
            let seen = sees_all || people.contains(by);
            let actor = person(&principal, by, &[]);
            let is_by = matches(&actor, &filter.actor) || matches(by, &filter.actor);
            if seen && is_by && matches(object, &filter.object) {
                items.push(AuditEntry {
                    serial,
                    time: time(UnixMillis(body["time"].as_u64().unwrap_or(0))),
                    actor,
                    action: text("action").to_owned(),
                    object_name: names.of(object),
                    object: object.to_owned(),
                    detail: if sees_all {
                        body["detail"].clone()
                    } else {
                        names.value(body["detail"].clone())
                    },
                    hash,
                });
            }
        }
    }
    let has_more = items.len() > limit;
    items.truncate(limit);
    Ok(Json(List {
        next: items
            .last()
            .filter(|_| has_more)
            .map(|entry| entry.serial)
            .or(before.filter(|_| more))
            .map(|serial| serial.to_string()),
        total: items.len(),
        items,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_reads_why_an_order_was_rolled_back_and_not_by_which_switch() {
        let change = |state| ChangeRecord {
            id: 7,
            state,
            accepted_at: UnixMillis(1000),
            updated_at: UnixMillis(2000),
            detail: json!({ "actor": "us-1", "operations": [{ "operation": "create_service" }] }),
        };
        let words = "switch 3 refuses the change: OFPFMFC_TABLE_FULL: the table is full";
        let step = JournalRecord {
            change: 7,
            state: ChangeState::RolledBack,
            at: UnixMillis(2000),
            detail: json!({ "reason": words }),
        };
        let undone = change(ChangeState::RolledBack);
        let reason = rollback_reason(&undone, std::slice::from_ref(&step)).unwrap();
        assert!(
            reason.contains("flow table is full") && !reason.contains("switch 3"),
            "{reason}"
        );
        assert!(rollback_reason(&undone, &[]).is_some());
        assert_eq!(rollback_reason(&change(ChangeState::Staged), &[step]), None);
    }
}
