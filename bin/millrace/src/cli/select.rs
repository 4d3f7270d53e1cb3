//! Arguments that select a bridge or a hop.

use clap::Args;

/// The selection of one bridge, or of all.
#[derive(Debug, Args)]
pub(crate) struct BridgeSelection {
    /// Only this bridge
    pub(crate) bridge: Option<String>,
}

/// The name of a hop.
#[derive(Debug, Args)]
pub(crate) struct HopName {
    /// The bridge
    pub(crate) bridge: String,
    /// The chain
    pub(crate) chain: String,
    /// The hop
    pub(crate) hop: String,
}
