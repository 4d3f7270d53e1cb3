//! The state of a transfer: the peers, their stages, and the end of each.

use super::options::{SendOptions, Target};
use crate::clock::Clock;
use crate::control::{CODE_DONE, CODE_ERROR, Control, DIAL, LinkId};
use crate::event::{Event, Outcome, left_out};
use crate::files::{Paths, Value};
use crate::identity::Identity;
use crate::io::{DatagramIo, PortProbes};
use crate::message::Offer;
use crate::pool::Waker;
use crate::pool::reader::{Read, ReadReply, Requester};
use crate::progress::RateMeter;
use crate::shared_rate::RateSlots;
use millrace_transport::extent::Layout;
use millrace_transport::flow::Outgoing;
use millrace_transport::ranges::RangeSet;
use millrace_transport::sender::{Group, MemberId, SealRequest, Slab, SlabCache, SlabId};
use millrace_types::{BitRate, Time};
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender as Channel};
use std::time::{Duration, Instant};

/// The stage of a transfer to one receiver.
pub(super) enum Stage {
    Dialing {
        links: Vec<LinkId>,
        until: Instant,
    },
    /// The link was lost; the receiver is dialled again at `until`.
    Waiting {
        until: Instant,
    },
    Offered,
    Checking,
    Running(MemberId),
    /// The receiver has everything and signed this root, which is compared with the sender's root.
    Receipt(Value),
    Ended(Outcome),
}

/// A receiver of the transfer.
pub(super) struct Peer {
    pub(super) target: Target,
    pub(super) stage: Stage,
    pub(super) link: Option<LinkId>,
    /// The addresses that are dialled.
    pub(super) ports: PortProbes,
    /// True if a notice of the receiver was reported.
    pub(super) has_notice: bool,
    /// The number of the current link, from 0; answers for an earlier link are ignored.
    pub(super) link_number: u32,
    /// The time at which the first of the links that failed since the last progress was lost, and their
    /// number.
    pub(super) lost: Option<(Instant, u32)>,
    /// Extents that the receiver has, with their values, before they are compared with the source.
    pub(super) haves: VecDeque<(u64, Value)>,
    pub(super) have_end: bool,
    /// Comparisons that are not answered yet.
    pub(super) checks: usize,
    /// Extents of the receiver that are equal to the source.
    pub(super) kept: RangeSet,
    /// Extents for which the receiver needs the values of groups.
    pub(super) needs_values: BTreeSet<u64>,
    /// Extents for which the reader computes the values of groups.
    pub(super) answering: Vec<u64>,
    pub(super) verified: RangeSet,
    pub(super) verified_bytes: u64,
    /// The time of the first ACCEPT.
    pub(super) accepted_at: Option<Instant>,
    pub(super) progress_at: Instant,
    pub(super) stalled: Option<u64>,
    /// The bytes that the flow has delivered since the receiver joined.
    pub(super) delivered: RateMeter,
    /// Probes of the flow at the last look, and times that its breaker tripped at the last progress event.
    pub(super) probes: u64,
    pub(super) breaks: u64,
    /// The number of feedback packets that had arrived when the flow last sent a probe.
    pub(super) feedback_at_probe: Option<u64>,
    /// The address from which an authentic datagram of the receiver came last, if it is not the dialled one.
    pub(super) moved_to: Option<SocketAddr>,
    /// The time at which heavy loss was last reported.
    pub(super) loss_told_at: Option<Instant>,
    /// Packets sent and lost at the last progress event.
    pub(super) last: (u64, u64),
    pub(super) sent_bytes: u64,
    /// The key that an address of the receiver presented in place of the expected one, as a text.
    pub(super) wrong_key: Option<String>,
    /// The outcome for the user, once the transfer to the peer has ended.
    pub(super) reported: Option<Outcome>,
}

impl Peer {
    /// Returns a peer that is dialled over the given links, one for each address.
    pub(super) fn dialing(target: Target, links: Vec<LinkId>, now: Instant) -> Self {
        Self {
            target,
            stage: Stage::dialing(links, now),
            link: None,
            ports: PortProbes::default(),
            has_notice: false,
            link_number: 0,
            lost: None,
            haves: VecDeque::new(),
            have_end: false,
            checks: 0,
            kept: RangeSet::new(),
            needs_values: BTreeSet::new(),
            answering: Vec::new(),
            verified: RangeSet::new(),
            verified_bytes: 0,
            accepted_at: None,
            progress_at: now,
            stalled: None,
            delivered: RateMeter::start(Time::ZERO, 0),
            probes: 0,
            breaks: 0,
            feedback_at_probe: None,
            moved_to: None,
            loss_told_at: None,
            last: (0, 0),
            sent_bytes: 0,
            wrong_key: None,
            reported: None,
        }
    }

    /// Resets the state that belongs to the link.
    pub(super) fn reset(&mut self) {
        self.link = None;
        self.link_number += 1;
        self.haves.clear();
        (self.have_end, self.checks) = (false, 0);
        self.kept = RangeSet::new();
        self.needs_values.clear();
        self.answering.clear();
        self.last = (0, 0);
        (self.probes, self.breaks, self.feedback_at_probe) = (0, 0, None);
    }
}

impl Stage {
    pub(super) fn dialing(links: Vec<LinkId>, now: Instant) -> Stage {
        let until = now + DIAL;
        Stage::Dialing { links, until }
    }
}

/// The network thread's view of the reader's thread.
pub(super) struct Reader {
    pub(super) tasks: Channel<Read>,
    pub(super) replies: Receiver<ReadReply>,
    /// The pieces of each slab that are being sealed: bit *i* stands for piece *i*.
    pub(super) requested: HashMap<SlabId, u64>,
    /// The number of requests without an answer.
    pub(super) requests: usize,
    pub(super) wanted: Vec<SealRequest>,
    /// Slabs for reuse of their memory.
    pub(super) spare: Vec<Slab>,
}

/// The time slots of this transfer at a rate that it shares with others, and its pacing within them.
pub(super) struct SharedPacing {
    pub(super) slots: RateSlots,
    /// The rate at which packets leave within a slot: that of all transfers together.
    pub(super) uplink: Option<BitRate>,
    /// Bytes of a full IP packet.
    pub(super) packet_size: u64,
}

/// The state of a transfer to all receivers.
pub(super) struct Sender<'a> {
    pub(super) clock: Clock,
    pub(super) io: Box<dyn DatagramIo>,
    pub(super) control: Control,
    pub(super) identity: &'a Identity,
    pub(super) manifest: Vec<u8>,
    pub(super) layout: Layout,
    pub(super) options: SendOptions,
    pub(super) group: Group,
    pub(super) pacing: Option<SharedPacing>,
    pub(super) cache: SlabCache,
    pub(super) reader: Reader,
    pub(super) waker: Arc<Waker>,
    /// The values of extents that were read.
    pub(super) values: HashMap<u64, Value>,
    /// Files that changed, with the reasons, for receivers that join later.
    pub(super) withdrawn: Vec<(u64, String)>,
    /// Paths that the source could not read.
    pub(super) unreadable: usize,
    /// The paths of files at the receivers.
    pub(super) paths: Paths,
    pub(super) offer: Offer,
    pub(super) headers: u16,
    pub(super) only_v4: bool,
    pub(super) peers: Vec<Peer>,
    pub(super) outgoing: Vec<Outgoing>,
    pub(super) events: &'a mut dyn FnMut(Event),
    /// The time at which the first receiver had everything.
    pub(super) first_delivered: Option<Instant>,
    /// The time of the last progress events, or of the start.
    pub(super) reported_at: Instant,
    /// Time spent waiting since then.
    pub(super) waiting: Duration,
}

impl Sender<'_> {
    /// Returns the requester that the reader's answers to a peer carry.
    pub(super) fn requester(&self, at: usize) -> Requester {
        let link_number = self.peers[at].link_number;
        Requester {
            peer: at,
            link_number,
        }
    }

    /// Ends the transfer to all peers that have not ended.
    pub(super) fn end_all(&mut self, outcome: &Outcome) {
        for at in 0..self.peers.len() {
            self.end(at, outcome.clone());
        }
    }

    /// Removes the flow of a peer and closes its links.
    pub(super) fn detach(&mut self, at: usize, code: u32, reason: &str) {
        let peer = &mut self.peers[at];
        let links = match &mut peer.stage {
            Stage::Dialing { links, .. } => std::mem::take(links),
            Stage::Running(member) => {
                self.group.leave(*member);
                Vec::new()
            }
            _ => Vec::new(),
        };
        for link in links.into_iter().chain(peer.link.take()) {
            self.control.close(Instant::now(), link, code, reason);
        }
    }

    /// Ends the transfer to one peer, once.
    pub(super) fn end(&mut self, at: usize, outcome: Outcome) {
        if matches!(self.peers[at].stage, Stage::Ended(_)) {
            return;
        }
        match &outcome {
            Outcome::Delivered => {
                self.first_delivered.get_or_insert_with(Instant::now);
                self.detach(at, CODE_DONE, "");
            }
            _ => self.detach(at, CODE_ERROR, "the sender stopped"),
        }
        let peer = &mut self.peers[at];
        let reported = reported(outcome.clone(), self.unreadable, self.withdrawn.len());
        let is_delivered = matches!(outcome, Outcome::Delivered);
        let event = Event::Done {
            peer: peer.target.name.clone(),
            outcome: reported.clone(),
            bytes: if is_delivered {
                self.layout.bytes()
            } else {
                peer.verified_bytes
            },
            sent: Some(peer.sent_bytes),
            seconds: peer
                .accepted_at
                .map_or(0.0, |accepted_at| accepted_at.elapsed().as_secs_f64()),
        };
        peer.reported = Some(reported);
        peer.stage = Stage::Ended(outcome);
        (self.events)(event);
    }
}

/// Returns the outcome for the user. A receiver that has everything that was sent still lacks the paths that could not be read, and
/// the files that changed.
fn reported(outcome: Outcome, unreadable: usize, withdrawn: usize) -> Outcome {
    match outcome {
        Outcome::Delivered if unreadable > 0 => Outcome::Integrity {
            reason: format!(
                "{unreadable} files or directories could not be read or sent, {withdrawn} changed and were left out, all others are \
                 delivered and verified; the messages name them; remove the causes, and send again"
            ),
        },
        Outcome::Delivered if withdrawn > 0 => left_out(withdrawn as u64),
        outcome => outcome,
    }
}
