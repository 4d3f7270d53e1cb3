//! The quantities of the experiment `grow`, and their bounds.

use crate::figure::quantity::{Bound, Quantity, quantity};

/// A table grows while packets pass.
pub(crate) const GROW: &str = "grow-500k";

/// The quantities, in the order of the table.
pub(crate) const QUANTITIES: &[Quantity] = &[
    quantity(
        GROW,
        "flow-mods",
        "flow_mods per second into a table that grows to 500,000 entries, a barrier every 1,000",
        "/s",
        Bound::AtLeast(100_000.0),
    ),
    quantity(
        GROW,
        "last-fifth",
        "the same for the last 100,000",
        "/s",
        Bound::AtLeast(100_000.0),
    ),
    quantity(
        GROW,
        "barrier",
        "longest time between two barrier replies",
        "ms",
        Bound::None,
    ),
    quantity(
        GROW,
        "throughput",
        "packets per second during the growth, relative to before",
        "",
        Bound::None,
    ),
];
