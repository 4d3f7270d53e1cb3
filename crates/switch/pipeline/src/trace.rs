//! Traces of live packets: copies of the next packets that match, to be explained.

use core::sync::atomic::{AtomicU32, Ordering};

use millrace_flow::{FieldSet, FlowKey, Match, Rule};
use millrace_types::Priority;

/// An armed trace. Workers hand over a copy of each packet that matches, until there are enough.
///
/// While a trace is armed, all packets are parsed as deep as it needs. While none is, traces cost one comparison for
/// each burst.
#[derive(Debug)]
pub struct LiveTrace {
    id: u64,
    rule: Rule,
    fields: FieldSet,
    remaining: AtomicU32,
}

impl LiveTrace {
    /// Returns a trace of `packets` packets that match. [`Egress::traced`](crate::Egress::traced) gets `id`.
    pub fn new(id: u64, match_: &Match, packets: u32) -> LiveTrace {
        LiveTrace {
            id,
            rule: match_.rule(Priority(0)),
            fields: match_.fields(),
            remaining: AtomicU32::new(packets),
        }
    }

    /// Returns the number given by the caller.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Returns the number of packets that are still to come.
    pub fn remaining(&self) -> u32 {
        self.remaining.load(Ordering::Relaxed)
    }

    pub(crate) fn fields(&self) -> FieldSet {
        self.fields
    }

    /// Returns true if this packet is one of those waited for, and counts it then.
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
