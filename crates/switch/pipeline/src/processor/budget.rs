//! The limits of groups for one packet.

/// The number of bucket executions and of nesting levels that one packet may still use.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Budget {
    pub(super) buckets: u32,
    pub(super) nesting: u32,
}
