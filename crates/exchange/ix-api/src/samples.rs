//! Conversion of the traffic figures of `millrace-ix-samples`, measured by sFlow, to the types of this crate.

use std::collections::BTreeMap;

use millrace_ix_model::{AccountId, Exchange, ObjectId, Prefix, Timestamp};
use millrace_ix_samples::Shared;

use crate::observed::{Attack, Load, Minute, SampleReceiver, Share, Suggestion, Target};

/// Returns the rates of connections, from samples, and of trunks, from the counters of their ports.
pub(crate) fn loads(samples: &Shared, exchange: &Exchange, now: Timestamp) -> BTreeMap<ObjectId, Load> {
    let load = |[in_bps, out_bps]: [f64; 2]| Load {
        in_bps: in_bps as u64,
        out_bps: out_bps as u64,
    };
    let connections = samples.connections(exchange, now).into_iter();
    let connections = connections.map(|(connection, rates)| (ObjectId::from(connection), load(rates)));
    let trunks = samples.trunks(exchange, now).into_iter();
    connections
        .chain(trunks.map(|(trunk, rates)| (ObjectId::from(trunk), load(rates))))
        .collect()
}

/// Returns the counters of the receiver.
pub(crate) fn receiver(samples: &Shared) -> SampleReceiver {
    SampleReceiver {
        samples: samples.samples(),
        malformed: samples.malformed(),
        refused: samples.refused(),
    }
}

/// Returns the destinations of an account in descending order of their excess.
pub(crate) fn targets(
    samples: &Shared,
    exchange: &Exchange,
    account: AccountId,
    now: Timestamp,
) -> Vec<Target> {
    let targets = samples.targets(exchange, account, now).into_iter();
    targets
        .map(|target| Target {
            prefix: Prefix::host(target.destination),
            bits_per_s: target.bits_per_s as u64,
            usual_bits_per_s: target.usual_bits_per_s.map(|rate| rate as u64),
        })
        .collect()
}

/// Returns the traffic to a destination of an account; `None` if none was sampled in the last half minute. Peers have the
/// identifiers of their accounts.
pub(crate) fn attack(
    samples: &Shared,
    exchange: &Exchange,
    account: AccountId,
    prefix: Prefix,
    now: Timestamp,
) -> Option<Attack> {
    let found = samples.attack(exchange, account, prefix, now)?;
    let shares = |list: Vec<millrace_ix_samples::Share>| -> Vec<Share> {
        let share = |share: millrace_ix_samples::Share| Share {
            label: share.label,
            bits_per_s: share.bits_per_s as u64,
        };
        list.into_iter().map(share).collect()
    };
    Some(Attack {
        target: Target {
            prefix,
            bits_per_s: found.bits_per_s as u64,
            usual_bits_per_s: found.usual_bits_per_s.map(|rate| rate as u64),
        },
        dropped_bits_per_s: found.dropped_bits_per_s as u64,
        packets_per_s: found.packets_per_s as u64,
        error_percent: found.relative_error * 100.0,
        minutes: found
            .minutes
            .into_iter()
            .map(|minute| Minute {
                at: minute.at,
                passed_bps: minute.passed_bits_per_s.map(|rate| rate as u64),
                dropped_bps: minute.dropped_bits_per_s.map(|rate| rate as u64),
            })
            .collect(),
        breakdown: vec![
            ("protocol", shares(found.by_protocol)),
            ("port", shares(found.by_source_port)),
            ("peer", shares(found.by_peer)),
            ("fragment", shares(found.by_fragment)),
        ],
        suggestions: found
            .suggestions
            .into_iter()
            .map(|suggestion| Suggestion {
                matching: suggestion.matching,
                action: suggestion.action,
                covers: suggestion.covers,
                collateral: suggestion.collateral,
                why: suggestion.why,
            })
            .collect(),
    })
}
