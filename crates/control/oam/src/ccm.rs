//! Continuity check messages between two maintenance end points (IEEE 802.1ag-2007, sections 20 and 21; ITU-T Y.1731).

use millrace_types::{Duration, Mac, Time};
use millrace_wire::{Builder, EtherType};
use thiserror::Error;

/// The EtherType of connectivity fault management.
pub const ETHER_TYPE: u16 = 0x8902;
/// Size of a message with its end TLV, in bytes.
pub const MESSAGE_SIZE: usize = 75;
/// Size of a maintenance association identifier, in bytes.
const MAID_SIZE: usize = 48;
const OPCODE_CCM: u8 = 1;
const FIRST_TLV_OFFSET: u8 = 70;
const RDI: u8 = 0x80;

/// The interval of messages (IEEE 802.1ag-2007, table 21-16).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Interval {
    /// 10 ms.
    Ms10 = 2,
    /// 100 ms.
    Ms100 = 3,
    /// 1 s.
    S1 = 4,
    /// 10 s.
    S10 = 5,
}

impl Interval {
    /// Returns the time between two messages.
    pub const fn duration(self) -> Duration {
        match self {
            Interval::Ms10 => Duration::from_millis(10),
            Interval::Ms100 => Duration::from_millis(100),
            Interval::S1 => Duration::from_secs(1),
            Interval::S10 => Duration::from_secs(10),
        }
    }
}

/// Returns the time after which a message of this interval is missing: 3.5 intervals.
fn lifetime(interval: Duration) -> Duration {
    interval * 7 / 2
}

/// Returns the lifetime of a message whose interval field has this code; `None` if the code is reserved.
fn lifetime_of(code: u8) -> Option<Duration> {
    let interval = match code {
        1 => Duration::from_micros(3_333),
        2 => Duration::from_millis(10),
        3 => Duration::from_millis(100),
        4 => Duration::from_secs(1),
        5 => Duration::from_secs(10),
        6 => Duration::from_secs(60),
        7 => Duration::from_secs(600),
        _ => return None,
    };
    Some(lifetime(interval))
}

/// The identifier of a maintenance association (MAID): the names of domain and association. Both ends have
/// the same.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Maid([u8; MAID_SIZE]);

/// The error for names that do not fit into the identifier of a maintenance association.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error(
    "the names of domain and association have {size} bytes: expected at most 44 together, and each at least 1"
)]
pub struct MaidError {
    /// The size of both names, in bytes.
    pub size: usize,
}

impl Maid {
    /// Returns the identifier with both names as character strings.
    ///
    /// # Errors
    /// [`MaidError`].
    pub fn new(domain: &str, association: &str) -> Result<Maid, MaidError> {
        let size = domain.len() + association.len();
        if domain.is_empty() || association.is_empty() || size > MAID_SIZE - 4 {
            return Err(MaidError { size });
        }
        let mut maid = [0; MAID_SIZE];
        // Name formats: 4 is a character string for the domain, 2 is a character string for the association.
        maid[0] = 4;
        maid[1] = domain.len() as u8;
        maid[2..2 + domain.len()].copy_from_slice(domain.as_bytes());
        let at = 2 + domain.len();
        maid[at] = 2;
        maid[at + 1] = association.len() as u8;
        maid[at + 2..at + 2 + association.len()].copy_from_slice(association.as_bytes());
        Ok(Maid(maid))
    }
}

/// The fields of a continuity check message (IEEE 802.1ag-2007, section 21.6).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Message {
    level: u8,
    has_rdi: bool,
    interval: u8,
    sequence: u32,
    mep: u16,
    maid: Maid,
}

impl Message {
    fn parse(bytes: &[u8]) -> Option<Message> {
        let message = bytes.first_chunk::<{ MESSAGE_SIZE - 1 }>()?;
        let is_valid = message[0] & 0x1f == 0 && message[1] == OPCODE_CCM && message[3] >= FIRST_TLV_OFFSET;
        let mut maid = [0; MAID_SIZE];
        maid.copy_from_slice(&message[10..10 + MAID_SIZE]);
        is_valid.then(|| Message {
            level: message[0] >> 5,
            has_rdi: message[2] & RDI != 0,
            interval: message[2] & 7,
            sequence: u32::from_be_bytes([message[4], message[5], message[6], message[7]]),
            mep: u16::from_be_bytes([message[8], message[9]]),
            maid: Maid(maid),
        })
    }

    fn emit(&self) -> [u8; MESSAGE_SIZE] {
        let mut bytes = [0; MESSAGE_SIZE];
        bytes[0] = self.level << 5;
        bytes[1] = OPCODE_CCM;
        bytes[2] = if self.has_rdi { RDI } else { 0 } | self.interval;
        bytes[3] = FIRST_TLV_OFFSET;
        bytes[4..8].copy_from_slice(&self.sequence.to_be_bytes());
        bytes[8..10].copy_from_slice(&self.mep.to_be_bytes());
        bytes[10..10 + MAID_SIZE].copy_from_slice(&self.maid.0);
        bytes
    }
}

/// The settings of a maintenance end point.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Settings {
    /// The number of this end, 1 to 8191.
    pub mep: u16,
    /// The number of the other end; `None` accepts any number except this end's.
    pub remote_mep: Option<u16>,
    /// The level of the domain, 0 to 7.
    pub level: u8,
    /// The maintenance association.
    pub maid: Maid,
    /// The interval of messages, the same at both ends.
    pub interval: Interval,
}

/// Counters of an end point.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    /// Messages of the other end.
    pub received: u64,
    /// Messages that are malformed or of another level.
    pub discarded: u64,
    /// Messages of another association, of an unexpected end, or with another interval.
    pub defects: u64,
    /// Messages that were sent.
    pub sent: u64,
    /// Changes between up and not up.
    pub flaps: u64,
}

/// A message that was received.
#[derive(Clone, Copy, Debug)]
struct Received {
    at: Time,
    /// True if the other end reports a defect.
    has_rdi: bool,
}

/// A maintenance end point that monitors one other end.
#[derive(Clone, Debug)]
pub struct Mep {
    settings: Settings,
    /// The last valid message.
    last: Option<Received>,
    /// The end of the defect that received messages caused: 3.5 intervals after the last message of each sender.
    defect_until: Option<Time>,
    remote: Option<u16>,
    sequence: u32,
    next_send: Time,
    was_up: bool,
    counters: Counters,
}

impl Mep {
    /// Returns an end point that has received nothing.
    pub fn new(settings: Settings, now: Time) -> Mep {
        Mep {
            settings,
            last: None,
            defect_until: None,
            remote: None,
            sequence: 0,
            next_send: now,
            was_up: false,
            counters: Counters::default(),
        }
    }

    /// Returns the settings.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Returns the counters.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Returns the number of the other end, from its last message.
    pub fn remote(&self) -> Option<u16> {
        self.remote
    }

    /// Returns the time without messages after which continuity is lost: 3.5 intervals.
    fn lifetime(&self) -> Duration {
        lifetime(self.settings.interval.duration())
    }

    /// Returns true if messages arrive from the other end (no LOC defect) and no message with another defect
    /// arrived within 3.5 of the intervals that it names.
    fn has_continuity(&self, now: Time) -> bool {
        self.last.is_some_and(|last| now < last.at + self.lifetime())
            && self.defect_until.is_none_or(|until| now >= until)
    }

    /// Returns true if messages arrive, and the other end reports that it receives messages from this end.
    pub fn is_up(&self, now: Time) -> bool {
        self.has_continuity(now) && self.last.is_some_and(|last| !last.has_rdi)
    }

    /// Returns true if the other end reports a defect.
    pub fn has_rdi(&self) -> bool {
        self.last.is_some_and(|last| last.has_rdi)
    }

    /// Handles a received message. `bytes` begins after the EtherType.
    pub fn receive(&mut self, bytes: &[u8], now: Time) {
        let Some(message) = Message::parse(bytes).filter(|message| message.level == self.settings.level)
        else {
            self.counters.discarded += 1;
            return;
        };
        let expected = self.settings.remote_mep.unwrap_or(message.mep);
        let is_expected = message.mep == expected && message.mep != self.settings.mep;
        if message.maid != self.settings.maid
            || !is_expected
            || message.interval != self.settings.interval as u8
        {
            self.counters.defects += 1;
            // The sender's next message is due after its interval, which may be longer than that of this end.
            let lasts = lifetime_of(message.interval).unwrap_or_else(|| self.lifetime());
            let until = now + lasts.max(self.lifetime());
            self.defect_until = self.defect_until.max(Some(until));
            return;
        }
        self.counters.received += 1;
        self.remote = Some(message.mep);
        self.last = Some(Received {
            at: now,
            has_rdi: message.has_rdi,
        });
    }

    /// Returns the message that is due at `now`, if any. The state of the end is that at `received_until`: all messages that arrived
    /// before this time, which is `now` or earlier, were given to [`Mep::receive`].
    pub fn poll(&mut self, now: Time, received_until: Time) -> Option<[u8; MESSAGE_SIZE]> {
        let is_up = self.is_up(received_until);
        if core::mem::replace(&mut self.was_up, is_up) != is_up {
            self.counters.flaps += 1;
        }
        if now < self.next_send {
            return None;
        }
        self.next_send = now + self.settings.interval.duration();
        self.sequence = self.sequence.wrapping_add(1);
        self.counters.sent += 1;
        let message = Message {
            level: self.settings.level,
            has_rdi: !self.has_continuity(received_until),
            interval: self.settings.interval as u8,
            sequence: self.sequence,
            mep: self.settings.mep,
            maid: self.settings.maid,
        };
        Some(message.emit())
    }

    /// Returns the time at which [`Mep::poll`] is due.
    pub fn deadline(&self) -> Time {
        match self.last {
            Some(last) if self.was_up => self.next_send.min(last.at + self.lifetime()),
            _ => self.next_send,
        }
    }

    /// Returns the frame of a message.
    pub fn frame(&self, message: &[u8; MESSAGE_SIZE], mac: Mac) -> Vec<u8> {
        // The group address of continuity checks at this level (IEEE 802.1ag-2007, table 8-13).
        let group = Mac([0x01, 0x80, 0xc2, 0, 0, 0x30 | self.settings.level & 7]);
        let builder = Builder::ethernet(group, mac).ether_type(EtherType(ETHER_TYPE));
        builder.payload(message).build()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(mep: u16) -> Settings {
        Settings {
            mep,
            remote_mep: None,
            level: 3,
            maid: Maid::new("ovs", "ovs").unwrap(),
            interval: Interval::Ms100,
        }
    }

    fn ms(ms: u64) -> Time {
        Time::from_millis(ms)
    }

    /// Runs both ends from `from` to `to` in ms. `heard[i]` is true if the messages of end `i` arrive.
    fn run(ends: &mut [Mep; 2], from: u64, to: u64, heard: [bool; 2]) {
        for at in from..to {
            for end in 0..2 {
                if let Some(message) = ends[end].poll(ms(at), ms(at))
                    && heard[end]
                {
                    ends[1 - end].receive(&message, ms(at));
                }
            }
        }
    }

    #[test]
    fn both_ends_are_up_and_both_are_down_when_one_is_not_heard() {
        let mut ends = [Mep::new(settings(1), ms(0)), Mep::new(settings(2), ms(0))];
        run(&mut ends, 0, 500, [true, true]);
        assert!(ends[0].is_up(ms(500)) && ends[1].is_up(ms(500)));
        assert_eq!(ends[0].remote(), Some(2));
        run(&mut ends, 500, 1200, [true, false]);
        assert!(!ends[0].is_up(ms(1200)), "no messages");
        assert!(
            !ends[1].is_up(ms(1200)) && ends[1].has_rdi(),
            "the other end receives nothing"
        );
        run(&mut ends, 1200, 1700, [true, true]);
        assert!(ends[0].is_up(ms(1700)) && ends[1].is_up(ms(1700)));
        assert_eq!(ends[0].counters().flaps, 3);
    }

    #[test]
    fn continuity_is_lost_after_three_and_a_half_intervals() {
        let mut ends = [Mep::new(settings(1), ms(0)), Mep::new(settings(2), ms(0))];
        run(&mut ends, 0, 301, [true, true]);
        assert!(ends[0].is_up(ms(649)));
        assert!(!ends[0].is_up(ms(650)));
        assert_eq!(ends[0].deadline(), ms(400));
    }

    #[test]
    fn messages_of_another_association_interval_or_end_are_defects_and_other_levels_are_ignored() {
        let wrong = [
            Settings {
                maid: Maid::new("ovs", "other").unwrap(),
                ..settings(2)
            },
            Settings {
                interval: Interval::S1,
                ..settings(2)
            },
            settings(1),
        ];
        for other in wrong {
            let mut end = Mep::new(settings(1), ms(0));
            let mut good = Mep::new(settings(2), ms(0)).poll(ms(0), ms(0)).unwrap();
            // An end that has received nothing sets RDI, so the test clears it.
            good[2] &= !RDI;
            end.receive(&good, ms(0));
            assert!(end.is_up(ms(1)));
            let bad = Mep::new(other, ms(0)).poll(ms(0), ms(0)).unwrap();
            end.receive(&bad, ms(1));
            assert!(!end.is_up(ms(2)));
            assert_eq!(end.counters().defects, 1);
        }
        let mut end = Mep::new(settings(1), ms(0));
        let level = Mep::new(
            Settings {
                level: 4,
                ..settings(2)
            },
            ms(0),
        )
        .poll(ms(0), ms(0))
        .unwrap();
        end.receive(&level, ms(0));
        end.receive(&[0; 20], ms(0));
        assert_eq!((end.counters().discarded, end.is_up(ms(1))), (2, false));
    }

    #[test]
    fn a_defect_lasts_for_three_and_a_half_intervals_of_the_message_that_shows_it() {
        let mut end = Mep::new(settings(1), ms(0));
        let mut good = Mep::new(settings(2), ms(0)).poll(ms(0), ms(0)).unwrap();
        good[2] &= !RDI;
        let mut bad = Mep::new(settings(3), ms(0)).poll(ms(0), ms(0)).unwrap();
        bad[10] = 0xff;
        bad[2] = Interval::S10 as u8;
        end.receive(&bad, ms(0));
        // A sender with a shorter interval does not end the defect of the other.
        bad[2] = Interval::Ms100 as u8;
        end.receive(&bad, ms(50));
        for at in (100..36_000).step_by(100) {
            end.receive(&good, ms(at));
            assert_eq!(end.is_up(ms(at)), at >= 35_000, "{at} ms");
        }
        // The interval is reserved: the defect lasts as long as one of this end's interval.
        bad[2] = 0;
        end.receive(&bad, ms(36_000));
        end.receive(&good, ms(36_100));
        assert!(!end.is_up(ms(36_349)) && end.is_up(ms(36_350)));
    }

    #[test]
    fn a_message_is_laid_out_as_open_vswitch_sends_it() {
        let mut end = Mep::new(settings(0x123), ms(0));
        let message = end.poll(ms(0), ms(0)).unwrap();
        assert_eq!(message[..4], [0x60, 1, 0x83, 70]);
        assert_eq!(message[4..10], [0, 0, 0, 1, 0x01, 0x23]);
        assert_eq!(message[10..20], *b"\x04\x03ovs\x02\x03ovs");
        assert_eq!(message[20..], [0; 55]);
        assert_eq!(Maid::new("", "x"), Err(MaidError { size: 1 }));
    }
}
