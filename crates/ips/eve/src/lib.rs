//! Events of the engine as EVE JSON: one object on one line for each event. The field names and types are
//! those that Suricata documents, so that tools for EVE can read them.
//!
//! A [`Writer`] stores nothing between events; a [`Storage`] writes the files and sets that rules store.
//! Bytes that are not UTF-8 are written as `\xHH` in every field.

#![forbid(unsafe_code)]

mod alert;
mod app;
mod arp;
mod community_id;
mod dnp3;
mod dns;
mod dropped;
mod email;
mod ether;
mod event;
mod mdns;
mod metadata;
mod modbus;
mod netflow;
mod object;
mod place;
mod protocol;
mod statistics;
mod storage;
mod tables;
mod text;
mod timestamp;
mod writer;

pub use statistics::{Census, Statistics};
pub use storage::{Storage, StorageCounters, StorageError, StorageLimits};
pub use tables::RuleTables;
pub use writer::Writer;

/// The version of Suricata that determines the layout of the object `dns`. Other objects have
/// one layout.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Version {
    /// Suricata 7: DNS version 2, a question in each object.
    #[default]
    Seven,
    /// Suricata 8: DNS version 3, with all questions in an array.
    Eight,
}

/// The layout of EVE records.
#[derive(Debug, Clone, Default)]
pub struct Layout {
    /// The version of the layout.
    pub version: Version,
    /// True if the packet of an alert and its payload are written, in Base64.
    pub packets: bool,
    /// True if the events of the decoder and of the TCP engine are written as anomalies.
    pub packet_anomalies: bool,
    /// True if each direction of a flow is written, too (`netflow`).
    pub netflow: bool,
    /// True if events of packets have the addresses of their Ethernet header.
    pub ethernet: bool,
    /// True if events have what Suricata writes only if its configuration asks for it.
    pub details: bool,
}
