//! Graphs of connections, paths, peers, trunks and sites, for a day, a week, a month and a year.

use axum::Json;
use axum::extract::State;
use millrace_ix_model::{
    AccountId, ConfigId, ConnectionId, Exchange, OperationKind, ServiceId, ServiceKind, SiteId, Timestamp,
    TrunkId,
};
use millrace_ix_series::{GraphPoint, Key, Measure, Period, Subject};
use serde::Deserialize;

use super::filters::account;
use super::traffic::record_traffic_read;
use crate::access::{Access, Principal};
use crate::app::App;
use crate::problem::Problem;
use crate::render::ViewContext;
use crate::request::Query;
use crate::view;

/// The period of a graph.
#[derive(Debug, Clone, Default, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct GraphParams {
    /// The time that the graph shows, up to now; a day if absent.
    #[serde(default)]
    #[param(inline)]
    period: view::Period,
}

/// The period of a graph, and an end of a service.
#[derive(Debug, Clone, Default, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct EndParams {
    /// The time that the graph shows, up to now; a day if absent.
    #[serde(default)]
    #[param(inline)]
    period: view::Period,
    /// The end; if absent, the first 32 ends whose traffic you may read.
    end: Option<String>,
}

/// The period of a graph, and an account.
#[derive(Debug, Clone, Default, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct PeerParams {
    /// The time that the graph shows, up to now; a day if absent.
    #[serde(default)]
    #[param(inline)]
    period: view::Period,
    /// The account; the caller's account if absent.
    account: Option<String>,
}

const fn period(period: view::Period) -> Period {
    match period {
        view::Period::Day => Period::Day,
        view::Period::Week => Period::Week,
        view::Period::Month => Period::Month,
        view::Period::Year => Period::Year,
    }
}

/// A line before its points are known: the key, and the object with its name.
pub(crate) struct Line {
    pub(crate) key: Key,
    pub(crate) object: String,
    pub(crate) name: String,
}

const fn measure(key: Key) -> (&'static str, &'static str, bool) {
    let is_sampled = matches!(key.subject, Subject::Peers { .. });
    match key.measure {
        Measure::In => ("in", "bit/s", is_sampled),
        Measure::Out => ("out", "bit/s", is_sampled),
        Measure::InIpv4 => ("in_ipv4", "bit/s", true),
        Measure::InIpv6 => ("in_ipv6", "bit/s", true),
        Measure::OutIpv4 => ("out_ipv4", "bit/s", true),
        Measure::OutIpv6 => ("out_ipv6", "bit/s", true),
        Measure::RoundTrip => ("round_trip", "us", false),
    }
}

fn line(line: Line, measure: (&str, &str, bool), points: &[GraphPoint]) -> view::GraphLine {
    view::GraphLine {
        object: line.object,
        name: line.name,
        measure: measure.0.to_owned(),
        unit: measure.1.to_owned(),
        sampled: measure.2,
        average: points.iter().map(|point| point.average).collect(),
        peak: points.iter().map(|point| point.peak).collect(),
        coverage: points.iter().map(|point| point.coverage).collect(),
    }
}

/// Returns the time in seconds since the Unix epoch.
pub(crate) fn seconds(app: &App) -> u64 {
    app.now().millis() / 1000
}

/// Returns a graph up to a time in seconds without lines.
fn empty(now: u64, of: view::Period, measured: bool) -> view::Graph {
    view::Graph {
        measured,
        period: of,
        start: Timestamp::from_secs(period(of).start(now)).to_string(),
        step_seconds: period(of).step(),
        lines: Vec::new(),
    }
}

/// Returns a graph. Lines of which nothing is known in the whole time are left out, if they are from samples.
pub(crate) async fn graph(app: &App, of: view::Period, lines: Vec<Line>) -> view::Graph {
    let now = seconds(app);
    let Some(series) = app.engine.series() else {
        return empty(now, of, false);
    };
    let keys: Vec<Key> = lines.iter().map(|line| line.key).collect();
    let found = series.graphs(&keys, period(of), now).await;
    let all = lines.into_iter().zip(found);
    let shown = all.filter_map(|(one, points)| {
        let measure = measure(one.key);
        let is_known = points.iter().any(|point| point.average.is_some());
        (is_known || !measure.2).then(|| line(one, measure, &points))
    });
    view::Graph {
        lines: shown.collect(),
        ..empty(now, of, true)
    }
}

fn lines_of(subject: Subject, object: &str, name: &str, measures: &[Measure]) -> Vec<Line> {
    let line = |measure: &Measure| Line {
        key: Key::new(subject, *measure),
        object: object.to_owned(),
        name: name.to_owned(),
    };
    measures.iter().map(line).collect()
}

/// The largest number of ends of a service in one graph.
const ENDS_MAX: usize = 32;

/// Read the traffic of a connection over a day, a week, a month or a year
///
/// `in` is towards the exchange. `in` and `out` are counted by the switches, the lines by IP version are estimates from samples.
#[utoipa::path(get, path = "/api/v1/series/connections/{id}", tag = "series", params(("id" = String, Path), GraphParams),
    responses((status = 200, body = view::Graph), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn connection(
    State(app): State<App>,
    access: Access<ConnectionId>,
    Query(params): Query<GraphParams>,
) -> Result<Json<view::Graph>, Problem> {
    access.require(OperationKind::ReadTraffic)?;
    let name = access.object()?.name.clone();
    let id = access.id();
    let lines = lines_of(
        Subject::Connection(id.0),
        &id.to_string(),
        &name,
        &Measure::TRAFFIC,
    );
    Ok(Json(graph(&app, params.period, lines).await))
}

/// Read the traffic of a service over a day, a week, a month or a year, end by end
///
/// The lines are those of the ends whose traffic you may read: of a circuit, your own; of a peering LAN, those of your connections.
#[utoipa::path(get, path = "/api/v1/series/services/{id}", tag = "series", params(("id" = String, Path), EndParams),
    responses((status = 200, body = view::Graph), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn service(
    State(app): State<App>,
    access: Access<ServiceId>,
    Query(params): Query<EndParams>,
) -> Result<Json<view::Graph>, Problem> {
    access.require(OperationKind::ReadService)?;
    let principal = access.principal();
    let exchange = &principal.snapshot.exchange;
    let ends = exchange.ends(access.id());
    let own = ends.filter(|(end, _)| principal.may(OperationKind::ReadTraffic, *end));
    // An end that is absent, or another account's, has no lines: both answers are equal.
    let is_asked = |end: ConfigId| params.end.as_ref().is_none_or(|asked| *asked == end.to_string());
    let shown = own.filter(|(end, _)| is_asked(*end)).take(ENDS_MAX);
    let lines = shown.flat_map(|(end, config)| {
        let connection = exchange.connections.get(&config.connection);
        let name = connection.map_or("", |connection| &connection.name);
        lines_of(Subject::End(end.0), &end.to_string(), name, &Measure::COUNTED)
    });
    Ok(Json(graph(&app, params.period, lines.collect()).await))
}

/// Read the traffic of a trunk over a day, a week, a month or a year
#[utoipa::path(get, path = "/api/v1/series/trunks/{id}", tag = "series", params(("id" = String, Path), GraphParams),
    responses((status = 200, body = view::Graph), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn trunk(
    State(app): State<App>,
    access: Access<TrunkId>,
    Query(params): Query<GraphParams>,
) -> Result<Json<view::Graph>, Problem> {
    access.require(OperationKind::ReadFabric)?;
    let name = access.object()?.name.clone();
    let id = access.id();
    let lines = lines_of(Subject::Trunk(id.0), &id.to_string(), &name, &Measure::COUNTED);
    Ok(Json(graph(&app, params.period, lines).await))
}

/// Read the traffic of an account by peer over a day, a week, a month or a year
///
/// The lines are those of the 15 peers with the most traffic over the last day: `in` from the peer, `out` to it. All values are
/// estimates from samples.
#[utoipa::path(get, path = "/api/v1/series/peers", tag = "series", params(PeerParams),
    responses((status = 200, body = view::Graph), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn peers(
    State(app): State<App>,
    principal: Principal,
    Query(params): Query<PeerParams>,
) -> Result<Json<view::Graph>, Problem> {
    principal.require(OperationKind::ReadTraffic)?;
    let account = account(&principal, params.account.as_deref(), "/account")?;
    if !principal.may(OperationKind::ReadTraffic, account) {
        return Err(Problem::absent(account));
    }
    if Some(account) != principal.actor.account {
        record_traffic_read(&app, &principal, account, serde_json::json!({})).await?;
    }
    let now = seconds(&app);
    let Some(series) = app.engine.series() else {
        return Ok(Json(empty(now, params.period, false)));
    };
    let scope = ViewContext::new(&principal, app.now());
    let exchange = &principal.snapshot.exchange;
    let mut shown = empty(now, params.period, true);
    for peer in series.heaviest_peers(account).await {
        let name = scope.peer_name(peer, shared_circuit(exchange, account, peer));
        let (object, name) = name.map_or_else(Default::default, |name| (name.id, name.name));
        let directions = [("in", peer, account), ("out", account, peer)];
        let keys = directions.map(|(_, from, to)| {
            let (from, to) = (from.0, to.0);
            Key::new(Subject::Peers { from, to }, Measure::In)
        });
        let found = series.graphs(&keys, period(params.period), now).await;
        for ((direction, ..), (key, points)) in directions.into_iter().zip(keys.into_iter().zip(found)) {
            let (object, name) = (object.clone(), name.clone());
            shown.lines.push(line(
                Line { key, object, name },
                (direction, "bit/s", true),
                &points,
            ));
        }
    }
    Ok(Json(shown))
}

/// Returns a circuit in which two accounts have ends.
fn shared_circuit(exchange: &Exchange, one: AccountId, two: AccountId) -> Option<ServiceId> {
    let is_circuit = |id| {
        let service = exchange.services.get(&id);
        service.is_some_and(|service| service.kind != ServiceKind::ExchangeLan)
    };
    let mut of_one = exchange.configs.values().filter(|config| config.account == one);
    let found = of_one.find(|config| {
        if !is_circuit(config.service) {
            return false;
        }
        let mut ends = exchange.ends(config.service);
        ends.any(|(_, other)| other.account == two)
    });
    found.map(|config| config.service)
}

/// Returns the pairs of sites that trunks join, the one with the lower number first.
pub(crate) fn site_pairs(exchange: &Exchange) -> std::collections::BTreeSet<(SiteId, SiteId)> {
    let site = |trunk: &millrace_ix_model::Trunk, at: usize| {
        let switch = trunk.ends.get(at).map(|end| end.switch)?;
        exchange.switches.get(&switch).map(|switch| switch.site)
    };
    let pairs = exchange.trunks.values().filter_map(|trunk| {
        let (one, two) = (site(trunk, 0)?, site(trunk, 1)?);
        (one != two).then(|| (one.min(two), one.max(two)))
    });
    pairs.collect()
}

/// Read the round-trip times between sites over a day, a week, a month or a year
///
/// The engine measures them by probes over the trunks, every five seconds, and subtracts the paths to and from the switches.
#[utoipa::path(get, path = "/api/v1/series/sites", tag = "series", params(GraphParams),
    responses((status = 200, body = view::Graph), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn sites(
    State(app): State<App>,
    principal: Principal,
    Query(params): Query<GraphParams>,
) -> Result<Json<view::Graph>, Problem> {
    principal.require(OperationKind::ReadFabric)?;
    let exchange = &principal.snapshot.exchange;
    let name = |site: SiteId| exchange.sites.get(&site).map_or("", |site| &site.name);
    let lines = site_pairs(exchange).into_iter().map(|(one, two)| Line {
        key: Key::new(Subject::Sites(one.0, two.0), Measure::RoundTrip),
        object: format!("{one} {two}"),
        name: format!("{} – {}", name(one), name(two)),
    });
    Ok(Json(graph(&app, params.period, lines.collect()).await))
}

/// Read the traffic of the whole exchange over a day, a week, a month or a year
#[utoipa::path(get, path = "/api/v1/series/exchange", tag = "series", params(GraphParams),
    responses((status = 200, body = view::Graph), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn exchange(
    State(app): State<App>,
    principal: Principal,
    Query(params): Query<GraphParams>,
) -> Result<Json<view::Graph>, Problem> {
    principal.require(OperationKind::ReadFabric)?;
    Ok(Json(graph(&app, params.period, exchange_lines(&app)).await))
}

/// Returns the lines of the whole exchange.
pub(crate) fn exchange_lines(app: &App) -> Vec<Line> {
    lines_of(Subject::Exchange, "", &app.settings.name, &Measure::TRAFFIC)
}
