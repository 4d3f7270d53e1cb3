//! The spreading of a bridge's receive queues over the workers.

use millrace_types::PortNo;

use super::Bridge;
use crate::io::Backend;
use crate::spread::reta::Urgency;
use crate::spread::{BucketMove, SpreadStats};

impl<B: Backend> Bridge<B> {
    /// Returns the state of the spreading of each receive queue of a port; empty if workers hand off no
    /// packets.
    pub fn spread(&self, port: PortNo) -> Vec<SpreadStats> {
        let retas = self.ports.get(&port).into_iter().flat_map(|port| &port.retas);
        retas.map(|reta| reta.stats(self.workers.len())).collect()
    }

    /// Switches hashing of a receive queue on, and requests that buckets move. Returns false, and requests nothing, while an earlier request is not completed, or if there is no such queue.
    pub fn move_buckets(&self, port: PortNo, queue: usize, moves: &[BucketMove]) -> bool {
        let reta = self.ports.get(&port).and_then(|port| port.retas.get(queue));
        let reta = reta.filter(|reta| reta.is_idle());
        if let Some(reta) = reta {
            reta.switch(true);
            reta.request(moves, Urgency::Normal);
        }
        reta.is_some()
    }
}
