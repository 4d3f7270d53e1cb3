//! `millrace ips`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use millrace_ips_engine::{Cause, Mode, Policy};
use millrace_ips_rules::Syntax;

use super::duration::between;

/// Intrusion prevention.
#[derive(Debug, Subcommand)]
pub(crate) enum Ips {
    /// Check rule files: count the rules that load, and name each that is refused, with the reason
    #[command(
        after_help = "The variables that rule sets usually name have values: `any` for networks, the registered port for \
        services. Examples:\n  \
        millrace ips check emerging-all.rules --set HOME_NET=10.0.0.0/8 --set 'EXTERNAL_NET=!$HOME_NET'\n  \
        millrace ips check snort.rules --syntax snort2 --strict\n  \
        millrace ips check suricata.rules threshold.config --json"
    )]
    Check {
        #[command(flatten)]
        rules: RuleArgs,
        /// Files of rules, classifications, references or thresholds
        #[arg(required = true, value_name = "FILE")]
        files: Vec<PathBuf>,
        /// Fail if a rule is refused; without this option, check fails if no rule loads
        #[arg(long)]
        strict: bool,
        /// Print at most this many refusals
        #[arg(long, value_name = "COUNT", default_value_t = 20)]
        most: usize,
    },
    /// Explain a rule in plain words, option by option
    Explain {
        /// The number of the rule
        sid: u32,
        #[command(flatten)]
        rules: RuleArgs,
        /// File with the rule
        #[arg(long = "rules", required = true, value_name = "FILE")]
        files: Vec<PathBuf>,
    },
    /// Inspect captures with rules: print alerts, or write events as EVE JSON
    Read(ReadArgs),
    /// Say why a rule raises an alert on the packets of a capture, or none: condition by condition
    Trace(TraceArgs),
    /// Inspect captures, and print the cost of rules and of searches
    Profile(ProfileArgs),
    /// Measure the rate of the engine on this core, with connections that are made in memory
    Rate(RateArgs),
    /// Print the rule files and variables of a suricata.yaml as a hop of a chain, and as arguments of check
    Import {
        /// The suricata.yaml
        file: PathBuf,
    },
}

/// Arguments of `millrace ips read`.
#[derive(Debug, Args)]
#[command(
    after_help = "Each capture begins without flows, and its name is in the field pcap_filename. A summary goes to standard \
    error. Examples:\n  \
    millrace ips read day.pcap --rules emerging-all.rules --rules classification.config\n  \
    millrace ips read *.pcap --rules emerging-all.rules --mode ips --eve out.json --set HOME_NET=10.0.0.0/8\n  \
    millrace ips read day.pcap --rules local.rules --eve - --records none | jq .alert.signature"
)]
pub(crate) struct ReadArgs {
    /// Captures, pcap or pcapng
    #[arg(required = true, value_name = "CAPTURE")]
    pub(crate) captures: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) rules: RuleArgs,
    /// File of rules, classifications, references, thresholds or reputations
    #[arg(long = "rules", required = true, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    /// Inspect beside the path (ids) or in the path (ips)
    #[arg(long, value_enum, default_value_t = ReadMode::Ids)]
    pub(crate) mode: ReadMode,
    /// Write events as EVE JSON to this file, or to standard output if it is `-`
    #[arg(long, value_name = "FILE")]
    pub(crate) eve: Option<PathBuf>,
    /// The version of Suricata whose EVE layout is written: 7 or 8
    #[arg(long, value_name = "VERSION", default_value_t = 7, value_parser = clap::value_parser!(u8).range(7..=8))]
    pub(crate) eve_version: u8,
    /// Write events besides alerts: transactions, files, flows, drops, statistics (all), or none of them
    #[arg(long, value_enum, default_value_t = ReadRecords::All)]
    pub(crate) records: ReadRecords,
    /// Also write an event for each frame of a protocol, as eve-log with the type frame
    #[arg(long, requires = "eve")]
    pub(crate) frames: bool,
    /// Also write an event for each anomaly that the packet decoder and the TCP engine find
    #[arg(long, requires = "eve")]
    pub(crate) anomalies: bool,
    /// Also write an event for each direction of a flow that ends, with its packets and bytes
    #[arg(long, requires = "eve")]
    pub(crate) netflow: bool,
    /// Also write an event for each packet of ARP
    #[arg(long, requires = "eve")]
    pub(crate) arp: bool,
    /// Add the Ethernet addresses to the events of packets
    #[arg(long, requires = "eve")]
    pub(crate) ethernet: bool,
    /// Add what Suricata writes only if configured: headers, certificates, hellos, URLs of mails, rules and references
    #[arg(long, requires = "eve")]
    pub(crate) details: bool,
    /// Add the packet, and the payload or the data of its stream, to each alert, in Base64
    #[arg(long)]
    pub(crate) packets: bool,
    /// Write the frames that raise alerts to this pcapng file, with the rules in comments
    #[arg(long, value_name = "FILE")]
    pub(crate) alert_capture: Option<PathBuf>,
    /// Store what rules store (filestore, sets with save or state) beneath this folder
    #[arg(long, value_name = "FOLDER")]
    pub(crate) data: Option<PathBuf>,
    /// Largest size of all stored files in MiB; those of earlier runs count
    #[arg(long, value_name = "MIB", requires = "data", default_value_t = 1024)]
    pub(crate) data_mib: u64,
    /// Compare checksums, and treat packets with wrong ones as invalid
    #[arg(long)]
    pub(crate) checksums: bool,
    /// Follow TCP connections whose handshake was not seen
    #[arg(long)]
    pub(crate) midstream: bool,
    /// Follow TCP connections of which one direction is seen
    #[arg(long)]
    pub(crate) asymmetric: bool,
    /// Content codings of an HTTP body that are undone, one inside the other, 1 to 5
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=5), default_value_t = 2)]
    pub(crate) content_codings: u8,
    /// Policy of a cause, as in the settings of the functions: on_midstream=drop-flow
    #[arg(long = "policy", value_name = "ON_CAUSE=POLICY", value_parser = policy)]
    pub(crate) policies: Vec<(Cause, Policy)>,
}

/// Reads the policy of a cause.
fn policy(text: &str) -> Result<(Cause, Policy), String> {
    let (cause, policy) = text.split_once('=').unwrap_or_default();
    let cause = Cause::ALL
        .iter()
        .find(|known| cause.strip_prefix("on_") == Some(known.name()));
    let policy = Policy::ALL.iter().find(|known| known.name() == policy);
    match (cause, policy) {
        (Some(cause), Some(policy)) => Ok((*cause, *policy)),
        (None, _) => {
            let names: Vec<String> = Cause::ALL
                .iter()
                .map(|cause| format!("on_{}", cause.name()))
                .collect();
            Err(format!(
                "expected CAUSE=POLICY with one of the causes {}",
                names.join(", ")
            ))
        }
        (_, None) => {
            let names: Vec<&str> = Policy::ALL.iter().map(|policy| policy.name()).collect();
            Err(format!("expected one of the policies {}", names.join(", ")))
        }
    }
}

/// The position of the engine relative to the path of packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum ReadMode {
    /// Beside the path.
    Ids,
    /// In the path.
    Ips,
}

impl From<ReadMode> for Mode {
    fn from(mode: ReadMode) -> Mode {
        match mode {
            ReadMode::Ids => Mode::Ids,
            ReadMode::Ips => Mode::Ips,
        }
    }
}

/// The events that are written besides alerts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum ReadRecords {
    /// All other events.
    All,
    /// No other events.
    None,
}

/// Options about the reading of rules.
#[derive(Debug, Args)]
pub(crate) struct RuleArgs {
    /// Syntax of the files: suricata, snort2 or snort3
    #[arg(long, default_value = "suricata")]
    pub(crate) syntax: Syntax,
    /// Set a variable of addresses or ports
    #[arg(long = "set", value_name = "NAME=VALUE")]
    pub(crate) variables: Vec<String>,
}

/// Arguments of `millrace ips trace`.
#[derive(Debug, Args)]
#[command(
    after_help = "A line for each packet or transaction names the first condition that does not hold, with the value that \
    was found. Other rules of the files are evaluated, too, since they set bits that the rule may ask for. Examples:\n  \
    millrace ips trace day.pcap --sid 2024897 --rules emerging-all.rules\n  \
    millrace ips trace day.pcap --sid 2024897 --rules emerging-all.rules --port 49161 --all"
)]
pub(crate) struct TraceArgs {
    /// Capture, pcap or pcapng
    #[arg(value_name = "CAPTURE")]
    pub(crate) capture: PathBuf,
    /// The number of the rule
    #[arg(long)]
    pub(crate) sid: u32,
    #[command(flatten)]
    pub(crate) rules: RuleArgs,
    /// File of rules, classifications, references or thresholds
    #[arg(long = "rules", required = true, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    /// Inspect beside the path (ids) or in the path (ips)
    #[arg(long, value_enum, default_value_t = ReadMode::Ids)]
    pub(crate) mode: ReadMode,
    /// Print only packets from or to this port
    #[arg(long, value_name = "PORT")]
    pub(crate) port: Option<u16>,
    /// Print the conditions that hold, too
    #[arg(long)]
    pub(crate) all: bool,
}

/// Arguments of `millrace ips profile`.
#[derive(Debug, Args)]
#[command(
    after_help = "One evaluation of 16 is timed; totals are extrapolated from them. A search is the prefilter over one kind of \
    bytes. Examples:\n  \
    millrace ips profile day.pcap --rules emerging-all.rules\n  \
    millrace ips profile day.pcap --rules emerging-all.rules --repeat 10 --most 50 --json"
)]
pub(crate) struct ProfileArgs {
    /// Captures, pcap or pcapng
    #[arg(required = true, value_name = "CAPTURE")]
    pub(crate) captures: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) rules: RuleArgs,
    /// File of rules, classifications, references or thresholds
    #[arg(long = "rules", required = true, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    /// Inspect beside the path (ids) or in the path (ips)
    #[arg(long, value_enum, default_value_t = ReadMode::Ids)]
    pub(crate) mode: ReadMode,
    /// Inspect the captures this many times
    #[arg(long, value_name = "COUNT", default_value_t = 1)]
    pub(crate) repeat: u32,
    /// Print at most this many rules
    #[arg(long, value_name = "COUNT", default_value_t = 20)]
    pub(crate) most: usize,
}

/// Arguments of `millrace ips rate`.
#[derive(Debug, Args)]
#[command(
    after_help = "Four mixes: web (nine of ten connections are TLS), http, dns (with small datagrams), mail (with files). Each pass \
    has new connections. Suricata reads the same traffic, if it is on PATH. Examples:\n  \
    millrace ips rate --rules emerging-all.rules\n  \
    millrace ips rate --rules emerging-all.rules --mode ips --seconds 5 --rounds 5 --json"
)]
pub(crate) struct RateArgs {
    #[command(flatten)]
    pub(crate) rules: RuleArgs,
    /// File of rules, classifications, references or thresholds
    #[arg(long = "rules", required = true, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    /// Inspect beside the path (ids) or in the path (ips)
    #[arg(long, value_enum, default_value_t = ReadMode::Ips)]
    pub(crate) mode: ReadMode,
    /// Time in the engine of each measurement
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = between("0s", "1h"))]
    pub(crate) seconds: Duration,
    /// Number of measurements of each mix; the median is printed
    #[arg(long, value_name = "COUNT", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub(crate) rounds: u32,
}
