//! Every command, option and help text, defined once: the parser, `--help`, the man pages, the completions and
//! docs/cli.md are made from these definitions.

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
    after_help = "Exit status: 0 done; 1 refused or failed; 2 wrong usage; 3 the daemon does not answer; 4 the \
        change is committed, and something does not run (`apply`, `rollback`). `lab run` exits with the status \
        of its command."
)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Options of every command.
#[derive(Debug, Args)]
pub(crate) struct Global {
    /// Where the daemon answers: unix:PATH, http://HOST:PORT or https://HOST:PORT
    #[arg(
        long,
        global = true,
        value_name = "URL",
        env = "MILLRACE_API",
        hide_env_values = true,
        default_value = "unix:/run/millrace/millraced.sock"
    )]
    pub(crate) api: String,
    /// File whose first line is the token that the daemon asks for over TCP; MILLRACE_TOKEN holds the token itself.
    /// Without either, a loopback address gets the one in /var/lib/millrace/api-token
    #[arg(
        long,
        global = true,
        value_name = "FILE",
        env = "MILLRACE_TOKEN_FILE",
        hide_env_values = true
    )]
    pub(crate) token_file: Option<PathBuf>,
    /// PEM file with the certificate of the authority that signed the daemon's certificate (https)
    #[arg(
        long,
        global = true,
        value_name = "FILE",
        env = "MILLRACE_CA",
        hide_env_values = true
    )]
    pub(crate) ca: Option<PathBuf>,
    /// Print JSON
    #[arg(long, global = true)]
    pub(crate) json: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Show what is configured and what runs
    #[command(subcommand)]
    Show(Show),
    /// Apply a configuration file to the running switch
    Apply(Apply),
    /// Confirm or cancel a configuration that was applied with --confirm-within
    Confirm(Confirm),
    /// Show what changed between two revisions, or what a file would change
    Diff(Diff),
    /// Return to the configuration of an earlier revision
    Rollback(Rollback),
    /// Trace a packet through the tables and chains
    Trace(Trace),
    /// Add, change and remove flow entries by hand, and set their counters to zero
    #[command(subcommand)]
    Flow(Flow),
    /// Set counters of ports to zero
    #[command(subcommand)]
    Port(PortCommand),
    /// Show rates, live
    Watch(Watch),
    /// Capture packets of a bridge to a pcapng file
    Capture(Capture),
    /// Network functions of chains: list, count, run, restart, scale, drain
    #[command(subcommand)]
    Nf(Nf),
    /// Chains of network functions
    #[command(subcommand)]
    Chain(ChainCommand),
    /// Compare switches by measurement: Millrace, Open vSwitch with DPDK, testpmd
    Bench(millrace_bench::cli::Command),
    Report(millrace_bench::page::cli::Command),
    Profile(millrace_bench::experiments::profile::cli::Command),
    /// Show the levels of the daemon's log, or change them until it ends
    #[command(after_help = "Examples:\n  \
        millrace log\n  \
        millrace log debug\n  \
        millrace log warn,millrace_agent=debug,dpdk=info")]
    Log {
        /// A level for everything (off, error, warn, info, debug, trace), and after a comma each target with another one
        filter: Option<String>,
    },
    /// Check this machine for what keeps a switch from running well, and how to correct it
    Doctor,
    /// Build networks of hosts, links and switches on this machine, from one file
    #[command(subcommand)]
    Lab(Lab),
    /// Print the completion script for a shell
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
    /// Only this bridge
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
    /// List the functions that run, with their state
    List(OfBridge),
    /// Show the counters of functions and hops
    Stats(OfBridge),
    /// List the built-in functions with their settings
    Functions,
    /// Run a function over a capture file, or as a hop of a chain
    #[command(after_help = "Examples:\n  \
        millrace nf run firewall --setting default=deny --read in.pcap --write out.pcap\n  \
        millrace nf run wasm:/usr/lib/millrace/fw.wasm --bridge br0 --chain edge --hop fw --before watch")]
    Run(Run),
    /// Restart the functions of a hop; they lose their state
    Restart(HopName),
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

/// A function and its packets.
#[derive(Debug, Args)]
pub(crate) struct Run {
    /// The function: a name, `wasm:PATH` or `library:PATH`
    pub(crate) function: String,
    /// A setting, `key=value`; may be given several times
    #[arg(long = "setting", value_name = "SETTING")]
    pub(crate) settings: Vec<String>,
    /// Run it over the packets of this pcap file, in this process, without a switch
    #[arg(long, value_name = "FILE", conflicts_with_all = ["bridge", "chain", "hop", "before", "class"])]
    pub(crate) read: Option<PathBuf>,
    /// Write the packets that it passes on to this file
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
    pub(crate) of: OfBridge,
    /// The rate on the wire
    #[arg(long, value_name = "RATE", default_value = "10Gbps")]
    pub(crate) rate: millrace_types::BitRate,
    /// Bytes of a frame without its frame check sequence
    #[arg(long, value_name = "BYTES", default_value_t = 1510, value_parser = clap::value_parser!(u32).range(60..=9600))]
    pub(crate) frame: u32,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Show {
    /// Desired and running configuration, and the problems between them
    Status,
    /// Bridges with their forwarding mode and sizes
    Bridges,
    /// Ports with their counters and rates
    Ports(OfBridge),
    /// Flow entries
    Flows(Flows),
    /// Flow tables and their classifiers
    Tables(OfBridge),
    /// Groups and their buckets
    Groups(OfBridge),
    /// Meters and their bands
    Meters(OfBridge),
    /// Egress queues of ports: rates, priorities, packets sent, dropped and queued
    Queues(OfBridge),
    /// Policers of ports: rates, and packets by color
    Policers(OfBridge),
    /// Controllers and the state of their connections
    Controllers(OfBridge),
    /// Workers: their load and the queues that they poll
    Workers,
    /// Dropped packets by reason
    Drops {
        /// Include reasons with a count of zero
        #[arg(long)]
        all: bool,
    },
    /// MAC addresses that the bridges learned
    Macs(OfBridge),
    /// The configuration, as a file that `apply` takes
    Config {
        /// Show this revision; the newest unless given
        #[arg(long, value_name = "NUMBER")]
        revision: Option<u64>,
        /// Include keys that have their default values
        #[arg(long)]
        full: bool,
    },
    /// Revisions of the configuration, the newest first
    History {
        /// Show at most so many revisions
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

/// The comment of a change.
#[derive(Debug, Args)]
pub(crate) struct Why {
    /// Comment, stored with the revision
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

/// Exit statuses of the commands that commit a change and wait for it.
const CHANGE_EXIT_STATUS: &str = "Exit status: 0 the change runs (with `--wait 0` or `--dry-run`: it is accepted); \
    1 it is refused; 3 the daemon does not answer; 4 it is committed, and something does not run when the wait ends, \
    which `millrace show status` explains.";

#[derive(Debug, Args)]
#[command(after_help = CHANGE_EXIT_STATUS)]
pub(crate) struct Apply {
    /// TOML, or JSON if its name ends so; `-` for standard input
    pub(crate) file: PathBuf,
    /// Check the file and show what would change, without applying it
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Roll the change back after so many seconds unless `millrace confirm` is run before
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub(crate) confirm_within: Option<u64>,
    /// Refuse the change if the newest revision is not this one
    #[arg(long, value_name = "NUMBER")]
    pub(crate) expect: Option<u64>,
    #[command(flatten)]
    pub(crate) wait: Wait,
    #[command(flatten)]
    pub(crate) why: Why,
}

#[derive(Debug, Args)]
pub(crate) struct Confirm {
    /// Confirm only if this revision is the one to be confirmed
    pub(crate) revision: Option<u64>,
    /// Roll it back now
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
#[command(after_help = CHANGE_EXIT_STATUS)]
pub(crate) struct Rollback {
    /// The revision whose content becomes a new revision
    pub(crate) revision: u64,
    /// Show what would change, without changing it
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
    /// The packet in the syntax of flows; also nw_ttl, mpls_ttl, tcp_flags and size. With --live, the match
    /// of the packet to wait for
    #[arg(default_value = "")]
    pub(crate) packet: String,
    /// The bytes of the packet; PACKET then gives in_port
    #[arg(long, value_name = "BYTES")]
    pub(crate) hex: Option<String>,
    /// Wait for the next received packet that matches
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
    /// Seconds between two readings
    #[arg(long, short, value_name = "SECONDS", default_value_t = 1.0)]
    pub(crate) interval: f64,
    /// End after so many readings
    #[arg(long, short = 'n', value_name = "COUNT")]
    pub(crate) count: Option<u64>,
}

/// The direction in which packets pass a port.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum Direction {
    /// Received by the switch
    Rx,
    /// Sent by the switch
    Tx,
}

impl Direction {
    /// Returns the word that the REST interface takes.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Direction::Rx => "rx",
            Direction::Tx => "tx",
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
    /// Only packets of this port, by name or number
    #[arg(long, short, value_name = "PORT")]
    pub(crate) port: Option<String>,
    /// Only packets in this direction
    #[arg(long, short, value_name = "DIRECTION")]
    pub(crate) direction: Option<Direction>,
    /// Only packets that match, in the syntax of flows
    #[arg(long = "match", value_name = "MATCH")]
    pub(crate) matching: Option<String>,
    /// Only packets that this pcap filter accepts (man pcap-filter): `tcp port 80 and host 10.0.0.2`
    #[arg(long, short, value_name = "EXPRESSION")]
    pub(crate) filter: Option<String>,
    /// End after so many packets; without the option, at Ctrl-C
    #[arg(long, short, value_name = "COUNT")]
    pub(crate) count: Option<u64>,
    /// Size of each packet to keep in bytes; all unless given
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
        /// Keep what was built, logs included, if something fails
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
    /// Show labs with their hosts, links and switches
    Status {
        /// Only this lab
        name: Option<String>,
    },
    /// Remove a lab completely, whatever its state; exits with status 1 if there is no such lab
    Down {
        /// The lab; the only one unless given
        #[arg(conflicts_with = "all")]
        name: Option<String>,
        /// Every lab
        #[arg(long)]
        all: bool,
    },
}
