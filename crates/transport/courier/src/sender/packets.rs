//! Datagrams that arrive, and quanta, reports and values that are sent.

use super::options::SendError;
use super::state::{Peer, Sender, SharedPacing, Stage};
use crate::event::Event;
use crate::files::Value;
use crate::message::Message;
use crate::pool::reader::{REQUESTS_MAX, Read};
use millrace_transport::flow::Outgoing;
use millrace_transport::packet::{DATA_OVERHEAD, HEAD_SIZE, SHARED_OVERHEAD};
use millrace_transport::sender::{MemberId, SealRequest, Slab};
use std::io::IoSlice;
use std::net::SocketAddr;
use std::time::Instant;

/// The maximum number of bursts that are read before quanta are sent, and of quanta that are sent before
/// bursts are read.
const BATCH: usize = 32;
/// Slabs (64 packets) that are requested in advance for each receiver before any receiver gets more, so that
/// none starves another.
const AHEAD_FIRST: usize = 2;
/// The maximum number of slabs that are requested in advance for each receiver.
const AHEAD: usize = 16;
/// The maximum size of one send in bytes, less than the largest IP packet.
const SEND_MAX: usize = 65_000;

const _: () = assert!(
    HEAD_SIZE + SHARED_OVERHEAD == DATA_OVERHEAD,
    "a packet is head and shared part"
);

impl Sender<'_> {
    /// Receives datagrams: feedback goes to the group, everything else to QUIC. Returns true if there may be
    /// more.
    pub(super) fn receive(&mut self) -> Result<bool, SendError> {
        for _ in 0..BATCH {
            let Some(mut burst) = self.io.receive()? else {
                return Ok(false);
            };
            let (now, from) = (Instant::now(), burst.from);
            for datagram in burst.datagrams() {
                if datagram[0] & 0xc0 == 0 {
                    // Invalid feedback is dropped; a receiver that violates the protocol has left the group.
                    if let Err(error) = self.group.handle_feedback(self.clock.now(), datagram) {
                        tracing::debug!(%error, "a datagram was dropped");
                    }
                } else {
                    self.control.handle_datagram(now, from, datagram);
                }
            }
        }
        Ok(true)
    }

    /// Sends the packets that may leave now; returns true if more may.
    pub(super) fn transmit(&mut self) -> Result<bool, SendError> {
        let mut more = false;
        for round in 0..BATCH {
            let mut outgoing = std::mem::take(&mut self.outgoing);
            outgoing.clear();
            self.take_slot();
            let member = self.group.poll(self.clock.now(), &self.cache, &mut outgoing);
            self.account(member, &outgoing);
            let result = member.map_or(Ok(()), |member| self.send_quantum(member, &outgoing));
            self.outgoing = outgoing;
            result?;
            if member.is_none() {
                break;
            }
            more = round + 1 == BATCH;
        }
        for (member, report) in self.group.poll_reports(self.clock.now()) {
            if let Some(to) = self.address(member) {
                self.io.send(to, &report)?;
            }
        }
        Ok(more)
    }

    /// Stops the group while other transfers use their slots at the shared rate.
    fn take_slot(&mut self) {
        let Some(SharedPacing {
            slots,
            uplink,
            packet_size,
        }) = &mut self.pacing
        else {
            return;
        };
        let (now, rate) = (Instant::now(), slots.rate());
        let time = self.clock.time(now);
        if *uplink != rate {
            *uplink = rate;
            self.group.set_uplink(rate, *packet_size, time);
        }
        let opens = slots.opens(now).map(|at| self.clock.time(at));
        self.group.hold(opens.unwrap_or(time));
    }

    /// Charges the packets of a quantum to the rate that several transfers share.
    fn account(&mut self, member: Option<MemberId>, outgoing: &[Outgoing]) {
        let overhead = member.and_then(|member| Some(self.group.flow(member)?.overhead()));
        if let (Some(pacing), Some(overhead)) = (&mut self.pacing, overhead) {
            let bytes = outgoing
                .iter()
                .map(|packet| u64::from(packet.piece.len) + overhead);
            pacing.slots.spend(bytes.sum());
        }
    }

    /// Asks the reader for the slabs that are sent next.
    pub(super) fn request_slabs(&mut self) -> Result<(), SendError> {
        if self.reader.requests >= REQUESTS_MAX {
            return Ok(());
        }
        let mut wanted = std::mem::take(&mut self.reader.wanted);
        wanted.clear();
        self.group.wanted(&self.cache, AHEAD_FIRST, &mut wanted);
        self.group.wanted(&self.cache, AHEAD, &mut wanted);
        for request in wanted.drain(..) {
            if self.reader.requests >= REQUESTS_MAX {
                break;
            }
            let asked = self.reader.requested.get(&request.slab).copied().unwrap_or(0);
            let pieces = request.pieces & !asked;
            if pieces == 0 {
                continue;
            }
            let request = SealRequest { pieces, ..request };
            let task = Read::Seal(request, self.reader.spare.pop());
            self.reader.tasks.send(task).map_err(|_| SendError::Reader)?;
            self.reader.requested.insert(request.slab, asked | pieces);
            self.reader.requests += 1;
        }
        self.reader.wanted = wanted;
        Ok(())
    }

    /// Caches a slab that the reader sealed.
    pub(super) fn on_sealed(&mut self, slab: Slab) {
        let request = slab.request();
        self.reader.requests -= 1;
        if let Some(asked) = self.reader.requested.get_mut(&request.slab) {
            *asked &= !request.pieces;
            if *asked == 0 {
                self.reader.requested.remove(&request.slab);
            }
        }
        self.reader.spare.extend(self.cache.insert(slab));
    }

    /// Returns the validated address of a member's link.
    fn address(&self, member: MemberId) -> Option<SocketAddr> {
        let peer = self
            .peers
            .iter()
            .find(|peer| matches!(peer.stage, Stage::Running(of) if of == member))?;
        self.control.remote(peer.link?)
    }

    /// Sends the packets of one quantum in as few calls as their sizes allow.
    fn send_quantum(&mut self, member: MemberId, outgoing: &[Outgoing]) -> Result<(), SendError> {
        let Some(to) = self.address(member) else {
            return Ok(());
        };
        let (mut heads, mut shared) = (
            Vec::with_capacity(outgoing.len()),
            Vec::with_capacity(outgoing.len()),
        );
        let mut bytes = 0;
        for packet in outgoing {
            // The flow took only cached pieces. Any other piece would count as lost, and be repaired.
            let Some(sealed) = self.cache.get(packet.piece) else {
                continue;
            };
            let Some(head) = self.group.head(member, packet.number, sealed) else {
                continue;
            };
            heads.push(head);
            shared.push(sealed.bytes());
            bytes += u64::from(packet.piece.len);
        }
        let mut first = 0;
        while first < heads.len() {
            let segment = HEAD_SIZE + shared[first].len();
            let most = self.io.segments_max().min(SEND_MAX / segment).max(1);
            let mut end = first + 1;
            while end < heads.len() && end - first < most && HEAD_SIZE + shared[end - 1].len() == segment {
                // A shorter packet may be the last of a burst.
                if HEAD_SIZE + shared[end].len() > segment {
                    break;
                }
                end += 1;
            }
            let parts: Vec<IoSlice<'_>> = heads[first..end]
                .iter()
                .zip(&shared[first..end])
                .flat_map(|(head, shared)| [IoSlice::new(head), IoSlice::new(shared)])
                .collect();
            self.io.send_segments(to, &parts, segment)?;
            first = end;
        }
        let running = |peer: &&mut Peer| matches!(peer.stage, Stage::Running(of) if of == member);
        if let Some(peer) = self.peers.iter_mut().find(running) {
            peer.sent_bytes += bytes;
        }
        Ok(())
    }

    /// Sends a new value to the receivers that need it.
    pub(super) fn on_value(&mut self, extent: u64, value: Value) {
        self.values.insert(extent, value);
        for peer in &self.peers {
            if let (Stage::Running(_), Some(link), false) =
                (&peer.stage, peer.link, peer.verified.contains(extent))
            {
                self.control.send(link, &Message::Value { extent, value });
            }
        }
    }

    /// Notifies all receivers that a file changed, and that nothing of it will be committed.
    pub(super) fn on_withdrawn(&mut self, file: u64, reason: &str) {
        self.withdrawn.push((file, reason.to_owned()));
        for peer in &self.peers {
            if let (Stage::Running(_), Some(link)) = (&peer.stage, peer.link) {
                let reason = reason.to_owned();
                self.control.send(link, &Message::Withdrawn { file, reason });
            }
        }
        (self.events)(Event::File {
            peer: "source".into(),
            file: Some(file),
            path: (self.paths)(file),
            problem: Some(reason.to_owned()),
        });
    }
}
