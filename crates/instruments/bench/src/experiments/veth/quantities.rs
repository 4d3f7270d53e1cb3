//! The quantities of the experiment `veth`, and their bounds.

use crate::figure::quantity::{Bound, Quantity, quantity};

/// Frames between hosts over veth pairs.
pub(crate) const VETH: &str = "veth";

/// The quantities, in the order of the table.
pub(crate) const QUANTITIES: &[Quantity] = &[
    quantity(
        VETH,
        "64",
        "64-byte frames per second that arrived, over veth pairs",
        "kpps",
        Bound::None,
    ),
    quantity(
        VETH,
        "64-sent",
        "64-byte frames per second that were sent",
        "kpps",
        Bound::None,
    ),
    quantity(
        VETH,
        "1518",
        "1518-byte frames per second that arrived, over veth pairs",
        "kpps",
        Bound::None,
    ),
    quantity(
        VETH,
        "1518-sent",
        "1518-byte frames per second that were sent",
        "kpps",
        Bound::None,
    ),
];
