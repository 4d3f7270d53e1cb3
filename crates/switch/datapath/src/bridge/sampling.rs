//! Packet samples of a bridge: turned on and off, and received from the workers.

use std::sync::{Arc, mpsc};

use super::Bridge;
use crate::io::Backend;
use crate::sampling::{DiscardedPacket, SampleQueues, SampleRemainder, SampledPacket, Sampler, SamplingPlan};
use crate::worker::Command;

impl<B: Backend> Bridge<B> {
    /// Starts sampling the packets of this bridge by a plan, or stops with `None`. When this returns, no worker
    /// samples by the former plan; queued samples stay queued. Returns the numbers of packets counted and of
    /// samples lost since the last sample of each port and worker: they belong to the former plan.
    pub fn set_sampling(&mut self, plan: Option<&SamplingPlan>) -> Vec<SampleRemainder> {
        let queues = self
            .samples
            .get_or_insert_with(|| SampleQueues::new(std::thread::current()));
        let (done, old) = mpsc::sync_channel(self.workers.len());
        let workers = self.workers.len();
        for (number, worker) in self.workers.iter().enumerate() {
            let sampler = |plan| Box::new(Sampler::new(plan, number, workers, queues));
            worker.send(Command::SetSampling {
                bridge: self.number,
                sampling: plan.map(sampler),
                done: done.clone(),
            });
        }
        drop(done);
        let mut remainders = Vec::new();
        // Old samplers come back and are dropped here, not in a worker.
        while let Ok(sampler) = old.recv() {
            remainders.extend(sampler.iter().flat_map(|sampler| sampler.remainders()));
        }
        remainders
    }

    /// Returns the next sampled packet.
    pub fn next_sample(&self) -> Option<SampledPacket> {
        self.samples
            .as_ref()
            .and_then(|queues: &Arc<SampleQueues>| queues.pop_sample())
    }

    /// Returns the next dropped packet that was recorded.
    pub fn next_discard(&self) -> Option<DiscardedPacket> {
        self.samples.as_ref().and_then(|queues| queues.pop_discard())
    }
}
