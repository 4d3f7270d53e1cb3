//! The receiver: checks datagrams, delivers new bytes, acknowledges, and grants credit.
//!
//! ```text
//!  datagram ─> head ─> MAC ─> replay window ─> open ─> address ─> credit ─> reassembly ─> Delivery
//!               │       │          │             │        │          │           │
//!               └───────┴──────────┴─────────────┴────────┴──────────┴───────────┴─> Discard, counted by name
//! ```
//!
//! A datagram changes no state before its MAC is verified. It is acknowledged only if its bytes are delivered
//! or were delivered before.
//!
//! **Credit** is absolute: the total number of bytes that the sender may have sent for the first time. It is
//! the number of written bytes plus the pool, so that unwritten bytes never exceed the pool. The first byte
//! of a group of 16 KiB takes the memory of the group. So the number of open groups has a bound of its own:
//! as many as fill the pool, and a few more.
//!
//! **An extent passes three stages**: its packets are *acknowledged* (here), its digest is *verified*
//! ([`Receiver::verified`]), and it is *durable* ([`Receiver::durable`]). Feedback carries only
//! acknowledgements, and the sender uses them only for loss detection. The sender discards an extent when it
//! is verified, and reports it as delivered when it is durable.

mod acks;
mod discard;
mod rate;
mod reassembly;

pub use discard::Discard;
pub use reassembly::NewRanges;

use crate::extent::{GROUP_SIZE, Layout};
use crate::packet::{
    ADDRESS_SIZE, Acknowledged, COUNTER_SIZE, Data, Feedback, HEAD_SIZE, Head, PacketType, Report, TAG_SIZE,
    control_body, expand_number, is_authentic,
};
use crate::ranges::RangeSet;
use crate::seal::{PairwiseKey, ReplayWindow, Seal};
use acks::AckTracker;
use millrace_types::{BitRate, Duration, Time};
use rate::ReceiveRate;
use reassembly::{Arrival, Limits, Reassembly};

/// The maximum number of feedback packets that one poll returns.
const FEEDBACK_PACKETS: usize = 2;
/// The maximum number of stored ranges of acknowledged numbers.
const ACK_RANGES: usize = 1 << 16;
/// The number of extents in progress and open groups that are allowed beyond those that fill the pool. A
/// correct sender opens a few of them where its first bytes begin and end.
const SPARE: u64 = 1_024;
/// The maximum number of ranges of an extent in progress. The smallest packets make fewer ranges of 16 MiB,
/// even if every second packet is lost.
const EXTENT_RANGES: usize = 1 << 13;

/// The initial configuration of a receiver.
#[derive(Clone, Debug)]
pub struct ReceiverConfig {
    /// The session's address space.
    pub layout: Layout,
    /// Extents that the receiver has already.
    pub have: RangeSet,
    /// The connection identifier, in the packets of the sender and of this receiver.
    pub connection: u32,
    /// The initial size of the pool: the number of received bytes that may wait to be written.
    pub pool: u64,
    /// The maximum size of the pool: see [`Receiver::grow_pool`].
    pub pool_max: u64,
}

/// Counters of a receiver.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ReceiverStats {
    /// DATA packets with some new bytes.
    pub accepted: u64,
    /// DATA packets without new bytes.
    pub duplicates: u64,
    /// Datagrams dropped, in the order of [`Discard::ALL`].
    pub discarded: [u64; Discard::ALL.len()],
    /// FEEDBACK packets that were created.
    pub feedback: u64,
    /// Bytes of these FEEDBACK packets, heads included.
    pub feedback_bytes: u64,
}

/// Bytes that arrived.
#[derive(Debug)]
pub struct Delivery<'a> {
    /// Address of the first byte of `bytes`.
    pub address: u64,
    /// The payload.
    pub bytes: &'a [u8],
    /// The new addresses.
    pub new: NewRanges,
    /// The extent that this packet completes, to be verified.
    pub completes: Option<u64>,
}

/// The result of an authentic DATA packet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Accepted {
    /// The new addresses.
    pub new: NewRanges,
    /// The extent that this packet completes.
    pub completes: Option<u64>,
}

/// The receiver of one session.
#[derive(Clone, Debug)]
pub struct Receiver {
    config: ReceiverConfig,
    window: ReplayWindow,
    acks: AckTracker,
    reassembly: Reassembly,
    verified: RangeSet,
    durable: RangeSet,
    /// New bytes that arrived and bytes written, in all.
    arrived: u64,
    written: u64,
    /// The largest payload of a packet so far. The last packet within the credit may exceed the credit by
    /// this number of bytes.
    largest: u64,
    credit_sent: u64,
    ce: u64,
    rate: ReceiveRate,
    /// The replay window of the sender's reports, which have numbers, too.
    reports: ReplayWindow,
    stats: ReceiverStats,
}

impl Receiver {
    /// Returns a receiver.
    pub fn new(config: ReceiverConfig) -> Receiver {
        let pool = config.pool.max(config.pool_max);
        let extents = pool / config.layout.extent_size() + SPARE;
        let limits = Limits {
            extents: usize::try_from(extents).unwrap_or(usize::MAX),
            open_groups: pool / GROUP_SIZE + SPARE,
            ranges: EXTENT_RANGES,
        };
        Receiver {
            reassembly: Reassembly::new(config.layout, config.have.clone(), limits),
            verified: config.have.clone(),
            durable: config.have.clone(),
            window: ReplayWindow::default(),
            acks: AckTracker::default(),
            arrived: 0,
            written: 0,
            largest: 0,
            credit_sent: config.pool,
            ce: 0,
            rate: ReceiveRate::default(),
            reports: ReplayWindow::default(),
            stats: ReceiverStats::default(),
            config,
        }
    }

    /// Returns the counters.
    pub fn stats(&self) -> ReceiverStats {
        self.stats
    }

    /// Returns the number of bytes that arrived and are not written.
    pub fn backlog(&self) -> u64 {
        self.arrived - self.written
    }

    /// Returns the number of extents of which some bytes are received and others missing.
    pub fn extents_in_progress(&self) -> usize {
        self.reassembly.extents_in_progress()
    }

    /// Returns the number of ranges in memory: received bytes, and packet numbers to be acknowledged.
    pub fn ranges_in_memory(&self) -> usize {
        self.reassembly.ranges_in_progress() + self.acks.len()
    }

    /// Returns the number of groups of 16 KiB with some bytes present and others missing. There are at most
    /// as many as fill the largest pool, and 1,024. The caller keeps a buffer for each group.
    pub fn open_groups(&self) -> u64 {
        self.reassembly.open_groups()
    }

    /// Returns the verified extents: the have-map of the next session.
    pub fn have(&self) -> &RangeSet {
        &self.verified
    }

    /// Returns the extents that are durable.
    pub fn durable_extents(&self) -> &RangeSet {
        &self.durable
    }

    /// Returns the extents with all bytes received, verified or not.
    pub fn arrived_extents(&self) -> &RangeSet {
        self.reassembly.complete()
    }

    /// Returns true if every extent is verified.
    pub fn is_complete(&self) -> bool {
        self.reassembly.is_complete() && self.verified.count() == self.config.layout.extents()
    }

    fn discard(&mut self, reason: Discard) -> Discard {
        self.stats.discarded[reason as usize] += 1;
        reason
    }

    /// Takes a DATA packet and decrypts it in place. `ce` is true if it carries a congestion mark.
    ///
    /// # Errors
    /// The reason why the packet was dropped. `Ok(None)` means that the packet has no new bytes.
    pub fn handle_data<'a>(
        &mut self,
        now: Time,
        datagram: &'a mut [u8],
        key: &PairwiseKey,
        content: &mut dyn Seal,
        ce: bool,
    ) -> Result<Option<Delivery<'a>>, Discard> {
        let (number, counter) = match Data::decode(datagram) {
            Ok(data) if data.head.connection == self.config.connection => {
                if !is_authentic(datagram, key, data.sealed.authenticated()) {
                    return Err(self.discard(Discard::Mac));
                }
                let number = expand_number(data.head.number, self.window.next());
                (number, data.sealed.counter())
            }
            _ => return Err(self.discard(Discard::Malformed)),
        };
        if !self.window.is_new(number) {
            return Err(self.discard(Discard::Replay));
        }
        let sealed = &mut datagram[HEAD_SIZE + COUNTER_SIZE..];
        let Ok(plain) = content.open(counter, sealed) else {
            return Err(self.discard(Discard::Forged));
        };
        let (bits, bytes) = plain.split_at(ADDRESS_SIZE.min(plain.len()));
        let bits = bits.iter().fold(0, |bits, byte| bits << 8 | u64::from(*byte));
        let Ok(address) = self.reassembly.layout().decode(bits, bytes.len() as u64) else {
            return Err(self.discard(Discard::Address));
        };
        let accepted = self.accept(now, number, address, bytes.len() as u64, ce)?;
        Ok((!accepted.new.is_empty()).then_some(Delivery {
            address,
            bytes,
            new: accepted.new,
            completes: accepted.completes,
        }))
    }

    /// Takes an authentic DATA packet by its number and the addresses of its bytes. [`Receiver::handle_data`]
    /// calls this function. A simulation without payload bytes calls it directly.
    ///
    /// # Errors
    /// The reason why the packet was dropped.
    pub fn accept(
        &mut self,
        now: Time,
        number: u64,
        address: u64,
        len: u64,
        ce: bool,
    ) -> Result<Accepted, Discard> {
        if !self.window.is_new(number) {
            return Err(self.discard(Discard::Replay));
        }
        self.largest = self.largest.max(len);
        if self.arrived + len > self.credit() + 2 * self.largest {
            return Err(self.discard(Discard::Credit));
        }
        let arrival = match self.reassembly.insert(address, len) {
            Ok(Arrival::TooManyExtents) => return Err(self.discard(Discard::Extents)),
            Ok(arrival) => arrival,
            Err(_) => return Err(self.discard(Discard::Address)),
        };
        self.window.insert(number);
        self.acks.on_packet(now, number);
        self.acks.bound(ACK_RANGES);
        self.ce += u64::from(ce);
        match arrival {
            Arrival::New { ranges, completes } => {
                let new: u64 = ranges.iter().map(|range| range.end - range.start).sum();
                self.arrived += new;
                self.rate.add(now, new);
                self.stats.accepted += 1;
                Ok(Accepted {
                    new: ranges,
                    completes,
                })
            }
            _ => {
                self.stats.duplicates += 1;
                Ok(Accepted {
                    new: NewRanges::Many(Vec::new()),
                    completes: None,
                })
            }
        }
    }

    /// Takes a REPORT packet.
    ///
    /// # Errors
    /// The reason why the packet was dropped.
    pub fn handle_report(&mut self, datagram: &[u8], key: &PairwiseKey) -> Result<(), Discard> {
        let parsed = Head::decode(datagram).and_then(|head| Ok((head, control_body(datagram)?)));
        let Ok((head, body)) = parsed else {
            return Err(self.discard(Discard::Malformed));
        };
        if head.packet_type != PacketType::Report || head.connection != self.config.connection {
            return Err(self.discard(Discard::Malformed));
        }
        if !is_authentic(datagram, key, [body, &[]]) {
            return Err(self.discard(Discard::Mac));
        }
        let number = expand_number(head.number, self.reports.next());
        if !self.reports.is_new(number) {
            return Err(self.discard(Discard::Replay));
        }
        let Ok(report) = Report::decode(body) else {
            return Err(self.discard(Discard::Malformed));
        };
        self.reports.insert(number);
        self.on_report(&report);
        Ok(())
    }

    /// Takes an authentic report.
    pub fn on_report(&mut self, report: &Report) {
        self.acks.on_report(report);
    }

    /// Records that this many bytes are written. The sender gets credit for as many.
    pub fn written(&mut self, bytes: u64) {
        self.written = (self.written + bytes).min(self.arrived);
        // A sender that is short of credit must not wait for the next packet.
        if self.credit() > self.credit_sent + self.config.pool / 4 {
            self.acks.ask();
        }
    }

    /// Raises the number of bytes that may wait to be written, up to the configured bound. The pool never
    /// shrinks, because the sender has credit for it.
    pub fn grow_pool(&mut self, pool: u64) {
        self.config.pool = self.config.pool.max(pool.min(self.config.pool_max));
    }

    /// Makes feedback due if the sender does not know all of its credit.
    pub fn announce_credit(&mut self) {
        if self.credit() > self.credit_sent {
            self.acks.ask();
        }
    }

    /// Returns the credit that the sender has not used, in bytes.
    pub fn unused_credit(&self) -> u64 {
        self.credit().saturating_sub(self.arrived)
    }

    /// Returns the last smoothed round-trip time that the sender reported, or zero before the first report.
    pub fn rtt(&self) -> Duration {
        self.acks.rtt()
    }

    /// Returns the rate at which new bytes arrived lately.
    pub fn rate(&mut self, now: Time) -> BitRate {
        self.rate.rate(now)
    }

    fn credit(&self) -> u64 {
        self.written + self.config.pool
    }

    /// Records that the digest of an extent is right.
    pub fn verified(&mut self, extent: u64) {
        self.verified.insert(extent..extent + 1);
    }

    /// Records that the digest of an extent is wrong. Its bytes are expected again.
    pub fn rejected(&mut self, extent: u64) {
        self.verified.remove(extent..extent + 1);
        self.reassembly.reject(extent);
    }

    /// Records that an extent is on stable storage.
    pub fn durable(&mut self, extent: u64) {
        self.durable.insert(extent..extent + 1);
    }

    /// Returns the time at which feedback is due.
    pub fn next_timeout(&self) -> Option<Time> {
        self.acks.due()
    }

    /// Returns feedback packets with their numbers, if feedback is due. There are several packets if the
    /// ranges do not fit into one.
    pub fn poll_feedback(&mut self, now: Time) -> Vec<(u64, Feedback)> {
        if self.acks.due().is_none_or(|due| now < due) {
            return Vec::new();
        }
        let mut packets = Vec::new();
        let mut ranges: Acknowledged = self.acks.acknowledged().to_vec();
        loop {
            let mut feedback = Feedback {
                delay: self.acks.delay(now),
                ce: self.ce,
                credit: self.credit(),
                rate: self.rate.rate(now),
                backlog: self.backlog(),
                acknowledged: std::mem::take(&mut ranges),
            };
            let (body, from) = feedback.encode();
            let older = feedback.acknowledged.partition_point(|range| range.end <= from);
            ranges.extend(feedback.acknowledged.drain(..older));
            // A bitmap may begin within a range.
            if let Some(first) = feedback.acknowledged.first_mut()
                && first.start < from
            {
                ranges.push(first.start..from);
                first.start = from;
            }
            let number = self.acks.on_sent(now, feedback.acknowledged.clone());
            self.stats.feedback += 1;
            self.stats.feedback_bytes += (HEAD_SIZE + body.len()) as u64;
            packets.push((number, feedback));
            if ranges.is_empty() || packets.len() == FEEDBACK_PACKETS {
                break;
            }
        }
        self.credit_sent = self.credit();
        packets
    }

    /// Returns a FEEDBACK packet.
    pub fn encode_feedback(&self, number: u64, feedback: &Feedback, key: &PairwiseKey) -> Vec<u8> {
        let head = Head {
            packet_type: PacketType::Feedback,
            connection: self.config.connection,
            number,
        };
        Feedback::packet(&head, key, &feedback.encode().0)
    }
}

const _: () = assert!(TAG_SIZE == 16, "`Seal::open` takes the tag behind the ciphertext");

#[cfg(test)]
mod tests {
    use super::*;
    use crate::extent::ExtentSize;
    use std::ops::Range;

    const POOL_MAX: u64 = 256 << 20;

    fn receiver(size: ExtentSize) -> Receiver {
        Receiver::new(ReceiverConfig {
            layout: Layout::new(1 << 40, size).unwrap(),
            have: RangeSet::new(),
            connection: 0,
            pool: 24 << 20,
            pool_max: POOL_MAX,
        })
    }

    #[test]
    fn one_byte_of_each_group_takes_no_more_memory_than_the_pool_and_a_constant() {
        for size in [ExtentSize::Small, ExtentSize::Large] {
            let mut receiver = receiver(size);
            let mut accept = |number: u64| {
                receiver
                    .accept(Time::ZERO, number, number * GROUP_SIZE, 1, false)
                    .err()
            };
            let (groups, refused) = (0..1 << 20)
                .find_map(|number| Some((number, accept(number)?)))
                .unwrap();
            assert_eq!(refused, Discard::Extents);
            assert!(groups * GROUP_SIZE <= POOL_MAX + (16 << 20), "{groups} groups");
        }
    }

    #[test]
    fn every_second_byte_of_an_extent_makes_a_bounded_number_of_ranges() {
        let mut receiver = receiver(ExtentSize::Large);
        for number in 0..EXTENT_RANGES as u64 {
            assert!(receiver.accept(Time::ZERO, number, 2 * number, 1, false).is_ok());
        }
        let number = EXTENT_RANGES as u64;
        let accepted = receiver.accept(Time::ZERO, number, 2 * number, 1, false);
        assert_eq!(accepted, Err(Discard::Extents));
        // A refused packet is not acknowledged. Its bytes are accepted later.
        assert!(receiver.accept(Time::ZERO, number + 1, 1, 1, false).is_ok());
        assert!(
            receiver
                .accept(Time::ZERO, number + 2, 2 * number, 1, false)
                .is_ok()
        );
    }

    /// Receives packets with these numbers, and returns the feedback for them.
    fn feedback(receiver: &mut Receiver, numbers: impl Iterator<Item = u64>) -> Vec<(u64, Feedback)> {
        for number in numbers {
            receiver
                .accept(Time::ZERO, number, 1_024 * number, 1_024, false)
                .unwrap();
        }
        receiver.poll_feedback(Time::from_secs(1))
    }

    fn confirm(receiver: &mut Receiver, feedback: u64) {
        receiver.on_report(&Report {
            next_number: 0,
            rtt: Duration::from_millis(100),
            answer: false,
            feedback: vec![feedback],
        });
    }

    #[test]
    fn a_confirmation_of_the_second_packet_of_feedback_confirms_nothing_of_the_first() {
        let mut receiver = receiver(ExtentSize::Small);
        let packets = feedback(&mut receiver, (0..1_500).map(|index| 20 * index));
        let [(_, first), (second, older)] = &packets[..] else {
            panic!("{} packets", packets.len());
        };
        assert!(first.acknowledged.len() + older.acknowledged.len() < 1_500);
        confirm(&mut receiver, *second);
        let kept = receiver.acks.acknowledged();
        assert!(first.acknowledged.iter().all(|range| kept.contains(range)));
        assert_eq!(kept.len(), 1_500 - older.acknowledged.len());
    }

    #[test]
    fn the_part_of_a_range_that_a_bitmap_cuts_off_is_in_the_second_packet() {
        let mut receiver = receiver(ExtentSize::Small);
        let packets = feedback(
            &mut receiver,
            (0..1_000).chain((1_001..9_500).filter(|number| number % 3 > 0)),
        );
        let acknowledged: Vec<&[Range<u64>]> = packets
            .iter()
            .map(|(number, feedback)| {
                let key = PairwiseKey::new([0; 16]);
                let packet = receiver.encode_feedback(*number, feedback, &key);
                let decoded = Feedback::decode(control_body(&packet).unwrap()).unwrap();
                assert_eq!(decoded.acknowledged, feedback.acknowledged);
                &feedback.acknowledged[..]
            })
            .collect();
        let mut all = RangeSet::new();
        for range in acknowledged.concat() {
            all.insert(range);
        }
        assert!(all.ranges() == receiver.acks.acknowledged());
    }
}
