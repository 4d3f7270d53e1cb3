//! A network in this process: each pair of ends has an emulated path in each direction, in real time, without privileges.

use millrace_courier::io::{Burst, DatagramIo};
use millrace_types::Time;
use millrace_wan_emulator::{NoSources, Outcome, Path, PathConfig, Seed};
use nix::sys::eventfd::{EfdFlags, EventFd};
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap};
use std::io::{self, IoSlice};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Bytes of Ethernet, IPv4 and UDP headers.
const HEADERS: usize = 14 + 20 + 8;

/// Datagrams that are on their way to one end, by the time of their arrival.
struct Arrivals {
    datagrams: BTreeMap<(Instant, u64), (SocketAddr, Vec<u8>)>,
    event: Arc<EventFd>,
}

struct State {
    arrivals: HashMap<SocketAddr, Arrivals>,
    paths: HashMap<(SocketAddr, SocketAddr), Path>,
    /// The address that others see for an end, if it is not the real one (network address translation).
    seen_as: HashMap<SocketAddr, SocketAddr>,
    count: u64,
    /// Datagrams as they were sent.
    recorded: Vec<(SocketAddr, SocketAddr, Vec<u8>)>,
}

/// Emulated paths between the ends of a test, which run in real time.
#[derive(Clone)]
pub(crate) struct Network {
    started: Instant,
    config: PathConfig,
    back: PathConfig,
    state: Arc<Mutex<State>>,
}

fn config(settings: &[(&str, &str)]) -> PathConfig {
    let mut config = PathConfig::default();
    for (key, text) in settings {
        config.set(key, text).unwrap();
    }
    config
}

impl Network {
    /// Returns a network whose paths have these settings, away from the lower address, and back with the delay only.
    pub(crate) fn new(settings: &[(&str, &str)]) -> Network {
        let back: Vec<_> = settings
            .iter()
            .filter(|(key, _)| *key == "delay")
            .copied()
            .collect();
        Network {
            started: Instant::now(),
            config: config(settings),
            back: config(&back),
            state: Arc::new(Mutex::new(State {
                arrivals: HashMap::new(),
                paths: HashMap::new(),
                seen_as: HashMap::new(),
                count: 0,
                recorded: Vec::new(),
            })),
        }
    }

    /// Returns a new end.
    pub(crate) fn end(&self, address: &str) -> Box<dyn DatagramIo> {
        let local: SocketAddr = address.parse().unwrap();
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        let event = Arc::new(EventFd::from_value_and_flags(0, flags).unwrap());
        let arrivals = Arrivals {
            datagrams: BTreeMap::new(),
            event: Arc::clone(&event),
        };
        self.state.lock().arrivals.insert(local, arrivals);
        Box::new(End {
            local,
            network: self.clone(),
            event,
            buffer: Vec::new(),
        })
    }

    /// Sets the path from one end to another, with settings of its own.
    pub(crate) fn set_path(&self, from: &str, to: &str, settings: &[(&str, &str)]) {
        let path = Path::new(&config(settings), Seed::new(9), &NoSources).unwrap();
        let ends = (from.parse().unwrap(), to.parse().unwrap());
        self.state.lock().paths.insert(ends, path);
    }

    /// Lets others see an end under another address from now on. It no longer receives what is sent to its own address,
    /// as behind a translator that has forgotten the old mapping.
    pub(crate) fn translate(&self, end: SocketAddr, seen_as: SocketAddr) {
        self.state.lock().seen_as.insert(end, seen_as);
    }

    /// Changes the settings of all paths that exist.
    pub(crate) fn change(&self, settings: &[(&str, &str)]) {
        let config = config(settings);
        for path in self.state.lock().paths.values_mut() {
            *path = Path::new(&config, Seed::new(7), &NoSources).unwrap();
        }
    }

    /// Sends each datagram that was sent until now once more.
    pub(crate) fn replay(&self) -> usize {
        let recorded = std::mem::take(&mut self.state.lock().recorded);
        for (from, to, bytes) in &recorded {
            self.deliver(*from, *to, bytes, false);
        }
        recorded.len()
    }

    /// Sends a datagram with any source address.
    pub(crate) fn spoof(&self, from: SocketAddr, to: SocketAddr, bytes: &[u8]) {
        self.deliver(from, to, bytes, false);
    }

    /// Returns the datagrams that were sent to an address.
    pub(crate) fn sent_to(&self, to: SocketAddr) -> Vec<Vec<u8>> {
        let state = self.state.lock();
        let to = state.recorded.iter().filter(|(_, other, _)| *other == to);
        to.map(|(_, _, bytes)| bytes.clone()).collect()
    }

    fn deliver(&self, from: SocketAddr, to: SocketAddr, bytes: &[u8], record: bool) {
        let now = self.started.elapsed();
        let arrival = Time::from_nanos(now.as_nanos() as u64);
        let mut state = self.state.lock();
        let state = &mut *state;
        if record {
            state.recorded.push((from, to, bytes.to_vec()));
        }
        if state.seen_as.contains_key(&to) {
            return;
        }
        let real = state.seen_as.iter().find(|(_, seen)| **seen == to);
        let real = real.map_or(to, |(real, _)| *real);
        let from = *state.seen_as.get(&from).unwrap_or(&from);
        let forward = from.ip() < to.ip();
        let path = state.paths.entry((from, to)).or_insert_with(|| {
            let config = if forward { &self.config } else { &self.back };
            Path::new(
                config,
                Seed::new(u64::from(from.port()) << 16 | u64::from(to.port())),
                &NoSources,
            )
            .unwrap()
        });
        let Some(arrivals) = state.arrivals.get_mut(&real) else {
            return;
        };
        let frame = frame(from, to, bytes);
        for outcome in path.offer(arrival, &frame) {
            let Outcome::Released(release) = outcome else {
                continue;
            };
            let mut copy = frame.clone();
            if let Some(flips) = release.flips {
                flips.apply(&mut copy);
            }
            let at = self.started + Duration::from_nanos(release.at.nanos());
            state.count += 1;
            arrivals
                .datagrams
                .insert((at, state.count), (from, copy.split_off(HEADERS)));
        }
        let _ = arrivals.event.write(1);
    }
}

/// Returns a frame with headers of Ethernet, IPv4 and UDP, whose checksums are zero.
fn frame(from: SocketAddr, to: SocketAddr, payload: &[u8]) -> Vec<u8> {
    let octets = |address: SocketAddr| match address.ip() {
        IpAddr::V4(ip) => ip.octets(),
        IpAddr::V6(_) => [0; 4],
    };
    let mut frame = vec![0; 12];
    frame.extend([8, 0, 0x45, 0]);
    frame.extend(((payload.len() + 28) as u16).to_be_bytes());
    frame.extend([0, 0, 0, 0, 64, 17, 0, 0]);
    frame.extend(octets(from));
    frame.extend(octets(to));
    frame.extend(from.port().to_be_bytes());
    frame.extend(to.port().to_be_bytes());
    frame.extend(((payload.len() + 8) as u16).to_be_bytes());
    frame.extend([0, 0]);
    frame.extend(payload);
    frame
}

/// One end of the network.
struct End {
    local: SocketAddr,
    network: Network,
    event: Arc<EventFd>,
    buffer: Vec<u8>,
}

impl DatagramIo for End {
    fn local_address(&self) -> io::Result<SocketAddr> {
        Ok(self.local)
    }

    fn segments_max(&self) -> usize {
        64
    }

    fn send(&mut self, to: SocketAddr, datagram: &[u8]) -> io::Result<()> {
        self.network.deliver(self.local, to, datagram, true);
        Ok(())
    }

    fn send_segments(&mut self, to: SocketAddr, parts: &[IoSlice<'_>], segment: usize) -> io::Result<()> {
        let bytes: Vec<u8> = parts.iter().flat_map(|part| part.iter().copied()).collect();
        bytes
            .chunks(segment)
            .try_for_each(|datagram| self.send(to, datagram))
    }

    fn receive(&mut self) -> io::Result<Option<Burst<'_>>> {
        let _ = self.event.read();
        let mut state = self.network.state.lock();
        let arrivals = &mut state.arrivals.get_mut(&self.local).unwrap().datagrams;
        let due = arrivals
            .first_key_value()
            .is_some_and(|((at, _), _)| *at <= Instant::now());
        let Some((_, (from, bytes))) = due.then(|| arrivals.pop_first()).flatten() else {
            return Ok(None);
        };
        self.buffer = bytes;
        Ok(Some(Burst {
            from,
            segment: self.buffer.len().max(1),
            bytes: &mut self.buffer,
            congestion_experienced: false,
        }))
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }

    fn path_mtu(&self, _: SocketAddr) -> u16 {
        1_500
    }

    fn next_timeout(&self) -> Option<Instant> {
        let state = self.network.state.lock();
        let arrivals = &state.arrivals.get(&self.local)?.datagrams;
        arrivals.first_key_value().map(|((at, _), _)| *at)
    }
}
