//! Spreading what one receive queue brings over all workers.
//!
//! A NIC with as many queues as there are workers spreads by itself what it can hash. Everything else comes to one
//! worker: all that a device with one queue receives (pcap, AF_PACKET, memif, links), and on any NIC what it does not
//! look into (MPLS, PBB, most tunnels). That worker can give packets away:
//!
//! ```text
//!  queue -> hash -> bucket (1,024 of them) -> worker      [hash], [lane]
//!                                     |
//!                    itself, or a ring to the other        [ring]
//! ```
//! and the control side changes which bucket belongs to which worker as load asks for it ([balance]).
//!
//! # Order
//! All packets of a flow are in one bucket, and a bucket belongs to one worker at a time. Rings, inboxes and transmit
//! buffers are first in, first out. So order can only be lost when a bucket moves: if packets that the old worker has
//! could be overtaken by those that the new one gets. They cannot: while a bucket moves the receiving worker parks its
//! packets, and it gives them to the new worker only when the old one has said that nothing it took is still on its
//! way (`lane` has the argument). A bucket that cannot be moved within a bound stays where it was.
//!
//! # Cost
//! With one worker none of this exists. With several, a queue whose packets all stay with the worker that receives them
//! costs one look at a flag for each burst; only a worker that has too much to do begins to hash ([`Spread::Auto`]).

pub(crate) mod balance;
mod hash;
pub(crate) mod lane;
pub(crate) mod links;
pub mod ring;
mod shun;

pub use hash::FlowHash;
pub use lane::BUCKETS;

use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, PoisonError};

use millrace_wire::Packet;

use self::balance::Lanes;
use self::lane::{Lane, Spreader};

/// Whether workers give packets to each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Spread {
    /// Never: a packet is processed by the worker that received it.
    Off,
    /// When a worker has too much to do and another has not.
    #[default]
    Auto,
    /// From the beginning, evenly, and then as load asks for it.
    Always,
}

/// How one receive queue is spread.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SpreadStats {
    /// The worker that receives.
    pub worker: usize,
    /// True if packets are hashed.
    pub is_on: bool,
    /// How many buckets each worker has.
    pub buckets: Vec<usize>,
    /// Buckets that got another worker, since the port was opened.
    pub moved: u64,
    /// Buckets that were to get another worker and did not, as that took too long.
    pub stayed: u64,
    /// True if all that was asked was dealt with.
    pub is_settled: bool,
}

/// What all queues of a switch have in common: there is one of it where there are several workers that may give packets
/// to each other.
#[derive(Clone)]
pub(crate) struct Spreading {
    pub(crate) lanes: Lanes,
    pub(crate) hash: FlowHash,
    workers: usize,
    spread: Spread,
}

impl Spreading {
    /// `None` where packets stay with the worker that receives them.
    pub(crate) fn new(workers: usize, spread: Spread) -> Option<Spreading> {
        (workers > 1 && spread != Spread::Off).then(|| Spreading {
            lanes: Lanes::default(),
            // Random numbers from the system, by the one way that the standard library has.
            hash: FlowHash::new(RandomState::new().hash_one(0)),
            workers,
            spread,
        })
    }

    /// Returns a queue of a device with so many, which `worker` receives from.
    pub(crate) fn queue<P: Packet>(&self, worker: usize, queues: usize) -> (Arc<Lane>, Box<Spreader<P>>) {
        // What a device spreads over all workers needs no second time, until it turns out that it does not.
        let evenly = self.spread == Spread::Always && queues < self.workers;
        let lane = Lane::new(worker, self.workers, evenly);
        let mut lanes = self.lanes.lock().unwrap_or_else(PoisonError::into_inner);
        lanes.push(Arc::downgrade(&lane));
        let spreader = Spreader::new(Arc::clone(&lane), self.workers, self.hash.clone());
        (lane, Box::new(spreader))
    }
}
