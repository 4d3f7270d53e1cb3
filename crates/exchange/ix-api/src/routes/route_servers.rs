//! BGP sessions of an end of a peering LAN with the route servers, and the routes that the route servers
//! reject.

use axum::Json;
use axum::extract::State;
use millrace_ix_model::{ConfigId, OperationKind, ServiceKind};

use crate::access::Access;
use crate::app::App;
use crate::problem::Problem;
use crate::render::{RouteServerReading, ViewContext, member_routes, rejections};
use crate::request::{PageParams, Query};
use crate::view::{self, List};

/// Returns the route servers of an end's LAN that the engine queries, each with its latest status.
fn readings<'a>(app: &'a App, access: &Access<ConfigId>) -> Result<Vec<RouteServerReading<'a>>, Problem> {
    access.require(OperationKind::ReadFilter)?;
    let end = access.object()?;
    let services = &access.principal().snapshot.exchange.services;
    let lan = services
        .get(&end.service)
        .filter(|service| service.kind == ServiceKind::ExchangeLan);
    let servers = app.settings.route_servers.iter();
    Ok(servers
        .filter(|server| server.control.is_some() && lan.is_some_and(|lan| lan.name == server.lan))
        .map(|server| RouteServerReading {
            server,
            status: app.engine.route_server_status(server),
        })
        .collect())
}

/// List the sessions of an end of a peering LAN with the route servers
///
/// The list has one session for each route server and address; `state` is `absent` for an address without a
/// session. The list is empty if the engine queries no route server of the LAN (`control` in the settings).
#[utoipa::path(get, path = "/api/v1/configs/{id}/route-server-sessions", tag = "services", params(PageParams, ("id" = String, Path, description = "The end")),
    responses((status = 200, body = List<view::RouteServerSession>), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn sessions(
    State(app): State<App>,
    access: Access<ConfigId>,
    Query(page): Query<PageParams>,
) -> Result<Json<List<view::RouteServerSession>>, Problem> {
    let readings = readings(&app, &access)?;
    let scope = ViewContext::new(access.principal(), app.now());
    let all = scope.route_server_sessions(&readings, &scope.owner(access.id(), access.object()?));
    let numbered: Vec<_> = all.into_iter().enumerate().collect();
    page.page(&numbered, |_, session| session.clone()).map(Json)
}

/// List the routes of an end of a peering LAN that the route servers reject, with the causes
#[utoipa::path(get, path = "/api/v1/configs/{id}/rejected-routes", tag = "services", params(PageParams, ("id" = String, Path, description = "The end")),
    responses((status = 200, body = List<view::RejectedRoute>), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn rejected_routes(
    State(app): State<App>,
    access: Access<ConfigId>,
    Query(page): Query<PageParams>,
) -> Result<Json<List<view::RejectedRoute>>, Problem> {
    let readings = readings(&app, &access)?;
    let owner = ViewContext::new(access.principal(), app.now()).owner(access.id(), access.object()?);
    let numbered: Vec<_> = rejections(&readings, &owner).into_iter().enumerate().collect();
    page.page(&numbered, |_, rejection| rejection.view()).map(Json)
}

/// List the routes of an end of a peering LAN that the route servers accept and reject, by prefix
///
/// Accepted routes are those that the engine has from the route servers with an address of the end as next hop, at most 10,000.
#[utoipa::path(get, path = "/api/v1/configs/{id}/route-server-routes", tag = "services", params(PageParams, ("id" = String, Path, description = "The end")),
    responses((status = 200, body = List<view::MemberRoute>), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn routes(
    State(app): State<App>,
    access: Access<ConfigId>,
    Query(page): Query<PageParams>,
) -> Result<Json<List<view::MemberRoute>>, Problem> {
    let readings = readings(&app, &access)?;
    let end = access.object()?;
    let owner = ViewContext::new(access.principal(), app.now()).owner(access.id(), end);
    let addresses = owner.addresses.iter().copied().collect();
    let accepted = app.engine.routes_of(end.account, &addresses);
    let states = |routes: &[_]| app.engine.route_states(end.account, routes);
    let all = member_routes(&readings, &owner, accepted, states);
    let numbered: Vec<_> = all.into_iter().enumerate().collect();
    page.page(&numbered, |_, route| route.clone()).map(Json)
}
