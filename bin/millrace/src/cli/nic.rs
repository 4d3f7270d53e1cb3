//! `nic`: devices of ports that classify packets.

use clap::{Args, Subcommand};

#[derive(Debug, Subcommand)]
pub(crate) enum Nic {
    /// Show the registers of a port's device (`nic:PATH`), with the meaning of their values
    #[command(after_help = "Examples:\n  \
        millrace nic registers br0 p1")]
    Registers(NicPort),
    /// Show the entries that the switch has in a port's device: slot, mark, match and rate
    #[command(after_help = "Examples:\n  \
        millrace nic dump br0 p1")]
    Dump(NicPort),
}

/// The port of a device.
#[derive(Debug, Args)]
pub(crate) struct NicPort {
    /// The bridge
    pub(crate) bridge: String,
    /// The port, by name or number
    pub(crate) port: String,
}
