//! Rules that let other accounts join a multipoint service, or keep them out.

use std::collections::BTreeSet;
use std::time::Duration;

use axum::Json;
use axum::extract::{Path, State as Shared};
use axum::http::StatusCode;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use millrace_ix_model::{
    AccountId, ConnectionId, Operation, OperationKind, ServiceId, ServiceKind, VlanRequest,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use utoipa::ToSchema;

use super::orders::{check_room, ix_api_properties};
use super::problem::IxProblem;
use super::query::{FilterParams, Filters};
use super::records::Record;
use super::view::{Owned, OwnedUpdate, check_text, id as identifier, invalid, nullable, unchanged};
use crate::access::Principal;
use crate::app::App;
use crate::idempotency::RequestMark;
use crate::problem::{Problem, ProblemKind};
use crate::request::Body;

/// The validity of the service key by which an account joins under a rule. It is redeemed in the order that makes it.
const VALIDITY: Duration = Duration::from_secs(60);

/// The effect of a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Effect {
    Allow,
    Deny,
}

/// A new rule. `consuming_account` is the account that is let in or kept out.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub(crate) struct RuleRequest {
    /// The effect.
    #[serde(rename = "type")]
    pub(crate) effect: Effect,
    #[serde(flatten)]
    pub(crate) owned: Owned,
    /// The service.
    pub(crate) network_service: String,
    /// The lowest rate in Mbit/s with which the account may join.
    #[serde(default)]
    #[schema(minimum = 1)]
    pub(crate) capacity_min: Option<u32>,
    /// The highest rate in Mbit/s with which the account may join.
    #[serde(default)]
    #[schema(minimum = 1)]
    pub(crate) capacity_max: Option<u32>,
}

impl Record for RuleRequest {
    const PREFIX: &'static str = "mr";
}

/// A rule.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct MemberJoiningRule {
    /// The identifier.
    id: String,
    #[serde(flatten)]
    rule: RuleRequest,
}

impl RuleRequest {
    /// Returns the rule of a service's owner that lets an account join with any rate.
    pub(crate) fn allowing(owner: AccountId, service: ServiceId, account: AccountId) -> RuleRequest {
        RuleRequest {
            effect: Effect::Allow,
            owned: Owned {
                managing_account: owner.to_string(),
                consuming_account: account.to_string(),
                external_ref: None,
            },
            network_service: service.to_string(),
            capacity_min: None,
            capacity_max: None,
        }
    }

    pub(crate) fn service(&self) -> Option<ServiceId> {
        self.network_service.parse().ok()
    }

    /// Returns true if the principal may write rules of the service. This needs the permission to create
    /// service keys, which also let other accounts in.
    fn is_writable(&self, principal: &Principal) -> bool {
        self.service()
            .is_some_and(|service| principal.may(OperationKind::CreateServiceKey, service))
    }

    /// Returns true if the principal may read the rule: as the owner of the service, or as the account concerned.
    fn is_readable(&self, principal: &Principal) -> bool {
        let account = principal.actor.account.map(|account| account.to_string());
        let exists = self
            .service()
            .is_some_and(|service| principal.snapshot.exchange.services.contains_key(&service));
        let owns = self
            .service()
            .is_some_and(|service| principal.may(OperationKind::ReadServiceKey, service));
        exists && (owns || account.as_deref() == Some(self.owned.consuming_account.as_str()))
    }

    fn check(&self, principal: &Principal) -> Result<(), Problem> {
        let reference = self.owned.external_ref.as_deref().unwrap_or_default();
        check_text("external_ref", reference, 128)?;
        super::view::account(principal, "managing_account", &self.owned.managing_account)?;
        let service: ServiceId = identifier("network_service", &self.network_service)?;
        let found = principal.snapshot.exchange.services.get(&service);
        let found = found.filter(|_| principal.may_read(service));
        let found = found.ok_or_else(|| invalid("network_service", format!("there is no {service}")))?;
        if !matches!(found.kind, ServiceKind::P2mpVc | ServiceKind::Mp2mpVc) {
            return Err(invalid(
                "network_service",
                "only a p2mp_vc and an mp2mp_vc have joining rules",
            ));
        }
        if !self.is_writable(principal) {
            let detail = format!("your roles do not permit you to let accounts join {service}");
            return Err(Problem::new(ProblemKind::Forbidden, detail).with_code("forbidden"));
        }
        let account = identifier("consuming_account", &self.owned.consuming_account)?;
        let known = principal.snapshot.exchange.accounts.get(&account);
        if !known.is_some_and(|known| known.discoverable || principal.may_read(account)) {
            return Err(invalid("consuming_account", format!("there is no {account}")));
        }
        if let (Some(min), Some(max)) = (self.capacity_min, self.capacity_max)
            && min > max
        {
            return Err(invalid("capacity_min", "expected at most capacity_max"));
        }
        Ok(())
    }
}

/// Returns the identifiers of the rules of a service that the principal may read.
pub(crate) fn rules_of(app: &App, principal: &Principal, service: ServiceId) -> Vec<String> {
    let all = app.records.all::<RuleRequest>().into_iter();
    all.filter(|(_, rule)| rule.service() == Some(service) && rule.is_readable(principal))
        .map(|(id, _)| id)
        .collect()
}

/// The rates in Mbit/s with which an account may join a service.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Bounds {
    pub(crate) min: Option<u32>,
    pub(crate) max: Option<u32>,
}

/// Returns the accounts that rules let join a service.
pub(crate) fn allowed(app: &App, service: ServiceId) -> Vec<AccountId> {
    let rules = app.records.all::<RuleRequest>().into_iter().map(|(_, rule)| rule);
    let allowing = rules.filter(|rule| rule.service() == Some(service) && rule.effect == Effect::Allow);
    allowing
        .filter_map(|rule| rule.owned.consuming_account.parse().ok())
        .collect()
}

/// Removes the rules that let accounts join a service.
pub(crate) async fn forbid(app: &App, service: ServiceId, accounts: &[AccountId]) -> Result<(), Problem> {
    for (id, rule) in app.records.all::<RuleRequest>() {
        let account = rule.owned.consuming_account.parse::<AccountId>();
        let is_of = rule.service() == Some(service) && rule.effect == Effect::Allow;
        if is_of && account.is_ok_and(|account| accounts.contains(&account)) {
            app.records.delete(&id).await?;
        }
    }
    Ok(())
}

/// Returns the operation by which the engine makes a service key for a principal that joins a service under a rule, and the
/// operation by which the principal redeems it. One order has both, so that no key is left over.
pub(crate) fn key(
    app: &App,
    principal: &Principal,
    (service, bounds): (ServiceId, Bounds),
    (connection, vlan, rate): (ConnectionId, VlanRequest, Option<u32>),
) -> Result<(Operation, Operation), Problem> {
    let rate = rate.or(bounds.max);
    if let (Some(rate), Some(min)) = (rate, bounds.min)
        && rate < min
    {
        return Err(invalid(
            "capacity",
            format!("the joining rule wants at least {min} Mbit/s"),
        ));
    }
    // No key is created for a request that will be refused.
    principal.require(OperationKind::RedeemServiceKey)?;
    if !principal.may(OperationKind::MoveEnd, connection) {
        let reason = millrace_ix_model::reason::forbidden();
        return Err(Problem::because(ProblemKind::Forbidden, reason).with_code("forbidden"));
    }
    let bytes = crate::session::random::<24>()
        .map_err(|error| Problem::new(ProblemKind::Internal, error.to_string()))?;
    let secret = URL_SAFE_NO_PAD.encode(bytes);
    let make = Operation::CreateServiceKey {
        service,
        secret: secret.clone(),
        valid_until: app.now().after(VALIDITY),
        vlans: None,
        capacity_mbps: bounds.max,
    };
    let redeem = Operation::RedeemServiceKey {
        secret,
        connection,
        vlan,
        capacity_mbps: rate,
        asns: BTreeSet::new(),
    };
    Ok((make, redeem))
}

/// Returns true if an account needs a joining rule or a service key for an end in a service: the service is a
/// multipoint service, and the account is neither its owner nor below its owner.
pub(crate) fn needs_joining_rule(principal: &Principal, service: ServiceId, account: AccountId) -> bool {
    let exchange = &principal.snapshot.exchange;
    let found = exchange.services.get(&service);
    found.is_some_and(|found| {
        matches!(found.kind, ServiceKind::P2mpVc | ServiceKind::Mp2mpVc)
            && !exchange.descendants(found.account).contains(&account)
    })
}

/// Returns the rates with which the principal may order an end of `account` in a multipoint service of
/// another account; `None` if the principal may not order one. The rules of the service decide. A rule that
/// denies `account` or the principal's account outranks a rule that allows; both outrank a public service.
pub(crate) fn may_join(
    app: &App,
    principal: &Principal,
    service: ServiceId,
    account: AccountId,
) -> Option<Bounds> {
    if !needs_joining_rule(principal, service, account) {
        return None;
    }
    let rules = app.records.all::<RuleRequest>().into_iter().map(|(_, rule)| rule);
    let rules: Vec<RuleRequest> = rules.filter(|rule| rule.service() == Some(service)).collect();
    let about = |account: AccountId, effect: Effect| {
        let account = account.to_string();
        rules
            .iter()
            .rev()
            .find(|rule| rule.effect == effect && rule.owned.consuming_account == account)
    };
    let concerned = principal.actor.account.into_iter().chain([account]);
    if concerned
        .into_iter()
        .any(|account| about(account, Effect::Deny).is_some())
    {
        return None;
    }
    let allowed = about(account, Effect::Allow).map(|rule| Bounds {
        min: rule.capacity_min,
        max: rule.capacity_max,
    });
    allowed.or_else(|| ix_api_properties(app, service).public.then(Bounds::default))
}

/// Returns true if the principal may order an end in a multipoint service for its account or an account below
/// it.
pub(crate) fn may_join_for_any_account(app: &App, principal: &Principal, service: ServiceId) -> bool {
    let exchange = &principal.snapshot.exchange;
    let kind = exchange.services.get(&service).map(|found| found.kind);
    let (Some(own), Some(ServiceKind::P2mpVc | ServiceKind::Mp2mpVc)) = (principal.actor.account, kind)
    else {
        return false;
    };
    let accounts = exchange.descendants(own).into_iter();
    accounts
        .filter(|account| *account == own || principal.may_read(*account))
        .any(|account| may_join(app, principal, service, account).is_some())
}

fn find(app: &App, principal: &Principal, id: &str) -> Result<RuleRequest, Problem> {
    let found: Option<RuleRequest> = app.records.find(id);
    found
        .filter(|rule| rule.is_readable(principal))
        .ok_or_else(|| Problem::absent(id.chars().take(40).collect::<String>()))
}

/// List joining rules
#[utoipa::path(get, path = "/api/v2/member-joining-rules", tag = "member-joining-rules", operation_id = "member_joining_rules_list", params(FilterParams),
    responses((status = 200, body = Vec<MemberJoiningRule>), (status = "default", body = IxProblem, content_type = "application/problem+json")))]
pub(crate) async fn list(
    Shared(app): Shared<App>,
    principal: Principal,
    filters: Filters,
) -> Result<Json<Vec<Value>>, Problem> {
    let all = app.records.all::<RuleRequest>().into_iter();
    let seen = all.filter(|(_, rule)| rule.is_readable(&principal));
    filters.list(seen.map(|(id, rule)| MemberJoiningRule { id, rule }).collect())
}

/// Read a joining rule
#[utoipa::path(get, path = "/api/v2/member-joining-rules/{id}", tag = "member-joining-rules", operation_id = "member_joining_rules_read", params(("id" = String, Path, description = "The rule")),
    responses((status = 200, body = MemberJoiningRule), (status = "default", body = IxProblem, content_type = "application/problem+json")))]
pub(crate) async fn read(
    Shared(app): Shared<App>,
    principal: Principal,
    Path(id): Path<String>,
) -> Result<Json<MemberJoiningRule>, Problem> {
    let rule = find(&app, &principal, &id)?;
    Ok(Json(MemberJoiningRule { id, rule }))
}

/// Let an account join a multipoint service, or keep it out
#[utoipa::path(post, path = "/api/v2/member-joining-rules", tag = "member-joining-rules", operation_id = "member_joining_rules_create", request_body = RuleRequest,
    responses((status = 201, body = MemberJoiningRule), (status = "default", body = IxProblem, content_type = "application/problem+json")))]
pub(crate) async fn create(
    Shared(app): Shared<App>,
    principal: Principal,
    mark: RequestMark,
    Body(rule): Body<RuleRequest>,
) -> Result<(StatusCode, Json<MemberJoiningRule>), Problem> {
    rule.check(&principal)?;
    check_room(&app, |other: &RuleRequest| {
        other.network_service == rule.network_service
    })?;
    app.record(
        &principal.audit_name(),
        "create_joining_rule",
        &rule.network_service,
        json!(rule),
    )
    .await?;
    let id = app.records.create(&rule, &mark).await?;
    Ok((StatusCode::CREATED, Json(MemberJoiningRule { id, rule })))
}

/// Changes of a joining rule; absent properties stay.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct RuleUpdate {
    /// The effect, which cannot change.
    #[serde(default, rename = "type")]
    effect: Option<Effect>,
    #[serde(flatten)]
    owned: OwnedUpdate,
    /// The service, which cannot change.
    #[serde(default)]
    network_service: Option<String>,
    /// The lowest rate in Mbit/s.
    #[serde(default, deserialize_with = "nullable")]
    #[schema(value_type = Option<u32>)]
    capacity_min: Option<Option<u32>>,
    /// The highest rate in Mbit/s.
    #[serde(default, deserialize_with = "nullable")]
    #[schema(value_type = Option<u32>)]
    capacity_max: Option<Option<u32>>,
}

async fn change(
    app: &App,
    principal: &Principal,
    id: String,
    given: RuleUpdate,
) -> Result<Json<MemberJoiningRule>, Problem> {
    let mut rule = find(app, principal, &id)?;
    if given.effect.is_some_and(|effect| effect != rule.effect) {
        return Err(invalid("type", "the type of a rule cannot change"));
    }
    unchanged(
        "network_service",
        given.network_service.as_ref(),
        &rule.network_service,
    )?;
    given.owned.apply(&mut rule.owned)?;
    rule.capacity_min = given.capacity_min.unwrap_or(rule.capacity_min);
    rule.capacity_max = given.capacity_max.unwrap_or(rule.capacity_max);
    rule.check(principal)?;
    app.record(&principal.audit_name(), "update_joining_rule", &id, json!(rule))
        .await?;
    app.records.put(&id, &rule).await?;
    Ok(Json(MemberJoiningRule { id, rule }))
}

/// Change a joining rule
#[utoipa::path(patch, path = "/api/v2/member-joining-rules/{id}", tag = "member-joining-rules", operation_id = "member_joining_rules_partial_update", request_body = RuleUpdate, params(("id" = String, Path, description = "The rule")),
    responses((status = 200, body = MemberJoiningRule), (status = "default", body = IxProblem, content_type = "application/problem+json")))]
pub(crate) async fn update(
    Shared(app): Shared<App>,
    principal: Principal,
    Path(id): Path<String>,
    Body(given): Body<RuleUpdate>,
) -> Result<Json<MemberJoiningRule>, Problem> {
    change(&app, &principal, id, given).await
}

/// Change a joining rule; absent properties stay
#[utoipa::path(put, path = "/api/v2/member-joining-rules/{id}", tag = "member-joining-rules", operation_id = "member_joining_rules_update", request_body = RuleUpdate, params(("id" = String, Path, description = "The rule")),
    responses((status = 200, body = MemberJoiningRule), (status = "default", body = IxProblem, content_type = "application/problem+json")))]
pub(crate) async fn replace(
    Shared(app): Shared<App>,
    principal: Principal,
    Path(id): Path<String>,
    Body(given): Body<RuleUpdate>,
) -> Result<Json<MemberJoiningRule>, Problem> {
    change(&app, &principal, id, given).await
}

/// Delete a joining rule; ends that have joined stay
#[utoipa::path(delete, path = "/api/v2/member-joining-rules/{id}", tag = "member-joining-rules", operation_id = "member_joining_rules_destroy", params(("id" = String, Path, description = "The rule")),
    responses((status = 200, body = MemberJoiningRule), (status = "default", body = IxProblem, content_type = "application/problem+json")))]
pub(crate) async fn delete(
    Shared(app): Shared<App>,
    principal: Principal,
    Path(id): Path<String>,
) -> Result<Json<MemberJoiningRule>, Problem> {
    let rule = find(&app, &principal, &id)?;
    if !rule.is_writable(&principal) {
        let detail = format!("your roles do not permit this for {id}");
        return Err(Problem::new(ProblemKind::Forbidden, detail).with_code("forbidden"));
    }
    app.record(&principal.audit_name(), "delete_joining_rule", &id, json!({}))
        .await?;
    app.records.delete(&id).await?;
    Ok(Json(MemberJoiningRule { id, rule }))
}
