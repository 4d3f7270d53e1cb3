//! One end of a TCP connection.

use arrayvec::ArrayVec;

use super::options::Options;
use super::stream::Stream;
use crate::flow::Direction;

/// Number of SYN segments with different sequence numbers that are stored until one of them is acknowledged.
const SYNS: usize = 4;

/// Largest shift of a window (RFC 7323, section 2.3).
const WINDOW_SCALE_MAX: u8 = 14;

/// A SYN or SYN-ACK.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Syn {
    /// Initial sequence number.
    pub(super) isn: u32,
    pub(super) window_scale: Option<u8>,
    pub(super) timestamp: Option<u32>,
    /// The timestamp of the SYN before it was sent again.
    pub(super) first_timestamp: Option<u32>,
    pub(super) is_signed: bool,
}

/// Data of a SYN that no acknowledgment covers yet.
#[derive(Debug)]
struct SynData {
    /// Initial sequence number of the SYN.
    isn: u32,
    bytes: Box<[u8]>,
}

/// One end of a connection: the data that it sent, and its receive window.
#[derive(Debug)]
pub(super) struct Half {
    syns: ArrayVec<Syn, SYNS>,
    /// True if a SYN was removed, because there were too many.
    has_lost_syn: bool,
    /// True once the other end acknowledged the SYN.
    pub(super) is_syn_acked: bool,
    /// The data that this end sends; `None` until its SYN was seen.
    pub(super) stream: Option<Stream>,
    /// Receive window of this end in bytes.
    pub(super) window: u64,
    /// True if the window is not checked, because segments that announce the window of this end are not seen.
    pub(super) is_window_unknown: bool,
    pub(super) window_scale: Option<u8>,
    /// True if the stream begins in the middle of a connection: its SYN was not seen.
    pub(super) is_midstream: bool,
    /// True if the SYN offered timestamps, or if the stream begins in the middle of a connection.
    pub(super) has_timestamps: bool,
    /// The last timestamp in order (TS.Recent of the receiver, RFC 7323, section 4.3).
    pub(super) timestamp: Option<u32>,
    /// True if the SYN had a digest or an authentication option, or if the stream begins in the middle of a connection.
    is_signed: bool,
    /// At most [`SYNS`]; hardly any connection has some, and each has two ends in memory.
    syn_data: Vec<SynData>,
    direction: Direction,
    /// Bytes of the stream that are reassembled; 0 means no limit.
    depth: u64,
}

impl Half {
    pub(super) fn new(direction: Direction, depth: u64) -> Half {
        Half {
            syns: ArrayVec::new(),
            has_lost_syn: false,
            is_syn_acked: false,
            stream: None,
            window: 0,
            is_window_unknown: false,
            window_scale: None,
            is_midstream: false,
            has_timestamps: false,
            timestamp: None,
            is_signed: false,
            syn_data: Vec::new(),
            direction,
            depth,
        }
    }

    /// Returns the memory of the stream, and of data of SYNs, in bytes.
    #[inline]
    pub(super) fn memory(&self) -> usize {
        let held: usize = self.syn_data.iter().map(|data| data.bytes.len()).sum();
        held + self.stream.as_ref().map_or(0, Stream::memory)
    }

    /// Holds data of a SYN until an acknowledgment shows how many of them the other end took: without a fast open cookie
    /// that it knows, it takes none, and they may be sent again with other content (RFC 7413, section 4.1.3). If a SYN is
    /// sent again, its first data count.
    pub(super) fn hold_syn_data(&mut self, isn: u32, bytes: &[u8]) {
        let is_known = self.syn_data.iter().any(|data| data.isn == isn);
        if !is_known && !self.is_syn_acked && self.syn_data.len() < SYNS {
            self.syn_data.push(SynData {
                isn,
                bytes: bytes.into(),
            });
        }
    }

    /// Returns the data of the acknowledged SYN up to `ack`, and releases all data of SYNs.
    pub(super) fn take_syn_data(&mut self, ack: u32) -> Option<Vec<u8>> {
        if self.syn_data.is_empty() || !self.is_syn_acked {
            return None;
        }
        let first_seq = self.stream.as_ref()?.first_seq();
        let all = core::mem::take(&mut self.syn_data);
        let data = all
            .into_iter()
            .find(|data| data.isn.wrapping_add(1) == first_seq)?;
        let taken = ack.wrapping_sub(first_seq) as usize;
        let taken = if taken > usize::from(u16::MAX) { 0 } else { taken };
        let bytes = data.bytes.get(..taken).unwrap_or(&data.bytes);
        (!bytes.is_empty()).then(|| bytes.to_vec())
    }

    /// Returns true if an answer with this echoed timestamp may be one to a SYN of this end. Receivers in state SYN-SENT
    /// discard an answer, a reset as well, with an echo that they did not send (RFC 7323, section 5.4, and Linux).
    pub(super) fn may_have_sent(&self, echo: Option<u32>) -> bool {
        let Some(echo) = echo.filter(|echo| *echo != 0) else {
            return true;
        };
        let has_sent = |syn: &Syn| match (syn.first_timestamp, syn.timestamp) {
            (Some(first), Some(last)) => echo.wrapping_sub(first) <= last.wrapping_sub(first),
            _ => true,
        };
        self.has_lost_syn || self.is_midstream || self.syns.is_empty() || self.syns.iter().any(has_sent)
    }

    /// Returns true if a receiver may discard a segment of this end because of its digest or authentication option, which
    /// the SYN of this end did not have (RFC 2385, section 2.0; RFC 5925, section 7.4).
    pub(super) fn has_unexpected_signature(&self, options: &Options) -> bool {
        options.is_signed && !self.is_signed && !self.is_midstream
    }

    /// Returns the state of this end after its SYN, for a new connection that begins with the same SYN.
    pub(super) fn after_syn(&self) -> Half {
        let mut half = Half::new(self.direction, self.depth);
        let isn = self
            .stream
            .as_ref()
            .map(|stream| stream.first_seq().wrapping_sub(1));
        if let Some(syn) = self.syns.iter().copied().find(|syn| Some(syn.isn) == isn) {
            half.syns.push(syn);
            half.choose(syn);
            half.window = self.window;
        }
        half
    }

    /// Begins the stream of this direction at a sequence number.
    fn begin_stream(&mut self, first_seq: u32) {
        self.stream = Some(Stream::new(self.direction, first_seq, self.depth));
    }

    /// Returns true if a SYN of this end was seen.
    pub(super) fn has_syn(&self) -> bool {
        !self.syns.is_empty()
    }

    /// Records a SYN. The latest SYN counts until one is acknowledged.
    ///
    /// A SYN that is sent again may lack the timestamps of the first one. The answer shows which one arrived: it has
    /// timestamps only if the SYN had some (RFC 7323, section 3.2).
    pub(super) fn add_syn(&mut self, seq: u32, window: u16, options: &Options) {
        let earlier = self.syns.iter().find(|other| other.isn == seq);
        let syn = Syn {
            isn: seq,
            window_scale: options.window_scale,
            timestamp: options.timestamp.or(earlier.and_then(|syn| syn.timestamp)),
            first_timestamp: earlier.and_then(|syn| syn.first_timestamp).or(options.timestamp),
            is_signed: options.is_signed,
        };
        // A window in a SYN is never scaled (RFC 7323, section 2.2).
        self.window = window.into();
        if self.is_syn_acked {
            return;
        }
        self.syns.retain(|other| other.isn != seq);
        if self.syns.is_full() {
            self.syns.remove(0);
            self.has_lost_syn = true;
        }
        self.syns.push(syn);
        self.choose(syn);
    }

    /// Applies the acknowledgment of a SYN. Returns false if `ack` acknowledges no SYN of this end. `ack` may
    /// also acknowledge up to `reach` data bytes after the SYN.
    pub(super) fn acknowledge_syn(&mut self, ack: u32, reach: u32) -> bool {
        if self.is_syn_acked {
            return true;
        }
        let distance = |syn: &Syn| ack.wrapping_sub(syn.isn.wrapping_add(1));
        let nearest = self.syns.iter().copied().min_by_key(|syn| distance(syn));
        match nearest {
            Some(syn) if distance(&syn) <= reach => {
                self.choose(syn);
                self.is_syn_acked = true;
                true
            }
            _ => false,
        }
    }

    /// Applies `ack` as the acknowledgment of a SYN that was removed. Returns false if no SYN was removed. The options
    /// of the SYN are not known: the largest window scale and no timestamps are assumed.
    pub(super) fn acknowledge_lost_syn(&mut self, ack: u32) -> bool {
        if self.has_lost_syn {
            self.choose(Syn {
                isn: ack.wrapping_sub(1),
                window_scale: Some(WINDOW_SCALE_MAX),
                timestamp: None,
                first_timestamp: None,
                is_signed: true,
            });
            self.is_syn_acked = true;
        }
        self.has_lost_syn
    }

    fn choose(&mut self, syn: Syn) {
        self.window_scale = syn.window_scale;
        self.has_timestamps = syn.timestamp.is_some();
        self.timestamp = syn.timestamp;
        self.is_signed = syn.is_signed;
        let first_seq = syn.isn.wrapping_add(1);
        if self
            .stream
            .as_ref()
            .is_none_or(|stream| stream.first_seq() != first_seq)
        {
            self.begin_stream(first_seq);
        }
    }

    /// Begins in the middle of a connection, with `seq` as the sequence number of this end's next byte.
    pub(super) fn begin_midstream(&mut self, seq: u32, window: u16) {
        /// The scale that is assumed where the handshake was not seen.
        const SCALE: u8 = 7;
        if self.stream.is_none() {
            self.begin_stream(seq);
        }
        self.is_midstream = true;
        self.has_timestamps = true;
        self.is_syn_acked = true;
        self.window_scale = Some(SCALE);
        self.window = u64::from(window) << SCALE;
    }
}
