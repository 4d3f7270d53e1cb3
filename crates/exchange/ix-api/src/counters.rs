//! The counters of active filters, as sums over all switches.

use std::collections::BTreeMap;
use std::sync::Arc;

use millrace_ix_model::{FilterId, SwitchId, Timestamp};
use parking_lot::Mutex;

use crate::observed::FilterCounter;

/// The packets and bytes that the flow entries of a filter have counted in one switch.
pub type Count = (u64, u64);

/// The last reading of a filter's counters in one switch.
#[derive(Debug, Clone, Copy)]
struct Reading {
    at: Timestamp,
    seen: Count,
    /// The totals since the first reading. A reset of the switch's counters does not reduce them.
    total: Count,
    packets_per_s: u64,
    bits_per_s: u64,
}

/// The newest counters of filters. Clones share them: the tasks of switches write, and the API reads.
#[derive(Debug, Clone, Default)]
pub struct FilterCounters(Arc<Mutex<BTreeMap<(SwitchId, FilterId), Reading>>>);

impl FilterCounters {
    /// Records the counters of all filters in a switch, and removes filters that are no longer in the switch.
    pub fn record(&self, switch: SwitchId, at: Timestamp, seen: &BTreeMap<FilterId, Count>) {
        let mut readings = self.0.lock();
        readings.retain(|(other, filter), _| *other != switch || seen.contains_key(filter));
        for (filter, now) in seen {
            let before = readings.get(&(switch, *filter)).copied();
            let reading = match before {
                Some(before) => before.next(at, *now),
                None => Reading {
                    at,
                    seen: *now,
                    total: *now,
                    packets_per_s: 0,
                    bits_per_s: 0,
                },
            };
            readings.insert((switch, *filter), reading);
        }
    }

    /// Returns the counters of each filter, as sums over all switches.
    pub fn sums(&self) -> BTreeMap<FilterId, FilterCounter> {
        let readings = self.0.lock();
        let mut sums: BTreeMap<FilterId, FilterCounter> = BTreeMap::new();
        for ((_, filter), reading) in &*readings {
            let sum = sums.entry(*filter).or_default();
            sum.packets = sum.packets.saturating_add(reading.total.0);
            sum.bytes = sum.bytes.saturating_add(reading.total.1);
            sum.packets_per_s = sum.packets_per_s.saturating_add(reading.packets_per_s);
            sum.bits_per_s = sum.bits_per_s.saturating_add(reading.bits_per_s);
        }
        sums
    }
}

impl Reading {
    /// Returns the next reading. A counter that decreased was reset, so its new value counts from the reset.
    fn next(self, at: Timestamp, now: Count) -> Reading {
        let since = |before: u64, now: u64| now.checked_sub(before).unwrap_or(now);
        let (packets, bytes) = (since(self.seen.0, now.0), since(self.seen.1, now.1));
        let millis = u64::try_from(at.since(self.at).as_millis())
            .unwrap_or(u64::MAX)
            .max(1);
        Reading {
            at,
            seen: now,
            total: (
                self.total.0.saturating_add(packets),
                self.total.1.saturating_add(bytes),
            ),
            packets_per_s: packets.saturating_mul(1000) / millis,
            bits_per_s: bytes.saturating_mul(8000) / millis,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_add_up_over_switches_and_survive_a_reset() {
        let counters = FilterCounters::default();
        let (one, two, filter) = (SwitchId(1), SwitchId(2), FilterId(7));
        let record = |switch, secs, count| {
            counters.record(
                switch,
                Timestamp::from_secs(secs),
                &BTreeMap::from([(filter, count)]),
            );
        };
        record(one, 100, (10, 1_000));
        record(two, 100, (5, 500));
        assert_eq!(
            (
                counters.sums()[&filter].packets,
                counters.sums()[&filter].bits_per_s
            ),
            (15, 0)
        );
        record(one, 110, (30, 3_000));
        record(two, 110, (2, 200));
        let sum = counters.sums()[&filter];
        assert_eq!(
            (sum.packets, sum.bytes),
            (30 + 5 + 2, 3_000 + 500 + 200),
            "the second switch was reset"
        );
        assert_eq!((sum.packets_per_s, sum.bits_per_s), (2, 1_600 + 160));
        counters.record(one, Timestamp::from_secs(120), &BTreeMap::new());
        assert_eq!(
            counters.sums()[&filter].packets,
            7,
            "the first switch has the filter no longer"
        );
    }
}
