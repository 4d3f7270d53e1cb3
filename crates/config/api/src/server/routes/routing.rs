//! The router: VRFs, interfaces, routes, next hops and neighbours.

use std::net::IpAddr;

use axum::Json;
use axum::extract::State;
use millrace_fib::Prefix;
use serde::Deserialize;

use crate::server::app::App;
use crate::server::extract::{Path, Query};
use crate::server::live::{Live, RouteQuery, RouteSelection};
use crate::view::{Neighbour, NextHopGroup, Problem, ProblemKind, RoutePage, RouterInterface, Vrf};

/// The default number of routes on a page.
const PAGE_LEN: usize = 1000;
/// The largest number of routes on a page.
const PAGE_MAX_LEN: usize = 10_000;

/// List the VRFs of the router
#[utoipa::path(get, path = "/api/v1/vrfs", tag = "routing",
    responses((status = 200, body = Vec<Vrf>), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn vrfs(State(app): State<App>) -> Result<Json<Vec<Vrf>>, Problem> {
    app.with_live(<dyn Live>::vrfs).await.map(Json)
}

/// List the interfaces of the router with their counters
#[utoipa::path(get, path = "/api/v1/interfaces", tag = "routing",
    responses((status = 200, body = Vec<RouterInterface>), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn interfaces(State(app): State<App>) -> Result<Json<Vec<RouterInterface>>, Problem> {
    app.with_live(<dyn Live>::router_interfaces).await.map(Json)
}

/// A selection of routes; `to` and `within` exclude each other.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct RouteParams {
    /// Only the route that packets to this address follow: `192.0.2.1`.
    to: Option<String>,
    /// Only this prefix and longer ones: `10.0.0.0/8`.
    within: Option<String>,
    /// Continue after this prefix, `next` of the previous page.
    after: Option<String>,
    /// The largest number of routes, 1 to 10000 (default 1000).
    limit: Option<usize>,
}

impl RouteParams {
    fn query(self) -> Result<RouteQuery, Problem> {
        let wrong = |detail: String| Problem::new(ProblemKind::BadRequest, detail);
        let prefix = |name: &str, text: &str| {
            let parsed = text.parse::<Prefix>();
            parsed.map_err(|error| wrong(format!("`{name}` is `{text}`: {error}")))
        };
        let limit = self.limit.unwrap_or(PAGE_LEN);
        if !(1..=PAGE_MAX_LEN).contains(&limit) {
            return Err(wrong(format!("`limit` is {limit}: expected 1 to {PAGE_MAX_LEN}")));
        }
        let selection = match (self.to, self.within) {
            (Some(_), Some(_)) => return Err(wrong("`to` and `within`: expected one of them".to_owned())),
            (Some(to), None) => RouteSelection::To(
                to.parse::<IpAddr>()
                    .map_err(|_| wrong(format!("`to` is `{to}`: expected an IP address as in 192.0.2.1")))?,
            ),
            (None, Some(within)) => RouteSelection::Within(prefix("within", &within)?),
            (None, None) => RouteSelection::All,
        };
        let after = self.after.map(|after| prefix("after", &after)).transpose()?;
        Ok(RouteQuery {
            selection,
            after,
            limit,
        })
    }
}

/// List routes of a VRF in the order of prefixes
#[utoipa::path(get, path = "/api/v1/vrfs/{vrf}/routes", tag = "routing",
    params(("vrf" = String, Path, description = "Name of the VRF"), RouteParams),
    responses((status = 200, body = RoutePage), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn routes(
    State(app): State<App>,
    Path(vrf): Path<String>,
    Query(params): Query<RouteParams>,
) -> Result<Json<RoutePage>, Problem> {
    let query = params.query()?;
    Ok(Json(app.with_live(move |live| live.routes(&vrf, &query)).await??))
}

/// List the groups of next hops of a VRF
#[utoipa::path(get, path = "/api/v1/vrfs/{vrf}/nexthops", tag = "routing", params(("vrf" = String, Path, description = "Name of the VRF")),
    responses((status = 200, body = Vec<NextHopGroup>), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn nexthops(
    State(app): State<App>,
    Path(vrf): Path<String>,
) -> Result<Json<Vec<NextHopGroup>>, Problem> {
    Ok(Json(app.with_live(move |live| live.nexthops(&vrf)).await??))
}

/// List the neighbours of a VRF
#[utoipa::path(get, path = "/api/v1/vrfs/{vrf}/neighbours", tag = "routing", params(("vrf" = String, Path, description = "Name of the VRF")),
    responses((status = 200, body = Vec<Neighbour>), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn neighbours(
    State(app): State<App>,
    Path(vrf): Path<String>,
) -> Result<Json<Vec<Neighbour>>, Problem> {
    Ok(Json(app.with_live(move |live| live.neighbours(&vrf)).await??))
}
