//! Rates: counters are read every second, so that whoever asks gets packets a second at once.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::live::Live;
use crate::view::{Counters, Port, Rates};

/// How often counters are read.
pub(super) const PERIOD: Duration = Duration::from_secs(1);

/// The last reading of every port, and the rates since the one before.
#[derive(Debug, Default)]
pub(super) struct Samples {
    ports: Mutex<HashMap<(String, String), Sample>>,
}

#[derive(Debug, Clone, Copy)]
struct Sample {
    at: Instant,
    rx: Counters,
    tx: Counters,
    rates: Option<Rates>,
}

impl Samples {
    /// Reads every port. Ports that are gone are forgotten.
    pub(super) fn take(&self, live: &dyn Live, now: Instant) {
        let bridges = live.bridges().into_iter();
        let ports: Vec<Port> = bridges
            .flat_map(|bridge| live.ports(&bridge.name).unwrap_or_default())
            .collect();
        let mut held = self.ports.lock().unwrap_or_else(PoisonError::into_inner);
        let new = ports.into_iter().map(|port| {
            let key = (port.bridge, port.name);
            let rates = held.get(&key).and_then(|old| rates(old, now, port.rx, port.tx));
            (
                key,
                Sample {
                    at: now,
                    rx: port.rx,
                    tx: port.tx,
                    rates,
                },
            )
        });
        let new = new.collect();
        *held = new;
    }

    /// Fills in the rates.
    pub(super) fn fill(&self, ports: &mut [Port]) {
        let held = self.ports.lock().unwrap_or_else(PoisonError::into_inner);
        for port in ports {
            let key = (port.bridge.clone(), port.name.clone());
            port.rates = held.get(&key).and_then(|sample| sample.rates);
        }
    }
}

/// `None` if no time has passed. Counters that went back (the port was made anew) count as standing still.
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
