//! The cases of `millrace bench workers` and `millrace bench million`: the gain of further cores.

use super::definition::{BEST, Case, DEFAULT};
use crate::workload::Shape;

const WORKERS_1: &str = "workers-1";

pub(super) const WORKERS: &[Case] = &[
    Case {
        name: WORKERS_1,
        title: "10,000 exact flows, one forwarding thread",
        shape: Shape::Exact(10_000),
        own: WORKERS_1,
        ..DEFAULT
    },
    Case {
        name: "workers-2",
        title: "10,000 exact flows, two forwarding threads with a port each",
        shape: Shape::Exact(10_000),
        workers: 2,
        own: WORKERS_1,
        ..DEFAULT
    },
    Case {
        name: "workers-4",
        title: "10,000 exact flows, four forwarding threads with a port each",
        shape: Shape::Exact(10_000),
        workers: 4,
        own: WORKERS_1,
        ..DEFAULT
    },
    Case {
        name: "workers-8",
        title: "10,000 exact flows, eight forwarding threads with a port each",
        shape: Shape::Exact(10_000),
        workers: 8,
        own: WORKERS_1,
        ..DEFAULT
    },
];

pub(super) const MILLION: &[Case] = &[
    Case {
        name: "million-1",
        title: "1,000,000 exact flows, one forwarding thread",
        shape: Shape::Exact(1_000_000),
        systems: BEST,
        own: "million-1",
        ..DEFAULT
    },
    Case {
        name: "million-2",
        title: "1,000,000 exact flows, two forwarding threads with a port each",
        shape: Shape::Exact(1_000_000),
        workers: 2,
        systems: BEST,
        own: "million-1",
        ..DEFAULT
    },
    Case {
        name: "million-4",
        title: "1,000,000 exact flows, four forwarding threads with a port each",
        shape: Shape::Exact(1_000_000),
        workers: 4,
        systems: BEST,
        own: "million-1",
        ..DEFAULT
    },
];
