//! Counters of a device, which the command READ_COUNT returns.

/// A counter of the device.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum Counter {
    /// Frames that the parser received.
    Frames = 0,
    /// Frames that were dropped because the frame FIFO was full.
    FifoFull = 1,
    /// Frames that were dropped because their FCS was wrong.
    BadFcs = 2,
    /// Frames shorter than [`crate::FRAME_SIZE_MIN`] or longer than [`crate::FRAME_SIZE_MAX`], which were dropped.
    BadLength = 3,
    /// Rows with wrong parity that a lookup read.
    Parity = 4,
    /// Frames that an entry dropped.
    Dropped = 5,
    /// Frames that were dropped because their queue had no free buffer or completion; for each queue.
    NoBuffer = 6,
    /// Frames that a queue received; for each queue.
    Received = 7,
}

impl Counter {
    /// All counters, in the order of their numbers, with names and descriptions.
    pub const ALL: [(Counter, &'static str, &'static str); 8] = [
        (Counter::Frames, "FRAMES", "Frames that the parser received."),
        (
            Counter::FifoFull,
            "FIFO_FULL",
            "Frames dropped because the frame FIFO was full.",
        ),
        (
            Counter::BadFcs,
            "BAD_FCS",
            "Frames dropped because their FCS was wrong.",
        ),
        (
            Counter::BadLength,
            "BAD_LENGTH",
            "Frames dropped because they have fewer than 14 or more than 9,600 bytes.",
        ),
        (
            Counter::Parity,
            "PARITY",
            "Rows with wrong parity that a lookup read; each was a miss.",
        ),
        (Counter::Dropped, "DROPPED", "Frames dropped by an entry."),
        (
            Counter::NoBuffer,
            "NO_BUFFER",
            "Frames dropped because queue `first` had no free buffer or completion.",
        ),
        (
            Counter::Received,
            "RECEIVED",
            "Frames that queue `first` received.",
        ),
    ];

    /// Returns the counter with a number.
    #[must_use]
    pub fn from_number(number: u8) -> Option<Counter> {
        Self::ALL.get(usize::from(number)).map(|(counter, ..)| *counter)
    }

    /// Returns true if there is one for each queue.
    #[must_use]
    pub const fn is_of_queue(self) -> bool {
        matches!(self, Counter::NoBuffer | Counter::Received)
    }
}
