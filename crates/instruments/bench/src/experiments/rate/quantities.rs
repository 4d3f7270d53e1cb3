//! The quantities of the experiment `rate`, and their bounds.

use crate::figure::quantity::{Bound, Quantity, quantity};

/// The highest rate without loss.
pub(crate) const RATE: &str = "rate";

/// The quantities, in the order of the table.
pub(crate) const QUANTITIES: &[Quantity] = &[
    quantity(
        RATE,
        "64",
        "highest rate without loss, 64-byte frames",
        "Mpps",
        Bound::None,
    ),
    quantity(
        RATE,
        "128",
        "highest rate without loss, 128-byte frames",
        "Mpps",
        Bound::None,
    ),
    quantity(
        RATE,
        "256",
        "highest rate without loss, 256-byte frames",
        "Mpps",
        Bound::None,
    ),
    quantity(
        RATE,
        "512",
        "highest rate without loss, 512-byte frames",
        "Mpps",
        Bound::None,
    ),
    quantity(
        RATE,
        "1024",
        "highest rate without loss, 1024-byte frames",
        "Mpps",
        Bound::None,
    ),
    quantity(
        RATE,
        "1280",
        "highest rate without loss, 1280-byte frames",
        "Mpps",
        Bound::None,
    ),
    quantity(
        RATE,
        "1518",
        "highest rate without loss, 1518-byte frames",
        "Mpps",
        Bound::None,
    ),
    quantity(
        RATE,
        "imix",
        "highest rate without loss, IMIX (7 of 64, 4 of 594, 1 of 1518 bytes)",
        "Mpps",
        Bound::None,
    ),
];
