//! Groups and meters of controllers, with their counters.

use serde::{Deserialize, Serialize};

/// A group.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(utoipa::ToSchema))]
pub struct Group {
    /// The number of the group.
    pub id: u32,
    /// The type: `all`, `select`, `indirect` or `fast_failover`.
    pub kind: String,
    /// The number of flow entries and buckets that refer to the group.
    pub references: u32,
    /// The number of packets that the group processed.
    pub packets: u64,
    /// The size of these packets in bytes.
    pub bytes: u64,
    /// The time since the group was added, in seconds.
    pub duration_seconds: f64,
    /// The action buckets.
    pub buckets: Vec<Bucket>,
}

/// A bucket of a group.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(utoipa::ToSchema))]
pub struct Bucket {
    /// The weight in a select group, relative to the other buckets.
    pub weight: u16,
    /// The port on which the liveness of the bucket depends; `null` for none.
    pub watch_port: Option<u32>,
    /// The group on which the liveness of the bucket depends; `null` for none.
    pub watch_group: Option<u32>,
    /// The actions, in the syntax of flows.
    pub actions: String,
    /// The number of packets that the bucket processed.
    pub packets: u64,
    /// The size of these packets in bytes.
    pub bytes: u64,
}

/// A meter.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(utoipa::ToSchema))]
pub struct Meter {
    /// The number of the meter, `controller` or `slowpath`.
    pub id: String,
    /// The unit of rates: `kbps` or `pktps`.
    pub unit: String,
    /// The number of flow entries that refer to the meter.
    pub flows: u32,
    /// The number of packets that the meter processed.
    pub packets: u64,
    /// The size of these packets in bytes.
    pub bytes: u64,
    /// The time since the meter was added, in seconds.
    pub duration_seconds: f64,
    /// The bands, each with a rate and a treatment of packets above it.
    pub bands: Vec<Band>,
}

/// A band of a meter.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(utoipa::ToSchema))]
pub struct Band {
    /// The type: `drop` or `dscp_remark`.
    pub kind: String,
    /// The rate above which the band applies, in the unit of the meter.
    pub rate: u32,
    /// The burst size in kbit or packets; `null` if the meter has none.
    pub burst_size: Option<u32>,
    /// The number of levels by which the drop precedence rises; `null` for `drop`.
    pub prec_level: Option<u8>,
    /// The number of packets to which the band was applied.
    pub packets: u64,
    /// The size of these packets in bytes.
    pub bytes: u64,
}
