//! Waiting for the next live packets that match, so that they can be explained.

use core::sync::atomic::{AtomicU32, Ordering};

use millrace_flow::{FieldSet, FlowKey, Match, Rule};
use millrace_types::Priority;

/// An armed trace. Workers hand over a copy of each packet that matches, until enough have come.
///
/// While one is armed, all packets are parsed as deep as it needs; while none is, it costs one comparison
/// for each burst.
#[derive(Debug)]
pub struct LiveTrace {
    id: u64,
    rule: Rule,
    fields: FieldSet,
    remaining: AtomicU32,
}

impl LiveTrace {
    /// Waits for `packets` packets that match. `id` is handed to
    /// [`Egress::traced`](crate::Egress::traced).
    pub fn new(id: u64, match_: &Match, packets: u32) -> LiveTrace {
        LiveTrace {
            id,
            rule: match_.rule(Priority(0)),
            fields: match_.fields(),
            remaining: AtomicU32::new(packets),
        }
    }

    /// What it was called.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// How many packets it still waits for.
    pub fn remaining(&self) -> u32 {
        self.remaining.load(Ordering::Relaxed)
    }

    pub(crate) fn fields(&self) -> FieldSet {
        self.fields
    }

    /// Whether this packet is one of those waited for: then it is counted.
    #[inline]
    pub(crate) fn takes(&self, key: &FlowKey) -> bool {
        self.remaining() > 0
            && self.rule.matches(key)
            && self
                .remaining
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1))
                .is_ok()
    }
}
