//! The collection `network-services` of IX-API: circuits and peering LANs.

use std::time::Duration;

use axum::Json;
use axum::extract::State as Shared;
use axum::http::StatusCode;
use millrace_ix_model::{
    AccountId, Exchange, Key as _, Operation, OperationKind, Service, ServiceId, ServiceKind,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use super::contacts::check_assignments;
use super::orders::{
    check_reference, created, ix_api_properties, order, put_properties, renewed, service_state,
};
use super::places::{check_offering, offering_id, type_of};
use super::problem::IxProblem;
use super::query::{FilterParams, Filters};
use super::view::{
    Billed, BilledUpdate, Owned, OwnedUpdate, State, Stateful, account, check_text, invalid, unchanged,
};
use crate::access::{Access, Principal};
use crate::app::App;
use crate::problem::Problem;
use crate::request::{Body, Conditions};

/// The parts that all network services have.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct ServiceBase {
    /// The identifier.
    id: String,
    #[serde(flatten)]
    pub(crate) stateful: Stateful,
    #[serde(flatten)]
    owned: Owned,
    /// The name.
    name: String,
    /// The product offering.
    product_offering: String,
    /// The roles of contacts that a configuration needs: none.
    nsc_required_contact_roles: Vec<String>,
}

/// A circuit between two ends.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct P2pService {
    #[serde(flatten)]
    base: ServiceBase,
    #[serde(flatten)]
    billed: Billed,
    /// The account of the other end.
    joining_member_account: Option<String>,
    /// The lowest contracted rate of both ends in Mbit/s.
    capacity: Option<u32>,
}

/// A circuit with roots and leaves, or between many ends.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct MultipointService {
    #[serde(flatten)]
    base: ServiceBase,
    #[serde(flatten)]
    billed: Billed,
    /// True if every account may join, unless a rule denies it.
    public: bool,
    /// The rules that let other accounts join.
    member_joining_rules: Vec<String>,
    /// The features.
    network_features: Vec<String>,
}

/// A peering LAN.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct LanService {
    #[serde(flatten)]
    base: ServiceBase,
    /// The metro area network.
    metro_area_network: String,
    /// The number in PeeringDB.
    peeringdb_ixid: Option<u32>,
    /// The number in the IXP database.
    ixfdb_ixid: Option<u32>,
    /// The features: route servers.
    network_features: Vec<String>,
    /// The IPv4 network; empty if there is none.
    subnet_v4: String,
    /// The IPv6 network; empty if there is none.
    subnet_v6: String,
}

/// A network service.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(crate) enum NetworkService {
    ExchangeLan(LanService),
    P2pVc(P2pService),
    P2mpVc(MultipointService),
    Mp2mpVc(MultipointService),
}

impl NetworkService {
    fn base_mut(&mut self) -> &mut ServiceBase {
        match self {
            NetworkService::ExchangeLan(lan) => &mut lan.base,
            NetworkService::P2pVc(circuit) => &mut circuit.base,
            NetworkService::P2mpVc(circuit) | NetworkService::Mp2mpVc(circuit) => &mut circuit.base,
        }
    }
}

/// Returns a service as the principal may see it.
pub(crate) fn view(app: &App, principal: &Principal, id: ServiceId, service: &Service) -> NetworkService {
    let exchange = &principal.snapshot.exchange;
    let full = principal.may_read(id);
    let facts = ix_api_properties(app, id);
    let lan = (service.kind == ServiceKind::ExchangeLan).then_some(id);
    let mut owned = facts.owned(service.account, service.external_ref.as_ref());
    let is_own = principal.may(OperationKind::RenameService, id)
        || principal.may(OperationKind::ReadAccount, service.account);
    if !is_own {
        owned.external_ref = None;
    }
    let billed = if is_own {
        facts.billed(service.account)
    } else {
        super::view::IxApiProperties::default().billed(service.account)
    };
    let base = ServiceBase {
        id: id.to_string(),
        stateful: if full {
            service_state(app, principal, id, service)
        } else {
            // An account that may join and has not joined yet sees only that the service exists.
            Stateful::plain(State::Production)
        },
        owned,
        name: service.name.clone(),
        product_offering: offering_id(service.kind, lan),
        nsc_required_contact_roles: Vec::new(),
    };
    let multipoint = |base: ServiceBase| MultipointService {
        base,
        billed: billed.clone(),
        public: facts.public,
        member_joining_rules: super::joining::rules_of(app, principal, id),
        network_features: Vec::new(),
    };
    match service.kind {
        ServiceKind::P2pVc => {
            let ends = principal.snapshot.index().by_service.get(&id);
            let rates = ends
                .into_iter()
                .flatten()
                .filter_map(|end| exchange.configs.get(end)?.capacity_mbps);
            NetworkService::P2pVc(P2pService {
                base,
                capacity: rates.min().filter(|_| is_own),
                joining_member_account: service.peer.map(|peer| peer.to_string()),
                billed,
            })
        }
        ServiceKind::P2mpVc => NetworkService::P2mpVc(multipoint(base)),
        ServiceKind::Mp2mpVc => NetworkService::Mp2mpVc(multipoint(base)),
        ServiceKind::ExchangeLan => {
            let subnet = |is_v4: bool| {
                let found = service
                    .networks
                    .iter()
                    .map(ToString::to_string)
                    .find(|text| text.contains(':') != is_v4);
                found.unwrap_or_default()
            };
            NetworkService::ExchangeLan(LanService {
                base,
                metro_area_network: "man-1".to_owned(),
                peeringdb_ixid: None,
                ixfdb_ixid: None,
                network_features: super::features::features_of(app, exchange, id)
                    .into_iter()
                    .map(|feature| feature.id)
                    .collect(),
                subnet_v4: subnet(true),
                subnet_v6: subnet(false),
            })
        }
    }
}

/// Returns true if the principal may see a service: one of its own, one that it takes part in, or one that it may join.
pub(crate) fn is_visible(app: &App, principal: &Principal, id: ServiceId) -> bool {
    principal.may_read(id)
        || principal.may_somewhere(OperationKind::ConfigureEnd)
            && super::joining::may_join_for_any_account(app, principal, id)
}

/// Returns a service that the principal may see.
pub(crate) fn find<'a>(app: &App, principal: &'a Principal, id: ServiceId) -> Result<&'a Service, Problem> {
    id.stored(&principal.snapshot.exchange)
        .filter(|_| is_visible(app, principal, id))
        .ok_or_else(|| Problem::absent(id))
}

fn view_of(app: &App, principal: &Principal, id: ServiceId) -> Result<Json<NetworkService>, Problem> {
    let service = find(app, principal, id)?;
    Ok(Json(view(app, principal, id, service)))
}

/// Parses an identifier in a path. Text that is not an identifier is answered as an absent object.
pub(crate) fn path_id<K: std::str::FromStr>(text: &str) -> Result<K, Problem> {
    text.parse()
        .map_err(|_| Problem::absent(text.chars().take(40).collect::<String>()))
}

/// List network services that the caller's account owns, takes part in, or may join
#[utoipa::path(get, path = "/api/v2/network-services", tag = "network-services", operation_id = "network_services_list", params(FilterParams),
    responses((status = 200, body = Vec<NetworkService>), (status = "default", body = IxProblem, content_type = "application/problem+json")))]
pub(crate) async fn list(
    Shared(app): Shared<App>,
    principal: Principal,
    filters: Filters,
) -> Result<Json<Vec<Value>>, Problem> {
    let all = principal.snapshot.exchange.services.iter();
    let seen = all.filter(|(id, _)| is_visible(&app, &principal, **id));
    filters.list(
        seen.map(|(id, service)| view(&app, &principal, *id, service))
            .collect(),
    )
}

/// Read a network service
#[utoipa::path(get, path = "/api/v2/network-services/{id}", tag = "network-services", operation_id = "network_services_read", params(("id" = String, Path, description = "The service")),
    responses((status = 200, body = NetworkService), (status = "default", body = IxProblem, content_type = "application/problem+json")))]
pub(crate) async fn read(
    Shared(app): Shared<App>,
    principal: Principal,
    axum::extract::Path(id): axum::extract::Path<String>,
) -> Result<Json<NetworkService>, Problem> {
    view_of(&app, &principal, path_id(&id)?)
}

/// The parts that all orders of network services have.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct NewServiceBase {
    #[serde(flatten)]
    owned: Owned,
    #[serde(flatten)]
    billed: Billed,
    /// The product offering.
    #[schema(max_length = 80)]
    product_offering: String,
    /// The name; one is made for a `p2p_vc` without one.
    #[serde(default)]
    #[schema(max_length = 40)]
    name: Option<String>,
}

/// An order of a circuit between two ends.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct NewP2p {
    #[serde(flatten)]
    base: NewServiceBase,
    /// The account of the other end; the caller's account for a circuit between two of its ends.
    joining_member_account: String,
}

/// An order of a circuit with many ends.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct NewMultipoint {
    #[serde(flatten)]
    base: NewServiceBase,
    /// True if every account may join, unless a rule denies it.
    #[serde(default)]
    public: bool,
}

/// A new network service. Only the exchange creates peering LANs.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
#[allow(clippy::enum_variant_names, reason = "the names are those of IX-API: p2p_vc")]
pub(crate) enum NetworkServiceRequest {
    P2pVc(NewP2p),
    P2mpVc(NewMultipoint),
    Mp2mpVc(NewMultipoint),
}

/// Returns the services of an account, with the references of their orders.
fn siblings(exchange: &Exchange, account: AccountId) -> impl Iterator<Item = (ServiceId, Option<&String>)> {
    let all = exchange.services.iter();
    let own = all.filter(move |(_, found)| found.account == account);
    own.map(|(id, found)| (*id, found.external_ref.as_ref()))
}

/// Returns a name that no other service of the account has.
fn free_name(principal: &Principal, account: AccountId, wanted: &str) -> String {
    let services = &principal.snapshot.exchange.services;
    let is_free = |name: &str| {
        !services
            .values()
            .any(|service| service.account == account && service.name == name)
    };
    let mut numbered = (2..).map(|number| format!("{wanted} {number}"));
    if is_free(wanted) {
        return wanted.to_owned();
    }
    numbered.find(|name| is_free(name)).unwrap_or_default()
}

/// Order a network service
#[utoipa::path(post, path = "/api/v2/network-services", tag = "network-services", operation_id = "network_services_create", request_body = NetworkServiceRequest,
    responses((status = 201, body = NetworkService), (status = "default", body = IxProblem, content_type = "application/problem+json")))]
pub(crate) async fn create(
    Shared(app): Shared<App>,
    principal: Principal,
    conditions: Conditions,
    Body(given): Body<NetworkServiceRequest>,
) -> Result<(StatusCode, Json<NetworkService>), Problem> {
    let (kind, base, public) = match &given {
        NetworkServiceRequest::P2pVc(order) => (ServiceKind::P2pVc, &order.base, false),
        NetworkServiceRequest::P2mpVc(order) => (ServiceKind::P2mpVc, &order.base, order.public),
        NetworkServiceRequest::Mp2mpVc(order) => (ServiceKind::Mp2mpVc, &order.base, order.public),
    };
    let owner = base.owned.check(&principal)?;
    base.billed.check(&principal)?;
    check_offering(&base.product_offering, kind, None)?;
    check_text("name", base.name.as_deref().unwrap_or_default(), 40)?;
    let peer = match &given {
        NetworkServiceRequest::P2pVc(order) => {
            let peer: AccountId = super::view::id("joining_member_account", &order.joining_member_account)?;
            Some(peer).filter(|peer| *peer != owner)
        }
        _ => None,
    };
    let name = match (&base.name, kind) {
        (Some(name), _) => name.trim().to_owned(),
        (None, ServiceKind::P2pVc) => {
            let other = peer.map_or_else(|| "own".to_owned(), |peer| peer.to_string());
            free_name(&principal, owner, &format!("p2p {other}"))
        }
        (None, _) => return Err(invalid("name", "expected a name")),
    };
    let others = siblings(&principal.snapshot.exchange, owner).map(|(other, _)| (other, None));
    check_reference(&app, base.owned.external_ref.as_ref(), others)?;
    let operation = Operation::CreateService {
        account: Some(owner),
        kind,
        name,
        peer,
        policy: None,
        networks: Vec::new(),
        external_ref: base.owned.external_ref.clone(),
    };
    let applied = order(&app, &principal, &conditions, vec![operation], &given).await?;
    let id: ServiceId = created(&applied)?;
    let mut facts = ix_api_properties(&app, id);
    facts.managing_account = Some(base.owned.managing_account.clone());
    facts.billed = Some(base.billed.clone());
    facts.public = public;
    put_properties(&app, &principal, id, &facts).await?;
    Ok((
        StatusCode::CREATED,
        view_of(&app, &renewed(&app, &principal), id)?,
    ))
}

/// Changes of a network service; absent properties stay.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct NetworkServiceUpdate {
    /// The type, which cannot change.
    #[serde(default, rename = "type")]
    kind: Option<String>,
    /// The name.
    #[serde(default)]
    #[schema(max_length = 40)]
    name: Option<String>,
    /// True if every account may join, unless a rule denies it.
    #[serde(default)]
    public: Option<bool>,
    #[serde(flatten)]
    owned: OwnedUpdate,
    #[serde(flatten)]
    billed: BilledUpdate,
    /// The product offering, which cannot change.
    #[serde(default)]
    product_offering: Option<String>,
    /// The account of the other end of a circuit, which cannot change.
    #[serde(default)]
    joining_member_account: Option<String>,
}

async fn change(
    app: &App,
    access: &Access<ServiceId>,
    conditions: &Conditions,
    given: NetworkServiceUpdate,
) -> Result<Json<NetworkService>, Problem> {
    let (id, principal) = (access.id(), access.principal());
    access.require(OperationKind::RenameService)?;
    let service = access.object()?;
    if given
        .kind
        .as_deref()
        .is_some_and(|kind| kind != type_of(service.kind))
    {
        return Err(invalid("type", "the type of a service cannot change"));
    }
    check_text("name", given.name.as_deref().unwrap_or_default(), 40)?;
    let mut facts = ix_api_properties(app, id);
    if let Some(managing) = &given.owned.managing_account {
        account(principal, "managing_account", managing)?;
        facts.managing_account = Some(managing.clone());
    }
    let consuming = given.owned.consuming_account.as_ref();
    unchanged("consuming_account", consuming, &service.account.to_string())?;
    let lan = (service.kind == ServiceKind::ExchangeLan).then_some(id);
    let offering = offering_id(service.kind, lan);
    unchanged("product_offering", given.product_offering.as_ref(), &offering)?;
    if let Some(joining) = &given.joining_member_account {
        let peer = service.peer.map(|peer| peer.to_string());
        unchanged("joining_member_account", Some(joining), &peer.unwrap_or_default())?;
    }
    if let Some(reference) = &given.owned.external_ref {
        let others = siblings(&principal.snapshot.exchange, service.account);
        check_reference(app, reference.as_ref(), others.filter(|(other, _)| *other != id))?;
        facts.external_ref = Some(reference.clone().unwrap_or_default());
    }
    facts.public = given.public.unwrap_or(facts.public);
    let mut billed = facts.billed(service.account);
    given.billed.clone().apply(&mut billed);
    billed.check(principal)?;
    if billed.role_assignments != facts.billed(service.account).role_assignments {
        check_assignments(app, principal, &billed.role_assignments)?;
    }
    if let Some(name) = given.name.as_deref().filter(|name| *name != service.name) {
        let operation = Operation::RenameService {
            service: id,
            name: name.trim().to_owned(),
        };
        order(app, principal, conditions, vec![operation], &given).await?;
    }
    facts.billed = Some(billed);
    put_properties(app, principal, id, &facts).await?;
    view_of(app, &renewed(app, principal), id)
}

/// Change a network service
#[utoipa::path(patch, path = "/api/v2/network-services/{id}", tag = "network-services", operation_id = "network_services_partial_update", request_body = NetworkServiceUpdate, params(("id" = String, Path, description = "The service")),
    responses((status = 200, body = NetworkService), (status = "default", body = IxProblem, content_type = "application/problem+json")))]
pub(crate) async fn update(
    Shared(app): Shared<App>,
    access: Access<ServiceId>,
    conditions: Conditions,
    Body(given): Body<NetworkServiceUpdate>,
) -> Result<Json<NetworkService>, Problem> {
    change(&app, &access, &conditions, given).await
}

/// Change a network service; absent properties stay
#[utoipa::path(put, path = "/api/v2/network-services/{id}", tag = "network-services", operation_id = "network_services_update", request_body = NetworkServiceUpdate, params(("id" = String, Path, description = "The service")),
    responses((status = 200, body = NetworkService), (status = "default", body = IxProblem, content_type = "application/problem+json")))]
pub(crate) async fn replace(
    Shared(app): Shared<App>,
    access: Access<ServiceId>,
    conditions: Conditions,
    Body(given): Body<NetworkServiceUpdate>,
) -> Result<Json<NetworkService>, Problem> {
    change(&app, &access, &conditions, given).await
}

/// Delete a network service with its ends
#[utoipa::path(delete, path = "/api/v2/network-services/{id}", tag = "network-services", operation_id = "network_services_destroy", params(("id" = String, Path, description = "The service")),
    responses((status = 200, body = NetworkService), (status = "default", body = IxProblem, content_type = "application/problem+json")))]
pub(crate) async fn delete(
    Shared(app): Shared<App>,
    access: Access<ServiceId>,
    conditions: Conditions,
) -> Result<Json<NetworkService>, Problem> {
    access.require(OperationKind::DeleteService)?;
    let Json(mut gone) = view_of(&app, access.principal(), access.id())?;
    let target = access.id().into();
    let operations = vec![Operation::Delete { target }];
    order(&app, access.principal(), &conditions, operations, &()).await?;
    gone.base_mut().stateful = Stateful::plain(State::DecommissionRequested);
    Ok(Json(gone))
}

/// The earliest end of a service, and the end of its charges.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct CancellationPolicy {
    /// The first possible day.
    #[schema(format = Date)]
    decommission_at: String,
    /// The last day for which the service is charged.
    #[schema(format = Date)]
    charged_until: String,
}

/// Returns the policy of the exchange: a service can end today, and is charged until today.
pub(crate) fn policy(app: &App) -> Json<CancellationPolicy> {
    let today: String = app
        .now()
        .after(Duration::ZERO)
        .to_string()
        .chars()
        .take(10)
        .collect();
    Json(CancellationPolicy {
        decommission_at: today.clone(),
        charged_until: today,
    })
}

/// Read when a network service can end
#[utoipa::path(get, path = "/api/v2/network-services/{id}/cancellation-policy", tag = "network-services", operation_id = "network_service_cancellation_policy_read", params(("id" = String, Path, description = "The service")),
    responses((status = 200, body = CancellationPolicy), (status = "default", body = IxProblem, content_type = "application/problem+json")))]
pub(crate) async fn cancellation_policy(
    Shared(app): Shared<App>,
    access: Access<ServiceId>,
) -> Result<Json<CancellationPolicy>, Problem> {
    access.require(OperationKind::DeleteService)?;
    Ok(policy(&app))
}
