//! Who has which address on the links under tunnels: asked for, refreshed, and forgotten when nobody answers.
//!
//! Without IO and clock. An address is asked for as long as a tunnel wants it, once a second while it is unknown; one
//! that is known is asked for again after [`FRESH`], and forgotten when [`TRIES`] questions had no answer. Only
//! addresses that are wanted are learned, so that a neighbour cannot fill memory.

use std::collections::BTreeMap;
use std::net::IpAddr;

use millrace_types::{Duration, Mac, PortNo, Time};

/// How long an answer is good (RFC 4861 calls it REACHABLE_TIME, and ARP caches do alike).
const FRESH: Duration = Duration::from_secs(30);
/// Between two questions (RFC 1122, section 2.3.2.1: not more than one a second).
const PAUSE: Duration = Duration::from_secs(1);
/// Questions without an answer until an address is forgotten.
const TRIES: u32 = 3;

/// An address on a link, by the port to it.
pub(super) type Place = (PortNo, IpAddr);

struct Neighbour {
    /// Our address, for the question.
    local: IpAddr,
    mac: Option<Mac>,
    confirmed: Time,
    asked: Option<Time>,
    unanswered: u32,
}

/// The neighbours of one bridge.
#[derive(Default)]
pub(super) struct Neighbours {
    wanted: BTreeMap<Place, Neighbour>,
}

impl Neighbours {
    /// These are wanted, with our address on the same link, and no others.
    pub(super) fn want(&mut self, places: &BTreeMap<Place, IpAddr>) {
        self.wanted.retain(|place, _| places.contains_key(place));
        for (place, local) in places {
            let neighbour = self.wanted.entry(*place).or_insert(Neighbour {
                local: *local,
                mac: None,
                confirmed: Time::ZERO,
                asked: None,
                unanswered: 0,
            });
            neighbour.local = *local;
        }
    }

    /// The MAC address of a neighbour, if it is known.
    pub(super) fn mac(&self, place: &Place) -> Option<Mac> {
        self.wanted.get(place)?.mac
    }

    /// What is to be asked now: for whom, by whom. Forgets who has not answered.
    pub(super) fn questions(&mut self, now: Time) -> Vec<(Place, IpAddr)> {
        let mut questions = Vec::new();
        for (place, neighbour) in &mut self.wanted {
            if neighbour.mac.is_some() && now.since(neighbour.confirmed) < FRESH {
                continue;
            }
            if neighbour.asked.is_some_and(|asked| now.since(asked) < PAUSE) {
                continue;
            }
            if neighbour.unanswered >= TRIES {
                neighbour.mac = None;
            }
            neighbour.asked = Some(now);
            neighbour.unanswered = neighbour.unanswered.saturating_add(1);
            questions.push((*place, neighbour.local));
        }
        questions
    }

    /// Somebody said that it has an address. Returns whether that is wanted, and new.
    pub(super) fn heard(&mut self, place: Place, mac: Mac, now: Time) -> bool {
        let Some(neighbour) = self
            .wanted
            .get_mut(&place)
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

    const THERE: Place = (
        PortNo::from_raw(1),
        IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 2)),
    );
    const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));
    const MAC: Mac = Mac([2, 0, 0, 0, 0, 2]);

    fn wanted() -> Neighbours {
        let mut neighbours = Neighbours::default();
        neighbours.want(&[(THERE, HERE)].into());
        neighbours
    }

    fn at(seconds: u64) -> Time {
        Time::from_secs(1000 + seconds)
    }

    #[test]
    fn an_unknown_address_is_asked_for_once_a_second_for_ever() {
        let mut neighbours = wanted();
        for second in 0..100 {
            assert_eq!(neighbours.questions(at(second)), [(THERE, HERE)]);
            assert!(neighbours.questions(at(second)).is_empty());
        }
    }

    #[test]
    fn a_known_address_is_refreshed_and_forgotten_when_nobody_answers() {
        let mut neighbours = wanted();
        assert!(neighbours.heard(THERE, MAC, at(0)) && !neighbours.heard(THERE, MAC, at(1)));
        assert!(neighbours.questions(at(20)).is_empty());
        for second in 31..34 {
            assert_eq!(neighbours.questions(at(second)).len(), 1);
            assert_eq!(neighbours.mac(&THERE), Some(MAC));
        }
        neighbours.questions(at(34));
        assert_eq!(neighbours.mac(&THERE), None);
        assert!(neighbours.heard(THERE, MAC, at(35)));
        assert_eq!(neighbours.mac(&THERE), Some(MAC));
    }

    #[test]
    fn nobody_else_is_learned_and_no_group_address() {
        let mut neighbours = wanted();
        assert!(!neighbours.heard((PortNo::from_raw(2), THERE.1), MAC, at(0)));
        assert!(!neighbours.heard((THERE.0, HERE), MAC, at(0)));
        assert!(!neighbours.heard(THERE, Mac([0xff; 6]), at(0)));
        assert_eq!(neighbours.mac(&THERE), None);
        neighbours.want(&BTreeMap::new());
        assert!(neighbours.questions(at(1)).is_empty());
    }
}
