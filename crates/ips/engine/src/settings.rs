//! Settings of an engine. The defaults are those that the documentation of Suricata gives, so that alerts compare.

use millrace_types::Duration;

/// The place of the engine in the network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    /// Beside the path: packets are copies, and data are inspected once the receiver has acknowledged them.
    #[default]
    Ids,
    /// In the path: data are inspected at once, and packets that a rule drops are not forwarded.
    Ips,
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
    /// True if a TCP flow whose handshake was not seen is followed.
    pub accepts_midstream: bool,
    /// True if TCP flows of which one direction is seen are followed.
    pub accepts_async: bool,
    /// Largest number of encapsulations that are decoded.
    pub tunnel_depth: u8,
    /// Largest number of flows.
    pub flows: usize,
    /// Largest size of the segments that wait in all TCP flows, in bytes.
    pub segment_bytes: usize,
    /// Largest size of the fragments that wait, in bytes.
    pub fragment_bytes: usize,
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
            tunnel_depth: 16,
            flows: 262_144,
            segment_bytes: 128 << 20,
            fragment_bytes: 4 << 20,
            fragment_timeout: Duration::from_secs(60),
        }
    }
}
