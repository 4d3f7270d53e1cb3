//! The counters of ends in their switches, and the rates between two readings of them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::{Duration, Instant};

use millrace_controller::driver::Handle as Connection;
use millrace_ix_model::{ConfigId, Exchange, SwitchId};
use millrace_ix_plan::layout::{CookieFields, CookieKind, EGRESS, POLICE};
use millrace_openflow::Message;
use millrace_openflow::multipart::flow::FlowStatsRequest;
use millrace_openflow::multipart::meter::MeterRequest;
use millrace_openflow::multipart::{MultipartRequest, ReplyBody, RequestBody};
use millrace_types::{Cookie, MeterId, TableId};
use tokio::task::JoinSet;

use crate::switches::Switches;

/// The time within which a switch must answer all questions of a reading.
const ANSWER_MAX: Duration = Duration::from_secs(8);
/// The longest time between two readings whose difference is a rate: a longer one would hide what was between.
const ELAPSED_MAX: Duration = Duration::from_secs(25);
/// The number of echoes of a switch of which the shortest counts: those of a minute.
const ECHOES_MAX: usize = 6;

/// The counters of an end in its switch.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Count {
    /// The bytes of frames that entered, with those that the meter dropped.
    entered: u64,
    /// The bytes of frames that left.
    left: u64,
    /// The age of the youngest entry.
    age: Duration,
}

/// The counters of a switch.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Reading {
    ends: BTreeMap<ConfigId, Count>,
    /// The bytes that meters have dropped.
    dropped: BTreeMap<u32, u64>,
    /// The time of an echo of the switch.
    echo: Duration,
}

/// Returns the entries with a cookie of a kind in a table, as (object, age, bytes); `None` if the switch does not answer.
async fn entries(
    connection: &Connection,
    table: TableId,
    kind: CookieKind,
) -> Option<Vec<(u32, Duration, u64)>> {
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
    let object = |cookie: Cookie| CookieFields::from_cookie(cookie).map(|fields| fields.object);
    let entries = flows
        .iter()
        .filter_map(|flow| Some((object(flow.cookie)?, flow.duration, flow.bytes)));
    Some(entries.collect())
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
    for (table, kind) in [(POLICE, CookieKind::Police), (EGRESS, CookieKind::Egress)] {
        for (object, age, bytes) in entries(connection, table, kind).await? {
            let count = reading.ends.entry(ConfigId(object)).or_insert(Count {
                age,
                ..Count::default()
            });
            count.age = count.age.min(age);
            let sum = match kind {
                CookieKind::Police => &mut count.entered,
                _ => &mut count.left,
            };
            *sum = sum.saturating_add(bytes);
        }
    }
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

/// Returns the rates of the ends of a switch between two readings: [towards the exchange, from it]. `meter_of` returns the
/// meter of an end; without one, the end is not the exchange's any more. A counter that went back was reset.
fn rates(
    meter_of: impl Fn(ConfigId) -> Option<u32>,
    (before, now): (&Reading, &Reading),
    elapsed: Duration,
) -> BTreeMap<ConfigId, [u64; 2]> {
    let of = |(end, count): (&ConfigId, &Count)| {
        let earlier = before.ends.get(end)?;
        // An entry that is younger than before was added again, with counters of zero.
        if count.age < earlier.age {
            return None;
        }
        let meter = meter_of(*end)?;
        let dropped = |reading: &Reading| reading.dropped.get(&meter).copied().unwrap_or(0);
        let dropped = dropped(now).checked_sub(dropped(before))?;
        let entered = count.entered.checked_sub(earlier.entered)?;
        let left = count.left.checked_sub(earlier.left)?;
        Some((
            *end,
            [
                rate(entered.saturating_sub(dropped), elapsed)?,
                rate(left, elapsed)?,
            ],
        ))
    };
    now.ends.iter().filter_map(of).collect()
}

/// The result of a reading of all switches.
#[derive(Default, Debug)]
pub(super) struct Counted {
    /// The rates of ends since the last reading in bit/s: [towards the exchange, from it].
    pub(super) rates: BTreeMap<ConfigId, [u64; 2]>,
    /// The switches whose last reading and this one are complete.
    pub(super) switches: BTreeSet<SwitchId>,
    /// The ends with entries in one of the readings whose rates are not known.
    pub(super) unknown: BTreeSet<ConfigId>,
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
                let meter_of = |end| Some(exchange.configs.get(&end)?.meter.raw());
                let known = rates(meter_of, (before, &reading), at - *then);
                let seen = before.ends.keys().chain(reading.ends.keys());
                let unknown = seen.filter(|end| !known.contains_key(end)).copied();
                counted.unknown.extend(unknown);
                counted.rates.extend(known);
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

    fn reading(entered: u64, left: u64, age_secs: u64) -> Reading {
        let count = Count {
            entered,
            left,
            age: Duration::from_secs(age_secs),
        };
        Reading {
            ends: BTreeMap::from([(ConfigId(7), count)]),
            ..Reading::default()
        }
    }

    fn policed(entered: u64, left: u64, age_secs: u64, dropped: u64) -> Reading {
        Reading {
            dropped: BTreeMap::from([(3, dropped)]),
            ..reading(entered, left, age_secs)
        }
    }

    fn of(before: &Reading, now: &Reading) -> Option<[u64; 2]> {
        let found = rates(|_| Some(3), (before, now), Duration::from_secs(10));
        found.get(&ConfigId(7)).copied()
    }

    #[test]
    fn a_rate_is_what_the_meter_of_the_end_let_pass() {
        assert_eq!(
            of(&reading(1_000, 0, 40), &reading(2_250, 500, 50)),
            Some([1_000, 400])
        );
        let (before, now) = (policed(1_000, 0, 40, 50), policed(2_250, 500, 50, 300));
        assert_eq!(of(&before, &now), Some([800, 400]), "250 bytes were dropped");
    }

    #[test]
    fn a_counter_that_was_reset_gives_no_rate_and_no_spike() {
        let before = policed(2_000, 1_000, 50, 500);
        assert_eq!(of(&before, &policed(1_000, 1_500, 60, 500)), None, "entered");
        assert_eq!(of(&before, &policed(2_500, 500, 60, 500)), None, "left");
        assert_eq!(
            of(&before, &policed(2_500, 1_500, 60, 0)),
            None,
            "a changed meter counts anew"
        );
        assert_eq!(
            of(&before, &policed(9_000, 9_000, 5, 500)),
            None,
            "the entry was added again, and has passed the old value"
        );
        assert_eq!(of(&Reading::default(), &reading(1, 1, 1)), None, "a new end");
    }

    #[test]
    fn an_end_that_the_exchange_does_not_have_any_more_has_no_rate() {
        let (before, now) = (reading(1, 0, 1), reading(2, 0, 11));
        let found = rates(|_| None, (&before, &now), Duration::from_secs(10));
        assert_eq!(found, BTreeMap::new());
    }
}
