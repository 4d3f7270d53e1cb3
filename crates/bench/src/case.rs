//! The forwarding cases as data: what is offered, and what a run must reach.

use crate::workload::{Filter, Shape};

/// What a rate is compared with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Against {
    /// Open vSwitch with DPDK, the better of its configurations.
    Ovs,
    /// Open vSwitch with DPDK as shipped.
    OvsShipped,
    /// Open vSwitch with DPDK, tuned.
    OvsTuned,
    /// testpmd with the same packets.
    Testpmd,
    /// Millrace in another case of the same run.
    Own(&'static str),
}

/// A ratio that is wanted.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Target {
    /// To what.
    pub against: Against,
    /// At least this.
    pub at_least: f64,
}

impl std::fmt::Display for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let ratio = self.at_least;
        match self.against {
            Against::Ovs => write!(f, "{ratio}x ovs-dpdk"),
            Against::OvsShipped => write!(f, "{ratio}x ovs-dpdk as shipped"),
            Against::OvsTuned => write!(f, "{ratio}x ovs-dpdk tuned"),
            Against::Testpmd => write!(f, "{ratio} of testpmd io"),
            Against::Own(case) => write!(f, "{ratio} of our {case}"),
        }
    }
}

/// A case.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Case {
    /// Its name on the command line.
    pub name: &'static str,
    /// What a person calls it.
    pub title: &'static str,
    /// Rules and packets.
    pub shape: Shape,
    /// Our case that `ratio_self` is against.
    pub own: &'static str,
    /// What is wanted.
    pub targets: &'static [Target],
}

const fn target(against: Against, at_least: f64) -> Target {
    Target { against, at_least }
}

const ONE_RULE: &str = "one-rule";
const EXACT_10K: &str = "exact-10k";

/// The cases, in the order of the acceptance table.
pub const CASES: &[Case] = &[
    Case {
        name: ONE_RULE,
        title: "one rule, one flow",
        shape: Shape::OneRule,
        own: ONE_RULE,
        targets: &[target(Against::Ovs, 1.3), target(Against::Testpmd, 0.70)],
    },
    Case {
        name: EXACT_10K,
        title: "10,000 exact rules and flows, MAC rewritten",
        shape: Shape::Exact(10_000),
        own: ONE_RULE,
        targets: &[target(Against::Ovs, 3.0), target(Against::Testpmd, 0.5)],
    },
    Case {
        name: "exact-100k",
        title: "100,000 exact rules and flows, MAC rewritten",
        shape: Shape::Exact(100_000),
        own: ONE_RULE,
        targets: &[
            target(Against::OvsTuned, 8.0),
            target(Against::OvsShipped, 40.0),
            target(Against::Own(ONE_RULE), 0.5),
        ],
    },
    Case {
        name: "exact-1m",
        title: "1,000,000 exact rules and flows, MAC rewritten",
        shape: Shape::Exact(1_000_000),
        own: ONE_RULE,
        targets: &[
            target(Against::OvsTuned, 15.0),
            target(Against::Own(ONE_RULE), 0.3),
        ],
    },
    Case {
        name: "masks-10k",
        title: "10,000 rules over 32 masks",
        shape: Shape::Masked {
            rules: 10_000,
            masks: 32,
        },
        own: ONE_RULE,
        targets: &[target(Against::Ovs, 2.5)],
    },
    Case {
        name: "masks-100k",
        title: "100,000 rules over 32 masks",
        shape: Shape::Masked {
            rules: 100_000,
            masks: 32,
        },
        own: ONE_RULE,
        targets: &[
            target(Against::OvsTuned, 6.0),
            target(Against::OvsShipped, 40.0),
            target(Against::Own(ONE_RULE), 0.25),
        ],
    },
    Case {
        name: "acl-10k",
        title: "access list of 10,000 rules, 10,000 flows",
        shape: Shape::Filter {
            kind: Filter::Acl,
            rules: 10_000,
            flows: 10_000,
        },
        own: ONE_RULE,
        targets: &[target(Against::Ovs, 3.0)],
    },
    Case {
        name: "firewall-10k",
        title: "firewall of 10,000 rules, 10,000 flows",
        shape: Shape::Filter {
            kind: Filter::Firewall,
            rules: 10_000,
            flows: 10_000,
        },
        own: ONE_RULE,
        targets: &[target(Against::Ovs, 3.0)],
    },
    Case {
        name: "pipeline-8",
        title: "pipeline of 8 tables, 10,000 flows",
        shape: Shape::Pipeline { flows: 10_000 },
        own: EXACT_10K,
        targets: &[target(Against::Ovs, 1.5), target(Against::Own(EXACT_10K), 0.5)],
    },
];

/// The case of that name.
pub fn find(name: &str) -> Option<&'static Case> {
    CASES.iter().find(|case| case.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_case_is_compared_with_cases_that_come_no_later() {
        for (place, case) in CASES.iter().enumerate() {
            let own = case.targets.iter().filter_map(|target| match target.against {
                Against::Own(name) => Some(name),
                _ => None,
            });
            for name in own.chain([case.own]) {
                assert!(
                    CASES[..=place].iter().any(|earlier| earlier.name == name),
                    "{}",
                    case.name
                );
            }
        }
    }

    #[test]
    fn every_case_has_a_name_of_its_own_and_a_target() {
        for (place, case) in CASES.iter().enumerate() {
            assert_eq!(
                CASES.iter().position(|other| other.name == case.name),
                Some(place)
            );
            assert!(!case.targets.is_empty());
        }
    }
}
