//! Made up time series: a day with a low in the morning and a high in the evening.

use std::collections::BTreeSet;

use millrace_ix_model::{AccountId, ConnectionId};
use millrace_ix_series::{Figure, GraphPoint, Key, Measure, Month, Percentile, Period, Subject};

use super::{FakeExchange, now, observed};
use crate::series::{Figures, Series};

/// Returns the load of a series at a time in bit/s. The level depends on the key; a series has no values in one hour of each
/// day.
fn load(key: Key, at: u64) -> Option<u64> {
    let number = match key.subject {
        Subject::Exchange => 40,
        Subject::Connection(number) | Subject::End(number) | Subject::Trunk(number) => number,
        Subject::Peers { from, to } => from ^ to,
        Subject::Sites(one, two) => one + two,
    };
    if key.measure == Measure::RoundTrip {
        return Some(1_400 + at / 300 % 7 * 10);
    }
    let share = match key.measure {
        Measure::InIpv4 | Measure::OutIpv4 => 70,
        Measure::InIpv6 | Measure::OutIpv6 => 30,
        _ => 100,
    };
    let hour = at % 86_400 / 3600;
    let from_evening = hour.abs_diff(21).min(24 - hour.abs_diff(21));
    let level = (14 - from_evening) * u64::from(number % 9 + 1) * 100_000_000;
    let is_known = hour != u64::from(number % 24) || key.subject == Subject::Exchange;
    is_known.then_some((level + at / 300 % 13 * 10_000_000) * share / 100)
}

impl Series for FakeExchange {
    fn graphs(&self, keys: &[Key], period: Period, now: u64) -> Vec<Vec<GraphPoint>> {
        let (start, step) = (period.start(now), period.step());
        let point = |key: Key, at: u64| {
            let times = (at..at + step).step_by(300).take_while(|at| *at <= now);
            let values: Vec<Option<u64>> = times.map(|at| load(key, at)).collect();
            let known = values.iter().flatten().count() as u64;
            let sum: u64 = values.iter().flatten().sum();
            GraphPoint {
                average: sum.checked_div(known),
                peak: values.iter().flatten().max().copied(),
                coverage: known as f64 / values.len().max(1) as f64,
            }
        };
        let graph = |key: &Key| {
            (start..=now)
                .step_by(step as usize)
                .map(|at| point(*key, at))
                .collect()
        };
        keys.iter().map(graph).collect()
    }

    fn heaviest_peers(&self, account: AccountId) -> Vec<AccountId> {
        let traffic = observed::traffic(&self.state().exchange, account);
        let rates = traffic.into_iter().flat_map(|traffic| traffic.incoming);
        let peers: BTreeSet<AccountId> = rates.filter_map(|rate| rate.peer).collect();
        peers.into_iter().take(15).collect()
    }

    fn measured(&self, _month: Option<Month>) -> BTreeSet<ConnectionId> {
        self.state().exchange.connections.keys().copied().collect()
    }

    /// All months before the present one are frozen.
    fn figures(&self, connections: &BTreeSet<ConnectionId>, month: Option<Month>) -> Figures {
        let present = Month::of(now().millis() / 1000, 0);
        let month = month.unwrap_or(present);
        let of = |id: &ConnectionId, measure| {
            let key = Key::new(Subject::Connection(id.0), measure);
            Percentile {
                value: load(key, 21 * 3600).or_else(|| load(key, 20 * 3600)),
                // One hour of each day is not known.
                coverage_permille: if id.0.is_multiple_of(3) { 958 } else { 1000 },
            }
        };
        let figure = |id: &ConnectionId| {
            let figure = Figure {
                incoming: of(id, Measure::In),
                outgoing: of(id, Measure::Out),
                ipv4: [of(id, Measure::InIpv4), of(id, Measure::OutIpv4)],
                ipv6: [of(id, Measure::InIpv6), of(id, Measure::OutIpv6)],
            };
            (*id, figure)
        };
        Figures {
            month,
            frozen: month < present,
            of: connections.iter().map(figure).collect(),
        }
    }
}
