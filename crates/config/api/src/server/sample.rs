//! Rates of ports. Counters are sampled every second, so that a request gets rates without a wait.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::live::{Live, PortCounters};
use crate::view::{Counters, Port, Rates};

/// The sampling period.
pub(super) const PERIOD: Duration = Duration::from_secs(1);

/// The last sample of every port, by bridge and number, and the rates since the sample before it.
#[derive(Debug, Default)]
pub(super) struct Samples {
    bridges: Mutex<HashMap<String, HashMap<u32, Sample>>>,
}

#[derive(Debug, Clone, Copy)]
struct Sample {
    at: Instant,
    rx: Counters,
    tx: Counters,
    rates: Option<Rates>,
}

impl Samples {
    /// Samples every port. Ports that no longer exist are removed.
    pub(super) fn read(&self, live: &dyn Live, now: Instant) {
        let found = live.port_counters();
        let mut bridges = self.bridges.lock().unwrap_or_else(PoisonError::into_inner);
        let of_bridge = |(bridge, ports): (String, Vec<PortCounters>)| {
            let before = bridges.get(&bridge);
            let sample = |port: PortCounters| {
                let PortCounters { number, rx, tx } = port;
                let before = before.and_then(|ports| ports.get(&number));
                let rates = before.and_then(|old| rates(old, now, rx, tx));
                (
                    number,
                    Sample {
                        at: now,
                        rx,
                        tx,
                        rates,
                    },
                )
            };
            let samples = ports.into_iter().map(sample).collect();
            (bridge, samples)
        };
        let new = found.into_iter().map(of_bridge).collect();
        *bridges = new;
    }

    /// Fills in the rates of the ports.
    pub(super) fn fill(&self, ports: &mut [Port]) {
        let bridges = self.bridges.lock().unwrap_or_else(PoisonError::into_inner);
        for port in ports {
            let samples = bridges.get(&port.bridge);
            let sample = samples.and_then(|samples| samples.get(&port.number));
            port.rates = sample.and_then(|sample| sample.rates);
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
