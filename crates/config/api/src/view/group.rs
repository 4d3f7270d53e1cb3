//! Groups and meters, as controllers made them, with what they counted.

use serde::{Deserialize, Serialize};

/// A group.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(utoipa::ToSchema))]
pub struct Group {
    /// Its number.
    pub id: u32,
    /// `all`, `select`, `indirect` or `fast_failover`.
    pub kind: String,
    /// How many flow entries and buckets of groups send to it.
    pub references: u32,
    /// Packets that it processed.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Seconds since it was added.
    pub duration_seconds: f64,
    /// Where packets can go.
    pub buckets: Vec<Bucket>,
}

/// A bucket of a group.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(utoipa::ToSchema))]
pub struct Bucket {
    /// Share of a select group, relative to the other buckets.
    pub weight: u16,
    /// The bucket is live while this port is; `null` for none.
    pub watch_port: Option<u32>,
    /// The bucket is live while this group is; `null` for none.
    pub watch_group: Option<u32>,
    /// Its actions, in the syntax of flows.
    pub actions: String,
    /// Packets that it processed.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// A meter.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(utoipa::ToSchema))]
pub struct Meter {
    /// Its number, `controller` or `slowpath`.
    pub id: String,
    /// The unit of rates: `kbps` or `pktps`.
    pub unit: String,
    /// How many flow entries use it.
    pub flows: u32,
    /// Packets that came to it.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Seconds since it was added.
    pub duration_seconds: f64,
    /// What it does at which rates.
    pub bands: Vec<Band>,
}

/// A band of a meter.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(utoipa::ToSchema))]
pub struct Band {
    /// `drop` or `dscp_remark`.
    pub kind: String,
    /// The rate above which it applies, in the unit of the meter.
    pub rate: u32,
    /// How much may come at once, in kbit or packets; `null` if the meter does not say.
    pub burst_size: Option<u32>,
    /// By how many levels the drop precedence rises; `null` for `drop`.
    pub prec_level: Option<u8>,
    /// Packets that it was applied to.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
}
