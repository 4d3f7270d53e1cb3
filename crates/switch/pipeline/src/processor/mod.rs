//! What a worker does with a burst of packets.

mod batch;
mod cached;
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
pub(crate) mod path;
mod paths;
mod run;
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
use self::paths::Paths;
use self::run::{Run, Scratch};
use crate::{Assembler, Counters, DropReason, Egress, Forwarding};

/// Where packets come from: what is beside their bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Origin {
    /// Ingress port.
    pub in_port: PortNo,
    /// The port under a logical one; otherwise the ingress port.
    pub in_phy_port: PortNo,
    /// Metadata of a logical port; zero otherwise.
    pub tunnel_id: u64,
    /// Metadata to begin with; zero for all that comes from a port.
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
    /// The key of a packet of which nothing else is known.
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

/// Processes packets: one for each worker.
///
/// It allocates when it is made and never again, but for the first fragment of a bridge that puts them together.
#[derive(Debug)]
pub struct Processor {
    counters: Arc<Counters>,
    scratch: Box<Scratch>,
    paths: Box<Paths>,
    /// Made for the first fragment of a bridge that puts them together.
    assembler: Option<Box<Assembler>>,
}

impl Processor {
    /// A processor that counts with these counters, which no other processor has at the same time: those of
    /// [`Control::counters`](crate::Control::counters).
    pub fn new(counters: Arc<Counters>) -> Processor {
        Processor {
            counters,
            scratch: Scratch::new(),
            paths: Box::new(Paths::new()),
            assembler: None,
        }
    }

    /// What it counted.
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

    /// Executes the actions of a packet-out (section 7.3.7). `origin` has the ingress port that the message
    /// names, perhaps [`PortNo::CONTROLLER`].
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
            paths: &mut self.paths,
            assembler: &mut self.assembler,
            egress,
            observer,
            origin,
            now,
            learned: None,
            to_tables: None,
            // One by one, as they are then made where they stay: `array::from_fn` copies each of them thrice, with its
            // room for a burst.
            exits: [Exit::none(), Exit::none(), Exit::none(), Exit::none()],
            budget: Budget::default(),
            dropped: Batch::new(DropReason::NoOutput),
        }
    }
}
