//! What a worker does for a bridge besides moving packets between devices and the pipeline: a chain of network
//! functions, for one. It is called in every round; where there is none, a round costs one comparison more.

use std::sync::Arc;

use millrace_pipeline::{Counters, DropReason, Egress, Forwarding, Processor};
use millrace_types::{PortNo, Time};
use millrace_wire::Packet;

use crate::egress::{TxPorts, WorkerEgress};
use crate::events::{Direction, Events};
use crate::io::Burst;
use crate::publish::Reader;

/// A service of a bridge, by number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ServiceId(pub(crate) u64);

/// What one call of a service came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Polled {
    /// Packets that there was something to do for.
    pub found: usize,
    /// True if something is on its way, so that the worker should look again soon.
    pub is_waiting: bool,
}

/// Work that a worker does between two bursts. Like all that runs in a worker it takes no lock, allocates nothing in
/// steady state, logs nothing and never waits.
pub trait Service<P>: Send {
    /// Does what there is to do now, a few bursts at most.
    fn poll(&mut self, now: Time, outlet: &mut dyn Outlet<P>) -> Polled;
}

/// Where a service puts packets. Every call leaves the burst empty.
pub trait Outlet<P> {
    /// Packets came in at a logical port: the tables of the bridge decide.
    fn receive(&mut self, in_port: PortNo, burst: &mut Burst<P>);

    /// A packet goes out of a port.
    fn transmit(&mut self, port: PortNo, packet: P);

    /// Packets go nowhere; they are counted here.
    fn discard(&mut self, reason: DropReason, burst: &mut Burst<P>);
}

/// The outlet of a worker.
pub(crate) struct WorkerOutlet<'a, P> {
    pub(crate) bridge: u32,
    pub(crate) forwarding: &'a mut Reader<Forwarding>,
    pub(crate) processor: &'a mut Processor,
    pub(crate) counters: &'a Counters,
    pub(crate) events: &'a Arc<Events<P>>,
    pub(crate) tx: &'a mut TxPorts<P>,
    pub(crate) now: Time,
    pub(crate) processed: usize,
}

impl<P: Packet> WorkerOutlet<'_, P> {
    fn egress(&mut self) -> WorkerEgress<'_, P> {
        WorkerEgress {
            bridge: self.bridge,
            tx: self.tx,
            events: self.events,
            counters: self.counters,
            now: self.now,
        }
    }
}

impl<P: Packet> Outlet<P> for WorkerOutlet<'_, P> {
    fn receive(&mut self, in_port: PortNo, burst: &mut Burst<P>) {
        if burst.is_empty() {
            return;
        }
        self.processed += burst.len();
        self.tx.count_received(in_port, burst);
        if !self.tx.captures.is_empty() {
            for packet in burst.iter() {
                self.events
                    .tap(&self.tx.captures, in_port, Direction::Rx, self.now, packet);
            }
        }
        let forwarding = self.forwarding.enter();
        let mut egress = WorkerEgress {
            bridge: self.bridge,
            tx: self.tx,
            events: self.events,
            counters: self.counters,
            now: self.now,
        };
        self.processor
            .process_burst(&forwarding, in_port, burst, self.now, &mut egress);
        burst.clear();
    }

    fn transmit(&mut self, port: PortNo, packet: P) {
        self.egress().transmit(port, None, packet);
    }

    fn discard(&mut self, reason: DropReason, burst: &mut Burst<P>) {
        self.counters.drops.add(reason, burst.len() as u64);
        P::discard(burst);
    }
}
