//! Neighbours on the underlay links of tunnels: IP addresses, and the MAC addresses that ARP and neighbour
//! discovery found.
//!
//! This module has no IO and no clock. A wanted address without a known MAC address is requested once a
//! second. A known address is requested again after [`REACHABLE_TIME`], and forgotten after [`MAX_REQUESTS`]
//! requests without an answer. Only wanted addresses are learned, so that a neighbour cannot fill memory.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use millrace_types::{Duration, Mac, PortNo, Time};

/// Validity of an answer (RFC 4861, section 10, `REACHABLE_TIME`).
const REACHABLE_TIME: Duration = Duration::from_secs(30);
/// Minimum time between two requests for an address (RFC 1122, section 2.3.2.1: at most one a second).
const REQUEST_INTERVAL: Duration = Duration::from_secs(1);
/// Requests without an answer after which an address is forgotten.
const MAX_REQUESTS: u32 = 3;

/// An IP address on a link, and the port to that link.
pub(super) type LinkAddress = (PortNo, IpAddr);

struct Neighbour {
    /// The switch's address on the link, the source of requests.
    local: IpAddr,
    mac: Option<Mac>,
    confirmed: Time,
    requested: Option<Time>,
    unanswered: u32,
}

/// The neighbours of one bridge.
#[derive(Default)]
pub(super) struct Neighbours {
    wanted: BTreeMap<LinkAddress, Neighbour>,
    /// Addresses whose MAC address changed, since the last call of [`Neighbours::take_changes`].
    changed: BTreeSet<LinkAddress>,
}

impl Neighbours {
    /// Sets the wanted addresses, each with the switch's address on the same link. Forgets all other
    /// addresses.
    pub(super) fn set_wanted(&mut self, addresses: &BTreeMap<LinkAddress, IpAddr>) {
        let changed = &mut self.changed;
        self.wanted.retain(|address, neighbour| {
            let stays = addresses.contains_key(address);
            if !stays && neighbour.mac.is_some() {
                changed.insert(*address);
            }
            stays
        });
        for (address, local) in addresses {
            let neighbour = self.wanted.entry(*address).or_insert(Neighbour {
                local: *local,
                mac: None,
                confirmed: Time::ZERO,
                requested: None,
                unanswered: 0,
            });
            neighbour.local = *local;
        }
    }

    /// Returns the MAC address of a neighbour, if it is known.
    pub(super) fn mac(&self, address: &LinkAddress) -> Option<Mac> {
        self.wanted.get(address)?.mac
    }

    /// Returns the addresses to request at `now`, each with the switch's address on the link. Forgets neighbours that
    /// did not answer.
    pub(super) fn due_requests(&mut self, now: Time) -> Vec<(LinkAddress, IpAddr)> {
        let mut due = Vec::new();
        for (address, neighbour) in &mut self.wanted {
            if neighbour.mac.is_some() && now.since(neighbour.confirmed) < REACHABLE_TIME {
                continue;
            }
            if neighbour
                .requested
                .is_some_and(|requested| now.since(requested) < REQUEST_INTERVAL)
            {
                continue;
            }
            if neighbour.unanswered >= MAX_REQUESTS && neighbour.mac.take().is_some() {
                self.changed.insert(*address);
            }
            neighbour.requested = Some(now);
            neighbour.unanswered = neighbour.unanswered.saturating_add(1);
            due.push((*address, neighbour.local));
        }
        due
    }

    /// Records that a neighbour sent its MAC address. Returns true if the address is wanted, and the MAC address is new.
    pub(super) fn confirm(&mut self, address: LinkAddress, mac: Mac, now: Time) -> bool {
        let Some(neighbour) = self
            .wanted
            .get_mut(&address)
            .filter(|_| !mac.is_multicast() && mac != Mac::ZERO)
        else {
            return false;
        };
        neighbour.confirmed = now;
        neighbour.unanswered = 0;
        let is_new = neighbour.mac.replace(mac) != Some(mac);
        if is_new {
            self.changed.insert(address);
        }
        is_new
    }

    /// Returns the addresses whose MAC address changed since the last call, each with the present one.
    pub(super) fn take_changes(&mut self) -> Vec<(LinkAddress, Option<Mac>)> {
        let changed = std::mem::take(&mut self.changed);
        changed
            .into_iter()
            .map(|address| (address, self.mac(&address)))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REMOTE: LinkAddress = (
        PortNo::from_raw(1),
        IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 2)),
    );
    const LOCAL: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));
    const MAC: Mac = Mac([2, 0, 0, 0, 0, 2]);

    fn wanted() -> Neighbours {
        let mut neighbours = Neighbours::default();
        neighbours.set_wanted(&[(REMOTE, LOCAL)].into());
        neighbours
    }

    fn at(seconds: u64) -> Time {
        Time::from_secs(1000 + seconds)
    }

    #[test]
    fn an_unknown_address_is_requested_once_a_second_for_ever() {
        let mut neighbours = wanted();
        for second in 0..100 {
            assert_eq!(neighbours.due_requests(at(second)), [(REMOTE, LOCAL)]);
            assert!(neighbours.due_requests(at(second)).is_empty());
        }
    }

    #[test]
    fn a_known_address_is_refreshed_and_forgotten_when_nobody_answers() {
        let mut neighbours = wanted();
        assert!(neighbours.confirm(REMOTE, MAC, at(0)) && !neighbours.confirm(REMOTE, MAC, at(1)));
        assert!(neighbours.due_requests(at(20)).is_empty());
        for second in 31..34 {
            assert_eq!(neighbours.due_requests(at(second)).len(), 1);
            assert_eq!(neighbours.mac(&REMOTE), Some(MAC));
        }
        neighbours.due_requests(at(34));
        assert_eq!(neighbours.mac(&REMOTE), None);
        assert!(neighbours.confirm(REMOTE, MAC, at(35)));
        assert_eq!(neighbours.mac(&REMOTE), Some(MAC));
    }

    #[test]
    fn each_change_of_a_mac_address_is_reported_once() {
        let mut neighbours = wanted();
        neighbours.confirm(REMOTE, MAC, at(0));
        neighbours.confirm(REMOTE, MAC, at(1));
        assert_eq!(neighbours.take_changes(), [(REMOTE, Some(MAC))]);
        assert_eq!(neighbours.take_changes(), []);
        for second in 31..40 {
            neighbours.due_requests(at(second));
        }
        assert_eq!(neighbours.take_changes(), [(REMOTE, None)]);
        neighbours.confirm(REMOTE, MAC, at(41));
        neighbours.set_wanted(&BTreeMap::new());
        assert_eq!(neighbours.take_changes(), [(REMOTE, None)]);
    }

    #[test]
    fn only_wanted_addresses_are_learned_and_no_group_address() {
        let mut neighbours = wanted();
        assert!(!neighbours.confirm((PortNo::from_raw(2), REMOTE.1), MAC, at(0)));
        assert!(!neighbours.confirm((REMOTE.0, LOCAL), MAC, at(0)));
        assert!(!neighbours.confirm(REMOTE, Mac([0xff; 6]), at(0)));
        assert_eq!(neighbours.mac(&REMOTE), None);
        neighbours.set_wanted(&BTreeMap::new());
        assert!(neighbours.due_requests(at(1)).is_empty());
    }
}
