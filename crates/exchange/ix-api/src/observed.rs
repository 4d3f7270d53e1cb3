//! Observations, which the database does not hold: offending frames, rates, attacks.

use millrace_ix_model::{FilterAction, FilterMatch, Prefix, Reason, Timestamp};
pub use millrace_ix_service::{Check, Finding, Quarantined};

/// The UDP packets of the sFlow receiver, from its start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SampleReceiver {
    /// The samples of packets in valid datagrams.
    pub samples: u64,
    /// The packets from switches that were no valid sFlow datagrams.
    pub malformed: u64,
    /// The packets from addresses that are not those of switches.
    pub refused: u64,
}

/// Rates of a connection, a trunk or the whole exchange in bit/s. `in` is towards the exchange.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Load {
    /// The rate of frames that enter.
    pub in_bps: u64,
    /// The rate of frames that leave.
    pub out_bps: u64,
}

/// The counters of an active filter.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FilterCounter {
    /// The number of packets since the filter became active.
    pub packets: u64,
    /// The number of bytes since the filter became active.
    pub bytes: u64,
    /// The present rate in packets a second.
    pub packets_per_s: u64,
    /// The present rate in bit/s.
    pub bits_per_s: u64,
}

/// A destination with its rate.
#[derive(Debug, Clone, PartialEq)]
pub struct Target {
    /// The destination.
    pub prefix: Prefix,
    /// The present rate in bit/s.
    pub bits_per_s: u64,
    /// The rate before the attack, in bit/s; `None` while it is not known.
    pub usual_bits_per_s: Option<u64>,
}

/// The rate of one minute in bit/s; `None` if it is not known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Minute {
    /// The start of the minute.
    pub at: Timestamp,
    /// The rate of packets that passed.
    pub passed_bps: Option<u64>,
    /// The rate of packets that filters dropped.
    pub dropped_bps: Option<u64>,
}

/// A part of the traffic to a destination.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Share {
    /// The value: a port, a protocol, the identifier of a peer.
    pub label: String,
    /// The rate in bit/s.
    pub bits_per_s: u64,
}

/// The traffic to a destination.
#[derive(Debug, Clone, PartialEq)]
pub struct Attack {
    /// The destination with its rate.
    pub target: Target,
    /// The part of the rate that switches drop, in bit/s.
    pub dropped_bits_per_s: u64,
    /// The rate in packets a second.
    pub packets_per_s: u64,
    /// Half the width of the 95 % confidence interval, in percent of the rates.
    pub error_percent: f64,
    /// The minutes, oldest first. The newest is the current minute, with the rates so far.
    pub minutes: Vec<Minute>,
    /// The parts by `protocol`, `port`, `peer`, `source_as`, `fragment` and `size`, the largest first.
    pub breakdown: Vec<(&'static str, Vec<Share>)>,
    /// The proposed filters. While the usual rate is not known, they limit packets and drop none.
    pub suggestions: Vec<Suggestion>,
}

/// A proposed filter against an attack.
#[derive(Debug, Clone, PartialEq)]
pub struct Suggestion {
    /// The match of the packets to filter.
    pub matching: FilterMatch,
    /// The treatment of these packets.
    pub action: FilterAction,
    /// The share of the excess that the filter matches, 0 to 1.
    pub covers: f64,
    /// The share of the usual traffic that the filter matches, 0 to 1; `None` if no usual traffic is known.
    pub collateral: Option<f64>,
    pub why: Reason,
}
