//! What a generator says: one JSON object a line.

use serde::{Deserialize, Serialize};

use crate::latency::Summary;

/// One line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Report {
    /// Devices are open; commands are read from now on.
    Ready(Ready),
    /// All links are up, or one went down.
    Link {
        /// True if all are up.
        up: bool,
    },
    /// A part of a run.
    Interval(Interval),
    /// A run is over, and the last packets are in.
    End(End),
    /// A command cannot be followed.
    Error {
        /// Why.
        message: String,
    },
}

/// What is ready.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Ready {
    /// The program's version.
    pub version: String,
    /// Packets in a cycle.
    pub packets: usize,
    /// Flows among them.
    pub flows: usize,
    /// Packets with room for a stamp; the others are counted and no more.
    pub stampable: usize,
    /// The device that sends.
    pub tx: String,
    /// The devices that receive.
    pub rx: Vec<String>,
    /// True if its memory is in huge pages.
    pub huge_pages: bool,
}

/// What was counted since the run began.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters {
    /// Packets that the device took.
    pub sent: u64,
    /// Size of them in bytes, without check sequence.
    pub sent_bytes: u64,
    /// Packets that the device did not take: its queue, which is the switch's, was full. Offered, and lost.
    pub refused: u64,
    /// Packets that were due and not offered: this program was away, or is too slow for the rate.
    pub missed: u64,
    /// Packets of this run that came, second copies not counted.
    pub received: u64,
    /// Second copies.
    pub duplicated: u64,
    /// Packets that came after a later one of the same flow.
    pub reordered: u64,
    /// Packets whose IPv4 header has a wrong checksum, or whose payload is not what was sent.
    pub corrupted: u64,
    /// Packets of an earlier run.
    pub stale: u64,
    /// Packets that nobody here sent, or whose stamp is gone.
    pub foreign: u64,
    /// Of `received`, by device, in the order in which they were named; at most eight.
    pub received_by: [u64; 8],
    /// How often this program did not look at its queues for longer than it should.
    pub absences: u64,
    /// How long in all, nanoseconds.
    pub absent_ns: u64,
    /// The longest of them, nanoseconds.
    pub absence_max_ns: u64,
}

/// A part of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// Which run, from 1.
    pub run: u64,
    /// Seconds since it began.
    pub at_s: f64,
    /// Packets a second that were sent in this part.
    pub tx_pps: f64,
    /// Packets a second that came in this part.
    pub rx_pps: f64,
    /// Latency of all packets that came in this part.
    pub latency: Summary,
    /// What was counted since the run began.
    pub counters: Counters,
}

/// A run that is over.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct End {
    /// Which run, from 1.
    pub run: u64,
    /// What was asked for, packets a second; none is flat out.
    pub rate: Option<f64>,
    /// How long packets were sent, seconds.
    pub seconds: f64,
    /// Packets a second that the device took.
    pub tx_pps: f64,
    /// Packets a second that came back: received over `seconds`.
    pub rx_pps: f64,
    /// Packets that were offered (sent or refused) and did not come back. Where packets have no room for
    /// stamps, second copies and foreign packets are not told from others.
    pub lost: u64,
    /// What was counted.
    pub counters: Counters,
    /// Latency of all stamped packets.
    pub latency: Summary,
    /// Latency of those during whose journey this program looked at its queues all the time.
    pub latency_attended: Summary,
    /// Bars of a histogram of `latency`: up to so many nanoseconds, so many packets.
    pub histogram: Vec<(u64, u64)>,
    /// The same of `latency_attended`.
    pub histogram_attended: Vec<(u64, u64)>,
}
