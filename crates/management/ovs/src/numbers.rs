//! OpenFlow port numbers of interfaces. They are the same after a restart, or every flow entry of a controller would name
//! another port.
//!
//! As in Open vSwitch, a running interface keeps its number; a free `ofport_request` decides for any other, then a free
//! `ofport`, which the database has from an earlier run; then the next number that was not given before, so that flow entries
//! of a removed port do not hit another one soon.

use std::collections::{BTreeMap, BTreeSet};

use millrace_ovsdb::Uuid;
use millrace_types::PortNo;

/// The highest number that is given without a request, as in Open vSwitch: the upper half is left to requests.
const AUTOMATIC_MAX: u32 = 32_767;

/// The highest number of a port in Open vSwitch (`OFPP_MAX` of OpenFlow 1.0).
const MAX: u32 = 0xfeff;

/// The numbers of the interfaces of each bridge.
#[derive(Debug, Clone, Default)]
pub struct Numbers(BTreeMap<Uuid, Bridge>);

#[derive(Debug, Clone, Default)]
struct Bridge {
    given: BTreeMap<Uuid, u32>,
    /// The numbers in `given`, which differ.
    taken: BTreeSet<u32>,
    /// Interfaces that never became ports.
    failed: BTreeSet<Uuid>,
    /// Numbers of removed interfaces that never became ports.
    unseen: BTreeSet<u32>,
    /// The number that was given last without a request.
    last: u32,
}

/// An interface or a bond that needs a number.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Request {
    /// The row of the interface, or of the port of a bond.
    pub(crate) row: Uuid,
    /// `ofport_request`.
    pub(crate) wanted: Option<i64>,
    /// `ofport` of an earlier run.
    pub(crate) earlier: Option<i64>,
}

fn valid(number: Option<i64>) -> Option<u32> {
    number
        .and_then(|number| u32::try_from(number).ok())
        .filter(|number| (1..=MAX).contains(number))
}

impl Bridge {
    fn is_free(&self, number: u32) -> bool {
        !self.taken.contains(&number)
    }

    /// Gives an interface a number that is free.
    fn give(&mut self, interface: Uuid, number: u32) {
        self.taken.insert(number);
        if let Some(before) = self.given.insert(interface, number) {
            self.taken.remove(&before);
        }
    }

    /// Takes a number back. Nobody saw that of an interface which never became a port, so it is given again.
    fn release(&mut self, interface: Uuid) {
        let (number, has_failed) = (self.given.remove(&interface), self.failed.remove(&interface));
        if let Some(number) = number {
            self.taken.remove(&number);
            if has_failed {
                self.unseen.insert(number);
            }
        }
        while self.unseen.remove(&self.last) {
            self.last -= 1;
        }
    }

    fn next(&mut self) -> Option<u32> {
        let first = self.last + 1;
        let number = (first..=AUTOMATIC_MAX)
            .chain(1..first)
            .find(|number| self.is_free(*number))?;
        self.unseen.remove(&number);
        self.last = number;
        Some(number)
    }
}

impl Numbers {
    /// Forgets the bridges and interfaces that are not in `bridges`.
    pub(crate) fn retain(&mut self, bridges: &[Uuid]) {
        self.0.retain(|uuid, _| bridges.contains(uuid));
    }

    /// Notes that an interface became a port of its bridge, or could not.
    pub fn note(&mut self, bridge: Uuid, interface: Uuid, is_port: bool) {
        if let Some(bridge) = self.0.get_mut(&bridge) {
            match is_port {
                true => drop(bridge.failed.remove(&interface)),
                false => drop(bridge.failed.insert(interface)),
            }
        }
    }

    /// Returns the numbers of the interfaces of a bridge; an interface is left out if no number is free.
    pub(crate) fn assign(&mut self, bridge: Uuid, requests: &[Request]) -> BTreeMap<Uuid, PortNo> {
        let bridge = self.0.entry(bridge).or_default();
        let wanted: BTreeSet<Uuid> = requests.iter().map(|request| request.row).collect();
        let known = bridge.given.keys();
        let gone: Vec<Uuid> = known.filter(|known| !wanted.contains(known)).copied().collect();
        for interface in gone {
            bridge.release(interface);
        }
        for Request { row, wanted, .. } in requests {
            if let Some(wanted) = valid(*wanted).filter(|wanted| bridge.is_free(*wanted)) {
                bridge.give(*row, wanted);
            }
        }
        for Request { row, earlier, .. } in requests {
            let earlier = valid(*earlier).filter(|earlier| bridge.is_free(*earlier));
            if let Some(earlier) = earlier.filter(|_| !bridge.given.contains_key(row)) {
                bridge.give(*row, earlier);
                if earlier <= AUTOMATIC_MAX {
                    bridge.last = bridge.last.max(earlier);
                }
            }
        }
        for Request { row, .. } in requests {
            if !bridge.given.contains_key(row)
                && let Some(number) = bridge.next()
            {
                bridge.give(*row, number);
            }
        }
        let numbers = bridge.given.iter();
        numbers
            .map(|(uuid, number)| (*uuid, PortNo::from_raw(*number)))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: u128) -> Uuid {
        Uuid::from_u128(number)
    }

    fn assigned(numbers: &mut Numbers, requests: &[(u128, Option<i64>, Option<i64>)]) -> Vec<(u128, u32)> {
        let wanted: Vec<_> = requests
            .iter()
            .map(|(interface, wanted, earlier)| Request {
                row: id(*interface),
                wanted: *wanted,
                earlier: *earlier,
            })
            .collect();
        let given = numbers.assign(id(99), &wanted);
        requests
            .iter()
            .filter_map(|(interface, ..)| Some((*interface, given.get(&id(*interface))?.raw())))
            .collect()
    }

    #[test]
    fn numbers_ascend_and_one_that_became_free_is_not_given_again_soon() {
        let mut numbers = Numbers::default();
        assert_eq!(
            assigned(&mut numbers, &[(1, None, None), (2, None, None)]),
            [(1, 1), (2, 2)]
        );
        assert_eq!(assigned(&mut numbers, &[(1, None, None)]), [(1, 1)]);
        assert_eq!(
            assigned(&mut numbers, &[(1, None, None), (3, None, None)]),
            [(1, 1), (3, 3)]
        );
    }

    #[test]
    fn the_number_of_an_interface_that_never_became_a_port_is_given_to_the_next_one() {
        let mut numbers = Numbers::default();
        assert_eq!(
            assigned(&mut numbers, &[(1, None, None), (2, None, None)]),
            [(1, 1), (2, 2)]
        );
        numbers.note(id(99), id(2), false);
        assert_eq!(assigned(&mut numbers, &[(1, None, None)]), [(1, 1)]);
        assert_eq!(
            assigned(&mut numbers, &[(1, None, None), (3, None, None)]),
            [(1, 1), (3, 2)]
        );
        assert_eq!(
            assigned(&mut numbers, &[(1, None, None), (3, None, None), (5, None, None)]).last(),
            Some(&(5, 3))
        );
        for interface in [3, 5] {
            numbers.note(id(99), id(interface), false);
        }
        assert_eq!(
            assigned(&mut numbers, &[(1, None, None), (5, None, None)]),
            [(1, 1), (5, 3)]
        );
        assert_eq!(assigned(&mut numbers, &[(1, None, None)]), [(1, 1)]);
        assert_eq!(
            assigned(&mut numbers, &[(1, None, None), (3, None, None)]),
            [(1, 1), (3, 2)],
            "in whatever order they go"
        );
        numbers.note(id(99), id(3), true);
        assert_eq!(
            assigned(&mut numbers, &[(1, None, None), (4, None, None)]),
            [(1, 1), (4, 3)]
        );
    }

    #[test]
    fn a_request_is_met_if_it_is_free_and_moves_a_running_interface() {
        let mut numbers = Numbers::default();
        assert_eq!(
            assigned(&mut numbers, &[(1, None, None), (2, Some(10), None)]),
            [(1, 1), (2, 10)]
        );
        assert_eq!(
            assigned(&mut numbers, &[(1, Some(10), None), (2, Some(10), None)]),
            [(1, 1), (2, 10)]
        );
        assert_eq!(
            assigned(&mut numbers, &[(1, Some(20), None), (2, Some(10), None)]),
            [(1, 20), (2, 10)]
        );
        assert_eq!(
            assigned(&mut numbers, &[(1, Some(0), None), (2, Some(70_000), None)]),
            [(1, 20), (2, 10)]
        );
    }

    #[test]
    fn numbers_of_an_earlier_run_return_and_new_ones_follow_them() {
        let mut numbers = Numbers::default();
        let requests = [
            (1, None, Some(7)),
            (2, None, None),
            (3, Some(7), None),
            (4, None, Some(-1)),
        ];
        assert_eq!(
            assigned(&mut numbers, &requests),
            [(1, 1), (2, 2), (3, 7), (4, 3)],
            "a request goes first"
        );
        let mut numbers = Numbers::default();
        assert_eq!(
            assigned(&mut numbers, &[(1, None, Some(7)), (2, None, None)]),
            [(1, 7), (2, 8)]
        );
    }
}
