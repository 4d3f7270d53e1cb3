//! The trait of a network function, and its view of packets.

use millrace_types::{PortNo, Time};
use millrace_wire::{NoHeadroom, Packet};

use crate::effects::{Effects, ShunnedFlow};
use crate::shared::SharedValue;

/// A packet in a buffer of any type.
pub trait Buffer {
    /// Returns the number of bytes in all segments.
    fn len(&self) -> usize;

    /// Returns whether the packet has no bytes.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the contiguous first segment, which holds all headers.
    fn head(&self) -> &[u8];

    /// Calls `each` with the bytes of each segment that the function can read, in order. If their sizes add up to less
    /// than [`Buffer::len`], the function cannot read the other bytes.
    fn each_segment<'a>(&'a self, each: &mut dyn FnMut(&'a [u8])) {
        each(self.head());
    }

    /// Returns the first segment for rewriting in place.
    fn head_mut(&mut self) -> &mut [u8];

    /// Grows the first segment by `size` bytes at its front, with unspecified contents.
    ///
    /// # Errors
    /// [`NoHeadroom`]; the packet is unchanged.
    fn prepend(&mut self, size: usize) -> Result<(), NoHeadroom>;

    /// Removes `size` bytes at the front of the first segment, or all of it if it has fewer.
    fn trim_front(&mut self, size: usize);
}

impl<P: Packet> Buffer for P {
    #[inline]
    fn len(&self) -> usize {
        Packet::len(self)
    }

    #[inline]
    fn head(&self) -> &[u8] {
        Packet::head(self)
    }

    #[inline]
    fn each_segment<'a>(&'a self, each: &mut dyn FnMut(&'a [u8])) {
        Packet::each_segment(self, &mut |segment| each(segment));
    }

    #[inline]
    fn head_mut(&mut self) -> &mut [u8] {
        Packet::head_mut(self)
    }

    #[inline]
    fn prepend(&mut self, size: usize) -> Result<(), NoHeadroom> {
        Packet::prepend(self, size)
    }

    #[inline]
    fn trim_front(&mut self, size: usize) {
        Packet::trim_front(self, size);
    }
}

/// The decision of a function about a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Verdict {
    /// Forward to the next hop, or out of the chain after the last one.
    #[default]
    Next,
    /// Skip this number of hops; leave the chain if fewer follow. A function skips for all packets of a flow or for none,
    /// because packets that skip may overtake those that do not.
    Skip(u8),
    /// Drop the packet.
    Drop,
    /// Leave the chain through this port of the bridge.
    ToPort(PortNo),
}

impl Verdict {
    /// Returns the verdict as two numbers for modules, libraries and processes: the kind, and the number of hops or the port.
    #[inline]
    pub const fn to_raw(self) -> (u32, u32) {
        match self {
            Verdict::Next => (0, 0),
            Verdict::Skip(over) => (1, over as u32),
            Verdict::Drop => (2, 0),
            Verdict::ToPort(port) => (3, port.raw()),
        }
    }

    /// Returns the verdict that two numbers encode, or `None` if they encode none.
    #[inline]
    pub fn from_raw(what: u32, operand: u32) -> Option<Verdict> {
        match what {
            0 => Some(Verdict::Next),
            1 => u8::try_from(operand).ok().map(Verdict::Skip),
            2 => Some(Verdict::Drop),
            3 => Some(Verdict::ToPort(PortNo::from_raw(operand))),
            _ => None,
        }
    }
}

/// The direction in which a packet traverses the chain.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Direction {
    /// From the near end to the far end.
    #[default]
    Forward,
    /// From the far end to the near end.
    Backward,
}

impl Direction {
    /// Returns 0 for forward and 1 for backward.
    #[inline]
    pub const fn to_raw(self) -> u32 {
        match self {
            Direction::Forward => 0,
            Direction::Backward => 1,
        }
    }

    /// Returns the direction that a number encodes: 0 is forward, any other number backward.
    #[inline]
    pub const fn from_raw(raw: u32) -> Direction {
        match raw {
            0 => Direction::Forward,
            _ => Direction::Backward,
        }
    }
}

/// The context of a burst: time, direction and load.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Context {
    /// The time of the burst, which never decreases.
    pub now: Time,
    /// The direction of all packets of the burst.
    pub direction: Direction,
    /// The fill level of the queue in front of the function, from 0 (empty) to 255 (full). A function may do less work for a
    /// packet before packets are lost.
    pub load: u8,
}

impl Context {
    /// Returns the context of a burst from an empty queue.
    pub const fn new(now: Time, direction: Direction) -> Context {
        Context {
            now,
            direction,
            load: 0,
        }
    }
}

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
