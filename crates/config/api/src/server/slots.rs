//! Slots for connections: a limit in total, a limit for each client, and a few slots for probes.
//!
//! ```text
//! accept ── a slot is free, and the client is below its limit ──> all resources
//!        └─ otherwise ──> a probe slot: /health and /ready, one response; the oldest probe is closed for it
//! ```
//!
//! Probe slots keep health checks working while clients hold all other slots. If all probe slots are in use,
//! a new probe closes the oldest one, so silent connections cannot hold probe slots. Each probe ends with its
//! response.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::task::AbortHandle;

use super::peer::Peer;

/// The slots of one listener.
#[derive(Debug, Clone)]
pub(super) struct ConnectionSlots {
    total: usize,
    per_peer: usize,
    occupancy: Arc<Mutex<Occupancy>>,
}

#[derive(Debug, Default)]
struct Occupancy {
    total: usize,
    by_peer: HashMap<Peer, usize>,
}

/// An occupied slot, released on drop.
#[derive(Debug)]
pub(super) struct Slot {
    quota_key: Peer,
    occupancy: Arc<Mutex<Occupancy>>,
}

impl ConnectionSlots {
    pub(super) fn new(total: usize, per_peer: usize) -> ConnectionSlots {
        ConnectionSlots {
            total,
            per_peer,
            occupancy: Arc::default(),
        }
    }

    /// Returns a slot for `peer`, or `None` if all are occupied or the client is at its limit.
    pub(super) fn acquire(&self, peer: Peer) -> Option<Slot> {
        let quota_key = peer.quota_key();
        let mut occupancy = self.occupancy.lock().unwrap_or_else(PoisonError::into_inner);
        let count = occupancy.by_peer.get(&quota_key).copied().unwrap_or(0);
        if occupancy.total >= self.total || count >= self.per_peer {
            return None;
        }
        occupancy.total += 1;
        occupancy.by_peer.insert(quota_key, count + 1);
        Some(Slot {
            quota_key,
            occupancy: Arc::clone(&self.occupancy),
        })
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut occupancy = self.occupancy.lock().unwrap_or_else(PoisonError::into_inner);
        occupancy.total = occupancy.total.saturating_sub(1);
        match occupancy.by_peer.get_mut(&self.quota_key) {
            Some(count) if *count > 1 => *count -= 1,
            _ => {
                occupancy.by_peer.remove(&self.quota_key);
            }
        }
    }
}

/// The connections without a slot, oldest first.
#[derive(Debug)]
pub(super) struct ProbeConnections {
    len_max: usize,
    open: VecDeque<AbortHandle>,
}

impl ProbeConnections {
    pub(super) fn new(len_max: usize) -> ProbeConnections {
        ProbeConnections {
            len_max,
            open: VecDeque::new(),
        }
    }

    /// Adds a connection; aborts the oldest ones above the limit.
    pub(super) fn add(&mut self, probe: AbortHandle) {
        self.open.retain(|probe| !probe.is_finished());
        self.open.push_back(probe);
        while self.open.len() > self.len_max {
            if let Some(oldest) = self.open.pop_front() {
                oldest.abort();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_party_gets_its_own_number_of_places_and_all_together_no_more_than_there_are() {
        let slots = ConnectionSlots::new(3, 2);
        let of = |host: u8| Peer::Address([10, 0, 0, host].into());
        let mut held = vec![slots.acquire(of(1)).unwrap(), slots.acquire(of(1)).unwrap()];
        assert!(slots.acquire(of(1)).is_none());
        held.push(slots.acquire(of(2)).unwrap());
        assert!(slots.acquire(of(3)).is_none());
        held.remove(0);
        assert!(slots.acquire(of(3)).is_some());
        held.clear();
        assert_eq!(slots.occupancy.lock().unwrap().by_peer.len(), 0);
    }

    #[tokio::test]
    async fn the_oldest_probe_makes_room() {
        let mut probes = ProbeConnections::new(2);
        let tasks: Vec<_> = (0..3)
            .map(|_| tokio::spawn(std::future::pending::<()>()))
            .collect();
        tasks.iter().for_each(|task| probes.add(task.abort_handle()));
        let mut tasks = tasks.into_iter();
        assert!(tasks.next().unwrap().await.unwrap_err().is_cancelled());
        assert!(tasks.all(|task| !task.is_finished()));
    }
}
