//! The event loop, which processes events in virtual time.
//!
//! The control channel is a reliable stream: a message arrives after half a round-trip time of the path.
//! Receivers write at once and verify complete extents.

use crate::measure::{Bins, Quantiles};
use crate::network::{AuditError, Link, LinkCounters, LinkSpec};
use crate::queue::EventQueue;
use crate::{HEADERS, PACKET, PAYLOAD};
use millrace_transport::congestion::Controller;
use millrace_transport::extent::{ExtentSize, Layout};
use millrace_transport::flow::{Flow, FlowConfig, FlowStats, Outgoing, Piece, USUAL_MTU};
use millrace_transport::packet::{Feedback, HEAD_SIZE, Report};
use millrace_transport::random::Random;
use millrace_transport::ranges::RangeSet;
use millrace_transport::receiver::{Receiver, ReceiverConfig, ReceiverStats};
use millrace_types::{Duration, Time};
use millrace_wan_emulator::{ConfigError, PathConfig};

/// Width of the bins of sent and delivered bytes.
const BIN: Duration = Duration::from_millis(10);
/// The size of a session without end, in bytes. It outlasts every simulation.
const ENDLESS: u64 = 1 << 50;
/// The approximate size of a REPORT packet in bytes.
const REPORT_SIZE: u64 = 64;
/// The maximum number of packets that a sender may record for each packet of its largest flight. A lost
/// packet stays recorded until it can no longer arrive.
const REMEMBERED: u64 = 4;
/// The number of packets that a sender may record beyond [`REMEMBERED`] times its largest flight.
const REMEMBERED_SPARE: u64 = 1_024;

/// A flow of the simulation.
pub struct FlowSpec {
    /// The congestion control.
    pub controller: Box<dyn Controller>,
    /// The time at which the flow starts.
    pub start: Time,
    /// The number of its link, from [`Simulation::add_link`].
    pub link: usize,
    /// The return path, which feedback takes.
    pub return_path: PathConfig,
    /// Bytes to be sent. `None` means that the flow has no end.
    pub bytes: Option<u64>,
}

/// The results of a flow.
pub struct FlowReport {
    /// The sender's counters.
    pub sender: FlowStats,
    /// The receiver's counters.
    pub receiver: ReceiverStats,
    /// Bytes of IP packets, by time of departure.
    pub sent: Bins,
    /// Bytes of IP packets, by time of arrival.
    pub arrived: Bins,
    /// New payload bytes, by time of arrival.
    pub goodput: Bins,
    /// The times that packets waited in the link's queue and were in transmission.
    pub queue: Quantiles,
    /// The time at which the sender learned that all bytes are verified.
    pub done: Option<Time>,
    /// The changes of the controller's state, by time.
    pub states: Vec<(Time, &'static str)>,
    /// The maximum number of packets that the sender recorded.
    pub remembered: usize,
}

struct SimFlow {
    flow: Flow,
    receiver: Receiver,
    link: usize,
    return_path: Link,
    start: Time,
    one_way: Duration,
    wake_at: Option<Time>,
    receiver_wake_at: Option<Time>,
    /// Packets that the flow offered to its link: data and reports.
    offered: u64,
    /// Packets of data that arrived.
    arrived: u64,
    /// The maximum number of packets in flight.
    in_flight_max: u64,
    report: FlowReport,
}

enum Event {
    Wake(usize),
    ReceiverWake(usize),
    Data {
        flow: usize,
        number: u64,
        piece: Piece,
    },
    Feedback {
        flow: usize,
        number: u64,
        feedback: Box<Feedback>,
    },
    Report {
        flow: usize,
        report: Box<Report>,
    },
    Verified {
        flow: usize,
        extent: u64,
    },
    Reconfigure {
        link: usize,
        path: Box<PathConfig>,
    },
}

/// Flows and links under one clock of virtual time.
pub struct Simulation {
    queue: EventQueue<Event>,
    links: Vec<Link>,
    flows: Vec<SimFlow>,
    random: Random,
    measured_from: Time,
    outgoing: Vec<Outgoing>,
}

impl Simulation {
    /// Returns an empty simulation.
    pub fn new(seed: u64) -> Simulation {
        Simulation {
            queue: EventQueue::new(),
            links: Vec::new(),
            flows: Vec::new(),
            random: Random::new(seed),
            measured_from: Time::ZERO,
            outgoing: Vec::new(),
        }
    }

    /// Adds a link and returns its number.
    ///
    /// # Errors
    /// If its configuration is not valid.
    pub fn add_link(&mut self, spec: &LinkSpec) -> Result<usize, ConfigError> {
        self.links.push(Link::new(spec, &mut self.random)?);
        Ok(self.links.len() - 1)
    }

    /// Changes the path of a link at a time.
    pub fn reconfigure_at(&mut self, at: Time, link: usize, path: PathConfig) {
        let path = Box::new(path);
        self.queue.schedule(at, Event::Reconfigure { link, path });
    }

    /// Measures queues only from this time on.
    pub fn measure_queues_from(&mut self, from: Time) {
        self.measured_from = from;
    }

    /// Adds a flow and returns its number.
    ///
    /// # Errors
    /// If the configuration of its return path is not valid.
    pub fn add_flow(&mut self, spec: FlowSpec) -> Result<usize, ConfigError> {
        let bytes = spec.bytes.unwrap_or(ENDLESS);
        let layout = Layout::new(bytes, ExtentSize::Small).unwrap_or_else(|_| unreachable_layout());
        let id = self.flows.len();
        let return_path = LinkSpec {
            path: spec.return_path,
            policer: None,
        };
        let flow = Flow::new(
            FlowConfig {
                layout,
                have: RangeSet::new(),
                start: 0,
                payload: PAYLOAD,
                mtu: USUAL_MTU,
                initial_rtt: None,
                headers: HEADERS,
                credit: ENDLESS,
                controller: spec.controller,
                seed: self.random.next(),
            },
            spec.start,
        );
        let receiver = Receiver::new(ReceiverConfig {
            layout,
            have: RangeSet::new(),
            connection: 0,
            pool: ENDLESS,
            pool_max: ENDLESS,
        });
        self.flows.push(SimFlow {
            flow,
            receiver,
            link: spec.link,
            return_path: Link::new(&return_path, &mut self.random)?,
            start: spec.start,
            one_way: Duration::from_millis(1),
            wake_at: None,
            receiver_wake_at: None,
            offered: 0,
            arrived: 0,
            in_flight_max: 0,
            report: FlowReport {
                sender: FlowStats::default(),
                receiver: ReceiverStats::default(),
                sent: Bins::new(BIN),
                arrived: Bins::new(BIN),
                goodput: Bins::new(BIN),
                queue: Quantiles::default(),
                done: None,
                states: Vec::new(),
                remembered: 0,
            },
        });
        self.queue.schedule(spec.start, Event::Wake(id));
        Ok(id)
    }

    /// Returns the sender's side of a flow.
    pub fn flow(&self, id: usize) -> &Flow {
        &self.flows[id].flow
    }

    /// Returns the results of a flow so far.
    pub fn report(&self, id: usize) -> &FlowReport {
        &self.flows[id].report
    }

    /// Returns the time.
    pub fn now(&self) -> Time {
        self.queue.now()
    }

    /// Returns the number of packets offered to all links, for comparison with a budget.
    pub fn packets(&self) -> u64 {
        self.links.iter().map(|link| link.counters.offered).sum()
    }

    /// Returns the counters of a link.
    pub fn link(&self, link: usize) -> &LinkCounters {
        &self.links[link].counters
    }

    /// Checks that every packet is delivered, dropped by reason, or in flight, and that memory is within its
    /// bounds.
    ///
    /// # Errors
    /// The first balance that does not hold.
    pub fn check(&self) -> Result<(), AuditError> {
        let pending = |wanted: &dyn Fn(&Event) -> bool| {
            self.queue.pending().filter(|event| wanted(event)).count() as u64
        };
        for (id, link) in self.links.iter().enumerate() {
            let on_link = |flow: &usize| self.flows[*flow].link == id;
            let in_flight = pending(&|event| match event {
                Event::Data { flow, .. } | Event::Report { flow, .. } => on_link(flow),
                _ => false,
            });
            link.audit(&format!("link {id}"), in_flight)?;
            let users = self.flows.iter().filter(|sim| sim.link == id);
            balance(
                format!("link {id}, its flows"),
                users.map(|sim| sim.offered).sum(),
                link.counters.offered,
            )?;
        }
        for (id, sim) in self.flows.iter().enumerate() {
            let returns = |event: &Event| matches!(event, Event::Feedback { flow, .. } if *flow == id);
            sim.return_path
                .audit(&format!("return path of flow {id}"), pending(&returns))?;
            let (sent, received) = (sim.flow.stats(), sim.receiver.stats());
            balance(
                format!("receiver of flow {id}"),
                sim.arrived,
                received.accepted + received.duplicates + received.discarded.iter().sum::<u64>(),
            )?;
            balance(
                format!("feedback of flow {id}"),
                received.feedback,
                sim.return_path.counters.offered,
            )?;
            balance(
                format!("feedback to flow {id}"),
                sim.return_path.arrived,
                sent.feedback,
            )?;
            // Lost packets stay recorded for a while, so the bound exceeds the largest flight.
            let (found, bound) = (
                sim.report.remembered as u64,
                REMEMBERED * sim.in_flight_max + REMEMBERED_SPARE,
            );
            if found > bound {
                let place = format!("flow {id}");
                return Err(AuditError::Memory { place, found, bound });
            }
        }
        Ok(())
    }

    /// Runs until a time, or until no event is pending.
    pub fn run_until(&mut self, end: Time) {
        while let Some(event) = self.queue.next(end) {
            self.happen(event);
        }
        for sim in &mut self.flows {
            sim.report.sender = sim.flow.stats();
            sim.report.receiver = sim.receiver.stats();
        }
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Wake(id) => {
                if self.flows[id].wake_at.is_none_or(|at| at <= self.queue.now()) {
                    self.flows[id].wake_at = None;
                    self.flows[id].flow.on_timeout(self.queue.now());
                    self.serve(id);
                }
            }
            Event::ReceiverWake(id) => {
                if self.flows[id]
                    .receiver_wake_at
                    .is_some_and(|at| at <= self.queue.now())
                {
                    self.flows[id].receiver_wake_at = None;
                    self.serve_receiver(id);
                }
            }
            Event::Data { flow, number, piece } => {
                let link = self.flows[flow].link;
                self.links[link].arrived += 1;
                self.arrive(flow, number, piece);
            }
            Event::Feedback {
                flow,
                number,
                feedback,
            } => {
                self.flows[flow].return_path.arrived += 1;
                // A violation would be a defect of this program: the flow then stalls, and the test fails.
                let _ = self.flows[flow]
                    .flow
                    .on_feedback(self.queue.now(), number, &feedback);
                let state = self.flows[flow].flow.controller().state();
                let states = &mut self.flows[flow].report.states;
                if states.last().is_none_or(|(_, last)| *last != state) {
                    states.push((self.queue.now(), state));
                }
                self.serve(flow);
            }
            Event::Report { flow, report } => {
                let link = self.flows[flow].link;
                self.links[link].arrived += 1;
                self.flows[flow].receiver.on_report(&report);
                self.serve_receiver(flow);
            }
            Event::Verified { flow, extent } => {
                let sim = &mut self.flows[flow];
                sim.flow.verified(extent);
                if sim.flow.is_complete() {
                    sim.report.done.get_or_insert(self.queue.now());
                }
            }
            Event::Reconfigure { link, path } => {
                // The path was checked when the test created it.
                let _ = self.links[link].reconfigure(&path);
            }
        }
    }

    /// Sends the packets that a sender may send now.
    fn serve(&mut self, id: usize) {
        if self.queue.now() < self.flows[id].start {
            return;
        }
        let mut outgoing = std::mem::take(&mut self.outgoing);
        while self.flows[id].flow.poll(self.queue.now(), &mut outgoing) {
            for packet in outgoing.drain(..) {
                self.depart(id, packet);
            }
        }
        self.outgoing = outgoing;
        while let Some(report) = self.flows[id].flow.poll_report(self.queue.now()) {
            let link = self.flows[id].link;
            self.flows[id].offered += 1;
            for at in self.links[link]
                .offer(self.queue.now(), REPORT_SIZE)
                .arrivals
                .into_iter()
                .flatten()
            {
                let report = Box::new(report.clone());
                self.queue.schedule(at, Event::Report { flow: id, report });
            }
        }
        let sim = &mut self.flows[id];
        sim.report.remembered = sim.report.remembered.max(sim.flow.remembered());
        sim.in_flight_max = sim.in_flight_max.max(sim.flow.in_flight() / PACKET);
        if let Some(at) = sim.flow.next_timeout() {
            let at = at.max(self.queue.now() + Duration::from_nanos(1));
            if sim
                .wake_at
                .is_none_or(|other| at < other || other <= self.queue.now())
            {
                sim.wake_at = Some(at);
                self.queue.schedule(at, Event::Wake(id));
            }
        }
    }

    fn depart(&mut self, id: usize, packet: Outgoing) {
        let sim = &mut self.flows[id];
        let bytes = u64::from(packet.piece.len) + sim.flow.overhead();
        sim.report.sent.add(self.queue.now(), bytes);
        sim.offered += 1;
        let crossing = self.links[sim.link].offer(self.queue.now(), bytes);
        if let Some(queued) = crossing.queued
            && self.queue.now() >= self.measured_from
        {
            sim.report.queue.add(queued);
        }
        for at in crossing.arrivals.into_iter().flatten() {
            let Outgoing { number, piece } = packet;
            self.flows[id].one_way = at.since(self.queue.now());
            self.queue.schedule(
                at,
                Event::Data {
                    flow: id,
                    number,
                    piece,
                },
            );
        }
    }

    fn arrive(&mut self, id: usize, number: u64, piece: Piece) {
        let now = self.queue.now();
        let sim = &mut self.flows[id];
        sim.arrived += 1;
        sim.report
            .arrived
            .add(now, u64::from(piece.len) + sim.flow.overhead());
        let len = u64::from(piece.len);
        if let Ok(accepted) = sim.receiver.accept(now, number, piece.address, len, false) {
            let new = accepted.new.iter().map(|range| range.end - range.start).sum();
            sim.report.goodput.add(now, new);
            sim.receiver.written(new);
            if let Some(extent) = accepted.completes {
                sim.receiver.verified(extent);
                let at = now + sim.one_way;
                self.queue.schedule(at, Event::Verified { flow: id, extent });
            }
        }
        self.serve_receiver(id);
    }

    /// Sends the feedback that a receiver owes, and schedules its next wake-up.
    fn serve_receiver(&mut self, id: usize) {
        let now = self.queue.now();
        let sim = &mut self.flows[id];
        for (number, feedback) in sim.receiver.poll_feedback(now) {
            let size = u64::from(HEADERS) + (HEAD_SIZE + feedback.encode().0.len()) as u64;
            for at in sim.return_path.offer(now, size).arrivals.into_iter().flatten() {
                let feedback = Box::new(feedback.clone());
                let event = Event::Feedback {
                    flow: id,
                    number,
                    feedback,
                };
                self.queue.schedule(at, event);
            }
        }
        if let Some(at) = sim.receiver.next_timeout()
            && sim.receiver_wake_at.is_none_or(|other| at < other)
        {
            let at = at.max(now);
            sim.receiver_wake_at = Some(at);
            self.queue.schedule(at, Event::ReceiverWake(id));
        }
    }
}

/// Compares two counts of the same packets.
fn balance(place: String, expected: u64, found: u64) -> Result<(), AuditError> {
    if expected == found {
        return Ok(());
    }
    let detail = "two counters of the same packets".to_owned();
    Err(AuditError::Packets {
        place,
        expected,
        found,
        detail,
    })
}

/// Returns the smallest layout; a session of 2^50 bytes has a valid one.
fn unreachable_layout() -> Layout {
    match Layout::new(1, ExtentSize::Small) {
        Ok(layout) => layout,
        Err(_) => unreachable!("a session of one byte has one extent"),
    }
}
