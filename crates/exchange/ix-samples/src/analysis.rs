//! The traffic to a target under attack: its rate, its parts, its last hour, and suggested rules.

use std::collections::BTreeMap;

use millrace_ix_model::{AccountId, IpProtocol, Prefix, Timestamp};
use serde::Serialize;

use crate::minutes::Minutes;
use crate::observation::total_bytes;
use crate::rates::relative_error;
use crate::suggest::{Suggestion, Window, suggest};
use crate::{Ends, Observation};

/// The largest number of parts in each list.
const PARTS_LEN: usize = 15;

/// A part of the traffic.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Share {
    /// The protocol, port, address, account or type of packet.
    pub label: String,
    /// The rate in bit/s.
    pub bits_per_s: f64,
}

/// The mean rates of one minute of an attack. The rates of the current minute cover only its part so far.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Minute {
    /// The start of the minute.
    pub at: Timestamp,
    /// The rate of packets that passed, in bit/s; `None` if the minute is before the first sample.
    pub passed_bits_per_s: Option<f64>,
    /// The rate of packets that switches dropped, for example by filters, in bit/s; `None` if the minute is before the
    /// first sample.
    pub dropped_bits_per_s: Option<f64>,
}

/// The traffic to a target.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Attack {
    /// The rate in bit/s over the last half minute.
    pub bits_per_s: f64,
    /// The part of the rate that switches drop, for example by filters, in bit/s.
    pub dropped_bits_per_s: f64,
    /// The usual rate in bit/s before the attack; `None` while the history of its ends is too short.
    pub usual_bits_per_s: Option<f64>,
    /// The rate in packets per second.
    pub packets_per_s: f64,
    /// The half width of the 95 % confidence interval, relative to the rates.
    pub relative_error: f64,
    /// The minutes of the last hour, the oldest first.
    pub minutes: Vec<Minute>,
    /// The rates by IP protocol.
    pub by_protocol: Vec<Share>,
    /// The rates by source port.
    pub by_source_port: Vec<Share>,
    /// The rates by destination port.
    pub by_destination_port: Vec<Share>,
    /// The rates by source address.
    pub by_source: Vec<Share>,
    /// The rates by the account from which the packets come, as an identifier.
    pub by_peer: Vec<Share>,
    /// The rates of whole packets and of fragments.
    pub by_fragment: Vec<Share>,
    /// The suggested rules, the most effective first; empty if there is no attack, or no rules satisfy the bounds.
    pub suggestions: Vec<Suggestion>,
}

/// Returns the traffic of the current window to a target; `None` if it has none. `before` is the usual
/// traffic, and `None` if it is not known. `is_treated` returns true for packets that a filter already drops or limits.
pub(crate) fn analyse<'a>(
    current: Window<'_>,
    before: Option<Window<'_>>,
    target: Prefix,
    minutes: impl Iterator<Item = &'a Minutes>,
    now: Timestamp,
    account_of: impl Fn(&Ends) -> Option<AccountId>,
    is_treated: impl Fn(&Observation) -> bool,
) -> Option<Attack> {
    let observations = current.observations;
    if observations.is_empty() {
        return None;
    }
    let sum = |of: fn(&Observation) -> f64| {
        observations.iter().map(of).fold(0.0, |sum, one| sum + one) / current.seconds
    };
    let mut by_minute: BTreeMap<u64, Option<[f64; 2]>> = BTreeMap::new();
    for (minute, bytes) in minutes.flat_map(|minutes| minutes.until(now)) {
        let sum = by_minute.entry(minute).or_default();
        *sum = match (*sum, bytes) {
            (Some([passed, dropped]), Some(more)) => Some([passed + more[0], dropped + more[1]]),
            (known, more) => known.or(more),
        };
    }
    let usual = |before: Window<'_>| {
        let former = before.observations.iter();
        let former = former.filter(|packet| target.contains(packet.destination));
        total_bytes(former) * 8.0 / before.seconds.max(1.0)
    };
    let minute_seconds = |minute: u64| {
        let passed = now.millis().saturating_sub(minute * 60_000) as f64 / 1000.0;
        passed.clamp(1.0, 60.0)
    };
    let shares = |label: &dyn Fn(&Observation) -> String| shares(current, label);
    Some(Attack {
        bits_per_s: sum(|packet| packet.bytes) * 8.0,
        dropped_bits_per_s: sum(|packet| if packet.is_dropped { packet.bytes } else { 0.0 }) * 8.0,
        usual_bits_per_s: before.map(usual),
        packets_per_s: sum(|packet| packet.packets),
        relative_error: relative_error(observations.len() as u64),
        minutes: by_minute
            .into_iter()
            .map(|(minute, bytes)| {
                let rates = bytes.map(|bytes| bytes.map(|bytes| bytes * 8.0 / minute_seconds(minute)));
                Minute {
                    at: Timestamp::from_secs(minute * 60),
                    passed_bits_per_s: rates.map(|[passed, _]| passed),
                    dropped_bits_per_s: rates.map(|[_, dropped]| dropped),
                }
            })
            .collect(),
        by_protocol: shares(&|packet| IpProtocol(packet.protocol).to_string()),
        by_source_port: shares(&|packet| packet.source_port.to_string()),
        by_destination_port: shares(&|packet| packet.destination_port.to_string()),
        by_source: shares(&|packet| packet.source.to_string()),
        by_peer: shares(&|packet| {
            account_of(&packet.ends).map_or_else(|| "unknown".to_owned(), |account| account.to_string())
        }),
        by_fragment: shares(&|packet| {
            let kind = match packet.fragment {
                0 => "whole",
                1 => "first",
                _ => "later",
            };
            kind.to_owned()
        }),
        suggestions: suggestions(current, before, target, is_treated),
    })
}

/// Returns rules against the packets that no filter treats yet.
fn suggestions(
    current: Window<'_>,
    before: Option<Window<'_>>,
    target: Prefix,
    is_treated: impl Fn(&Observation) -> bool,
) -> Vec<Suggestion> {
    let untreated = |window: Window<'_>| -> Vec<Observation> {
        let packets = window.observations.iter();
        packets.filter(|packet| !is_treated(packet)).copied().collect()
    };
    let (now, former) = (untreated(current), before.map(untreated));
    let now = Window {
        observations: &now,
        ..current
    };
    let former = former
        .as_deref()
        .zip(before)
        .map(|(observations, before)| Window {
            observations,
            ..before
        });
    suggest(now, former, target)
}

/// Returns the heaviest parts of a window.
fn shares(window: Window<'_>, label: &dyn Fn(&Observation) -> String) -> Vec<Share> {
    let mut bytes: BTreeMap<String, f64> = BTreeMap::new();
    for packet in window.observations {
        *bytes.entry(label(packet)).or_default() += packet.bytes;
    }
    let share = |(label, bytes): (String, f64)| Share {
        label,
        bits_per_s: bytes * 8.0 / window.seconds,
    };
    let mut shares: Vec<Share> = bytes.into_iter().map(share).collect();
    shares.sort_by(|one, other| other.bits_per_s.total_cmp(&one.bits_per_s));
    shares.truncate(PARTS_LEN);
    shares
}
