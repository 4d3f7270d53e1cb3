//! The normaliser drops or changes segments that receivers may interpret in different ways, so that only one
//! interpretation remains.
//!
//! Ptacek and Newsham, "Insertion, Evasion, and Denial of Service", 1998; Handley, Paxson and Kreibich, "Network
//! Intrusion Detection: Evasion, Traffic Normalization, and End-to-End Protocol Semantics", 2001.

use millrace_wire::checksum::Sum;
use millrace_wire::ip::Pseudo;
use millrace_wire::tcp::flags;
use millrace_wire::{IpProto, ipv4};

use crate::packet::{IpVersion, Packet, TcpHeader};

macro_rules! problems {
    ($($variant:ident $name:literal $words:literal;)*) => {
        /// The reason why a segment is not part of its connection.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum TcpProblem {
            $(#[doc = $words] $variant,)*
        }

        impl TcpProblem {
            /// Every problem.
            pub const ALL: &[TcpProblem] = &[$(TcpProblem::$variant),*];

            /// Returns the name of the counter.
            pub const fn name(self) -> &'static str {
                match self {
                    $(TcpProblem::$variant => $name,)*
                }
            }
        }
    };
}

problems! {
    Checksum "checksum" "The checksum is wrong.";
    Flags "flags" "The control bits contradict each other, or none is set.";
    NoAck "no_ack" "The ACK bit is not set after the handshake.";
    Window "window" "The data are outside the receive window.";
    Ack "ack" "The acknowledgment is of data that were not sent.";
    Timestamp "timestamp" "The timestamp is older than the last one (RFC 7323, section 5).";
    Reset "reset" "The sequence number of a reset is not the expected one (RFC 5961, section 3).";
    SynInConnection "syn_in_connection" "A SYN belongs to an established connection (RFC 5961, section 4).";
    Handshake "handshake" "The segment does not belong to the handshake.";
    OneSided "one_sided" "The other end's part of the handshake was not seen.";
    EarlyData "early_data" "The server sends data before the handshake is complete.";
    Closed "closed" "The connection is closed.";
    AfterFin "after_fin" "The data are after the FIN of their direction.";
    Midstream "midstream" "The handshake was not seen.";
    Memory "memory" "The memory of segments is full.";
    Fragmented "fragmented" "The normaliser would change the segment, whose fragments were forwarded already.";
}

/// The parts of the normaliser. A part that is turned off lets the segment pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Normalizer {
    /// Rewrites data that differ from the first copy.
    pub rewrites_overlaps: bool,
    /// Removes data from a SYN: the client sends them again once the handshake is complete (RFC 7413, section 4.2).
    pub trims_syn: bool,
    /// Clears the urgent pointer, so that the urgent byte stays in the data (RFC 6093).
    pub clears_urgent: bool,
    /// Clears the reserved bits.
    pub clears_reserved: bool,
    /// Replaces unknown options by no-operation options.
    pub clears_options: bool,
}

impl Default for Normalizer {
    fn default() -> Normalizer {
        Normalizer {
            rewrites_overlaps: true,
            trims_syn: true,
            clears_urgent: true,
            clears_reserved: true,
            clears_options: true,
        }
    }
}

/// Numbers of connections and of segments that were treated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TcpCounters {
    /// Connections that were followed.
    pub sessions: u64,
    /// Segments with a problem, in the order of [`TcpProblem::ALL`].
    pub problems: [u64; TcpProblem::ALL.len()],
    /// Segments whose data differed from the first copy.
    pub conflicts: u64,
    /// Segments that were rewritten to the first copy.
    pub rewritten: u64,
    /// SYN segments that lost their data.
    pub trimmed: u64,
    /// Segments whose urgent pointer was cleared.
    pub urgent: u64,
    /// Segments whose reserved bits were cleared.
    pub reserved: u64,
    /// Segments that lost unknown options.
    pub options: u64,
    /// Holes in streams that were skipped.
    pub gaps: u64,
}

/// Changes of a segment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Edits {
    /// The data that replace the data of the segment, of the same size.
    pub payload: Option<Vec<u8>>,
    /// True if the data are removed.
    pub trims: bool,
    /// True if the urgent pointer and its bit are cleared.
    pub clears_urgent: bool,
    /// True if the reserved bits are cleared.
    pub clears_reserved: bool,
    /// True if unknown options are replaced.
    pub clears_options: bool,
}

/// Options that are kept: end, no-operation, MSS, window scale, SACK permitted, SACK, timestamps, MD5, authentication,
/// fast open (RFC 9293, 7323, 2018, 2385, 5925, 7413), and MPTCP (RFC 8684).
const KNOWN_OPTIONS: [u8; 11] = [0, 1, 2, 3, 4, 5, 8, 19, 29, 30, 34];

impl Edits {
    /// Returns true if nothing is changed.
    pub fn is_empty(&self) -> bool {
        *self == Edits::default()
    }

    /// Counts the changes.
    pub(crate) fn count(&self, counters: &mut TcpCounters) {
        counters.rewritten += u64::from(self.payload.is_some());
        counters.trimmed += u64::from(self.trims);
        counters.urgent += u64::from(self.clears_urgent);
        counters.reserved += u64::from(self.clears_reserved);
        counters.options += u64::from(self.clears_options);
    }

    /// Adds the changes of the header that the normaliser asks for.
    pub(super) fn of_header(&mut self, tcp: &TcpHeader<'_>, normalizer: &Normalizer) {
        const RESERVED: u16 = 0xe00;
        self.clears_urgent |= normalizer.clears_urgent && (tcp.has(flags::URG) || tcp.urgent != 0);
        self.clears_reserved |= normalizer.clears_reserved && tcp.flags & RESERVED != 0;
        if normalizer.clears_options {
            self.clears_options |=
                super::options::list(tcp.options).any(|(kind, _)| !KNOWN_OPTIONS.contains(&kind));
        }
    }

    /// Applies the changes to the frame from which `packet` was decoded, and corrects lengths and checksums.
    pub(crate) fn apply(&self, location: &SegmentLocation, frame: &mut [u8]) {
        const OPTIONS_AT: usize = 20;
        let Some(ip) = frame.get_mut(location.ip_offset..location.ip_offset + location.ip_size) else {
            return;
        };
        let mut size = ip.len();
        let (header, segment) = ip.split_at_mut(location.ip_header_size);
        let data_at = usize::from(segment[12] >> 4) * 4;
        if self.clears_urgent {
            segment[13] &= !(flags::URG as u8);
            segment[18..20].fill(0);
        }
        if self.clears_reserved {
            segment[12] &= 0xf1;
        }
        if self.clears_options {
            clear_options(&mut segment[OPTIONS_AT..data_at]);
        }
        if let Some(payload) = &self.payload {
            segment[data_at..].copy_from_slice(payload);
        }
        if self.trims {
            size = location.ip_header_size + data_at;
            match location.version {
                IpVersion::V4 => header[2..4].copy_from_slice(&(size as u16).to_be_bytes()),
                IpVersion::V6 => header[4..6].copy_from_slice(&((size - 40) as u16).to_be_bytes()),
            }
            if location.version == IpVersion::V4
                && let Some((fixed, options)) = header.split_first_chunk::<{ ipv4::MIN_SIZE }>()
            {
                let checksum = ipv4::header_checksum(fixed, options);
                header[10..12].copy_from_slice(&checksum.to_be_bytes());
            }
        }
        let segment = &mut segment[..size - location.ip_header_size];
        segment[16..18].fill(0);
        let sum: Sum = location.pseudo.sum(IpProto::TCP, segment.len());
        let checksum = sum.add_bytes(segment).checksum();
        segment[16..18].copy_from_slice(&checksum.to_be_bytes());
    }
}

/// The position of a segment in its frame.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SegmentLocation {
    version: IpVersion,
    ip_offset: usize,
    ip_size: usize,
    ip_header_size: usize,
    pseudo: Pseudo,
}

impl SegmentLocation {
    /// Returns the position of the segment of `packet`; `None` for a packet that is reassembled, pseudo or
    /// not TCP.
    pub(crate) fn of(packet: &Packet<'_>) -> Option<SegmentLocation> {
        if packet.is_reassembled || packet.is_pseudo || packet.tcp.is_none() {
            return None;
        }
        Some(SegmentLocation {
            version: packet.ip.version,
            ip_offset: packet.ip_offset,
            ip_size: packet.ip.bytes.len(),
            ip_header_size: packet.ip.header_size,
            pseudo: packet.pseudo_header()?,
        })
    }
}

/// Replaces unknown options by no-operation options.
fn clear_options(mut options: &mut [u8]) {
    const NO_OPERATION: u8 = 1;
    while let [kind, rest @ ..] = options {
        let size = match (*kind, rest.first()) {
            (0, _) => return,
            (NO_OPERATION, _) => 1,
            (_, Some(size)) if (2..=rest.len() + 1).contains(&usize::from(*size)) => usize::from(*size),
            // An option without a valid size hides the options after it.
            _ => {
                options.fill(NO_OPERATION);
                return;
            }
        };
        let (option, rest) = options.split_at_mut(size);
        if !KNOWN_OPTIONS.contains(&option[0]) {
            option.fill(NO_OPERATION);
        }
        options = rest;
    }
}

/// Refuses a segment without any control bit, and a SYN with FIN or RST.
pub(super) fn check_flags(tcp: &TcpHeader<'_>) -> Result<(), TcpProblem> {
    let control = tcp.flags & (flags::SYN | flags::FIN | flags::RST | flags::ACK);
    let has_two = tcp.has(flags::SYN | flags::FIN) || tcp.has(flags::SYN | flags::RST);
    if control == 0 || has_two {
        return Err(TcpProblem::Flags);
    }
    Ok(())
}
