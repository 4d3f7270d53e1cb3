//! The limits of groups for one packet.

/// The bucket executions and the nesting that are left for one packet.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Budget {
    pub(super) buckets: u32,
    pub(super) nesting: u32,
}
