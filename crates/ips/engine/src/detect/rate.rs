//! Rates of rules: `threshold`, `detection_filter`, and the rows of the threshold table.

use core::net::IpAddr;
use std::collections::HashMap;

use millrace_ips_rules::header::Action;
use millrace_ips_rules::options::state::{Rate, RateKind, Track};
use millrace_types::Time;

use super::conditions::has_address;
use super::program::ThresholdTest;
use crate::packet::Packet;

/// The subject that a counter counts for: the rule, which of its rates, and the address, pair or flow.
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
    count: u32,
    /// The end of the time for which another action holds.
    until: Time,
}

/// The counters of a lane.
#[derive(Debug, Default)]
pub(super) struct Rates {
    counters: HashMap<Key, Counter>,
    /// Largest number of counters that are kept at a time.
    limit: usize,
    /// Number of times that all counters were lost because there was no room.
    pub(super) lost: u64,
}

/// The rule, the packet and the flow for which a rate is counted.
#[derive(Debug, Clone, Copy)]
pub(super) struct Subject<'a> {
    /// Generator and number of the rule, which outlive its index.
    pub(super) rule: (u32, u32),
    pub(super) packet: &'a Packet<'a>,
    pub(super) flow: u64,
}

/// The outcome of the threshold table for a match.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    /// An alert is raised, with another action if there is one.
    Alert(Option<Action>),
    /// The rule matched, and raises no alert.
    Silent,
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

fn seconds(seconds: u32) -> u64 {
    u64::from(seconds) * 1_000_000_000
}

impl Rates {
    /// Returns rates without counters, of which at most `limit` are kept.
    pub(super) fn new(limit: usize) -> Rates {
        Rates {
            limit,
            ..Rates::default()
        }
    }

    /// Returns the counter of a key with an interval that contains the time of the packet, its count raised by one.
    fn count(&mut self, key: Key, rate: &Rate, now: Time) -> &mut Counter {
        if self.counters.len() >= self.limit && !self.counters.contains_key(&key) {
            // Counters whose interval is over make room. If there is none, all counters are removed, and that is counted.
            let before = self.counters.len();
            self.counters.retain(|_, counter| {
                now.nanos() < counter.start.nanos().saturating_add(seconds(rate.seconds))
            });
            if self.counters.len() == before {
                self.counters.clear();
                self.lost += 1;
            }
        }
        let counter = self.counters.entry(key).or_insert(Counter {
            start: now,
            count: 0,
            until: Time::from_nanos(0),
        });
        let interval = seconds(rate.seconds);
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

    /// Returns true if a match passes a detection filter: those after the first COUNT in the interval do.
    pub(super) fn passes_filter(&mut self, subject: Subject<'_>, rate: &Rate) -> bool {
        let key = key(subject, 0, rate.track);
        self.count(key, rate, subject.packet.time).count > rate.count
    }

    /// Returns true if a match raises an alert.
    fn raises(&mut self, subject: Subject<'_>, index: u32, rate: &Rate) -> bool {
        let key = key(subject, index, rate.track);
        let counter = self.count(key, rate, subject.packet.time);
        match rate.kind {
            None => counter.count > rate.count,
            Some(RateKind::Limit) => counter.count <= rate.count,
            Some(RateKind::Both) => counter.count == rate.count,
            Some(RateKind::Threshold) => {
                let is_due = counter.count >= rate.count;
                if is_due {
                    counter.count = 0;
                }
                is_due
            }
        }
    }

    /// Applies the threshold of the rule, and the rows of the table for it.
    pub(super) fn apply(
        &mut self,
        subject: Subject<'_>,
        threshold: Option<&Rate>,
        rows: &[ThresholdTest],
    ) -> Outcome {
        if let Some(rate) = threshold
            && rate.kind.is_some()
            && !self.raises(subject, 0, rate)
        {
            return Outcome::Silent;
        }
        let mut action = None;
        for (index, row) in rows.iter().enumerate() {
            let index = index as u32 + 1;
            match row {
                ThresholdTest::Suppress(None) => return Outcome::Silent,
                ThresholdTest::Suppress(Some((track, ranges))) => {
                    let (src, dst) = (subject.packet.src, subject.packet.dst);
                    let is_suppressed = match track {
                        Track::Source => has_address(ranges, src),
                        Track::Destination => has_address(ranges, dst),
                        _ => has_address(ranges, src) || has_address(ranges, dst),
                    };
                    if is_suppressed {
                        return Outcome::Silent;
                    }
                }
                ThresholdTest::Limit(rate) => {
                    if !self.raises(subject, index, rate) {
                        return Outcome::Silent;
                    }
                }
                ThresholdTest::RateFilter {
                    rate,
                    new_action,
                    timeout,
                } => {
                    let now = subject.packet.time;
                    let key = key(subject, index, rate.track);
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
