//! The sFlow agent of a bridge: sequence numbers, datagrams, and the sockets to the collectors.
//!
//! Samples wait in a datagram until it is full or [`DELAY_MAX`] old. The sockets never block: a datagram that
//! the kernel does not accept is counted as an error of its collector.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

use millrace_datapath::{DiscardedPacket, SampleRemainder, SampledPacket, SamplingPlan, TIME_AT_START};
use millrace_model as model;
use millrace_sflow::{CounterSample, Datagram, Sample};
use millrace_types::{Duration, PortNo, Time};

use super::ipfix_exporter::Exporter;
use super::sflow_records::{SourceNumbers, discarded, flow_sample, interface};
use crate::problem::Problem;

/// The longest time for which a sample waits. sFlow demands less than a second ("sFlow Version 5", section 4).
pub(super) const DELAY_MAX: Duration = Duration::from_millis(200);
/// The size of a datagram without samples and with an IPv6 address, in bytes.
const DATAGRAM_HEADER_SIZE: usize = 40;

/// sFlow and IPFIX of a bridge.
#[derive(Default)]
pub(super) struct Sflow {
    pub(super) agent: Option<SflowAgent>,
    pub(super) exporter: Option<Exporter>,
    /// The sampling plan of the workers.
    pub(super) plan: Option<SamplingPlan>,
}

/// A collector with its counters.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CollectorStatus {
    /// The IP address and UDP port.
    pub address: SocketAddr,
    /// The number of datagrams sent.
    pub datagrams: u64,
    /// The number of datagrams that the kernel did not send.
    pub errors: u64,
    /// The last error, until a datagram is sent.
    pub last_error: Option<String>,
}

/// The sampling rate of a port and the numbers of its samples, as `show sflow` prints them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PortSamples {
    /// The mean number of packets for each sample; 0 for no samples.
    pub rate: u32,
    /// The number of packet samples.
    pub samples: u64,
    /// The number of packets from which the samples were chosen (sample pool).
    pub pool: u64,
    /// The number of samples that were lost in the switch.
    pub lost: u64,
    /// The number of counter samples.
    pub counter_samples: u64,
}

/// The state of sFlow of a bridge.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SflowStatus {
    /// The configuration.
    pub config: model::Sflow,
    pub collectors: Vec<CollectorStatus>,
    pub ports: BTreeMap<PortNo, PortSamples>,
    /// The number of notifications of dropped packets.
    pub discards: u64,
    /// The number of notifications that were lost, because of the rate limit or in the switch.
    pub discards_lost: u64,
}

/// A port as a data source.
#[derive(Clone, Copy, Default)]
struct Source {
    numbers: SourceNumbers,
    counter_sequence: u32,
    /// The time of the next counter sample; `None` before the first was planned.
    next_poll: Option<Time>,
    totals: PortSamples,
}

/// The agent of a bridge.
pub(super) struct SflowAgent {
    config: model::Sflow,
    collectors: Vec<(Result<UdpSocket, String>, CollectorStatus)>,
    sources: BTreeMap<PortNo, Source>,
    /// The sequence number of the last datagram.
    sequence: u32,
    /// The sequence number of the last notification of each source, by interface number.
    discard_sequences: BTreeMap<u32, u32>,
    discards: u64,
    discards_lost: u64,
    waiting: Vec<Sample>,
    waiting_size: usize,
    /// The time at which the first waiting sample was added.
    waiting_since: Time,
}

impl SflowAgent {
    pub(super) fn new(config: model::Sflow) -> SflowAgent {
        let mut agent = SflowAgent {
            collectors: Vec::new(),
            sources: BTreeMap::new(),
            sequence: 0,
            discard_sequences: BTreeMap::new(),
            discards: 0,
            discards_lost: 0,
            waiting: Vec::new(),
            waiting_size: DATAGRAM_HEADER_SIZE,
            waiting_since: Time::ZERO,
            config,
        };
        agent.open_collectors();
        agent
    }

    /// Returns the configuration.
    pub(super) fn config(&self) -> &model::Sflow {
        &self.config
    }

    /// Changes the configuration. Collectors that stay keep their sockets and counters, unless the source
    /// address changes. For collectors, a new agent address or sub-agent number is a new agent. The sequence
    /// numbers of its datagrams and notifications therefore start at one. Those of samples, and all counters,
    /// continue.
    pub(super) fn configure(&mut self, config: model::Sflow, now: Time) {
        self.flush(now);
        if (config.agent, config.sub_agent) != (self.config.agent, self.config.sub_agent) {
            self.sequence = 0;
            self.discard_sequences.clear();
        }
        let has_other_source = config.source != self.config.source;
        self.config = config;
        if has_other_source {
            self.collectors.clear();
        }
        self.open_collectors();
    }

    /// Opens the sockets that are missing, and closes those of former collectors. A socket that failed to open is
    /// tried again: its source address may be there now.
    pub(super) fn open_collectors(&mut self) {
        let mut known = core::mem::take(&mut self.collectors);
        for collector in &self.config.collectors {
            let address = collector.address();
            let found = known
                .iter()
                .position(|(socket, status)| status.address == address && socket.is_ok());
            self.collectors.push(match found {
                Some(at) => known.swap_remove(at),
                None => {
                    let status = CollectorStatus {
                        address,
                        datagrams: 0,
                        errors: 0,
                        last_error: None,
                    };
                    (open(address, self.config.source), status)
                }
            });
        }
    }

    /// Returns the collectors that cannot be reached.
    pub(super) fn problems(&self) -> impl Iterator<Item = Problem> + '_ {
        self.collectors.iter().filter_map(|(socket, status)| {
            let reason = socket.as_ref().err()?;
            Some(Problem::new(
                format!("sflow, collector {}", status.address),
                reason,
            ))
        })
    }

    /// Replaces the sampled ports and their rates. Ports that stay keep their sequence numbers and counters.
    pub(super) fn set_ports(&mut self, rates: &BTreeMap<PortNo, u32>) {
        self.sources.retain(|port, _| rates.contains_key(port));
        for (port, rate) in rates {
            self.sources.entry(*port).or_default().totals.rate = *rate;
        }
    }

    /// Adds the packets of the former plan that no sample has reported.
    pub(super) fn count_remainder(&mut self, remainder: &SampleRemainder) {
        if let Some(source) = self.sources.get_mut(&remainder.port) {
            source.count(remainder.pool, remainder.lost);
        }
    }

    /// Adds the sample of a packet.
    pub(super) fn take_sample(&mut self, sample: &SampledPacket, now: Time) {
        let Some(source) = self.sources.get_mut(&sample.port) else {
            return;
        };
        source.count(sample.pool, sample.lost);
        source.totals.samples += 1;
        source.numbers.sequence = source.numbers.sequence.wrapping_add(1);
        let mut sample = flow_sample(sample, source.numbers);
        // IPFIX may have asked for more bytes.
        sample.header.truncate(self.config.header_size.get().into());
        self.push(Sample::Flow(sample), now);
    }

    /// Adds the notification of a dropped packet.
    pub(super) fn take_discard(&mut self, packet: &DiscardedPacket, now: Time) {
        self.discards += 1;
        self.discards_lost += packet.lost;
        let mut sample = discarded(packet, self.discards_lost as u32);
        sample.header.truncate(self.config.header_size.get().into());
        let sequence = self.discard_sequences.entry(sample.source).or_default();
        *sequence = sequence.wrapping_add(1);
        sample.sequence = *sequence;
        self.push(Sample::Discarded(sample), now);
    }

    /// Returns the ports whose counters are due.
    pub(super) fn due(&mut self, now: Time) -> Vec<PortNo> {
        let seconds = u64::from(self.config.polling_interval_s.get());
        if seconds == 0 {
            return Vec::new();
        }
        let interval = Duration::from_secs(seconds);
        let len = self.sources.len().max(1) as u64;
        let mut due = Vec::new();
        for (index, (port, source)) in (0..).zip(&mut self.sources) {
            // The first polls of the ports are spread evenly over the interval.
            let offset = Duration::from_nanos(interval.as_nanos() as u64 / len * index);
            let next = source.next_poll.get_or_insert(now + offset);
            // A shorter interval applies at once.
            *next = (*next).min(now + interval);
            if now >= *next {
                *next = now + interval;
                due.push(*port);
            }
        }
        due
    }

    /// Adds the counter sample of a port, after setting its sequence number and its source.
    pub(super) fn take_counters(&mut self, port: PortNo, mut sample: CounterSample, now: Time) {
        let Some(source) = self.sources.get_mut(&port) else {
            return;
        };
        source.counter_sequence = source.counter_sequence.wrapping_add(1);
        source.totals.counter_samples += 1;
        sample.sequence = source.counter_sequence;
        sample.source = interface(port);
        self.push(Sample::Counters(sample), now);
    }

    /// Adds a sample to the datagram, which is sent first if the sample does not fit.
    fn push(&mut self, sample: Sample, now: Time) {
        let size = sample.size();
        if self.waiting_size + size > usize::from(self.config.datagram_size.get()) {
            self.flush(now);
        }
        if self.waiting.is_empty() {
            self.waiting_since = now;
        }
        self.waiting_size += size;
        self.waiting.push(sample);
    }

    /// Sends the datagram if it has waited for [`DELAY_MAX`].
    pub(super) fn flush_due(&mut self, now: Time) {
        if now.since(self.waiting_since) >= DELAY_MAX {
            self.flush(now);
        }
    }

    /// Sends the datagram, if it has samples.
    pub(super) fn flush(&mut self, now: Time) {
        if self.waiting.is_empty() {
            return;
        }
        self.sequence = self.sequence.wrapping_add(1);
        let datagram = Datagram {
            agent: self.config.agent,
            sub_agent: self.config.sub_agent.get(),
            sequence: self.sequence,
            uptime_ms: now.since(TIME_AT_START).as_millis() as u32,
            samples: core::mem::take(&mut self.waiting),
            skipped: 0,
        };
        self.waiting_size = DATAGRAM_HEADER_SIZE;
        let bytes = datagram.emit();
        for (socket, status) in &mut self.collectors {
            let Ok(socket) = socket else { continue };
            match socket.send_to(&bytes, status.address) {
                Ok(_) => {
                    status.datagrams += 1;
                    status.last_error = None;
                }
                Err(error) => {
                    status.errors += 1;
                    status.last_error = Some(error.to_string());
                }
            }
        }
    }

    /// Returns the state for REST and the command line.
    pub(super) fn status(&self) -> SflowStatus {
        let collectors = self.collectors.iter().map(|(socket, status)| {
            let mut status = status.clone();
            if let Err(reason) = socket {
                status.last_error = Some(reason.clone());
            }
            status
        });
        SflowStatus {
            config: self.config.clone(),
            collectors: collectors.collect(),
            ports: self
                .sources
                .iter()
                .map(|(port, source)| (*port, source.totals))
                .collect(),
            discards: self.discards,
            discards_lost: self.discards_lost,
        }
    }
}

impl Source {
    fn count(&mut self, pool: u64, lost: u64) {
        self.totals.pool += pool;
        self.totals.lost += lost;
        // A datagram carries only the lower 32 bits of both counters.
        self.numbers.pool = self.totals.pool as u32;
        self.numbers.drops = self.totals.lost as u32;
    }
}

/// Returns a socket for datagrams to a collector. The socket is not connected, so that a collector that is down for a while
/// causes no error at the next datagram.
fn open(address: SocketAddr, source: Option<IpAddr>) -> Result<UdpSocket, String> {
    let any = match address {
        SocketAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        SocketAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    };
    let local = source.unwrap_or(any);
    let socket = || -> io::Result<UdpSocket> {
        let socket = UdpSocket::bind(SocketAddr::new(local, 0))?;
        socket.set_nonblocking(true)?;
        Ok(socket)
    };
    socket().map_err(|error| match source {
        Some(source) => format!(
            "no socket has the source address {source}: {error}. To fix it: give an address of this machine as `source`, \
             or none"
        ),
        None => format!("no socket: {error}. To fix it: enable the address family, or name another collector"),
    })
}
