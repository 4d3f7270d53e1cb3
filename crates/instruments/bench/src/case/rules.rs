//! The cases of `millrace bench rules`: rule sets of other shapes.

use super::definition::{Case, DEFAULT, SWITCHES};
use crate::workload::{Filter, Shape};

pub(super) const RULES: &[Case] = &[
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
        ..DEFAULT
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
        ..DEFAULT
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
        ..DEFAULT
    },
    Case {
        name: "routes-mixed",
        title: "30,000 IPv6 and 20,000 IPv4 routes in two tables, TTL and MAC rewritten, 100,000 flows",
        shape: Shape::MixedRoutes {
            flows: 100_000,
            covered: 100,
        },
        systems: SWITCHES,
        own: "chain-10k",
        ..DEFAULT
    },
    Case {
        name: "routes-uncovered",
        title: "the same routes, half of the packets to no route",
        shape: Shape::MixedRoutes {
            flows: 100_000,
            covered: 50,
        },
        systems: SWITCHES,
        own: "chain-10k",
        ..DEFAULT
    },
];
