//! Rates of rules: `threshold`, `detection_filter`, and the rows of the threshold table.

use core::cmp::Ordering;
use core::net::IpAddr;
use std::collections::HashMap;

use millrace_ips_rules::header::Action;
use millrace_ips_rules::options::state::{Rate, RateKind, SuppressTrack, Track};
use millrace_types::Time;

use super::conditions::has_address;
use super::program::ThresholdTest;
use crate::packet::Packet;

/// The key of a counter: the rule, the index of one of its rates, and the address, pair or flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Key {
    rule: (u32, u32),
    /// Index of the rate in the rule.
    rate: u32,
    first: Option<IpAddr>,
    second: Option<IpAddr>,
    flow: u64,
}

#[derive(Debug, Clone, Copy)]
struct Counter {
    start: Time,
    /// The duration of the interval, in nanoseconds.
    interval: u64,
    count: u32,
    /// The time until which another action is in use.
    until: Time,
}

impl Counter {
    /// Returns true if the counter is no longer needed.
    fn is_over(&self, now: Time) -> bool {
        let end = self.start.nanos().saturating_add(self.interval);
        now.nanos() >= end.max(self.until.nanos())
    }
}

/// The counters of a lane.
#[derive(Debug, Default)]
pub(super) struct Rates {
    counters: HashMap<Key, Counter>,
    /// Largest number of counters that are kept at a time.
    limit: usize,
    /// Number of counters that were lost because there was no room.
    pub(super) lost: u64,
}

/// The rule, the packet and the flow for which a rate is counted.
#[derive(Debug, Clone, Copy)]
pub(super) struct Subject<'a> {
    /// Generator and number of the rule. They remain valid when a reload changes its index.
    pub(super) rule: (u32, u32),
    pub(super) packet: &'a Packet<'a>,
    pub(super) flow: u64,
}

/// The outcome of the threshold table for a match.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    /// An alert is raised, with another action if the option is set.
    Alert(Option<Action>),
    /// The rule matched, but raises no alert; its action is applied.
    Silent,
    /// The rule did not match often enough: it raises no alert, and its action is not applied.
    Below,
}

fn key(subject: Subject<'_>, rate: u32, track: Track) -> Key {
    let Subject { rule, packet, flow } = subject;
    let (first, second, flow) = match track {
        Track::Source => (Some(packet.src), None, 0),
        Track::Destination => (Some(packet.dst), None, 0),
        Track::Rule => (None, None, 0),
        Track::Both => (
            Some(packet.src.min(packet.dst)),
            Some(packet.src.max(packet.dst)),
            0,
        ),
        Track::Flow => (None, None, flow),
    };
    Key {
        rule,
        rate,
        first,
        second,
        flow,
    }
}

/// Returns true for the numbers of matches at which a backoff raises alerts: the first, then each time its multiple.
fn is_step(count: u32, rate: &Rate) -> bool {
    let next = |step: &u32| step.checked_mul(rate.multiplier).filter(|next| next > step);
    core::iter::successors(Some(rate.count), next).any(|step| step == count)
}

fn seconds(seconds: u32) -> u64 {
    u64::from(seconds) * 1_000_000_000
}

impl Rates {
    /// Returns an empty table that keeps at most `limit` counters.
    pub(super) fn new(limit: usize) -> Rates {
        Rates {
            limit,
            ..Rates::default()
        }
    }

    /// Returns the counter of a key, increased by one. Its interval contains the time of the packet.
    fn count(&mut self, key: Key, rate: &Rate, now: Time) -> &mut Counter {
        let interval = match rate.kind {
            // A backoff counts for as long as its flow.
            Some(RateKind::Backoff) => u64::MAX,
            _ => seconds(rate.seconds),
        };
        if self.counters.len() >= self.limit && !self.counters.contains_key(&key) {
            self.make_room(now);
        }
        let counter = self.counters.entry(key).or_insert(Counter {
            start: now,
            interval,
            count: 0,
            until: Time::from_nanos(0),
        });
        // A reload may have changed the rate of the rule.
        counter.interval = interval;
        let is_over = now.nanos() >= counter.start.nanos().saturating_add(interval);
        // An old capture that is read after a newer one begins new intervals; reordered packets do not.
        let is_before = now.nanos().saturating_add(interval) < counter.start.nanos();
        if is_over || is_before {
            counter.start = now;
            counter.count = 0;
        }
        counter.count = counter.count.saturating_add(1);
        counter
    }

    /// Removes the counters that are over. If those are few, it also removes the half with the lowest counts;
    /// of equal counts, those that began first. A flood of packets from new addresses thus cannot remove the
    /// counter of a repeated attack, and the table is searched at most once for each eighth of its size that
    /// is filled.
    #[cold]
    fn make_room(&mut self, now: Time) {
        self.counters.retain(|_, counter| !counter.is_over(now));
        if self.counters.len() <= self.limit - self.limit.div_ceil(8) {
            return;
        }
        let before = self.counters.len();
        let rank = |counter: &Counter| (counter.count, counter.start);
        let mut ranks: Vec<(u32, Time)> = self.counters.values().map(rank).collect();
        let half = ranks.len() / 2;
        if half < ranks.len() {
            let median = *ranks.select_nth_unstable(half).1;
            self.counters.retain(|_, counter| rank(counter) > median);
        }
        self.lost += (before - self.counters.len()) as u64;
    }

    /// Counts a match, and returns what becomes of it.
    fn limit(&mut self, subject: Subject<'_>, index: u32, rate: &Rate) -> Outcome {
        let key = key(subject, index, rate.track);
        let counter = self.count(key, rate, subject.packet.time);
        let order = counter.count.cmp(&rate.count);
        match (rate.kind, order) {
            (Some(RateKind::Limit), Ordering::Greater) => Outcome::Silent,
            (Some(RateKind::Limit), _) => Outcome::Alert(None),
            (Some(RateKind::Both), Ordering::Greater) => Outcome::Silent,
            (Some(RateKind::Both | RateKind::Threshold), Ordering::Less) => Outcome::Below,
            (Some(RateKind::Both), Ordering::Equal) => Outcome::Alert(None),
            (Some(RateKind::Threshold), _) => {
                counter.count = 0;
                Outcome::Alert(None)
            }
            (Some(RateKind::Backoff), Ordering::Less) => Outcome::Below,
            (Some(RateKind::Backoff), _) => match is_step(counter.count, rate) {
                true => Outcome::Alert(None),
                false => Outcome::Silent,
            },
            (None, Ordering::Greater) => Outcome::Alert(None),
            (None, _) => Outcome::Below,
        }
    }

    /// Applies the rates and suppressions of a rule to a match.
    pub(super) fn apply(&mut self, subject: Subject<'_>, tests: &[ThresholdTest]) -> Outcome {
        let mut action = None;
        // Suppressions, which count nothing, do not change the indexes of the rates.
        let mut rates = 0..;
        let mut index = || rates.next().unwrap_or(u32::MAX);
        for test in tests {
            match test {
                ThresholdTest::Suppress(None) => return Outcome::Silent,
                ThresholdTest::Suppress(Some((track, ranges))) => {
                    let is_source = || has_address(ranges, subject.packet.src);
                    let is_destination = || has_address(ranges, subject.packet.dst);
                    let is_suppressed = match track {
                        SuppressTrack::Source => is_source(),
                        SuppressTrack::Destination => is_destination(),
                        SuppressTrack::Either => is_source() || is_destination(),
                    };
                    if is_suppressed {
                        return Outcome::Silent;
                    }
                }
                ThresholdTest::Limit(rate) => match self.limit(subject, index(), rate) {
                    Outcome::Alert(_) => {}
                    outcome => return outcome,
                },
                ThresholdTest::RateFilter {
                    rate,
                    new_action,
                    timeout,
                } => {
                    let now = subject.packet.time;
                    let key = key(subject, index(), rate.track);
                    let counter = self.count(key, rate, now);
                    if counter.count > rate.count {
                        let until = now.nanos().saturating_add(seconds(*timeout));
                        counter.until = Time::from_nanos(until);
                    }
                    if now.nanos() < counter.until.nanos() {
                        action = Some(*new_action);
                    }
                }
            }
        }
        Outcome::Alert(action)
    }

    /// Forgets all counters.
    pub(super) fn clear(&mut self) {
        self.counters.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(address: u32) -> Key {
        Key {
            rule: (1, 1),
            rate: 0,
            first: Some(IpAddr::from(address.to_be_bytes())),
            second: None,
            flow: 0,
        }
    }

    fn rate(seconds: u32) -> Rate {
        Rate {
            kind: None,
            track: Track::Source,
            count: 10,
            seconds,
            multiplier: 0,
        }
    }

    #[test]
    fn a_backoff_alerts_at_its_count_and_at_each_multiple() {
        for (count, multiplier, expected) in [
            (1, 10, vec![1, 10, 100, 1000]),
            (1, 2, vec![1, 2, 4, 8, 16, 32, 64, 128, 256, 512]),
            (5, 5, vec![5, 25, 125, 625]),
            (3, 1, vec![3]),
        ] {
            let rate = Rate {
                kind: Some(RateKind::Backoff),
                track: Track::Flow,
                count,
                seconds: 0,
                multiplier,
            };
            let steps: Vec<u32> = (1..=1000).filter(|at| is_step(*at, &rate)).collect();
            assert_eq!(steps, expected);
        }
    }

    #[test]
    fn counters_that_are_over_make_room_each_by_its_own_interval() {
        let mut rates = Rates::new(4);
        rates.count(key(1), &rate(3600), Time::from_secs(0));
        for address in 2..5 {
            rates.count(key(address), &rate(1), Time::from_secs(0));
        }
        // The new counter, for which there is no room, also has a short interval.
        rates.count(key(5), &rate(1), Time::from_secs(2));
        assert_eq!(rates.count(key(1), &rate(3600), Time::from_secs(3)).count, 2);
        assert_eq!(rates.lost, 0);
    }

    #[test]
    fn a_search_for_room_frees_an_eighth_at_least() {
        let mut rates = Rates::new(64);
        for address in 0..64 {
            rates.count(key(address), &rate(1 + address), Time::from_secs(0));
        }
        // One counter is over. If only this one were removed, each new address would cost a search of 64
        // steps.
        rates.count(key(64), &rate(3600), Time::from_secs(1));
        assert!(rates.counters.len() <= 56 + 1, "{}", rates.counters.len());
        assert!(rates.lost > 0);
    }

    #[test]
    fn a_full_table_loses_low_counters_that_began_first() {
        let mut rates = Rates::new(8);
        for address in 0..8 {
            rates.count(key(address), &rate(3600), Time::from_secs(u64::from(address)));
        }
        rates.count(key(8), &rate(3600), Time::from_secs(8));
        assert_eq!((rates.counters.len(), rates.lost), (4, 5));
        for address in 5..9 {
            let counter = rates.count(key(address), &rate(3600), Time::from_secs(9));
            assert_eq!(counter.count, 2, "{address}");
        }
        // An attack outlives a flood of other addresses that begins after it.
        let mut rates = Rates::new(8);
        rates.count(key(0), &rate(3600), Time::from_secs(1));
        for count in 2..100 {
            assert_eq!(rates.count(key(0), &rate(3600), Time::from_secs(1)).count, count);
            for address in 0..20 {
                rates.count(key(20 * count + address), &rate(3600), Time::from_secs(2));
            }
        }
        assert!(rates.counters.len() <= 8 && rates.lost > 1900, "{}", rates.lost);
    }
}
