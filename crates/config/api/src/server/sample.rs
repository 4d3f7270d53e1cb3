//! Rates of ports. Counters are sampled every second while somebody asks for rates, so that a request gets them without a
//! wait, and every five seconds otherwise.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::live::{Live, PortCounters};
use crate::view::{Counters, Port, Rates};

/// The sampling period.
pub(super) const PERIOD: Duration = Duration::from_secs(1);
/// The sampling period while nobody has asked for rates for [`ASKED_TIME`]: with thousands of ports, samples would be most of
/// what a switch at rest does.
const IDLE_PERIOD: Duration = Duration::from_secs(5);
/// The time for which a request is followed by samples of the shorter period.
const ASKED_TIME: Duration = Duration::from_secs(60);

/// The last sample of every port, by bridge and number, and the rates since the sample before it.
#[derive(Debug, Default)]
pub(super) struct Samples {
    read: Mutex<Read>,
}

#[derive(Debug, Default)]
struct Read {
    /// The samples of a bridge are ordered by number.
    bridges: HashMap<String, Vec<(u32, Sample)>>,
    /// The times of the last sample and of the last request.
    at: Option<Instant>,
    asked_at: Option<Instant>,
}

#[derive(Debug, Clone, Copy)]
struct Sample {
    at: Instant,
    rx: Counters,
    tx: Counters,
    rates: Option<Rates>,
}

impl Samples {
    /// Returns true if it is time for a sample.
    pub(super) fn is_due(&self, now: Instant) -> bool {
        let mut read = self.read.lock();
        let asked_at = *read.asked_at.get_or_insert(now);
        let was_asked = now.saturating_duration_since(asked_at) < ASKED_TIME;
        let since = read.at.map(|at| now.saturating_duration_since(at));
        // The clock of the period is not exact.
        was_asked || since.is_none_or(|since| since + PERIOD / 2 >= IDLE_PERIOD)
    }

    /// Samples every port. Ports that no longer exist are removed.
    pub(super) fn read(&self, live: &dyn Live, now: Instant) {
        let found = live.port_counters();
        let mut read = self.read.lock();
        let mut before = core::mem::take(&mut read.bridges);
        let of_bridge = |(bridge, mut ports): (String, Vec<PortCounters>)| {
            ports.sort_unstable_by_key(|port| port.number);
            let mut before = before.remove(&bridge).unwrap_or_default().into_iter().peekable();
            let sample = |port: PortCounters| {
                let PortCounters { number, rx, tx } = port;
                while before.next_if(|(old, _)| *old < number).is_some() {}
                let before = before.next_if(|(old, _)| *old == number);
                let rates = before.and_then(|(_, old)| rates(&old, now, rx, tx));
                let sample = Sample {
                    at: now,
                    rx,
                    tx,
                    rates,
                };
                (number, sample)
            };
            let samples = ports.into_iter().map(sample).collect();
            (bridge, samples)
        };
        read.bridges = found.into_iter().map(of_bridge).collect();
        read.at = Some(now);
    }

    /// Fills in the rates of the ports, for a request.
    pub(super) fn fill(&self, ports: &mut [Port], now: Instant) {
        let mut read = self.read.lock();
        read.asked_at = Some(now);
        for port in ports {
            let samples = read
                .bridges
                .get(&port.bridge)
                .map(Vec::as_slice)
                .unwrap_or_default();
            let at = samples.binary_search_by_key(&port.number, |(number, _)| *number);
            let sample = at.ok().and_then(|at| samples.get(at));
            port.rates = sample.and_then(|(_, sample)| sample.rates);
        }
    }
}

/// Returns the rates between two samples, or `None` if no time has passed. A counter that decreased (the port was
/// re-created) counts as unchanged.
fn rates(old: &Sample, now: Instant, rx: Counters, tx: Counters) -> Option<Rates> {
    let seconds = now.saturating_duration_since(old.at).as_secs_f64();
    if seconds <= 0.0 {
        return None;
    }
    let per_second = |new: u64, old: u64| new.saturating_sub(old) as f64 / seconds;
    Some(Rates {
        rx_pps: per_second(rx.packets, old.rx.packets),
        rx_bps: 8.0 * per_second(rx.bytes, old.rx.bytes),
        tx_pps: per_second(tx.packets, old.tx.packets),
        tx_bps: 8.0 * per_second(tx.bytes, old.tx.bytes),
        drop_pps: per_second(rx.drops + tx.drops, old.rx.drops + old.tx.drops),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_taken_each_second_while_rates_are_asked_for_and_each_fifth_otherwise() {
        let (samples, start) = (Samples::default(), Instant::now());
        let mut taken = Vec::new();
        for second in 0..=200 {
            let now = start + Duration::from_secs(second);
            if second == 130 {
                samples.fill(&mut [], now);
            }
            if samples.is_due(now) {
                samples.read.lock().at = Some(now);
                taken.push(second);
            }
        }
        let every = |seconds: core::ops::Range<u64>, step| seconds.step_by(step).collect::<Vec<_>>();
        let idle = [every(64..130, 5), every(130..190, 1), every(194..200, 5)].concat();
        assert_eq!(taken, [every(0..60, 1), idle].concat());
    }

    #[test]
    fn rates_are_differences_over_time_and_never_negative() {
        let at = Instant::now();
        let totals = |packets| Counters {
            packets,
            bytes: packets * 100,
            drops: 0,
            errors: 0,
        };
        let old = Sample {
            at,
            rx: totals(1000),
            tx: totals(500),
            rates: None,
        };
        let now = at + Duration::from_millis(500);
        let seen = rates(&old, now, totals(1500), totals(0)).unwrap();
        assert_eq!((seen.rx_pps, seen.rx_bps, seen.tx_pps), (1000.0, 800_000.0, 0.0));
        assert_eq!(rates(&old, at, totals(1500), totals(0)), None);
    }
}
