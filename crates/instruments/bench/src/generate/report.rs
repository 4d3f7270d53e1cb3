//! The reports of `millrace-generator`, as far as the bench uses them. The generator is linked with DPDK and the bench
//! is not, so each has its own definition. Tests of both use the same file.

use serde::{Deserialize, Serialize};

/// A line of the generator.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Report {
    /// The devices are open.
    Ready {},
    /// The state of the links changed.
    Link {
        /// True if all links are up.
        up: bool,
    },
    /// An intermediate report of a run.
    Interval {},
    /// The end of a run.
    End(Box<End>),
    /// A command could not be executed.
    Error {
        /// The reason.
        message: String,
    },
}

/// The counters of a run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters {
    /// Packets that the device accepted.
    pub sent: u64,
    /// Packets that the device did not accept because the queue of the switch was full.
    pub refused: u64,
    /// Packets that were due while the generator did not run.
    pub missed: u64,
    /// Packets that returned.
    pub received: u64,
    /// Duplicates.
    pub duplicated: u64,
    /// Packets that returned after a later packet of the same flow.
    pub reordered: u64,
    /// Packets with a wrong payload or header checksum.
    pub corrupted: u64,
    /// The number of packets in `received` that returned by each device, in the order of the command line; at most
    /// eight devices.
    pub received_by: [u64; 8],
    /// The number of gaps in which the generator did not run.
    pub absences: u64,
    /// The sum of these gaps in ns.
    pub absent_ns: u64,
}

/// Latencies in ns.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// The number of packets.
    pub count: u64,
    /// The minimum.
    pub min_ns: u64,
    pub mean_ns: f64,
    /// The median.
    pub p50_ns: u64,
    /// The 90th percentile.
    pub p90_ns: u64,
    /// The 99th percentile.
    pub p99_ns: u64,
    /// The 99.9th percentile.
    pub p999_ns: u64,
    /// The 99.99th percentile.
    pub p9999_ns: u64,
    /// The maximum.
    pub max_ns: u64,
}

/// The report of a complete run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct End {
    /// The requested rate in packets per second; `None` for full rate.
    pub rate: Option<f64>,
    /// The duration of sending in seconds.
    pub seconds: f64,
    /// Packets sent per second.
    pub tx_pps: f64,
    /// Packets received per second.
    pub rx_pps: f64,
    /// Packets that were offered and did not return.
    pub lost: u64,
    pub counters: Counters,
    /// The latency of all packets.
    pub latency: Latency,
    /// The latency of those packets that were in transit while the generator ran without a gap.
    pub latency_attended: Latency,
    /// The histogram of `latency`: upper bound in ns, and number of packets.
    pub histogram: Vec<(u64, u64)>,
    /// The histogram of `latency_attended`.
    pub histogram_attended: Vec<(u64, u64)>,
}

impl End {
    /// Returns the offered load in packets per second: the packets that were accepted, and those that were not.
    pub fn offered_pps(&self) -> f64 {
        (self.counters.sent + self.counters.refused) as f64 / self.seconds.max(1e-9)
    }

    /// Returns the share of the due packets that the generator did not offer, 0 to 1.
    pub fn shortfall(&self) -> f64 {
        let counters = &self.counters;
        let due = counters.sent + counters.refused + counters.missed;
        counters.missed as f64 / (due as f64).max(1.0)
    }

    /// Returns the share of the offered packets that did not return, 0 to 1.
    pub fn loss(&self) -> f64 {
        let offered = self.counters.sent + self.counters.refused;
        self.lost as f64 / (offered as f64).max(1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A test of the generator shows that it writes these lines.
    const LINES: &str = include_str!("../../../generator/tests/reports.jsonl");

    #[test]
    fn the_reports_of_the_generator_are_parsed() {
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
