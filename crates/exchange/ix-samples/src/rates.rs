//! Rates of members' traffic by service and ends, over the last half minute.

use std::collections::HashMap;

use millrace_ix_model::{AccountId, ServiceId, Timestamp};
use serde::Serialize;

use crate::Ends;

/// The duration of a slot, in milliseconds.
const SLOT_MS: u64 = 5_000;
/// The number of slots.
const SLOTS: usize = 6;
/// The largest number of combinations of service and ends; they take about 20 MB.
const KEYS_MAX: usize = 65_536;

/// The sums of a slot.
#[derive(Clone, Copy, Default, Debug)]
struct Slot {
    bytes: f64,
    ipv6_bytes: f64,
    packets: f64,
    dropped_bytes: f64,
    samples: u32,
}

/// The sums of one combination of service and ends.
#[derive(Clone, Debug)]
struct Sums {
    slots: [Slot; SLOTS],
    /// The number of the newest slot since the Unix epoch.
    newest: u64,
}

/// The properties of a packet by which its bytes are counted apart.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Traits {
    pub(crate) is_dropped: bool,
    pub(crate) is_ipv6: bool,
}

/// The sums of all combinations.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rates {
    sums: HashMap<Ends, Sums>,
    /// The number of samples that were not counted, because the table of combinations was full.
    pub(crate) untracked: u64,
}

/// The rate of one combination of service and ends.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Rate {
    pub(crate) bits_per_s: f64,
    /// The part of the rate that is IPv6; the rest is IPv4.
    pub(crate) ipv6_bits_per_s: f64,
    pub(crate) packets_per_s: f64,
    pub(crate) dropped_bits_per_s: f64,
    pub(crate) samples: u32,
}

/// The traffic of an account.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Traffic {
    /// The time in seconds over which rates are computed.
    pub seconds: u32,
    /// The traffic to the account, the heaviest first.
    pub incoming: Vec<PeerRate>,
    /// The traffic from the account, the heaviest first.
    pub outgoing: Vec<PeerRate>,
    /// The heaviest flows to the account.
    pub top: Vec<TopFlow>,
    /// The number of samples behind these rates.
    pub samples: u64,
    /// The number of samples that switches lost, since the start.
    pub lost: u64,
}

/// The traffic with a peer in a service.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct PeerRate {
    /// The account at the other end; `None` if the packet was dropped before the other end was known.
    pub peer: Option<AccountId>,
    pub service: ServiceId,
    /// The rate in bit/s.
    pub bits_per_s: f64,
    /// The part of the rate that is IPv6, in bit/s; the rest is IPv4.
    pub ipv6_bits_per_s: f64,
    /// The rate in packets per second.
    pub packets_per_s: f64,
    /// The part of the rate that switches drop, for example because of filters, in bit/s.
    pub dropped_bits_per_s: f64,
    /// The half width of the 95 % confidence interval, relative to the rate: 1.96 divided by the root of the number of samples.
    pub relative_error: f64,
}

/// The traffic to a destination.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct TargetRate {
    /// The address.
    pub destination: std::net::IpAddr,
    /// The rate over the last half minute, in bit/s.
    pub bits_per_s: f64,
    /// The usual rate before, in bit/s; `None` while the history of the destination's ends is too short.
    pub usual_bits_per_s: Option<f64>,
}

/// One of the flows with the highest rates, by its 5-tuple.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct TopFlow {
    /// The source address.
    pub source: std::net::IpAddr,
    /// The destination address.
    pub destination: std::net::IpAddr,
    /// The IP protocol.
    pub protocol: u8,
    /// The source port; 0 without one.
    pub source_port: u16,
    /// The destination port; 0 without one.
    pub destination_port: u16,
    /// The rate in bit/s. It is overestimated by at most the rate of the smallest listed flow.
    pub bits_per_s: f64,
}

/// Returns the half width of the 95 % confidence interval of a rate, relative to the rate, if the rate is
/// estimated from this number of samples (Phaal and Panchen, "Packet Sampling Basics").
pub(crate) fn relative_error(samples: u64) -> f64 {
    1.96 / (samples.max(1) as f64).sqrt()
}

fn slot(at: Timestamp) -> u64 {
    at.millis() / SLOT_MS
}

impl Sums {
    fn advance(&mut self, now: u64) {
        if now.saturating_sub(self.newest) >= SLOTS as u64 {
            self.slots = [Slot::default(); SLOTS];
            self.newest = now;
        }
        while self.newest < now {
            self.newest += 1;
            self.slots[(self.newest % SLOTS as u64) as usize] = Slot::default();
        }
    }
}

/// Returns the oldest slot that rates read at `now` include.
fn oldest(now: Timestamp) -> u64 {
    (slot(now) + 1).saturating_sub(SLOTS as u64)
}

impl Rates {
    /// Returns the time in seconds over which rates read at `now` are computed: five full slots and the
    /// current slot.
    pub(crate) fn seconds(now: Timestamp) -> f64 {
        let span = now.millis().saturating_sub(oldest(now) * SLOT_MS);
        (span as f64 / 1000.0).max(1.0)
    }

    /// Removes all sums.
    pub(crate) fn clear(&mut self) {
        self.sums.clear();
    }

    pub(crate) fn add(&mut self, ends: Ends, at: Timestamp, (bytes, packets): (f64, f64), traits: Traits) {
        let now = slot(at);
        if self.sums.len() >= KEYS_MAX && !self.sums.contains_key(&ends) {
            self.sums
                .retain(|_, sums| now.saturating_sub(sums.newest) < SLOTS as u64);
            if self.sums.len() >= KEYS_MAX {
                self.untracked += 1;
                return;
            }
        }
        let sums = self.sums.entry(ends).or_insert(Sums {
            slots: [Slot::default(); SLOTS],
            newest: now,
        });
        sums.advance(now);
        let slot = &mut sums.slots[(now.max(sums.newest) % SLOTS as u64) as usize];
        slot.bytes += bytes;
        slot.packets += packets;
        slot.samples += 1;
        if traits.is_dropped {
            slot.dropped_bytes += bytes;
        }
        if traits.is_ipv6 {
            slot.ipv6_bytes += bytes;
        }
    }

    /// Returns the rates of all combinations with traffic in the last half minute.
    pub(crate) fn read(&self, now: Timestamp) -> impl Iterator<Item = (Ends, Rate)> + '_ {
        let (oldest, seconds) = (oldest(now), Rates::seconds(now));
        self.sums.iter().filter_map(move |(ends, sums)| {
            let slots = (0..SLOTS as u64).filter_map(|back| sums.newest.checked_sub(back));
            let known = slots.filter(|slot| *slot >= oldest);
            let sum = known.map(|slot| sums.slots[(slot % SLOTS as u64) as usize]).fold(
                Slot::default(),
                |sum, slot| Slot {
                    bytes: sum.bytes + slot.bytes,
                    ipv6_bytes: sum.ipv6_bytes + slot.ipv6_bytes,
                    packets: sum.packets + slot.packets,
                    dropped_bytes: sum.dropped_bytes + slot.dropped_bytes,
                    samples: sum.samples + slot.samples,
                },
            );
            (sum.samples > 0).then_some((
                *ends,
                Rate {
                    bits_per_s: sum.bytes * 8.0 / seconds,
                    ipv6_bits_per_s: sum.ipv6_bytes * 8.0 / seconds,
                    packets_per_s: sum.packets / seconds,
                    dropped_bits_per_s: sum.dropped_bytes * 8.0 / seconds,
                    samples: sum.samples,
                },
            ))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_steady_rate_is_read_as_it_is_at_any_time_of_a_slot() {
        let ends = Ends {
            service: 1,
            ingress_end: 1,
            egress_end: 2,
        };
        for read_at in [60_100, 62_500, 64_900] {
            let mut rates = Rates::default();
            for at in (0..read_at).step_by(10) {
                let at = Timestamp::from_secs(1_795_470_000).millis() + at;
                let traits = Traits {
                    is_dropped: false,
                    is_ipv6: at.is_multiple_of(40),
                };
                rates.add(ends, Timestamp::from_millis(at), (1_250.0, 1.0), traits);
            }
            let now = Timestamp::from_millis(Timestamp::from_secs(1_795_470_000).millis() + read_at);
            let (_, rate) = rates.read(now).next().unwrap();
            assert!((rate.bits_per_s / 1e6 - 1.0).abs() < 0.01, "{read_at}: {rate:?}");
            let ipv6_share = rate.ipv6_bits_per_s / rate.bits_per_s;
            assert!((ipv6_share - 0.25).abs() < 0.01, "{read_at}: {rate:?}");
            assert!(
                (rate.packets_per_s / 100.0 - 1.0).abs() < 0.01,
                "{read_at}: {rate:?}"
            );
        }
    }
}
