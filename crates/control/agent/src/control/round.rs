//! A slow round over the ports of a bridge: a part of them at each tick, so that thousands make no burst of work.

use std::collections::BTreeSet;
use std::ops::Bound;

use millrace_types::PortNo;

/// The place in a round.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Round {
    /// The last port of the part before.
    last: Option<PortNo>,
}

impl Round {
    /// Returns the next part of the ports, such that `parts` calls return each of them.
    pub(super) fn next(&mut self, ports: &BTreeSet<PortNo>, parts: usize) -> Vec<PortNo> {
        let after = self.last.map_or(Bound::Unbounded, Bound::Excluded);
        let part = ports.range((after, Bound::Unbounded)).copied();
        let part: Vec<PortNo> = part.take(ports.len().div_ceil(parts)).collect();
        self.last = part.last().copied();
        part
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_has_each_port_once_and_begins_again() {
        let ports = |numbers: &[u32]| {
            let numbers = numbers.iter().copied().map(PortNo::from_raw);
            numbers.collect::<BTreeSet<_>>()
        };
        let mut round = Round::default();
        let mut next = |numbers| {
            let part = round.next(&ports(numbers), 2).into_iter();
            part.map(PortNo::raw).collect::<Vec<_>>()
        };
        assert_eq!(next(&[1, 2, 5]), [1, 2]);
        assert_eq!(next(&[1, 2, 5]), [5]);
        assert_eq!(next(&[1, 2, 5]), [0_u32; 0], "the round ends");
        assert_eq!(next(&[1, 2, 5, 6]), [1, 2]);
        assert_eq!(
            next(&[1, 5, 6]),
            [5, 6],
            "a port that is gone is no place to stop"
        );
    }
}
