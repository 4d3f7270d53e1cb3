//! The forwarding experiments as data: what is offered, to whom, and what a run must reach.

use crate::workload::{Attack, Filter, PACKETS_MIN, Shape};

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

/// How packets come to a system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Supply {
    /// DPDK's `net_pcap` replays them within the system.
    Replay,
    /// A generator sends them over memif, and counts what comes back: for more packets than fit into the pool of a
    /// system.
    Generator,
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
    /// How many packets a file has at least: flows are repeated.
    pub packets_min: usize,
    /// How packets come.
    pub supply: Supply,
    /// How many threads forward, each with an ingress port of its own.
    pub workers: usize,
    /// The systems that take part unless others are named.
    pub systems: &'static [&'static str],
    /// Our case that `ratio_self` is against.
    pub own: &'static str,
    /// What is wanted.
    pub targets: &'static [Target],
}

impl Case {
    /// About how many rules and packets there will be.
    pub fn lens(&self) -> (usize, usize) {
        let (rules, flows) = self.shape.lens();
        (rules, flows.max(self.packets_min))
    }

    /// Returns true if something is wanted relative to testpmd.
    pub fn is_against_testpmd(&self) -> bool {
        self.targets
            .iter()
            .any(|target| target.against == Against::Testpmd)
    }
}

/// Cases that belong together.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Experiment {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it asks.
    pub title: &'static str,
    /// Its cases, in order.
    pub cases: &'static [Case],
}

const fn target(against: Against, at_least: f64) -> Target {
    Target { against, at_least }
}

const ONE_RULE: &str = "one-rule";
const ONE_SENT: &str = "one-rule-sent";
const EXACT_10K: &str = "exact-10k";
const BENIGN: &str = "acl-benign";
const KNOWN: &str = "acl-known";
const TABLES_1: &str = "tables-1";
const WORKERS_1: &str = "workers-1";

const ALL: &[&str] = &["testpmd-io", "millrace", "ovs-dpdk", "ovs-dpdk-tuned"];
/// Without Open vSwitch as shipped, which takes minutes to show next to nothing.
const BEST: &[&str] = &["testpmd-io", "millrace", "ovs-dpdk-tuned"];
const SWITCHES: &[&str] = &["millrace", "ovs-dpdk", "ovs-dpdk-tuned"];
/// With what remembered paths bring.
const BY_TABLES: &[&str] = &["millrace", "millrace-no-cache", "ovs-dpdk", "ovs-dpdk-tuned"];

/// What most cases have in common.
const USUAL: Case = Case {
    name: "",
    title: "",
    shape: Shape::OneRule,
    packets_min: PACKETS_MIN,
    supply: Supply::Replay,
    workers: 1,
    systems: ALL,
    own: ONE_RULE,
    targets: &[],
};

/// The cases, in the order of the acceptance table.
pub const CASES: &[Case] = &[
    Case {
        name: ONE_RULE,
        title: "one rule, one flow",
        shape: Shape::OneRule,
        targets: &[target(Against::Ovs, 1.3), target(Against::Testpmd, 0.70)],
        ..USUAL
    },
    Case {
        name: EXACT_10K,
        title: "10,000 exact rules and flows, MAC rewritten",
        shape: Shape::Exact(10_000),
        targets: &[target(Against::Ovs, 3.0), target(Against::Testpmd, 0.5)],
        ..USUAL
    },
    Case {
        name: "exact-100k",
        title: "100,000 exact rules and flows, MAC rewritten",
        shape: Shape::Exact(100_000),
        targets: &[
            target(Against::OvsTuned, 8.0),
            target(Against::OvsShipped, 40.0),
            target(Against::Own(ONE_RULE), 0.5),
        ],
        ..USUAL
    },
    Case {
        name: "nat-5k",
        title: "5,000 exact rules and flows, five fields rewritten (NAT)",
        shape: Shape::Nat(5_000),
        targets: &[target(Against::Ovs, 3.0)],
        ..USUAL
    },
    Case {
        name: ONE_SENT,
        title: "one rule, one flow, sent by a generator",
        supply: Supply::Generator,
        systems: BEST,
        own: ONE_SENT,
        ..USUAL
    },
    Case {
        name: "exact-1m",
        title: "1,000,000 exact rules and flows, MAC rewritten, sent by a generator",
        shape: Shape::Exact(1_000_000),
        supply: Supply::Generator,
        systems: BEST,
        own: ONE_SENT,
        targets: &[
            target(Against::OvsTuned, 15.0),
            target(Against::Own(ONE_SENT), 0.3),
        ],
        ..USUAL
    },
    Case {
        name: "masks-10k",
        title: "10,000 rules over 32 masks",
        shape: Shape::Masked {
            rules: 10_000,
            masks: 32,
        },
        targets: &[target(Against::Ovs, 2.5)],
        ..USUAL
    },
    Case {
        name: "masks-100k",
        title: "100,000 rules over 32 masks",
        shape: Shape::Masked {
            rules: 100_000,
            masks: 32,
        },
        targets: &[
            target(Against::OvsTuned, 6.0),
            target(Against::OvsShipped, 40.0),
            target(Against::Own(ONE_RULE), 0.25),
        ],
        ..USUAL
    },
    Case {
        name: "acl-10k",
        title: "access list of 10,000 rules, 10,000 flows",
        shape: Shape::Filter {
            kind: Filter::Acl,
            rules: 10_000,
            flows: 10_000,
        },
        targets: &[target(Against::Ovs, 3.0)],
        ..USUAL
    },
    Case {
        name: "firewall-10k",
        title: "firewall of 10,000 rules, 10,000 flows",
        shape: Shape::Filter {
            kind: Filter::Firewall,
            rules: 10_000,
            flows: 10_000,
        },
        targets: &[target(Against::Ovs, 3.0)],
        ..USUAL
    },
    Case {
        name: "pipeline-8",
        title: "pipeline of 8 tables, 10,000 flows",
        shape: Shape::Pipeline { flows: 10_000 },
        own: EXACT_10K,
        targets: &[target(Against::Ovs, 1.5), target(Against::Own(EXACT_10K), 0.5)],
        ..USUAL
    },
];

/// Every experiment that measures how many packets a system forwards.
pub const EXPERIMENTS: &[Experiment] = &[
    Experiment {
        name: "forward",
        title: "packets a second on one core, by rules and flows",
        cases: CASES,
    },
    Experiment {
        name: "hostile",
        title: "the same rules under traffic that is made to be slow",
        cases: HOSTILE,
    },
    Experiment {
        name: "rules",
        title: "rule sets of other shapes: an IP chain, a long access list, routes",
        cases: RULES,
    },
    Experiment {
        name: "tables",
        title: "what more tables cost, at 10,000 flows",
        cases: TABLES,
    },
    Experiment {
        name: "workers",
        title: "what more cores bring, at 10,000 flows",
        cases: WORKERS,
    },
    Experiment {
        name: "million",
        title: "a million entries and flows on one core and more (E9)",
        cases: MILLION,
    },
];

/// The share of the benign rate that hostile traffic must leave.
const UNDISTURBED: f64 = 0.9;

/// So many flows in turn are what a cache may hold, ours does; so many are not.
const IN_TURN: usize = 32_768;
/// As above.
const ENDLESS: usize = 1_000_000;

const fn attacked(attack: Attack, flows: usize) -> Shape {
    Shape::Attack { attack, flows }
}

/// A million packets under the access list, as many as Open vSwitch's pool does not hold. By the time that one comes
/// again, a cache has forgotten it.
const NEW: Case = Case {
    packets_min: ENDLESS,
    systems: &["millrace"],
    own: KNOWN,
    ..USUAL
};

/// Each attack beside benign traffic under the same rules, from files of as many packets, which cost the driver the
/// same.
const HOSTILE: &[Case] = &[
    Case {
        name: BENIGN,
        title: "10,000-rule access list, packets that it was written for",
        shape: attacked(Attack::None, IN_TURN),
        systems: SWITCHES,
        own: BENIGN,
        ..USUAL
    },
    Case {
        name: "acl-random",
        title: "10,000-rule access list, random 5-tuples",
        shape: attacked(Attack::Random, IN_TURN),
        systems: SWITCHES,
        own: BENIGN,
        targets: &[target(Against::Own(BENIGN), UNDISTURBED)],
        ..USUAL
    },
    Case {
        name: "acl-near-miss",
        title: "10,000-rule access list, packets that miss a rule by one bit",
        shape: attacked(Attack::NearMiss, IN_TURN),
        systems: SWITCHES,
        own: BENIGN,
        targets: &[target(Against::Own(BENIGN), UNDISTURBED)],
        ..USUAL
    },
    Case {
        name: "acl-collisions",
        title: "10,000-rule access list, 5-tuples of one unkeyed hash value",
        shape: attacked(Attack::Collisions, IN_TURN),
        systems: SWITCHES,
        own: BENIGN,
        targets: &[target(Against::Own(BENIGN), UNDISTURBED)],
        ..USUAL
    },
    Case {
        name: "tse-benign",
        title: "allow-list of 3 rules, packets that it was written for",
        shape: Shape::Explosion { attack: false },
        systems: SWITCHES,
        own: "tse-benign",
        ..USUAL
    },
    Case {
        name: "tse-attack",
        title: "allow-list of 3 rules, tuple space explosion (8192 megaflow masks)",
        shape: Shape::Explosion { attack: true },
        systems: SWITCHES,
        own: "tse-benign",
        targets: &[target(Against::Own("tse-benign"), UNDISTURBED)],
        ..USUAL
    },
    Case {
        name: KNOWN,
        title: "10,000-rule access list, packets that it was written for, of 32,768 flows",
        shape: attacked(Attack::None, IN_TURN),
        ..NEW
    },
    Case {
        name: "acl-new",
        title: "10,000-rule access list, packets that it was written for, each of a new flow",
        shape: attacked(Attack::None, ENDLESS),
        ..NEW
    },
    Case {
        name: "acl-new-random",
        title: "10,000-rule access list, random 5-tuples, each new",
        shape: attacked(Attack::Random, ENDLESS),
        targets: &[target(Against::Own(KNOWN), UNDISTURBED)],
        ..NEW
    },
    Case {
        name: "acl-new-near-miss",
        title: "10,000-rule access list, packets that miss a rule by one bit, each new",
        shape: attacked(Attack::NearMiss, ENDLESS),
        targets: &[target(Against::Own(KNOWN), UNDISTURBED)],
        ..NEW
    },
    Case {
        name: "acl-new-collisions",
        title: "10,000-rule access list, 5-tuples of one unkeyed hash value, each new",
        shape: attacked(Attack::Collisions, ENDLESS),
        targets: &[target(Against::Own(KNOWN), UNDISTURBED)],
        ..NEW
    },
];

const TABLES: &[Case] = &[
    Case {
        name: TABLES_1,
        title: "1 table, 10,000 exact flows",
        shape: Shape::Tables {
            tables: 1,
            flows: 10_000,
        },
        systems: BY_TABLES,
        own: TABLES_1,
        ..USUAL
    },
    Case {
        name: "tables-4",
        title: "4 tables, 10,000 exact flows in the last",
        shape: Shape::Tables {
            tables: 4,
            flows: 10_000,
        },
        systems: BY_TABLES,
        own: TABLES_1,
        ..USUAL
    },
    Case {
        name: "tables-8",
        title: "8 tables, 10,000 exact flows in the last",
        shape: Shape::Tables {
            tables: 8,
            flows: 10_000,
        },
        systems: BY_TABLES,
        own: TABLES_1,
        targets: &[target(Against::Own(TABLES_1), 0.5)],
        ..USUAL
    },
    Case {
        name: "tables-16",
        title: "16 tables, 10,000 exact flows in the last",
        shape: Shape::Tables {
            tables: 16,
            flows: 10_000,
        },
        systems: BY_TABLES,
        own: TABLES_1,
        ..USUAL
    },
    Case {
        name: "pipeline-8-100k",
        title: "pipeline of 8 tables, 100,000 flows",
        shape: Shape::Pipeline { flows: 100_000 },
        systems: BY_TABLES,
        own: TABLES_1,
        ..USUAL
    },
    Case {
        name: "access-1k",
        title: "1,000 hosts at access ports of a VLAN, 10,000 flows",
        shape: Shape::Access {
            hosts: 1000,
            flows: 10_000,
        },
        systems: BY_TABLES,
        own: TABLES_1,
        ..USUAL
    },
];

const WORKERS: &[Case] = &[
    Case {
        name: WORKERS_1,
        title: "10,000 exact flows, one forwarding thread",
        shape: Shape::Exact(10_000),
        own: WORKERS_1,
        ..USUAL
    },
    Case {
        name: "workers-2",
        title: "10,000 exact flows, two forwarding threads with a port each",
        shape: Shape::Exact(10_000),
        workers: 2,
        own: WORKERS_1,
        ..USUAL
    },
    Case {
        name: "workers-4",
        title: "10,000 exact flows, four forwarding threads with a port each",
        shape: Shape::Exact(10_000),
        workers: 4,
        own: WORKERS_1,
        ..USUAL
    },
    Case {
        name: "workers-8",
        title: "10,000 exact flows, eight forwarding threads with a port each",
        shape: Shape::Exact(10_000),
        workers: 8,
        own: WORKERS_1,
        ..USUAL
    },
];

const MILLION: &[Case] = &[
    Case {
        name: "million-1",
        title: "1,000,000 exact flows, one forwarding thread",
        shape: Shape::Exact(1_000_000),
        systems: BEST,
        own: "million-1",
        ..USUAL
    },
    Case {
        name: "million-2",
        title: "1,000,000 exact flows, two forwarding threads with a port each",
        shape: Shape::Exact(1_000_000),
        workers: 2,
        systems: BEST,
        own: "million-1",
        ..USUAL
    },
    Case {
        name: "million-4",
        title: "1,000,000 exact flows, four forwarding threads with a port each",
        shape: Shape::Exact(1_000_000),
        workers: 4,
        systems: BEST,
        own: "million-1",
        ..USUAL
    },
];

const RULES: &[Case] = &[
    Case {
        name: "chain-10k",
        title: "IP chain of 10,000 rules, 10,000 flows",
        shape: Shape::Filter {
            kind: Filter::Chain,
            rules: 10_000,
            flows: 10_000,
        },
        systems: SWITCHES,
        own: "chain-10k",
        ..USUAL
    },
    Case {
        name: "acl-100k",
        title: "access list of 100,000 rules, 10,000 flows",
        shape: Shape::Filter {
            kind: Filter::Acl,
            rules: 100_000,
            flows: 10_000,
        },
        systems: SWITCHES,
        own: "chain-10k",
        ..USUAL
    },
    Case {
        name: "routes-100k",
        title: "100,000 IPv4 routes, 10,000 flows",
        shape: Shape::Routes {
            rules: 100_000,
            flows: 10_000,
        },
        systems: SWITCHES,
        own: "chain-10k",
        ..USUAL
    },
];

/// All cases of all experiments, in order.
pub fn all() -> impl Iterator<Item = &'static Case> {
    EXPERIMENTS.iter().flat_map(|experiment| experiment.cases)
}

/// Returns the case of that name.
pub fn find(name: &str) -> Option<&'static Case> {
    all().find(|case| case.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_case_is_compared_with_cases_of_its_experiment_that_come_no_later() {
        for experiment in EXPERIMENTS {
            for (place, case) in experiment.cases.iter().enumerate() {
                let own = case.targets.iter().filter_map(|target| match target.against {
                    Against::Own(name) => Some(name),
                    _ => None,
                });
                for name in own.chain([case.own]) {
                    assert!(
                        experiment.cases[..=place]
                            .iter()
                            .any(|earlier| earlier.name == name),
                        "{}",
                        case.name
                    );
                }
            }
        }
    }

    #[test]
    fn every_case_has_a_name_of_its_own_and_the_acceptance_cases_a_target() {
        for (place, case) in all().enumerate() {
            assert_eq!(all().position(|other| other.name == case.name), Some(place));
        }
        // But for what others are compared with.
        let aimless = CASES.iter().filter(|case| case.targets.is_empty());
        assert!(aimless.map(|case| case.name).eq([ONE_SENT]));
    }
}
