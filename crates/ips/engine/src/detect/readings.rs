//! The rules that matched messages with several readings: a rule raises one alert for a message, however many readings match.

use std::collections::VecDeque;

use crate::flow::Direction;

/// Largest number of matches that are kept; the oldest make room for others.
const MATCHES_MAX: usize = 1024;

/// A match of a rule on a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Match {
    direction: Direction,
    /// Offset of the first byte of the message in its stream.
    begin: u64,
    rule: u32,
}

/// The matches of a flow on messages with several readings.
#[derive(Debug, Default)]
pub(super) struct Readings(VecDeque<Match>);

impl Readings {
    /// Adds a match, and returns true if it is the first one of the rule on the message.
    pub(super) fn add(&mut self, direction: Direction, begin: u64, rule: u32) -> bool {
        let new = Match {
            direction,
            begin,
            rule,
        };
        if self.0.iter().rev().any(|known| *known == new) {
            return false;
        }
        if self.0.len() >= MATCHES_MAX {
            self.0.pop_front();
        }
        self.0.push_back(new);
        true
    }

    /// Removes all matches, and keeps the memory.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// Exchanges the directions.
    pub(super) fn turn(&mut self) {
        for known in &mut self.0 {
            known.direction = known.direction.reverse();
        }
    }

    /// Renumbers the rules with `stays`, which returns false for a removed rule.
    pub(super) fn renumber(&mut self, stays: impl Fn(&mut u32) -> bool) {
        self.0.retain_mut(|known| stays(&mut known.rule));
    }

    /// Returns the bytes that the list has allocated.
    pub(super) fn heap(&self) -> usize {
        self.0.capacity() * size_of::<Match>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_matches_a_message_once_and_the_list_is_bounded() {
        let mut readings = Readings::default();
        assert!(readings.add(Direction::ToServer, 7, 1));
        assert!(!readings.add(Direction::ToServer, 7, 1));
        assert!(readings.add(Direction::ToClient, 7, 1) && readings.add(Direction::ToServer, 8, 1));
        for rule in 0..10 * MATCHES_MAX as u32 {
            readings.add(Direction::ToServer, 9, rule);
        }
        assert_eq!(readings.0.len(), MATCHES_MAX);
    }
}
