//! Links: an emulated path behind an optional policer.

use crate::ETHERNET;
use millrace_transport::random::Random;
use millrace_types::{BitRate, Duration, Time};
use millrace_wan_emulator::{ConfigError, NoSources, Outcome, Path, PathConfig, PathModel, Seed};

/// A token bucket without a queue: what finds no tokens is dropped.
#[derive(Clone, Copy, Debug)]
pub struct PolicerSpec {
    /// The rate at which tokens come.
    pub rate: BitRate,
    /// Bytes of the bucket.
    pub bucket: u64,
}

/// A link that flows share.
#[derive(Clone, Debug, Default)]
pub struct LinkSpec {
    /// The emulated path.
    pub path: PathConfig,
    /// Drops what exceeds a rate, before the path.
    pub policer: Option<PolicerSpec>,
}

impl LinkSpec {
    /// Returns a link from pairs of the emulator's keys and texts: `[("rate", "1Gbps"), ("delay", "50ms")]`.
    ///
    /// # Errors
    /// If a text is not of its key's grammar.
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
    /// When the packet, and its duplicate, arrive.
    pub(crate) arrivals: [Option<Time>; 2],
    /// The time until the link had sent it, if it was not dropped before.
    pub(crate) queued: Option<Duration>,
}

/// A link in use.
pub(crate) struct Link {
    path: Path,
    policer: Option<Policer>,
    pub(crate) offered: u64,
    pub(crate) dropped: u64,
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
            offered: 0,
            dropped: 0,
        })
    }

    /// Changes the path for what is offered from now on.
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
        self.offered += 1;
        if self
            .policer
            .as_mut()
            .is_some_and(|policer| !policer.admits(now, bytes))
        {
            self.dropped += 1;
            return crossing;
        }
        let size = usize::try_from(bytes).unwrap_or(usize::MAX / 2) + ETHERNET;
        for (outcome, arrival) in self
            .path
            .offer_sized(now, size)
            .iter()
            .zip(&mut crossing.arrivals)
        {
            match outcome {
                Outcome::Dropped(_) => self.dropped += 1,
                Outcome::Released(release) => {
                    *arrival = Some(release.at);
                    crossing.queued = Some(release.sent.since(now));
                }
            }
        }
        crossing
    }

    /// Offers a datagram with so many bytes of IP and UDP headers; returns its copies, as they arrive.
    pub(crate) fn offer_bytes(&mut self, now: Time, headers: u16, datagram: &[u8]) -> Vec<(Time, Vec<u8>)> {
        let in_front = ETHERNET + usize::from(headers);
        let mut frame = vec![0; in_front];
        frame.extend_from_slice(datagram);
        // A frame of EtherType IPv4.
        frame[12] = 8;
        self.offered += 1;
        let mut copies = Vec::new();
        for outcome in self.path.offer(now, &frame) {
            match outcome {
                Outcome::Dropped(_) => self.dropped += 1,
                Outcome::Released(release) => {
                    let mut bytes = frame.clone();
                    if let Some(flips) = release.flips {
                        flips.apply(&mut bytes);
                    }
                    copies.push((release.at, bytes.split_off(in_front)));
                }
            }
        }
        copies
    }
}
