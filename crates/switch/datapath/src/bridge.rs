//! The control side's handle of one bridge in the data plane. The handle publishes changes of the tables that
//! workers read, receives events from the workers, and adds and removes ports ([`ports`]) and services.

mod divert;
mod lags;
mod offload;
mod packet_out;
mod port;
mod ports;
mod qos;
mod sampling;
mod spread;

pub use self::port::AddPortError;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, mpsc};
use std::time::Instant;

use millrace_pipeline::{Counters, DropReason, Forwarding, Learn, Op, PacketInInfo, Processor};
use millrace_types::{PortNo, Time};
use thiserror::Error;

use self::port::BridgePort;
use crate::capture::{CaptureFilter, Captures};
use crate::events::{CapturedPacket, Events};
use crate::io::{Backend, ChangedPorts};
use crate::lag::Distribution;
use crate::pipeline::BridgePipeline;
use crate::publish::{READERS_MAX, Replica, Writer};
use crate::sampling::SampleQueues;
use crate::service::{Service, ServiceId};
use crate::spread::Spreading;
use crate::tx_port::TxPorts;
use crate::worker::{BridgeContext, Command, WorkerHandle};

impl Replica for Forwarding {
    type Change = Op;

    fn apply(&mut self, change: &Op) {
        self.stage(change);
    }

    fn settle(&mut self) {
        Forwarding::settle(self);
    }
}

/// The initial state of a bridge.
pub struct BridgeSetup {
    /// Two equal copies of the tables for the workers.
    pub forwarding: [Forwarding; 2],
    /// One set of counters for each worker, in the order of the workers, and a last one for the control side.
    pub counters: Vec<Arc<Counters>>,
}

/// The reason why a bridge cannot be created.
#[derive(Debug, Error)]
pub enum BridgeError {
    /// There are more workers than readers of the tables.
    #[error(
        "{workers} workers are too many: expected at most {READERS_MAX}. To fix it: set system.workers, or the number of \
         system.worker_cores, to fewer"
    )]
    TooManyWorkers {
        /// Number of workers.
        workers: usize,
    },
    /// The number of sets of counters is wrong.
    #[error(
        "{given} sets of counters: expected one for each of {workers} workers and one for the control side"
    )]
    Counters {
        /// Number of sets.
        given: usize,
        /// Number of workers.
        workers: usize,
    },
}

/// One bridge in the data plane. Dropping this handle removes the bridge from the workers and closes its ports.
pub struct Bridge<B: Backend> {
    number: u32,
    backend: Arc<B>,
    workers: Arc<[WorkerHandle<B::Packet>]>,
    epoch: Instant,
    spreading: Option<Spreading>,
    writer: Writer<Forwarding>,
    events: Arc<Events<B::Packet>>,
    /// The queues of packet samples; `None` until sampling is switched on for the first time.
    samples: Option<Arc<SampleQueues>>,
    ports: BTreeMap<PortNo, BridgePort>,
    /// The ports whose devices reported a change.
    changed: Arc<ChangedPorts>,
    /// The ports whose devices report nothing.
    silent: BTreeSet<PortNo>,
    /// The ports that use the entries of their devices.
    offloading: BTreeSet<PortNo>,
    /// The distribution of flows over the members of each LAG.
    distributions: BTreeMap<PortNo, Distribution>,
    /// The worker of each service.
    services: BTreeMap<ServiceId, usize>,
    /// Number of services added so far.
    services_added: u64,
    /// The control side's own processor, for packet_outs.
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
        let context = |counters: Arc<Counters>| -> Option<BridgeContext<B::Packet>> {
            Some(BridgeContext {
                rx: Vec::new(),
                services: Vec::new(),
                pipeline: BridgePipeline {
                    bridge: number,
                    forwarding: writer.reader()?,
                    processor: Processor::new(Arc::clone(&counters)),
                    counters,
                    events: Arc::clone(&events),
                    tx: TxPorts::new(),
                    sampling: None,
                },
            })
        };
        // Workers get their contexts only after all contexts were made.
        let contexts: Option<Vec<_>> = counters.into_iter().map(context).collect();
        let contexts = contexts.ok_or(BridgeError::TooManyWorkers {
            workers: workers.len(),
        })?;
        for (worker, context) in workers.iter().zip(contexts) {
            worker.send(Command::Attach(Box::new(context)));
        }
        let processor = Processor::new(Arc::clone(&own));
        Ok(Bridge {
            number,
            backend,
            workers,
            epoch,
            spreading,
            writer,
            events,
            samples: None,
            ports: BTreeMap::new(),
            changed: ChangedPorts::new(std::thread::current()),
            silent: BTreeSet::new(),
            offloading: BTreeSet::new(),
            distributions: BTreeMap::new(),
            services: BTreeMap::new(),
            services_added: 0,
            processor,
            counters: own,
        })
    }

    /// Returns the time of the workers' clock.
    pub fn now(&self) -> Time {
        Time::from_nanos(self.epoch.elapsed().as_nanos() as u64)
    }

    /// Returns the time until which the workers have received all packets: earlier ones are forwarded, or events. A worker that does
    /// not get its core, or has more packets than it can forward, is behind. Read it before the events.
    pub fn received_until(&self) -> Time {
        let until = |worker: &WorkerHandle<B::Packet>| worker.counters.received_until.read() as u64;
        Time::from_nanos(self.workers.iter().map(until).min().unwrap_or(u64::MAX))
    }

    /// Returns the number of workers.
    pub fn workers_len(&self) -> u16 {
        u16::try_from(self.workers.len()).unwrap_or(u16::MAX)
    }

    /// Publishes changes of the tables, and returns when no worker sees the previous state, as a barrier requires, and no
    /// device drops packets by it. `changes` is empty afterwards.
    pub fn publish(&mut self, changes: &mut Vec<Op>) {
        self.writer.publish(changes);
        self.end_changed_drops();
    }

    /// Applies the changes of the last [`Bridge::publish`] to the second copy of the tables; no caller waits
    /// for this.
    pub fn catch_up(&mut self) {
        self.writer.catch_up();
    }

    /// Returns the tables that workers read now.
    pub fn forwarding(&self) -> &Forwarding {
        self.writer.read()
    }

    /// Adds a service to a worker, which calls it in each of its rounds.
    pub fn add_service(&mut self, worker: usize, service: Box<dyn Service<B::Packet>>) -> ServiceId {
        self.services_added += 1;
        let (id, worker) = (ServiceId(self.services_added), worker % self.workers.len());
        self.services.insert(id, worker);
        self.workers[worker].send(Command::AddService {
            bridge: self.number,
            id,
            service,
        });
        id
    }

    /// Removes a service. When this returns, the worker no longer calls the service, and the service is
    /// dropped.
    pub fn remove_service(&mut self, id: ServiceId) {
        let Some(worker) = self.services.remove(&id) else {
            return;
        };
        let (done, back) = mpsc::sync_channel(1);
        self.workers[worker].send(Command::RemoveService {
            bridge: self.number,
            id,
            done,
        });
        drop(back.recv());
    }

    /// Counts packets that the control side drops, or that a device dropped before workers saw them. Only the control
    /// thread may call this, because it owns these counters.
    pub fn count_drops(&self, reason: DropReason, packets: u64) {
        self.counters.drops.add(reason, packets);
    }

    /// Returns the next packet_in for the controllers.
    pub fn next_packet_in(&self) -> Option<(PacketInInfo, B::Packet)> {
        self.events.pop_packet_in()
    }

    /// Returns the next address that NORMAL learned.
    pub fn next_learn(&self) -> Option<Learn> {
        self.events.pop_learn()
    }

    /// Returns the next packet of address resolution (ARP, neighbour discovery) at the underlay of a tunnel, with the
    /// underlay port.
    pub fn next_neighbour(&self) -> Option<(PortNo, B::Packet)> {
        self.events.pop_neighbour()
    }

    /// Returns the next frame of OAM, with its port and the time of its arrival.
    pub fn next_oam(&self) -> Option<(PortNo, Time, B::Packet)> {
        self.events.pop_oam()
    }

    /// Returns the next packet for a capture or a live trace.
    pub fn next_captured(&self) -> Option<CapturedPacket<B::Packet>> {
        self.events.pop_captured()
    }

    /// Returns the number of packets that capture `number` selected and lost since the last call. A packet is
    /// lost if the queue to the control side is full, or if no buffer is free for the copy.
    pub fn take_capture_losses(&self, number: u8) -> u64 {
        self.events.take_capture_losses(number)
    }

    /// Replaces the captures of this bridge by `filters`. Each filter has the number of its bit in
    /// [`CapturedPacket::captures`], below [`CAPTURES_MAX`](crate::CAPTURES_MAX). When this returns, every
    /// worker copies the packets that these filters select, and no others.
    pub fn set_captures(&mut self, filters: impl IntoIterator<Item = (u8, CaptureFilter)>) {
        let captures = Captures::new(filters);
        let (done, old) = mpsc::sync_channel(self.workers.len());
        for worker in &*self.workers {
            worker.send(Command::SetCaptures {
                bridge: self.number,
                captures: captures.clone(),
                done: done.clone(),
            });
        }
        drop(done);
        // Old filters come back and are dropped here, not in a worker. Workers that stopped have dropped theirs.
        while old.recv().is_ok() {}
    }
}

impl<B: Backend> Drop for Bridge<B> {
    fn drop(&mut self) {
        let (done, back) = mpsc::sync_channel(self.workers.len());
        for worker in &*self.workers {
            worker.send(Command::Detach {
                bridge: self.number,
                done: done.clone(),
            });
        }
        drop(done);
        // Queues come back and are dropped here, before the devices. Workers that stopped have dropped them.
        while back.recv().is_ok() {}
    }
}
