//! A row of the exact table, 576 bits, as the memory of a device holds it.

use crate::bits::{BitField, field};

/// Width of a row in bits.
pub const WIDTH: usize = 576;

/// The fields of a row; the remaining bits are 0.
pub const FIELDS: [BitField; 9] = [
    field("valid", 0, 1, "The row has an entry."),
    field(
        "parity",
        1,
        1,
        "Even parity: the exclusive or of all 576 bits is 0.",
    ),
    field(
        "form",
        2,
        4,
        "Form of the entry, 1 to 15; equals the form of the port.",
    ),
    field("key", 6, 512, "Masked key."),
    field(
        "mark",
        518,
        32,
        "Mark of matching packets; 0 means no mark. With `drop`, the number of the drop counter.",
    ),
    field(
        "queue",
        550,
        5,
        "Queue of matching packets, if `override` is set.",
    ),
    field(
        "override",
        555,
        1,
        "The queue of the row replaces that of the bucket.",
    ),
    field("drop", 556, 1, "Matching packets are dropped and counted."),
    field("class", 557, 4, "Class of matching packets, 0 to 15."),
];
