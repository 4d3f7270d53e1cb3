//! The sources of time series: every ten seconds, the counters of ends in all switches, the samples, and the round-trip
//! times of probes. At the end of a month, its figures are frozen.
//!
//! ```text
//!  switches: flow counters of tables 3 and 6, meters --> rates of ends and connections --\
//!  sFlow: bytes by connection and IP version, by peer, counters of trunk ports ------------+--> one interval --> ix-series
//!  probes of trunks, less the echoes of both switches --> round-trip times of sites -------/
//! ```
//! An entry that is new, or whose counter went back, counts from its beginning: an order makes no gap, and no spike.

mod counters;
mod freeze;
mod sharing;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, bail};
use millrace_ix_api::App;
use millrace_ix_model::{ConfigId, ConnectionId, Exchange, SiteId, SwitchId, Timestamp, TrunkId};
use millrace_ix_samples::{Family, Shared as Samples};
use millrace_ix_series::{Key, Level, Measure, SeriesError, Shared, Subject};
use millrace_ix_service::Handle;
use serde_json::{Value, json};

use self::counters::{Counted, Counters};
use self::freeze::Months;
pub(crate) use self::sharing::{Sharing, share};
use crate::settings::Series;
use crate::switches::Switches;

/// The time between two readings, in seconds: that of the intervals of the series.
const INTERVAL_SECS: u64 = Level::Raw.step();
/// The time without a datagram after which sampled rates are unknown, in milliseconds. Switches send counters every
/// 20 or 30 s, also without traffic.
const SILENCE_MAX_MS: u64 = 60_000;

/// Opens the series beside the database, or in the folder of the settings.
pub(crate) fn open(settings: &Series, database: &Path) -> Result<Option<Shared>> {
    if !settings.enabled {
        return Ok(None);
    }
    let beside = database.with_extension("series");
    let folder = settings.folder.as_deref().unwrap_or(&beside);
    Ok(Some(Shared::open(folder, settings.zone()?)?))
}

/// Returns the figures of all connections for a month, or for the present one, as the command line gets them.
pub(crate) async fn figures(app: &App, month: Option<&str>, csv: bool) -> Result<Value> {
    let month = month.map(str::parse).transpose();
    let month = month.map_err(|expected: &str| anyhow!("MONTH: {expected}"))?;
    let billing = app.billing(month).await;
    if !billing.measured {
        bail!("this exchange keeps no series: remove series.enabled = false from its settings");
    }
    Ok(if csv { json!(billing.csv()) } else { json!(billing) })
}

/// The measures of both directions, in the order of rates.
const BOTH: [Measure; 2] = [Measure::In, Measure::Out];

/// Returns the series of the whole exchange, of connections and of ends. An end without entries in a switch that was read carries
/// nothing. The rate of a connection is known if its switch was read; that of the whole exchange if those of all ends are.
fn counted(exchange: &Exchange, read: &Counted) -> Vec<(Key, u64)> {
    let known = exchange.connections.iter().map(|(id, connection)| {
        let switch = connection.ports.first().map(|port| port.switch);
        let is_read = switch.is_some_and(|switch| read.switches.contains(&switch));
        (*id, is_read.then_some([0_u64; 2]))
    });
    let mut connections: BTreeMap<ConnectionId, Option<[u64; 2]>> = known.collect();
    let mut total = (!read.switches.is_empty()).then_some([0_u64; 2]);
    let mut ends = Vec::with_capacity(exchange.configs.len());
    for (id, config) in &exchange.configs {
        let sum = connections.get_mut(&config.connection);
        let is_read = sum.as_ref().is_some_and(|sum| sum.is_some());
        let rates = is_read.then(|| read.rates.get(id).copied().unwrap_or_default());
        ends.push((Subject::End(id.0), rates));
        for sum in sum.into_iter().chain([&mut total]) {
            *sum = sum
                .zip(rates)
                .map(|([entered, left], [more_entered, more_left])| {
                    [
                        entered.saturating_add(more_entered),
                        left.saturating_add(more_left),
                    ]
                });
        }
    }
    // The first ones get their room before the many ends.
    let connections = connections
        .into_iter()
        .map(|(id, sum)| (Subject::Connection(id.0), sum));
    let all = core::iter::once((Subject::Exchange, total))
        .chain(connections)
        .chain(ends);
    let values = all.flat_map(|(subject, rates)| {
        let rates = BOTH.into_iter().zip(rates.into_iter().flatten());
        rates.map(move |(measure, rate)| (Key::new(subject, measure), rate))
    });
    values.collect()
}

/// The measures by IP version.
const FAMILIES: [Measure; 4] = [
    Measure::InIpv4,
    Measure::OutIpv4,
    Measure::InIpv6,
    Measure::OutIpv6,
];

/// The pairs of peers with traffic, with the time of the last packet. They have values of zero for a day after it.
type Pairs = BTreeMap<(u32, u32), Instant>;

/// The time for which peers without traffic have values of zero.
const PAIRS_KEPT: Duration = Duration::from_secs(86_400);

/// Returns the series that come from samples. None is known while no switch sends datagrams.
fn sampled(
    exchange: &Exchange,
    samples: &Samples,
    pairs: &mut Pairs,
    elapsed: Duration,
    now: Timestamp,
) -> Vec<(Key, u64)> {
    let totals = samples.take_totals(exchange);
    let is_heard = samples
        .heard_at()
        .is_some_and(|at| now.millis().abs_diff(at.millis()) <= SILENCE_MAX_MS);
    if !is_heard {
        return Vec::new();
    }
    let rate = |bytes: f64| (bytes * 8.0 / elapsed.as_secs_f64().max(0.001)).round() as u64;
    // Without a packet, a rate is zero and not unknown. Of two values for a key, the first one counts.
    let mut values = Vec::new();
    let mut total: BTreeMap<Measure, u64> = FAMILIES.into_iter().map(|measure| (measure, 0)).collect();
    for ((connection, family), bytes) in totals.connections {
        let measures = match family {
            Family::Ipv4 => [Measure::InIpv4, Measure::OutIpv4],
            Family::Ipv6 => [Measure::InIpv6, Measure::OutIpv6],
        };
        for (measure, bytes) in measures.into_iter().zip(bytes) {
            values.push((Key::new(Subject::Connection(connection.0), measure), rate(bytes)));
            *total.entry(measure).or_default() += rate(bytes);
        }
    }
    values.extend(
        total
            .into_iter()
            .map(|(measure, rate)| (Key::new(Subject::Exchange, measure), rate)),
    );
    for id in exchange.connections.keys() {
        values.extend(FAMILIES.map(|measure| (Key::new(Subject::Connection(id.0), measure), 0)));
    }
    let peers = |(from, to): (u32, u32)| Key::new(Subject::Peers { from, to }, Measure::In);
    for ((from, to), bytes) in totals.peers {
        pairs.insert((from.0, to.0), Instant::now());
        values.push((peers((from.0, to.0)), rate(bytes)));
    }
    pairs.retain(|_, last| last.elapsed() < PAIRS_KEPT);
    values.extend(pairs.keys().map(|pair| (peers(*pair), 0)));
    for (trunk, both) in samples.trunks(exchange, now) {
        for (measure, rate) in BOTH.into_iter().zip(both) {
            values.push((Key::new(Subject::Trunk(trunk.0), measure), rate.round() as u64));
        }
    }
    values
}

/// Returns the round-trip times between sites: the probes of the quickest trunk, less the echoes of both switches.
fn round_trips(
    exchange: &Exchange,
    probes: &BTreeMap<TrunkId, Duration>,
    echoes: &BTreeMap<SwitchId, Duration>,
) -> Vec<(Key, u64)> {
    let mut shortest: BTreeMap<(SiteId, SiteId), u64> = BTreeMap::new();
    for (trunk, probe) in probes {
        let Some(trunk) = exchange.trunks.get(trunk) else {
            continue;
        };
        let [one, two] = trunk.ends.map(|end| end.switch);
        let site = |switch: &SwitchId| exchange.switches.get(switch).map(|switch| switch.site);
        let (Some(a), Some(b), Some(echo_a), Some(echo_b)) =
            (site(&one), site(&two), echoes.get(&one), echoes.get(&two))
        else {
            continue;
        };
        let micros = probe.saturating_sub(*echo_a + *echo_b).as_micros();
        let micros = u64::try_from(micros).unwrap_or(u64::MAX);
        if a != b {
            let time = shortest.entry((a.min(b), a.max(b))).or_insert(micros);
            *time = micros.min(*time);
        }
    }
    let key = |(one, two): (SiteId, SiteId)| Key::new(Subject::Sites(one.0, two.0), Measure::RoundTrip);
    shortest
        .into_iter()
        .map(|(pair, micros)| (key(pair), micros))
        .collect()
}

/// Returns the system's clock, by which samples are taken.
fn system_time() -> Timestamp {
    Timestamp::from(std::time::SystemTime::now())
}

/// Keeps the series until this engine leads no more. No month is frozen before `complete` is true: the points that another engine has
/// measured would be missing.
pub(crate) async fn keep(
    series: Shared,
    (switches, samples): (Switches, Option<Samples>),
    handle: Handle,
    complete: Arc<AtomicBool>,
) {
    let mut counters = Counters::default();
    let mut read_at = Instant::now();
    let mut pairs = Pairs::new();
    let mut months = Months::default();
    let mut failure = None;
    loop {
        // Readings are at the middle of the intervals, so that a late one is in the right interval.
        let into = (handle.now().millis() + INTERVAL_SECS * 500) % (INTERVAL_SECS * 1000);
        tokio::time::sleep(Duration::from_millis(INTERVAL_SECS * 1000 - into)).await;
        let snapshot = handle.snapshot();
        let exchange = &snapshot.exchange;
        let read = counters.read(&switches, exchange).await;
        let elapsed = read_at.elapsed();
        read_at = Instant::now();
        let mut values = counted(exchange, &read);
        if let Some(samples) = &samples {
            values.extend(sampled(exchange, samples, &mut pairs, elapsed, system_time()));
        }
        values.extend(round_trips(exchange, &snapshot.round_trips, &read.echoes));
        let now = handle.now().millis() / 1000;
        let writer = series.clone();
        let present = Arc::clone(exchange);
        let write = move || {
            writer.push(now, &values)?;
            writer.forget_ends(|end| present.configs.contains_key(&ConfigId(end)));
            Ok::<_, SeriesError>(())
        };
        let written = tokio::task::spawn_blocking(write).await;
        let reason = match written {
            Ok(written) => written.err().map(|error| error.to_string()),
            Err(error) => Some(error.to_string()),
        };
        if reason != failure {
            match &reason {
                Some(reason) => tracing::error!("{reason}"),
                None => tracing::info!("the series are written again"),
            }
            failure = reason;
        }
        if complete.load(Ordering::Acquire) {
            months.freeze(&series, exchange, &handle, now).await;
        }
    }
}
