//! The cases of `millrace bench tables`: the cost of further tables.

use super::definition::{BY_TABLES, Baseline, Case, DEFAULT, target};
use crate::workload::Shape;

const TABLES_1: &str = "tables-1";

pub(super) const TABLES: &[Case] = &[
    Case {
        name: TABLES_1,
        title: "1 table, 10,000 exact flows",
        shape: Shape::Tables {
            tables: 1,
            flows: 10_000,
        },
        systems: BY_TABLES,
        own: TABLES_1,
        ..DEFAULT
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
        ..DEFAULT
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
        targets: &[target(Baseline::Own(TABLES_1), 0.5)],
        ..DEFAULT
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
        ..DEFAULT
    },
    Case {
        name: "pipeline-8-100k",
        title: "pipeline of 8 tables, 100,000 flows",
        shape: Shape::Pipeline { flows: 100_000 },
        systems: BY_TABLES,
        own: TABLES_1,
        ..DEFAULT
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
        ..DEFAULT
    },
];
