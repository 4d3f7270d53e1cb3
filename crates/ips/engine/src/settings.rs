//! Settings of an engine. The defaults follow the documentation of Suricata, so that alerts can be compared.

use millrace_types::Duration;

use crate::app::AppSettings;
use crate::defragment::DefragmentSettings;
use crate::detect::DetectSettings;
use crate::flow::{FLOW_SIZE, Timeouts};
pub use crate::mode::Mode;
use crate::packet::tunnel::Tunnels;
use crate::pieces::OverlapPolicy;
use crate::policy::Policies;
use crate::tcp::{Normalizer, TcpSettings};

/// The treatment of a flow after its data become encrypted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Encryption {
    /// Payloads are still inspected.
    Full,
    /// Payloads are not inspected; rules about headers and flows are evaluated.
    #[default]
    TrackOnly,
    /// Packets pass without inspection.
    Bypass,
}

/// Settings of an engine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// The deployment of the engine.
    pub mode: Mode,
    /// True if packets with a wrong checksum are invalid; false if checksums are not computed.
    pub checks_checksums: bool,
    /// Bytes of each direction of a TCP stream that are reassembled; 0 means no limit.
    pub stream_depth: u64,
    /// Bytes of raw stream data to the server that are inspected at a time.
    pub to_server_chunk: usize,
    /// Bytes of raw stream data to the client that are inspected at a time.
    pub to_client_chunk: usize,
    /// True if the engine follows TCP connections whose handshake it did not see.
    pub accepts_midstream: bool,
    /// True if the engine follows TCP connections that it sees in one direction only.
    pub accepts_async: bool,
    /// Overlap policy for IPv4 fragments and segments in mode `ids`.
    pub overlap_v4: OverlapPolicy,
    /// Overlap policy for IPv6 fragments and segments in mode `ids`.
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
    /// The tunnels that are decoded.
    pub tunnels: Tunnels,
    /// Largest number of encapsulations that are decoded.
    pub tunnel_depth: u8,
    /// The parsers of application protocols.
    pub app: AppSettings,
    /// Largest number of flows.
    pub flows: usize,
    /// Times after which idle flows end.
    pub timeouts: Timeouts,
    /// Number of flow table slots that are searched for idle flows with each frame. With 0, an idle flow ends
    /// when a packet with its key arrives, when another flow needs its entry, or at the end of the capture.
    pub idle_search: usize,
    /// Largest total size of waiting data in all TCP connections, in bytes.
    pub segment_bytes: usize,
    /// Largest total size of waiting fragments, in bytes.
    pub fragment_bytes: usize,
    /// Largest memory of parsers and detection for all flows, in bytes.
    pub parser_bytes: usize,
    /// Settings of detection.
    pub detect: DetectSettings,
    /// True if transactions, flows and dropped packets become events, and alerts carry their flow and transaction.
    pub records: bool,
    /// True if alerts carry the stream data on which their rule matched, and the packet that was put together from fragments
    /// ([`Alert::evidence`](crate::event::Alert::evidence)).
    pub evidence: bool,
    /// True if packets of ARP become events ([`Event::Arp`](crate::Event::Arp)), too.
    pub arp: bool,
    /// True if frames become events, too. Each flow of a protocol with frames then has the work and the memory of all of them.
    pub frames: bool,
    /// True if the events of the decoder and of the TCP engine become events ([`Event::Packet`](crate::Event::Packet)).
    pub packet_events: bool,
    /// Time for which fragments of a packet wait for the missing ones.
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
            evidence: false,
            packet_events: false,
            frames: false,
            arp: false,
            fragment_timeout: Duration::from_secs(60),
        }
    }
}

/// Memory of one table entry in bytes: a rate counter, or a bit of an address.
const TABLE_ENTRY: usize = 400;

impl Settings {
    /// Returns the settings with pools that take `memory` bytes together: 1/128 for fragments, 1/8 for
    /// parsers, 1/4 for stream data, 1/32 for rate counters and bits of addresses, and the rest for flows.
    /// The limit on the number of flows does not grow.
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
