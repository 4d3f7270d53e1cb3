//! Packet processing in a worker.

mod batch;
mod budget;
mod cached;
mod copies;
mod execute;
pub(crate) mod explain;
mod fragments;
mod governor;
mod group;
mod header;
mod keys;
mod lookup;
mod lookup_results;
mod marked;
mod meter;
mod mirrored;
mod normal;
mod observe;
mod observed;
mod observed_packet;
mod origin;
mod output;
mod packet_source;
mod run;
mod scratch;
pub(crate) mod traversal;
mod traversal_cache;
mod tunnel;

use std::sync::Arc;

use arrayvec::ArrayVec;
use millrace_flow::Action;
use millrace_flow::classify::BURST;
use millrace_types::{PortNo, Time};
use millrace_wire::Packet;

use self::batch::{Batch, PortBatch};
use self::budget::Budget;
use self::copies::{MirrorContext, Route};
use self::observe::{NoObserver, Observer};
pub use self::observed_packet::ObservedPacket;
pub use self::origin::Origin;
use self::run::Run;
use self::scratch::Scratch;
use self::traversal_cache::TraversalCache;
use crate::{Assembler, Counters, DropReason, Egress, Forwarding, MarkColumn, Slots};

/// The packet processor of one worker.
///
/// Memory is allocated by [`Processor::new`], and once more for the first fragment on a bridge that
/// reassembles.
#[derive(Debug)]
pub struct Processor {
    counters: Arc<Counters>,
    scratch: Box<Scratch>,
    traversals: Box<TraversalCache>,
    /// `None` until the first fragment on a bridge that reassembles.
    assembler: Option<Box<Assembler>>,
}

impl Processor {
    /// Returns a processor that uses the counters of [`Control::counters`](crate::Control::counters). No
    /// other processor may use these counters at the same time.
    pub fn new(counters: Arc<Counters>) -> Processor {
        Processor {
            counters,
            scratch: Scratch::new(),
            traversals: Box::new(TraversalCache::new()),
            assembler: None,
        }
    }

    /// Returns the counters of the processor.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Processes packets that arrived at one port, in order, and leaves the burst empty.
    pub fn process_burst<P: Packet, E: Egress<P>>(
        &mut self,
        fwd: &Forwarding,
        origin: impl Into<Origin>,
        burst: &mut ArrayVec<P, BURST>,
        now: Time,
        egress: &mut E,
    ) {
        if let Some(mirrors) = fwd.mirrors() {
            let context = MirrorContext { fwd, mirrors, now };
            return self.process_mirrored(context, origin.into(), Route::Tables, burst, egress);
        }
        self.run(fwd, origin.into(), now, egress, &mut NoObserver)
            .burst(burst);
    }

    /// Processes packets that arrived at one port whose device marked some of them, in the order of each flow, and leaves the
    /// burst empty. The column has the marks of the packets of the burst, by position.
    pub fn process_marked_burst<P: Packet, E: Egress<P>>(
        &mut self,
        fwd: &Forwarding,
        in_port: PortNo,
        (burst, column): (&mut ArrayVec<P, BURST>, &MarkColumn),
        slots: &mut Slots,
        now: Time,
        egress: &mut E,
    ) {
        if let Some(mirrors) = fwd.mirrors() {
            slots.skip(burst.len());
            let context = MirrorContext { fwd, mirrors, now };
            return self.process_mirrored(context, in_port.into(), Route::Tables, burst, egress);
        }
        self.run(fwd, in_port.into(), now, egress, &mut NoObserver)
            .marked_burst(burst, column, slots);
    }

    /// Forwards packets of a logical port by NORMAL, without the flow tables, in order, and leaves the burst empty. NORMAL
    /// learns source addresses from floods only: most sources are static entries of the MAC table, and a virtual router
    /// announces its address by multicast (RFC 9568, section 7.3).
    pub fn forward_burst<P: Packet, E: Egress<P>>(
        &mut self,
        fwd: &Forwarding,
        in_port: PortNo,
        burst: &mut ArrayVec<P, BURST>,
        now: Time,
        egress: &mut E,
    ) {
        if let Some(mirrors) = fwd.mirrors() {
            let context = MirrorContext { fwd, mirrors, now };
            return self.process_mirrored(context, in_port.into(), Route::Normal, burst, egress);
        }
        self.run(fwd, in_port.into(), now, egress, &mut NoObserver)
            .forward_burst(burst);
    }

    /// Executes the actions of a packet-out (OpenFlow 1.3.5, section 7.3.7). `origin` contains the ingress
    /// port of the message, which may be [`PortNo::CONTROLLER`].
    pub fn packet_out<P: Packet, E: Egress<P>>(
        &mut self,
        fwd: &Forwarding,
        origin: impl Into<Origin>,
        actions: &[Action],
        packet: P,
        now: Time,
        egress: &mut E,
    ) {
        if let Some(mirrors) = fwd.mirrors() {
            let context = MirrorContext { fwd, mirrors, now };
            return self.packet_out_mirrored(context, origin.into(), actions, packet, egress);
        }
        self.run(fwd, origin.into(), now, egress, &mut NoObserver)
            .packet_out(packet, actions);
    }

    /// Copies a packet that leaves by a port without the pipeline, as frames of link protocols do, for the mirrors that
    /// select it.
    pub fn mirror_sent<P: Packet, E: Egress<P>>(
        &mut self,
        fwd: &Forwarding,
        port: PortNo,
        packet: &P,
        now: Time,
        egress: &mut E,
    ) {
        if let Some(mirrors) = fwd.mirrors() {
            self.mirror_alone(MirrorContext { fwd, mirrors, now }, port, packet, egress);
        }
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
            recent_source: None,
            recent_targets: [None; run::RECENT_TARGETS],
            is_packet_out: false,
            to_tables: None,
            // The list is written out, so that each batch is built in place: `array::from_fn` copies each
            // batch, with its room for a burst, three times.
            port_batches: [
                PortBatch::none(),
                PortBatch::none(),
                PortBatch::none(),
                PortBatch::none(),
            ],
            budget: Budget::default(),
            dropped: Batch::new(DropReason::NoOutput),
        }
    }
}
