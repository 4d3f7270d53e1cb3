//! Pacing: packets leave in quanta, spaced so that their rate is the controller's.
//!
//! A packet takes 1.2 µs at 10 Gbit/s, less than the resolution of any timer. So packets leave in quanta of
//! half a millisecond, at most 64 KiB, which the kernel (UDP_SEGMENT) or the device segments. Policers drop
//! bursts: if losses gather at the ends of quanta, quanta shrink to two packets. They grow again when the
//! losses no longer gather there.
//!
//! A sender of many receivers has a low rate for each, and each quantum costs time. So two rules change if several flows share a
//! sender. First, the duration of a quantum is multiplied by the number of flows, as long as it stays within an initial window
//! (RFC 6928), which every path has to take, and a sixteenth of the round-trip time. Second, a quantum may leave early by half
//! its duration, so that one wake-up serves all flows that are due soon; the next quantum keeps its time, so that the rate stays
//! exact.
//!
//! The credit is counted in billionths of a bit, as in `datapath::schedule` (ADR 6): bits a second times
//! nanoseconds is an integer in this unit, so that no rounding error accumulates. A late caller gets credit
//! for up to a millisecond. If several flows share a sender, this bound is at least a quantum, because a busy
//! machine wakes the sender later than a millisecond. For a single flow the bound stays a millisecond: with
//! more, a window-limited flow at a low rate would send in bursts of a quantum (gate T2 in docs/gates.md: CUBIC
//! gains half).

use millrace_types::{BitRate, Duration, Time};

/// Billionths of a bit in a byte.
const BYTE: i64 = 8_000_000_000;
/// The maximum lateness of a caller that costs no rate. It is longer for flows that share a sender, if a
/// quantum lasts longer.
const LATE: Duration = Duration::from_millis(1);
/// The time that a quantum takes at the pacing rate.
pub(crate) const QUANTUM: Duration = Duration::from_micros(500);
/// The maximum packets in a quantum that is lengthened because flows share a sender: an initial window
/// (RFC 6928, section 2).
const SHARED_QUANTUM_PACKETS: u64 = 10;
/// The maximum duration of a lengthened quantum, as a divisor of the minimal round-trip time: 1/16.
const QUANTUM_RTTS: u32 = 16;
/// The maximum time that a quantum may leave early if flows share a sender, as a divisor of its duration:
/// 1/2.
const EARLY: i64 = 2;
/// The longest quantum: what one send with UDP_SEGMENT carries.
const QUANTUM_MAX: u64 = 65_536;
/// Packets of the shortest quantum.
pub const QUANTUM_PACKETS_MIN: u64 = 2;

/// Decides when packets may leave, and how many of them.
#[derive(Clone, Debug)]
pub struct Pacer {
    /// Bits a second, and so billionths of a bit a nanosecond; zero: no limit.
    rate: u64,
    credit: i64,
    at: Time,
    packet_size: u64,
    /// The flows that share the sender.
    flows: u32,
    /// The minimal round-trip time; zero: not known.
    min_rtt: Duration,
    ends: QuantumEnds,
}

impl Pacer {
    /// Returns a pacer for packets of `packet_size` bytes that lets everything pass until it has a rate.
    pub fn new(packet_size: u64, now: Time) -> Pacer {
        Pacer {
            rate: 0,
            credit: 0,
            at: now,
            packet_size,
            flows: 1,
            min_rtt: Duration::ZERO,
            ends: QuantumEnds::default(),
        }
    }

    /// Changes the size of packets from the next quantum on, in bytes.
    pub fn set_packet_size(&mut self, packet_size: u64) {
        self.packet_size = packet_size.max(1);
    }

    /// Changes the number of flows that share the sender.
    pub fn set_flows(&mut self, flows: u32) {
        self.flows = flows.max(1);
    }

    /// Changes the minimal round-trip time, which bounds the duration of quanta of flows that share a sender.
    pub fn set_min_rtt(&mut self, min_rtt: Duration) {
        self.min_rtt = min_rtt;
    }

    /// Changes the rate from now on; `None` is no limit.
    pub fn set_rate(&mut self, rate: Option<BitRate>, now: Time) {
        let rate = rate.map_or(0, |rate| rate.bps().max(1));
        if rate != self.rate {
            self.advance(now);
            self.rate = rate;
        }
    }

    /// Adds the credit of the time since the last call.
    fn advance(&mut self, now: Time) {
        let nanos = now.since(self.at).as_nanos();
        if nanos != 0 {
            let more = i64::try_from(u128::from(self.rate) * nanos).unwrap_or(i64::MAX);
            self.credit = self.credit.saturating_add(more).min(self.credit_max());
            self.at = now;
        }
    }

    /// Returns the most credit, in billionths of a bit, that a late caller gets.
    fn credit_max(&self) -> i64 {
        let late = i64::try_from(u128::from(self.rate) * LATE.as_nanos()).unwrap_or(i64::MAX);
        if self.flows == 1 {
            return late;
        }
        late.max(self.quantum_credit())
    }

    fn quantum_credit(&self) -> i64 {
        let bytes = self.quantum().saturating_mul(self.packet_size);
        i64::try_from(bytes).unwrap_or(0).saturating_mul(BYTE)
    }

    /// Skips a time in which there was nothing to send. No credit is kept for it.
    pub fn skip_idle(&mut self, now: Time) {
        self.advance(now);
        self.credit = self.credit.min(0);
    }

    /// Returns true if a quantum may leave now.
    pub fn is_open(&mut self, now: Time) -> bool {
        self.advance(now);
        self.rate == 0 || self.credit >= -self.early()
    }

    /// Returns the credit that a quantum may lack when it leaves, in billionths of a bit.
    fn early(&self) -> i64 {
        if self.flows == 1 {
            return 0;
        }
        self.quantum_credit() / EARLY
    }

    /// Returns the packets of a quantum at the current rate.
    pub fn quantum(&self) -> u64 {
        if self.rate == 0 {
            return QUANTUM_PACKETS_MIN;
        }
        let packets = |time: Duration| {
            let bytes = u128::from(self.rate) * time.as_nanos() / 8_000_000_000;
            u64::try_from(bytes).unwrap_or(QUANTUM_MAX).min(QUANTUM_MAX) / self.packet_size
        };
        packets((QUANTUM * self.flows).min(self.min_rtt / QUANTUM_RTTS))
            .min(SHARED_QUANTUM_PACKETS)
            .max(packets(QUANTUM))
            .min(self.ends.packets_max)
            .max(QUANTUM_PACKETS_MIN)
    }

    /// Accounts for bytes that leave.
    pub fn spend(&mut self, bytes: u64) {
        if self.rate != 0 {
            let spent = i64::try_from(bytes)
                .unwrap_or(i64::MAX / BYTE)
                .saturating_mul(BYTE);
            self.credit = self.credit.saturating_sub(spent);
        }
    }

    /// Returns the earliest time at which a quantum may leave.
    pub fn opens(&self) -> Time {
        if self.rate == 0 || self.credit >= 0 {
            return self.at;
        }
        self.at + Duration::from_nanos(self.credit.unsigned_abs().div_ceil(self.rate))
    }

    /// Learns that a packet of a quantum of `len` packets was acknowledged or lost.
    pub fn resolve(&mut self, index: u64, len: u64, lost: bool) {
        self.ends.resolve(index, len, lost);
    }
}

/// Losses by their position in a quantum: a policer with a small bucket drops the ends of bursts.
#[derive(Clone, Debug)]
struct QuantumEnds {
    packets_max: u64,
    /// Outcomes of the packets in first halves and second halves.
    halves: [Half; 2],
}

/// The outcomes of packets in one half of the quanta.
#[derive(Clone, Copy, Default, Debug)]
struct Half {
    packets: u32,
    lost: u32,
}

/// The number of packets after which short quanta become longer as a new trial, in comparisons of full quanta.
const TRIAL_COMPARISONS: u32 = 64;
/// The number of standard deviations from which more losses in second halves are no chance.
const SIGMAS: f64 = 4.0;
/// The number of losses from which a difference counts at all.
const LOSSES_MIN: f64 = 5.0;

/// The number of packets in each half after which the halves are compared.
const COMPARED: u32 = 500;

impl Default for QuantumEnds {
    fn default() -> QuantumEnds {
        QuantumEnds {
            packets_max: QUANTUM_MAX,
            halves: [Half::default(); 2],
        }
    }
}

impl QuantumEnds {
    fn resolve(&mut self, index: u64, len: u64, lost: bool) {
        if len < 2 * QUANTUM_PACKETS_MIN {
            // Short quanta give no information about halves, so they grow slowly as a new trial.
            if self.packets_max < QUANTUM_MAX {
                self.halves[0].packets += 1;
                if self.halves[0].packets > TRIAL_COMPARISONS * COMPARED {
                    self.packets_max *= 2;
                    self.halves = [Half::default(); 2];
                }
            }
            return;
        }
        let half = &mut self.halves[usize::from(index >= len / 2)];
        half.packets += 1;
        half.lost += u32::from(lost);
        let [first, second] = self.halves;
        if first.packets < COMPARED || second.packets < COMPARED {
            return;
        }
        // The losses of second halves, and those expected from the loss of first halves. Losses are Poisson distributed:
        // the variance of the difference is the sum of both counts.
        let lost = f64::from(second.lost);
        let expected = f64::from(first.lost) * f64::from(second.packets) / f64::from(first.packets);
        if lost - expected > (SIGMAS * (expected + lost).sqrt()).max(LOSSES_MIN) {
            let longest = self.packets_max.min(len);
            self.packets_max = (longest / 2).max(QUANTUM_PACKETS_MIN);
        } else {
            self.packets_max = (self.packets_max + self.packets_max / 4 + 1).min(QUANTUM_MAX);
        }
        self.halves = [Half::default(); 2];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn over_any_time_the_rate_is_exact() {
        for bps in [1_000_003, 999_999_937, 10_000_000_000] {
            let mut pacer = Pacer::new(1_500, Time::ZERO);
            pacer.set_rate(Some(BitRate::from_bps(bps)), Time::ZERO);
            let (mut now, mut bytes) = (Time::ZERO, 0);
            while now < Time::from_secs(3) {
                if pacer.is_open(now) {
                    let quantum = pacer.quantum() * 1_500;
                    pacer.spend(quantum);
                    bytes += quantum;
                }
                now = pacer.opens();
            }
            let exact = bps * 3 / 8;
            assert!(bytes.abs_diff(exact) <= 2 * QUANTUM_MAX, "{bytes} of {exact}");
        }
    }

    #[test]
    fn a_quantum_lasts_half_a_millisecond_within_its_bounds() {
        let mut pacer = Pacer::new(1_500, Time::ZERO);
        pacer.set_min_rtt(Duration::from_millis(100));
        for (mbps, packets) in [(10_000, 43), (1_000, 41), (100, 4), (1, 2)] {
            pacer.set_rate(Some(BitRate::from_kbps(mbps * 1_000)), Time::ZERO);
            assert_eq!(pacer.quantum(), packets, "{mbps} Mbit/s");
        }
    }

    #[test]
    fn flows_that_share_a_sender_have_longer_quanta_at_low_rates() {
        let mut pacer = Pacer::new(1_500, Time::ZERO);
        for (flows, mbps, rtt_ms, packets) in [
            (10, 1_000, 100, 41),
            (10, 100, 100, 10),
            (10, 12, 100, 5),
            (2, 60, 100, 5),
            // A sixteenth of the round-trip time.
            (10, 30, 16, 2),
            (10, 30, 64, 10),
            (100, 1, 400, 2),
        ] {
            pacer.set_flows(flows);
            pacer.set_rate(Some(BitRate::from_kbps(mbps * 1_000)), Time::ZERO);
            pacer.set_min_rtt(Duration::from_millis(rtt_ms));
            assert_eq!(
                pacer.quantum(),
                packets,
                "{flows} flows, {mbps} Mbit/s, {rtt_ms} ms"
            );
        }
    }

    #[test]
    fn a_quantum_of_a_shared_sender_may_leave_early_by_half_its_duration_and_the_next_is_due_in_time() {
        let mut pacer = Pacer::new(1_500, Time::ZERO);
        pacer.set_flows(2);
        pacer.set_min_rtt(Duration::from_millis(100));
        pacer.set_rate(Some(BitRate::from_kbps(120_000)), Time::ZERO);
        let quantum = pacer.quantum() * 1_500;
        assert_eq!(quantum, 15_000, "a millisecond");
        let at = |micros: u64| Time::from_nanos(micros * 1_000);
        pacer.spend(quantum);
        assert_eq!(pacer.opens(), at(1_000));
        assert!(!pacer.is_open(at(499)) && pacer.is_open(at(500)));
        pacer.spend(quantum);
        assert_eq!(pacer.opens(), at(2_000));
        assert!(!pacer.is_open(at(1_499)));
    }

    #[test]
    fn a_late_caller_is_owed_a_millisecond_and_one_that_rested_nothing() {
        let sent_at_once = |rest: bool| {
            let mut pacer = Pacer::new(1_500, Time::ZERO);
            pacer.set_rate(Some(BitRate::from_kbps(1_000_000)), Time::ZERO);
            let now = Time::from_secs(5);
            if rest {
                pacer.skip_idle(now);
            }
            let mut bytes = 0;
            while pacer.is_open(now) {
                pacer.spend(1_500);
                bytes += 1_500;
            }
            bytes
        };
        assert_eq!(sent_at_once(false), 126_000);
        assert_eq!(sent_at_once(true), 1_500);
    }

    #[test]
    fn quanta_shrink_while_their_ends_are_lost_and_grow_again_afterwards() {
        let mut pacer = Pacer::new(1_500, Time::ZERO);
        pacer.set_rate(Some(BitRate::from_kbps(1_000_000)), Time::ZERO);
        let mut resolve = |quanta: u64, lost_from: u64| {
            for _ in 0..quanta {
                let len = pacer.quantum();
                for index in 0..len {
                    pacer.resolve(index, len, index >= lost_from);
                }
            }
            pacer.quantum()
        };
        assert!(resolve(2_000, 10) <= 12);
        assert!(resolve(20_000, u64::MAX) > 30);
    }
}
