//! The counters of ends in their switches, and the rates between two readings of them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::time::{Duration, Instant};

use millrace_controller::driver::Handle as Connection;
use millrace_ix_model::{ConfigId, Exchange, SwitchId};
use millrace_ix_plan::layout::{CookieFields, CookieKind, EGRESS, POLICE};
use millrace_openflow::Message;
use millrace_openflow::multipart::flow::FlowStatsRequest;
use millrace_openflow::multipart::meter::MeterRequest;
use millrace_openflow::multipart::{MultipartRequest, ReplyBody, RequestBody};
use millrace_types::{MeterId, TableId};
use tokio::task::JoinSet;

use crate::switches::Switches;

/// The time within which a switch must answer all questions of a reading.
const ANSWER_MAX: Duration = Duration::from_secs(8);
/// The longest time between two readings whose difference is a rate: a longer one would hide what was between.
const ELAPSED_MAX: Duration = Duration::from_secs(25);
/// The number of echoes of a switch of which the shortest counts: those of a minute.
const ECHOES_MAX: usize = 6;

/// Bytes that a switch counted for ends: by end, and by the entry that counts them.
type Bytes = BTreeMap<(ConfigId, u64), u64>;

/// The counters of a switch.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Reading {
    /// The bytes of frames that entered, with those that the meter dropped.
    entered: Bytes,
    /// The bytes of frames that left.
    left: Bytes,
    /// The bytes that meters have dropped.
    dropped: BTreeMap<u32, u64>,
    /// The time of an echo of the switch.
    echo: Duration,
}

/// Returns the bytes of the entries with a cookie of a kind in a table; `None` if the switch does not answer.
async fn entries(connection: &Connection, table: TableId, kind: CookieKind) -> Option<Bytes> {
    let cookie = CookieFields {
        kind,
        object: 0,
        generation: 0,
    };
    let body = RequestBody::Flow(FlowStatsRequest {
        table,
        cookie: cookie.cookie(),
        cookie_mask: KIND_MASK,
        ..FlowStatsRequest::all()
    });
    let reply = connection
        .request(Message::MultipartRequest(MultipartRequest::new(body)))
        .await;
    let Ok(Message::MultipartReply(reply)) = reply else {
        return None;
    };
    let ReplyBody::Flow(flows) = reply.body else {
        return None;
    };
    let mut bytes = Bytes::new();
    for flow in &flows {
        let Some(fields) = CookieFields::from_cookie(flow.cookie) else {
            continue;
        };
        // An end has several entries while it moves to another generation, and for several tags.
        let mut hasher = DefaultHasher::new();
        (flow.cookie, flow.priority, &flow.match_).hash(&mut hasher);
        bytes.insert((ConfigId(fields.object), hasher.finish()), flow.bytes);
    }
    Some(bytes)
}

/// The bits of a cookie with owner and kind.
const KIND_MASK: u64 = 0xfff0 << 48;

/// Reads the counters of a switch; `None` if it does not answer completely.
async fn read(connection: &Connection) -> Option<Reading> {
    let mut reading = Reading::default();
    let asked = Instant::now();
    if !connection.is_alive(millrace_types::Duration::from_secs(2)).await {
        return None;
    }
    reading.echo = asked.elapsed();
    reading.entered = entries(connection, POLICE, CookieKind::Police).await?;
    reading.left = entries(connection, EGRESS, CookieKind::Egress).await?;
    let body = RequestBody::Meter(MeterRequest { meter: MeterId::ALL });
    // A switch without meters drops nothing by them.
    if let Ok(Message::MultipartReply(reply)) = connection
        .request(Message::MultipartRequest(MultipartRequest::new(body)))
        .await
        && let ReplyBody::Meter(meters) = reply.body
    {
        let dropped = meters
            .iter()
            .map(|meter| (meter.meter.0, meter.bands.iter().map(|band| band.bytes).sum()));
        reading.dropped = dropped.collect();
    }
    Some(reading)
}

/// Returns the rate of some bytes in bit/s.
fn rate(bytes: u64, elapsed: Duration) -> Option<u64> {
    let bits = u128::from(bytes) * 8_000;
    u64::try_from(bits / elapsed.as_millis().max(1)).ok()
}

/// Returns the bytes by end between two readings. An entry that is new, or whose counter went back, was added since the first
/// one, and began with zero. What an entry counted between the first reading and its end is lost: the sum is never more than
/// what the end carried.
fn between(before: &Bytes, now: &Bytes) -> BTreeMap<ConfigId, u64> {
    let mut sums = BTreeMap::new();
    for (entry, count) in now {
        let earlier = before.get(entry).copied().unwrap_or(0);
        let sum: &mut u64 = sums.entry(entry.0).or_default();
        *sum = sum.saturating_add(count.checked_sub(earlier).unwrap_or(*count));
    }
    sums
}

/// The meter of an end, and the rate in bit/s that it lets pass.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Contract {
    meter: u32,
    rate: Option<u64>,
}

/// Returns the rates of the ends of a switch between two readings: [towards the exchange, from it]. `contract_of` returns the
/// contract of an end; without one, the end is not the exchange's any more.
///
/// A meter whose rate was changed counts anew. What it dropped before that is not known, so that at most what the contract
/// permits has passed.
fn rates(
    contract_of: impl Fn(ConfigId) -> Option<Contract>,
    (before, now): (&Reading, &Reading),
    elapsed: Duration,
) -> BTreeMap<ConfigId, [u64; 2]> {
    let entered = between(&before.entered, &now.entered);
    let left = between(&before.left, &now.left);
    let ends: BTreeSet<ConfigId> = entered.keys().chain(left.keys()).copied().collect();
    let of = |end: ConfigId| {
        let contract = contract_of(end)?;
        let dropped = |reading: &Reading| reading.dropped.get(&contract.meter).copied().unwrap_or(0);
        let bytes = |sums: &BTreeMap<ConfigId, u64>| sums.get(&end).copied().unwrap_or(0);
        let passed = match dropped(now).checked_sub(dropped(before)) {
            Some(dropped) => rate(bytes(&entered).saturating_sub(dropped), elapsed)?,
            None => rate(bytes(&entered).saturating_sub(dropped(now)), elapsed)?
                .min(contract.rate.unwrap_or(u64::MAX)),
        };
        Some((end, [passed, rate(bytes(&left), elapsed)?]))
    };
    ends.into_iter().filter_map(of).collect()
}

/// The result of a reading of all switches.
#[derive(Default, Debug)]
pub(super) struct Counted {
    /// The rates of ends since the last reading in bit/s: [towards the exchange, from it].
    pub(super) rates: BTreeMap<ConfigId, [u64; 2]>,
    /// The switches whose last reading and this one are complete.
    pub(super) switches: BTreeSet<SwitchId>,
    /// The shortest echo of each switch in the last minute.
    pub(super) echoes: BTreeMap<SwitchId, Duration>,
}

/// The last readings of all switches.
#[derive(Default)]
pub(super) struct Counters {
    readings: BTreeMap<SwitchId, (Instant, Reading)>,
    /// The last echoes of each switch, the newest last.
    echoes: BTreeMap<SwitchId, VecDeque<Duration>>,
}

impl Counters {
    /// Reads all switches.
    pub(super) async fn read(&mut self, switches: &Switches, exchange: &Exchange) -> Counted {
        let mut tasks = JoinSet::new();
        for (switch, connection) in switches.connections() {
            tasks.spawn(async move {
                let found = tokio::time::timeout(ANSWER_MAX, read(&connection)).await;
                (switch, Instant::now(), found.ok().flatten())
            });
        }
        let mut counted = Counted::default();
        while let Some(done) = tasks.join_next().await {
            let Ok((switch, at, Some(reading))) = done else {
                continue;
            };
            let echoes = self.echoes.entry(switch).or_default();
            echoes.push_back(reading.echo);
            if echoes.len() > ECHOES_MAX {
                echoes.pop_front();
            }
            counted
                .echoes
                .extend(echoes.iter().min().map(|echo| (switch, *echo)));
            if let Some((then, before)) = self.readings.get(&switch)
                && at - *then <= ELAPSED_MAX
            {
                let contract_of = |end| {
                    let config = exchange.configs.get(&end)?;
                    Some(Contract {
                        meter: config.meter.raw(),
                        rate: config.capacity_mbps.map(|mbps| u64::from(mbps) * 1_000_000),
                    })
                };
                counted
                    .rates
                    .extend(rates(contract_of, (before, &reading), at - *then));
                counted.switches.insert(switch);
            }
            // A switch that does not answer begins anew with its next answer, unless that comes soon.
            self.readings.insert(switch, (at, reading));
        }
        counted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const END: ConfigId = ConfigId(7);

    /// Returns a reading of an end with entries for both directions: (entry, bytes).
    fn reading(entered: &[(u64, u64)], left: &[(u64, u64)], dropped: u64) -> Reading {
        let bytes = |counts: &[(u64, u64)]| {
            let counts = counts.iter().map(|(entry, bytes)| ((END, *entry), *bytes));
            counts.collect()
        };
        Reading {
            entered: bytes(entered),
            left: bytes(left),
            dropped: BTreeMap::from([(3, dropped)]),
            ..Reading::default()
        }
    }

    /// Returns the rates in 10 s with a contract of 4 kbit/s.
    fn of(before: &Reading, now: &Reading) -> Option<[u64; 2]> {
        let contract = Contract {
            meter: 3,
            rate: Some(4_000),
        };
        let found = rates(|_| Some(contract), (before, now), Duration::from_secs(10));
        found.get(&END).copied()
    }

    #[test]
    fn a_rate_is_what_the_meter_of_the_end_let_pass() {
        let before = reading(&[(1, 1_000)], &[(9, 0)], 50);
        assert_eq!(
            of(&before, &reading(&[(1, 2_250)], &[(9, 500)], 50)),
            Some([1_000, 400])
        );
        assert_eq!(
            of(&before, &reading(&[(1, 2_250)], &[(9, 500)], 300)),
            Some([800, 400]),
            "250 bytes were dropped"
        );
    }

    #[test]
    fn a_new_entry_counts_from_its_beginning() {
        let now = reading(&[(1, 1_250)], &[(9, 2_500)], 0);
        assert_eq!(of(&Reading::default(), &now), Some([1_000, 2_000]), "a new end");
        let before = reading(&[(1, 1_000)], &[(9, 0)], 0);
        let both = reading(&[(1, 1_100), (2, 150)], &[(9, 0)], 0);
        assert_eq!(
            of(&before, &both),
            Some([200, 0]),
            "the next generation is there, too"
        );
        let after = reading(&[(2, 400)], &[(9, 0)], 0);
        assert_eq!(of(&both, &after), Some([200, 0]), "the last one has gone");
    }

    #[test]
    fn a_counter_that_was_reset_gives_what_it_counted_since_and_no_spike() {
        let before = reading(&[(1, 2_000)], &[(9, 1_000)], 500);
        assert_eq!(
            of(&before, &reading(&[(1, 1_250)], &[(9, 1_500)], 500)),
            Some([1_000, 400]),
            "entered"
        );
        assert_eq!(
            of(&before, &reading(&[(1, 3_250)], &[(9, 500)], 500)),
            Some([1_000, 400]),
            "left"
        );
        assert_eq!(
            of(&before, &reading(&[(1, 22_000)], &[(9, 1_000)], 0)),
            Some([4_000, 0]),
            "a changed meter counts anew: at most the contract"
        );
        assert_eq!(
            of(&before, &reading(&[(1, 3_250)], &[(9, 1_000)], 0)),
            Some([1_000, 0]),
            "less than the contract"
        );
    }

    #[test]
    fn an_end_that_the_exchange_does_not_have_any_more_has_no_rate() {
        let (before, now) = (reading(&[(1, 1)], &[], 0), reading(&[(1, 2)], &[], 0));
        let found = rates(|_| None, (&before, &now), Duration::from_secs(10));
        assert_eq!(found, BTreeMap::new());
    }
}
