//! The control side's hold on one bridge in the data plane: its ports, what workers read, what they tell.

mod qos;

use std::collections::BTreeMap;
use std::sync::{Arc, mpsc};
use std::time::Instant;

use millrace_pipeline::{
    Counters, DropReason, Egress, Forwarding, Learn, Op, PacketInInfo, PolicerCounters, Processor,
};
use millrace_types::{PortNo, QueueId, Time};
use thiserror::Error;

use crate::capture::{CaptureFilter, Captures};
use crate::counters::{PortCounters, PortStats};
use crate::egress::{Path, TxPort, TxPorts};
use crate::events::{Direction, Events, Tapped};
use crate::handoff::Destination;
use crate::io::steer::{RuleId, SteerError, label_rules, mark_rule};
use crate::io::{
    Backend, Burst, Device, DeviceInfo, DeviceOptions, DeviceSpec, DeviceStats, OpenError, Opened,
};
use crate::publish::{READERS_MAX, Replica, Writer};
use crate::schedule::PortQueues;
use crate::service::{Service, ServiceId};
use crate::spread::lane::{Lane, Patience};
use crate::spread::{SpreadStats, Spreading};
use crate::worker::{RxPort, Seat, Wish, WorkerHandle};

impl Replica for Forwarding {
    type Change = Op;

    fn apply(&mut self, change: &Op) {
        Forwarding::apply(self, change);
    }
}

/// What a bridge begins with.
pub struct BridgeSetup {
    /// Two equal copies for the workers.
    pub forwarding: [Forwarding; 2],
    /// Counters for each worker, and at last those of the control side: one more than there are workers.
    pub counters: Vec<Arc<Counters>>,
}

/// Why a bridge cannot be made.
#[derive(Debug, Error)]
pub enum BridgeError {
    /// More workers than readers.
    #[error("{workers} workers are too many: a bridge takes at most {READERS_MAX}")]
    TooManyWorkers {
        /// How many there are.
        workers: usize,
    },
    /// One set of counters for each worker and one for the control side are needed.
    #[error("{given} sets of counters for {workers} workers and the control side")]
    Counters {
        /// Sets that were given.
        given: usize,
        /// Workers.
        workers: usize,
    },
}

/// Why a port cannot be added.
#[derive(Debug, Error)]
pub enum AddPortError {
    /// The bridge has a port with this number.
    #[error("port {0} is there already")]
    Exists(PortNo),
    /// Its device cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
}

/// A port's device and counters.
struct BridgePort {
    device: Box<dyn Device>,
    counters: Vec<Arc<PortCounters>>,
    /// The worker of each receive queue.
    rx_workers: Vec<usize>,
    /// How each is spread, where they are.
    lanes: Vec<Arc<Lane>>,
    /// The worker that sends for those who have no queue of their own.
    owner: usize,
    queues: PortQueues,
    policed: Option<Arc<PolicerCounters>>,
}

/// One bridge in the data plane. Dropping it takes it away from the workers and closes its ports.
pub struct Bridge<B: Backend> {
    number: u32,
    backend: Arc<B>,
    workers: Arc<[WorkerHandle<B::Packet>]>,
    epoch: Instant,
    spreading: Option<Spreading>,
    writer: Writer<Forwarding>,
    events: Arc<Events<B::Packet>>,
    ports: BTreeMap<PortNo, BridgePort>,
    /// The worker of each service.
    services: BTreeMap<ServiceId, usize>,
    services_made: u64,
    /// The control side's own processor, for packet-outs.
    processor: Processor,
    counters: Arc<Counters>,
}

impl<B: Backend> Bridge<B> {
    pub(crate) fn new(
        number: u32,
        backend: Arc<B>,
        workers: Arc<[WorkerHandle<B::Packet>]>,
        epoch: Instant,
        spreading: Option<Spreading>,
        setup: BridgeSetup,
    ) -> Result<Bridge<B>, BridgeError> {
        let BridgeSetup {
            forwarding: [one, two],
            mut counters,
        } = setup;
        let given = counters.len();
        let wrong = BridgeError::Counters {
            given,
            workers: workers.len(),
        };
        let Some(own) = counters.pop().filter(|_| given == workers.len() + 1) else {
            return Err(wrong);
        };
        let writer = Writer::new(one, two);
        let events = Events::new(std::thread::current());
        for (worker, counters) in workers.iter().zip(counters) {
            let too_many = BridgeError::TooManyWorkers {
                workers: workers.len(),
            };
            let seat = Seat {
                bridge: number,
                forwarding: writer.reader().ok_or(too_many)?,
                processor: Processor::new(Arc::clone(&counters)),
                counters,
                events: Arc::clone(&events),
                rx: Vec::new(),
                tx: TxPorts::new(),
                services: Vec::new(),
            };
            worker.wish(Wish::Sit(Box::new(seat)));
        }
        let processor = Processor::new(Arc::clone(&own));
        let ports = BTreeMap::new();
        Ok(Bridge {
            number,
            backend,
            workers,
            epoch,
            spreading,
            writer,
            events,
            ports,
            services: BTreeMap::new(),
            services_made: 0,
            processor,
            counters: own,
        })
    }

    /// Returns the time that workers see.
    pub fn now(&self) -> Time {
        Time::from_nanos(self.epoch.elapsed().as_nanos() as u64)
    }

    /// Makes changes visible, and returns when no worker sees what was before: what a barrier waits for.
    /// `changes` is empty then.
    pub fn publish(&mut self, changes: &mut Vec<Op>) {
        self.writer.publish(changes);
    }

    /// Does the rest of the work of [`Bridge::publish`], for which nobody waits.
    pub fn catch_up(&mut self) {
        self.writer.catch_up();
    }

    /// What workers read now.
    pub fn forwarding(&self) -> &Forwarding {
        self.writer.read()
    }

    /// Opens a device and has the workers receive from it and send to it. The pipeline must hear of the
    /// port, too ([`Op`]): before, so that no packet is dropped for coming from an unknown port. When this returns,
    /// every worker sends to the port.
    ///
    /// # Errors
    /// [`AddPortError`].
    pub fn add_port(
        &mut self,
        port: PortNo,
        spec: &DeviceSpec,
        options: DeviceOptions,
    ) -> Result<(), AddPortError> {
        if self.ports.contains_key(&port) {
            return Err(AddPortError::Exists(port));
        }
        let opened = self.backend.open(spec, options)?;
        self.attach_port(port, opened)
    }

    /// The same for a device that is open: a logical port, whose packets come from a [`Service`]. It may have no
    /// receive queue.
    ///
    /// # Errors
    /// [`AddPortError::Exists`].
    pub fn attach_port(&mut self, port: PortNo, opened: Opened<B::Packet>) -> Result<(), AddPortError> {
        if self.ports.contains_key(&port) {
            return Err(AddPortError::Exists(port));
        }
        let Opened { rx, tx, mut device } = opened;
        spread_labels(&mut *device, rx.len());
        if device.gives_uncut() {
            self.prepare_to_cut();
        }
        let counters: Vec<Arc<PortCounters>> = self.workers.iter().map(|_| Arc::default()).collect();
        // Ports start at different workers, so that one-queue ports spread over all of them.
        let owner = self.ports.len() % self.workers.len();
        let mut queues: Vec<_> = self.workers.iter().map(|_| None).collect();
        for (i, queue) in tx.into_iter().take(self.workers.len()).enumerate() {
            queues[(owner + i) % self.workers.len()] = Some(queue);
        }
        let (done, back) = mpsc::sync_channel(1);
        for ((worker, queue), counters) in self.workers.iter().zip(queues).zip(&counters) {
            let path = match queue {
                Some(queue) => Path::Queue(queue),
                None => Path::Worker(self.workers[owner].inbox.clone()),
            };
            let tx = TxPort {
                port,
                path,
                counters: Arc::clone(counters),
                buffer: Box::new(Burst::new()),
                is_behind: false,
                parked: None,
            };
            worker.wish(Wish::Send {
                bridge: self.number,
                port: Box::new(tx),
                done: done.clone(),
            });
        }
        drop(done);
        // Until the last worker has it: before, what comes in for the port would be lost.
        while back.recv().is_ok() {}
        let (mut rx_workers, mut lanes, rx_len) = (Vec::new(), Vec::new(), rx.len());
        for (i, queue) in rx.into_iter().enumerate() {
            let worker = (owner + i) % self.workers.len();
            rx_workers.push(worker);
            let spread = self
                .spreading
                .as_ref()
                .map(|spreading| spreading.queue(worker, rx_len));
            let (lane, spreader) = spread.unzip();
            lanes.extend(lane);
            let rx = RxPort {
                port,
                queue,
                counters: Arc::clone(&counters[worker]),
                spreader,
                policing: None,
                backpressure: false,
                waits_for: None,
                cuts: false,
            };
            self.workers[worker].wish(Wish::Receive {
                bridge: self.number,
                port: Box::new(rx),
            });
        }
        self.ports.insert(
            port,
            BridgePort {
                device,
                counters,
                rx_workers,
                lanes,
                owner,
                queues: PortQueues::default(),
                policed: None,
            },
        );
        Ok(())
    }

    /// Has packets of a port wait in its device while the port that the last of them went to has no room, or drops
    /// what finds no room, as of a new port. That is a port's own queue: not one that is scheduled (ADR 6), nor one
    /// that another worker sends for. All packets of the port wait, whichever way they go. Returns whether there is
    /// such a port.
    pub fn hold(&mut self, port: PortNo, backpressure: bool) -> bool {
        for worker in &*self.workers {
            worker.wish(Wish::Hold {
                bridge: self.number,
                port,
                backpressure,
            });
        }
        self.ports.contains_key(&port)
    }

    /// Has all workers expect packets that are to be cut; returns when they do.
    fn prepare_to_cut(&self) {
        let (done, back) = mpsc::sync_channel(1);
        for worker in &*self.workers {
            worker.wish(Wish::Cut { done: done.clone() });
        }
        drop(done);
        while back.recv().is_ok() {}
    }

    /// Takes a port away from the workers and closes its device. Returns whether there was one. The
    /// pipeline must have forgotten the port, and that must be published.
    pub fn remove_port(&mut self, port: PortNo) -> bool {
        let Some(removed) = self.ports.remove(&port) else {
            return false;
        };
        let (done, back) = mpsc::sync_channel(self.workers.len());
        for worker in &*self.workers {
            worker.wish(Wish::Forget {
                bridge: self.number,
                port,
                done: done.clone(),
            });
        }
        drop(done);
        // All queues come back and are dropped here, before the device.
        while back.recv().is_ok() {}
        drop(removed);
        true
    }

    /// Has a worker call a service in each of its rounds.
    pub fn add_service(&mut self, worker: usize, service: Box<dyn Service<B::Packet>>) -> ServiceId {
        self.services_made += 1;
        let (id, worker) = (ServiceId(self.services_made), worker % self.workers.len());
        self.services.insert(id, worker);
        self.workers[worker].wish(Wish::Serve {
            bridge: self.number,
            id,
            service,
        });
        id
    }

    /// Ends that. When this returns, the worker has left the service, and it is dropped.
    pub fn remove_service(&mut self, id: ServiceId) {
        let Some(worker) = self.services.remove(&id) else {
            return;
        };
        let (done, back) = mpsc::sync_channel(1);
        self.workers[worker].wish(Wish::Unserve {
            bridge: self.number,
            id,
            done,
        });
        drop(back.recv());
    }

    /// The ports that are open.
    pub fn ports(&self) -> impl Iterator<Item = PortNo> + '_ {
        self.ports.keys().copied()
    }

    /// Which worker polls which receive queue of which port.
    pub fn polled(&self) -> Vec<(usize, PortNo, u16)> {
        let queues = |(number, port): (&PortNo, &BridgePort)| {
            let number = *number;
            let workers = port.rx_workers.clone().into_iter().zip(0..);
            workers.map(move |(worker, queue)| (worker, number, queue))
        };
        self.ports.iter().flat_map(queues).collect()
    }

    /// How each receive queue of a port is spread over the workers; empty where they give each other nothing.
    pub fn spread(&self, port: PortNo) -> Vec<SpreadStats> {
        let lanes = self.ports.get(&port).into_iter().flat_map(|port| &port.lanes);
        lanes.map(|lane| lane.stats(self.workers.len())).collect()
    }

    /// Asks that buckets of a receive queue, by number, become these workers', and that packets are hashed from now on.
    /// Returns false, and asks nothing, while an earlier wish is not dealt with, or if there is no such queue.
    pub fn move_buckets(&self, port: PortNo, queue: usize, moves: &[(u16, u16)]) -> bool {
        let lane = self.ports.get(&port).and_then(|port| port.lanes.get(queue));
        let lane = lane.filter(|lane| lane.is_answered());
        if let Some(lane) = lane {
            lane.switch(true);
            lane.ask(moves, Patience::Short);
        }
        lane.is_some()
    }

    /// Has a port's device mark packets of this one's flow and direction, so that the worker that receives them finds
    /// their bucket without looking into them. They are processed as before.
    ///
    /// # Errors
    /// [`SteerError`]; the flow is spread in software, as before.
    pub fn mark_flow(&mut self, port: PortNo, packet: &[u8]) -> Result<RuleId, SteerError> {
        let spreading = self.spreading.as_ref().ok_or(SteerError::None)?;
        let rule = mark_rule(packet, spreading.hash.mark(packet))?;
        let device = self.ports.get_mut(&port).map(|port| &mut port.device);
        let steering = device.and_then(|device| device.steering());
        steering.ok_or(SteerError::None)?.install(&rule)
    }

    /// Ends what [`Bridge::mark_flow`] began. Returns whether there was such a rule.
    pub fn unmark_flow(&mut self, port: PortNo, rule: RuleId) -> bool {
        let device = self.ports.get_mut(&port).map(|port| &mut port.device);
        let steering = device.and_then(|device| device.steering());
        steering.is_some_and(|steering| steering.remove(rule))
    }

    /// Number of workers.
    pub fn workers_len(&self) -> u16 {
        u16::try_from(self.workers.len()).unwrap_or(u16::MAX)
    }

    /// What a port's device says of itself now.
    pub fn device_info(&self, port: PortNo) -> Option<DeviceInfo> {
        Some(self.ports.get(&port)?.device.info())
    }

    /// What a port's device counted.
    pub fn device_stats(&self, port: PortNo) -> Option<DeviceStats> {
        Some(self.ports.get(&port)?.device.stats())
    }

    /// What the workers counted at a port.
    pub fn port_stats(&self, port: PortNo) -> Option<PortStats> {
        let mut sum = PortStats::default();
        self.ports
            .get(&port)?
            .counters
            .iter()
            .for_each(|counters| counters.add_to(&mut sum));
        Some(sum)
    }

    /// Brings a port's link up or down, where its device can.
    pub fn set_link(&mut self, port: PortNo, up: bool) {
        if let Some(port) = self.ports.get_mut(&port) {
            port.device.set_link(up);
        }
    }

    /// Runs a list of actions on a packet that the control side has, as packet-out does. `None` when no
    /// buffer is free.
    pub fn packet_out(
        &mut self,
        in_port: PortNo,
        actions: &[millrace_flow::Action],
        bytes: &[u8],
    ) -> Option<()> {
        let packet = self.backend.packet(bytes)?;
        let now = self.now();
        let mut egress = ControlEgress {
            bridge: self.number,
            workers: &self.workers,
            ports: &self.ports,
            events: &self.events,
            counters: &self.counters,
        };
        self.processor
            .packet_out(self.writer.read(), in_port, actions, packet, now, &mut egress);
        Some(())
    }

    /// Counts a packet that the control side drops. For the control thread only, which owns these counters.
    pub fn count_drop(&self, reason: DropReason) {
        self.counters.drops.add(reason, 1);
    }

    /// Returns the next packet for the controllers.
    pub fn next_packet_in(&self) -> Option<(PacketInInfo, B::Packet)> {
        self.events.pop_packet_in()
    }

    /// Returns the next address that NORMAL learned.
    pub fn next_learn(&self) -> Option<Learn> {
        self.events.pop_learn()
    }

    /// Returns the next packet that asks for, or tells, an address at the underlay of a tunnel.
    pub fn next_neighbour(&self) -> Option<(PortNo, B::Packet)> {
        self.events.pop_neighbour()
    }

    /// Returns the next packet for a capture or a live trace.
    pub fn next_tapped(&self) -> Option<Tapped<B::Packet>> {
        self.events.pop_tapped()
    }

    /// Replaces the captures of this bridge: each filter with the number that [`Tapped::captures`] has a bit for, below
    /// [`CAPTURES_MAX`](crate::CAPTURES_MAX). When this returns, every worker copies what these want, and nothing else.
    pub fn set_captures(&mut self, filters: impl IntoIterator<Item = (u8, CaptureFilter)>) {
        let captures = Captures::new(filters);
        let (done, told) = mpsc::sync_channel(self.workers.len());
        for worker in &*self.workers {
            worker.wish(Wish::Capture {
                bridge: self.number,
                captures: captures.clone(),
                done: done.clone(),
            });
        }
        drop(done);
        // Old filters come back and are dropped here, not in a worker. Workers that stopped have dropped theirs.
        while told.recv().is_ok() {}
    }
}

impl<B: Backend> Drop for Bridge<B> {
    fn drop(&mut self) {
        let (done, back) = mpsc::sync_channel(self.workers.len());
        for worker in &*self.workers {
            worker.wish(Wish::Leave {
                bridge: self.number,
                done: done.clone(),
            });
        }
        drop(done);
        // Queues come back and are dropped here, before the devices. Workers that stopped have dropped them.
        while back.recv().is_ok() {}
    }
}

/// Has a device that does not hash labels and takes rules spread MPLS over its queues. Before it is told to the workers:
/// what a rule sends elsewhere later would overtake.
fn spread_labels(device: &mut dyn Device, queues: usize) {
    let rss = device.info().rss;
    let hashes_labels = rss.is_some_and(|types| types.split(',').any(|name| name == "mpls"));
    let Some(steering) = device.steering().filter(|_| queues > 1 && !hashes_labels) else {
        return;
    };
    let rules = label_rules(u16::try_from(queues).unwrap_or(u16::MAX));
    let mut installed = Vec::new();
    for rule in &rules {
        match steering.install(rule) {
            Ok(id) => installed.push(id),
            Err(error) => {
                tracing::debug!(%error, "MPLS comes to one queue");
                // Some labels to one queue and the rest to another would be no better.
                for id in installed {
                    steering.remove(id);
                }
                return;
            }
        }
    }
}

/// Where packet-outs go: into the inboxes of the workers that own the ports.
struct ControlEgress<'a, P> {
    bridge: u32,
    workers: &'a [WorkerHandle<P>],
    ports: &'a BTreeMap<PortNo, BridgePort>,
    events: &'a Events<P>,
    counters: &'a Counters,
}

impl<P: millrace_wire::Packet> Egress<P> for ControlEgress<'_, P> {
    fn transmit(&mut self, port: PortNo, queue: Option<QueueId>, packet: P) {
        let Some(owner) = self.ports.get(&port).map(|port| port.owner) else {
            self.counters.drops.add(DropReason::NoSuchPort, 1);
            return;
        };
        let to = Destination {
            bridge: self.bridge,
            port,
            queue,
        };
        if self.workers[owner].inbox.put_one(to, packet).is_err() {
            self.counters.drops.add(DropReason::TransmitFull, 1);
        }
    }

    fn packet_in(&mut self, info: PacketInInfo, packet: P) {
        if !self.events.push_packet_in(info, packet) {
            self.counters.drops.add(DropReason::PacketInFull, 1);
        }
    }

    fn learn(&mut self, learn: Learn) {
        self.events.push_learn(learn);
    }

    fn neighbour(&mut self, underlay: PortNo, packet: P) {
        self.events.push_neighbour(underlay, packet);
    }

    fn traced(&mut self, trace: u64, in_port: PortNo, packet: P) {
        let direction = Direction::Traced(trace);
        self.events.push_tapped(Tapped {
            port: in_port,
            direction,
            captures: 0,
            time: Time::ZERO,
            packet,
        });
    }
}
