//! The quantities of the experiment `updates`, and their bounds.

use crate::figure::quantity::{Bound, Quantity, quantity};

/// Entries change while packets of others pass.
pub(crate) const UPDATES: &str = "updates-100k";

/// The quantities, in the order of the table.
pub(crate) const QUANTITIES: &[Quantity] = &[
    quantity(
        UPDATES,
        "flow-mods",
        "flow_mods per second that were accepted while the generator measured",
        "/s",
        Bound::AtLeast(9_900.0),
    ),
    quantity(
        UPDATES,
        "full-mods",
        "flow_mods per second that were accepted while the generator measured the throughput at full rate",
        "/s",
        Bound::AtLeast(9_900.0),
    ),
    quantity(
        UPDATES,
        "lost",
        "packets that were offered during the updates and did not return",
        "packets",
        Bound::Never,
    ),
    quantity(
        UPDATES,
        "quiet-lost",
        "packets that were offered without updates and did not return",
        "packets",
        Bound::None,
    ),
    quantity(
        UPDATES,
        "throughput",
        "packets per second at full rate during the updates, relative to those without updates",
        "",
        Bound::AtLeast(0.9),
    ),
    quantity(
        UPDATES,
        "p99.9",
        "99.9th percentile of latency during the updates, relative to that without updates",
        "",
        Bound::AtMost(2.0),
    ),
    quantity(
        UPDATES,
        "quiet-p99.9",
        "99.9th percentile of latency without updates",
        "us",
        Bound::None,
    ),
    quantity(
        UPDATES,
        "busy-p99.9",
        "99.9th percentile of latency during the updates",
        "us",
        Bound::None,
    ),
];
