//! The quantities of the experiment `qos`, and their bounds.

use crate::figure::quantity::{Bound, Quantity, quantity};

/// The accuracy of meters and shapers, and the latency of packets with strict priority.
pub(crate) const QOS: &str = "qos";

/// The quantities, in the order of the table.
pub(crate) const QUANTITIES: &[Quantity] = &[
    quantity(
        QOS,
        "meter-error",
        "largest deviation of a meter from its rate, over all rates, sizes and numbers of workers",
        "%",
        Bound::AtMost(1.0),
    ),
    quantity(
        QOS,
        "shaper-error",
        "largest deviation of a shaper from its rate, over all rates, sizes and numbers of workers",
        "%",
        Bound::AtMost(2.0),
    ),
    quantity(
        QOS,
        "alone-p50",
        "median latency of urgent packets without other packets at the port",
        "us",
        Bound::None,
    ),
    quantity(
        QOS,
        "alone-p99",
        "99th percentile of latency of urgent packets without other packets at the port",
        "us",
        Bound::None,
    ),
    quantity(
        QOS,
        "alone-max",
        "maximum latency of urgent packets without other packets at the port",
        "us",
        Bound::None,
    ),
    quantity(
        QOS,
        "priority-p50",
        "median latency of urgent packets with strict priority while the port is overloaded",
        "us",
        Bound::None,
    ),
    quantity(
        QOS,
        "priority-p99",
        "99th percentile of latency of urgent packets with strict priority while the port is overloaded",
        "us",
        Bound::AtMost(1000.0),
    ),
    quantity(
        QOS,
        "priority-max",
        "maximum latency of urgent packets with strict priority while the port is overloaded",
        "us",
        Bound::None,
    ),
    quantity(
        QOS,
        "priority-lost",
        "share of urgent packets with strict priority that were lost while the port is overloaded",
        "%",
        Bound::AtMost(0.1),
    ),
    quantity(
        QOS,
        "same-p50",
        "median latency of urgent packets in the queue of all others while the port is overloaded",
        "us",
        Bound::None,
    ),
    quantity(
        QOS,
        "same-p99",
        "99th percentile of latency of urgent packets in the queue of all others while the port is overloaded",
        "us",
        Bound::None,
    ),
    quantity(
        QOS,
        "same-max",
        "maximum latency of urgent packets in the queue of all others while the port is overloaded",
        "us",
        Bound::None,
    ),
];

/// Returns the quantities of rates, or those of latency and loss.
pub(crate) fn of_rates(rates: bool) -> impl Iterator<Item = &'static Quantity> {
    let of = move |quantity: &&Quantity| quantity.name.ends_with("-error") == rates;
    QUANTITIES.iter().filter(of)
}
