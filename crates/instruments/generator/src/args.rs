//! The command line of `millrace-generator`.

use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, ValueEnum};
use millrace_types::Mac;

use crate::control::Rate;
use crate::pattern::{Addresses, Pattern, Proto, Sizes};
use crate::settings::PeriodicSleep;

/// Sends packets at a rate, receives them again, and reports loss, latency, duplicates, order and corruption.
///
/// Commands are read from standard input, one per line: `start RATE [SECONDS] [tx=N] [packets=FROM+LEN]`,
/// `stop`, `quit`; RATE is in packets per second (1000, 250k, 1.5M) or `flat`. Results are written to
/// standard output, one JSON object per line. With --rate, one run starts immediately, and the program exits
/// after it.
#[derive(Debug, Clone, Parser)]
#[command(name = "millrace-generator", version, max_term_width = 100)]
pub struct Args {
    /// A device that sends: DPDK devargs or a PCI address; may be repeated; a run uses the first unless
    /// `tx=N` selects another
    #[arg(long, value_name = "DEVARGS", required = true)]
    pub tx: Vec<String>,
    /// A device that receives; may be repeated; the default is the devices that send
    #[arg(long, value_name = "DEVARGS")]
    pub rx: Vec<String>,
    /// The core of the poll loop
    #[arg(long, value_name = "CORE", default_value_t = 0)]
    pub core: u16,

    /// Send the packets of this capture file (pcap) in order, repeatedly
    #[arg(long, value_name = "FILE", conflicts_with_all = ["flows", "sizes", "addresses", "proto", "vlan", "eth_src", "eth_dst", "src", "dst", "seed"])]
    pub packets: Option<PathBuf>,
    /// Number of flows
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=16_000_000))]
    pub flows: u32,
    /// Frame sizes with check sequence: 64 to 9000, `imix`, or sizes with weights (64:7,594:4,1518:1)
    #[arg(long, default_value = "64")]
    pub sizes: Sizes,
    /// Order of the addresses of flows
    #[arg(long, value_enum, default_value_t = Addresses::Sequential)]
    pub addresses: Addresses,
    /// Protocol above IP
    #[arg(long, value_enum, default_value_t = Proto::Udp)]
    pub proto: Proto,
    /// Add a VLAN tag to frames
    #[arg(long, value_name = "VID", value_parser = clap::value_parser!(u16).range(1..=4094))]
    pub vlan: Option<u16>,
    /// Source MAC address
    #[arg(long, value_name = "MAC")]
    pub eth_src: Option<Mac>,
    /// Destination MAC address
    #[arg(long, value_name = "MAC")]
    pub eth_dst: Option<Mac>,
    /// Source address of the first flow
    #[arg(long, value_name = "ADDRESS")]
    pub src: Option<Ipv4Addr>,
    /// Destination address
    #[arg(long, value_name = "ADDRESS")]
    pub dst: Option<Ipv4Addr>,
    /// Seed of random addresses and sizes
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    pub seed: u64,

    /// Start one run at this rate immediately, and exit after it
    #[arg(long, requires = "seconds")]
    pub rate: Option<Rate>,
    /// Duration of the run that --rate starts
    #[arg(long, requires = "rate", value_parser = seconds)]
    pub seconds: Option<Duration>,
    /// Seconds between reports during a run; 0 for none
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = seconds_or_zero)]
    pub interval: Duration,
    /// Milliseconds without a packet after which a stopped run ends
    #[arg(long, value_name = "MS", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=2000))]
    pub drain_ms: u32,
    /// Largest number of overdue packets to send at once; the others are reported as missed
    #[arg(long, value_name = "PACKETS", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..))]
    pub depth: u32,
    /// Microseconds without a poll of the queues that count as an absence of the poll loop
    #[arg(long, value_name = "US", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub absence_us: u32,
    /// Sleep periodically to leave the core to other threads: every EVERY microseconds for FOR microseconds
    #[arg(long, value_name = "EVERY,FOR", value_parser = periodic_sleep)]
    pub sleep: Option<PeriodicSleep>,
    /// Put a stamp into every Nth packet only
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub stamp_every: u32,
    /// Do not verify payloads and header checksums of received packets
    #[arg(long)]
    pub no_verify: bool,
    /// Send all received packets back, and do nothing else
    #[arg(long, conflicts_with = "rate")]
    pub reflect: bool,
    /// With --reflect: swap the MAC addresses, and yield the core while no packets arrive, like a network
    /// function on a shared core
    #[arg(long, requires = "reflect")]
    pub swap: bool,

    /// Number of packet buffers
    #[arg(long, value_name = "N", default_value_t = 8191, value_parser = clap::value_parser!(u32).range(1023..=1_048_575))]
    pub buffers: u32,
    /// Descriptors of each queue
    #[arg(long, value_name = "N", default_value_t = 1024, value_parser = clap::value_parser!(u16).range(64..=32768))]
    pub descriptors: u16,
    /// Receive queues of each device; use more than 1 if the switch also sends on queues after the first
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=16))]
    pub rx_queues: u16,
    /// Use of huge pages for packet buffers
    #[arg(long, value_enum, default_value_t = HugePages::Prefer)]
    pub huge_pages: HugePages,
    /// Log level of standard error (error, warn, info, debug), or a filter as in RUST_LOG
    #[arg(long, value_name = "FILTER", default_value = "warn", value_parser = millrace_program::log_filter)]
    pub log: String,
}

/// The use of huge pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
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

fn periodic_sleep(text: &str) -> Result<PeriodicSleep, String> {
    let number = |text: &str| text.trim().parse().ok().filter(|us| (1..=1_000_000).contains(us));
    let pair = text
        .split_once(',')
        .and_then(|(every, length)| Some((number(every)?, number(length)?)));
    pair.map(|(every, length)| PeriodicSleep {
        every: Duration::from_micros(every),
        length: Duration::from_micros(length),
    })
    .ok_or_else(|| "expected two numbers of microseconds, as in 100,20".to_owned())
}

impl Args {
    /// Returns the pattern that the arguments describe.
    pub fn pattern(&self) -> Pattern {
        let default = Pattern::default();
        Pattern {
            flows: self.flows as usize,
            sizes: self.sizes.clone(),
            addresses: self.addresses,
            proto: self.proto,
            vlan: self.vlan,
            eth_src: self.eth_src.unwrap_or(default.eth_src),
            eth_dst: self.eth_dst.unwrap_or(default.eth_dst),
            src: self.src.unwrap_or(default.src),
            dst: self.dst.unwrap_or(default.dst),
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
    fn a_sleep_is_two_numbers() {
        let args = parse(&["--tx", "net_null0", "--sleep", "100,20"]).unwrap();
        assert_eq!(
            args.sleep.map(|sleep| sleep.length),
            Some(Duration::from_micros(20))
        );
        assert!(parse(&["--tx", "net_null0", "--sleep", "100"]).is_err());
    }
}
