//! Packets: datagrams that arrive, and quanta, reports and values that leave.

use super::options::SendError;
use super::state::{Peer, Sender, Stage};
use crate::event::Event;
use crate::message::Message;
use millrace_transport::flow::Outgoing;
use millrace_transport::packet::{DATA_OVERHEAD, HEAD_SIZE, SHARED_OVERHEAD};
use millrace_transport::sender::MemberId;
use std::io::IoSlice;
use std::net::SocketAddr;
use std::time::Instant;

/// The number of bursts read, and of quanta sent, before the other side of the loop has its turn.
const BATCH: usize = 32;
/// Bytes of one send at most, less than the largest IP packet.
const SEND_MAX: usize = 65_000;

const _: () = assert!(
    HEAD_SIZE + SHARED_OVERHEAD == DATA_OVERHEAD,
    "a packet is head and shared part"
);

impl Sender<'_> {
    /// Takes datagrams: feedback to the group, all others to QUIC.
    pub(super) fn receive(&mut self) -> Result<(), SendError> {
        for _ in 0..BATCH {
            let Some(mut burst) = self.io.receive()? else {
                break;
            };
            let (now, from) = (Instant::now(), burst.from);
            for datagram in burst.datagrams() {
                if datagram[0] & 0xc0 == 0 {
                    // Anything that is not valid feedback is dropped; a receiver that violates the protocol has left the group.
                    if let Err(error) = self.group.handle_feedback(self.clock.now(), datagram) {
                        tracing::debug!(%error, "a datagram was dropped");
                    }
                } else {
                    self.control.handle_datagram(now, from, datagram);
                }
            }
        }
        Ok(())
    }

    /// Sends the packets that may leave now; returns true if more may.
    pub(super) fn transmit(&mut self) -> Result<bool, SendError> {
        let mut more = false;
        for round in 0..BATCH {
            let mut outgoing = std::mem::take(&mut self.outgoing);
            outgoing.clear();
            let member = self.group.poll(self.clock.now(), &mut outgoing);
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
        self.send_values();
        Ok(more)
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
        for packet in outgoing {
            let piece = packet.piece;
            if self.group.sealed(piece).is_none() {
                let before = Instant::now();
                let bytes = self.source.read(piece.address, usize::from(piece.len))?;
                self.reading += before.elapsed();
                self.group.seal(piece, bytes)?;
            }
        }
        let (mut heads, mut shared) = (
            Vec::with_capacity(outgoing.len()),
            Vec::with_capacity(outgoing.len()),
        );
        let mut bytes = 0;
        for packet in outgoing {
            // A packet that the next one pushed out of the cache counts as lost, and is repaired.
            let Some(sealed) = self.group.sealed(packet.piece) else {
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

    /// Sends new values and withdrawals to the receivers that need them.
    fn send_values(&mut self) {
        while let Some((extent, value)) = self.source.poll_value() {
            for peer in &self.peers {
                if let (Stage::Running(_), Some(link), false) =
                    (&peer.stage, peer.link, peer.verified.contains(extent))
                {
                    self.control.send(link, &Message::Value { extent, value });
                }
            }
        }
        while let Some((file, reason)) = self.source.poll_withdrawn() {
            for peer in &self.peers {
                if let (Stage::Running(_), Some(link)) = (&peer.stage, peer.link) {
                    let reason = reason.clone();
                    self.control.send(link, &Message::Withdrawn { file, reason });
                }
            }
            (self.events)(Event::File {
                peer: "source".into(),
                file: Some(file),
                problem: Some(reason),
            });
        }
    }
}
