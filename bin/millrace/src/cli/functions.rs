//! `nf` and `chain`: network functions and their chains.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};

use super::duration::between;
use super::select::{BridgeSelection, HopName};

#[derive(Debug, Subcommand)]
pub(crate) enum Nf {
    /// List the functions that run, with their state
    List(BridgeSelection),
    /// Show the counters of functions and hops
    Stats(BridgeSelection),
    /// List the built-in functions with their settings
    Functions,
    /// Run a function over a capture file, or as a hop of a chain
    #[command(after_help = "Examples:\n  \
        millrace nf run firewall --setting default=deny --read in.pcap --write out.pcap\n  \
        millrace nf run ids --setting rules=local.rules --setting export=file:eve.json --read day.pcapng\n  \
        millrace nf run wasm:/usr/lib/millrace/fw.wasm --bridge br0 --chain edge --hop fw --before watch")]
    Run(Run),
    /// Measure the rate of a function on one core, without a switch, with TCP connections made in memory
    #[command(after_help = "Examples:\n  \
        millrace nf rate monitor\n  \
        millrace nf rate ips --setting rules=/etc/millrace/emerging-all.rules --frame 512\n  \
        millrace nf rate ips --setting rules=/etc/millrace/emerging-all.rules --offered 200000 --reload --seconds 20")]
    Rate(Rate),
    /// Restart the functions of a hop; they lose their state
    Restart(HopName),
    /// Reload the files of a hop, such as its rules, and wait until its functions have them; no packet is
    /// lost
    Reload {
        #[command(flatten)]
        hop: HopName,
        /// Longest time to wait
        #[arg(long, value_name = "TIME", default_value = "2m", value_parser = between("0s", "1d"))]
        timeout: Duration,
    },
    /// Change the number of functions of a hop; packets of a flow stay in order
    Scale {
        #[command(flatten)]
        hop: HopName,
        /// Functions in each lane
        instances: u16,
    },
    /// Take a hop out of the path of packets, without loss
    Drain {
        #[command(flatten)]
        hop: HopName,
        /// Put the hop back into the path
        #[arg(long)]
        undo: bool,
    },
}

/// The class of a function: the place where it runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum RunClass {
    /// In the worker
    Inline,
    /// In a process that maps the memory of packets
    Ring,
    /// In a process that packets are copied to and from
    Isolated,
}

/// A function and the load with which it is measured.
#[derive(Debug, Args)]
pub(crate) struct Rate {
    /// The function: a name, `wasm:PATH` or `library:PATH`
    pub(crate) function: String,
    /// A setting, `key=value`; may be given several times
    #[arg(long = "setting", value_name = "SETTING")]
    pub(crate) settings: Vec<String>,
    /// Size of frames with data in bytes, check sequence included
    #[arg(long, value_name = "BYTES", default_value_t = 64)]
    pub(crate) frame: u16,
    /// Connections that are open at the same time
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = clap::value_parser!(u16).range(1..=32_768))]
    pub(crate) connections: u16,
    /// Data segments of each connection, besides the six of its handshake and end
    #[arg(long, value_name = "N", default_value_t = 26, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub(crate) data: u16,
    /// Each connection carries an HTTP request and a response with this body, instead of data segments
    #[arg(long, value_name = "KIB", conflicts_with_all = ["frame", "data"], value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) http: Option<u16>,
    /// With --http: the request of each N-th connection is an attack with one of the names attack-00 to attack-15 in its path (plain or percent-encoded), User-Agent or body; those that pass are counted
    #[arg(long, value_name = "N", requires = "http", value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) attacks: Option<u16>,
    /// Offer packets at this rate, as a link does: they wait in a queue, and are lost when it is full
    #[arg(long, value_name = "PACKETS_PER_SECOND")]
    pub(crate) offered: Option<f64>,
    /// With --offered: reload the files of the function, such as its rules, under load
    #[arg(long, requires = "offered")]
    pub(crate) reload: bool,
    /// Print `ready` when the function is loaded, and start at a line on standard input: several processes then measure at the same time
    #[arg(long)]
    pub(crate) wait: bool,
    /// Time in the function
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = between("0s", "1d"))]
    pub(crate) seconds: Duration,
}

/// A function and its packets.
#[derive(Debug, Args)]
pub(crate) struct Run {
    /// The function: a name, `wasm:PATH` or `library:PATH`
    pub(crate) function: String,
    /// A setting, `key=value`; may be given several times
    #[arg(long = "setting", value_name = "SETTING")]
    pub(crate) settings: Vec<String>,
    /// Run it over the packets of this capture (pcap or pcapng, of any link type), in this process, without a switch; the setting export=file:PATH writes its messages
    #[arg(long, value_name = "FILE", conflicts_with_all = ["bridge", "chain", "hop", "before", "class"])]
    pub(crate) read: Option<PathBuf>,
    /// Write the packets that it passes on to this file, as Ethernet frames
    #[arg(long, value_name = "FILE", requires = "read")]
    pub(crate) write: Option<PathBuf>,
    /// Treat the packets of the file as going backward through the chain
    #[arg(long, requires = "read")]
    pub(crate) backward: bool,
    /// Add it to a chain of this bridge
    #[arg(long, requires_all = ["chain", "hop"])]
    pub(crate) bridge: Option<String>,
    /// The chain
    #[arg(long, requires = "bridge")]
    pub(crate) chain: Option<String>,
    /// The name of the new hop
    #[arg(long, requires = "bridge")]
    pub(crate) hop: Option<String>,
    /// Insert it before this hop; without the option, at the end of the chain
    #[arg(long, value_name = "HOP", requires = "bridge")]
    pub(crate) before: Option<String>,
    /// Class of the function
    #[arg(long, value_enum, default_value_t = RunClass::Inline)]
    pub(crate) class: RunClass,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ChainCommand {
    /// Compute from measured costs how many workers chains need for a rate
    Plan(Plan),
}

#[derive(Debug, Args)]
pub(crate) struct Plan {
    #[command(flatten)]
    pub(crate) of: BridgeSelection,
    /// The rate on the wire
    #[arg(long, value_name = "RATE", default_value = "10Gbps")]
    pub(crate) rate: millrace_types::BitRate,
    /// Bytes of a frame without its frame check sequence
    #[arg(long, value_name = "BYTES", default_value_t = 1510, value_parser = clap::value_parser!(u32).range(60..=9600))]
    pub(crate) frame: u32,
}
