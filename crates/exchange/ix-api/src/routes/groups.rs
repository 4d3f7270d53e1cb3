//! Closed groups: multipoint services of several members. The member that orders one lists the accounts that may join; each joins
//! with an end of its own.
//!
//! The list is the joining rules of IX-API: an account that a rule allows may join, by either API.

use axum::Json;
use axum::extract::{Path, State};
use axum::response::Response;
use millrace_ix_model::{AccountId, ConfigId, Operation, OperationKind, Service, ServiceId, ServiceKind};
use serde::{Deserialize, Serialize};
use serde_json::json;
use utoipa::ToSchema;

use super::orders::{Additions, CREATED_SERVICE, END_POINTER_PREFIX, order, order_with};
use super::services::EndOrder;
use crate::access::Principal;
use crate::app::App;
use crate::idempotency::RequestMark;
use crate::problem::{Problem, ProblemKind};
use crate::render::ViewContext;
use crate::request::{Body, Conditions, OrderParams, PageParams, Query};
use crate::v2::joining::{self, RuleRequest};
use crate::v2::orders::renewed;
use crate::view::{AccountName, List, Ordered};

/// The largest number of members of a group.
const MEMBERS_MAX: usize = 200;

/// A closed group.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Group {
    /// The identifier of its service.
    id: String,
    /// The name.
    name: String,
    /// The account that ordered it.
    owner: AccountName,
    /// The accounts that may join, and those that have joined. The owner sees all; who has joined sees who else has; others see
    /// themselves.
    members: Vec<GroupMember>,
    /// True if the reader may join, and has not joined.
    joinable: bool,
    /// The operations that are permitted on its service.
    can: Vec<String>,
}

/// A member of a closed group.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct GroupMember {
    /// The account.
    account: AccountName,
    /// True if it has an end in the group.
    joined: bool,
}

/// Returns the accounts with an end in a service.
fn joined(principal: &Principal, service: ServiceId) -> Vec<AccountId> {
    let snapshot = &principal.snapshot;
    let ends = snapshot.index().by_service.get(&service).into_iter().flatten();
    let mut accounts: Vec<AccountId> = ends
        .filter_map(|end| Some(snapshot.exchange.configs.get(end)?.account))
        .collect();
    accounts.sort();
    accounts.dedup();
    accounts
}

/// Returns a group as the principal may see it; `None` if it is none, or nothing of the principal's.
fn view(app: &App, principal: &Principal, id: ServiceId, service: &Service) -> Option<Group> {
    if service.kind != ServiceKind::Mp2mpVc {
        return None;
    }
    let allowed = joining::allowed(app, id);
    let own = principal.actor.account?;
    let is_listed = allowed.contains(&own);
    if !principal.may_read(id) && !is_listed {
        return None;
    }
    let inside = joined(principal, id);
    let manages = principal.may(OperationKind::CreateServiceKey, id);
    let is_inside = manages || inside.contains(&own) || principal.actor.is_operator();
    let scope = ViewContext::new(principal, app.now());
    let mut members: Vec<AccountId> = allowed.iter().copied().chain(inside.iter().copied()).collect();
    members.sort();
    members.dedup();
    let seen = members
        .into_iter()
        .filter(|account| *account != service.account)
        .filter(|account| manages || *account == own || is_inside && inside.contains(account));
    let kinds = [OperationKind::CreateServiceKey, OperationKind::DeleteService];
    Some(Group {
        id: id.to_string(),
        name: service.name.clone(),
        owner: scope.account_name(service.account),
        members: seen
            .map(|account| GroupMember {
                account: scope.account_name(account),
                joined: inside.contains(&account),
            })
            .collect(),
        joinable: is_listed
            && !inside.contains(&own)
            && principal.may_somewhere(OperationKind::RedeemServiceKey),
        can: kinds
            .into_iter()
            .filter(|kind| principal.may(*kind, id))
            .map(|kind| crate::render::word(&kind))
            .collect(),
    })
}

/// List closed groups: your own, those that you have joined, and those that you may join
#[utoipa::path(get, path = "/api/v1/groups", tag = "services", params(PageParams),
    responses((status = 200, body = List<Group>), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn list(
    State(app): State<App>,
    principal: Principal,
    Query(params): Query<PageParams>,
) -> Result<Json<List<Group>>, Problem> {
    principal.require(OperationKind::ReadService)?;
    let services = principal.snapshot.exchange.services.iter();
    let groups = services.filter_map(|(id, service)| view(&app, &principal, *id, service));
    params
        .records(groups.collect(), |group| &group.id, |group| group)
        .map(Json)
}

/// A new closed group.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub(crate) struct NewGroup {
    /// The name.
    name: String,
    /// The caller's end.
    end: EndOrder,
    /// The accounts that may join.
    members: Vec<String>,
}

/// Returns the accounts of a list, which must be known to the principal, or be on the list already: an account that does not want to
/// be found any more stays.
fn accounts(
    principal: &Principal,
    members: &[String],
    present: &[AccountId],
) -> Result<Vec<AccountId>, Problem> {
    if members.len() > MEMBERS_MAX {
        let detail = format!("expected at most {MEMBERS_MAX} members");
        return Err(Problem::invalid("/members", detail));
    }
    let known = members.iter().map(|text| {
        let account = text
            .parse::<AccountId>()
            .ok()
            .filter(|account| principal.knows(*account) || present.contains(account));
        let shown: String = text.chars().take(40).collect();
        account.ok_or_else(|| Problem::invalid("/members", format!("there is no account {shown}")))
    });
    known.collect()
}

/// Order a closed group with your own end, and list the accounts that may join
#[utoipa::path(post, path = "/api/v1/groups", tag = "services", request_body = NewGroup, params(OrderParams,
        ("idempotency-key" = Option<String>, Header, description = "Makes the order repeatable")),
    responses((status = 201, body = Ordered), (status = 200, body = Ordered, description = "Dry run"), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn create(
    State(app): State<App>,
    principal: Principal,
    conditions: Conditions,
    mark: RequestMark,
    Body(given): Body<NewGroup>,
) -> Result<Response, Problem> {
    principal.require(OperationKind::CreateService)?;
    let members = accounts(&principal, &given.members, &[])?;
    let name = given.name.trim().to_owned();
    let steps = vec![
        (
            Operation::CreateService {
                account: None,
                kind: ServiceKind::Mp2mpVc,
                name: name.clone(),
                peer: None,
                policy: None,
                networks: Vec::new(),
                external_ref: None,
            },
            "",
        ),
        (given.end.configure(CREATED_SERVICE, "/end")?, END_POINTER_PREFIX),
    ];
    let answer = order(&app, &principal, &conditions, None, steps, &given).await?;
    if !conditions.dry_run {
        let principal = renewed(&app, &principal);
        let mut services = principal.snapshot.exchange.services.iter();
        // The name is unique in the account.
        let is_new =
            |service: &Service| Some(service.account) == principal.actor.account && service.name == name;
        if let Some((id, service)) = services.rfind(|(_, service)| is_new(service)) {
            set_members(&app, &principal, (*id, service), &members, &mark).await?;
        }
    }
    Ok(answer)
}

/// Makes the joining rules of a group equal to a list of accounts.
async fn set_members(
    app: &App,
    principal: &Principal,
    (id, service): (ServiceId, &Service),
    members: &[AccountId],
    mark: &RequestMark,
) -> Result<(), Problem> {
    let present = joining::allowed(app, id);
    let gone: Vec<AccountId> = present
        .iter()
        .copied()
        .filter(|account| !members.contains(account))
        .collect();
    let new: Vec<AccountId> = members
        .iter()
        .copied()
        .filter(|account| !present.contains(account))
        .collect();
    if gone.is_empty() && new.is_empty() {
        return Ok(());
    }
    let detail = json!({ "added": new, "removed": gone });
    app.record(&principal.audit_name(), "set_group_members", id, detail)
        .await?;
    joining::forbid(app, id, &gone).await?;
    for account in new {
        // Several records of one request cannot share its mark.
        let unmarked = RequestMark {
            mark: None,
            now: mark.now,
        };
        let rule = RuleRequest::allowing(service.account, id, account);
        app.records.create(&rule, &unmarked).await?;
    }
    Ok(())
}

/// The accounts that may join a closed group.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub(crate) struct GroupMembers {
    /// The accounts. They replace the present ones; who has joined stays until it leaves or is removed.
    members: Vec<String>,
}

/// Returns a group that the principal may see.
fn find<'a>(app: &App, principal: &'a Principal, text: &str) -> Result<(ServiceId, &'a Service), Problem> {
    let id = text.parse::<ServiceId>().ok();
    let found = id.and_then(|id| Some((id, principal.snapshot.exchange.services.get(&id)?)));
    found
        .filter(|(id, service)| view(app, principal, *id, service).is_some())
        .ok_or_else(|| Problem::absent(text.chars().take(40).collect::<String>()))
}

/// Rejects a request about the members of a group from somebody who does not manage it.
fn require_owner(principal: &Principal, id: ServiceId) -> Result<(), Problem> {
    if principal.may(OperationKind::CreateServiceKey, id) {
        return Ok(());
    }
    let reason = millrace_ix_model::reason::forbidden();
    Err(Problem::because(ProblemKind::Forbidden, reason).with_code("forbidden"))
}

/// Replace the list of accounts that may join a closed group
#[utoipa::path(put, path = "/api/v1/groups/{id}/members", tag = "services", request_body = GroupMembers, params(("id" = String, Path, description = "The group")),
    responses((status = 200, body = Group), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn members(
    State(app): State<App>,
    principal: Principal,
    Path(id): Path<String>,
    mark: RequestMark,
    Body(given): Body<GroupMembers>,
) -> Result<Json<Group>, Problem> {
    let (id, service) = find(&app, &principal, &id)?;
    require_owner(&principal, id)?;
    let members = accounts(&principal, &given.members, &joining::allowed(&app, id))?;
    set_members(&app, &principal, (id, service), &members, &mark).await?;
    view(&app, &principal, id, service)
        .map(Json)
        .ok_or_else(|| Problem::absent(id))
}

/// The end with which a member joins.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub(crate) struct JoinGroup {
    /// The caller's end.
    end: EndOrder,
}

/// Join a closed group that lists your account
#[utoipa::path(post, path = "/api/v1/groups/{id}/join", tag = "services", request_body = JoinGroup, params(OrderParams, ("id" = String, Path, description = "The group"),
        ("idempotency-key" = Option<String>, Header, description = "Makes the order repeatable")),
    responses((status = 201, body = Ordered), (status = 200, body = Ordered, description = "Dry run"), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn join(
    State(app): State<App>,
    principal: Principal,
    Path(id): Path<String>,
    conditions: Conditions,
    Body(given): Body<JoinGroup>,
) -> Result<Response, Problem> {
    let (id, _) = find(&app, &principal, &id)?;
    let (connection, vlan) = given.end.parts("/end")?;
    let owner = principal
        .snapshot
        .exchange
        .connections
        .get(&connection)
        .map(|found| found.account);
    let owner = owner.filter(|_| principal.may_read(connection));
    let bounds = owner.and_then(|owner| joining::may_join(&app, &principal, id, owner));
    let Some(bounds) = bounds else {
        // The owner of the group and those that have an end already need no rule.
        let operation = given.end.configure(id, "/end")?;
        return order(
            &app,
            &principal,
            &conditions,
            None,
            vec![(operation, END_POINTER_PREFIX)],
            &given,
        )
        .await;
    };
    let rate = given.end.capacity();
    let (make, redeem) = joining::key(&app, &principal, (id, bounds), (connection, vlan, rate))?;
    let additions = Additions {
        granted: vec![make],
        ..Additions::default()
    };
    let steps = (additions, vec![(redeem, END_POINTER_PREFIX)]);
    order_with(&app, &principal, &conditions, None, steps, &given).await
}

/// Remove a member from a closed group: from the list, with all of its ends
#[utoipa::path(delete, path = "/api/v1/groups/{id}/members/{account}", tag = "services",
    params(OrderParams, ("id" = String, Path, description = "The group"), ("account" = String, Path, description = "The member's account"),
        ("idempotency-key" = Option<String>, Header, description = "Makes the order repeatable")),
    responses((status = 200, body = Ordered), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn remove(
    State(app): State<App>,
    principal: Principal,
    Path((id, account)): Path<(String, String)>,
    conditions: Conditions,
) -> Result<Response, Problem> {
    let (id, service) = find(&app, &principal, &id)?;
    require_owner(&principal, id)?;
    let shown: String = account.chars().take(40).collect();
    let member = account.parse::<AccountId>().ok();
    let exchange = &principal.snapshot.exchange;
    let ends: Vec<ConfigId> = exchange
        .ends(id)
        .filter(|(_, config)| Some(config.account) == member)
        .map(|(end, _)| end)
        .collect();
    let listed = joining::allowed(&app, id);
    let member = member
        .filter(|member| *member != service.account && (listed.contains(member) || !ends.is_empty()))
        .ok_or_else(|| Problem::absent(shown))?;
    let steps = ends.into_iter().map(|end| {
        let target = end.into();
        (Operation::Delete { target }, "")
    });
    let answer = order(&app, &principal, &conditions, None, steps.collect(), &()).await?;
    if !conditions.dry_run && listed.contains(&member) {
        let detail = json!({ "added": [], "removed": [member] });
        app.record(&principal.audit_name(), "set_group_members", id, detail)
            .await?;
        joining::forbid(&app, id, &[member]).await?;
    }
    Ok(answer)
}
