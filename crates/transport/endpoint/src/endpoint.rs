//! The endpoint: its state, its timers, and its queues of frames and events.

use std::collections::VecDeque;
use std::net::IpAddr;

use millrace_types::{Mac, Time, split_mix};
use thiserror::Error;

use crate::addresses::OwnAddresses;
use crate::config::{Config, ConfigError};
use crate::counters::Counters;
use crate::event::Event;
use crate::limits::{ECHO_RATE, ERROR_INPUT_RATE, ERROR_RATE, EVENTS_MAX, PORTS_MAX, RESOLUTION_RATE};
use crate::neighbours::NeighbourCache;
use crate::paths::PathTable;
use crate::token_bucket::TokenBucket;

/// The rate limits of answers and of ICMP errors.
#[derive(Debug)]
pub(crate) struct Buckets {
    pub(crate) echo: TokenBucket,
    pub(crate) resolution: TokenBucket,
    pub(crate) errors: TokenBucket,
    pub(crate) error_input: TokenBucket,
}

/// A host with one interface, several addresses, and UDP ports.
#[derive(Debug)]
pub struct Endpoint {
    pub(crate) config: Config,
    pub(crate) addresses: OwnAddresses,
    pub(crate) neighbours: NeighbourCache,
    pub(crate) paths: PathTable,
    pub(crate) ports: Vec<u16>,
    pub(crate) buckets: Buckets,
    pub(crate) counters: Counters,
    pub(crate) out: VecDeque<Vec<u8>>,
    events: VecDeque<Event>,
}

/// A port that cannot be bound.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum BindError {
    /// The port is zero.
    #[error("port 0 cannot be bound; expected 1 to 65535")]
    Zero,
    /// The port is bound already.
    #[error("port {port} is bound already; expected another one")]
    InUse { port: u16 },
    /// Too many ports are bound.
    #[error("{PORTS_MAX} ports are bound already; expected no more")]
    Full,
}

impl Endpoint {
    /// Returns an endpoint that begins to probe its addresses at once.
    ///
    /// # Errors
    /// [`ConfigError`] if the configuration cannot work.
    pub fn new(config: Config, now: Time) -> Result<Endpoint, ConfigError> {
        config.check()?;
        let mut random = config.seed;
        let mut endpoint = Endpoint {
            addresses: OwnAddresses::new(&config, now),
            neighbours: NeighbourCache::new(split_mix::next(&mut random)),
            paths: PathTable::new(config.mtu, split_mix::next(&mut random)),
            ports: Vec::new(),
            buckets: Buckets {
                echo: TokenBucket::new(ECHO_RATE),
                resolution: TokenBucket::new(RESOLUTION_RATE),
                errors: TokenBucket::new(ERROR_RATE),
                error_input: TokenBucket::new(ERROR_INPUT_RATE),
            },
            counters: Counters::default(),
            out: VecDeque::new(),
            events: VecDeque::new(),
            config,
        };
        endpoint.on_timeout(now);
        Ok(endpoint)
    }

    /// Binds a UDP port of all addresses.
    ///
    /// # Errors
    /// [`BindError`]
    pub fn bind(&mut self, port: u16) -> Result<(), BindError> {
        match port {
            0 => Err(BindError::Zero),
            port if self.ports.contains(&port) => Err(BindError::InUse { port }),
            _ if self.ports.len() >= PORTS_MAX => Err(BindError::Full),
            port => {
                self.ports.push(port);
                Ok(())
            }
        }
    }

    /// Returns true if an address passed duplicate address detection.
    pub fn is_usable(&self, address: IpAddr) -> bool {
        self.addresses.is_usable(address)
    }

    /// Returns true if duplicate address detection is over for all addresses, whatever its result.
    pub fn is_probed(&self) -> bool {
        self.addresses.is_probed()
    }

    /// Returns the size in bytes of the largest IP packet that passes to an address, as far as is known.
    pub fn path_mtu(&self, to: IpAddr) -> u16 {
        self.paths.mtu(to.to_canonical())
    }

    /// Returns the own MAC address.
    pub fn mac(&self) -> Mac {
        self.config.mac
    }

    /// Returns the counters.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Returns the next frame to be sent: an answer, a request, or a datagram that waited for a MAC address.
    pub fn poll_transmit(&mut self) -> Option<Vec<u8>> {
        self.out.pop_front()
    }

    /// Returns the next event.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Returns the time at which [`Endpoint::on_timeout`] is due.
    pub fn next_timeout(&self) -> Option<Time> {
        [
            self.addresses.next_timeout(),
            self.neighbours.next_timeout(),
            self.paths.next_timeout(),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    /// Handles the timers that are due: probes, announcements, solicitations.
    pub fn on_timeout(&mut self, now: Time) {
        for action in self.addresses.on_timeout(now) {
            self.act(action);
        }
        self.neighbours.on_timeout(now);
        self.push_solicitations();
        for (to, mtu) in self.paths.on_timeout(now) {
            self.push_event(Event::PathMtu { to, mtu });
        }
    }

    pub(crate) fn push_event(&mut self, event: Event) {
        if self.events.len() >= EVENTS_MAX {
            self.events.pop_front();
        }
        self.events.push_back(event);
    }

    /// Notes that another host uses an own address.
    pub(crate) fn note_conflict(&mut self, now: Time, address: IpAddr, mac: Mac) {
        if let Some((usable, defence)) = self.addresses.conflict(now, address) {
            self.push_event(Event::Conflict { address, mac, usable });
            if let Some(action) = defence {
                self.act(action);
            }
        }
    }
}
