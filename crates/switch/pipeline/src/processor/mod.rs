//! Packet processing in a worker.

mod batch;
mod cached;
mod execute;
pub(crate) mod explain;
mod fragments;
mod governor;
mod group;
mod header;
mod keys;
mod lookup;
mod meter;
mod observe;
mod output;
mod run;
mod scratch;
pub(crate) mod traversal;
mod traversal_cache;
mod tunnel;

use std::sync::Arc;

use arrayvec::ArrayVec;
use millrace_flow::classify::BURST;
use millrace_flow::{Action, Field, FlowKey};
use millrace_types::{PortNo, Time};
use millrace_wire::Packet;

use self::batch::{Batch, Exit};
use self::group::Budget;
use self::observe::{Observer, Silent};
use self::run::Run;
use self::scratch::Scratch;
use self::traversal_cache::TraversalCache;
use crate::{Assembler, Counters, DropReason, Egress, Forwarding};

/// The origin of packets: pipeline fields that are not in their bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Origin {
    /// The ingress port.
    pub in_port: PortNo,
    /// The physical port under a logical one; otherwise the ingress port.
    pub in_phy_port: PortNo,
    /// The metadata of a logical port; zero otherwise.
    pub tunnel_id: u64,
    /// The initial metadata; zero for packets that come from a port.
    pub metadata: u64,
}

impl From<PortNo> for Origin {
    fn from(in_port: PortNo) -> Origin {
        Origin {
            in_port,
            in_phy_port: in_port,
            tunnel_id: 0,
            metadata: 0,
        }
    }
}

impl Origin {
    /// Returns a key with the pipeline fields only.
    #[inline]
    pub(crate) fn key(&self) -> FlowKey {
        let mut key = FlowKey::default();
        key.set_field(Field::InPort, u128::from(self.in_port.raw()));
        key.set_field(Field::InPhyPort, u128::from(self.in_phy_port.raw()));
        key.set_field(Field::Metadata, u128::from(self.metadata));
        key.set_field(Field::TunnelId, u128::from(self.tunnel_id));
        key
    }
}

/// The packet processor of one worker.
///
/// It allocates when it is made, and once more for the first fragment of a bridge that reassembles.
#[derive(Debug)]
pub struct Processor {
    counters: Arc<Counters>,
    scratch: Box<Scratch>,
    traversals: Box<TraversalCache>,
    /// `None` until the first fragment of a bridge that reassembles.
    assembler: Option<Box<Assembler>>,
}

impl Processor {
    /// Returns a processor with these counters, which no other processor uses at the same time: those of
    /// [`Control::counters`](crate::Control::counters).
    pub fn new(counters: Arc<Counters>) -> Processor {
        Processor {
            counters,
            scratch: Scratch::new(),
            traversals: Box::new(TraversalCache::new()),
            assembler: None,
        }
    }

    /// Returns its counters.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Processes packets that came in at one port, in order, and leaves the burst empty.
    pub fn process_burst<P: Packet, E: Egress<P>>(
        &mut self,
        fwd: &Forwarding,
        origin: impl Into<Origin>,
        burst: &mut ArrayVec<P, BURST>,
        now: Time,
        egress: &mut E,
    ) {
        self.run(fwd, origin.into(), now, egress, &mut Silent)
            .burst(burst);
    }

    /// Executes the actions of a packet-out (OpenFlow 1.3.5, section 7.3.7). `origin` has the ingress port that the
    /// message names, perhaps [`PortNo::CONTROLLER`].
    pub fn packet_out<P: Packet, E: Egress<P>>(
        &mut self,
        fwd: &Forwarding,
        origin: impl Into<Origin>,
        actions: &[Action],
        packet: P,
        now: Time,
        egress: &mut E,
    ) {
        self.run(fwd, origin.into(), now, egress, &mut Silent)
            .packet_out(packet, actions);
    }

    #[inline(always)]
    fn run<'a, P: Packet, E: Egress<P>, O: Observer<P>>(
        &'a mut self,
        fwd: &'a Forwarding,
        origin: Origin,
        now: Time,
        egress: &'a mut E,
        observer: &'a mut O,
    ) -> Run<'a, P, E, O> {
        Run {
            fwd,
            counters: &self.counters,
            scratch: &mut self.scratch,
            traversals: &mut self.traversals,
            assembler: &mut self.assembler,
            egress,
            observer,
            origin,
            now,
            learned: None,
            to_tables: None,
            // Written out, so that each is made in place: `array::from_fn` copies each three times, with its room for
            // a burst.
            exits: [Exit::none(), Exit::none(), Exit::none(), Exit::none()],
            budget: Budget::default(),
            dropped: Batch::new(DropReason::NoOutput),
        }
    }
}
