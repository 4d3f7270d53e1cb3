//! The control side of the router: it publishes interfaces, attaches the router to bridges, and hands over what the kernel
//! is to do.
//!
//! # Use
//! 1. [`RouterHandle::new`] with the next hops of the FIB's writer; [`RouterHandle::change`] for VRFs and interfaces.
//! 2. For each bridge: the control side of the bridge adds an ordinary port to its pipeline, whose VLANs are those with
//!    an interface ([`RouterHandle::vlan_mode`]), sets a static MAC address for each interface
//!    ([`Control::set_static_fdb`](millrace_pipeline::Control::set_static_fdb)), and publishes both; then
//!    [`RouterHandle::attach`].
//! 3. For each interface: [`RouterHandle::add_shadow`] with the open tap of the kernel; for a passive one
//!    [`RouterHandle::divert`].
//! 4. Again and again: [`RouterHandle::next_glean`], each of which the kernel is asked for, and
//!    [`RouterHandle::collect`].
//!
//! The writer of the FIB changes next hops and routes while workers read. What it took out may be used again after
//! [`RouterHandle::grace_period`].

use std::collections::BTreeMap;
use std::sync::Arc;

use crossbeam_queue::ArrayQueue;
use millrace_datapath::io::{Backend, Device, Opened};
use millrace_datapath::publish::{READERS_MAX, Writer};
use millrace_datapath::service::ServiceId;
use millrace_datapath::{AddPortError, Bridge};
use millrace_fib::NextHops;
use millrace_pipeline::{VidSet, VlanMode};
use millrace_types::PortNo;
use millrace_wire::Packet;
use thiserror::Error;

use crate::counters::{InterfaceCounters, InterfaceStats};
use crate::diversion::TunnelDiversion;
use crate::glean::Glean;
use crate::port;
use crate::service::{
    Command, Input, InputOrigin, PacketQueue, Retired, ServiceHandle, ServiceSetup, Shadow, service,
};
use crate::state::{Change, RouterState};

/// The length of the queue of neighbours that the kernel is to ask for.
const GLEANS_LEN: usize = 1024;
/// The length of the queue of a bridge's packets for the kernel.
const PUNTED_LEN: usize = 1024;

/// The reason why the router cannot be attached to a bridge.
#[derive(Debug, Error)]
pub enum AttachError {
    /// Workers and bridges need too many readers of the router's state.
    #[error(
        "the router is in {bridges} bridges of {workers} workers: expected at most {READERS_MAX} in all. To fix it: set \
         system.workers to fewer, or put the interfaces into fewer bridges"
    )]
    TooMany {
        /// Number of bridges with the router.
        bridges: usize,
        /// Number of workers.
        workers: usize,
    },
    /// The router is not attached to the bridge.
    #[error("bridge {0} has no router. To fix it: attach the router first")]
    NotAttached(u16),
    /// The bridge has no such port.
    #[error("the bridge has no port {0}. To fix it: see why it does not run")]
    NoPort(PortNo),
    /// The port of the router cannot be added.
    #[error(transparent)]
    Port(#[from] AddPortError),
}

/// The control side of the router in one bridge.
struct Attached<P> {
    port: PortNo,
    /// By worker.
    services: Vec<(ServiceId, ServiceHandle<P>)>,
    numbers: Vec<PortNo>,
}

/// An interface of the kernel that workers use.
struct KernelInterface {
    bridge: u16,
    device: Box<dyn Device>,
}

/// The control side of the router. One thread has it; workers never wait for it.
pub struct RouterHandle<P> {
    writer: Writer<RouterState>,
    workers: usize,
    seed: u64,
    /// By index of the bridge.
    bridges: BTreeMap<u16, Attached<P>>,
    /// By index of the interface.
    shadows: BTreeMap<u16, KernelInterface>,
    /// Interfaces of the kernel whose queues a worker has yet to give back.
    closing: Vec<(u16, KernelInterface)>,
    gleans: Arc<ArrayQueue<Glean>>,
}

impl<P: Packet + 'static> RouterHandle<P> {
    /// Returns a router without interfaces for `workers` workers. `seed` keys the hash of flows over next hops.
    pub fn new(workers: usize, seed: u64, next_hops: &NextHops) -> RouterHandle<P> {
        let state = || RouterState::new(next_hops.clone());
        RouterHandle {
            writer: Writer::new(state(), state()),
            workers,
            seed,
            bridges: BTreeMap::new(),
            shadows: BTreeMap::new(),
            closing: Vec::new(),
            gleans: Arc::new(ArrayQueue::new(GLEANS_LEN)),
        }
    }

    /// Returns counters for a new interface. An interface that is changed keeps those that it has.
    pub fn new_counters(&self) -> Arc<[InterfaceCounters]> {
        InterfaceCounters::for_workers(self.workers)
    }

    /// Publishes changes, all at once, and returns when no worker reads the previous state. `changes` is empty afterwards.
    pub fn change(&mut self, changes: &mut Vec<Change>) {
        self.writer.publish(changes);
        self.writer.catch_up();
    }

    /// Returns when every worker has finished the burst that it was in: what the FIB's writer took out before may then be
    /// used again.
    pub fn grace_period(&mut self) {
        self.change(&mut vec![Change::Nothing]);
    }

    /// Returns the state that workers read now, for [`explain`](crate::explain).
    pub fn state(&self) -> &RouterState {
        self.writer.read()
    }

    /// Returns the seed for [`explain`](crate::explain).
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// Returns the sum of the counters of an interface.
    pub fn stats(&self, interface: u16) -> Option<InterfaceStats> {
        Some(InterfaceStats::of(&self.state().interface(interface)?.counters))
    }

    /// Returns the next neighbour that the kernel is to ask for (`NTF_USE`).
    pub fn next_glean(&self) -> Option<Glean> {
        self.gleans.pop()
    }

    /// Returns the VLANs of the router's port in a bridge: those with an interface.
    pub fn vlan_mode(&self, bridge: u16) -> VlanMode {
        let interfaces = self.state().interfaces();
        let vlans = interfaces.filter(|interface| interface.bridge == bridge && !interface.is_passive());
        let allowed: VidSet = vlans.map(|interface| interface.vid).collect();
        VlanMode::Trunk {
            native: None,
            allowed: Some(Arc::new(allowed)),
        }
    }

    /// Attaches the router to a bridge, as the bridge with this index. The caller has added the port to the pipeline and
    /// published it.
    ///
    /// # Errors
    /// [`AttachError`]; the router is then not attached.
    pub fn attach<B: Backend<Packet = P>>(
        &mut self,
        index: u16,
        bridge: &mut Bridge<B>,
        port: PortNo,
    ) -> Result<(), AttachError> {
        let readers: Option<Vec<_>> = (0..self.workers).map(|_| self.writer.reader()).collect();
        let readers = readers.ok_or(AttachError::TooMany {
            bridges: self.bridges.len() + 1,
            workers: self.workers,
        })?;
        let (opened, rings) = port::open(self.workers);
        bridge.attach_port(port, opened)?;
        let punted: PacketQueue<P> = Arc::new(ArrayQueue::new(PUNTED_LEN));
        let mut services = Vec::new();
        for (worker, state) in readers.into_iter().enumerate() {
            let (router, handle) = service(ServiceSetup {
                bridge: index,
                port,
                worker,
                seed: self.seed,
                state,
                punted: Arc::clone(&punted),
                gleans: Arc::clone(&self.gleans),
            });
            services.push((bridge.add_service(worker, Box::new(router)), handle));
        }
        for (other, attached) in &self.bridges {
            let pairs = attached.services.iter().zip(&services);
            for ((_, theirs), (_, ours)) in pairs {
                theirs.send(Command::Peer(index, Some(Arc::clone(&ours.inbox))));
                ours.send(Command::Peer(*other, Some(Arc::clone(&theirs.inbox))));
            }
        }
        let attached = Attached {
            port,
            services,
            numbers: Vec::new(),
        };
        attached.add_inputs(bridge, port, InputOrigin::Vlans, rings);
        self.bridges.insert(index, attached);
        Ok(())
    }

    /// Adds a port whose packets the router takes as received at one interface: `output` to its number lends packets to
    /// the router. The caller has added the port to the pipeline, without flooding, and published it.
    ///
    /// # Errors
    /// [`AttachError`]; the port is then not added.
    pub fn attach_number<B: Backend<Packet = P>>(
        &mut self,
        index: u16,
        bridge: &mut Bridge<B>,
        number: PortNo,
        interface: u16,
    ) -> Result<(), AttachError> {
        self.attach_port(index, bridge, number, InputOrigin::Interface(interface))
    }

    /// Adds a port that is the underlay of tunnels: what the bridge sends there is routed in a VRF, as packets of this
    /// machine. [`Change::Tunnels`] says which packets of the VRF come back to it. The caller has added the port to the
    /// pipeline, for tunnels only, and published it.
    ///
    /// # Errors
    /// [`AttachError`]; the port is then not added.
    pub fn attach_underlay<B: Backend<Packet = P>>(
        &mut self,
        index: u16,
        bridge: &mut Bridge<B>,
        number: PortNo,
        vrf: u16,
    ) -> Result<(), AttachError> {
        self.attach_port(index, bridge, number, InputOrigin::Vrf(vrf))
    }

    fn attach_port<B: Backend<Packet = P>>(
        &mut self,
        index: u16,
        bridge: &mut Bridge<B>,
        number: PortNo,
        origin: InputOrigin,
    ) -> Result<(), AttachError> {
        let attached = self
            .bridges
            .get_mut(&index)
            .ok_or(AttachError::NotAttached(index))?;
        let (opened, rings) = port::open(self.workers);
        bridge.attach_port(number, opened)?;
        attached.add_inputs(bridge, number, origin, rings);
        attached.numbers.push(number);
        Ok(())
    }

    /// Takes the packets of tunnels out of those that a bridge sends to a port with a tap device, the port of a passive
    /// interface. Until [`Self::end_diversion`], the removal of the port or the end of the router in this bridge.
    ///
    /// # Errors
    /// [`AttachError`]; nothing is then diverted.
    pub fn divert<B: Backend<Packet = P>>(
        &mut self,
        index: u16,
        bridge: &mut Bridge<B>,
        port: PortNo,
        interface: u16,
    ) -> Result<(), AttachError> {
        let Some(worker) = bridge.first_tx_worker(port) else {
            return Err(AttachError::NoPort(port));
        };
        let state = self.writer.reader().ok_or(AttachError::TooMany {
            bridges: self.bridges.len(),
            workers: self.workers,
        })?;
        let Some((_, service)) = self
            .bridges
            .get(&index)
            .and_then(|held| held.services.get(worker))
        else {
            return Err(AttachError::NotAttached(index));
        };
        let diversion = TunnelDiversion::new(state, interface, Arc::clone(&service.inbox));
        bridge.divert(port, Some(Box::new(diversion)));
        Ok(())
    }

    /// Ends what [`Self::divert`] began.
    pub fn end_diversion<B: Backend<Packet = P>>(&mut self, bridge: &mut Bridge<B>, port: PortNo) {
        bridge.divert(port, None);
    }

    /// Removes a port of [`Self::attach_number`] or [`Self::attach_underlay`]. The caller has removed it from the pipeline and published that.
    pub fn detach_number<B: Backend<Packet = P>>(
        &mut self,
        index: u16,
        bridge: &mut Bridge<B>,
        number: PortNo,
    ) {
        if let Some(attached) = self.bridges.get_mut(&index) {
            attached.numbers.retain(|held| *held != number);
            bridge.remove_port(number);
            for (_, handle) in &attached.services {
                handle.send(Command::RemoveInput(number));
            }
        }
    }

    /// Takes the router out of a bridge, with all its ports there, and closes the kernel's interfaces of the bridge. The
    /// caller has removed the ports from the pipeline and published that.
    pub fn detach<B: Backend<Packet = P>>(&mut self, index: u16, bridge: &mut Bridge<B>) {
        let Some(attached) = self.bridges.remove(&index) else {
            return;
        };
        for other in self.bridges.values() {
            for (_, handle) in &other.services {
                handle.send(Command::Peer(index, None));
            }
        }
        for number in attached.numbers {
            bridge.remove_port(number);
        }
        bridge.remove_port(attached.port);
        for (id, _) in &attached.services {
            bridge.remove_service(*id);
        }
        // The services are gone, and with them all queues.
        self.shadows.retain(|_, shadow| shadow.bridge != index);
        self.closing.retain(|(_, shadow)| shadow.bridge != index);
    }

    /// Gives an interface the kernel's interface, a tap that is open. Returns false if there is no such interface, or if
    /// its bridge has no router.
    pub fn add_shadow(&mut self, interface: u16, opened: Opened<P>) -> bool {
        let bridge = self.state().interface(interface).map(|held| held.bridge);
        let Some((bridge, attached)) = bridge.and_then(|index| Some((index, self.bridges.get(&index)?)))
        else {
            return false;
        };
        let Opened { rx, tx, device } = opened;
        let owner = usize::from(bridge) % self.workers;
        if let Some((_, handle)) = attached.services.get(owner) {
            handle.send(Command::AddShadow(Box::new(Shadow { interface, rx, tx })));
        }
        let held = KernelInterface { bridge, device };
        self.shadows.insert(interface, held);
        true
    }

    /// Sets the carrier of the kernel's interface, which follows the port or VLAN behind the interface: routing daemons see it.
    /// Returns false if the kernel has no such interface.
    pub fn set_carrier(&mut self, interface: u16, has_carrier: bool) -> bool {
        let shadow = self.shadows.get_mut(&interface);
        shadow.map(|shadow| shadow.device.set_link(has_carrier)).is_some()
    }

    /// Takes the kernel's interface away; [`Self::collect`] closes it when its worker has given the queues back.
    pub fn remove_shadow(&mut self, interface: u16) {
        let Some(held) = self.shadows.remove(&interface) else {
            return;
        };
        let owner = usize::from(held.bridge) % self.workers;
        let attached = self.bridges.get(&held.bridge);
        if let Some((_, handle)) = attached.and_then(|attached| attached.services.get(owner)) {
            handle.send(Command::RemoveShadow(interface));
            self.closing.push((interface, held));
        }
    }

    /// Drops what workers gave back. Returns the number of the kernel's interfaces that are still to be closed.
    pub fn collect(&mut self) -> usize {
        for attached in self.bridges.values() {
            for (_, handle) in &attached.services {
                while let Ok(retired) = handle.retired.try_recv() {
                    if let Retired::Shadow(shadow) = retired {
                        let index = shadow.interface;
                        drop(shadow);
                        self.closing.retain(|(closing, _)| *closing != index);
                    }
                }
            }
        }
        self.closing.len()
    }
}

impl<P: Packet> Attached<P> {
    /// Gives each worker's service the ring of that worker's transmit queue.
    fn add_inputs<B: Backend<Packet = P>>(
        &self,
        bridge: &Bridge<B>,
        port: PortNo,
        origin: InputOrigin,
        rings: Vec<millrace_datapath::spread::ring::Receiver<P>>,
    ) {
        let first = bridge.first_tx_worker(port).unwrap_or_default();
        for (queue, ring) in rings.into_iter().enumerate() {
            let worker = (first + queue) % self.services.len();
            self.services[worker]
                .1
                .send(Command::AddInput(Input { port, origin, ring }));
        }
    }
}
