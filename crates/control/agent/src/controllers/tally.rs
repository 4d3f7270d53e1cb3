//! Counters of one connection with a controller.

use core::sync::atomic::{AtomicU64, Ordering};

use millrace_openflow::roles::Role;

/// Counters that the task of a connection and the control thread share.
#[derive(Debug, Default)]
pub(crate) struct ChannelCounters {
    pub(crate) messages_in: AtomicU64,
    pub(crate) messages_out: AtomicU64,
    pub(crate) dropped: AtomicU64,
    /// The role as in `ofp_controller_role`; 0 for none.
    role: AtomicU64,
}

impl ChannelCounters {
    pub(crate) fn set_role(&self, role: Option<Role>) {
        let raw = role.map_or(0, |role| u64::from(role.raw()));
        self.role.store(raw, Ordering::Relaxed);
    }

    pub(crate) fn role(&self) -> Option<Role> {
        Role::from_raw(self.role.load(Ordering::Relaxed) as u32)
    }
}
