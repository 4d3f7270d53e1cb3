//! Links: an emulated path behind an optional policer.

use crate::ETHERNET;
use millrace_transport::random::Random;
use millrace_types::{BitRate, Duration, Time};
use millrace_wan_emulator::{
    ConfigError, DropReason, NoSources, Outcome, Outcomes, Path, PathConfig, PathModel, Seed,
};

/// A token bucket without a queue: a packet that finds too few tokens is dropped.
#[derive(Clone, Copy, Debug)]
pub struct PolicerSpec {
    /// The rate at which tokens arrive.
    pub rate: BitRate,
    /// Bytes of the bucket.
    pub bucket: u64,
}

/// A link that flows share.
#[derive(Clone, Debug, Default)]
pub struct LinkSpec {
    /// The emulated path.
    pub path: PathConfig,
    /// The policer before the path.
    pub policer: Option<PolicerSpec>,
}

impl LinkSpec {
    /// Returns a link from keys and values of the emulator: `[("rate", "1Gbps"), ("delay", "50ms")]`.
    ///
    /// # Errors
    /// If a value is not valid for its key.
    pub fn new(settings: &[(&str, &str)]) -> Result<LinkSpec, ConfigError> {
        let mut path = PathConfig::default();
        for (key, text) in settings {
            path.set(key, text)?;
        }
        Ok(LinkSpec { path, policer: None })
    }
}

/// Tokens of a policer, in bytes.
#[derive(Clone, Copy, Debug)]
struct Policer {
    spec: PolicerSpec,
    tokens: f64,
    at: Time,
}

impl Policer {
    fn admits(&mut self, now: Time, bytes: u64) -> bool {
        let passed = now.since(self.at).as_secs_f64();
        let more = self.spec.rate.bps() as f64 / 8.0 * passed;
        self.tokens = (self.tokens + more).min(self.spec.bucket as f64);
        self.at = now;
        if self.tokens < bytes as f64 {
            return false;
        }
        self.tokens -= bytes as f64;
        true
    }
}

/// The effect of a link on a packet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Crossing {
    /// The arrival times of the packet and of its duplicate.
    pub(crate) arrivals: [Option<Time>; 2],
    /// The time until the link has sent the packet. `None` if the packet was dropped before.
    pub(crate) queued: Option<Duration>,
}

/// The counters of a link. Each packet and each duplicate is released, or is dropped and counted by reason.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LinkCounters {
    /// Packets offered.
    pub offered: u64,
    /// Copies that the path made in addition to the packets.
    pub duplicated: u64,
    /// Packets and copies that the path released, or will release: they are in flight until their release
    /// time.
    pub released: u64,
    /// Packets that the policer dropped.
    pub policed: u64,
    drops: [u64; DropReason::ALL.len()],
}

impl LinkCounters {
    /// Returns the number of packets that the path dropped, by reason.
    pub fn drops(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        DropReason::ALL
            .iter()
            .map(|reason| (reason.name(), self.drops[*reason as usize]))
            .filter(|(_, count)| *count > 0)
    }

    /// Returns all packets dropped.
    pub fn dropped(&self) -> u64 {
        self.policed + self.drops.iter().sum::<u64>()
    }

    fn count(&mut self, outcomes: &Outcomes) {
        self.duplicated += outcomes.len() as u64 - 1;
        for outcome in outcomes {
            match outcome {
                Outcome::Dropped(reason) => self.drops[*reason as usize] += 1,
                Outcome::Released(_) => self.released += 1,
            }
        }
    }
}

/// An error of the balance: a packet that was neither delivered, nor dropped by reason, nor is in flight; or
/// memory beyond its bound.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum AuditError {
    /// Packets appear or vanish.
    #[error("{place}: {expected} packets went in, and {found} were accounted for ({detail})")]
    Packets {
        /// The link, flow or receiver.
        place: String,
        /// Packets that went in.
        expected: u64,
        /// Packets that came out, were dropped by reason, or are in flight.
        found: u64,
        /// The counters.
        detail: String,
    },
    /// More packets are recorded than the bound allows.
    #[error("{place}: {found} packets are remembered where {bound} are allowed")]
    Memory {
        /// The flow.
        place: String,
        /// Packets recorded.
        found: u64,
        bound: u64,
    },
    /// The sender exceeds the receiver's credit.
    #[error("{place}: {packets} packets exceeded the receiver's credit")]
    Credit {
        /// The receiver.
        place: String,
        packets: u64,
    },
}

/// A link in use.
pub(crate) struct Link {
    path: Path,
    policer: Option<Policer>,
    pub(crate) counters: LinkCounters,
    /// Packets that arrived at the other end.
    pub(crate) arrived: u64,
}

impl Link {
    pub(crate) fn new(spec: &LinkSpec, random: &mut Random) -> Result<Link, ConfigError> {
        Ok(Link {
            path: Path::new(&spec.path, Seed::new(random.next()), &NoSources)?,
            policer: spec.policer.map(|spec| Policer {
                spec,
                tokens: spec.bucket as f64,
                at: Time::ZERO,
            }),
            counters: LinkCounters::default(),
            arrived: 0,
        })
    }

    /// Changes the path for packets that are offered from now on.
    pub(crate) fn reconfigure(&mut self, path: &PathConfig) -> Result<(), ConfigError> {
        let mut model = PathModel::compile(path, &NoSources)?;
        self.path.exchange(&mut model);
        Ok(())
    }

    /// Offers an IP packet.
    pub(crate) fn offer(&mut self, now: Time, bytes: u64) -> Crossing {
        let mut crossing = Crossing {
            arrivals: [None; 2],
            queued: None,
        };
        self.counters.offered += 1;
        if self
            .policer
            .as_mut()
            .is_some_and(|policer| !policer.admits(now, bytes))
        {
            self.counters.policed += 1;
            return crossing;
        }
        let size = usize::try_from(bytes).unwrap_or(usize::MAX / 2) + ETHERNET;
        let outcomes = self.path.offer_sized(now, size);
        self.counters.count(&outcomes);
        for (outcome, arrival) in outcomes.iter().zip(&mut crossing.arrivals) {
            if let Outcome::Released(release) = outcome {
                *arrival = Some(release.at);
                crossing.queued = Some(release.sent.since(now));
            }
        }
        crossing
    }

    /// Offers a datagram with this many bytes of IP and UDP headers. Returns the copies that arrive, with
    /// their times.
    pub(crate) fn offer_bytes(&mut self, now: Time, headers: u16, datagram: &[u8]) -> Vec<(Time, Vec<u8>)> {
        let in_front = ETHERNET + usize::from(headers);
        let mut frame = vec![0; in_front];
        frame.extend_from_slice(datagram);
        // A frame of EtherType IPv4.
        frame[12] = 8;
        self.counters.offered += 1;
        let mut copies = Vec::new();
        let outcomes = self.path.offer(now, &frame);
        self.counters.count(&outcomes);
        for outcome in outcomes {
            if let Outcome::Released(release) = outcome {
                let mut bytes = frame.clone();
                if let Some(flips) = release.flips {
                    flips.apply(&mut bytes);
                }
                copies.push((release.at, bytes.split_off(in_front)));
            }
        }
        copies
    }

    /// Checks that the offered packets are equal to the dropped, arrived and in-flight packets. The caller
    /// counts those in flight.
    pub(crate) fn audit(&self, name: &str, in_flight: u64) -> Result<(), AuditError> {
        let counters = &self.counters;
        let packets = |place: String, expected, found| {
            if expected == found {
                return Ok(());
            }
            let detail = format!("{counters:?}, {} arrived, {in_flight} in flight", self.arrived);
            Err(AuditError::Packets {
                place,
                expected,
                found,
                detail,
            })
        };
        let entered = counters.offered + counters.duplicated;
        packets(name.to_owned(), entered, counters.dropped() + counters.released)?;
        packets(
            format!("{name}, far end"),
            counters.released,
            self.arrived + in_flight,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_that_appears_or_vanishes_is_found() {
        let spec = LinkSpec::new(&[("loss", "30%"), ("duplicate", "10%")]).unwrap();
        let mut link = Link::new(&spec, &mut Random::new(1)).unwrap();
        let mut released = 0;
        for millis in 0..1_000 {
            let crossing = link.offer(Time::from_millis(millis), 1_000);
            released += crossing.arrivals.iter().flatten().count() as u64;
        }
        link.arrived = released - 10;
        assert_eq!(link.audit("link", 10), Ok(()));
        assert!(link.audit("link", 9).unwrap_err().to_string().contains("far end"));
        link.counters.released += 1;
        assert!(matches!(link.audit("link", 10), Err(AuditError::Packets { .. })));
    }
}
