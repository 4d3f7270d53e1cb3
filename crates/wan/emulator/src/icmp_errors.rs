//! The return of ICMP errors, from the half that drops a packet over the MTU to the thread that serves the
//! same end.
//!
//! ```text
//!  end a --> Sender a_to_b --(packet over the MTU)--> ring of ICMP errors --> IcmpErrors --> end a
//! ```
//!
//! The ring is a small one from `ring::records`, so that the two sides may be two threads. An answer leaves
//! at once, because the emulated router is at the point where frames enter the path.

use std::sync::atomic::AtomicU64;

use millrace_types::Time;

use crate::receiver::Frame;
use crate::ring::records::{Reader, Writer, heap_memory, ring};
use crate::too_big;

/// The memory of a ring in bytes: more than a burst of the largest answers needs. Each takes a head and 83
/// units of 16 bytes.
const MEMORY: usize = 128 << 10;
/// The maximum rate and burst of ICMP errors: those of Linux (`net.ipv4.icmp_msgs_per_sec` and
/// `icmp_msgs_burst`). RFC 4443, section 2.4 (f), requires a limit, and RFC 1812, section 4.3.2.8, allows
/// one.
const INTERVAL_NANOS: u64 = 1_000_000;
const BURST: u64 = 50;

/// A limit of ICMP errors: the Generic Cell Rate Algorithm (ITU-T I.371), which is a token bucket.
#[derive(Debug, Default)]
struct RateLimit {
    /// The theoretical arrival time in nanoseconds.
    theoretical_arrival_time: u64,
}

impl RateLimit {
    /// Returns true if an error conforms to the limit. An error that conforms is counted.
    fn conforms(&mut self, now: Time) -> bool {
        let now = now.nanos();
        if self.theoretical_arrival_time > now.saturating_add((BURST - 1) * INTERVAL_NANOS) {
            return false;
        }
        self.theoretical_arrival_time = self
            .theoretical_arrival_time
            .max(now)
            .saturating_add(INTERVAL_NANOS);
        true
    }
}

/// The outcome of a packet over the MTU that may get an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answer {
    /// An ICMP error is on its way.
    Sent,
    /// The rate limit forbids the answer, or the ring is full of errors that the reader has not taken.
    RateLimited,
    /// RFC 1122 or RFC 4443 forbids the answer.
    Forbidden,
}

/// The writing side of the ring. A sender owns it.
pub(crate) struct Writing {
    ring: Writer<Box<[AtomicU64]>>,
    limit: RateLimit,
    reply: Vec<u8>,
}

/// The ICMP errors of a direction, which return to the end where its frames enter. One thread owns them.
pub struct IcmpErrors {
    reader: Reader<Box<[AtomicU64]>>,
}

/// Returns the writing and the reading side of a ring.
pub(crate) fn icmp_errors() -> (Writing, IcmpErrors) {
    let (writer, reader) = ring(heap_memory(MEMORY));
    let writing = Writing {
        ring: writer,
        limit: RateLimit::default(),
        reply: Vec::with_capacity(too_big::REPLY_MAX),
    };
    (writing, IcmpErrors { reader })
}

impl Writing {
    /// Answers a packet that is longer than `mtu`. The reader sees the answer at once.
    pub(crate) fn answer(&mut self, now: Time, mtu: u16, frame: &[u8]) -> Answer {
        if !too_big::reply(frame, mtu, &mut self.reply) {
            return Answer::Forbidden;
        }
        if !self.limit.conforms(now) || !self.ring.push(now.nanos(), 0, &self.reply) {
            return Answer::RateLimited;
        }
        self.ring.publish();
        Answer::Sent
    }
}

impl IcmpErrors {
    /// Takes the next ICMP error.
    #[inline]
    pub fn take(&mut self) -> Option<Frame<'_, Box<[AtomicU64]>>> {
        let unit = self.reader.arrived()?;
        self.reader.free(unit);
        Some(Frame::new(&self.reader, unit))
    }

    /// Returns the memory of the taken errors to the writing side. Call it once a burst.
    #[inline]
    pub fn free(&mut self) {
        self.reader.reclaim();
    }

    /// Returns true if there is no ICMP error.
    #[inline]
    pub fn is_empty(&mut self) -> bool {
        self.reader.peek().is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_conforms_and_then_one_error_each_millisecond() {
        let mut limit = RateLimit::default();
        let mut conforming = |at: u64, tries: usize| {
            (0..tries)
                .filter(|_| limit.conforms(Time::from_nanos(at)))
                .count()
        };
        let second = 1_000_000_000;
        assert_eq!(conforming(second, 100), 50);
        assert_eq!(conforming(second + 999_999, 10), 0);
        assert_eq!(conforming(second + 1_000_000, 10), 1);
        assert_eq!(conforming(2 * second, 100), 50);
    }
}
