//! Read access to accounts, users, connections, filters and the fabric.

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use millrace_ix_model::{
    AccountId, AccountKind, ConnectionId, Key, ObjectId, OperationKind, SwitchId, TrunkId, UserId,
};
use serde::Serialize;

use crate::access::{Access, Principal};
use crate::app::App;
use crate::problem::Problem;
use crate::render::ViewContext;
use crate::request::{PageParams, Query};
use crate::view::{self, List};

/// A value and the revision for its ETag.
pub(crate) struct Tagged<T> {
    revision: u64,
    value: T,
}

/// Returns a value with its revision as the ETag.
pub(crate) fn tagged<T>(revision: u64, value: T) -> Tagged<T> {
    Tagged { revision, value }
}

impl<T: Serialize> IntoResponse for Tagged<T> {
    fn into_response(self) -> Response {
        let mut response = Json(self.value).into_response();
        if let Ok(tag) = HeaderValue::from_str(&format!("\"{}\"", self.revision)) {
            response.headers_mut().insert(header::ETAG, tag);
        }
        response
    }
}

/// Returns all objects of a type that the principal may read.
pub(super) fn readable<K: Key>(principal: &Principal) -> Vec<(K, &K::Object)> {
    let all = K::all(&principal.snapshot.exchange).iter();
    all.filter(|(id, _)| principal.may_read(**id))
        .map(|(id, object)| (*id, object))
        .collect()
}

/// List accounts: your own, those below it, and the names of other accounts that want to be found
#[utoipa::path(get, path = "/api/v1/accounts", tag = "accounts", params(PageParams),
    responses((status = 200, body = List<view::Account>), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn accounts(
    State(app): State<App>,
    principal: Principal,
    Query(page): Query<PageParams>,
) -> Result<Json<List<view::Account>>, Problem> {
    let scope = ViewContext::new(&principal, app.now());
    let all = principal.snapshot.exchange.accounts.iter();
    let seen = all.filter(|(id, account)| {
        let is_public = account.discoverable && account.kind != AccountKind::Authority;
        principal.may_read(**id) || is_public && principal.may_somewhere(OperationKind::ReadPresence)
    });
    let seen: Vec<_> = seen.map(|(id, account)| (*id, account)).collect();
    page.page(&seen, |id, account| scope.account(id, account))
        .map(Json)
}

/// Read an account
#[utoipa::path(get, path = "/api/v1/accounts/{id}", tag = "accounts", params(("id" = String, Path, description = "The account")),
    responses((status = 200, body = view::Account), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn account(
    State(app): State<App>,
    access: Access<AccountId>,
) -> Result<Tagged<view::Account>, Problem> {
    let view = ViewContext::new(access.principal(), app.now()).account(access.id(), access.object()?);
    Ok(tagged(view.revision, view))
}

/// List users
#[utoipa::path(get, path = "/api/v1/users", tag = "accounts", params(PageParams),
    responses((status = 200, body = List<view::User>), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn users(
    State(app): State<App>,
    principal: Principal,
    Query(page): Query<PageParams>,
) -> Result<Json<List<view::User>>, Problem> {
    principal.require(OperationKind::ReadUsers)?;
    let scope = ViewContext::new(&principal, app.now());
    page.page(&readable::<UserId>(&principal), |id, user| scope.user(id, user))
        .map(Json)
}

/// Read a user
#[utoipa::path(get, path = "/api/v1/users/{id}", tag = "accounts", params(("id" = String, Path, description = "The user")),
    responses((status = 200, body = view::User), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn user(
    State(app): State<App>,
    access: Access<UserId>,
) -> Result<Tagged<view::User>, Problem> {
    let view = ViewContext::new(access.principal(), app.now()).user(access.id(), access.object()?);
    Ok(tagged(view.revision, view))
}

/// List connections
#[utoipa::path(get, path = "/api/v1/connections", tag = "connections", params(PageParams),
    responses((status = 200, body = List<view::Connection>), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn connections(
    State(app): State<App>,
    principal: Principal,
    Query(page): Query<PageParams>,
) -> Result<Json<List<view::Connection>>, Problem> {
    let scope = ViewContext::new(&principal, app.now()).with_loads(app.engine.loads());
    let readable = readable::<ConnectionId>(&principal);
    page.page(&readable, |id, connection| scope.connection(id, connection))
        .map(Json)
}

/// Read a connection
#[utoipa::path(get, path = "/api/v1/connections/{id}", tag = "connections", params(("id" = String, Path, description = "The connection")),
    responses((status = 200, body = view::Connection), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn connection(
    State(app): State<App>,
    access: Access<ConnectionId>,
) -> Result<Tagged<view::Connection>, Problem> {
    let scope = ViewContext::new(access.principal(), app.now()).with_loads(app.engine.loads());
    let view = scope.connection(access.id(), access.object()?);
    Ok(tagged(view.revision, view))
}

/// Read the free and the taken VLANs of a connection
#[utoipa::path(get, path = "/api/v1/connections/{id}/vlans", tag = "connections", params(("id" = String, Path, description = "The connection")),
    responses((status = 200, body = view::Vlans), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn vlans(
    State(app): State<App>,
    access: Access<ConnectionId>,
) -> Result<Json<view::Vlans>, Problem> {
    Ok(Json(
        ViewContext::new(access.principal(), app.now()).vlans(access.id()),
    ))
}

/// List sites
#[utoipa::path(get, path = "/api/v1/sites", tag = "fabric", params(PageParams),
    responses((status = 200, body = List<view::Site>), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn sites(
    State(app): State<App>,
    principal: Principal,
    Query(page): Query<PageParams>,
) -> Result<Json<List<view::Site>>, Problem> {
    principal.require(OperationKind::ReadFabric)?;
    let scope = ViewContext::new(&principal, app.now());
    page.page(&readable::<millrace_ix_model::SiteId>(&principal), |id, site| {
        scope.site(id, site)
    })
    .map(Json)
}

/// List switches
#[utoipa::path(get, path = "/api/v1/switches", tag = "fabric", params(PageParams),
    responses((status = 200, body = List<view::Switch>), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn switches(
    State(app): State<App>,
    principal: Principal,
    Query(page): Query<PageParams>,
) -> Result<Json<List<view::Switch>>, Problem> {
    principal.require(OperationKind::ReadFabric)?;
    let scope = ViewContext::new(&principal, app.now());
    page.page(&readable::<SwitchId>(&principal), |id, switch| {
        scope.switch(id, switch)
    })
    .map(Json)
}

/// Read a switch
#[utoipa::path(get, path = "/api/v1/switches/{id}", tag = "fabric", params(("id" = String, Path, description = "The switch")),
    responses((status = 200, body = view::Switch), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn switch(
    State(app): State<App>,
    access: Access<SwitchId>,
) -> Result<Tagged<view::Switch>, Problem> {
    let view = ViewContext::new(access.principal(), app.now()).switch(access.id(), access.object()?);
    Ok(tagged(view.revision, view))
}

/// List trunks
#[utoipa::path(get, path = "/api/v1/trunks", tag = "fabric", params(PageParams),
    responses((status = 200, body = List<view::Trunk>), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn trunks(
    State(app): State<App>,
    principal: Principal,
    Query(page): Query<PageParams>,
) -> Result<Json<List<view::Trunk>>, Problem> {
    principal.require(OperationKind::ReadFabric)?;
    let scope = ViewContext::new(&principal, app.now()).with_loads(app.engine.loads());
    page.page(&readable::<TrunkId>(&principal), |id, trunk| {
        scope.trunk(id, trunk)
    })
    .map(Json)
}

/// Read a trunk
#[utoipa::path(get, path = "/api/v1/trunks/{id}", tag = "fabric", params(("id" = String, Path, description = "The trunk")),
    responses((status = 200, body = view::Trunk), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn trunk(
    State(app): State<App>,
    access: Access<TrunkId>,
) -> Result<Tagged<view::Trunk>, Problem> {
    let scope = ViewContext::new(access.principal(), app.now()).with_loads(app.engine.loads());
    let view = scope.trunk(access.id(), access.object()?);
    Ok(tagged(view.revision, view))
}

/// Returns true if the principal may read at least one of the objects.
pub(crate) fn may_read_any(principal: &Principal, objects: &[ObjectId]) -> bool {
    objects.iter().any(|object| principal.may_read(*object))
}
