//! Offload of a port to its device.

use serde::{Deserialize, Serialize};

/// The offload of a port to a device that classifies packets.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(utoipa::ToSchema))]
pub struct Offload {
    /// The mode of the configuration: `auto`, `dispatch`, `verify` or `trust`.
    pub mode: String,
    /// The level in use: `dispatch` (marks are not used), `verify` (each is compared) or `trust` (one in 1,024 is compared).
    pub level: String,
    /// The reason for the level: `device` (it is away), `operator`, `auto`, `governor` (marks save no time), `audit` (a mark
    /// was wrong), or what keeps marks from being used: `policer`, `spread` (workers hand packets to each other), `no_match` (the
    /// tables match the port only), `closed` (the port does not receive), `oam`, `fragments`, `tunnels`, `standalone`, `normal`
    /// (NORMAL forwards without the tables) or `trace` (a live trace runs).
    pub by: String,
    /// True once a mark was wrong; the device is not trusted again until the settings of the port change.
    pub distrusted: bool,
    /// The number of entries that the device has.
    pub entries: u64,
    /// The number of entries whose addition or removal the device has yet to confirm.
    pub pending: u64,
    /// The number of entries that the device could not remove; their slots are not used again.
    pub leaked: u64,
    /// The most entries that are used.
    pub limit: u64,
    /// The number of entries added and removed so far.
    pub operations: u64,
    /// The number of entries added and removed in the last second.
    pub operations_per_second: u64,
    /// The number of packets that the port has received since the device connected.
    pub packets: u64,
    /// The number of these packets with a mark, as far as marks were looked at.
    pub marked: u64,
    /// The number of packets whose mark replaced the lookup.
    pub used: u64,
    /// The number of packets whose key was compared with that of their mark.
    pub verified: u64,
    /// The number of packets that differ from the key of their mark.
    pub mismatches: u64,
    /// The number of packets whose mark names no entry.
    pub unknown: u64,
    /// The number of sampled packets.
    pub samples: u64,
    /// The number of sampled packets that were dropped because the switch was late.
    pub samples_lost: u64,
    /// Refused entries and unsuitable packets, by reason.
    pub refusals: Vec<OffloadRefusal>,
    /// The number of flows whose packets the device drops.
    #[serde(default)]
    pub drops: u64,
    /// The number of packets that the device dropped, which are not among `packets`.
    #[serde(default)]
    pub dropped: u64,
    /// The nanoseconds that marks saved for a packet in the last trial, negative if they cost time; `null` before the
    /// first one.
    #[serde(default)]
    pub saved_nanos: Option<f64>,
}

/// Refused entries, or sampled packets that get no entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(utoipa::ToSchema))]
pub struct OffloadRefusal {
    /// The reason: `shape`, `capacity`, `transient` or `drop` of the device; otherwise the field or header because of which packets
    /// get no entry.
    pub reason: String,
    /// The number of entries or sampled packets.
    pub count: u64,
}
