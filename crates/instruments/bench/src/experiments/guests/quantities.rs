//! The quantities of the experiment `guests`, and their bounds.

use crate::figure::quantity::{Bound, Quantity, quantity};

/// Virtual machines at the ports of a switch.
pub(crate) const GUESTS: &str = "guests";

/// The quantities, in the order of the table.
pub(crate) const QUANTITIES: &[Quantity] = &[
    quantity(
        GUESTS,
        "pair",
        "one TCP stream from a virtual machine to another on the same switch",
        "Mbit/s",
        Bound::None,
    ),
    quantity(
        GUESTS,
        "pair-switches",
        "context switches of the switch's threads per second during the stream",
        "1/s",
        Bound::None,
    ),
    quantity(
        GUESTS,
        "pair-frame",
        "average size of the frames that the sending guest gave to the switch",
        "B",
        Bound::None,
    ),
    quantity(
        GUESTS,
        "host",
        "one TCP stream from a virtual machine to a host on a link",
        "Mbit/s",
        Bound::None,
    ),
    quantity(
        GUESTS,
        "host-switches",
        "context switches of the switch's threads per second during the stream",
        "1/s",
        Bound::None,
    ),
    quantity(
        GUESTS,
        "host-frame",
        "average size of the frames that the sending guest gave to the switch",
        "B",
        Bound::None,
    ),
];
