//! The size with which a transaction is counted.

/// The size with which one transaction is counted in the sum of all.
#[derive(Clone, Copy, Default)]
pub(super) struct Counted {
    /// The size in bytes that is included in the sum.
    pub(super) size: usize,
    /// True if the size may have changed since it was included.
    pub(super) is_changed: bool,
}

/// Prints nothing about the value: it depends on the segmentation, and printed transactions must not.
impl core::fmt::Debug for Counted {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Counted")
    }
}
