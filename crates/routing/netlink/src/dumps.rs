//! The order of dumps on one socket: one at a time, and each with an end that the consumer can trust or knows to be wrong.
//!
//! ```text
//!            ask                begin                    NLMSG_DONE
//!  request ------> [ queue ] ------------> [ running ] -------------> Ends, or Fails if it is spoiled
//!                                               |  ^
//!                                               +--+ NLM_F_DUMP_INTR, ENOBUFS: it is spoiled
//! ```
//!
//! Dumps run on the socket of the notifications, so that both arrive in the order in which the kernel queues them; where that is
//! not the order of the changes, notifications are the newer ([`crate::overtaken`]). The kernel
//! refuses a second dump while one runs (EBUSY). The end of a dump is never lost: the kernel queues it past the limit of the
//! receive buffer. After a failure, the next dump waits, longer each time, so that a consumer that is too slow for its
//! notifications is not sent dumps without end on top of them.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use millrace_rib::event::{Change, Dump};

use crate::overtaken::Overtaken;
use crate::wire::{Content, Message, nlm_flag};

/// The first wait after a failure.
const PAUSE_MIN: Duration = Duration::from_millis(10);
/// The longest wait after failures in a row.
const PAUSE_MAX: Duration = Duration::from_secs(1);

struct Running {
    dump: Dump,
    sequence: u32,
    is_spoiled: bool,
    overtaken: Overtaken,
}

/// The dumps that wait, and the one that runs.
#[derive(Default)]
pub(crate) struct Dumps {
    queue: VecDeque<Dump>,
    running: Option<Running>,
    last_sequence: u32,
    pause: Duration,
    not_before: Option<Instant>,
}

impl Dumps {
    /// Adds a dump, unless the same one waits already.
    pub(crate) fn ask(&mut self, dump: Dump) {
        if !self.queue.contains(&dump) {
            self.queue.push_back(dump);
        }
    }

    /// Begins the next dump if one waits and none runs; returns it, and the number of its request.
    pub(crate) fn begin(&mut self, now: Instant) -> Option<(Dump, u32)> {
        if self.running.is_some() || self.not_before.is_some_and(|time| now < time) {
            return None;
        }
        let dump = self.queue.pop_front()?;
        // 0 is the number of notifications.
        self.last_sequence = self.last_sequence.wrapping_add(1).max(1);
        self.running = Some(Running {
            dump,
            sequence: self.last_sequence,
            is_spoiled: false,
            overtaken: Overtaken::default(),
        });
        Some((dump, self.last_sequence))
    }

    /// Returns the time at which [`Self::begin`] begins a dump that waits; `None` if none waits, or one runs.
    pub(crate) fn due(&self, now: Instant) -> Option<Instant> {
        (self.running.is_none() && !self.queue.is_empty()).then(|| self.not_before.unwrap_or(now))
    }

    /// Returns true if a message is part of the running dump.
    pub(crate) fn includes(&self, message: &Message<'_>) -> bool {
        message.flags & nlm_flag::MULTI != 0 && self.is_answer(message)
    }

    fn is_answer(&self, message: &Message<'_>) -> bool {
        self.running
            .as_ref()
            .is_some_and(|running| running.sequence == message.sequence)
    }

    /// Takes notice of a change. Returns true if the running dump lists an object whose state a notification has told since.
    pub(crate) fn is_outdated(&mut self, change: &Change, is_listed: bool) -> bool {
        let Some(running) = &mut self.running else {
            return false;
        };
        match change {
            Change::There(object) if is_listed => running.overtaken.overtakes(object),
            _ => {
                running.overtaken.note(change);
                false
            }
        }
    }

    /// Takes notice of a message; returns the change if it ends the dump.
    pub(crate) fn read(
        &mut self,
        message: &Message<'_>,
        content: &Content<'_>,
        now: Instant,
    ) -> Option<Change> {
        if !self.is_answer(message) {
            return None;
        }
        if message.flags & nlm_flag::DUMP_INTERRUPTED != 0 {
            self.spoil();
        }
        match content {
            Content::Done(0) => self.end(true, now),
            Content::Done(_) | Content::Error(_) => self.end(false, now),
            _ => None,
        }
    }

    /// Marks the running dump as wrong: messages were lost meanwhile, or it contains one that cannot be read.
    pub(crate) fn spoil(&mut self) {
        if let Some(running) = &mut self.running {
            running.is_spoiled = true;
        }
    }

    /// Ends the running dump as failed, if one runs: its request could not be sent.
    pub(crate) fn fail(&mut self, now: Instant) -> Option<Change> {
        self.end(false, now)
    }

    fn end(&mut self, is_complete: bool, now: Instant) -> Option<Change> {
        let running = self.running.take()?;
        if is_complete && !running.is_spoiled {
            (self.pause, self.not_before) = (Duration::ZERO, None);
            return Some(Change::DumpEnds(running.dump));
        }
        self.pause = (self.pause * 2).clamp(PAUSE_MIN, PAUSE_MAX);
        self.not_before = Some(now + self.pause);
        Some(Change::DumpFails(running.dump))
    }
}

#[cfg(test)]
mod tests {
    use millrace_fib::Family;

    use super::*;
    use crate::wire::kind;

    fn message(kind: u16, flags: u16, sequence: u32) -> Message<'static> {
        Message {
            kind,
            flags,
            sequence,
            port: 1,
            body: &[],
        }
    }

    fn read(dumps: &mut Dumps, kind: u16, flags: u16, sequence: u32, now: Instant) -> Option<Change> {
        let content = if kind == kind::DONE {
            Content::Done(0)
        } else {
            Content::Noop
        };
        dumps.read(&message(kind, nlm_flag::MULTI | flags, sequence), &content, now)
    }

    #[test]
    fn dumps_run_one_after_the_other_and_the_same_one_waits_once() {
        let now = Instant::now();
        let mut dumps = Dumps::default();
        for dump in [Dump::Links, Dump::Routes(Family::V4), Dump::Links] {
            dumps.ask(dump);
        }
        let (first, sequence) = dumps.begin(now).unwrap();
        assert_eq!((first, dumps.begin(now)), (Dump::Links, None));
        // A dump that runs does not answer a request that came after its beginning.
        dumps.ask(Dump::Links);
        assert!(dumps.includes(&message(kind::NEW_LINK, nlm_flag::MULTI, sequence)));
        assert!(!dumps.includes(&message(kind::NEW_LINK, nlm_flag::MULTI, sequence + 1)));
        assert!(!dumps.includes(&message(kind::NEW_LINK, 0, 0)));
        assert_eq!(read(&mut dumps, kind::DONE, 0, sequence + 1, now), None);
        assert_eq!(
            read(&mut dumps, kind::DONE, 0, sequence, now),
            Some(Change::DumpEnds(Dump::Links))
        );
        let order: Vec<Dump> = core::iter::from_fn(|| {
            let (dump, sequence) = dumps.begin(now)?;
            read(&mut dumps, kind::DONE, 0, sequence, now)?;
            Some(dump)
        })
        .collect();
        assert_eq!(order, [Dump::Routes(Family::V4), Dump::Links]);
        assert_eq!(dumps.due(now), None);
    }

    #[test]
    fn a_dump_that_was_interrupted_or_lost_messages_fails_and_the_next_waits_longer_each_time() {
        let mut now = Instant::now();
        let mut dumps = Dumps::default();
        let mut pauses = Vec::new();
        for is_lost in [false, true, false, true, false, true, false, true, false] {
            dumps.ask(Dump::Links);
            let (_, sequence) = dumps.begin(now).unwrap();
            let flag = if is_lost { 0 } else { nlm_flag::DUMP_INTERRUPTED };
            assert_eq!(read(&mut dumps, kind::NEW_LINK, flag, sequence, now), None);
            if is_lost {
                dumps.spoil();
            }
            let end = read(&mut dumps, kind::DONE, 0, sequence, now);
            assert_eq!(end, Some(Change::DumpFails(Dump::Links)));
            dumps.ask(Dump::Links);
            let due = dumps.due(now).unwrap();
            assert_eq!(dumps.begin(due - Duration::from_millis(1)), None);
            pauses.push((due - now).as_millis());
            now = due;
        }
        assert_eq!(pauses, [10, 20, 40, 80, 160, 320, 640, 1000, 1000]);
        let (_, sequence) = dumps.begin(now).unwrap();
        let end = read(&mut dumps, kind::DONE, 0, sequence, now);
        assert_eq!(end, Some(Change::DumpEnds(Dump::Links)));
        dumps.ask(Dump::Links);
        assert_eq!(dumps.due(now), Some(now));
    }
}
