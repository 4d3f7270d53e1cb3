//! The state of a transfer: the peers, their stages, and the end of each.

use super::options::{SendOptions, Target};
use crate::clock::Clock;
use crate::control::{CODE_DONE, CODE_ERROR, Control, LinkId};
use crate::event::{Event, Outcome};
use crate::files::{Source, Value};
use crate::identity::Identity;
use crate::io::DatagramIo;
use crate::message::Offer;
use millrace_transport::flow::Outgoing;
use millrace_transport::ranges::RangeSet;
use millrace_transport::seal::ContentKey;
use millrace_transport::sender::{Group, MemberId};
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// The time that a receiver may take to answer the first packet.
const DIAL: Duration = Duration::from_secs(10);

/// The stage of a transfer to one receiver.
pub(super) enum Stage {
    Dialing { links: Vec<LinkId>, until: Instant },
    Offered,
    Checking,
    Running(MemberId),
    Ended(Outcome),
}

/// A receiver of the transfer.
pub(super) struct Peer {
    pub(super) target: Target,
    pub(super) stage: Stage,
    pub(super) link: Option<LinkId>,
    /// Extents that the receiver has, with their values, before they are compared with the source.
    pub(super) haves: VecDeque<(u64, Value)>,
    pub(super) have_end: bool,
    /// Extents of the receiver that are equal to the source.
    pub(super) kept: RangeSet,
    pub(super) verified: RangeSet,
    pub(super) verified_bytes: u64,
    pub(super) accepted_at: Instant,
    pub(super) progress_at: Instant,
    pub(super) stalled: Option<u64>,
    /// Payload bytes delivered, and packets sent and lost, at the last progress event.
    pub(super) last: (u64, u64, u64),
    pub(super) sent_bytes: u64,
}

impl Peer {
    /// Returns a peer whose addresses are tried over the given links.
    pub(super) fn dialing(target: Target, links: Vec<LinkId>, now: Instant) -> Self {
        Self {
            target,
            stage: Stage::Dialing {
                links,
                until: now + DIAL,
            },
            link: None,
            haves: VecDeque::new(),
            have_end: false,
            kept: RangeSet::new(),
            verified: RangeSet::new(),
            verified_bytes: 0,
            accepted_at: now,
            progress_at: now,
            stalled: None,
            last: (0, 0, 0),
            sent_bytes: 0,
        }
    }
}

/// The state of a transfer to all receivers.
pub(super) struct Sender<'a> {
    pub(super) clock: Clock,
    pub(super) io: Box<dyn DatagramIo>,
    pub(super) control: Control,
    pub(super) identity: &'a Identity,
    pub(super) source: &'a mut dyn Source,
    pub(super) options: SendOptions,
    pub(super) group: Group<ContentKey>,
    pub(super) offer: Offer,
    pub(super) headers: u16,
    pub(super) peers: Vec<Peer>,
    pub(super) outgoing: Vec<Outgoing>,
    pub(super) events: &'a mut dyn FnMut(Event),
    /// Time spent reading and hashing, and waiting, since the last progress event.
    pub(super) reading: Duration,
    pub(super) waiting: Duration,
}

impl Sender<'_> {
    /// Ends the transfer to all peers that have not ended.
    pub(super) fn end_all(&mut self, outcome: &Outcome) {
        for at in 0..self.peers.len() {
            self.end(at, outcome.clone());
        }
    }

    /// Ends the transfer to one peer, once.
    pub(super) fn end(&mut self, at: usize, outcome: Outcome) {
        let now = Instant::now();
        let peer = &mut self.peers[at];
        let links = match &peer.stage {
            Stage::Ended(_) => return,
            Stage::Dialing { links, .. } => links.clone(),
            Stage::Running(member) => {
                let member = *member;
                self.group.leave(member);
                Vec::new()
            }
            _ => Vec::new(),
        };
        for link in links.into_iter().chain(peer.link) {
            let (code, reason) = match &outcome {
                Outcome::Delivered => (CODE_DONE, ""),
                _ => (CODE_ERROR, "the sender stopped"),
            };
            self.control.close(now, link, code, reason);
        }
        let event = Event::Done {
            peer: peer.target.name.clone(),
            outcome: outcome.clone(),
            bytes: peer.sent_bytes,
            seconds: peer.accepted_at.elapsed().as_secs_f64(),
        };
        peer.stage = Stage::Ended(outcome);
        (self.events)(event);
    }
}
