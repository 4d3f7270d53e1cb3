//! A burst: its size, its context, and the verdicts on its packets.

use millrace_types::{PortNo, Time};

/// The largest burst of a function outside of the switch.
pub const BURST: usize = 64;

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
