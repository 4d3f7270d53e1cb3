//! Values of the series of the demonstration: a day with a low in the morning and a high in the evening.

use std::collections::BTreeMap;
use std::path::Path;

use millrace_ix_model::{Exchange, Timestamp};
use millrace_ix_series::{Figure, Key, Measure, Month, Percentile, SeriesError, Shared, Subject, TimeZone};

/// The time between two values: each point of a day's graph has one.
const STEP: u64 = 300;
const DAY: u64 = 86_400;

/// Returns the load of a series at a time in bit/s, or a round-trip time. The level depends on the key.
fn value(key: Key, at: u64) -> u64 {
    let number = match key.subject {
        Subject::Exchange => 40,
        Subject::Connection(number) | Subject::End(number) | Subject::Trunk(number) => number,
        Subject::Peers { from, to } => from ^ to,
        Subject::Sites(one, two) => one + two,
    };
    if key.measure == Measure::RoundTrip {
        return 1_400 + at / STEP % 7 * 10;
    }
    let share = match key.measure {
        Measure::InIpv4 | Measure::OutIpv4 => 70,
        Measure::InIpv6 | Measure::OutIpv6 => 30,
        _ => 100,
    };
    let hour = at % DAY / 3600;
    let from_evening = hour.abs_diff(21).min(24 - hour.abs_diff(21));
    let level = (14 - from_evening) * u64::from(number % 9 + 1) * 100_000_000;
    (level + at / STEP % 13 * 10_000_000) * share / 100
}

/// Returns the keys of all series that an engine keeps about an exchange.
fn keys(exchange: &Exchange) -> Vec<Key> {
    let mut keys = Vec::new();
    let mut add = |subject, measures: &[Measure]| {
        keys.extend(measures.iter().map(|measure| Key::new(subject, *measure)));
    };
    add(Subject::Exchange, &Measure::TRAFFIC);
    for id in exchange.connections.keys() {
        add(Subject::Connection(id.0), &Measure::TRAFFIC);
    }
    for (id, end) in &exchange.configs {
        add(Subject::End(id.0), &Measure::COUNTED);
        let others = exchange.ends(end.service).map(|(_, other)| other.account);
        for to in others.filter(|other| *other != end.account) {
            let (from, to) = (end.account.0, to.0);
            add(Subject::Peers { from, to }, &[Measure::In]);
        }
    }
    for id in exchange.trunks.keys() {
        add(Subject::Trunk(id.0), &Measure::COUNTED);
    }
    for (one, two) in crate::routes::series::site_pairs(exchange) {
        add(Subject::Sites(one.0, two.0), &[Measure::RoundTrip]);
    }
    keys.sort_unstable();
    keys.dedup();
    keys
}

/// Records the values of the last day in a folder, and freezes the figures of the month before.
pub(super) fn record(folder: &Path, exchange: &Exchange, now: Timestamp) -> Result<Shared, SeriesError> {
    let series = Shared::open(folder, TimeZone::UTC)?;
    let (keys, now) = (keys(exchange), now.millis() / 1000);
    let first = (now - DAY).next_multiple_of(STEP);
    for at in (first..=now).step_by(STEP as usize) {
        let values: Vec<(Key, u64)> = keys.iter().map(|key| (*key, value(*key, at))).collect();
        series.push(at, &values)?;
    }
    // The second before the first one of this month is in the month before.
    let before: Month = series.month_of(series.start_of(series.month_of(now)) - 1);
    let figures: BTreeMap<u32, Figure> = exchange
        .connections
        .keys()
        .map(|id| (id.0, figure(id.0)))
        .collect();
    series.freeze(before, &figures)?;
    Ok(series)
}

/// Returns the figures of a connection for a month. One hour of each day is not known of a third of the connections.
fn figure(connection: u32) -> Figure {
    let of = |measure| Percentile {
        value: Some(value(
            Key::new(Subject::Connection(connection), measure),
            21 * 3600,
        )),
        coverage_permille: if connection.is_multiple_of(3) { 958 } else { 1000 },
    };
    Figure {
        incoming: of(Measure::In),
        outgoing: of(Measure::Out),
        ipv4: [of(Measure::InIpv4), of(Measure::OutIpv4)],
        ipv6: [of(Measure::InIpv6), of(Measure::OutIpv6)],
    }
}
