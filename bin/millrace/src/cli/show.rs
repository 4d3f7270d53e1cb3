//! `show` and `watch`: the state of the switch.

use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};

use super::duration::between;
use super::select::BridgeSelection;

#[derive(Debug, Subcommand)]
pub(crate) enum Show {
    /// Desired and running configuration, and the problems between them
    Status,
    /// Bridges with their forwarding mode and sizes
    Bridges,
    /// Ports with their counters and rates
    Ports(BridgeSelection),
    /// Flow entries
    Flows(Flows),
    /// Flow tables and their classifiers
    Tables(BridgeSelection),
    /// Groups and their buckets
    Groups(BridgeSelection),
    /// Meters and their bands
    Meters(BridgeSelection),
    /// Egress queues of ports: rates, priorities, packets sent, dropped and queued
    Queues(BridgeSelection),
    /// Policers of ports: rates, and packets by color
    Policers(BridgeSelection),
    /// Offload of ports to NICs: trust, entries, marked packets, wrong marks, refusals
    Offload(BridgeSelection),
    /// BFD, continuity checks and flap damping of ports
    Oam(BridgeSelection),
    /// Neighbours of ports by LLDP
    Lldp(BridgeSelection),
    /// LAGs and their members: LACP, partners, counters
    Lag {
        /// Only this LAG, with its members
        #[arg(value_name = "NAME")]
        name: Option<String>,
    },
    /// The spanning tree of bridges, and the part of each port
    Rstp(BridgeSelection),
    /// Mirrors: selected packets, outputs, counters
    Mirrors(BridgeSelection),
    /// sFlow: collectors, and samples of ports
    Sflow(BridgeSelection),
    /// IPFIX: records of flows or packets, and collectors
    Ipfix(BridgeSelection),
    /// The Open vSwitch database that the switch follows, and rows that are not in effect
    Ovsdb,
    /// VRFs of the router: the source of their routes, and sizes
    Vrfs,
    /// Interfaces of the router with their counters
    Interfaces {
        /// Show dropped packets by reason, too
        #[arg(long)]
        drops: bool,
    },
    /// Routes of the router, as packets follow them
    Routes(Routes),
    /// Groups of next hops, with the number of routes that use them
    Nexthops(VrfSelection),
    /// Neighbours of the router
    Neighbours(VrfSelection),
    /// Controllers and the state of their connections
    Controllers(BridgeSelection),
    /// Workers: their load and the queues that they poll
    Workers,
    /// Dropped packets by reason
    Drops {
        /// Include reasons with a count of zero
        #[arg(long)]
        all: bool,
    },
    /// MAC addresses that the bridges learned
    Macs(BridgeSelection),
    /// The configuration, as a file that `apply` takes
    Config {
        /// Show this revision; the newest unless given
        #[arg(long, value_name = "NUMBER")]
        revision: Option<u64>,
        /// Include keys that have their default values
        #[arg(long)]
        full: bool,
    },
    /// Objects of the configuration and the front ends that own them
    Owners,
    /// Revisions of the configuration, the newest first
    History {
        /// Show at most this many revisions
        #[arg(long, value_name = "COUNT", default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=1000))]
        limit: u16,
    },
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    millrace show flows br0 --sort packets --limit 10\n  \
    millrace show flows --match tcp,nw_dst=10.0.0.0/8 --table 0\n  \
    millrace show flows --cookie 0x2a00/0xff00")]
pub(crate) struct Flows {
    #[command(flatten)]
    pub(crate) of: BridgeSelection,
    /// Only entries of this table
    #[arg(long, value_name = "TABLE")]
    pub(crate) table: Option<u8>,
    /// Only entries whose match is this one or narrower: `tcp,nw_dst=10.0.0.0/8` (the non-strict
    /// comparison of OpenFlow 1.3.5, section 6.4)
    #[arg(long = "match", value_name = "MATCH")]
    pub(crate) matching: Option<String>,
    /// Only entries whose cookie has this value in the bits of the mask: `0x2a`, `0x2a/0xff`
    #[arg(long, value_name = "COOKIE[/MASK]")]
    pub(crate) cookie: Option<String>,
    /// Sort by this key, the largest first (tables: the lowest first, then by priority)
    #[arg(long, value_name = "KEY", value_enum)]
    pub(crate) sort: Option<FlowSort>,
    /// Reverse the order of --sort
    #[arg(long, requires = "sort")]
    pub(crate) reverse: bool,
    /// Show at most this many entries of each bridge
    #[arg(long, value_name = "COUNT")]
    pub(crate) limit: Option<usize>,
}

/// The VRFs of a command.
#[derive(Debug, Args)]
pub(crate) struct VrfSelection {
    /// The name of a VRF; all VRFs unless given
    #[arg(value_name = "VRF")]
    pub(crate) vrf: Option<String>,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    millrace show routes blue --to 192.0.2.1\n  \
    millrace show routes blue --within 10.0.0.0/8 --limit 50\n  \
    millrace show routes blue --after 10.20.0.0/16 --limit 50")]
pub(crate) struct Routes {
    #[command(flatten)]
    pub(crate) of: VrfSelection,
    /// Only the route that packets to this address follow
    #[arg(long, value_name = "ADDRESS", conflicts_with = "within")]
    pub(crate) to: Option<String>,
    /// Only this prefix and longer ones
    #[arg(long, value_name = "PREFIX")]
    pub(crate) within: Option<String>,
    /// Only routes after this prefix, in the order of prefixes
    #[arg(long, value_name = "PREFIX", conflicts_with = "to")]
    pub(crate) after: Option<String>,
    /// Show at most this many routes of each VRF
    #[arg(long, value_name = "COUNT")]
    pub(crate) limit: Option<usize>,
}

/// The key that flow entries are sorted by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum FlowSort {
    /// The priority
    Priority,
    /// Packets that matched
    Packets,
    /// Bytes of packets that matched
    Bytes,
    /// The time since the entry was added
    Age,
    /// The table, then the priority
    Table,
}

#[derive(Debug, Args)]
pub(crate) struct Watch {
    #[command(flatten)]
    pub(crate) of: BridgeSelection,
    /// Time between two readings, 100ms to 1h
    #[arg(long, short, value_name = "TIME", default_value = "1s", value_parser = between("100ms", "1h"))]
    pub(crate) interval: Duration,
    /// End after this many readings
    #[arg(long, short = 'n', value_name = "COUNT")]
    pub(crate) count: Option<u64>,
}
