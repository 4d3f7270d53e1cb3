//! Every command, option and help text, defined once: the parser, `--help`, the man pages, the completions
//! and docs/cli.md all follow from here.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;

/// Show, change and understand a Millrace switch.
#[derive(Debug, Parser)]
#[command(
    name = "millrace",
    version,
    max_term_width = 100,
    arg_required_else_help = true,
    after_help = "Exit status: 0 done; 1 refused or failed; 2 wrong usage; 3 the daemon does not answer; \
        of `lab run`, that of the command."
)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What every command takes.
#[derive(Debug, Args)]
pub(crate) struct Global {
    /// Where the daemon answers
    #[arg(
        long,
        global = true,
        value_name = "URL",
        env = "MILLRACE_API",
        hide_env_values = true,
        default_value = "http://127.0.0.1:8080"
    )]
    pub(crate) api: String,
    /// File whose first line is the token that the daemon asks for; MILLRACE_TOKEN holds the token itself
    #[arg(
        long,
        global = true,
        value_name = "FILE",
        env = "MILLRACE_TOKEN_FILE",
        hide_env_values = true
    )]
    pub(crate) token_file: Option<PathBuf>,
    /// PEM file with the certificate of the authority that the daemon's https is trusted by
    #[arg(
        long,
        global = true,
        value_name = "FILE",
        env = "MILLRACE_CA",
        hide_env_values = true
    )]
    pub(crate) ca: Option<PathBuf>,
    /// Print JSON for programs
    #[arg(long, global = true)]
    pub(crate) json: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Show what is configured and what runs
    #[command(subcommand)]
    Show(Show),
    /// Make a file the configuration of the running switch
    Apply(Apply),
    /// Keep, or take back, a configuration that waits to be confirmed
    Confirm(Confirm),
    /// Show what changed between two revisions, or what a file would change
    Diff(Diff),
    /// Go back to the configuration of a revision
    Rollback(Rollback),
    /// Tell what happens to a packet, table by table
    Trace(Trace),
    /// Add, change and remove flow entries by hand, and set their counters to zero
    #[command(subcommand)]
    Flow(Flow),
    /// Set counters of ports to zero
    #[command(subcommand)]
    Port(PortCommand),
    /// Show rates, live
    Watch(Watch),
    /// Write the packets of a bridge to a pcapng file
    Capture(Capture),
    /// The network functions of chains: what there is, what runs, what it counted
    #[command(subcommand)]
    Nf(Nf),
    /// Chains of network functions
    #[command(subcommand)]
    Chain(ChainCommand),
    /// Measure switches beside each other: Millrace, Open vSwitch with DPDK, testpmd
    Bench(millrace_bench::cli::Command),
    Report(millrace_bench::report::cli::Command),
    Profile(millrace_bench::profile::cli::Command),
    /// Look for what keeps a switch from running well on this machine, and say what mends it
    Doctor,
    /// Hosts, links and switches on this machine, from one small file
    #[command(subcommand)]
    Lab(Lab),
    /// Print the completions of a shell
    Completions {
        /// The shell
        shell: Shell,
    },
    /// Write the man pages
    Man {
        /// The directory to write them to
        dir: PathBuf,
    },
}

/// A bridge, or all of them.
#[derive(Debug, Args)]
pub(crate) struct OfBridge {
    /// Only of this bridge
    pub(crate) bridge: Option<String>,
}

/// A hop of a chain.
#[derive(Debug, Args)]
pub(crate) struct HopName {
    /// The bridge
    pub(crate) bridge: String,
    /// The chain
    pub(crate) chain: String,
    /// The hop
    pub(crate) hop: String,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Nf {
    /// The functions that run, and how they are
    List(OfBridge),
    /// What functions and their hops counted
    Stats(OfBridge),
    /// The functions that can be named in a chain, with their settings
    Functions,
    /// Run a function over a capture file, or as a hop of a chain
    #[command(after_help = "Examples:\n  \
        millrace nf run firewall --setting default=deny --read in.pcap --write out.pcap\n  \
        millrace nf run wasm:/usr/lib/millrace/fw.wasm --bridge br0 --chain edge --hop fw --before watch")]
    Run(Run),
    /// Make the functions of a hop anew: they forget what they know
    Restart(HopName),
    /// Change how many functions a hop has; flows stay in order
    Scale {
        #[command(flatten)]
        hop: HopName,
        /// Functions in each lane
        instances: u16,
    },
    /// Have packets pass over a hop, without loss
    Drain {
        #[command(flatten)]
        hop: HopName,
        /// Have packets go through it again
        #[arg(long)]
        undo: bool,
    },
}

/// Where a function runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum RunClass {
    /// In the worker
    Inline,
    /// In a process that maps the memory of packets
    Ring,
    /// In a process that packets are copied to and from
    Isolated,
}

/// A function, and what it is to work on.
#[derive(Debug, Args)]
pub(crate) struct Run {
    /// The function: a name, `wasm:PATH` or `library:PATH`
    pub(crate) function: String,
    /// A setting, `key=value`; may be given several times
    #[arg(long = "setting", value_name = "SETTING")]
    pub(crate) settings: Vec<String>,
    /// Run it over the packets of this pcap file, here, without a switch
    #[arg(long, value_name = "FILE", conflicts_with_all = ["bridge", "chain", "hop", "before", "class"])]
    pub(crate) read: Option<PathBuf>,
    /// Write what it lets through to this file
    #[arg(long, value_name = "FILE", requires = "read")]
    pub(crate) write: Option<PathBuf>,
    /// The packets of the file go backward through the chain
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
    /// The hop that it comes before; the end of the chain without it
    #[arg(long, value_name = "HOP", requires = "bridge")]
    pub(crate) before: Option<String>,
    /// Where it runs
    #[arg(long, value_enum, default_value_t = RunClass::Inline)]
    pub(crate) class: RunClass,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ChainCommand {
    /// Tell from measured costs how many workers chains need for a rate
    Plan(Plan),
}

#[derive(Debug, Args)]
pub(crate) struct Plan {
    #[command(flatten)]
    pub(crate) of: OfBridge,
    /// The rate on the wire
    #[arg(long, value_name = "RATE", default_value = "10Gbps")]
    pub(crate) rate: millrace_types::BitRate,
    /// Bytes of a frame without its check sequence
    #[arg(long, value_name = "BYTES", default_value_t = 1510, value_parser = clap::value_parser!(u32).range(60..=9600))]
    pub(crate) frame: u32,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Show {
    /// What is wanted, what runs, and what stands between
    Status,
    /// Bridges
    Bridges,
    /// Ports with their counters and rates
    Ports(OfBridge),
    /// Flow entries
    Flows(Flows),
    /// Flow tables and the structures that they are looked up in
    Tables(OfBridge),
    /// Groups and their buckets
    Groups(OfBridge),
    /// Meters and their bands
    Meters(OfBridge),
    /// Queues of ports: rates, priorities, what they sent and dropped, what waits
    Queues(OfBridge),
    /// Policers of ports: rates, and packets by color
    Policers(OfBridge),
    /// Controllers and how the connections to them are
    Controllers(OfBridge),
    /// Workers: what they poll and how busy they are
    Workers,
    /// Why packets were dropped
    Drops {
        /// Also the reasons that have not occurred
        #[arg(long)]
        all: bool,
    },
    /// Addresses that the bridges learned
    Macs(OfBridge),
    /// The configuration, as a file that `apply` takes
    Config {
        /// Of this revision; the newest unless given
        #[arg(long, value_name = "NUMBER")]
        revision: Option<u64>,
        /// Also the keys that are at their defaults
        #[arg(long)]
        full: bool,
    },
    /// The revisions of the configuration, the newest first
    History {
        /// At most so many
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
    pub(crate) of: OfBridge,
    /// Only of this table
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
    /// Show at most so many entries of each bridge
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

#[derive(Debug, Subcommand)]
#[command(after_help = "\
Entries are state, not configuration, and belong to nobody: a connected controller sees them in statistics and \
monitors and may change or remove them; they stay when controllers connect and disconnect, and are gone when \
millraced restarts. A cookie tells them apart from those of controllers.")]
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
pub(crate) enum PortCommand {
    /// Set the counters of a port, or of all ports of a bridge, to zero, for everyone who reads them
    Reset {
        /// The bridge
        bridge: String,
        /// The port, by name or number; all ports unless given
        port: Option<String>,
    },
}

/// Why a change is made.
#[derive(Debug, Args)]
pub(crate) struct Why {
    /// Why; kept with the revision
    #[arg(long, short = 'm', value_name = "TEXT", default_value = "")]
    pub(crate) comment: String,
}

/// How long to wait for a change.
#[derive(Debug, Args)]
pub(crate) struct Wait {
    /// Seconds to wait until the change runs; 0 does not wait
    #[arg(long, value_name = "SECONDS", default_value_t = 5, value_parser = clap::value_parser!(u64).range(0..=3600))]
    pub(crate) wait: u64,
}

#[derive(Debug, Args)]
pub(crate) struct Apply {
    /// TOML, or JSON if its name ends so; `-` for standard input
    pub(crate) file: PathBuf,
    /// Only check, and show what would change
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Take the change back after so many seconds unless `millrace confirm` comes first
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub(crate) confirm_within: Option<u64>,
    /// Refuse if the configuration is not at this revision any more
    #[arg(long, value_name = "NUMBER")]
    pub(crate) expect: Option<u64>,
    #[command(flatten)]
    pub(crate) wait: Wait,
    #[command(flatten)]
    pub(crate) why: Why,
}

#[derive(Debug, Args)]
pub(crate) struct Confirm {
    /// Only if it is this revision that waits
    pub(crate) revision: Option<u64>,
    /// Take it back now instead
    #[arg(long)]
    pub(crate) cancel: bool,
    #[command(flatten)]
    pub(crate) why: Why,
}

/// One side of a comparison.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum DiffFrom {
    /// A revision, by its number.
    Revision(u64),
    /// A configuration file. A file whose name is a number is written as a path: `./7`.
    File(PathBuf),
}

impl std::str::FromStr for DiffFrom {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<DiffFrom, Self::Err> {
        Ok(text
            .parse()
            .map_or_else(|_| DiffFrom::File(text.into()), DiffFrom::Revision))
    }
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    millrace diff\n  \
    millrace diff 3 5\n  \
    millrace diff new.toml")]
pub(crate) struct Diff {
    /// The older revision, or a configuration file (`-` for standard input) to compare with the newest
    /// revision; the revision before the newest unless given
    #[arg(value_name = "REVISION|FILE")]
    pub(crate) from: Option<DiffFrom>,
    /// The newer revision; the newest unless given
    #[arg(value_name = "REVISION")]
    pub(crate) to: Option<u64>,
}

#[derive(Debug, Args)]
pub(crate) struct Rollback {
    /// The revision whose content comes back, as a new revision
    pub(crate) revision: u64,
    /// Only show what would change
    #[arg(long)]
    pub(crate) dry_run: bool,
    #[command(flatten)]
    pub(crate) wait: Wait,
    #[command(flatten)]
    pub(crate) why: Why,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    millrace trace br0 in_port=1,tcp,nw_dst=10.0.0.2,tp_dst=80,nw_ttl=1\n  \
    millrace trace br0 in_port=h1 --hex 0200000000020200000000010806...\n  \
    millrace trace br0 --live icmp --timeout 30")]
pub(crate) struct Trace {
    /// The bridge
    pub(crate) bridge: String,
    /// The packet in the syntax of flows; also nw_ttl, mpls_ttl, tcp_flags and size. With --live, what the
    /// packet must match
    #[arg(default_value = "")]
    pub(crate) packet: String,
    /// The bytes of the packet; PACKET then says in_port
    #[arg(long, value_name = "BYTES")]
    pub(crate) hex: Option<String>,
    /// Wait for the next packet that comes and matches
    #[arg(long, conflicts_with = "hex")]
    pub(crate) live: bool,
    /// Seconds to wait for it, at most 60
    #[arg(long, value_name = "SECONDS", default_value_t = 10.0, requires = "live")]
    pub(crate) timeout: f64,
}

#[derive(Debug, Args)]
pub(crate) struct Watch {
    #[command(flatten)]
    pub(crate) of: OfBridge,
    /// Seconds between two looks
    #[arg(long, short, value_name = "SECONDS", default_value_t = 1.0)]
    pub(crate) interval: f64,
    /// End after so many looks
    #[arg(long, short = 'n', value_name = "COUNT")]
    pub(crate) count: Option<u64>,
}

/// Which way packets pass a port.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum Way {
    /// Received by the switch
    Rx,
    /// Sent by the switch
    Tx,
}

impl Way {
    /// The word of the interface.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Way::Rx => "rx",
            Way::Tx => "tx",
        }
    }
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    millrace capture br0 --port h1 --match arp -w arp.pcapng\n  \
    millrace capture br0 --filter 'tcp port 80 and host 10.0.0.2' -w web.pcapng\n  \
    millrace capture br0 -w - | wireshark -k -i -")]
pub(crate) struct Capture {
    /// The bridge
    pub(crate) bridge: String,
    /// Only of this port, by name or number
    #[arg(long, short, value_name = "PORT")]
    pub(crate) port: Option<String>,
    /// Only in this direction
    #[arg(long, short, value_name = "WAY")]
    pub(crate) direction: Option<Way>,
    /// Only packets that match, in the syntax of flows
    #[arg(long = "match", value_name = "MATCH")]
    pub(crate) matching: Option<String>,
    /// Only packets that this pcap filter accepts (man pcap-filter): `tcp port 80 and host 10.0.0.2`
    #[arg(long, short, value_name = "EXPRESSION")]
    pub(crate) filter: Option<String>,
    /// End after so many packets; else with Ctrl-C
    #[arg(long, short, value_name = "COUNT")]
    pub(crate) count: Option<u64>,
    /// Bytes of each packet to keep; all unless given
    #[arg(long, short, value_name = "BYTES")]
    pub(crate) snap: Option<u32>,
    /// The file to write; `-` for standard output
    #[arg(long, short, value_name = "FILE")]
    pub(crate) write: PathBuf,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Lab {
    /// Build a lab and start its switches
    Up {
        /// The lab file
        file: PathBuf,
        /// The daemon of Millrace switches; the one beside this program, or in PATH, unless given
        #[arg(long, value_name = "PROGRAM")]
        millraced: Option<PathBuf>,
        /// Leave what was made, logs included, if something fails
        #[arg(long)]
        keep_on_failure: bool,
    },
    /// Run a command in a host or a switch
    Run {
        /// The lab; the only one unless given
        #[arg(long, value_name = "NAME", env = "MILLRACE_LAB", hide_env_values = true)]
        lab: Option<String>,
        /// The host or switch
        host: String,
        /// The command
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
        command: Vec<std::ffi::OsString>,
    },
    /// Show what labs have
    Status {
        /// Only this lab
        name: Option<String>,
    },
    /// Remove a lab with all its traces, in whatever state it is
    Down {
        /// The lab; the only one unless given
        #[arg(conflicts_with = "all")]
        name: Option<String>,
        /// Every lab
        #[arg(long)]
        all: bool,
    },
}
