//! The quantities of the experiment `qos`, and their bounds.

use crate::figure::quantity::{Bound, Quantity, quantity};

/// The accuracy of meters and shapers, and the latency of packets with strict priority.
pub(crate) const QOS: &str = "qos";

/// The quantities, in the order of the table.
pub(crate) const QUANTITIES: &[Quantity] = &[
    quantity(
        QOS,
        "meter-error",
        "the farthest that a meter was from its rate, any rate, size and number of workers",
        "%",
        Bound::AtMost(1.0),
    ),
    quantity(
        QOS,
        "shaper-error",
        "the farthest that a shaper was from its rate, any rate, size and number of workers",
        "%",
        Bound::AtMost(2.0),
    ),
    quantity(
        QOS,
        "alone-p50",
        "median latency of urgent packets while nothing else wants the port",
        "us",
        Bound::None,
    ),
    quantity(
        QOS,
        "alone-p99",
        "99th percentile of latency of urgent packets while nothing else wants the port",
        "us",
        Bound::None,
    ),
    quantity(
        QOS,
        "alone-max",
        "greatest latency of urgent packets while nothing else wants the port",
        "us",
        Bound::None,
    ),
    quantity(
        QOS,
        "priority-p50",
        "median latency of urgent packets while the port is flooded and they have strict priority",
        "us",
        Bound::None,
    ),
    quantity(
        QOS,
        "priority-p99",
        "99th percentile of latency of urgent packets while the port is flooded and they have strict priority",
        "us",
        Bound::AtMost(1000.0),
    ),
    quantity(
        QOS,
        "priority-max",
        "greatest latency of urgent packets while the port is flooded and they have strict priority",
        "us",
        Bound::None,
    ),
    quantity(
        QOS,
        "same-p50",
        "median latency of urgent packets while the port is flooded and they wait with all others",
        "us",
        Bound::None,
    ),
    quantity(
        QOS,
        "same-p99",
        "99th percentile of latency of urgent packets while the port is flooded and they wait with all others",
        "us",
        Bound::None,
    ),
    quantity(
        QOS,
        "same-max",
        "greatest latency of urgent packets while the port is flooded and they wait with all others",
        "us",
        Bound::None,
    ),
];
