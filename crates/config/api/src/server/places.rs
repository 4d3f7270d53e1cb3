//! Places for connections: so many in all, so many for each party, and some for probes.
//!
//! ```text
//! accept ── a place of the listener is free, and the party has fewer than its own limit ──> the whole service
//!        └─ otherwise ──> a probe place: /health and /ready, one answer, soon; the oldest probe makes room
//! ```
//!
//! The probe places are why the switch tells that it lives while somebody holds every other place: a connection that
//! says nothing is the first to go when another one comes, and a probe is answered as soon as it has asked.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::task::AbortHandle;

use super::peer::Peer;

/// The places of one listener.
#[derive(Debug, Clone)]
pub(super) struct Places {
    all: usize,
    of_party: usize,
    taken: Arc<Mutex<Taken>>,
}

#[derive(Debug, Default)]
struct Taken {
    all: usize,
    of: HashMap<Peer, usize>,
}

/// A place, given back on drop.
#[derive(Debug)]
pub(super) struct Place {
    party: Peer,
    taken: Arc<Mutex<Taken>>,
}

impl Places {
    pub(super) fn new(all: usize, of_party: usize) -> Places {
        Places {
            all,
            of_party,
            taken: Arc::default(),
        }
    }

    /// A place for `peer`; `None` if all are taken, or its party has as many as it may.
    pub(super) fn take(&self, peer: Peer) -> Option<Place> {
        let party = peer.party();
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let held = taken.of.get(&party).copied().unwrap_or(0);
        if taken.all >= self.all || held >= self.of_party {
            return None;
        }
        taken.all += 1;
        taken.of.insert(party, held + 1);
        Some(Place {
            party,
            taken: Arc::clone(&self.taken),
        })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        taken.all = taken.all.saturating_sub(1);
        match taken.of.get_mut(&self.party) {
            Some(held) if *held > 1 => *held -= 1,
            _ => {
                taken.of.remove(&self.party);
            }
        }
    }
}

/// The connections beyond the places, oldest first.
#[derive(Debug)]
pub(super) struct Probes {
    len_max: usize,
    open: VecDeque<AbortHandle>,
}

impl Probes {
    pub(super) fn new(len_max: usize) -> Probes {
        Probes {
            len_max,
            open: VecDeque::new(),
        }
    }

    /// Adds one; ends the oldest that are too many.
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
        let places = Places::new(3, 2);
        let of = |host: u8| Peer::Address([10, 0, 0, host].into());
        let mut held = vec![places.take(of(1)).unwrap(), places.take(of(1)).unwrap()];
        assert!(places.take(of(1)).is_none());
        held.push(places.take(of(2)).unwrap());
        assert!(places.take(of(3)).is_none());
        held.remove(0);
        assert!(places.take(of(3)).is_some());
        held.clear();
        assert_eq!(places.taken.lock().unwrap().of.len(), 0);
    }

    #[tokio::test]
    async fn the_oldest_probe_makes_room() {
        let mut probes = Probes::new(2);
        let tasks: Vec<_> = (0..3)
            .map(|_| tokio::spawn(std::future::pending::<()>()))
            .collect();
        tasks.iter().for_each(|task| probes.add(task.abort_handle()));
        let mut tasks = tasks.into_iter();
        assert!(tasks.next().unwrap().await.unwrap_err().is_cancelled());
        assert!(tasks.all(|task| !task.is_finished()));
    }
}
