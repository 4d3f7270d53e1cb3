//! The state of one bridge in one worker, and the steps of a burst through it.

use std::sync::Arc;

use millrace_pipeline::{DropReason, Policer, PolicerCounters, SlotChange};
use millrace_types::{PortNo, Time};
use millrace_wire::Packet;

use crate::counters::PortCounters;
use crate::io::{Burst, RxQueue};
use crate::lag::LagMember;
use crate::pipeline::BridgePipeline;
use crate::segmentation::SegmentingRx;
use crate::service::{Service, ServiceId};
use crate::spread::links::Links;
use crate::spread::reta::{HandoffContext, Spreader};
use crate::tx_port::TxPorts;
use crate::worker::marks::PortMarks;

/// The state of one bridge in one worker.
pub(crate) struct BridgeContext<P> {
    pub(crate) rx: Vec<RxPort<P>>,
    /// Called once in each round; usually none.
    pub(crate) services: Vec<(ServiceId, Box<dyn Service<P>>)>,
    pub(crate) pipeline: BridgePipeline<P>,
}

/// One receive queue of a port.
pub(crate) struct RxPort<P> {
    pub(crate) port: PortNo,
    pub(crate) queue: Box<dyn RxQueue<P>>,
    pub(crate) counters: Arc<PortCounters>,
    /// Hands packets to other workers, if there are any.
    pub(crate) spreader: Option<Box<Spreader<P>>>,
    /// Limits the rate of received packets, if configured.
    pub(crate) policing: Option<Policing>,
    /// True if the queue is not polled while the output port of its last burst is behind.
    pub(crate) backpressure: bool,
    /// The output port of the last burst, if there is backpressure: the queue waits while that port is behind.
    pub(crate) waits_for: Option<PortNo>,
    /// True if `queue` segments GSO packets.
    pub(crate) is_segmenting: bool,
    /// The member of the LAG `port` whose queue this is; `None` if the port is no LAG.
    pub(crate) member: Option<LagMember>,
    /// The slots of the port's marks, while they are used.
    pub(crate) marks: Option<Box<PortMarks>>,
    /// True if the marks of the queue belong to the burst that is processed next.
    pub(crate) has_column: bool,
}

/// The policer of a port. All workers that receive from the port share it.
#[derive(Clone)]
pub(crate) struct Policing {
    pub(crate) policer: Arc<Policer>,
    pub(crate) counters: Arc<PolicerCounters>,
}

impl Policing {
    /// Drops packets that exceed the rates, and marks those that the policer recolours.
    #[inline(never)]
    fn police<P: Packet>(
        &self,
        port: PortNo,
        burst: &mut Burst<P>,
        pipeline: &mut BridgePipeline<P>,
        now: Time,
    ) {
        let mut dropped = Burst::new();
        self.policer.police(burst, &mut dropped, now, &self.counters);
        let reason = DropReason::Policer;
        pipeline.counters.drops.add(reason, dropped.len() as u64);
        if let Some(sampler) = &mut pipeline.sampling
            && !dropped.is_empty()
        {
            sampler.sample_dropped(port, &dropped, reason, now);
        }
        P::discard(&mut dropped);
    }
}

impl<P> RxPort<P> {
    /// Returns the number under which the device was added: that of the port, or of the member of a LAG.
    pub(super) fn device(&self) -> PortNo {
        self.member.as_ref().map_or(self.port, |member| member.number)
    }
}

impl<P: Packet> RxPort<P> {
    /// Returns true while the output port of the last burst is behind, so that this queue must not be polled.
    #[inline]
    pub(super) fn is_held_back(&mut self, tx: &mut TxPorts<P>) -> bool {
        self.waits_for.is_some_and(|awaited| tx.is_behind(awaited))
    }

    /// Fills the empty `burst` with packets of this worker that were parked while their buckets moved. They
    /// arrived before all packets in the queue.
    #[inline]
    pub(super) fn take_parked(&mut self, burst: &mut Burst<P>) {
        if let Some(spreader) = &mut self.spreader {
            spreader.take_ready(burst);
        }
    }

    /// Receives a burst into `burst`, which is empty, then counts, captures and polices it. Returns the number of
    /// packets received.
    #[inline]
    pub(super) fn receive(
        &mut self,
        burst: &mut Burst<P>,
        pipeline: &mut BridgePipeline<P>,
        now: Time,
    ) -> usize {
        self.queue.rx_burst(burst);
        let received = burst.len();
        if received == 0 {
            return 0;
        }
        if let Some(marks) = &self.marks {
            // A policer may drop or rewrite packets, and a LAG filters them: positions and keys are then others.
            self.has_column = self.policing.is_none() && self.member.is_none();
            if !self.has_column {
                marks.skip(received);
            }
        }
        self.counters.rx_packets.add(received as u64);
        self.counters
            .rx_bytes
            .add(burst.iter().map(|packet| packet.len() as u64).sum());
        pipeline.capture_received(self.port, burst, now);
        if let Some(member) = &mut self.member {
            member.filter(burst, &pipeline.events, &pipeline.counters, now);
        }
        if let Some(policing) = &self.policing {
            policing.police(self.port, burst, pipeline, now);
        }
        received
    }

    /// Returns true if received packets must go through [`Self::spread`].
    #[inline]
    pub(super) fn is_spread(&self) -> bool {
        self.spreader.as_ref().is_some_and(|spreader| spreader.is_on())
    }

    /// Hands packets of flows that other workers own to these workers. The other packets stay in `burst`.
    #[inline]
    pub(super) fn spread(
        &mut self,
        burst: &mut Burst<P>,
        pipeline: &BridgePipeline<P>,
        links: &mut Links<P>,
    ) {
        if core::mem::take(&mut self.has_column)
            && let Some(marks) = &self.marks
        {
            marks.skip(burst.len());
        }
        if let Some(spreader) = &mut self.spreader {
            let mut handoff = HandoffContext {
                bridge: pipeline.bridge,
                port: self.port,
                links,
                counters: &pipeline.counters,
            };
            spreader.spread(burst, &mut handoff);
        }
    }

    /// Begins to use the marks of the queue with these slots, or ends that.
    pub(super) fn set_marks(&mut self, marks: Option<Box<PortMarks>>) {
        self.queue.keep_marks(marks.is_some());
        self.marks = marks;
    }

    /// Applies changes of slots, while marks are used.
    pub(super) fn change_slots(&mut self, changes: &[SlotChange]) {
        if let Some(marks) = &mut self.marks {
            marks.change(changes);
        }
    }

    /// Begins and ends moves of buckets of this queue. `is_flushed` is true if packets of other workers can
    /// overtake no packet that this worker sent.
    #[inline]
    pub(super) fn move_buckets(
        &mut self,
        now: Time,
        is_flushed: bool,
        pipeline: &BridgePipeline<P>,
        links: &mut Links<P>,
    ) {
        if let Some(spreader) = &mut self.spreader {
            let mut handoff = HandoffContext {
                bridge: pipeline.bridge,
                port: self.port,
                links,
                counters: &pipeline.counters,
            };
            spreader.tick(now, is_flushed, &mut handoff);
        }
    }

    /// Runs a burst from this queue through the tables, and notes the port that the queue waits for afterwards. Leaves
    /// `burst` empty.
    #[inline]
    pub(super) fn process(&mut self, burst: &mut Burst<P>, pipeline: &mut BridgePipeline<P>, now: Time) {
        if self.backpressure {
            // Packets of queues polled earlier in this round do not hold this queue back.
            pipeline.tx.take_last_output();
        }
        if core::mem::take(&mut self.has_column) {
            self.process_marked(burst, pipeline, now);
        } else {
            pipeline.process(self.port, burst, now);
        }
        if self.backpressure {
            self.waits_for = pipeline.tx.take_last_output();
        }
    }

    /// Runs a burst with the marks that the queue has for its packets through the tables. Leaves `burst` empty.
    #[inline(never)]
    fn process_marked(&mut self, burst: &mut Burst<P>, pipeline: &mut BridgePipeline<P>, now: Time) {
        match (&mut self.marks, self.queue.marks()) {
            (Some(marks), Some(column)) => marks.process(self.port, (burst, column), pipeline, now),
            (marks, _) => {
                // The queue segments packets, so it has none of the marks.
                if let Some(marks) = marks {
                    marks.skip(burst.len());
                }
                pipeline.process(self.port, burst, now);
            }
        }
    }
}

impl<P: Packet + 'static> BridgeContext<P> {
    /// Returns the number of the bridge.
    pub(super) fn bridge(&self) -> u32 {
        self.pipeline.bridge
    }

    /// Puts segmentation into the receive queues of ports with a policer, as a policer measures packets of
    /// the MTU. Segmentation stays when the policer is removed, because its queue may still hold packets.
    pub(super) fn segment_policed(&mut self) {
        let segmented = |mut rx: RxPort<P>| {
            if rx.policing.is_some() && !rx.is_segmenting {
                rx.queue = SegmentingRx::wrap(rx.queue, &self.pipeline.counters);
                rx.is_segmenting = true;
            }
            rx
        };
        self.rx = self.rx.drain(..).map(segmented).collect();
    }
}
