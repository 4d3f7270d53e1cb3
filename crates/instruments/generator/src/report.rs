//! The output of the generator: one JSON object per line.

use serde::{Deserialize, Serialize};

use crate::latency::Summary;

/// A line of output.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Report {
    /// The devices are open; commands are read from now on.
    Ready(Ready),
    /// The state of the links has changed.
    Link {
        /// True if all links are up.
        up: bool,
    },
    /// An interval of a run.
    Interval(Interval),
    /// The end of a run, after the last packets.
    End(End),
    /// A command cannot be executed.
    Error {
        /// The cause.
        message: String,
    },
}

/// The properties of the program and its devices.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Ready {
    /// The version of the program.
    pub version: String,
    /// The number of packets in a cycle.
    pub packets: usize,
    /// The number of flows in a cycle.
    pub flows: usize,
    /// The number of packets with room for a stamp; the others are only counted.
    pub stampable: usize,
    /// The first device that sends.
    pub tx: String,
    /// The devices that receive.
    pub rx: Vec<String>,
    /// True if packet memory is in huge pages.
    pub huge_pages: bool,
}

/// The counters since the start of a run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters {
    /// Packets that the device accepted.
    pub sent: u64,
    /// The size of these packets in bytes, without check sequence.
    pub sent_bytes: u64,
    /// Packets that the device did not accept because the switch's queue was full. They count as lost.
    pub refused: u64,
    /// Packets that were due and not sent: the program was absent, or is too slow for the rate.
    pub missed: u64,
    /// Packets of this run that arrived, without duplicates.
    pub received: u64,
    /// Duplicates of packets that had arrived before.
    pub duplicated: u64,
    /// Packets that arrived after a later one of the same flow.
    pub reordered: u64,
    /// Packets with a wrong IPv4 header checksum, or another payload than the sent one.
    pub corrupted: u64,
    /// Packets of an earlier run.
    pub stale: u64,
    /// Packets without a valid stamp.
    pub foreign: u64,
    /// The number of stamped packets in `received` that arrived by each device, in the order of the command
    /// line. There are eight devices at most.
    pub received_by: [u64; 8],
    /// Absences: times without a poll of the queues that exceed the limit.
    pub absences: u64,
    /// The total duration of absences in nanoseconds.
    pub absent_ns: u64,
    /// The longest absence in nanoseconds.
    pub absence_max_ns: u64,
}

/// An interval of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// The number of the run, from 1.
    pub run: u64,
    /// The time since the start of the run, in seconds.
    pub at_s: f64,
    /// The rate of sent packets in this interval, in packets per second.
    pub tx_pps: f64,
    /// The rate of received packets in this interval, in packets per second.
    pub rx_pps: f64,
    /// The latency of all packets that arrived in this interval.
    pub latency: Summary,
    /// The counters since the start of the run.
    pub counters: Counters,
}

/// The result of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct End {
    /// The number of the run, from 1.
    pub run: u64,
    /// The requested rate in packets per second; `null` for `flat`.
    pub rate: Option<f64>,
    /// The time for which packets were sent, in seconds.
    pub seconds: f64,
    /// The rate of packets that the device accepted, in packets per second.
    pub tx_pps: f64,
    /// The rate of received packets in packets per second: `received` over `seconds`.
    pub rx_pps: f64,
    /// Packets that were sent or refused, and did not arrive. Without stamps, duplicates and foreign packets count as
    /// arrived.
    pub lost: u64,
    /// The counters of the run.
    pub counters: Counters,
    /// The latency of all stamped packets.
    pub latency: Summary,
    /// The latency of packets that were not in flight during an absence of the program.
    pub latency_attended: Summary,
    /// The histogram of `latency`: an upper bound in nanoseconds, and the number of packets.
    pub histogram: Vec<(u64, u64)>,
    /// The histogram of `latency_attended`.
    pub histogram_attended: Vec<(u64, u64)>,
}
