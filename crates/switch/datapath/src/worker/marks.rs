//! The marks of a port in a worker: its slots, and the queue of sampled keys.

use std::sync::Arc;

use crossbeam_queue::ArrayQueue;
use millrace_flow::FlowKey;
use millrace_pipeline::{MarkColumn, SlotChange, Slots};
use millrace_types::{PortNo, Time};
use millrace_wire::Packet;

use crate::io::Burst;
use crate::offload::port::MarkSetup;
use crate::pipeline::BridgePipeline;

/// The slots of one receive queue.
pub(crate) struct PortMarks {
    slots: Slots,
    samples: Arc<ArrayQueue<FlowKey>>,
}

impl PortMarks {
    /// Returns empty slots for a worker; `None` if the setup is for fewer workers. The control side calls this: with the largest
    /// device, the slots take 20 MB.
    pub(crate) fn new(setup: &MarkSetup, worker: usize) -> Option<PortMarks> {
        let counts = setup.counts.get(worker)?;
        Some(PortMarks {
            slots: Slots::new(
                setup.index_bits,
                Arc::clone(&setup.state),
                Arc::clone(counts),
                worker as u64,
            ),
            samples: Arc::clone(&setup.samples),
        })
    }

    /// Applies changes of slots.
    pub(super) fn change(&mut self, changes: &[SlotChange]) {
        changes.iter().for_each(|change| self.slots.change(change));
    }

    /// Counts received packets whose marks are not used.
    pub(super) fn skip(&self, packets: usize) {
        self.slots.skip(packets);
    }

    /// Runs a burst with the marks of its packets through the tables. Leaves `burst` empty.
    pub(super) fn process<P: Packet>(
        &mut self,
        port: PortNo,
        burst: (&mut Burst<P>, &MarkColumn),
        pipeline: &mut BridgePipeline<P>,
        now: Time,
    ) {
        pipeline.process_marked(port, burst, &mut self.slots, now);
        if let Some(key) = self.slots.take_sample()
            && self.samples.push(key).is_err()
        {
            self.slots.counts().count_lost_sample();
        }
    }
}
