//! The function itself, and what it is shown of packets.

use millrace_types::{PortNo, Time};
use millrace_wire::{NoHeadroom, Packet};

/// A packet, as a function sees it: any buffer of the switch, without its type.
pub trait Buffer {
    /// Bytes of all segments.
    fn len(&self) -> usize;

    /// Whether there is no byte at all.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The contiguous first segment, which holds all headers.
    fn head(&self) -> &[u8];

    /// The same, to be rewritten in place.
    fn head_mut(&mut self) -> &mut [u8];

    /// Grows the head by `size` bytes at its front; what they hold is unspecified.
    ///
    /// # Errors
    /// [`NoHeadroom`]; the packet is as before.
    fn prepend(&mut self, size: usize) -> Result<(), NoHeadroom>;

    /// Removes `size` bytes at the front of the head, all of it if it has fewer.
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

/// What becomes of a packet after a function.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Verdict {
    /// On to the next hop, or out of the chain after the last one.
    #[default]
    Next,
    /// Over so many hops to the one behind them; out of the chain if there are not so many. For all packets of a
    /// flow or for none: what skips may overtake what does not.
    Skip(u8),
    /// Nowhere.
    Drop,
    /// Out of the chain, and out of this port of the bridge.
    ToPort(PortNo),
}

impl Verdict {
    /// As two numbers, which all that is not this program understands: what, and over how many hops or to which port.
    #[inline]
    pub const fn to_raw(self) -> (u32, u32) {
        match self {
            Verdict::Next => (0, 0),
            Verdict::Skip(over) => (1, over as u32),
            Verdict::Drop => (2, 0),
            Verdict::ToPort(port) => (3, port.raw()),
        }
    }

    /// The verdict of two numbers; `None` if they are none.
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

/// Which way a packet goes through the chain.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Direction {
    /// From the near end to the far one.
    #[default]
    Forward,
    /// From the far end to the near one.
    Backward,
}

impl Direction {
    /// As a number: zero is forward, everything else backward.
    #[inline]
    pub const fn to_raw(self) -> u32 {
        match self {
            Direction::Forward => 0,
            Direction::Backward => 1,
        }
    }

    /// The same from a number.
    #[inline]
    pub const fn from_raw(raw: u32) -> Direction {
        match raw {
            0 => Direction::Forward,
            _ => Direction::Backward,
        }
    }
}

/// What a function may know besides the packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Context {
    /// The time, the same for the whole burst. It never goes back.
    pub now: Time,
    /// The way that all packets of the burst go.
    pub direction: Direction,
}

/// A network function.
///
/// One thread calls it, not always the same one. In [`process`](Function::process) it neither blocks nor allocates nor
/// logs: it may be running in the worker of a switch, and a packet has some hundred nanoseconds.
pub trait Function: Send {
    /// Looks at packets, rewrites them where they are, and says what becomes of each. `verdicts` is as long as `burst`
    /// and all [`Verdict::Next`] at first.
    fn process(&mut self, context: &Context, burst: &mut [&mut dyn Buffer], verdicts: &mut [Verdict]);

    /// Called some ten times a second between bursts, also when there are none: for time-outs and reports. As short as
    /// a burst.
    fn tick(&mut self, now: Time) {
        let _ = now;
    }
}

/// What a function that gave up leaves behind.
struct GaveUp(String);

/// Ends a function that cannot go on, for a reason that is not a mistake of the one who wrote this code: what runs it takes
/// its hop down, as after a panic, and tells the reason.
pub fn give_up(reason: impl Into<String>) -> ! {
    std::panic::resume_unwind(Box::new(GaveUp(reason.into())))
}

/// Why a function ended, from what was caught.
pub fn reason_of(payload: &(dyn core::any::Any + Send)) -> String {
    if let Some(GaveUp(reason)) = payload.downcast_ref() {
        return reason.clone();
    }
    let text = payload.downcast_ref::<&str>().copied();
    let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    format!("it panicked: {}", text.unwrap_or("no message"))
}
