//! The IPFIX exporter of a bridge: the cache of flows, and the messages to the collectors.

use std::collections::{BTreeMap, HashMap};
use std::time::{SystemTime, UNIX_EPOCH};

use millrace_datapath::SampledPacket;
use millrace_ipfix::element::*;
use millrace_ipfix::{Body, Builder, Template, Values};
use millrace_model::{self as model, IpfixRecords};
use millrace_types::{Duration, PortNo, Time};

use super::ipfix_flow::{self as flow, Counts, EndReason, FlowId};
use super::ipfix_session::{IpfixCollectorStatus, Session};
use super::sflow_records::interface;
use crate::problem::Problem;

/// The longest time for which a record waits in a message that is not full.
const DELAY_MAX: Duration = Duration::from_millis(200);
/// The time for which changes of ports are collected.
const COLLECT: Duration = Duration::from_secs(1);
/// The interval at which timeouts of flows are looked at.
const EXPIRY: Duration = Duration::from_millis(500);

/// A sampler, by its rate.
const SELECTOR: Template = Template {
    id: 260,
    scopes: 1,
    elements: &[
        SELECTOR_ID,
        SELECTOR_ALGORITHM,
        SAMPLING_PROBABILITY,
        SAMPLING_PACKET_INTERVAL,
        SAMPLING_PACKET_SPACE,
    ],
};
/// A port.
const INTERFACE: Template = Template {
    id: 261,
    scopes: 1,
    elements: &[INGRESS_INTERFACE, INTERFACE_NAME, INTERFACE_DESCRIPTION],
};
/// The counts of the exporter (RFC 7011, sections 4.1 and 4.2).
const COUNTS: Template = Template {
    id: 262,
    scopes: 1,
    elements: &[
        OBSERVATION_DOMAIN_ID,
        EXPORTED_MESSAGE_TOTAL_COUNT,
        EXPORTED_FLOW_RECORD_TOTAL_COUNT,
        EXPORTED_OCTET_TOTAL_COUNT,
        NOT_SENT_FLOW_TOTAL_COUNT,
    ],
};

/// The state of IPFIX of a bridge.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct IpfixStatus {
    /// The configuration.
    pub config: model::Ipfix,
    /// The observation domain.
    pub domain: u32,
    pub collectors: Vec<IpfixCollectorStatus>,
    /// The number of flows that are kept.
    pub flows: usize,
    /// The number of samples.
    pub samples: u64,
    /// The number of packets from which the samples were chosen, and of samples that were lost in the switch.
    pub pool: u64,
    pub lost: u64,
    /// The number of records of flows or packets that were made.
    pub records: u64,
    /// The number of records that were sent early, because the cache was full.
    pub evicted: u64,
}

/// A flow in the cache.
struct Entry {
    counts: Counts,
    since: Time,
    last: Time,
    /// The number by which the first of all flows is found.
    order: u64,
}

/// The exporter of a bridge.
pub(super) struct Exporter {
    config: model::Ipfix,
    domain: u32,
    sessions: Vec<Session>,
    /// The names of ports, and their rates.
    ports: BTreeMap<PortNo, (String, u32)>,
    flows: HashMap<FlowId, Entry>,
    /// The flows in the order in which they began.
    began: BTreeMap<u64, FlowId>,
    next_order: u64,
    message: Builder,
    /// The time at which the first record of `message` was added.
    waiting_since: Time,
    next_expiry: Time,
    next_templates: Time,
    status: Totals,
}

#[derive(Default)]
struct Totals {
    samples: u64,
    pool: u64,
    lost: u64,
    records: u64,
    evicted: u64,
}

fn now_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
}

impl Exporter {
    pub(super) fn new(config: model::Ipfix, domain: u32, now: Time) -> Exporter {
        let mut exporter = Exporter {
            message: Builder::new(usize::from(config.message_size.get())),
            next_templates: now + interval(&config),
            config,
            domain,
            sessions: Vec::new(),
            ports: BTreeMap::new(),
            flows: HashMap::new(),
            began: BTreeMap::new(),
            next_order: 0,
            waiting_since: now,
            next_expiry: now,
            status: Totals::default(),
        };
        exporter.open_sessions();
        exporter
    }

    pub(super) fn config(&self) -> &model::Ipfix {
        &self.config
    }

    pub(super) fn domain(&self) -> u32 {
        self.domain
    }

    /// Changes the configuration. Flows that are kept are sent first; sessions that stay keep their numbers, unless the domain
    /// changes.
    pub(super) fn configure(&mut self, config: model::Ipfix, domain: u32, now: Time) {
        self.end_flows(now);
        if domain != self.domain {
            self.sessions.clear();
        }
        self.domain = domain;
        self.message = Builder::new(usize::from(config.message_size.get()));
        self.next_templates = now + interval(&config);
        self.config = config;
        self.open_sessions();
        self.refresh();
    }

    /// Opens the sessions that are missing, and closes those of former collectors. One that could not be opened is tried again.
    pub(super) fn open_sessions(&mut self) {
        let mut known = core::mem::take(&mut self.sessions);
        let opening = self.opening();
        for target in &self.config.collectors {
            let found = known
                .iter()
                .position(|session| session.target() == *target && session.is_open());
            self.sessions.push(match found {
                Some(at) => known.swap_remove(at),
                None => Session::open(*target, self.domain, &opening),
            });
        }
    }

    /// Returns the collectors that cannot be reached.
    pub(super) fn problems(&self) -> impl Iterator<Item = Problem> + '_ {
        self.sessions.iter().filter_map(|session| {
            let status = session.status();
            let reason = status.last_error.filter(|_| !status.is_connected)?;
            Some(Problem::new(
                format!("ipfix, collector {}", status.target),
                reason,
            ))
        })
    }

    /// Replaces the sampled ports: their names and rates. Collectors are told at once of the first ports, and soon of changes,
    /// which come in numbers.
    pub(super) fn set_ports(&mut self, ports: BTreeMap<PortNo, (String, u32)>, now: Time) {
        if self.ports == ports {
            return;
        }
        let is_first = self.ports.is_empty();
        self.ports = ports;
        if is_first {
            self.refresh();
        } else {
            self.next_templates = self.next_templates.min(now + COLLECT);
        }
    }

    /// Counts packets that no sample has reported.
    pub(super) fn count(&mut self, pool: u64, lost: u64) {
        self.status.pool += pool;
        self.status.lost += lost;
    }

    /// Adds the sample of a packet.
    pub(super) fn take_sample(&mut self, sample: &SampledPacket, now: Time) {
        self.count(sample.pool, sample.lost);
        self.status.samples += 1;
        let time_ms = now_ms();
        let point = self.config.point.get();
        if self.config.records == IpfixRecords::Packets {
            let size_max = usize::from(self.config.frame_size.get());
            let values = flow::packet(sample, point, size_max, time_ms);
            self.push(&flow::PACKET, &values, now);
            return;
        }
        let (id, counts) = flow::flow_of(sample, time_ms);
        if self.config.active_timeout_s.get() == 0 {
            let (template, values) = flow::record(&id, &counts, point, EndReason::ActiveTimeout);
            self.push(template, &values, now);
            return;
        }
        if let Some(entry) = self.flows.get_mut(&id) {
            entry.counts.add(&counts);
            entry.last = now;
            return;
        }
        if self.flows.len() >= self.config.max_flows.get() as usize
            && let Some((_, first)) = self.began.pop_first()
        {
            self.status.evicted += 1;
            self.end_flow(&first, EndReason::LackOfResources, now);
        }
        let order = self.next_order;
        self.next_order += 1;
        self.began.insert(order, id);
        let entry = Entry {
            counts,
            since: now,
            last: now,
            order,
        };
        self.flows.insert(id, entry);
    }

    /// Sends the record of a flow, and forgets it.
    fn end_flow(&mut self, id: &FlowId, reason: EndReason, now: Time) {
        let Some(entry) = self.flows.remove(id) else {
            return;
        };
        self.began.remove(&entry.order);
        let (template, values) = flow::record(id, &entry.counts, self.config.point.get(), reason);
        self.push(template, &values, now);
    }

    /// Sends the records of all flows.
    pub(super) fn end_flows(&mut self, now: Time) {
        while let Some((_, id)) = self.began.pop_first() {
            self.end_flow(&id, EndReason::ForcedEnd, now);
        }
        self.flush();
    }

    /// Sends what is due: records of flows whose time is over, the message that waits, and templates.
    pub(super) fn run(&mut self, now: Time) {
        if now >= self.next_expiry {
            self.next_expiry = now + EXPIRY;
            let active = Duration::from_secs(self.config.active_timeout_s.get().into());
            let idle = Duration::from_secs(self.config.idle_timeout_s.get().into());
            let over: Vec<(FlowId, EndReason)> = self
                .flows
                .iter()
                .filter_map(|(id, entry)| {
                    if now.since(entry.last) >= idle {
                        Some((*id, EndReason::IdleTimeout))
                    } else if now.since(entry.since) >= active {
                        Some((*id, EndReason::ActiveTimeout))
                    } else {
                        None
                    }
                })
                .collect();
            for (id, reason) in over {
                self.end_flow(&id, reason, now);
            }
        }
        if !self.message.is_empty() && now.since(self.waiting_since) >= DELAY_MAX {
            self.flush();
        }
        if now >= self.next_templates {
            self.next_templates = now + interval(&self.config);
            self.refresh();
        }
    }

    /// Adds a record to the message, which is sent first if the record does not fit.
    fn push(&mut self, template: &Template, values: &Values, now: Time) {
        self.status.records += 1;
        if self.message.is_empty() {
            self.waiting_since = now;
        }
        if !self.message.record(template, values) {
            self.flush();
            self.waiting_since = now;
            // The longest record is 300 bytes shorter than the shortest message.
            let is_added = self.message.record(template, values);
            debug_assert!(is_added, "a record has the size of its template, and fits");
        }
    }

    /// Sends the message, if it has records.
    fn flush(&mut self) {
        let body = self.message.take();
        if body.records != 0 {
            self.sessions.iter_mut().for_each(|session| session.send(&body));
        }
    }

    fn refresh(&mut self) {
        let opening = self.opening();
        self.sessions
            .iter_mut()
            .for_each(|session| session.refresh(&opening));
    }

    /// Returns the templates, and the records of samplers, ports and counts.
    fn opening(&self) -> Vec<Body> {
        let mut bodies = Vec::new();
        let mut builder = Builder::new(usize::from(self.config.message_size.get()));
        for template in [
            &flow::OTHER,
            &flow::IPV4,
            &flow::IPV6,
            &flow::PACKET,
            &SELECTOR,
            &INTERFACE,
            &COUNTS,
        ] {
            if !builder.template(template) {
                bodies.push(builder.take());
                builder.template(template);
            }
        }
        // Templates are alone: a new connection needs them, one that stands does not.
        bodies.push(builder.take());
        let mut rates: Vec<u32> = self
            .ports
            .values()
            .map(|(_, rate)| *rate)
            .filter(|rate| *rate != 0)
            .collect();
        rates.sort_unstable();
        rates.dedup();
        let selectors = rates.iter().map(|rate| {
            let values = Values::new()
                .u32(*rate)
                .u16(UNIFORM_PROBABILISTIC)
                .f64(1.0 / f64::from(*rate))
                // Collectors that know no probability read one packet of `rate`.
                .u32(1)
                .u32(rate - 1);
            (&SELECTOR, values)
        });
        let interfaces = self.ports.iter().map(|(number, (name, _))| {
            let description = format!("port {name}");
            let values = Values::new()
                .u32(interface(*number))
                .bytes(name.as_bytes())
                .bytes(description.as_bytes());
            (&INTERFACE, values)
        });
        let statuses: Vec<IpfixCollectorStatus> = self.sessions.iter().map(Session::status).collect();
        let sum = |read: fn(&IpfixCollectorStatus) -> u64| statuses.iter().map(read).sum::<u64>();
        let counts = Values::new()
            .u32(self.domain)
            .u64(sum(|status| status.messages))
            .u64(sum(|status| status.records))
            .u64(sum(|status| status.bytes))
            .u64(sum(|status| status.not_sent));
        for (template, values) in selectors.chain(interfaces).chain([(&COUNTS, counts)]) {
            if !builder.record(template, &values) {
                bodies.push(builder.take());
                builder.record(template, &values);
            }
        }
        bodies.push(builder.take());
        bodies
    }

    /// Returns the state for REST and the command line.
    pub(super) fn status(&self) -> IpfixStatus {
        IpfixStatus {
            config: self.config.clone(),
            domain: self.domain,
            collectors: self.sessions.iter().map(Session::status).collect(),
            flows: self.flows.len(),
            samples: self.status.samples,
            pool: self.status.pool,
            lost: self.status.lost,
            records: self.status.records,
            evicted: self.status.evicted,
        }
    }
}

fn interval(config: &model::Ipfix) -> Duration {
    Duration::from_secs(config.template_interval_s.get().into())
}
