//! Services: lists, orders of paths, answers to invitations, locks, keys.

use std::collections::BTreeSet;

use axum::Json;
use axum::extract::State;
use axum::response::Response;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use millrace_ix_model::{
    AccountId, ConnectionId, EndRole, Operation, OperationKind, Service, ServiceId, ServiceKind, TagType,
    VlanId, VlanRequest,
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::objects::{Tagged, tagged};
use super::orders::{CREATED_SERVICE, END_POINTER_PREFIX, Step, expected_revision, order, order_about};
use crate::access::{Access, Principal};
use crate::app::App;
use crate::problem::{Problem, ProblemKind};
use crate::render::ViewContext;
use crate::request::{Body, Conditions, OrderParams, PageParams, Query};
use crate::view::{self, List, Ordered};

/// The filter of a list of services.
#[derive(Debug, Clone, Default, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct ServiceFilter {
    /// Only services in this state.
    state: Option<String>,
    /// Only services whose identifier or name contains this text.
    q: Option<String>,
}

/// Returns the services that the principal may read.
pub(crate) fn readable(principal: &Principal) -> Vec<(ServiceId, &Service)> {
    let exchange = &principal.snapshot.exchange;
    let below = principal
        .actor
        .account
        .map(|account| exchange.descendants(account))
        .unwrap_or_default();
    let own_ends = exchange
        .configs
        .values()
        .filter(|config| below.contains(&config.account));
    let with_own_end: BTreeSet<ServiceId> = own_ends.map(|config| config.service).collect();
    // `may_read` scans every end of the exchange. It is therefore called only for services that can concern
    // the actor.
    let concerns = |id: ServiceId, service: &Service| {
        principal.actor.is_operator()
            || service.kind == ServiceKind::ExchangeLan
            || below.contains(&service.account)
            || service.peer.is_some_and(|peer| below.contains(&peer))
            || with_own_end.contains(&id)
    };
    let services = exchange
        .services
        .iter()
        .filter(|(id, service)| concerns(**id, service));
    services
        .filter(|(id, _)| principal.may_read(**id))
        .map(|(id, service)| (*id, service))
        .collect()
}

/// List services
#[utoipa::path(get, path = "/api/v1/services", tag = "services", params(PageParams, ServiceFilter),
    responses((status = 200, body = List<view::Service>), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn list(
    State(app): State<App>,
    principal: Principal,
    Query(page): Query<PageParams>,
    Query(filter): Query<ServiceFilter>,
) -> Result<Json<List<view::Service>>, Problem> {
    let scope = ViewContext::new(&principal, app.now());
    let mut services = readable(&principal);
    if let Some(state) = &filter.state {
        services.retain(|(id, service)| crate::render::word(&scope.shown(*id, service).state) == *state);
    }
    if let Some(text) = &filter.q {
        let text = text.to_lowercase();
        services.retain(|(id, service)| {
            service.name.to_lowercase().contains(&text) || id.to_string().contains(&text)
        });
    }
    page.page(&services, |id, service| scope.service(id, service))
        .map(Json)
}

/// Read a service
#[utoipa::path(get, path = "/api/v1/services/{id}", tag = "services", params(("id" = String, Path, description = "The service")),
    responses((status = 200, body = view::Service), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn read(
    State(app): State<App>,
    access: Access<ServiceId>,
) -> Result<Tagged<view::Service>, Problem> {
    let view = ViewContext::new(access.principal(), app.now()).service(access.id(), access.object()?);
    Ok(tagged(view.revision, view))
}

/// One end of an order.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub(crate) struct EndOrder {
    /// The connection.
    connection: String,
    /// The tags. The exchange chooses a VID that is null.
    vlan: view::Vlan,
    /// The contracted rate in Mbit/s; null for the speed of the connection.
    #[serde(default)]
    capacity_mbps: Option<u32>,
}

impl EndOrder {
    /// Returns the connection and the tags. `pointer` is the JSON pointer to this end in the request body.
    pub(crate) fn parts(&self, pointer: &str) -> Result<(ConnectionId, VlanRequest), Problem> {
        let connection = self
            .connection
            .parse::<ConnectionId>()
            .map_err(|error| Problem::invalid(format!("{pointer}/connection"), error))?;
        Ok((connection, vlan_request(&self.vlan, pointer)?))
    }

    /// Returns the contracted rate in Mbit/s.
    pub(super) fn capacity(&self) -> Option<u32> {
        self.capacity_mbps
    }

    pub(super) fn configure(&self, service: ServiceId, pointer: &str) -> Result<Operation, Problem> {
        let (connection, vlan) = self.parts(pointer)?;
        Ok(Operation::ConfigureEnd {
            service,
            connection,
            vlan,
            capacity_mbps: self.capacity_mbps,
            role: EndRole::default(),
            asns: std::collections::BTreeSet::new(),
            external_ref: None,
        })
    }
}

/// Converts the tags of a request to the model's type.
pub(crate) fn vlan_request(vlan: &view::Vlan, pointer: &str) -> Result<VlanRequest, Problem> {
    let vid = |number: Option<u16>| {
        let parsed = number.map(VlanId::new).transpose();
        parsed.map_err(|error| Problem::invalid(format!("{pointer}/vlan"), error))
    };
    Ok(match vlan {
        view::Vlan::Port => VlanRequest::Port,
        view::Vlan::Dot1q { vlan } => VlanRequest::Dot1q {
            vlan: vid(*vlan)?,
            ethertype: TagType::CTag,
        },
        view::Vlan::Qinq { outer, inner } => VlanRequest::Qinq {
            outer: vid(*outer)?,
            inner: vid(*inner)?,
            ethertype: TagType::STag,
        },
    })
}

/// An order of a path, which is a point-to-point service.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub(crate) struct NewPath {
    /// The name of the service.
    name: String,
    /// The account that orders; null for the caller's account.
    #[serde(default)]
    account: Option<String>,
    /// The account that is invited to configure the other end; null if the caller or the holder of a service
    /// key configures that end.
    #[serde(default)]
    peer: Option<String>,
    /// The caller's end.
    end: EndOrder,
    /// The other end, if the caller configures it, too.
    #[serde(default)]
    far_end: Option<EndOrder>,
}

fn account_at(text: Option<&str>, pointer: &str) -> Result<Option<AccountId>, Problem> {
    text.map(str::parse::<AccountId>)
        .transpose()
        .map_err(|error| Problem::invalid(pointer, error))
}

/// Order a path: a point-to-point service with the caller's end
#[utoipa::path(post, path = "/api/v1/services", tag = "services", request_body = NewPath, params(OrderParams,
        ("idempotency-key" = Option<String>, Header, description = "Makes the order repeatable: 8 to 128 characters")),
    responses((status = 201, body = Ordered), (status = 200, body = Ordered, description = "Dry run"), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn create(
    State(app): State<App>,
    principal: Principal,
    conditions: Conditions,
    Body(given): Body<NewPath>,
) -> Result<Response, Problem> {
    let mut steps: Vec<Step> = vec![
        (
            Operation::CreateService {
                account: account_at(given.account.as_deref(), "/account")?,
                kind: ServiceKind::P2pVc,
                name: given.name.trim().to_owned(),
                peer: account_at(given.peer.as_deref(), "/peer")?,
                policy: None,
                networks: Vec::new(),
                external_ref: None,
            },
            "",
        ),
        (given.end.configure(CREATED_SERVICE, "/end")?, END_POINTER_PREFIX),
    ];
    if let Some(far) = &given.far_end {
        steps.push((far.configure(CREATED_SERVICE, "/far_end")?, "far_end."));
    }
    order(&app, &principal, &conditions, None, steps, &given).await
}

/// Sends an order about one service to the engine.
async fn order_service(
    app: &App,
    access: &Access<ServiceId>,
    kind: OperationKind,
    conditions: &Conditions,
    steps: Vec<Step>,
    body: &impl Serialize,
) -> Result<Response, Problem> {
    access.require(kind)?;
    let expected = expected_revision(access, conditions)?;
    order_about(app, access, conditions, expected, steps, body).await
}

/// Delete a service
#[utoipa::path(delete, path = "/api/v1/services/{id}", tag = "services", params(OrderParams, ("id" = String, Path, description = "The service"),
        ("if-match" = String, Header, description = "The ETag that the client has read"), ("idempotency-key" = Option<String>, Header, description = "Makes the order repeatable")),
    responses((status = 200, body = Ordered), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn delete(
    State(app): State<App>,
    access: Access<ServiceId>,
    conditions: Conditions,
) -> Result<Response, Problem> {
    let target = access.id().into();
    let steps = vec![(Operation::Delete { target }, "")];
    order_service(
        &app,
        &access,
        OperationKind::DeleteService,
        &conditions,
        steps,
        &(),
    )
    .await
}

/// The end with which an invitation is accepted.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub(crate) struct AcceptOrder {
    /// The caller's end.
    end: EndOrder,
}

/// Accept an invitation by configuring the caller's end
#[utoipa::path(post, path = "/api/v1/services/{id}/accept", tag = "services", request_body = AcceptOrder, params(OrderParams, ("id" = String, Path, description = "The service"),
        ("if-match" = String, Header, description = "The ETag that the client has read"), ("idempotency-key" = Option<String>, Header, description = "Makes the order repeatable")),
    responses((status = 201, body = Ordered), (status = 200, body = Ordered, description = "Dry run"), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn accept(
    State(app): State<App>,
    access: Access<ServiceId>,
    conditions: Conditions,
    Body(given): Body<AcceptOrder>,
) -> Result<Response, Problem> {
    let steps = vec![(given.end.configure(access.id(), "/end")?, END_POINTER_PREFIX)];
    order_service(&app, &access, OperationKind::Accept, &conditions, steps, &given).await
}

/// The reason of a refusal.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub(crate) struct RefuseOrder {
    /// The reason in words; the other side reads it.
    reason: String,
}

/// Refuse an invitation
#[utoipa::path(post, path = "/api/v1/services/{id}/refuse", tag = "services", request_body = RefuseOrder, params(OrderParams, ("id" = String, Path, description = "The service"),
        ("if-match" = String, Header, description = "The ETag that the client has read"), ("idempotency-key" = Option<String>, Header, description = "Makes the order repeatable")),
    responses((status = 200, body = Ordered), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn refuse(
    State(app): State<App>,
    access: Access<ServiceId>,
    conditions: Conditions,
    Body(given): Body<RefuseOrder>,
) -> Result<Response, Problem> {
    let operation = Operation::Refuse {
        service: access.id(),
        reason: given.reason.clone(),
    };
    order_service(
        &app,
        &access,
        OperationKind::Refuse,
        &conditions,
        vec![(operation, "")],
        &given,
    )
    .await
}

/// The lock of an object.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub(crate) struct LockOrder {
    /// True to lock the object against deletion.
    locked: bool,
}

/// Lock a service against deletion, or unlock it
#[utoipa::path(put, path = "/api/v1/services/{id}/lock", tag = "services", request_body = LockOrder, params(OrderParams, ("id" = String, Path, description = "The service"),
        ("if-match" = String, Header, description = "The ETag that the client has read"), ("idempotency-key" = Option<String>, Header, description = "Makes the order repeatable")),
    responses((status = 200, body = Ordered), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn lock(
    State(app): State<App>,
    access: Access<ServiceId>,
    conditions: Conditions,
    Body(given): Body<LockOrder>,
) -> Result<Response, Problem> {
    let target = access.id().into();
    let (operation, kind) = if given.locked {
        (Operation::Lock { target }, OperationKind::Lock)
    } else {
        (Operation::Unlock { target }, OperationKind::Unlock)
    };
    order_service(&app, &access, kind, &conditions, vec![(operation, "")], &given).await
}

/// A new service key.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub(crate) struct NewServiceKey {
    /// The validity in hours, 1 to 2160.
    hours: u32,
}

/// Make a service key: its holder may configure the other end once
#[utoipa::path(post, path = "/api/v1/services/{id}/keys", tag = "services", request_body = NewServiceKey, params(OrderParams, ("id" = String, Path, description = "The service"),
        ("idempotency-key" = Option<String>, Header, description = "Makes the order repeatable")),
    responses((status = 201, body = Ordered), (status = 200, body = Ordered, description = "Dry run"), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn create_key(
    State(app): State<App>,
    access: Access<ServiceId>,
    conditions: Conditions,
    Body(given): Body<NewServiceKey>,
) -> Result<Response, Problem> {
    access.require(OperationKind::CreateServiceKey)?;
    let bytes = crate::session::random::<24>()
        .map_err(|error| Problem::new(ProblemKind::Internal, error.to_string()))?;
    let operation = Operation::CreateServiceKey {
        service: access.id(),
        secret: URL_SAFE_NO_PAD.encode(bytes),
        valid_until: app
            .now()
            .after(std::time::Duration::from_secs(u64::from(given.hours) * 3600)),
        vlans: None,
        capacity_mbps: None,
    };
    order_about(&app, &access, &conditions, None, vec![(operation, "")], &given).await
}

/// The use of a service key.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub(crate) struct RedeemOrder {
    /// The key.
    secret: String,
    /// The caller's end.
    end: EndOrder,
}

/// Use a service key: configure the other end of another account's service
#[utoipa::path(post, path = "/api/v1/service-keys/redeem", tag = "services", request_body = RedeemOrder, params(OrderParams,
        ("idempotency-key" = Option<String>, Header, description = "Makes the order repeatable")),
    responses((status = 201, body = Ordered), (status = 200, body = Ordered, description = "Dry run"), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn redeem_key(
    State(app): State<App>,
    principal: Principal,
    conditions: Conditions,
    Body(given): Body<RedeemOrder>,
) -> Result<Response, Problem> {
    let (connection, vlan) = given.end.parts("/end")?;
    let operation = Operation::RedeemServiceKey {
        secret: given.secret.trim().to_owned(),
        connection,
        vlan,
        capacity_mbps: given.end.capacity_mbps,
        asns: std::collections::BTreeSet::new(),
    };
    order(
        &app,
        &principal,
        &conditions,
        None,
        vec![(operation, END_POINTER_PREFIX)],
        &given,
    )
    .await
}
