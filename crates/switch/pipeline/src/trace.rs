//! Traces of live packets: workers copy the next packets that match, and the control side explains them.

use core::sync::atomic::{AtomicU32, Ordering};

use millrace_flow::{FieldSet, FlowKey, Match, Rule};
use millrace_types::Priority;

/// An armed trace: workers send a copy of each matching packet to the control side until the requested number is
/// reached.
///
/// While a trace is armed, workers parse all packets to the depth that its match needs. While no trace is armed, the
/// feature costs one comparison for each burst.
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

    /// Returns the number of packets that the trace still waits for.
    pub fn remaining(&self) -> u32 {
        self.remaining.load(Ordering::Relaxed)
    }

    pub(crate) fn fields(&self) -> FieldSet {
        self.fields
    }

    /// Returns true if the trace wants a copy of this packet, and then decrements the number of remaining packets.
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
