//! The sender: one group of receivers of the same bytes.
//!
//! A piece is sealed once and cached. Each receiver gets it under a head of its own. No receiver waits for
//! another, because the source is a file, not a shared window. A receiver that is too late for the cache
//! costs further reads and seals, but does not reduce the rate of the others.
//!
//! ```text
//!  loop:  group.wanted(cache, …)    -> what to seal next; sealer.seal(request, …) may run in another thread
//!         cache.insert(slab)        <- the sealed packets
//!         group.poll(now, cache, …) -> a member and the packets of one quantum, all with cached pieces
//!         cache.get(piece)          -> the shared part
//!         group.head(member, …)     -> 16 bytes; send head and shared part
//!         group.poll_reports(now)   -> REPORT packets
//!         group.handle_feedback(…)  <- FEEDBACK packets
//!         wait until group.next_timeout(), then group.on_timeout(now)
//! ```

pub use crate::slab::{Grid, SealPieceError, SealRequest, Sealer, Slab, SlabCache, SlabId};

use crate::extent::Layout;
use crate::flow::{Flow, FlowConfig, Outgoing, ProtocolViolation};
use crate::pacing::Pacer;
use crate::packet::{
    Data, Feedback, HEAD_SIZE, Head, PacketError, PacketType, SealedPart, control_body, expand_number,
    is_authentic,
};
use crate::seal::{PairwiseKey, ReplayWindow};
use millrace_types::{BitRate, Time};
use thiserror::Error;

/// The default size of the slab cache.
pub const CACHE_SIZE: usize = 256 << 20;
/// A new receiver begins at the cursor of a member, instead of its own start, if the two are at most this
/// many bytes apart.
const JOIN_DISTANCE: u64 = 2 << 30;
/// Bytes that a member may send in each round while the uplink is shared (deficit round robin, Shreedhar and
/// Varghese 1995).
const DRR_QUANTUM: i64 = 65_536;

/// The identifier of a member of a group.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct MemberId(usize);

/// The keys and the identifier of one connection.
pub struct Connection {
    /// The connection identifier in the heads, which the receiver chose.
    pub id: u32,
    /// The key of packets from the sender.
    pub to_receiver: PairwiseKey,
    /// The key of packets from the receiver.
    pub to_sender: PairwiseKey,
}

/// The reason why a datagram is not valid feedback.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum FeedbackError {
    /// The datagram is no packet.
    #[error(transparent)]
    Packet(#[from] PacketError),
    /// No member has this connection.
    #[error("no receiver of this group has connection {connection:#010x}; the datagram is dropped")]
    UnknownConnection { connection: u32 },
    /// The MAC does not match.
    #[error("the MAC of feedback on connection {connection:#010x} does not match; the datagram is dropped")]
    Mac { connection: u32 },
    /// The packet number arrived before.
    #[error("feedback {number} arrived before; the datagram is dropped")]
    Replay { number: u64 },
    /// The receiver acknowledges packets that were not sent to it.
    #[error(transparent)]
    Violation(#[from] ProtocolViolation),
}

struct Member {
    flow: Flow,
    connection: Connection,
    feedback: ReplayWindow,
    reports: u64,
    deficit: i64,
}

/// A group of receivers of the same session.
pub struct Group {
    layout: Layout,
    members: Vec<Option<Member>>,
    uplink: Option<Pacer>,
    /// The time at which data may leave again.
    held_until: Time,
    next_member: usize,
}

impl Group {
    /// Returns a group without members.
    pub fn new(layout: Layout) -> Group {
        Group {
            layout,
            members: Vec::new(),
            uplink: None,
            held_until: Time::ZERO,
            next_member: 0,
        }
    }

    /// Limits the total rate to all members.
    pub fn set_uplink(&mut self, rate: Option<BitRate>, packet_size: u64, now: Time) {
        self.uplink = rate.map(|rate| {
            let mut pacer = Pacer::new(packet_size, now);
            pacer.set_rate(Some(rate), now);
            pacer
        });
    }

    /// Lets no data leave before `until`, because another sender uses the uplink until then.
    pub fn hold(&mut self, until: Time) {
        self.held_until = until;
    }

    /// Adds a receiver. If a member's cursor is near the receiver's start, the receiver begins at that
    /// cursor.
    pub fn join(&mut self, mut config: FlowConfig, connection: Connection, now: Time) -> MemberId {
        let near = JOIN_DISTANCE / self.layout.extent_size();
        let cursors = self.members.iter().flatten().map(|member| member.flow.cursor());
        if let Some(cursor) = cursors
            .filter(|cursor| cursor.abs_diff(config.start) <= near)
            .min_by_key(|cursor| cursor.abs_diff(config.start))
        {
            config.start = cursor;
        }
        self.members.push(Some(Member {
            flow: Flow::new(config, now),
            connection,
            feedback: ReplayWindow::default(),
            reports: 0,
            deficit: 0,
        }));
        self.count_flows();
        MemberId(self.members.len() - 1)
    }

    /// Tells each flow the number of flows.
    fn count_flows(&mut self) {
        let flows = u32::try_from(self.members.iter().flatten().count()).unwrap_or(u32::MAX);
        for member in self.members.iter_mut().flatten() {
            member.flow.set_flows(flows);
        }
    }

    /// Removes a receiver.
    pub fn leave(&mut self, id: MemberId) {
        if let Some(member) = self.members.get_mut(id.0) {
            *member = None;
            self.count_flows();
        }
    }

    /// Returns the flow of a member.
    pub fn flow(&self, id: MemberId) -> Option<&Flow> {
        Some(&self.members.get(id.0)?.as_ref()?.flow)
    }

    /// Returns the flow of a member.
    pub fn flow_mut(&mut self, id: MemberId) -> Option<&mut Flow> {
        Some(&mut self.members.get_mut(id.0)?.as_mut()?.flow)
    }

    /// Appends seal requests for the repairs of the members and for `ahead` slabs from each cursor on, unless
    /// they are cached.
    pub fn wanted(&mut self, cache: &SlabCache, ahead: usize, out: &mut Vec<SealRequest>) {
        for member in self.members.iter_mut().flatten() {
            member.flow.wanted(cache, ahead, out);
        }
    }

    /// Appends the packets of one quantum of the next member in the round to `out`, with cached pieces only.
    pub fn poll(&mut self, now: Time, cache: &SlabCache, out: &mut Vec<Outgoing>) -> Option<MemberId> {
        let len = self.members.len();
        let is_held = now < self.held_until;
        if is_held || self.uplink.as_mut().is_some_and(|uplink| !uplink.is_open(now)) {
            if is_held || len > 1 {
                for member in self.members.iter_mut().flatten() {
                    member.flow.note_uplink_limit(now);
                }
            }
            return None;
        }
        // A member with a used-up deficit is visited twice.
        let visits = if self.uplink.is_some() { 2 * len } else { len };
        for _ in 0..visits {
            let id = self.next_member % len;
            let Some(member) = &mut self.members[id] else {
                self.next_member += 1;
                continue;
            };
            if self.uplink.is_some() && member.deficit <= 0 {
                member.deficit += DRR_QUANTUM;
                self.next_member += 1;
                continue;
            }
            let before = out.len();
            if member
                .flow
                .poll_ready(now, &|piece| cache.get(piece).is_some(), out)
            {
                let bytes: u64 = out[before..]
                    .iter()
                    .map(|packet| u64::from(packet.piece.len) + member.flow.overhead())
                    .sum();
                if let Some(uplink) = &mut self.uplink {
                    uplink.spend(bytes);
                    member.deficit -= i64::try_from(bytes).unwrap_or(DRR_QUANTUM);
                } else {
                    self.next_member += 1;
                }
                return Some(MemberId(id));
            }
            // A member with nothing to send keeps no deficit for later.
            member.deficit = member.deficit.min(0);
            self.next_member += 1;
        }
        None
    }

    /// Returns the head of a packet for one member.
    pub fn head(&self, id: MemberId, number: u64, sealed: SealedPart<'_>) -> Option<[u8; HEAD_SIZE]> {
        let connection = &self.members.get(id.0)?.as_ref()?.connection;
        let key = &connection.to_receiver;
        Some(Data::encode_head(key, connection.id, number, sealed))
    }

    /// Returns the REPORT packets that are due.
    pub fn poll_reports(&mut self, now: Time) -> Vec<(MemberId, Vec<u8>)> {
        let mut packets = Vec::new();
        for (at, member) in self.members.iter_mut().enumerate() {
            let Some(member) = member else { continue };
            let Some(report) = member.flow.poll_report(now) else {
                continue;
            };
            let head = Head {
                packet_type: PacketType::Report,
                connection: member.connection.id,
                number: member.reports,
            };
            member.reports += 1;
            packets.push((MemberId(at), report.packet(&head, &member.connection.to_receiver)));
        }
        packets
    }

    /// Takes a FEEDBACK packet and returns the member that sent it.
    ///
    /// # Errors
    /// If it is not valid. After [`FeedbackError::Violation`] the member has left.
    pub fn handle_feedback(&mut self, now: Time, datagram: &[u8]) -> Result<MemberId, FeedbackError> {
        let head = Head::decode(datagram)?;
        if head.packet_type != PacketType::Feedback {
            return Err(PacketError::Type { byte: datagram[0] }.into());
        }
        let connection = head.connection;
        let at = self
            .members
            .iter()
            .position(|member| {
                member
                    .as_ref()
                    .is_some_and(|member| member.connection.id == connection)
            })
            .ok_or(FeedbackError::UnknownConnection { connection })?;
        let Some(member) = &mut self.members[at] else {
            return Err(FeedbackError::UnknownConnection { connection });
        };
        let body = control_body(datagram)?;
        if !is_authentic(datagram, &member.connection.to_sender, [body, &[]]) {
            return Err(FeedbackError::Mac { connection });
        }
        let number = expand_number(head.number, member.feedback.next());
        if !member.feedback.is_new(number) {
            return Err(FeedbackError::Replay { number });
        }
        let feedback = Feedback::decode(body)?;
        member.feedback.insert(number);
        if let Err(violation) = member.flow.on_feedback(now, number, &feedback) {
            self.leave(MemberId(at));
            return Err(violation.into());
        }
        Ok(MemberId(at))
    }

    /// Returns the time of the next timeout of any member.
    pub fn next_timeout(&self) -> Option<Time> {
        let members = self.members.iter().flatten();
        let next = members.filter_map(|member| member.flow.next_timeout()).min()?;
        let next = next.max(self.held_until);
        Some(
            self.uplink
                .as_ref()
                .map_or(next, |uplink| next.max(uplink.opens())),
        )
    }

    /// Probes the silent paths for which a probe is due.
    pub fn on_timeout(&mut self, now: Time) {
        for member in self.members.iter_mut().flatten() {
            member.flow.on_timeout(now);
        }
    }
}
