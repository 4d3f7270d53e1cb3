//! Running bridges: ports, queues, flow entries, tables, groups, meters, controllers, learned MAC addresses.

use axum::Json;
use axum::extract::State;
use millrace_flow::Match;
use millrace_flow::text::CookieMatch;
use millrace_types::TableId;
use serde::Deserialize;

use crate::server::app::App;
use crate::server::extract::{Path, Query};
use crate::server::live::{FlowQuery, Live, LiveError};
use crate::server::port_names::with_port_numbers;
use crate::view::{
    Bridge, Controller, EgressQueue, FlowCursor, FlowPage, Group, Ipfix, MacEntry, Meter, Mirror, Port,
    Problem, ProblemKind, Sflow, Table,
};

/// The default number of entries on a page.
const PAGE_LEN: usize = 1000;
/// The largest number of entries on a page.
const PAGE_MAX_LEN: usize = 10_000;

/// List the bridges
#[utoipa::path(get, path = "/api/v1/bridges", tag = "bridges",
    responses((status = 200, body = Vec<Bridge>), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn bridges(State(app): State<App>) -> Result<Json<Vec<Bridge>>, Problem> {
    app.with_live(<dyn Live>::bridges).await.map(Json)
}

/// Read one bridge
#[utoipa::path(get, path = "/api/v1/bridges/{bridge}", tag = "bridges", params(("bridge" = String, Path, description = "Name of the bridge")),
    responses((status = 200, body = Bridge), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn bridge(
    State(app): State<App>,
    Path(name): Path<String>,
) -> Result<Json<Bridge>, Problem> {
    let mut bridges = app.with_live(<dyn Live>::bridges).await?;
    match bridges.iter().position(|bridge| bridge.name == name) {
        Some(at) => Ok(Json(bridges.swap_remove(at))),
        None => {
            let running = bridges.into_iter().map(|bridge| bridge.name).collect();
            Err(LiveError::NoBridge { name, running }.into())
        }
    }
}

/// List the ports of a bridge
#[utoipa::path(get, path = "/api/v1/bridges/{bridge}/ports", tag = "bridges", params(("bridge" = String, Path, description = "Name of the bridge")),
    responses((status = 200, body = Vec<Port>), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn ports(
    State(app): State<App>,
    Path(bridge): Path<String>,
) -> Result<Json<Vec<Port>>, Problem> {
    app.ports(bridge).await.map(Json)
}

/// Read one port, by name or number
#[utoipa::path(get, path = "/api/v1/bridges/{bridge}/ports/{port}", tag = "bridges",
    params(("bridge" = String, Path, description = "Name of the bridge"), ("port" = String, Path, description = "Name or OpenFlow number of the port")),
    responses((status = 200, body = Port), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn port(
    State(app): State<App>,
    Path((bridge, port)): Path<(String, String)>,
) -> Result<Json<Port>, Problem> {
    app.port(bridge, port).await.map(Json)
}

/// A selection of flow entries.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct FlowParams {
    /// Only entries of this table.
    table: Option<u8>,
    /// Only entries with this match or a narrower one, in the syntax of flows: `tcp,nw_dst=10.0.0.0/8`.
    #[serde(rename = "match")]
    matching: Option<String>,
    /// Only entries whose cookie has this value in the bits of the mask: `0x2a`, `0x2a/0xff`.
    cookie: Option<String>,
    /// The `next` of the previous page.
    after: Option<String>,
    /// The number of entries on a page, 1 to 10000; the default is 1000.
    limit: Option<usize>,
}

/// List the flow entries of a bridge, page by page
#[utoipa::path(get, path = "/api/v1/bridges/{bridge}/flows", tag = "bridges",
    params(("bridge" = String, Path, description = "Name of the bridge"), FlowParams),
    responses((status = 200, body = FlowPage), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn flows(
    State(app): State<App>,
    Path(bridge): Path<String>,
    Query(params): Query<FlowParams>,
) -> Result<Json<FlowPage>, Problem> {
    let bad = |detail: String| Problem::new(ProblemKind::BadRequest, detail);
    let limit = params.limit.unwrap_or(PAGE_LEN);
    if !(1..=PAGE_MAX_LEN).contains(&limit) {
        return Err(bad(format!("limit={limit}: expected 1 to {PAGE_MAX_LEN}")));
    }
    let within = match params.matching.as_deref() {
        None => None,
        Some(text) => {
            let text = with_port_numbers(text, &app.ports(bridge.clone()).await?);
            let parsed = text.parse::<Match>();
            Some(parsed.map_err(|error| bad(format!("match: {error}")))?)
        }
    };
    let cookie = params
        .cookie
        .as_deref()
        .map(str::parse::<CookieMatch>)
        .transpose();
    let after = params.after.as_deref().map(str::parse::<FlowCursor>).transpose();
    let query = FlowQuery {
        table: params.table.map(TableId),
        within,
        cookie: cookie.map_err(|error| bad(format!("cookie: {error}")))?,
        after: after.map_err(|error| bad(format!("after: {error}")))?,
        limit,
    };
    let found = app.with_live(move |live| live.flows(&bridge, &query)).await??;
    Ok(Json(FlowPage {
        flows: found.flows,
        next: found.next.map(|cursor| cursor.to_string()),
    }))
}

/// List the flow tables of a bridge
#[utoipa::path(get, path = "/api/v1/bridges/{bridge}/tables", tag = "bridges", params(("bridge" = String, Path, description = "Name of the bridge")),
    responses((status = 200, body = Vec<Table>), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn tables(
    State(app): State<App>,
    Path(bridge): Path<String>,
) -> Result<Json<Vec<Table>>, Problem> {
    Ok(Json(app.with_live(move |live| live.tables(&bridge)).await??))
}

/// List the controllers of a bridge
#[utoipa::path(get, path = "/api/v1/bridges/{bridge}/controllers", tag = "bridges", params(("bridge" = String, Path, description = "Name of the bridge")),
    responses((status = 200, body = Vec<Controller>), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn controllers(
    State(app): State<App>,
    Path(bridge): Path<String>,
) -> Result<Json<Vec<Controller>>, Problem> {
    Ok(Json(app.with_live(move |live| live.controllers(&bridge)).await??))
}

/// List the MAC addresses that a bridge has learned
#[utoipa::path(get, path = "/api/v1/bridges/{bridge}/macs", tag = "bridges", params(("bridge" = String, Path, description = "Name of the bridge")),
    responses((status = 200, body = Vec<MacEntry>), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn macs(
    State(app): State<App>,
    Path(bridge): Path<String>,
) -> Result<Json<Vec<MacEntry>>, Problem> {
    Ok(Json(app.with_live(move |live| live.macs(&bridge)).await??))
}

/// List the mirrors of a bridge
#[utoipa::path(get, path = "/api/v1/bridges/{bridge}/mirrors", tag = "bridges", params(("bridge" = String, Path, description = "Name of the bridge")),
    responses((status = 200, body = Vec<Mirror>), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn mirrors(
    State(app): State<App>,
    Path(bridge): Path<String>,
) -> Result<Json<Vec<Mirror>>, Problem> {
    Ok(Json(app.with_live(move |live| live.mirrors(&bridge)).await??))
}

/// Read the sFlow collectors and samples of a bridge; `null` without sFlow
#[utoipa::path(get, path = "/api/v1/bridges/{bridge}/sflow", tag = "bridges", params(("bridge" = String, Path, description = "Name of the bridge")),
    responses((status = 200, body = Option<Sflow>), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn sflow(
    State(app): State<App>,
    Path(bridge): Path<String>,
) -> Result<Json<Option<Sflow>>, Problem> {
    Ok(Json(app.with_live(move |live| live.sflow(&bridge)).await??))
}

/// Read the IPFIX collectors and records of a bridge; `null` without IPFIX
#[utoipa::path(get, path = "/api/v1/bridges/{bridge}/ipfix", tag = "bridges", params(("bridge" = String, Path, description = "Name of the bridge")),
    responses((status = 200, body = Option<Ipfix>), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn ipfix(
    State(app): State<App>,
    Path(bridge): Path<String>,
) -> Result<Json<Option<Ipfix>>, Problem> {
    Ok(Json(app.with_live(move |live| live.ipfix(&bridge)).await??))
}

/// List the groups of a bridge
#[utoipa::path(get, path = "/api/v1/bridges/{bridge}/groups", tag = "bridges", params(("bridge" = String, Path, description = "Name of the bridge")),
    responses((status = 200, body = Vec<Group>), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn groups(
    State(app): State<App>,
    Path(bridge): Path<String>,
) -> Result<Json<Vec<Group>>, Problem> {
    Ok(Json(app.with_live(move |live| live.groups(&bridge)).await??))
}

/// List the meters of a bridge
#[utoipa::path(get, path = "/api/v1/bridges/{bridge}/meters", tag = "bridges", params(("bridge" = String, Path, description = "Name of the bridge")),
    responses((status = 200, body = Vec<Meter>), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn meters(
    State(app): State<App>,
    Path(bridge): Path<String>,
) -> Result<Json<Vec<Meter>>, Problem> {
    Ok(Json(app.with_live(move |live| live.meters(&bridge)).await??))
}

/// List the queues of the ports of a bridge
#[utoipa::path(get, path = "/api/v1/bridges/{bridge}/queues", tag = "bridges", params(("bridge" = String, Path, description = "Name of the bridge")),
    responses((status = 200, body = Vec<EgressQueue>), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn queues(
    State(app): State<App>,
    Path(bridge): Path<String>,
) -> Result<Json<Vec<EgressQueue>>, Problem> {
    Ok(Json(app.with_live(move |live| live.queues(&bridge)).await??))
}
