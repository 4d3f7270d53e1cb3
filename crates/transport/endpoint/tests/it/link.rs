//! A link of several endpoints in virtual time.

use std::net::SocketAddr;

use millrace_endpoint::{Config, Endpoint, Event, FrameWriter, Received, SendError};
use millrace_types::{Duration, Mac, Time};

/// The UDP port of all hosts.
pub(crate) const PORT: u16 = 7_800;

/// Frames in memory.
#[derive(Default)]
pub(crate) struct Frames(pub(crate) Vec<Vec<u8>>);

impl FrameWriter for Frames {
    fn write_frame<'a>(&mut self, size: usize, slices: impl Iterator<Item = &'a [u8]>) -> bool {
        let frame: Vec<u8> = slices.flatten().copied().collect();
        assert_eq!(frame.len(), size);
        self.0.push(frame);
        true
    }
}

pub(crate) struct Host {
    pub(crate) endpoint: Endpoint,
    /// Datagrams that arrived, with their senders.
    pub(crate) arrived: Vec<(SocketAddr, Vec<u8>)>,
    pub(crate) events: Vec<Event>,
    frames: Frames,
}

/// Hosts on one link.
pub(crate) struct Link {
    pub(crate) now: Time,
    pub(crate) hosts: Vec<Host>,
    /// All frames that were on the link.
    pub(crate) seen: Vec<Vec<u8>>,
}

pub(crate) fn mac(number: u8) -> Mac {
    Mac([2, 0, 0, 0, 0, number])
}

/// Returns the configuration of a host with these addresses.
pub(crate) fn config(number: u8, addresses: &[&str]) -> Config {
    let mut config = Config::new(mac(number), addresses[0].parse().unwrap(), u64::from(number));
    config.addresses = addresses.iter().map(|text| text.parse().unwrap()).collect();
    config
}

impl Link {
    pub(crate) fn new(configs: impl IntoIterator<Item = Config>) -> Link {
        let host = |config| {
            let mut endpoint = Endpoint::new(config, Time::ZERO).unwrap();
            endpoint.bind(PORT).unwrap();
            Host {
                endpoint,
                arrived: Vec::new(),
                events: Vec::new(),
                frames: Frames::default(),
            }
        };
        Link {
            now: Time::ZERO,
            hosts: configs.into_iter().map(host).collect(),
            seen: Vec::new(),
        }
    }

    /// Returns two hosts that have probed their addresses: 192.0.2.1 and 2001:db8::1, and those that end with 2.
    pub(crate) fn pair() -> Link {
        let mut link = Link::new([
            config(1, &["192.0.2.1/24", "2001:db8::1/64"]),
            config(2, &["192.0.2.2/24", "2001:db8::2/64"]),
        ]);
        link.run(Duration::from_secs(10));
        link.seen.clear();
        link
    }

    /// Sends datagrams from a host, and delivers what follows at once.
    pub(crate) fn send(
        &mut self,
        host: usize,
        to: &str,
        parts: &[&[u8]],
        segment: usize,
    ) -> Result<usize, SendError> {
        let sender = &mut self.hosts[host];
        let to = to.parse().unwrap();
        let result = sender
            .endpoint
            .send(self.now, PORT, to, parts, segment, &mut sender.frames);
        self.deliver();
        result
    }

    /// Delivers frames until no host has any.
    pub(crate) fn deliver(&mut self) {
        loop {
            let mut frames = Vec::new();
            for (at, host) in self.hosts.iter_mut().enumerate() {
                let written = std::mem::take(&mut host.frames.0);
                let polled = std::iter::from_fn(|| host.endpoint.poll_transmit());
                frames.extend(polled.chain(written).map(|frame| (at, frame)));
                host.events
                    .extend(std::iter::from_fn(|| host.endpoint.poll_event()));
            }
            if frames.is_empty() {
                return;
            }
            for (from, frame) in frames {
                for at in (0..self.hosts.len()).filter(|at| *at != from) {
                    self.inject(at, &frame);
                }
                self.seen.push(frame);
            }
        }
    }

    /// Delivers a frame to a host. Its answers are not delivered.
    pub(crate) fn inject(&mut self, at: usize, frame: &[u8]) -> Received {
        let host = &mut self.hosts[at];
        let received = host.endpoint.receive(self.now, frame);
        if let Received::Datagram {
            from, port, payload, ..
        } = &received
        {
            assert_eq!(*port, PORT);
            host.arrived.push((*from, frame[payload.clone()].to_vec()));
        }
        received
    }

    /// Lets time pass; timers run when they are due.
    pub(crate) fn run(&mut self, duration: Duration) {
        let end = self.now + duration;
        loop {
            self.deliver();
            let due = self
                .hosts
                .iter()
                .filter_map(|host| host.endpoint.next_timeout())
                .min();
            self.now = due.unwrap_or(end).max(self.now).min(end);
            for host in &mut self.hosts {
                host.endpoint.on_timeout(self.now);
            }
            if self.now >= end {
                return self.deliver();
            }
        }
    }

    /// Returns the payloads that arrived at a host since the last call.
    pub(crate) fn payloads(&mut self, at: usize) -> Vec<Vec<u8>> {
        let arrived = std::mem::take(&mut self.hosts[at].arrived);
        arrived.into_iter().map(|(_, payload)| payload).collect()
    }
}
