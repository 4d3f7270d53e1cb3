//! The sender's side of one receiver: plan, pacing, packets in flight, loss detection, controller.
//!
//! The caller polls for packets ([`Flow::poll`]) and reports ([`Flow::poll_report`]), passes feedback in ([`Flow::on_feedback`])
//! and calls [`Flow::on_timeout`] when [`Flow::next_timeout`] has come.
//!
//! A flow that waits for its receiver sends probes. After a probe timeout without feedback it requests
//! feedback, with two packets of data if any are in flight. It repeats this after twice the time, up to a
//! limit.

mod config;
mod delivery;
mod loss;
mod mtu;
mod packet_size;
mod plan;
mod reports;
mod sent;
mod stats;

pub use config::FlowConfig;
pub use mtu::{BASE_MTU, USUAL_MTU, initial_payload};
pub use sent::ProtocolViolation;
pub use stats::{FlowStats, Limit};

pub use crate::slab::Piece;

use crate::congestion::breaker::Breaker;
use crate::congestion::{Controller, Departure, Outcome, Sample, TAGS};
use crate::extent::Layout;
use crate::pacing::Pacer;
use crate::packet::{DATA_OVERHEAD, Feedback, NUMBER_WINDOW, Report};
use crate::random::Random;
use crate::rtt::RttEstimator;
use crate::slab::{Grid, SealRequest, SlabCache};
use delivery::Delivery;
use loss::{LossDetector, SentPacket};
use millrace_types::{BitRate, Duration, Time};
use mtu::PathMtu;
use plan::{CachedAhead, Plan};
use reports::Reports;
use sent::{PacketState, Quantum, SentPackets};

/// The number of data packets in one probe of a silent path.
const PROBE_PACKETS: u64 = 2;
/// The maximum time between probes of a silent path, unless two probe timeouts are longer.
const PROBE_INTERVAL_MAX: Duration = Duration::from_secs(1);
/// Slabs that are sealed ahead while the packet size may change.
const AHEAD_OF_PROBE: usize = 1;
/// One packet number in so many is skipped, on average.
const SKIP_EVERY: u64 = 4_096;

/// A packet to be sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Outgoing {
    /// The packet number.
    pub number: u64,
    /// The piece that the packet carries.
    pub piece: Piece,
}

/// The sender's side of one receiver.
pub struct Flow {
    plan: Plan,
    sent: SentPackets,
    detector: LossDetector,
    controller: Box<dyn Controller>,
    breaker: Breaker,
    pacer: Pacer,
    rtt: RttEstimator,
    mtu: PathMtu,
    /// The grid of all packets except probes of the path MTU.
    grid: Grid,
    delivery: Delivery,
    random: Random,
    overhead: u64,
    layout: Layout,
    in_flight: u64,
    window_limited: bool,
    /// True if pieces may leave but none of them is sealed.
    starved: bool,
    cached_ahead: CachedAhead,
    /// The piece of the next probe of the path MTU and its grid, until it is sealed.
    mtu_probe: Option<(Grid, Piece)>,
    /// The piece of the next probe of a silent path, until it is sealed.
    duplicate: Option<Piece>,
    /// The acknowledged packet with the largest number.
    newest: SentPacket,
    ce: u64,
    /// The time of the last feedback, or of the first departure after an idle time.
    heard_at: Time,
    timeouts: u32,
    /// The number of probes since data was last acknowledged. Feedback does not reset it: a black hole passes
    /// feedback and drops data.
    probes_without_ack: u32,
    /// Feedback packets that had arrived when data was acknowledged last.
    feedback_at_ack: u64,
    probe_packets: u64,
    reports: Reports,
    stats: FlowStats,
}

impl Flow {
    /// Returns a flow that starts now.
    pub fn new(config: FlowConfig, now: Time) -> Flow {
        let overhead = u64::from(config.headers) + DATA_OVERHEAD as u64;
        Flow {
            plan: Plan::new(config.layout, &config.have, config.start, config.credit),
            sent: SentPackets::default(),
            detector: LossDetector::new(now),
            controller: config.controller,
            breaker: Breaker::new(now),
            pacer: Pacer::new(u64::from(config.payload) + overhead, now),
            rtt: RttEstimator::new(config.initial_rtt),
            mtu: PathMtu::new(
                config.payload,
                config.mtu,
                u16::try_from(overhead).unwrap_or(u16::MAX),
            ),
            grid: Grid::new(config.layout, config.payload),
            delivery: Delivery::new(now),
            random: Random::new(config.seed),
            overhead,
            layout: config.layout,
            in_flight: 0,
            window_limited: false,
            starved: false,
            cached_ahead: CachedAhead::default(),
            mtu_probe: None,
            duplicate: None,
            newest: SentPacket {
                number: 0,
                sent_at: now,
            },
            ce: 0,
            heard_at: now,
            timeouts: 0,
            probes_without_ack: 0,
            feedback_at_ack: 0,
            probe_packets: 0,
            reports: Reports::default(),
            stats: FlowStats::default(),
        }
    }

    /// Returns the counters.
    pub fn stats(&self) -> FlowStats {
        self.stats
    }

    /// Returns the controller.
    pub fn controller(&self) -> &dyn Controller {
        &*self.controller
    }

    /// Returns the smoothed round-trip time.
    pub fn rtt(&self) -> Duration {
        self.rtt.smoothed()
    }

    /// Returns the bytes of a packet besides its payload: IP and UDP headers, and the protocol's.
    pub fn overhead(&self) -> u64 {
        self.overhead
    }

    /// Returns bytes in flight, headers included.
    pub fn in_flight(&self) -> u64 {
        self.in_flight
    }

    /// Returns the number of recorded packets: those in flight, and lost ones for a while.
    pub fn remembered(&self) -> usize {
        self.sent.len()
    }

    /// Returns bytes delivered, headers included.
    pub fn delivered(&self) -> u64 {
        self.delivery.delivered
    }

    /// Returns the bytes that the receiver lacked at first.
    pub fn needed(&self) -> u64 {
        self.plan.needed()
    }

    /// Returns true if every extent is verified.
    pub fn is_complete(&self) -> bool {
        self.plan.is_complete()
    }

    /// Returns the extent at which fresh bytes continue.
    pub fn cursor(&self) -> u64 {
        self.plan.cursor()
    }

    /// Returns the limit of the flow's rate.
    pub fn limit(&self) -> Limit {
        if self.plan.is_blocked() {
            Limit::Peer
        } else if self.starved {
            Limit::Source
        } else if self.plan.has_piece() {
            Limit::Network
        } else {
            Limit::Nothing
        }
    }

    /// Learns that the receiver verified an extent: its bytes are never sent again.
    pub fn verified(&mut self, extent: u64) {
        self.plan.verified(extent);
    }

    /// Learns that the digest of an extent was wrong: it is sent again.
    pub fn rejected(&mut self, extent: u64) {
        self.plan.rejected(extent);
        self.cached_ahead = CachedAhead::default();
        self.reports.ask_again_at_tail();
    }

    /// Tells the flow how many flows share its sender: see [`crate::pacing`].
    pub fn set_flows(&mut self, flows: u32) {
        self.pacer.set_flows(flows);
    }

    /// Records that the shared uplink holds back a quantum that the window and the pacer allow. Delivery
    /// rates then measure the share of the uplink, not the path.
    pub fn note_uplink_limit(&mut self, now: Time) {
        let room = self.controller.window().saturating_sub(self.in_flight) > self.overhead;
        if room && self.plan.has_piece() && self.pacer.is_open(now) {
            self.delivery.mark_app_limited(self.in_flight);
        }
    }

    /// Appends the packets of one quantum to `out`; returns false if none may leave now.
    pub fn poll(&mut self, now: Time, out: &mut Vec<Outgoing>) -> bool {
        self.poll_ready(now, &|_| true, out)
    }

    /// Appends the packets of one quantum to `out`, with ready pieces only. Returns false if none may leave
    /// now.
    pub fn poll_ready(&mut self, now: Time, ready: &dyn Fn(Piece) -> bool, out: &mut Vec<Outgoing>) -> bool {
        self.window_limited = false;
        self.starved = false;
        if self.sent.len() as u64 >= NUMBER_WINDOW / 2 {
            return false;
        }
        if self.probe_packets > 0 {
            let packets = std::mem::take(&mut self.probe_packets);
            return self.emit(now, packets, u64::MAX, ready, out);
        }
        self.pacer.set_rate(self.controller.pacing_rate(), now);
        self.pacer.set_min_rtt(self.rtt.least().unwrap_or_default());
        let room = self.controller.window().saturating_sub(self.in_flight);
        if room < self.overhead + 1 && self.in_flight > 0 && self.plan.has_piece() {
            self.window_limited = true;
            return false;
        }
        // A sender of many receivers calls this function for each receiver whenever one of them may send.
        if !self.pacer.is_open(now) {
            return false;
        }
        if self.plan.peek(self.grid, ready).is_none() {
            self.starved = self.plan.has_piece();
            self.pacer.skip_idle(now);
            self.delivery.mark_app_limited(self.in_flight);
            return false;
        }
        self.emit(now, self.pacer.quantum(), room, ready, out)
    }

    /// Appends seal requests for repairs and for `ahead` slabs from the cursor on, unless they are cached.
    pub fn wanted(&mut self, cache: &SlabCache, ahead: usize, out: &mut Vec<SealRequest>) {
        // If the packet size changes, slabs that were sealed ahead are sealed again.
        let ahead = if self.mtu.is_about_to_change() {
            ahead.min(AHEAD_OF_PROBE)
        } else {
            ahead
        };
        self.plan.wanted_repairs(self.grid, cache, out);
        let cursor = self.plan.cursor_slab(self.grid);
        let known = self.cached_ahead;
        // A starved flow has lost cached slabs to other flows.
        if cursor.is_none() || cursor != known.cursor || known.slabs < ahead || self.starved {
            let before = out.len();
            self.plan.wanted_ahead(self.grid, cache, ahead, out);
            let slabs = if out.len() == before { ahead } else { 0 };
            self.cached_ahead = CachedAhead { cursor, slabs };
        }
        let duplicate = self.duplicate.map(|piece| (self.grid, piece));
        for (grid, piece) in [self.mtu_probe, duplicate].into_iter().flatten() {
            if cache.get(piece).is_none() {
                out.push(grid.request(piece));
            }
        }
    }

    /// Sends up to `packets` packets within `room` bytes, one at least.
    fn emit(
        &mut self,
        now: Time,
        packets: u64,
        room: u64,
        ready: &dyn Fn(Piece) -> bool,
        out: &mut Vec<Outgoing>,
    ) -> bool {
        if self.random.below(SKIP_EVERY) < packets {
            self.sent.skip();
        }
        if self.in_flight == 0 {
            self.delivery.restart(now);
            if self.timeouts == 0 {
                self.heard_at = now;
            }
        }
        let departure = Departure {
            now,
            in_flight: self.in_flight,
            app_limited: self.delivery.is_app_limited(),
        };
        let tag = self.controller.on_send(&departure);
        self.sent.begin(Quantum {
            first: self.sent.next_number(),
            len: 0,
            sent_at: now,
            tag,
            delivered: self.delivery.delivered,
            delivered_at: self.delivery.delivered_at,
            first_sent_at: self.delivery.first_sent_at,
            lost: self.delivery.lost,
            tx_in_flight: self.in_flight,
            app_limited: departure.app_limited,
        });
        let mut bytes = 0;
        for _ in 0..packets {
            if bytes > 0 && bytes + self.overhead >= room {
                self.window_limited = true;
                break;
            }
            let piece = self
                .mtu_probe(now, ready)
                .or_else(|| self.plan.next(self.grid, ready))
                .or_else(|| self.duplicate(room, ready));
            let Some(piece) = piece else { break };
            let number = self.sent.push(piece.address, piece.len);
            bytes += u64::from(piece.len) + self.overhead;
            out.push(Outgoing { number, piece });
            self.stats.sent += 1;
        }
        self.in_flight += bytes;
        self.pacer.spend(bytes);
        self.sent.set_in_flight(self.in_flight);
        bytes > 0
    }

    /// Returns the oldest piece in flight, for a probe that has nothing else to carry.
    fn duplicate(&mut self, room: u64, ready: &dyn Fn(Piece) -> bool) -> Option<Piece> {
        if room != u64::MAX {
            return None;
        }
        let packet = self.sent.oldest_in_flight()?;
        let piece = self.grid.piece_at(packet.address);
        let is_ready = ready(piece);
        self.duplicate = (!is_ready).then_some(piece);
        is_ready.then_some(piece)
    }

    /// Takes the acknowledgements and the credit of a FEEDBACK packet with this number.
    ///
    /// # Errors
    /// If the receiver acknowledges a packet that was not sent. The connection ends.
    pub fn on_feedback(
        &mut self,
        now: Time,
        number: u64,
        feedback: &Feedback,
    ) -> Result<(), ProtocolViolation> {
        let newly = self.sent.newly_acked(&feedback.acknowledged)?;
        self.stats.feedback += 1;
        self.heard_at = now;
        self.timeouts = 0;
        self.plan.raise_credit(feedback.credit);
        self.reports.note_feedback(number);
        let mut sample = Sample {
            now,
            rtt: None,
            acked: 0,
            lost: 0,
            lost_sent_at: None,
            delivered: 0,
            in_flight: 0,
            window_limited: self.window_limited,
            rate: None,
            outcomes: [Outcome::default(); TAGS],
            ce: feedback.ce.saturating_sub(self.ce),
        };
        self.ce = self.ce.max(feedback.ce);
        let newest = self.acknowledge(now, &newly, &mut sample);
        if let Some(quantum) = newest {
            self.sample_rtt(now, &newly, &quantum, feedback.delay, &mut sample);
            let least = self.rtt.least().unwrap_or_default();
            sample.rate = self.delivery.sample(now - feedback.delay, &quantum, least);
        }
        self.detect_losses(now, &mut sample);
        self.resize();
        let retention = 2 * self.rtt.smoothed() + self.detector.window(self.rtt.smoothed());
        self.sent.forget(now - retention);
        if !newly.is_empty() {
            self.probes_without_ack = 0;
            self.feedback_at_ack = self.stats.feedback;
        }
        if newly.is_empty() && sample.lost == 0 {
            return Ok(());
        }
        self.tell_controller(sample);
        Ok(())
    }

    fn tell_controller(&mut self, mut sample: Sample) {
        sample.delivered = self.delivery.delivered;
        sample.in_flight = self.in_flight;
        self.controller.on_feedback(&sample);
        let rtt = self.rtt.smoothed();
        if self
            .breaker
            .on_feedback(sample.now, rtt, sample.acked, sample.lost)
        {
            self.trip(sample.now);
        }
    }

    fn trip(&mut self, now: Time) {
        self.stats.breaks += 1;
        self.controller.on_breaker(now);
    }

    /// Marks packets as acknowledged; returns the quantum of the newest.
    fn acknowledge(
        &mut self,
        now: Time,
        newly: &[std::ops::Range<u64>],
        sample: &mut Sample,
    ) -> Option<Quantum> {
        let mut newest = None;
        for number in newly.iter().flat_map(Clone::clone) {
            let Some((packet, quantum)) = self.sent.packet(number) else {
                continue;
            };
            let bytes = u64::from(packet.len) + self.overhead;
            let outcome = &mut sample.outcomes[quantum.tag.index()];
            outcome.acked += 1;
            if packet.state == PacketState::Lost {
                outcome.spurious += 1;
                self.stats.spurious += 1;
                self.delivery.lost = self.delivery.lost.saturating_sub(bytes);
                self.detector
                    .on_spurious(now, quantum.sent_at, self.newest.sent_at);
            } else {
                self.in_flight = self.in_flight.saturating_sub(bytes);
            }
            packet.state = PacketState::Acked;
            self.pacer.resolve(number - quantum.first, quantum.len, false);
            self.mtu.on_acked(now, number, packet.len);
            sample.acked += bytes;
            newest = Some(*quantum);
        }
        self.delivery.delivered += sample.acked;
        self.stats.acked += newly.iter().map(|range| range.end - range.start).sum::<u64>();
        newest
    }

    /// Takes a sample of the round-trip time if this feedback acknowledges the largest number so far.
    fn sample_rtt(
        &mut self,
        now: Time,
        newly: &[std::ops::Range<u64>],
        quantum: &Quantum,
        delay: Duration,
        sample: &mut Sample,
    ) {
        let number = newly.last().map_or(0, |range| range.end - 1);
        if number + 1 != self.sent.end_acked() {
            return;
        }
        self.newest = SentPacket {
            number,
            sent_at: quantum.sent_at,
        };
        let rtt = now.since(quantum.sent_at).saturating_sub(delay);
        self.rtt.update(rtt);
        sample.rtt = Some(rtt);
    }

    /// Declares packets lost and returns their bytes to the plan.
    fn detect_losses(&mut self, now: Time, sample: &mut Sample) {
        let (detector, newest, rtt) = (self.detector, self.newest, self.rtt.smoothed());
        let mut previous = None;
        let (plan, pacer, overhead) = (&mut self.plan, &mut self.pacer, self.overhead);
        let (stats, in_flight, lost) = (&mut self.stats, &mut self.in_flight, &mut self.delivery.lost);
        let mtu = &mut self.mtu;
        self.sent.check_unacknowledged(|number, packet, quantum| {
            let sent = SentPacket {
                number,
                sent_at: quantum.sent_at,
            };
            if !detector.is_lost(sent, newest, rtt) {
                return false;
            }
            packet.state = PacketState::Lost;
            let bytes = u64::from(packet.len) + overhead;
            plan.repair(Piece {
                address: packet.address,
                len: packet.len,
            });
            *in_flight = in_flight.saturating_sub(bytes);
            if mtu.on_lost(now, number) {
                stats.mtu_probes_lost += 1;
                return true;
            }
            let outcome = &mut sample.outcomes[quantum.tag.index()];
            outcome.lost += 1;
            outcome.runs += u32::from(previous != Some(number.wrapping_sub(1)));
            previous = Some(number);
            pacer.resolve(number - quantum.first, quantum.len, true);
            stats.lost += 1;
            *lost += bytes;
            sample.lost += bytes;
            sample.lost_sent_at = Some(quantum.sent_at);
            true
        });
        self.detector.advance(now, rtt);
    }

    /// Returns true if nothing can be sent before the next message of the receiver.
    fn is_waiting(&self) -> bool {
        !self.plan.has_piece() && !self.plan.is_complete()
    }

    /// Returns a report if one is due.
    pub fn poll_report(&mut self, now: Time) -> Option<Report> {
        let (waiting, rtt) = (self.is_waiting(), self.rtt);
        self.reports.poll(now, waiting, &rtt, self.sent.next_number())
    }

    /// Returns the time at which a probe is due if no feedback arrives before.
    fn probe_at(&self) -> Option<Time> {
        if self.in_flight == 0 && !self.is_waiting() {
            return None;
        }
        // The receiver's longest interval of feedback.
        let delay = (self.rtt.smoothed() / 4).clamp(Duration::from_millis(1), Duration::from_millis(25));
        let timeout = self.rtt.probe_timeout(delay);
        let most = PROBE_INTERVAL_MAX.max(2 * timeout);
        let wait = timeout.saturating_mul(1 << self.timeouts.min(10)).min(most);
        Some(self.heard_at + wait)
    }

    /// Returns the time at which [`Flow::poll`], [`Flow::poll_report`] or [`Flow::on_timeout`] has something to do.
    pub fn next_timeout(&self) -> Option<Time> {
        let send =
            (self.plan.has_piece() && !self.window_limited && !self.starved).then(|| self.pacer.opens());
        let report = self.reports.due(&self.rtt);
        [send, report, self.probe_at()].into_iter().flatten().min()
    }

    /// Probes a silent path if that is due.
    pub fn on_timeout(&mut self, now: Time) {
        if self.probe_at().is_none_or(|at| now < at) {
            return;
        }
        self.timeouts += 1;
        self.heard_at = now;
        self.reports.ask();
        self.stats.probes += 1;
        if self.in_flight > 0 {
            self.probe_packets = PROBE_PACKETS;
            self.probes_without_ack += 1;
            // If the path loses feedback, too, the loss is no evidence about packet sizes.
            if self.stats.feedback > self.feedback_at_ack {
                self.mtu.on_timeout(self.probes_without_ack);
                self.resize();
            }
            if self.breaker.on_timeout(now) {
                self.trip(now);
            }
        }
    }

    /// Returns the pacing rate.
    pub fn pacing_rate(&self) -> Option<BitRate> {
        self.controller.pacing_rate()
    }
}
