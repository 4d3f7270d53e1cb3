//! The quantities of the experiment `latency`, and their bounds.

use crate::figure::quantity::{Bound, Quantity, quantity};

/// The latency of packets.
pub(crate) const LATENCY: &str = "latency";

/// The quantities, in the order of the table.
pub(crate) const QUANTITIES: &[Quantity] = &[
    quantity(
        LATENCY,
        "10%-p50",
        "median latency at 10 % of the highest rate without loss",
        "us",
        Bound::None,
    ),
    quantity(
        LATENCY,
        "10%-p90",
        "90th percentile of latency at 10 % of the highest rate without loss",
        "us",
        Bound::None,
    ),
    quantity(
        LATENCY,
        "10%-p99",
        "99th percentile of latency at 10 % of the highest rate without loss",
        "us",
        Bound::None,
    ),
    quantity(
        LATENCY,
        "10%-p99.9",
        "99.9th percentile of latency at 10 % of the highest rate without loss",
        "us",
        Bound::None,
    ),
    quantity(
        LATENCY,
        "10%-p99.99",
        "99.99th percentile of latency at 10 % of the highest rate without loss",
        "us",
        Bound::None,
    ),
    quantity(
        LATENCY,
        "10%-max",
        "maximum latency at 10 % of the highest rate without loss",
        "us",
        Bound::None,
    ),
    quantity(
        LATENCY,
        "50%-p50",
        "median latency at 50 % of the highest rate without loss",
        "us",
        Bound::None,
    ),
    quantity(
        LATENCY,
        "50%-p90",
        "90th percentile of latency at 50 % of the highest rate without loss",
        "us",
        Bound::None,
    ),
    quantity(
        LATENCY,
        "50%-p99",
        "99th percentile of latency at 50 % of the highest rate without loss",
        "us",
        Bound::None,
    ),
    quantity(
        LATENCY,
        "50%-p99.9",
        "99.9th percentile of latency at 50 % of the highest rate without loss",
        "us",
        Bound::None,
    ),
    quantity(
        LATENCY,
        "50%-p99.99",
        "99.99th percentile of latency at 50 % of the highest rate without loss",
        "us",
        Bound::None,
    ),
    quantity(
        LATENCY,
        "50%-max",
        "maximum latency at 50 % of the highest rate without loss",
        "us",
        Bound::None,
    ),
    quantity(
        LATENCY,
        "90%-p50",
        "median latency at 90 % of the highest rate without loss",
        "us",
        Bound::None,
    ),
    quantity(
        LATENCY,
        "90%-p90",
        "90th percentile of latency at 90 % of the highest rate without loss",
        "us",
        Bound::None,
    ),
    quantity(
        LATENCY,
        "90%-p99",
        "99th percentile of latency at 90 % of the highest rate without loss",
        "us",
        Bound::None,
    ),
    quantity(
        LATENCY,
        "90%-p99.9",
        "99.9th percentile of latency at 90 % of the highest rate without loss",
        "us",
        Bound::None,
    ),
    quantity(
        LATENCY,
        "90%-p99.99",
        "99.99th percentile of latency at 90 % of the highest rate without loss",
        "us",
        Bound::None,
    ),
    quantity(
        LATENCY,
        "90%-max",
        "maximum latency at 90 % of the highest rate without loss",
        "us",
        Bound::None,
    ),
];
