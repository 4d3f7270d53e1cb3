//! The command line.

use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, ValueEnum};
use millrace_types::Mac;

use crate::control::Rate;
use crate::engine::Rest;
use crate::pattern::{Addresses, Pattern, Proto, Sizes};

/// Sends packets at a rate, receives them again, and says what became of them.
///
/// Commands are read from standard input, one a line: `start RATE [SECONDS] [tx=N] [packets=FROM+LEN]`, `stop`, `quit`;
/// RATE is packets a second (1000, 250k, 1.5M) or `flat`. Results are written to standard output, one JSON object a line.
/// With --rate it starts by itself and ends with the run.
#[derive(Debug, Clone, Parser)]
#[command(name = "millrace-generator", version, max_term_width = 100)]
pub struct Args {
    /// The device that sends: DPDK devargs, or a PCI address; of several, the first, or that of `tx=N`
    #[arg(long, value_name = "DEVARGS", required = true)]
    pub tx: Vec<String>,
    /// A device that receives; may be given several times. Without it, those that send
    #[arg(long, value_name = "DEVARGS")]
    pub rx: Vec<String>,
    /// The core of the poll loop
    #[arg(long, value_name = "CORE", default_value_t = 0)]
    pub core: u16,

    /// Send the packets of this capture file (pcap), in order and over and over
    #[arg(long, value_name = "FILE", conflicts_with_all = ["flows", "sizes", "addresses", "proto", "vlan", "eth_src", "eth_dst", "src", "dst", "seed"])]
    pub packets: Option<PathBuf>,
    /// How many flows
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=16_000_000))]
    pub flows: u32,
    /// Frame sizes, check sequence included: 64 to 9000, `imix`, or sizes with weights (64:7,594:4,1518:1)
    #[arg(long, default_value = "64")]
    pub sizes: Sizes,
    /// How the addresses of flows follow each other
    #[arg(long, value_enum, default_value_t = Addresses::Sequential)]
    pub addresses: Addresses,
    /// What is above IP
    #[arg(long, value_enum, default_value_t = Proto::Udp)]
    pub proto: Proto,
    /// Give frames a VLAN tag
    #[arg(long, value_name = "VID", value_parser = clap::value_parser!(u16).range(1..=4094))]
    pub vlan: Option<u16>,
    /// Where frames come from
    #[arg(long, value_name = "MAC")]
    pub eth_src: Option<Mac>,
    /// Where frames go
    #[arg(long, value_name = "MAC")]
    pub eth_dst: Option<Mac>,
    /// The source address of the first flow
    #[arg(long, value_name = "ADDRESS")]
    pub src: Option<Ipv4Addr>,
    /// The destination address
    #[arg(long, value_name = "ADDRESS")]
    pub dst: Option<Ipv4Addr>,
    /// What random addresses and sizes follow from
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    pub seed: u64,

    /// Start at once, at this rate, and end with the run
    #[arg(long, requires = "seconds")]
    pub rate: Option<Rate>,
    /// How long that run is
    #[arg(long, requires = "rate", value_parser = seconds)]
    pub seconds: Option<Duration>,
    /// How often to report during a run, seconds; 0 is never
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = seconds_or_zero)]
    pub interval: Duration,
    /// A run has ended when nothing came for so long, milliseconds
    #[arg(long, value_name = "MS", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=2000))]
    pub drain_ms: u32,
    /// The most packets to make up for at once, when the loop was away; the others are reported as missed
    #[arg(long, value_name = "PACKETS", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..))]
    pub depth: u32,
    /// Say that the loop was absent when it did not look at its queues for so long, microseconds
    #[arg(long, value_name = "US", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub absence_us: u32,
    /// Sleep regularly so that others have the core: every so many microseconds, for so many
    #[arg(long, value_name = "EVERY,FOR", value_parser = rest)]
    pub rest: Option<Rest>,
    /// Put a stamp into one of so many packets only
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub stamp_every: u32,
    /// Do not look at payloads and header checksums of what comes
    #[arg(long)]
    pub no_verify: bool,
    /// Send back whatever comes, and do nothing else
    #[arg(long, conflicts_with = "rate")]
    pub reflect: bool,
    /// With --reflect: exchange the MAC addresses, and leave the core to others while nothing comes, as a network function
    /// does that shares it
    #[arg(long, requires = "reflect")]
    pub swap: bool,

    /// Packet buffers
    #[arg(long, value_name = "N", default_value_t = 8191, value_parser = clap::value_parser!(u32).range(1023..=1_048_575))]
    pub buffers: u32,
    /// Packets that a queue of a device holds
    #[arg(long, value_name = "N", default_value_t = 1024, value_parser = clap::value_parser!(u16).range(64..=32768))]
    pub descriptors: u16,
    /// Receive queues of each device: a switch may send on another than the first
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=16))]
    pub rx_queues: u16,
    /// Whether packet buffers are in huge pages
    #[arg(long, value_enum, default_value_t = HugePages::Prefer)]
    pub huge_pages: HugePages,
    /// What to log to standard error: error, warn, info, debug, or a filter as in RUST_LOG
    #[arg(long, value_name = "FILTER", default_value = "warn")]
    pub log: String,
}

/// Whether memory is in huge pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[allow(missing_docs, reason = "the names say it")]
pub enum HugePages {
    Off,
    Prefer,
    Require,
}

fn seconds_or_zero(text: &str) -> Result<Duration, String> {
    let seconds = text
        .parse::<f64>()
        .ok()
        .filter(|seconds| (0.0..=86_400.0).contains(seconds));
    seconds
        .map(Duration::from_secs_f64)
        .ok_or_else(|| "expected seconds, at most 86400".to_owned())
}

fn seconds(text: &str) -> Result<Duration, String> {
    seconds_or_zero(text).and_then(|length| {
        if length.is_zero() {
            Err("expected more than 0 seconds".to_owned())
        } else {
            Ok(length)
        }
    })
}

fn rest(text: &str) -> Result<Rest, String> {
    let number = |text: &str| text.trim().parse().ok().filter(|us| (1..=1_000_000).contains(us));
    let pair = text
        .split_once(',')
        .and_then(|(every, length)| Some((number(every)?, number(length)?)));
    pair.map(|(every, length)| Rest {
        every: Duration::from_micros(every),
        length: Duration::from_micros(length),
    })
    .ok_or_else(|| "expected two numbers of microseconds, as in 100,20".to_owned())
}

impl Args {
    /// The packets, where they are described.
    pub fn pattern(&self) -> Pattern {
        let usual = Pattern::default();
        Pattern {
            flows: self.flows as usize,
            sizes: self.sizes.clone(),
            addresses: self.addresses,
            proto: self.proto,
            vlan: self.vlan,
            eth_src: self.eth_src.unwrap_or(usual.eth_src),
            eth_dst: self.eth_dst.unwrap_or(usual.eth_dst),
            src: self.src.unwrap_or(usual.src),
            dst: self.dst.unwrap_or(usual.dst),
            seed: self.seed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    fn parse(words: &[&str]) -> Result<Args, clap::Error> {
        Args::try_parse_from([&["millrace-generator"], words].concat())
    }

    #[test]
    fn the_command_line_is_consistent() {
        Args::command().debug_assert();
    }

    #[test]
    fn a_rate_needs_a_length_and_a_file_excludes_a_pattern() {
        assert!(parse(&["--tx", "net_null0"]).is_ok());
        assert!(parse(&["--tx", "net_null0", "--rate", "1M"]).is_err());
        assert!(parse(&["--tx", "net_null0", "--rate", "1M", "--seconds", "2"]).is_ok());
        assert!(parse(&["--tx", "net_null0", "--packets", "x", "--flows", "2"]).is_err());
    }

    #[test]
    fn rests_are_two_numbers() {
        let args = parse(&["--tx", "net_null0", "--rest", "100,20"]).unwrap();
        assert_eq!(args.rest.map(|rest| rest.length), Some(Duration::from_micros(20)));
        assert!(parse(&["--tx", "net_null0", "--rest", "100"]).is_err());
    }
}
