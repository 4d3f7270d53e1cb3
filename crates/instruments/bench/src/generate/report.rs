//! What `millrace-generator` says, as far as the bench reads it. The generator has DPDK inside and the bench
//! has not, so each has its own copy of this; a test of each reads the same file.

use serde::{Deserialize, Serialize};

/// One line.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Report {
    /// Devices are open.
    Ready {},
    /// All links are up, or one is down.
    Link {
        /// True if all are up.
        up: bool,
    },
    /// A part of a run.
    Interval {},
    /// A run is over.
    End(Box<End>),
    /// A command cannot be followed.
    Error {
        /// Why.
        message: String,
    },
}

/// What was counted in a run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters {
    /// Packets that the device took.
    pub sent: u64,
    /// Packets that found the switch's queue full.
    pub refused: u64,
    /// Packets that were due while the generator was away.
    pub missed: u64,
    /// Packets that came back.
    pub received: u64,
    /// Second copies.
    pub duplicated: u64,
    /// Packets that came after a later one of the same flow.
    pub reordered: u64,
    /// Packets whose payload or header checksum is wrong.
    pub corrupted: u64,
    /// Of `received`, by sink.
    pub received_by: [u64; 8],
    /// How often the generator was away.
    pub absences: u64,
    /// How long in all, ns.
    pub absent_ns: u64,
}

/// Latencies.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// How many packets.
    pub count: u64,
    /// The least.
    pub min_ns: u64,
    /// The mean.
    pub mean_ns: f64,
    /// Half are at most this.
    pub p50_ns: u64,
    /// Nine of ten.
    pub p90_ns: u64,
    /// 99 of 100.
    pub p99_ns: u64,
    /// 999 of 1,000.
    pub p999_ns: u64,
    /// 9,999 of 10,000.
    pub p9999_ns: u64,
    /// The greatest.
    pub max_ns: u64,
}

/// A run that is over.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct End {
    /// What was asked for, packets a second; none is flat out.
    pub rate: Option<f64>,
    /// How long packets were sent, seconds.
    pub seconds: f64,
    /// Packets a second that were sent.
    pub tx_pps: f64,
    /// Packets a second that came back.
    pub rx_pps: f64,
    /// Packets that were offered and did not come back.
    pub lost: u64,
    /// What was counted.
    pub counters: Counters,
    /// Latency of all packets.
    pub latency: Latency,
    /// Latency of packets during whose journey the generator was never away.
    pub latency_attended: Latency,
    /// Up to so many nanoseconds, so many packets.
    pub histogram: Vec<(u64, u64)>,
    /// The same of `latency_attended`.
    pub histogram_attended: Vec<(u64, u64)>,
}

impl End {
    /// Packets a second that were offered: those that were sent, and those that found a queue full.
    pub fn offered_pps(&self) -> f64 {
        (self.counters.sent + self.counters.refused) as f64 / self.seconds.max(1e-9)
    }

    /// The share of packets that were due and that the generator did not offer.
    pub fn shortfall(&self) -> f64 {
        let counters = &self.counters;
        let due = counters.sent + counters.refused + counters.missed;
        counters.missed as f64 / (due as f64).max(1.0)
    }

    /// Returns the share of offered packets that did not come back.
    pub fn loss(&self) -> f64 {
        let offered = self.counters.sent + self.counters.refused;
        self.lost as f64 / (offered as f64).max(1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The generator's own test makes sure that this is what it writes.
    const LINES: &str = include_str!("../../../generator/tests/reports.jsonl");

    #[test]
    fn what_the_generator_writes_is_read() {
        let reports: Vec<Report> = LINES
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        assert_eq!(reports.len(), 5);
        assert_eq!(reports[1], Report::Link { up: true });
        let Report::End(end) = &reports[3] else {
            panic!("{reports:?}")
        };
        assert_eq!(end.rate, Some(1000.0));
        assert_eq!((end.lost, end.counters.sent, end.counters.refused), (11, 900, 10));
        assert!((end.shortfall() - 0.09).abs() < 1e-9 && (end.offered_pps() - 910.0).abs() < 1e-9);
        assert!((end.loss() - 11.0 / 910.0).abs() < 1e-9);
    }
}
