//! Neighbours on the underlay links of tunnels: IP addresses, and the MAC addresses that ARP and neighbour
//! discovery found.
//!
//! This module has no IO and no clock. A wanted address without a known MAC address is requested once a
//! second. A known address is requested again after [`REACHABLE_TIME`], and forgotten after [`MAX_REQUESTS`]
//! requests without an answer. Only wanted addresses are learned, so that a neighbour cannot fill memory.

use std::collections::BTreeMap;
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
}

impl Neighbours {
    /// Sets the wanted addresses, each with the switch's address on the same link. Forgets all other
    /// addresses.
    pub(super) fn set_wanted(&mut self, addresses: &BTreeMap<LinkAddress, IpAddr>) {
        self.wanted.retain(|address, _| addresses.contains_key(address));
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
            if neighbour.unanswered >= MAX_REQUESTS {
                neighbour.mac = None;
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
        neighbour.mac.replace(mac) != Some(mac)
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
