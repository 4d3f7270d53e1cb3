//! Flow entries that an operator adds, changes, removes and saves, counters that are reset, and MAC addresses that are
//! forgotten.

use axum::Json;
use axum::extract::State;
use millrace_flow::Match;
use millrace_flow::text::{CookieMatch, FlowCommand, FlowModText};
use millrace_types::{PortNo, TableId, Vid};

use crate::server::app::App;
use crate::server::extract::{Body, Path};
use crate::server::live::FlowQuery;
use crate::server::peer::Peer;
use crate::server::port_names::with_port_numbers;
use crate::server::problem::flow_refused;
use crate::view::{
    CountersReset, FlowModCommand, FlowMods, FlowModsDone, FlowsSaved, FlushMacs, MacsFlushed, Problem,
    ProblemKind, ResetFlowCounters, ResetPortCounters,
};

/// The largest number of flow_mods in one request. The control thread of the bridge is busy until all are
/// applied.
const FLOWS_LEN_MAX: usize = 10_000;
/// The largest length, in characters, of a request's author in the log.
const AUTHOR_LEN_MAX: usize = 64;

/// Add, change or remove flow entries, all or none; the response comes when every worker sees the change
#[utoipa::path(post, path = "/api/v1/bridges/{bridge}/flow-mods", tag = "bridges", request_body = FlowMods,
    params(("bridge" = String, Path, description = "Name of the bridge")),
    responses((status = 200, body = FlowModsDone), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn flow_mods(
    State(app): State<App>,
    Path(bridge): Path<String>,
    peer: Peer,
    Body(request): Body<FlowMods>,
) -> Result<Json<FlowModsDone>, Problem> {
    if !(1..=FLOWS_LEN_MAX).contains(&request.flows.len()) {
        let detail = format!(
            "flows: {} entries: expected 1 to {FLOWS_LEN_MAX}",
            request.flows.len()
        );
        return Err(Problem::new(ProblemKind::Invalid, detail));
    }
    let command = match (request.command, request.strict) {
        (FlowModCommand::Add, _) => FlowCommand::Add,
        (FlowModCommand::Modify, false) => FlowCommand::Modify,
        (FlowModCommand::Modify, true) => FlowCommand::ModifyStrict,
        (FlowModCommand::Delete, false) => FlowCommand::Delete,
        (FlowModCommand::Delete, true) => FlowCommand::DeleteStrict,
    };
    let ports = app.ports(bridge.clone()).await?;
    let parse = |(index, text): (usize, &String)| {
        let parsed = FlowModText::parse(command, &with_port_numbers(text, &ports));
        parsed.map_err(|error| flow_refused(index, "bad-flow", error.to_string()))
    };
    let mods = request.flows.iter().enumerate().map(parse);
    let mods = mods.collect::<Result<Vec<_>, _>>()?;
    let claimed: String = request.author.chars().take(AUTHOR_LEN_MAX).collect();
    let author = peer.author(Some(&claimed));
    let name = bridge.clone();
    let done = app.with_live(move |live| live.flow_mods(&name, mods)).await??;
    let FlowModsDone {
        added,
        modified,
        removed,
    } = done;
    tracing::info!(
        bridge,
        ?author,
        ?command,
        added,
        modified,
        removed,
        "flow entries changed by an operator"
    );
    Ok(Json(done))
}

/// Reset the counters of flow entries; the entries stay
#[utoipa::path(post, path = "/api/v1/bridges/{bridge}/reset-flow-counters", tag = "bridges", request_body = ResetFlowCounters,
    params(("bridge" = String, Path, description = "Name of the bridge")),
    responses((status = 200, body = CountersReset), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn reset_flow_counters(
    State(app): State<App>,
    Path(bridge): Path<String>,
    Body(request): Body<ResetFlowCounters>,
) -> Result<Json<CountersReset>, Problem> {
    let invalid = |detail: String| Problem::new(ProblemKind::Invalid, detail);
    let ports = app.ports(bridge.clone()).await?;
    let text = request
        .matching
        .as_deref()
        .map(|text| with_port_numbers(text, &ports));
    let within = text.map(|text| text.parse::<Match>()).transpose();
    let cookie = request
        .cookie
        .as_deref()
        .map(str::parse::<CookieMatch>)
        .transpose();
    let query = FlowQuery {
        table: request.table.map(TableId),
        within: within.map_err(|error| invalid(format!("match: {error}")))?,
        cookie: cookie.map_err(|error| invalid(format!("cookie: {error}")))?,
        ..FlowQuery::default()
    };
    let reset = app
        .with_live(move |live| live.reset_flow_counters(&bridge, &query))
        .await??;
    Ok(Json(CountersReset { reset }))
}

/// Reset the counters of a port, or of all ports
#[utoipa::path(post, path = "/api/v1/bridges/{bridge}/reset-port-counters", tag = "bridges", request_body = ResetPortCounters,
    params(("bridge" = String, Path, description = "Name of the bridge")),
    responses((status = 200, body = CountersReset), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn reset_port_counters(
    State(app): State<App>,
    Path(bridge): Path<String>,
    Body(request): Body<ResetPortCounters>,
) -> Result<Json<CountersReset>, Problem> {
    let port = match request.port {
        Some(port) => Some(PortNo::from_raw(app.port(bridge.clone(), port).await?.number)),
        None => None,
    };
    let reset = app
        .with_live(move |live| live.reset_port_counters(&bridge, port))
        .await??;
    Ok(Json(CountersReset { reset }))
}

/// Save the flow entries, groups and meters of a bridge for the next start; needs `system.keep_flows`
#[utoipa::path(post, path = "/api/v1/bridges/{bridge}/save-flows", tag = "bridges",
    params(("bridge" = String, Path, description = "Name of the bridge")),
    responses((status = 200, body = FlowsSaved), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn save_flows(
    State(app): State<App>,
    Path(bridge): Path<String>,
) -> Result<Json<FlowsSaved>, Problem> {
    Ok(Json(app.with_live(move |live| live.save_flows(&bridge)).await??))
}

/// Forget learned MAC addresses of a bridge
#[utoipa::path(post, path = "/api/v1/bridges/{bridge}/flush-macs", tag = "bridges", request_body = FlushMacs,
    params(("bridge" = String, Path, description = "Name of the bridge")),
    responses((status = 200, body = MacsFlushed), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn flush_macs(
    State(app): State<App>,
    Path(bridge): Path<String>,
    Body(request): Body<FlushMacs>,
) -> Result<Json<MacsFlushed>, Problem> {
    let vlan = request.vlan.map(Vid::new).transpose();
    let vlan = vlan.map_err(|error| Problem::new(ProblemKind::Invalid, format!("vlan: {error}")))?;
    let port = match request.port {
        Some(port) => Some(PortNo::from_raw(app.port(bridge.clone(), port).await?.number)),
        None => None,
    };
    let removed = app
        .with_live(move |live| live.flush_macs(&bridge, vlan, port))
        .await??;
    Ok(Json(MacsFlushed { removed }))
}
