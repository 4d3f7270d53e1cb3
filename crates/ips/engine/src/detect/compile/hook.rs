//! The units that are fetched and scanned once for all rules.

use millrace_ips_rules::buffers::Buffer;

use crate::detect::program::Step;

/// A buffer with transforms: the unit that is fetched and scanned once for all rules.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Hook {
    pub buffer: Buffer,
    /// The transforms that are applied before the inspection.
    pub transforms: Vec<Step>,
}
