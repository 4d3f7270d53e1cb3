//! The state of a connection, as an observer between both ends sees it (RFC 9293, section 3.3.2).
//!
//! ```text
//!   SYN of each end seen and acknowledged        FIN of both ends, or RST
//!  Handshake ──────────────────────▶ Established ─────────────────────────▶ Closed
//! ```
//!
//! The handshake is complete when the SYN of each end was acknowledged by the other end, in any order of
//! segments. Three-way handshake, simultaneous open and split handshake need no separate treatment.

use millrace_wire::tcp::flags;

use super::half::Half;
use super::normalize::{Edits, TcpCounters, TcpProblem, check_flags};
use super::options::{Options, scale};
use super::stream::InspectionBuffer;
use super::{Stream, StreamChunk, TcpSettings, urgent};
use crate::flow::{Direction, FlowState};
use crate::mode::Mode;
use crate::packet::{Packet, TcpHeader};

/// A connection.
#[derive(Debug)]
pub struct Session {
    state: FlowState,
    halves: [Half; 2],
    /// True if the handshake was not seen.
    is_midstream: bool,
    /// True if a reset ended the connection.
    is_reset: bool,
    /// True once the client repeated its SYN after the end of the connection.
    is_repeated: bool,
    /// True once the connection is closing: the client sent a FIN, both ends sent a FIN, or one end sent a
    /// reset.
    is_closing: bool,
    /// The direction of the first FIN.
    first_fin: Option<Direction>,
    /// Memory that was charged to the pool of segments, in bytes.
    pub(crate) charged: usize,
}

/// The result of a segment that belongs to its connection.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Accepted {
    /// Changes of the segment.
    pub(crate) edits: Edits,
}

impl Session {
    /// Returns the session that a first segment begins; `None` if the segment begins none. `depth` is the
    /// number of bytes of each direction that are reassembled.
    pub(crate) fn begin(tcp: &TcpHeader<'_>, settings: &TcpSettings, depth: u64) -> Option<Session> {
        let is_syn = tcp.has(flags::SYN) && tcp.flags & (flags::ACK | flags::RST | flags::FIN) == 0;
        // Of a connection of which only the server's segments are seen, the SYN-ACK comes first.
        let is_syn_ack = tcp.has(flags::SYN | flags::ACK);
        let is_accepted = settings.accepts_midstream || settings.accepts_async && is_syn_ack;
        let is_midstream = !is_syn && is_accepted && tcp.flags & flags::RST == 0;
        (is_syn || is_midstream).then(|| Session {
            state: FlowState::New,
            halves: Direction::BOTH.map(|direction| Half::new(direction, depth)),
            is_midstream,
            is_reset: false,
            is_repeated: false,
            is_closing: false,
            first_fin: None,
            charged: 0,
        })
    }

    /// Returns the direction of the first FIN, if one was sent.
    pub(crate) fn first_fin(&self) -> Option<Direction> {
        self.first_fin
    }

    /// Returns true if the client has repeated the SYN of the connection after the end of the connection.
    pub(crate) fn is_repeated(&self) -> bool {
        self.is_repeated
    }

    /// Returns true if a SYN repeats the one that began the connection.
    pub(crate) fn repeats_syn(&self, tcp: &TcpHeader<'_>) -> bool {
        let client = self.stream(Direction::ToServer);
        client.is_some_and(|stream| stream.first_seq() == tcp.seq.wrapping_add(1))
    }

    /// Returns a new connection if this segment shows that the repeated SYN began one. The server then
    /// answers with another initial sequence number.
    pub(crate) fn other_connection(&self, tcp: &TcpHeader<'_>, depth: u64) -> Option<Box<Session>> {
        let server = self.stream(Direction::ToClient);
        let is_answer = self.is_repeated && tcp.has(flags::SYN | flags::ACK) && tcp.flags & flags::RST == 0;
        let is_other = server.is_none_or(|stream| stream.first_seq() != tcp.seq.wrapping_add(1));
        (is_answer && is_other).then(|| {
            Box::new(Session {
                state: FlowState::New,
                halves: [self.halves[0].after_syn(), Half::new(Direction::ToClient, depth)],
                is_midstream: false,
                is_reset: false,
                is_repeated: false,
                is_closing: false,
                first_fin: None,
                charged: 0,
            })
        })
    }

    /// Returns the state.
    pub fn state(&self) -> FlowState {
        self.state
    }

    /// Returns true if the handshake was not seen.
    pub fn is_midstream(&self) -> bool {
        self.is_midstream
    }

    /// Returns true if a reset ended the connection.
    pub fn is_reset(&self) -> bool {
        self.is_reset
    }

    /// Returns the stream of a direction; `None` if its SYN was not seen.
    pub fn stream(&self, direction: Direction) -> Option<&Stream> {
        self.halves[direction.index()].stream.as_ref()
    }

    /// Returns the memory of both streams in bytes.
    pub(crate) fn memory(&self) -> usize {
        self.halves.iter().map(Half::memory).sum()
    }

    /// Changes the memory that all sessions take by the change of this one's.
    #[inline]
    pub(crate) fn charge(&mut self, all: &mut usize) {
        let memory = self.memory();
        *all = *all + memory - self.charged;
        self.charged = memory;
    }

    /// Returns the end that sends in `direction`, and the end that receives.
    fn ends(&mut self, direction: Direction) -> (&mut Half, &mut Half) {
        let [client, server] = &mut self.halves;
        match direction {
            Direction::ToServer => (client, server),
            Direction::ToClient => (server, client),
        }
    }

    /// Applies a segment to the connection.
    pub(crate) fn segment(
        &mut self,
        packet: &Packet<'_>,
        tcp: &TcpHeader<'_>,
        direction: Direction,
        settings: &TcpSettings,
        counters: &mut TcpCounters,
    ) -> Result<Accepted, TcpProblem> {
        let options = Options::parse(tcp.options);
        let mut accepted = Accepted::default();
        if settings.mode == Mode::Ips {
            accepted.edits.of_header(tcp, &settings.normalizer);
        }
        check_flags(tcp)?;
        if self.state == FlowState::Closed && tcp.is_syn() && direction == Direction::ToServer {
            self.is_repeated |= self.repeats_syn(tcp) && (self.is_reset || self.is_complete());
        }
        if self.is_repeated {
            // All bytes of the segment were seen before; none enters the streams again.
            return match settings.mode == Mode::Ips && !self.is_repetition(packet, tcp, direction) {
                true => Err(TcpProblem::Closed),
                false => Ok(accepted),
            };
        }
        if self.state == FlowState::Closed && self.is_reset {
            // A repetition of the reset changes nothing, nor does the challenge ACK of a receiver that did not accept
            // the reset (RFC 5961, section 3.2).
            let is_answer = settings.mode == Mode::Ips && is_bare_ack(packet, tcp);
            return match tcp.has(flags::RST) || is_answer {
                true => Ok(accepted),
                false => Err(TcpProblem::Closed),
            };
        }
        if tcp.has(flags::RST) {
            self.reset(tcp, direction, &options)?;
            return Ok(accepted);
        }
        if self.is_midstream && self.state == FlowState::New {
            self.begin_midstream(tcp, direction, settings);
        }
        if self.state == FlowState::New {
            self.handshake(tcp, direction, &options, settings)?;
        } else if tcp.has(flags::SYN) {
            self.syn_in_connection(tcp, direction)?;
        }
        let is_syn = tcp.has(flags::SYN);
        let mut payload = packet.payload;
        self.syn_data(packet, tcp, direction, settings);
        if is_syn && !payload.is_empty() {
            accepted.edits.trims = settings.mode == Mode::Ips && settings.normalizer.trims_syn;
            payload = &[];
        }
        if !is_syn || tcp.has(flags::ACK) || !payload.is_empty() {
            self.data(
                packet,
                tcp,
                payload,
                direction,
                &options,
                settings,
                &mut accepted.edits,
                counters,
            )?;
        }
        Ok(accepted)
    }

    /// Holds the data of a SYN, and stores those of the other end's SYN that the segment acknowledges. In mode `ips` no data
    /// of a SYN arrive, but those that the other end acknowledges nevertheless are inspected.
    fn syn_data(
        &mut self,
        packet: &Packet<'_>,
        tcp: &TcpHeader<'_>,
        direction: Direction,
        settings: &TcpSettings,
    ) {
        let (sender, receiver) = self.ends(direction);
        if tcp.has(flags::SYN) && !packet.payload.is_empty() {
            sender.hold_syn_data(tcp.seq, packet.payload);
        }
        if tcp.has(flags::ACK)
            && let Some(data) = receiver.take_syn_data(tcp.ack)
            && let Some(stream) = &mut receiver.stream
        {
            stream.store(0, &data, settings.overlap_policy(packet.ip.version), settings);
        }
    }

    /// Returns true if a segment after a repeated SYN carries nothing new for the receiver.
    ///
    /// The reset or FIN that ended the connection may have expired before it reached the receiver. Only a SYN, a
    /// reset, and an acknowledgment without data (the challenge ACK of RFC 5961, section 3.2) may follow a reset. Only
    /// bytes that the receiver acknowledged may follow a FIN. Data in a SYN belong to the new connection.
    fn is_repetition(&self, packet: &Packet<'_>, tcp: &TcpHeader<'_>, direction: Direction) -> bool {
        if tcp.has(flags::SYN) && !packet.payload.is_empty() {
            return false;
        }
        if self.is_reset {
            return tcp.is_syn() || tcp.has(flags::RST) || is_bare_ack(packet, tcp);
        }
        let seq = tcp.seq.wrapping_add(u32::from(tcp.has(flags::SYN)));
        let size = packet.payload.len() as u64;
        let is_acked = |stream: &Stream| {
            let offset = stream.offset_of(seq);
            offset.is_some_and(|offset| offset + size <= stream.acked())
        };
        size == 0 || self.stream(direction).is_some_and(is_acked)
    }

    /// Applies a segment of the handshake.
    fn handshake(
        &mut self,
        tcp: &TcpHeader<'_>,
        direction: Direction,
        options: &Options,
        settings: &TcpSettings,
    ) -> Result<(), TcpProblem> {
        let accepts_async = settings.accepts_async;
        let (sender, receiver) = self.ends(direction);
        if tcp.has(flags::SYN) {
            // An IDS is not in the path, and sees SYNs that never reach the server. They do not hide the one that is
            // answered.
            let is_acked = !tcp.has(flags::ACK)
                || receiver.acknowledge_syn(tcp.ack, 1 << 16)
                || settings.mode == Mode::Ids && receiver.acknowledge_lost_syn(tcp.ack);
            if !is_acked {
                return Err(TcpProblem::Handshake);
            }
            sender.add_syn(tcp.seq, tcp.window, options);
        } else {
            if !receiver.acknowledge_syn(tcp.ack, 1 << 30) {
                if receiver.has_syn() || !sender.has_syn() {
                    return Err(TcpProblem::Handshake);
                }
                if !accepts_async {
                    return Err(TcpProblem::OneSided);
                }
                // Segments of the other direction take a route that the engine does not see.
                receiver.begin_midstream(tcp.ack, u16::MAX);
                receiver.is_window_unknown = true;
                sender.is_syn_acked = true;
            }
            let is_early = !sender.is_syn_acked;
            if is_early && !sender.has_syn() {
                // A split handshake: the server acknowledges before it sends its SYN.
                return Ok(());
            }
        }
        if self
            .halves
            .iter()
            .all(|half| half.is_syn_acked && half.stream.is_some())
        {
            self.state = FlowState::Established;
        }
        Ok(())
    }

    /// Begins the session in the middle of a connection.
    fn begin_midstream(&mut self, tcp: &TcpHeader<'_>, direction: Direction, settings: &TcpSettings) {
        let (sender, receiver) = self.ends(direction);
        let first = tcp.seq.wrapping_add(u32::from(tcp.has(flags::SYN)));
        sender.begin_midstream(first, tcp.window);
        receiver.begin_midstream(tcp.ack, u16::MAX);
        receiver.is_window_unknown = settings.accepts_async;
        self.state = FlowState::Established;
    }

    /// Applies a SYN of an established connection. Only a repetition of the handshake's SYN is accepted.
    fn syn_in_connection(&mut self, tcp: &TcpHeader<'_>, direction: Direction) -> Result<(), TcpProblem> {
        let (sender, _) = self.ends(direction);
        let first = tcp.seq.wrapping_add(1);
        match &sender.stream {
            Some(stream) if stream.first_seq() == first => Ok(()),
            _ => Err(TcpProblem::SynInConnection),
        }
    }

    /// Applies a reset, if its sequence number is one that the receiver can expect (RFC 5961, section 3.2), and its options
    /// are none for which the receiver discards it.
    fn reset(
        &mut self,
        tcp: &TcpHeader<'_>,
        direction: Direction,
        options: &Options,
    ) -> Result<(), TcpProblem> {
        let state = self.state;
        let (sender, receiver) = self.ends(direction);
        let is_answer = state == FlowState::New && sender.stream.is_none();
        if sender.has_unexpected_signature(options) || is_answer && !receiver.may_have_sent(options.echo) {
            return Err(TcpProblem::Reset);
        }
        let is_expected = if state == FlowState::New {
            // An answer to the SYN acknowledges it (RFC 9293, section 3.10.7.3).
            match &sender.stream {
                Some(stream) => tcp.seq.wrapping_sub(stream.first_seq()) <= 1 << 16,
                None => tcp.has(flags::ACK) && receiver.acknowledge_syn(tcp.ack, 1 << 16),
            }
        } else {
            let stream = sender.stream.as_ref();
            let offset = stream.and_then(|stream| stream.offset_of(tcp.seq));
            stream.zip(offset).is_some_and(|(stream, offset)| {
                // The receiver expects a byte between what it acknowledged and what was sent, or one past the FIN.
                let fin = u64::from(stream.fin().is_some());
                (stream.acked()..=stream.sent() + fin).contains(&offset)
            })
        };
        if !is_expected {
            return Err(TcpProblem::Reset);
        }
        self.is_reset = true;
        self.is_closing = true;
        self.state = FlowState::Closed;
        Ok(())
    }

    /// Applies acknowledgment, data and FIN of a segment.
    #[expect(clippy::too_many_arguments, reason = "the parts of one segment")]
    fn data(
        &mut self,
        packet: &Packet<'_>,
        tcp: &TcpHeader<'_>,
        payload: &[u8],
        direction: Direction,
        options: &Options,
        settings: &TcpSettings,
        edits: &mut Edits,
        counters: &mut TcpCounters,
    ) -> Result<(), TcpProblem> {
        if !tcp.has(flags::ACK) && !tcp.has(flags::SYN) {
            return Err(TcpProblem::NoAck);
        }
        let is_inline = settings.mode == Mode::Ips;
        let is_established = self.state != FlowState::New;
        let (sender, receiver) = self.ends(direction);
        let Some(stream) = &mut sender.stream else {
            return if payload.is_empty() {
                Ok(())
            } else {
                Err(TcpProblem::EarlyData)
            };
        };
        if is_inline && !is_established && !payload.is_empty() {
            return Err(TcpProblem::EarlyData);
        }
        let seq = tcp.seq.wrapping_add(u32::from(tcp.has(flags::SYN)));
        let (offset, payload) = match stream.offset_of(seq) {
            Some(offset) => (offset, payload),
            // A keep-alive before the first data byte has the sequence number of the SYN.
            None if payload.len() <= 1 => return Ok(()),
            // Bytes before a stream whose SYN was not seen may be new to the receiver.
            None if is_inline && sender.is_midstream => return Err(TcpProblem::Window),
            // The receiver cuts off the bytes before its window (RFC 9293, section 3.10.7.4).
            None => match payload.get(stream.distance_before(seq)..) {
                Some(rest) if !rest.is_empty() => (0, rest),
                _ => return Err(TcpProblem::Window),
            },
        };
        let end = offset + payload.len() as u64;
        // The right edge of the window. A sender may probe a closed window with one byte.
        let edge = stream.acked() + receiver.window.max(1);
        if end > edge && is_established && !receiver.is_window_unknown {
            return Err(TcpProblem::Window);
        }
        // The receiver discards a segment that is old as a whole, with its FIN (RFC 9293, section 3.10.7.4).
        let has_fin = tcp.has(flags::FIN);
        let is_old_fin = has_fin && stream.is_old_fin(end);
        if is_old_fin && is_inline {
            return Err(TcpProblem::Window);
        }
        // Both ends must have offered timestamps (RFC 7323, section 3.2).
        let has_timestamps = sender.has_timestamps && receiver.has_timestamps;
        let timestamp = options.timestamp.filter(|_| has_timestamps);
        let is_old = |last: u32, new: u32| (new.wrapping_sub(last) as i32) < 0;
        if let (Some(last), Some(new)) = (sender.timestamp, timestamp)
            && is_old(last, new)
            && last != 0
        {
            return Err(TcpProblem::Timestamp);
        }
        if let Some(other) = &mut receiver.stream
            && tcp.has(flags::ACK)
            && let Some(acked) = other.offset_of(tcp.ack)
        {
            let window = if sender.window == 0 { 1 } else { sender.window };
            let limit = (other.acked() + window).max(other.sent()) + 1;
            if acked > limit {
                return Err(TcpProblem::Ack);
            }
            other.acknowledge(acked);
        }
        // The timestamp of a segment that the receiver discards as old does not count (RFC 7323, section 5.3).
        if timestamp.is_some() && offset <= stream.acked() && end >= stream.acked() {
            sender.timestamp = timestamp;
        }
        // A window in a SYN is never scaled (RFC 7323, section 2.2).
        let shift = match tcp.has(flags::SYN) {
            true => 0,
            false => scale(sender.window_scale, receiver.window_scale),
        };
        sender.window = u64::from(tcp.window) << shift;
        sender.is_window_unknown = false;
        if payload.is_empty() && !has_fin {
            self.close_if_done();
            return Ok(());
        }
        if let Some(fin) = stream.fin()
            && (end > fin || has_fin && end != fin)
        {
            return Err(TcpProblem::AfterFin);
        }
        // In mode `ips` the normaliser clears the pointer, so the byte stays in the stream for every receiver.
        if tcp.has(flags::URG) && !(is_inline && settings.normalizer.clears_urgent) {
            stream.add_urgent(urgent::offset_of(offset, tcp.urgent));
        }
        if !payload.is_empty() {
            let policy = settings.overlap_policy(packet.ip.version);
            let stored = stream.store(offset, payload, policy, settings);
            if stored.insertion.conflicts {
                counters.conflicts += 1;
                if is_inline && settings.normalizer.rewrites_overlaps {
                    let mut first = packet.payload.to_vec();
                    let cut = first.len() - payload.len();
                    if stream.overwrite(offset, &mut first[cut..]) {
                        edits.payload = Some(first);
                    }
                }
            }
        }
        if has_fin && !is_old_fin {
            stream.finish(end);
            self.is_closing |= direction == Direction::ToServer && stream.is_complete();
            self.first_fin.get_or_insert(direction);
        }
        self.close_if_done();
        Ok(())
    }

    /// Closes the connection once both ends sent a FIN.
    fn close_if_done(&mut self) {
        let has_fin = |half: &Half| half.stream.as_ref().is_some_and(|stream| stream.fin().is_some());
        if self.halves.iter().all(has_fin) {
            self.state = FlowState::Closed;
            self.is_closing = self.is_closing || self.is_complete();
        }
    }

    /// Returns true if both ends sent a FIN, and all data were seen.
    fn is_complete(&mut self) -> bool {
        let is_complete = |half: &mut Half| half.stream.as_mut().is_some_and(Stream::is_complete);
        self.halves.iter_mut().all(is_complete)
    }

    /// Returns true if the connection is closing, so that raw data are inspected at once.
    pub(crate) fn is_closing(&self) -> bool {
        self.is_closing
    }

    /// Passes the data of `direction` that became inspectable to `parse`.
    #[inline]
    pub(crate) fn deliver(
        &mut self,
        direction: Direction,
        settings: &TcpSettings,
        is_last: bool,
        counters: &mut TcpCounters,
        parse: impl FnMut(StreamChunk<'_>),
    ) {
        if let Some(stream) = &mut self.halves[direction.index()].stream
            && stream.has_news()
        {
            stream.deliver(settings, is_last, &mut counters.gaps, parse);
        }
    }

    /// Passes the end of `direction` to `parse`, unless it was passed before.
    pub(crate) fn end(&mut self, direction: Direction, parse: impl FnMut(StreamChunk<'_>)) {
        if let Some(stream) = &mut self.halves[direction.index()].stream {
            stream.end(parse);
        }
    }

    /// Takes the raw data of `direction` out for inspection, if enough data wait.
    pub(crate) fn take_for_inspection(
        &mut self,
        direction: Direction,
        settings: &TcpSettings,
        flushes: bool,
        repeats: bool,
    ) -> Option<InspectionBuffer> {
        let stream = self.halves[direction.index()].stream.as_mut()?;
        stream
            .is_due(settings, flushes, repeats)
            .then(|| stream.take_for_inspection(settings.mode, flushes))
    }

    /// Returns true if the data of a segment need not wait for earlier data of its stream.
    pub(crate) fn continues(&self, tcp: &TcpHeader<'_>, direction: Direction) -> bool {
        self.stream(direction)
            .is_some_and(|stream| stream.needs_no_wait(tcp.seq))
    }

    /// Returns true if data of `direction` would need memory that the stream does not have.
    pub(crate) fn needs_buffer(&self, direction: Direction) -> bool {
        self.stream(direction).is_some_and(Stream::needs_buffer)
    }

    /// Gives an empty buffer to the stream of `direction`.
    pub(crate) fn give_buffer(&mut self, direction: Direction, buffer: Vec<u8>) {
        if let Some(stream) = &mut self.halves[direction.index()].stream {
            stream.give_buffer(buffer);
        }
    }

    /// Returns the buffers of streams that no longer need their data. If the flow has ended, no stream does.
    pub(crate) fn release(&mut self, has_ended: bool) -> impl Iterator<Item = Vec<u8>> + '_ {
        let streams = self.halves.iter_mut().filter_map(|half| half.stream.as_mut());
        streams.filter_map(move |stream| stream.release(has_ended))
    }

    /// Returns true if data of `direction` were passed to the parser and not inspected yet.
    pub(crate) fn has_uninspected(&self, direction: Direction) -> bool {
        self.stream(direction).is_some_and(Stream::has_uninspected)
    }

    /// Puts the raw data back after inspection.
    pub(crate) fn put_back(&mut self, direction: Direction, buffer: InspectionBuffer, mode: Mode) {
        if let Some(stream) = &mut self.halves[direction.index()].stream {
            stream.put_back(buffer, mode);
        }
    }

    /// Returns true if data of `direction` wait after a hole.
    pub(crate) fn has_data_behind_hole(&self, direction: Direction) -> bool {
        self.stream(direction).is_some_and(Stream::has_data_behind_hole)
    }

    /// Returns true if data wait after a hole that will not be filled.
    pub(crate) fn waits_behind_hole(&self, direction: Direction) -> bool {
        self.stream(direction).is_some_and(Stream::waits_behind_hole)
    }
}

/// Returns true for an acknowledgment without data.
fn is_bare_ack(packet: &Packet<'_>, tcp: &TcpHeader<'_>) -> bool {
    let control = tcp.flags & (flags::SYN | flags::FIN | flags::RST | flags::ACK);
    control == flags::ACK && packet.payload.is_empty()
}
