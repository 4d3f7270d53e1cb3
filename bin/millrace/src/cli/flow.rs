//! `flow` and `fdb`: flow entries of an operator, counters that are reset, and the MAC table.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::select::BridgeSelection;

#[derive(Debug, Subcommand)]
#[command(after_help = "\
Entries are state, not configuration, and belong to nobody: a connected controller sees them in statistics and \
monitors and may change or remove them; they stay when controllers connect and disconnect. A restart of millraced \
keeps them, with those of controllers, only if system.keep_flows is true. A cookie tells them apart from those of \
controllers.")]
pub(crate) enum Flow {
    /// Add entries; one with the same table, match and priority is replaced
    #[command(after_help = "Examples:\n  \
        millrace flow add br0 priority=10,in_port=h1,tcp,tp_dst=80,actions=output:h2\n  \
        millrace flow add br0 --file flows.txt\n  \
        generate-flows | millrace flow add br0 --file -")]
    Add(FlowAdd),
    /// Change the instructions of all entries whose match is the given one or narrower
    #[command(after_help = "Examples:\n  \
        millrace flow mod br0 table=0,tcp,actions=output:2\n  \
        millrace flow mod br0 --strict priority=10,tcp,tp_dst=80,actions=drop")]
    Mod(FlowSelect),
    /// Remove all entries whose match is the given one or narrower, of all tables unless one is given
    #[command(after_help = "Examples:\n  \
        millrace flow del br0 tcp,nw_dst=10.0.0.0/8\n  \
        millrace flow del br0 cookie=0x2a00/0xff00\n  \
        millrace flow del br0 out_port=h2\n  \
        millrace flow del br0 --all")]
    Del(FlowDelete),
    /// Set the counters of entries to zero; the entries stay
    Reset(FlowReset),
    /// Save flow entries, groups and meters to the daemon's state directory, for the next start; needs
    /// system.keep_flows
    Save(BridgeSelection),
}

/// Flow entries from the command line or from a file.
#[derive(Debug, Args)]
pub(crate) struct FlowTexts {
    /// The bridge
    pub(crate) bridge: String,
    /// The entry as `show flows` prints it and ovs-ofctl takes it; may be given several times
    #[arg(value_name = "FLOW")]
    pub(crate) flows: Vec<String>,
    /// Read entries from this file, one a line (`-` for standard input); empty lines and lines that begin with
    /// `#` are skipped
    #[arg(long, short, value_name = "FILE", conflicts_with = "flows")]
    pub(crate) file: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct FlowAdd {
    #[command(flatten)]
    pub(crate) texts: FlowTexts,
}

#[derive(Debug, Args)]
pub(crate) struct FlowSelect {
    #[command(flatten)]
    pub(crate) texts: FlowTexts,
    /// Select only the entry with exactly this match and priority
    #[arg(long)]
    pub(crate) strict: bool,
}

#[derive(Debug, Args)]
pub(crate) struct FlowDelete {
    #[command(flatten)]
    pub(crate) select: FlowSelect,
    /// Remove every entry of the bridge
    #[arg(long, conflicts_with_all = ["flows", "file", "strict"])]
    pub(crate) all: bool,
}

#[derive(Debug, Args)]
pub(crate) struct FlowReset {
    /// The bridge
    pub(crate) bridge: String,
    /// Only entries whose match is this one or narrower
    #[arg(value_name = "MATCH")]
    pub(crate) matching: Option<String>,
    /// Only entries of this table
    #[arg(long, value_name = "TABLE")]
    pub(crate) table: Option<u8>,
    /// Only entries whose cookie has this value in the bits of the mask
    #[arg(long, value_name = "COOKIE[/MASK]")]
    pub(crate) cookie: Option<String>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Fdb {
    /// Forget MAC addresses that NORMAL learned: all of the bridge unless a VLAN or a port is given
    #[command(after_help = "Examples:\n  \
        millrace fdb flush br0\n  \
        millrace fdb flush br0 --vlan 100 --port h1")]
    Flush(FdbFlush),
}

#[derive(Debug, Args)]
pub(crate) struct FdbFlush {
    /// The bridge
    pub(crate) bridge: String,
    /// Only addresses of this VLAN; 0 is that of untagged frames of ports without a VLAN
    #[arg(long, value_name = "VLAN", value_parser = clap::value_parser!(u16).range(0..=4094))]
    pub(crate) vlan: Option<u16>,
    /// Only addresses of this port, by name or number
    #[arg(long, short, value_name = "PORT")]
    pub(crate) port: Option<String>,
}
