//! `trace` and `capture`: single packets.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

use super::duration::between;

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    millrace trace br0 in_port=1,tcp,nw_dst=10.0.0.2,tp_dst=80,nw_ttl=1\n  \
    millrace trace br0 in_port=h1 --hex 0200000000020200000000010806...\n  \
    millrace trace br0 --live icmp --timeout 30s")]
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
    /// Time to wait for the packet, at most 60s
    #[arg(long, value_name = "TIME", default_value = "10s", requires = "live", value_parser = between("0s", "60s"))]
    pub(crate) timeout: Duration,
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
    /// End after this many packets; without the option, at Ctrl-C
    #[arg(long, short, value_name = "COUNT")]
    pub(crate) count: Option<u64>,
    /// Bytes of each packet to keep; all unless given
    #[arg(long, short, value_name = "BYTES")]
    pub(crate) snap: Option<u32>,
    /// The file to write; `-` for standard output
    #[arg(long, short, value_name = "FILE")]
    pub(crate) write: PathBuf,
}
