//! The quantities of the experiment `install`, and their bounds.

use crate::figure::quantity::{Bound, Quantity, quantity};

/// A million entries are added and removed.
pub(crate) const INSTALL: &str = "install-1m";

/// The quantities, in the order of the table.
pub(crate) const QUANTITIES: &[Quantity] = &[
    quantity(
        INSTALL,
        "install",
        "ovs-ofctl --bundle add-flows of 1,000,000 entries",
        "s",
        Bound::AtMost(6.0),
    ),
    quantity(
        INSTALL,
        "memory",
        "growth of the process per entry, huge pages included",
        "B/entry",
        Bound::AtMost(400.0),
    ),
    quantity(
        INSTALL,
        "delete",
        "ovs-ofctl del-flows of all, with its barrier",
        "s",
        Bound::AtMost(1.0),
    ),
    quantity(
        INSTALL,
        "expire",
        "from the first entry that times out to the last",
        "s",
        Bound::None,
    ),
    quantity(
        INSTALL,
        "expire-echo",
        "longest echo round trip while all entries time out",
        "ms",
        Bound::AtMost(50.0),
    ),
    quantity(
        INSTALL,
        "expire-gap",
        "longest pause in forwarding while all entries time out",
        "ms",
        Bound::AtMost(50.0),
    ),
];
