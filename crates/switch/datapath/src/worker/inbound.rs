//! Packets from other workers: flows that this worker owns, from its rings, and packets for ports that this worker
//! sends for, from its inbox.

use millrace_pipeline::Egress;
use millrace_types::Time;
use millrace_wire::Packet;

use super::{Round, Worker};
use crate::handoff::{Destination, Handoff};
use crate::io::Burst;
use crate::spread::links::Links;

/// Number of packets from the inbox after which scheduled packets are sent: fewer than a queue holds.
const SEND_EVERY: usize = 256;

impl<P: Packet + 'static> Worker<P> {
    /// Begins and ends moves of buckets. This is the first step of a round: the worker may become the owner of flows
    /// whose packets another worker has put into this worker's inbox, and these must leave before the packets of this
    /// round.
    pub(super) fn move_buckets(&mut self, now: Time) {
        let Some(links) = &mut self.links else { return };
        for context in &mut self.bridges {
            for port in &mut context.rx {
                port.move_buckets(now, self.is_flushed, &context.pipeline, links);
            }
        }
    }

    /// Processes packets of flows that this worker owns and other workers received: one burst from each worker.
    /// `burst` is empty before and after.
    pub(super) fn process_handed_off(&mut self, now: Time, burst: &mut Burst<P>, round: &mut Round) {
        let rings = self.links.as_ref().map_or(0, Links::incoming_len);
        for ring in 0..rings {
            let origin = self.links.as_mut().and_then(|links| links.receive(ring, burst));
            let Some((bridge, port)) = origin else { continue };
            round.found += burst.len();
            round.processed += burst.len();
            // The inbox is read after the packets are taken from the ring and before they are processed, so that flows
            // that have moved stay in order: see `spread::reta`.
            round.found += self.deliver_inbox(now);
            match self.bridges.iter_mut().find(|context| context.bridge() == bridge) {
                Some(context) => context.pipeline.process(port, burst, now),
                // The bridge was detached here before the other worker stopped receiving from it.
                None => P::discard(burst),
            }
        }
    }

    /// Sends the packets in the inbox. Returns their number.
    pub(super) fn deliver_inbox(&mut self, now: Time) -> usize {
        let mut burst = Burst::new();
        let mut next = None;
        let (mut found, mut unsent) = (0, 0);
        for _ in 0..self.inbox.len() {
            let Some(Handoff { to, packets }) = self.inbox.take() else {
                break;
            };
            if next.is_some_and(|next| next != to) || packets.len() > burst.remaining_capacity() {
                self.deliver(next, &mut burst, now);
            }
            next = Some(to);
            found += packets.len();
            unsent += packets.len();
            burst.extend(packets);
            if unsent >= SEND_EVERY {
                self.deliver(next, &mut burst, now);
                self.send_scheduled(now);
                unsent = 0;
            }
        }
        self.deliver(next, &mut burst, now);
        found
    }

    /// Sends packets that other workers processed. Leaves `burst` empty.
    fn deliver(&mut self, to: Option<Destination>, burst: &mut Burst<P>, now: Time) {
        let Some(to) = to.filter(|_| !burst.is_empty()) else {
            return;
        };
        let context = self
            .bridges
            .iter_mut()
            .find(|context| context.bridge() == to.bridge);
        let Some(context) = context else {
            // The bridge was detached here before the other worker stopped sending to it.
            return P::discard(burst);
        };
        context
            .pipeline
            .egress(now)
            .transmit_burst(to.port, to.queue, burst);
        burst.clear();
    }

    /// Sends scheduled packets that may leave now. Without this, many packets from other workers at once
    /// would overflow the queues before the end of the round.
    #[inline(never)]
    fn send_scheduled(&mut self, now: Time) {
        let pipelines = self.bridges.iter_mut().map(|context| &mut context.pipeline);
        for pipeline in pipelines.filter(|pipeline| pipeline.tx.has_scheduled) {
            pipeline.tx.flush(now);
        }
    }
}
