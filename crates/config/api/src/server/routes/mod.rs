//! The resources of the interface, one file each. Each handler carries its own OpenAPI description. Router and
//! document are generated from the same list, so neither can lack an entry of the other.

pub(super) mod bridges;
pub(super) mod capture;
mod chain_metrics;
pub(super) mod chains;
pub(super) mod config;
pub(super) mod docs;
pub(super) mod events;
pub(super) mod flow_mods;
mod ipfix_metrics;
mod lag_metrics;
pub(super) mod lags;
pub(super) mod lock;
pub(super) mod log;
pub(super) mod metrics;
mod mirror_metrics;
pub(super) mod nic;
mod offload_metrics;
mod ovsdb_metrics;
pub(super) mod owners;
pub(super) mod revisions;
pub(super) mod routing;
mod routing_metrics;
mod sflow_metrics;
pub(super) mod state;
pub(super) mod switch;
pub(super) mod trace;
mod wan_metrics;
pub(super) mod wans;
