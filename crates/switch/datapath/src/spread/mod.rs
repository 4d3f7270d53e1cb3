//! Spreads the packets of one receive queue over all workers.
//!
//! A NIC with one queue for each worker spreads the packets that it can hash (RSS) over the workers. All
//! other packets arrive at one worker: the packets of a device with one queue (pcap, AF_PACKET, memif, links),
//! and on any NIC the packets of protocols that it does not parse (MPLS, PBB, most tunnels). That worker can
//! hand packets off:
//!
//! ```text
//!  queue -> hash -> bucket (1,024 of them) -> worker      [hash], [reta]
//!                                     |
//!                    itself, or a ring to the other        [ring]
//! ```
//! and the control side changes the owners of buckets as the load requires ([balance]).
//!
//! # Order
//! All packets of a flow are in one bucket, and a bucket belongs to one worker at a time. Rings, inboxes and transmit
//! buffers are first in, first out. Order could therefore only be lost when a bucket moves, if packets of the old
//! owner were overtaken by packets of the new one. This cannot happen: while a bucket moves, the receiving worker
//! parks its packets, and hands them to the new owner only after the old one has acknowledged that all packets that it
//! took have left (`reta` has the argument). A bucket that cannot be moved within a time limit keeps its owner.
//!
//! # Cost
//! With one worker none of this exists. With several, a queue whose packets all stay with the worker that receives
//! them costs one test of a flag for each burst; a worker begins to hash only when it is overloaded
//! ([`Spread::Auto`]).

pub(crate) mod balance;
mod excluded;
pub(crate) mod links;
mod load;
mod policy;
pub(crate) mod reta;
pub mod ring;
mod trial;

pub use millrace_wire::flow_hash::FlowHash;
pub use policy::{Spread, SpreadStats};
pub use reta::{BUCKETS, BucketMove};

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use millrace_wire::Packet;

use self::balance::Retas;
use self::reta::{Reta, Spreader};

/// State that all receive queues of a switch share, if several workers may hand packets to each other.
#[derive(Clone)]
pub(crate) struct Spreading {
    pub(crate) retas: Retas,
    pub(crate) hash: FlowHash,
    workers: usize,
    spread: Spread,
}

impl Spreading {
    /// Returns the shared state, or `None` if packets stay with the worker that receives them.
    pub(crate) fn new(workers: usize, spread: Spread) -> Option<Spreading> {
        (workers > 1 && spread != Spread::Off).then(|| Spreading {
            retas: Retas::default(),
            // `RandomState` is the standard library's only access to random numbers of the system.
            hash: FlowHash::new(RandomState::new().hash_one(0)),
            workers,
            spread,
        })
    }

    /// Returns the table of a device that dispatches to queues, which these workers poll.
    pub(crate) fn device(&self, workers: &[usize]) -> Arc<Reta> {
        Reta::of_device(workers, self.workers)
    }

    /// Balances the buckets of a device.
    pub(crate) fn balance(&self, table: &Arc<Reta>) {
        let mut retas = self.retas.lock();
        retas.push(Arc::downgrade(table));
    }

    /// Returns the two sides of the redirection table of a receive queue. `worker` polls the queue, and its
    /// device has `queues` queues.
    pub(crate) fn queue<P: Packet>(&self, worker: usize, queues: usize) -> (Arc<Reta>, Box<Spreader<P>>) {
        // A device with a queue for each worker spreads the flows already. The load shows if it does not.
        let evenly = self.spread == Spread::Always && queues < self.workers;
        let reta = Reta::new(worker, self.workers, evenly);
        let mut retas = self.retas.lock();
        retas.push(Arc::downgrade(&reta));
        let spreader = Spreader::new(Arc::clone(&reta), self.workers, self.hash.clone());
        (reta, Box::new(spreader))
    }
}
