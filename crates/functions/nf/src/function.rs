//! The trait of a network function.

use millrace_types::Time;

use crate::buffer::Buffer;
use crate::burst::{Context, Verdict};
use crate::effects::{Effects, ShunnedFlow};
use crate::shared::SharedValue;

/// A network function.
///
/// One thread at a time calls it, not always the same one. [`process`](Function::process) must not block, allocate or log:
/// it may run in a worker of the switch, where a packet takes some hundred nanoseconds.
pub trait Function: Send {
    /// Inspects and rewrites packets in place, and sets the verdict of each. `verdicts` is as long as `burst` and holds
    /// [`Verdict::Next`] at first.
    fn process(&mut self, context: &Context, burst: &mut [&mut dyn Buffer], verdicts: &mut [Verdict]);

    /// Does the same as [`process`](Function::process), and may send packets and shun flows. The switch
    /// always calls this method; functions without effects need not implement it.
    fn process_with_effects(
        &mut self,
        context: &Context,
        burst: &mut [&mut dyn Buffer],
        verdicts: &mut [Verdict],
        effects: &mut Effects,
    ) {
        let _ = effects;
        self.process(context, burst, verdicts);
    }

    /// Receives the counters of a flow that is no longer shunned.
    fn shun_ended(&mut self, flow: &ShunnedFlow) {
        let _ = flow;
    }

    /// Replaces the shared value. Returns the old value, or `value` itself if the function does not use
    /// shared values. The control side drops the returned value, because that may take long. The switch calls
    /// this between bursts, and it should take no longer than a burst.
    fn share(&mut self, value: SharedValue) -> Option<SharedValue> {
        Some(value)
    }

    /// Handles time-outs and reports. It is called about ten times a second between bursts, with or without traffic, and
    /// should take no longer than a burst.
    fn tick(&mut self, now: Time) {
        let _ = now;
    }

    /// Ends the flows of the function, because no packet follows: their last messages go to the outbox. Returns true if the
    /// outbox had no room for all; the caller then empties it, and calls again.
    fn finish(&mut self) -> bool {
        false
    }
}

/// The panic payload of [`give_up`].
struct GaveUp(String);

/// Ends a function that cannot continue for a reason other than a bug. The caller of the function takes its hop down, as
/// after a panic, and reports the reason.
pub fn give_up(reason: impl Into<String>) -> ! {
    std::panic::resume_unwind(Box::new(GaveUp(reason.into())))
}

/// Returns the reason why a function ended, from its panic payload.
pub fn reason_of(payload: &(dyn core::any::Any + Send)) -> String {
    if let Some(GaveUp(reason)) = payload.downcast_ref() {
        return reason.clone();
    }
    let text = payload.downcast_ref::<&str>().copied();
    let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    format!("it panicked: {}", text.unwrap_or("no message"))
}
