//! The cases of `millrace bench forward`: the acceptance table (docs/gates.md, "The switch").

use super::definition::{BEST, Baseline, Case, DEFAULT, ONE_RULE, PacketSource, target};
use crate::workload::{Filter, Shape};

pub(super) const ONE_SENT: &str = "one-rule-sent";
const EXACT_10K: &str = "exact-10k";

/// The cases, in the order of the acceptance table.
pub const CASES: &[Case] = &[
    Case {
        name: ONE_RULE,
        title: "one rule, one flow",
        shape: Shape::OneRule,
        targets: &[target(Baseline::Ovs, 1.3), target(Baseline::Testpmd, 0.70)],
        ..DEFAULT
    },
    Case {
        name: EXACT_10K,
        title: "10,000 exact rules and flows, MAC rewritten",
        shape: Shape::Exact(10_000),
        targets: &[target(Baseline::Ovs, 3.0), target(Baseline::Testpmd, 0.5)],
        ..DEFAULT
    },
    Case {
        name: "exact-100k",
        title: "100,000 exact rules and flows, MAC rewritten",
        shape: Shape::Exact(100_000),
        targets: &[
            target(Baseline::OvsTuned, 8.0),
            target(Baseline::OvsShipped, 40.0),
            target(Baseline::Own(ONE_RULE), 0.5),
        ],
        ..DEFAULT
    },
    Case {
        name: "nat-5k",
        title: "5,000 exact rules and flows, five fields rewritten (NAT)",
        shape: Shape::Nat(5_000),
        targets: &[target(Baseline::Ovs, 3.0)],
        ..DEFAULT
    },
    Case {
        name: ONE_SENT,
        title: "one rule, one flow, sent by a generator",
        source: PacketSource::Generator,
        systems: BEST,
        own: ONE_SENT,
        ..DEFAULT
    },
    Case {
        name: "exact-1m",
        title: "1,000,000 exact rules and flows, MAC rewritten, sent by a generator",
        shape: Shape::Exact(1_000_000),
        source: PacketSource::Generator,
        systems: BEST,
        own: ONE_SENT,
        targets: &[
            target(Baseline::OvsTuned, 15.0),
            target(Baseline::Own(ONE_SENT), 0.3),
        ],
        ..DEFAULT
    },
    Case {
        name: "masks-10k",
        title: "10,000 rules over 32 masks",
        shape: Shape::Masked {
            rules: 10_000,
            masks: 32,
        },
        targets: &[target(Baseline::Ovs, 2.5)],
        ..DEFAULT
    },
    Case {
        name: "masks-100k",
        title: "100,000 rules over 32 masks",
        shape: Shape::Masked {
            rules: 100_000,
            masks: 32,
        },
        targets: &[
            target(Baseline::OvsTuned, 6.0),
            target(Baseline::OvsShipped, 40.0),
            target(Baseline::Own(ONE_RULE), 0.25),
        ],
        ..DEFAULT
    },
    Case {
        name: "acl-10k",
        title: "access list of 10,000 rules, 10,000 flows",
        shape: Shape::Filter {
            kind: Filter::Acl,
            rules: 10_000,
            flows: 10_000,
        },
        targets: &[target(Baseline::Ovs, 3.0)],
        ..DEFAULT
    },
    Case {
        name: "firewall-10k",
        title: "firewall of 10,000 rules, 10,000 flows",
        shape: Shape::Filter {
            kind: Filter::Firewall,
            rules: 10_000,
            flows: 10_000,
        },
        targets: &[target(Baseline::Ovs, 3.0)],
        ..DEFAULT
    },
    Case {
        name: "pipeline-8",
        title: "pipeline of 8 tables, 10,000 flows",
        shape: Shape::Pipeline { flows: 10_000 },
        own: EXACT_10K,
        targets: &[target(Baseline::Ovs, 1.5), target(Baseline::Own(EXACT_10K), 0.5)],
        ..DEFAULT
    },
];
