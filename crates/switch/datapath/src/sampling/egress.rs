//! A sampled packet on its way: it goes through the tables alone, and its egress records where it goes.

use millrace_pipeline::{DropReason, Egress, Learn, ObservedPacket, PacketInInfo};
use millrace_types::{PortNo, QueueId};
use millrace_wire::{Packet, rewrite};

use super::SampleOutcome;
use crate::egress::WorkerEgress;
use crate::io::Burst;

/// Samples one packet that came in at a port: `process` sends it through the tables.
pub(crate) fn sample<P: Packet>(
    egress: WorkerEgress<'_, P>,
    port: PortNo,
    packet: P,
    process: impl FnOnce(P, &mut SampledEgress<'_, P>) -> ObservedPacket,
) {
    let Some(sampler) = &egress.sampler else { return };
    let sighting = sampler.sighting(&packet);
    let mut egress = SampledEgress {
        inner: egress,
        sent: 0,
        last: None,
        refused: None,
        is_taken: false,
    };
    let observed = process(packet, &mut egress);
    let outcome = egress.outcome(observed.drop_reason);
    if let Some(sampler) = &mut egress.inner.sampler {
        sampler.push(port, sighting, outcome, observed);
    }
}

/// The egress of a sampled packet: that of the worker, and a record of where the packet goes.
pub(crate) struct SampledEgress<'a, P> {
    inner: WorkerEgress<'a, P>,
    sent: u32,
    /// The last port that took the packet, and the VLAN tag there.
    last: Option<(PortNo, Option<u16>)>,
    /// The last port that did not take the packet, and the reason.
    refused: Option<(PortNo, DropReason)>,
    is_taken: bool,
}

impl<P> SampledEgress<'_, P> {
    fn outcome(&self, drop_reason: Option<DropReason>) -> SampleOutcome {
        match (self.sent, self.last, self.refused, drop_reason) {
            (1, Some((port, tci)), ..) => SampleOutcome::Sent { port, tci },
            (sent, Some(_), ..) => SampleOutcome::Copied(sent),
            (_, None, Some((port, reason)), _) => SampleOutcome::Dropped {
                reason,
                port: Some(port),
            },
            _ if self.is_taken => SampleOutcome::Taken,
            (_, None, None, Some(reason)) => SampleOutcome::Dropped { reason, port: None },
            (_, None, None, None) => SampleOutcome::Unknown,
        }
    }
}

impl<P: Packet> Egress<P> for SampledEgress<'_, P> {
    fn transmit(&mut self, port: PortNo, queue: Option<QueueId>, packet: P) {
        let tci = rewrite::vlan_tci(packet.head());
        match self.inner.send(port, queue, packet) {
            None => {
                self.sent += 1;
                self.last = Some((port, tci));
            }
            Some(reason) => self.refused = Some((port, reason)),
        }
    }

    fn packet_in(&mut self, info: PacketInInfo, packet: P) {
        self.is_taken = true;
        self.inner.packet_in(info, packet);
    }

    fn learn(&mut self, learn: Learn) {
        self.inner.learn(learn);
    }

    fn traced(&mut self, trace: u64, in_port: PortNo, packet: P) {
        self.inner.traced(trace, in_port, packet);
    }

    fn neighbour(&mut self, underlay: PortNo, packet: P) {
        self.is_taken = true;
        self.inner.neighbour(underlay, packet);
    }

    fn oam(&mut self, port: PortNo, packet: P) {
        self.is_taken = true;
        self.inner.oam(port, packet);
    }

    fn dropped(&mut self, reason: DropReason, packet: P) {
        self.inner.dropped(reason, packet);
    }

    fn dropped_burst(&mut self, reason: DropReason, burst: &mut Burst<P>) {
        self.inner.dropped_burst(reason, burst);
    }
}
