//! The traffic of an account by peer and service, sampled by sFlow in the switches.

use axum::Json;
use axum::extract::State;
use millrace_ix_model::OperationKind;
use millrace_ix_samples::{PeerRate, TopFlow};
use serde::Deserialize;

use super::filters::account;
use crate::access::Principal;
use crate::app::App;
use crate::problem::Problem;
use crate::render::{ViewContext, word};
use crate::request::Query;
use crate::view;

/// The account whose traffic is read.
#[derive(Debug, Clone, Default, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct TrafficParams {
    /// The account; the caller's account if absent.
    account: Option<String>,
}

fn peer(scope: &ViewContext<'_>, principal: &Principal, rate: &PeerRate) -> view::PeerTraffic {
    let service = principal.snapshot.exchange.services.get(&rate.service);
    view::PeerTraffic {
        peer: rate
            .peer
            .and_then(|peer| scope.peer_name(peer, Some(rate.service))),
        service: rate.service.to_string(),
        service_name: service.map_or_else(|| rate.service.to_string(), |service| service.name.clone()),
        bits_per_s: rate.bits_per_s as u64,
        ipv4_bits_per_s: (rate.bits_per_s - rate.ipv6_bits_per_s) as u64,
        ipv6_bits_per_s: rate.ipv6_bits_per_s as u64,
        packets_per_s: rate.packets_per_s as u64,
        dropped_bits_per_s: rate.dropped_bits_per_s as u64,
        error_percent: rate.relative_error * 100.0,
    }
}

fn flow(flow: &TopFlow) -> view::Flow {
    view::Flow {
        source: flow.source.to_string(),
        destination: flow.destination.to_string(),
        protocol: flow.protocol,
        source_port: flow.source_port,
        destination_port: flow.destination_port,
        bits_per_s: flow.bits_per_s as u64,
    }
}

/// Notes in the audit chain that somebody reads the traffic of another account.
pub(super) async fn record_traffic_read(
    app: &App,
    principal: &Principal,
    object: impl ToString,
    detail: serde_json::Value,
) -> Result<(), Problem> {
    let (actor, action) = (principal.audit_name(), word(&OperationKind::ReadTraffic));
    app.record(&actor, &action, object, detail).await?;
    Ok(())
}

/// Read the traffic of an account by peer and service, over the last half minute
///
/// Rates are computed from samples, and have a statistical error. The heaviest flows contain addresses, and
/// are shown only to users who may read samples. An exchange without sFlow answers `measured: false`.
#[utoipa::path(get, path = "/api/v1/traffic", tag = "filters", params(TrafficParams),
    responses((status = 200, body = view::AccountTraffic), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn traffic(
    State(app): State<App>,
    principal: Principal,
    Query(params): Query<TrafficParams>,
) -> Result<Json<view::AccountTraffic>, Problem> {
    principal.require(OperationKind::ReadTraffic)?;
    let account = account(&principal, params.account.as_deref(), "/account")?;
    if !principal.may(OperationKind::ReadTraffic, account) {
        return Err(Problem::absent(account));
    }
    if Some(account) != principal.actor.account {
        record_traffic_read(&app, &principal, account, serde_json::json!({})).await?;
    }
    let scope = ViewContext::new(&principal, app.now());
    let Some(found) = app.engine.traffic(account) else {
        return Ok(Json(view::AccountTraffic::default()));
    };
    let shows_flows = principal.may(OperationKind::ReadSamples, account);
    let peers = |rates: &[PeerRate]| rates.iter().map(|rate| peer(&scope, &principal, rate)).collect();
    Ok(Json(view::AccountTraffic {
        measured: true,
        seconds: found.seconds,
        incoming: peers(&found.incoming),
        outgoing: peers(&found.outgoing),
        top: found.top.iter().filter(|_| shows_flows).map(flow).collect(),
        samples: found.samples,
        lost: found.lost,
    }))
}

/// Read the peering matrix: the traffic between accounts over the last half minute, and BGP sessions seen in four days
///
/// The staff sees all pairs; others see those of their accounts with accounts that they may know.
#[utoipa::path(get, path = "/api/v1/matrix", tag = "filters",
    responses((status = 200, body = view::Matrix), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn matrix(
    State(app): State<App>,
    principal: Principal,
) -> Result<Json<view::Matrix>, Problem> {
    principal.require(OperationKind::ReadTraffic)?;
    let Some(pairs) = app.engine.matrix() else {
        return Ok(Json(view::Matrix::default()));
    };
    let scope = ViewContext::new(&principal, app.now());
    let is_mine = |account| principal.may(OperationKind::ReadTraffic, account);
    let seen = pairs.iter().filter(|pair| is_mine(pair.from) || is_mine(pair.to));
    let shown = seen.filter_map(|pair| {
        let service = principal.snapshot.exchange.services.get(&pair.service)?;
        Some(view::MatrixPair {
            from: scope.peer_name(pair.from, Some(pair.service))?,
            to: scope.peer_name(pair.to, Some(pair.service))?,
            service_name: service.name.clone(),
            ipv4_bits_per_s: (pair.bits_per_s - pair.ipv6_bits_per_s) as u64,
            ipv6_bits_per_s: pair.ipv6_bits_per_s as u64,
            bgp_seen: pair.bgp_seen.map(|at| at.to_string()),
        })
    });
    Ok(Json(view::Matrix {
        measured: true,
        pairs: shown.collect(),
    }))
}
