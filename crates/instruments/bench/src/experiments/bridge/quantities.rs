//! The quantities of the experiment `bridge`, and their bounds.

use crate::figure::quantity::{Bound, Quantity, quantity};

/// A learning bridge.
pub(crate) const BRIDGE: &str = "bridge";

/// The quantities, in the order of the table.
pub(crate) const QUANTITIES: &[Quantity] = &[
    quantity(
        BRIDGE,
        "table-size",
        "MAC addresses that the bridge is configured to hold",
        "addresses",
        Bound::None,
    ),
    quantity(
        BRIDGE,
        "capacity",
        "MAC addresses that are held, none of them flooded (RFC 2889, section 5.7)",
        "addresses",
        Bound::None,
    ),
    quantity(
        BRIDGE,
        "learning",
        "highest rate of new MAC addresses of which 8,000 are all learned (RFC 2889, section 5.8)",
        "/s",
        Bound::None,
    ),
    quantity(
        BRIDGE,
        "broadcast",
        "highest rate of 64-byte broadcast frames that all come out of both other ports (RFC 2889, section 5.10)",
        "Mpps",
        Bound::None,
    ),
    quantity(
        BRIDGE,
        "right",
        "64-byte frames to a known address that are forwarded",
        "%",
        Bound::None,
    ),
    quantity(
        BRIDGE,
        "runts",
        "63-byte frames that are forwarded, of which a link of Ethernet has none (RFC 2889, section 5.9)",
        "%",
        Bound::None,
    ),
    quantity(
        BRIDGE,
        "oversized",
        "1600-byte frames that are forwarded between ports of an MTU of 1500 (RFC 2889, section 5.9)",
        "%",
        Bound::None,
    ),
];
