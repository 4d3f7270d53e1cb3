//! The keys of ports with several interfaces.

/// All keys of `other_config` that belong to bonds.
pub(crate) const KEYS: [&str; 11] = [
    "lacp-time",
    "lacp-system-id",
    "lacp-system-priority",
    "lacp-fallback-ab",
    "bond-primary",
    "bond-detect-mode",
    "bond-miimon-interval",
    "bond-rebalance-interval",
    "bond-hash-basis",
    "lb-output-action",
    "all-members-active",
];
