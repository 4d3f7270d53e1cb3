//! The traffic of the exchange and the links between its sites, for everybody: no session, no identifiers, no names of
//! members.

use axum::Json;
use axum::extract::State;
use millrace_ix_model::SiteId;
use millrace_ix_series::{Key, Measure, Period, Subject};

use super::series::{exchange_lines, graph, seconds, site_pairs};
use crate::app::App;
use crate::service::Snapshot;
use crate::view::{self, PublicLink, PublicTraffic};

/// Returns the state of the trunks between two sites.
fn link_state(snapshot: &Snapshot, pair: (SiteId, SiteId)) -> &'static str {
    let exchange = &snapshot.exchange;
    let site = |switch| exchange.switches.get(&switch).map(|switch| switch.site);
    let joins = |trunk: &millrace_ix_model::Trunk| {
        let [one, two] = trunk.ends.map(|end| site(end.switch));
        (one, two) == (Some(pair.0), Some(pair.1)) || (two, one) == (Some(pair.0), Some(pair.1))
    };
    let states: Vec<Option<bool>> = exchange
        .trunks
        .values()
        .filter(|trunk| joins(trunk))
        .map(|trunk| match trunk.ends.map(|end| snapshot.is_up(end)) {
            [Some(false), _] | [_, Some(false)] => Some(false),
            [Some(true), Some(true)] => Some(true),
            _ => None,
        })
        .collect();
    let are = |state| states.iter().all(|other| *other == state);
    if are(Some(true)) {
        "ok"
    } else if are(Some(false)) {
        "down"
    } else if states.contains(&Some(true)) {
        "degraded"
    } else {
        "unknown"
    }
}

/// Read the traffic of the exchange over a day, and the links between its sites
///
/// Everybody may read it. It has the names of sites, and no identifiers and no names of members, switches and trunks.
#[utoipa::path(get, path = "/api/v1/status/traffic", tag = "series", security(()),
    responses((status = 200, body = PublicTraffic)))]
pub(crate) async fn public_traffic(State(app): State<App>) -> Json<PublicTraffic> {
    let snapshot = app.snapshot();
    let exchange = &snapshot.exchange;
    let name = |site: SiteId| {
        let site = exchange.sites.get(&site);
        site.map_or_else(String::new, |site| site.name.clone())
    };
    let pairs: Vec<(SiteId, SiteId)> = site_pairs(exchange).into_iter().collect();
    let keys: Vec<Key> = pairs
        .iter()
        .map(|(one, two)| Key::new(Subject::Sites(one.0, two.0), Measure::RoundTrip))
        .collect();
    let times = match app.engine.series() {
        Some(series) => series.graphs(&keys, Period::Day, seconds(&app)).await,
        None => Vec::new(),
    };
    let newest = |at: usize| {
        let points = times.get(at)?;
        // The newest point is that of the present five minutes, or the one before.
        points.iter().rev().take(2).find_map(|point| point.average)
    };
    let links = pairs.iter().enumerate().map(|(at, pair)| PublicLink {
        sites: [name(pair.0), name(pair.1)],
        state: link_state(&snapshot, *pair).to_owned(),
        round_trip_us: newest(at),
    });
    Json(PublicTraffic {
        name: app.settings.name.clone(),
        at: app.now().to_string(),
        links: links.collect(),
        traffic: graph(&app, view::Period::Day, exchange_lines(&app)).await,
    })
}
