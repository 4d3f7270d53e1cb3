//! The cases of `millrace bench hostile`: attacks alongside benign traffic under the same rules.

use super::definition::{Baseline, Case, DEFAULT, SWITCHES, target};
use crate::workload::{Attack, Shape};

const BENIGN: &str = "acl-benign";
const CACHED: &str = "acl-known";

/// The share of the benign rate that must remain under hostile traffic.
const REMAINING_SHARE: f64 = 0.9;

/// The number of flows, sent in turn, that the cache of traversals can hold.
const CACHEABLE_FLOWS: usize = 32_768;
/// A number of flows that no cache can hold.
const UNCACHEABLE_FLOWS: usize = 1_000_000;

const fn attacked(attack: Attack, flows: usize) -> Shape {
    Shape::Attack { attack, flows }
}

/// A million packets under the access list, more than the pool of Open vSwitch holds. Before a packet is sent
/// again, every cache has evicted its flow.
const NEW_FLOWS: Case = Case {
    packets_min: UNCACHEABLE_FLOWS,
    systems: &["millrace"],
    own: CACHED,
    ..DEFAULT
};

/// Each attack, alongside benign traffic under the same rules. All files have the same number of packets, and so the same
/// cost in the driver.
pub(super) const HOSTILE: &[Case] = &[
    Case {
        name: BENIGN,
        title: "10,000-rule access list, benign packets",
        shape: attacked(Attack::None, CACHEABLE_FLOWS),
        systems: SWITCHES,
        own: BENIGN,
        ..DEFAULT
    },
    Case {
        name: "acl-random",
        title: "10,000-rule access list, random 5-tuples",
        shape: attacked(Attack::Random, CACHEABLE_FLOWS),
        systems: SWITCHES,
        own: BENIGN,
        targets: &[target(Baseline::Own(BENIGN), REMAINING_SHARE)],
        ..DEFAULT
    },
    Case {
        name: "acl-near-miss",
        title: "10,000-rule access list, packets that miss a rule by one bit",
        shape: attacked(Attack::NearMiss, CACHEABLE_FLOWS),
        systems: SWITCHES,
        own: BENIGN,
        targets: &[target(Baseline::Own(BENIGN), REMAINING_SHARE)],
        ..DEFAULT
    },
    Case {
        name: "acl-collisions",
        title: "10,000-rule access list, 5-tuples of one unkeyed hash value",
        shape: attacked(Attack::Collisions, CACHEABLE_FLOWS),
        systems: SWITCHES,
        own: BENIGN,
        targets: &[target(Baseline::Own(BENIGN), REMAINING_SHARE)],
        ..DEFAULT
    },
    Case {
        name: "tse-benign",
        title: "allow-list of 3 rules, benign packets",
        shape: Shape::Explosion { attack: false },
        systems: SWITCHES,
        own: "tse-benign",
        ..DEFAULT
    },
    Case {
        name: "tse-attack",
        title: "allow-list of 3 rules, tuple space explosion (8192 megaflow masks)",
        shape: Shape::Explosion { attack: true },
        systems: SWITCHES,
        own: "tse-benign",
        targets: &[target(Baseline::Own("tse-benign"), REMAINING_SHARE)],
        ..DEFAULT
    },
    Case {
        name: CACHED,
        title: "10,000-rule access list, benign packets, of 32,768 flows",
        shape: attacked(Attack::None, CACHEABLE_FLOWS),
        ..NEW_FLOWS
    },
    Case {
        name: "acl-new",
        title: "10,000-rule access list, benign packets, each of a new flow",
        shape: attacked(Attack::None, UNCACHEABLE_FLOWS),
        ..NEW_FLOWS
    },
    Case {
        name: "acl-new-random",
        title: "10,000-rule access list, random 5-tuples, each new",
        shape: attacked(Attack::Random, UNCACHEABLE_FLOWS),
        targets: &[target(Baseline::Own(CACHED), REMAINING_SHARE)],
        ..NEW_FLOWS
    },
    Case {
        name: "acl-new-near-miss",
        title: "10,000-rule access list, packets that miss a rule by one bit, each new",
        shape: attacked(Attack::NearMiss, UNCACHEABLE_FLOWS),
        targets: &[target(Baseline::Own(CACHED), REMAINING_SHARE)],
        ..NEW_FLOWS
    },
    Case {
        name: "acl-new-collisions",
        title: "10,000-rule access list, 5-tuples of one unkeyed hash value, each new",
        shape: attacked(Attack::Collisions, UNCACHEABLE_FLOWS),
        targets: &[target(Baseline::Own(CACHED), REMAINING_SHARE)],
        ..NEW_FLOWS
    },
];
