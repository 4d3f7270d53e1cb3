//! Policing of the packets that a port receives: three colors by one or two rates (RFC 2697, RFC 2698, RFC 4115), and
//! the treatment of each color: pass, pass with a mark, or drop.
//!
//! All workers that receive from the port share one [`Policer`], as they share meters: buckets are atomics
//! that workers change by compare and exchange. Another worker may change a second bucket before this worker
//! reaches it; each packet still conforms to every bucket that its color requires. Unlike the bucket of a
//! meter, a bucket of these RFCs never goes below zero: a packet larger than a burst size never gets the
//! color of that bucket.

mod color;
mod mark;

use core::sync::atomic::{AtomicU64, Ordering};

use arrayvec::ArrayVec;
use millrace_flow::classify::BURST;
use millrace_types::{BitRate, Time};
use millrace_wire::Packet;

pub use color::{Color, PolicerRates};
pub use mark::Marks;

use crate::meter::DEFAULT_BURST;
use color::Buckets;
pub(crate) use mark::{drop_precedence, dscp};

/// The treatment of packets of a color.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ColorAction {
    /// They are dropped.
    Drop,
    /// They pass, with these marks.
    Pass(Marks),
}

/// The configuration of a policer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PolicerPlan {
    /// The type of the marker, with its rates.
    pub rates: PolicerRates,
    /// True for a color-aware marker: a packet arrives with the color of its drop precedence (assured
    /// forwarding, RFC 2597).
    pub color_aware: bool,
    /// The bytes that each packet counts in addition to its frame from the Ethernet header on, such as
    /// preamble and frame check sequence.
    pub overhead: u8,
    /// The treatment of green, yellow and red packets.
    pub color_actions: [ColorAction; 3],
}

/// The counters of one color.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ColorCount {
    pub packets: u64,
    /// The bytes of these packets, from the Ethernet header on.
    pub bytes: u64,
}

/// The counters of a policer. They outlive the policer, so that a change of its rates keeps them.
#[derive(Debug, Default)]
pub struct PolicerCounters([[AtomicU64; 2]; 3]);

impl PolicerCounters {
    /// Returns the counters of green, yellow and red packets.
    pub fn read(&self) -> [ColorCount; 3] {
        self.0.each_ref().map(|[packets, bytes]| ColorCount {
            packets: packets.load(Ordering::Relaxed),
            bytes: bytes.load(Ordering::Relaxed),
        })
    }
}

/// The policer of a port.
#[derive(Debug)]
pub struct Policer {
    plan: PolicerPlan,
    buckets: Buckets,
}

impl Policer {
    /// Returns a policer with full buckets.
    pub fn new(plan: PolicerPlan, now: Time) -> Policer {
        Policer {
            buckets: Buckets::new(&plan.rates, now),
            plan,
        }
    }

    /// Returns the default burst size: the bytes of [`DEFAULT_BURST`] at the rate, at least 9,600.
    pub fn default_burst(rate: BitRate) -> u64 {
        let bytes = u128::from(rate.bps()) * DEFAULT_BURST.as_millis() / 8_000;
        u64::try_from(bytes).unwrap_or(u64::MAX).max(9_600)
    }

    /// Returns the new color of a packet of `size` bytes that arrived with the color `before`, and takes its tokens.
    #[inline]
    pub fn color(&self, size: usize, before: Color, now: Time) -> Color {
        self.buckets
            .color(size + usize::from(self.plan.overhead), before, now)
    }

    /// Polices a burst: packets that pass stay in it, in order and with their marks; the others go to `dropped`.
    pub fn police<P: Packet>(
        &self,
        burst: &mut ArrayVec<P, BURST>,
        dropped: &mut ArrayVec<P, BURST>,
        now: Time,
        counters: &PolicerCounters,
    ) {
        let mut counts = [ColorCount::default(); 3];
        let mut passed = ArrayVec::<P, BURST>::new();
        for mut packet in burst.drain(..) {
            let before = if self.plan.color_aware {
                mark::color(&packet)
            } else {
                Color::Green
            };
            let size = packet.len();
            let color = self.color(size, before, now) as usize;
            counts[color].packets += 1;
            counts[color].bytes += size as u64;
            match &self.plan.color_actions[color] {
                ColorAction::Pass(marks) => {
                    marks.set(&mut packet);
                    passed.push(packet);
                }
                // `passed` and `dropped` both have room for a burst.
                ColorAction::Drop if !dropped.is_full() => dropped.push(packet),
                ColorAction::Drop => {}
            }
        }
        *burst = passed;
        for (count, [packets, bytes]) in counts.iter().zip(&counters.0) {
            if count.packets != 0 {
                packets.fetch_add(count.packets, Ordering::Relaxed);
                bytes.fetch_add(count.bytes, Ordering::Relaxed);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use millrace_wire::{Builder, Dscp, Frame};

    fn frame(dscp: u8) -> Frame {
        let mac = millrace_types::Mac([2, 0, 0, 0, 0, 1]);
        let bytes = Builder::ethernet(mac, mac)
            .ipv4([10, 0, 0, 1], [10, 0, 0, 2])
            .udp(1, 2)
            .payload(&[0; 958])
            .build();
        let mut frame = Frame::new(&bytes);
        Marks {
            dscp: Some(Dscp::from_low_bits(dscp)),
            ..Marks::default()
        }
        .set(&mut frame);
        frame
    }

    #[test]
    fn packets_pass_are_marked_or_dropped_by_color_and_counted() {
        let green = Marks {
            dscp: Some(Dscp::from_low_bits(10)),
            ..Marks::default()
        };
        let yellow = Marks {
            dscp: Some(Dscp::from_low_bits(12)),
            ..Marks::default()
        };
        let rates = PolicerRates::SingleRate {
            cir: BitRate::from_bps(8_000_000),
            cbs: 2_000,
            ebs: 3_000,
        };
        let plan = PolicerPlan {
            rates,
            color_aware: false,
            overhead: 0,
            color_actions: [
                ColorAction::Pass(green),
                ColorAction::Pass(yellow),
                ColorAction::Drop,
            ],
        };
        let policer = Policer::new(plan, Time::ZERO);
        let counters = PolicerCounters::default();
        let mut burst: ArrayVec<Frame, BURST> = (0..7).map(|_| frame(0)).collect();
        let mut dropped = ArrayVec::new();
        policer.police(&mut burst, &mut dropped, Time::ZERO, &counters);
        let dscps: Vec<u8> = burst.iter().map(|frame| frame.bytes()[15] >> 2).collect();
        assert_eq!(dscps, [10, 10, 12, 12, 12]);
        assert_eq!(dropped.len(), 2);
        let [green, yellow, red] = counters.read();
        assert_eq!((green.packets, yellow.packets, red.packets), (2, 3, 2));
        assert_eq!((green.bytes, red.bytes), (2_000, 2_000));
    }

    #[test]
    fn a_packet_that_comes_yellow_or_red_never_gets_better() {
        let rates = PolicerRates::TwoRate {
            cir: BitRate::from_bps(8_000_000),
            cbs: 10_000,
            pir: BitRate::from_bps(16_000_000),
            pbs: 10_000,
        };
        let pass = ColorAction::Pass(Marks::default());
        let plan = PolicerPlan {
            rates,
            color_aware: true,
            overhead: 0,
            color_actions: [pass; 3],
        };
        let policer = Policer::new(plan, Time::ZERO);
        let counters = PolicerCounters::default();
        // AF11, AF12, AF13, AF42, expedited forwarding, best effort.
        let mut burst: ArrayVec<Frame, BURST> = [10, 12, 14, 36, 46, 0].into_iter().map(frame).collect();
        policer.police(&mut burst, &mut ArrayVec::new(), Time::ZERO, &counters);
        assert_eq!(counters.read().map(|count| count.packets), [3, 2, 1]);
    }
}
