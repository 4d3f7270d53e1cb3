//! The neighbours of the router, as the observer knows them.
//!
//! The RIB's thread compares them once a second at most, and only after events: a flood of neighbours costs a walk over
//! them in a second, whatever its rate.

use std::collections::BTreeMap;
use std::net::IpAddr;

use millrace_datapath::io::Backend;
use millrace_types::{Duration, Mac, Time};

use super::state::State;
use crate::observe::{Observation, Observer};

/// The least time between two comparisons.
const INTERVAL: Duration = Duration::from_secs(1);

/// A neighbour: VRF, interface and address.
type Key = (String, String, IpAddr);

/// The neighbours that were reported last.
#[derive(Default)]
pub(super) struct NeighbourReports {
    reported: BTreeMap<Key, Mac>,
    /// True if events came since the last comparison.
    is_stale: bool,
    next: Time,
}

impl NeighbourReports {
    /// Notes that neighbours may have changed.
    pub(super) fn note(&mut self) {
        self.is_stale = true;
    }

    /// Reports the neighbours with a MAC address that are new, changed or gone, if a comparison is due.
    pub(super) fn run<B: Backend>(&mut self, state: &State<B>, observer: &Observer, now: Time) {
        if !self.is_stale || now < self.next {
            return;
        }
        (self.is_stale, self.next) = (false, now + INTERVAL);
        let mut present = BTreeMap::new();
        for vrf in state.vrfs.keys() {
            for held in state.neighbours(vrf) {
                let mac = held.mac.filter(|_| held.state.is_valid());
                present.extend(mac.map(|mac| ((vrf.clone(), held.link, held.address), mac)));
            }
        }
        for (change, mac) in changes(&self.reported, &present) {
            let (vrf, interface, address) = change;
            observer(&Observation::RouterNeighbour {
                vrf,
                interface,
                address: *address,
                mac,
            });
        }
        self.reported = present;
    }
}

/// Returns the neighbours that differ, with their new MAC address; `None` for those that are gone.
fn changes<'a>(
    old: &'a BTreeMap<Key, Mac>,
    new: &'a BTreeMap<Key, Mac>,
) -> impl Iterator<Item = (&'a Key, Option<Mac>)> {
    let gone = old.keys().filter(|key| !new.contains_key(*key));
    let changed = new.iter().filter(|(key, mac)| old.get(*key) != Some(*mac));
    gone.map(|key| (key, None))
        .chain(changed.map(|(key, mac)| (key, Some(*mac))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_neighbours_that_differ_are_reported() {
        let key = |last: u8| {
            (
                "blue".to_owned(),
                "v10".to_owned(),
                IpAddr::from([10, 0, 10, last]),
            )
        };
        let mac = |last: u8| Mac([2, 0, 0, 0, 0, last]);
        let old = [(key(1), mac(1)), (key(2), mac(2)), (key(3), mac(3))].into();
        let new = [(key(2), mac(2)), (key(3), mac(9)), (key(4), mac(4))].into();
        let found: Vec<_> = changes(&old, &new).map(|(key, mac)| (key.2, mac)).collect();
        assert_eq!(
            found,
            [
                (key(1).2, None),
                (key(3).2, Some(mac(9))),
                (key(4).2, Some(mac(4)))
            ]
        );
    }
}
