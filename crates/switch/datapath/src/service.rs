//! Services: work that a worker does for a bridge besides moving packets between devices and the pipeline, for example
//! a chain of network functions. A worker calls its services in every round; a bridge without services costs one
//! comparison for each round.

use millrace_pipeline::DropReason;
use millrace_types::{PortNo, Time};
use millrace_wire::Packet;

use crate::io::Burst;
use crate::pipeline::BridgePipeline;

/// The number of a service of a bridge.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ServiceId(pub(crate) u64);

/// The result of one call of a service.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PollResult {
    /// Number of packets that the service handled.
    pub found: usize,
    /// True if packets are in flight, so that the worker should poll again soon.
    pub is_waiting: bool,
}

/// Work that a worker does between two bursts. Like all code of a worker it takes no lock, allocates nothing in steady
/// state, logs nothing and never waits.
pub trait Service<P>: Send {
    /// Does the work that is due now, for a few bursts at most.
    fn poll(&mut self, now: Time, outlet: &mut dyn ServiceOutput<P>) -> PollResult;
}

/// The destination of a service's packets. Every call leaves the burst empty.
pub trait ServiceOutput<P> {
    /// Receives packets at a logical port: the tables of the bridge decide about them.
    fn receive(&mut self, in_port: PortNo, burst: &mut Burst<P>);

    /// Forwards packets of a logical port by NORMAL, without the tables: those of a router.
    fn forward(&mut self, in_port: PortNo, burst: &mut Burst<P>);

    /// Sends a packet out of a port, which may be a tunnel. Drops the packet if the port cannot send now, as
    /// the action `output` does.
    fn transmit(&mut self, port: PortNo, packet: P);

    /// Drops packets and counts them under `reason`.
    fn discard(&mut self, reason: DropReason, burst: &mut Burst<P>);

    /// Counts packets that were dropped, and whose buffers are in use for others.
    fn count_drops(&mut self, reason: DropReason, packets: u64);
}

/// The [`ServiceOutput`] of a worker.
pub(crate) struct WorkerOutput<'a, P> {
    pub(crate) pipeline: &'a mut BridgePipeline<P>,
    pub(crate) now: Time,
    /// Number of packets that the service passed to the tables.
    pub(crate) processed: usize,
}

impl<P: Packet> ServiceOutput<P> for WorkerOutput<'_, P> {
    fn receive(&mut self, in_port: PortNo, burst: &mut Burst<P>) {
        if burst.is_empty() {
            return;
        }
        self.processed += burst.len();
        self.pipeline.tx.count_received(in_port, burst);
        self.pipeline.capture_received(in_port, burst, self.now);
        self.pipeline.process(in_port, burst, self.now);
    }

    fn forward(&mut self, in_port: PortNo, burst: &mut Burst<P>) {
        if burst.is_empty() {
            return;
        }
        self.processed += burst.len();
        self.pipeline.tx.count_received(in_port, burst);
        self.pipeline.capture_received(in_port, burst, self.now);
        self.pipeline.forward(in_port, burst, self.now);
    }

    fn transmit(&mut self, port: PortNo, packet: P) {
        self.pipeline.output(port, packet, self.now);
    }

    fn discard(&mut self, reason: DropReason, burst: &mut Burst<P>) {
        self.pipeline.counters.drops.add(reason, burst.len() as u64);
        P::discard(burst);
    }

    fn count_drops(&mut self, reason: DropReason, packets: u64) {
        self.pipeline.counters.drops.add(reason, packets);
    }
}
