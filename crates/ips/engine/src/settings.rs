//! Settings of an engine. The defaults are those that the documentation of Suricata gives, so that alerts compare.

use millrace_types::Duration;

use crate::app::AppSettings;
use crate::defragment::DefragmentSettings;
use crate::detect::DetectSettings;
use crate::flow::{FLOW_SIZE, Timeouts};
use crate::packet::tunnel::Tunnels;
use crate::pieces::OverlapPolicy;
use crate::policy::Policies;
use crate::tcp::{Normalizer, TcpSettings};

/// The place of the engine in the network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    /// Beside the path: packets are copies, and data are inspected once the receiver has acknowledged them.
    #[default]
    Ids,
    /// In the path: data are inspected at once, and packets that a rule drops are not forwarded.
    Ips,
}

/// The treatment of a flow once its data are encrypted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Encryption {
    /// Contents are looked for as before.
    Full,
    /// Contents are not looked for; rules over headers and flows are evaluated.
    #[default]
    TrackOnly,
    /// Packets pass without inspection.
    Bypass,
}

/// Settings of an engine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// The place of the engine in the network.
    pub mode: Mode,
    /// True if packets with a wrong checksum are invalid; false if checksums are not computed.
    pub checks_checksums: bool,
    /// Bytes of a direction of a TCP stream that are reassembled; 0 is no limit.
    pub stream_depth: u64,
    /// Bytes of raw stream data to the server that are inspected at a time.
    pub to_server_chunk: usize,
    /// Bytes of raw stream data to the client that are inspected at a time.
    pub to_client_chunk: usize,
    /// True if a TCP connection whose handshake was not seen is followed.
    pub accepts_midstream: bool,
    /// True if a TCP connection of which one direction is seen is followed.
    pub accepts_async: bool,
    /// The bytes that are kept in mode `ids` where fragments or segments over IPv4 overlap.
    pub overlap_v4: OverlapPolicy,
    /// The bytes that are kept in mode `ids` where fragments or segments over IPv6 overlap.
    pub overlap_v6: OverlapPolicy,
    /// The parts of the normaliser, which works in mode `ips`.
    pub normalizer: Normalizer,
    /// The treatment of packets in mode `ips` that cannot be inspected as they should be.
    pub policies: Policies,
    /// The treatment of encrypted flows.
    pub encryption: Encryption,
    /// Bytes after which a flow without an alert is bypassed under overload.
    pub bypass_size: u64,
    /// Number of the first flow.
    pub first_flow: u64,
    /// Smallest TTL or hop limit that passes in mode `ips`; 0 lets all pass. A packet that expires between the engine and
    /// the receiver is inspected and never received.
    pub minimum_ttl: u8,
    /// True if fragments of TCP are dropped in mode `ips`.
    pub drops_tcp_fragments: bool,
    /// True if packets with a source route are dropped in mode `ips`.
    pub drops_source_routes: bool,
    /// The UDP tunnels that are decoded.
    pub tunnels: Tunnels,
    /// Largest number of encapsulations that are decoded.
    pub tunnel_depth: u8,
    /// The parsers of application protocols.
    pub app: AppSettings,
    /// Largest number of flows.
    pub flows: usize,
    /// Times after which idle flows end.
    pub timeouts: Timeouts,
    /// Places of the flow table that are searched for idle flows with each frame. With 0, an idle flow ends when a packet with
    /// its key comes, when its place is needed, or with the capture.
    pub idle_search: usize,
    /// Largest size of the data that wait in all TCP connections, in bytes.
    pub segment_bytes: usize,
    /// Largest size of the fragments that wait, in bytes.
    pub fragment_bytes: usize,
    /// Largest size of what parsers and detection keep for all flows, in bytes.
    pub parser_bytes: usize,
    /// Detection.
    pub detect: DetectSettings,
    /// True if transactions, flows and dropped packets become events, and alerts carry their flow and transaction.
    pub records: bool,
    /// Time for which fragments of a packet wait for the rest.
    pub fragment_timeout: Duration,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            mode: Mode::Ids,
            checks_checksums: false,
            stream_depth: 1 << 20,
            to_server_chunk: 2560,
            to_client_chunk: 2560,
            accepts_midstream: false,
            accepts_async: false,
            overlap_v4: OverlapPolicy::Windows,
            overlap_v6: OverlapPolicy::Bsd,
            normalizer: Normalizer::default(),
            policies: Policies::default(),
            encryption: Encryption::TrackOnly,
            bypass_size: 256 << 10,
            first_flow: 1,
            minimum_ttl: 0,
            drops_tcp_fragments: false,
            drops_source_routes: true,
            tunnels: Tunnels::default(),
            tunnel_depth: 16,
            app: AppSettings::default(),
            flows: 262_144,
            timeouts: Timeouts::default(),
            idle_search: 16,
            segment_bytes: 128 << 20,
            fragment_bytes: 4 << 20,
            parser_bytes: 64 << 20,
            detect: DetectSettings::default(),
            records: false,
            fragment_timeout: Duration::from_secs(60),
        }
    }
}

/// Memory of a counter of rates and a bit of an address in their tables, in bytes.
const TABLE_ENTRY: usize = 400;

impl Settings {
    /// Returns the settings with pools that take `memory` bytes together: 1/128 for fragments, 1/8 for parsers, 1/4 for stream
    /// data, 1/32 for rates and bits of addresses, and the rest for flows, of which there are at most as many as before.
    #[must_use]
    pub fn within(self, memory: usize) -> Settings {
        let fragment_bytes = memory / 128;
        let (parser_bytes, segment_bytes, tables) = (memory / 8, memory / 4, memory / 32);
        let rest = memory - fragment_bytes - parser_bytes - segment_bytes - tables;
        Settings {
            fragment_bytes,
            parser_bytes,
            segment_bytes,
            flows: self.flows.min(rest / FLOW_SIZE),
            detect: DetectSettings {
                table_len: self.detect.table_len.min(tables / TABLE_ENTRY),
                ..self.detect
            },
            ..self
        }
    }

    /// Returns the settings of TCP.
    pub(crate) fn tcp(&self) -> TcpSettings {
        TcpSettings {
            mode: self.mode,
            depth: self.stream_depth,
            chunk: [self.to_server_chunk, self.to_client_chunk],
            accepts_midstream: self.accepts_midstream,
            accepts_async: self.accepts_async,
            policy_v4: self.overlap_v4,
            policy_v6: self.overlap_v6,
            normalizer: self.normalizer,
        }
    }

    /// Returns the settings of defragmentation.
    pub(crate) fn defragment(&self) -> DefragmentSettings {
        let is_inline = self.mode == Mode::Ips;
        DefragmentSettings {
            memory: self.fragment_bytes,
            timeout: self.fragment_timeout,
            policy_v4: self.overlap_v4,
            policy_v6: self.overlap_v6,
            refuses_overlaps: is_inline,
            refuses_tiny: is_inline,
            evicts: !is_inline,
        }
    }
}
