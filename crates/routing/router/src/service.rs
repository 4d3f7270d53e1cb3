//! The router of one bridge in one worker: a [`Service`], which takes packets from the rings of the router's ports and puts
//! them into the VLANs of their egress interfaces.
//!
//! ```text
//!  router port, numbered ports --rings--> Router --+--> VLAN of this bridge: NORMAL, or table 0
//!  router of another bridge, same worker --------- | -> (already routed, or to be decapsulated)
//!  diversion of a tap device's port, same worker - | -> (to be decapsulated; see `diversion`)
//!                                                  +--> router of another bridge, same worker
//!                                                  +--> underlay port of this bridge: a tunnel's packet
//!                                                  +--> packets that wait for a neighbour
//!                                                  `--> queue of the bridge --> shadows (one worker only)
//!  shadows (one worker only) ---------------------------> VLAN of this bridge: NORMAL
//! ```

use core::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};

use crossbeam_queue::ArrayQueue;
use millrace_datapath::io::{Burst, RxQueue, TxQueue};
use millrace_datapath::publish::Reader;
use millrace_datapath::service::{PollResult, Service, ServiceOutput};
use millrace_datapath::spread::ring::Receiver;
use millrace_pipeline::DropReason;
use millrace_types::{Duration, PortNo, Time};
use millrace_wire::Packet;
use millrace_wire::segment::GsoLayout;

use crate::class::PuntClass;
use crate::forward::{Arrival, RouteOutput, Router, Waiting};
use crate::glean::Glean;
use crate::interface::{EgressMode, Interface};
use crate::link;
use crate::state::RouterState;
use crate::tunnel::UnderlayPort;
use crate::waiting::{Added, WaitingRoom};

/// The greatest number of bursts that are taken from one ring in one call.
const BURSTS_PER_POLL: usize = 16;
/// The interval at which waiting packets are tried again.
const RETRY_INTERVAL: Duration = Duration::from_millis(1);

/// Packets for the kernel with the indices of their interfaces.
pub(crate) type PacketQueue<P> = Arc<ArrayQueue<(u16, P)>>;

/// The destination in another bridge of a packet that the router of one bridge has handled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PeerTarget {
    /// The VLAN of an interface, by index: the packet is routed.
    Interface(u16),
    /// An underlay port: the packet is to be decapsulated. If a diversion took it, the bridge may be another one.
    Underlay(UnderlayPort),
}

/// Packets between the routers of two bridges in one worker.
pub(crate) type PeerQueue<P> = Arc<ArrayQueue<(PeerTarget, P)>>;

/// The origin of the packets of a ring.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum InputOrigin {
    /// The interface that the VLAN of each frame says.
    Vlans,
    /// The interface with this index.
    Interface(u16),
    /// This machine, in the VRF with this index.
    Vrf(u16),
}

/// The rings of one port of the router.
pub(crate) struct Input<P> {
    pub(crate) port: PortNo,
    pub(crate) origin: InputOrigin,
    pub(crate) ring: Receiver<P>,
}

/// The queues of an interface of the kernel.
pub(crate) struct Shadow<P> {
    pub(crate) interface: u16,
    pub(crate) rx: Vec<Box<dyn RxQueue<P>>>,
    pub(crate) tx: Vec<Box<dyn TxQueue<P>>>,
}

/// A change by the control side.
pub(crate) enum Command<P> {
    AddInput(Input<P>),
    RemoveInput(PortNo),
    AddShadow(Box<Shadow<P>>),
    RemoveShadow(u16),
    /// Sets the queue to the router of another bridge in the same worker.
    Peer(u16, Option<PeerQueue<P>>),
}

/// Objects that a service no longer needs. The control side drops them.
pub(crate) enum Retired<P> {
    Input(#[allow(dead_code, reason = "to be dropped")] Input<P>),
    Shadow(Box<Shadow<P>>),
}

/// The control side's handle of a service.
pub(crate) struct ServiceHandle<P> {
    pub(crate) commands: mpsc::Sender<Command<P>>,
    pub(crate) wanted: Arc<AtomicBool>,
    pub(crate) retired: mpsc::Receiver<Retired<P>>,
    pub(crate) inbox: PeerQueue<P>,
}

impl<P> ServiceHandle<P> {
    pub(crate) fn send(&self, command: Command<P>) {
        if self.commands.send(command).is_ok() {
            self.wanted.store(true, Ordering::Release);
        }
    }
}

/// The router of one bridge in one worker.
pub(crate) struct BridgeRouter<P> {
    router: Router,
    state: Reader<RouterState>,
    inputs: Vec<Input<P>>,
    sink: Sink<P>,
    /// Packets that routers of other bridges have routed, or found to be those of tunnels of this bridge.
    inbox: PeerQueue<P>,
    /// The shadows of the bridge's interfaces, if this is the worker that has them.
    #[expect(
        clippy::vec_box,
        reason = "shadows come and go in their boxes: the worker that has them frees no memory"
    )]
    shadows: Vec<Box<Shadow<P>>>,
    commands: mpsc::Receiver<Command<P>>,
    wanted: Arc<AtomicBool>,
    retired: mpsc::Sender<Retired<P>>,
    burst: Box<Burst<P>>,
    next_retry: Time,
}

/// The parameters of a service.
pub(crate) struct ServiceSetup<P> {
    pub(crate) bridge: u16,
    pub(crate) port: PortNo,
    pub(crate) worker: usize,
    pub(crate) seed: u64,
    pub(crate) state: Reader<RouterState>,
    pub(crate) punted: PacketQueue<P>,
    pub(crate) gleans: Arc<ArrayQueue<Glean>>,
}

/// The length of the queue between two routers of a worker, in packets.
const PEER_QUEUE_LEN: usize = 1024;

/// Returns a service and its handle.
pub(crate) fn service<P: Packet>(setup: ServiceSetup<P>) -> (BridgeRouter<P>, ServiceHandle<P>) {
    let (commands, received) = mpsc::channel();
    let (retired, bin) = mpsc::channel();
    let wanted = Arc::new(AtomicBool::new(false));
    let inbox = Arc::new(ArrayQueue::new(PEER_QUEUE_LEN));
    let router = BridgeRouter {
        router: Router::new(setup.worker, setup.seed),
        state: setup.state,
        inputs: Vec::new(),
        sink: Sink {
            bridge: setup.bridge,
            port: setup.port,
            now: Time::ZERO,
            straight: Box::new(Burst::new()),
            tables: Box::new(Burst::new()),
            tables_port: setup.port,
            dropped: Box::new(Burst::new()),
            reason: DropReason::RouteNone,
            peers: Vec::new(),
            punted: setup.punted,
            room: WaitingRoom::new(),
            gleans: setup.gleans,
        },
        inbox: Arc::clone(&inbox),
        shadows: Vec::new(),
        commands: received,
        wanted: Arc::clone(&wanted),
        retired,
        burst: Box::new(Burst::new()),
        next_retry: Time::ZERO,
    };
    let handle = ServiceHandle {
        commands,
        wanted,
        retired: bin,
        inbox,
    };
    (router, handle)
}

impl<P: Packet> Service<P> for BridgeRouter<P> {
    fn poll(&mut self, now: Time, outlet: &mut dyn ServiceOutput<P>) -> PollResult {
        if self.wanted.load(Ordering::Relaxed) {
            self.run_commands();
        }
        let mut polled = PollResult::default();
        let state = self.state.enter();
        self.sink.now = now;
        let mut out = Output {
            sink: &mut self.sink,
            outlet,
        };
        for input in &mut self.inputs {
            let of_bridge = Arrival::of_bridge(out.sink.bridge);
            let arrival = match input.origin {
                InputOrigin::Vlans => of_bridge,
                InputOrigin::Interface(index) => Arrival {
                    interface: Some(index),
                    ..of_bridge
                },
                InputOrigin::Vrf(vrf) => Arrival::of_vrf(out.sink.bridge, vrf),
            };
            for _ in 0..BURSTS_PER_POLL {
                let burst = &mut *self.burst;
                while !burst.is_full()
                    && let Some(packet) = input.ring.pop_if(|_| true)
                {
                    burst.push(packet);
                }
                if burst.is_empty() {
                    break;
                }
                input.ring.release();
                burst.iter().for_each(Packet::prefetch);
                burst.iter().for_each(Packet::prefetch_head);
                polled.found += burst.len();
                self.router.forward(&state, arrival, burst, now, &mut out);
            }
            polled.is_waiting |= !input.ring.is_empty();
        }
        while polled.found < BURSTS_PER_POLL * self.burst.capacity()
            && let Some((target, packet)) = self.inbox.pop()
        {
            polled.found += 1;
            match target {
                PeerTarget::Underlay(to) => out.decapsulate(to, packet),
                PeerTarget::Interface(index) => match state.interface(index) {
                    Some(interface) => out.deliver(interface, packet),
                    None => out.dropped(DropReason::RouteInterfaceDown, Some(packet)),
                },
            }
        }
        for shadow in &mut self.shadows {
            polled.found += out.receive_from(shadow, &state, &mut self.burst);
        }
        if !self.shadows.is_empty() {
            polled.found += out.send_to(&mut self.shadows, &mut self.burst);
        }
        if !out.sink.room.is_empty() && now >= self.next_retry {
            self.next_retry = now + RETRY_INTERVAL;
            out.retry(&mut self.router, &state, &mut self.burst);
        }
        out.flush();
        polled
    }
}

impl<P: Packet> BridgeRouter<P> {
    #[cold]
    fn run_commands(&mut self) {
        // A swap instead of a store: a store could become visible after the flag was set for the next command.
        self.wanted.swap(false, Ordering::AcqRel);
        while let Ok(command) = self.commands.try_recv() {
            match command {
                Command::AddInput(input) => self.inputs.push(input),
                Command::RemoveInput(port) => {
                    if let Some(at) = self.inputs.iter().position(|input| input.port == port) {
                        let _control_gone = self.retired.send(Retired::Input(self.inputs.remove(at)));
                    }
                }
                Command::AddShadow(shadow) => self.shadows.push(shadow),
                Command::RemoveShadow(index) => {
                    if let Some(at) = self.shadows.iter().position(|shadow| shadow.interface == index) {
                        let _control_gone = self.retired.send(Retired::Shadow(self.shadows.remove(at)));
                    }
                }
                Command::Peer(bridge, queue) => {
                    let at = usize::from(bridge);
                    if self.sink.peers.len() <= at {
                        self.sink.peers.resize(at + 1, None);
                    }
                    self.sink.peers[at] = queue;
                }
            }
        }
    }
}

/// Packets on their way out of the router, and those that wait.
struct Sink<P> {
    bridge: u16,
    port: PortNo,
    now: Time,
    /// Packets for NORMAL.
    straight: Box<Burst<P>>,
    /// Packets for table 0, and their `in_port`.
    tables: Box<Burst<P>>,
    tables_port: PortNo,
    /// Packets dropped for one reason.
    dropped: Box<Burst<P>>,
    reason: DropReason,
    /// By bridge.
    peers: Vec<Option<PeerQueue<P>>>,
    punted: PacketQueue<P>,
    room: WaitingRoom<P>,
    gleans: Arc<ArrayQueue<Glean>>,
}

/// The output of a router for the time of one call.
struct Output<'a, P> {
    sink: &'a mut Sink<P>,
    outlet: &'a mut dyn ServiceOutput<P>,
}

impl<P: Packet> Output<'_, P> {
    /// Puts a routed frame into its VLAN of this bridge.
    #[inline]
    fn deliver(&mut self, interface: &Interface, frame: P) {
        match interface.egress {
            EgressMode::Straight => {
                self.sink.straight.push(frame);
                if self.sink.straight.is_full() {
                    self.outlet.forward(self.sink.port, &mut self.sink.straight);
                }
            }
            EgressMode::Tables(number) | EgressMode::Kernel(number) => self.receive_at(number, frame),
        }
    }

    /// Lets this bridge receive a frame at one of its ports.
    fn receive_at(&mut self, number: PortNo, frame: P) {
        if number != self.sink.tables_port || self.sink.tables.is_full() {
            self.outlet.receive(self.sink.tables_port, &mut self.sink.tables);
            self.sink.tables_port = number;
        }
        self.sink.tables.push(frame);
    }

    /// Hands a packet to the router of another bridge.
    fn send_to_peer(&mut self, bridge: u16, target: PeerTarget, packet: P) {
        let peer = self.sink.peers.get(usize::from(bridge));
        let refused = match peer.and_then(Option::as_ref) {
            Some(queue) => queue.push((target, packet)).err().map(|(_, packet)| packet),
            None => Some(packet),
        };
        if let Some(packet) = refused {
            self.dropped(DropReason::RouteRingFull, Some(packet));
        }
    }

    /// Passes on all packets that were collected.
    fn flush(&mut self) {
        self.outlet.forward(self.sink.port, &mut self.sink.straight);
        self.outlet.receive(self.sink.tables_port, &mut self.sink.tables);
        self.outlet.discard(self.sink.reason, &mut self.sink.dropped);
    }

    /// Puts frames of a shadow into the VLAN of its interface. Returns their number.
    fn receive_from(&mut self, shadow: &mut Shadow<P>, state: &RouterState, burst: &mut Burst<P>) -> usize {
        shadow.rx.iter_mut().for_each(|queue| queue.rx_burst(burst));
        if burst.is_empty() {
            return 0;
        }
        let found = burst.len();
        let Some(interface) = state
            .interface(shadow.interface)
            .filter(|interface| interface.is_up)
        else {
            self.outlet.discard(DropReason::RouteNoInterface, burst);
            return found;
        };
        for mut frame in burst.drain(..) {
            match link::tag(&mut frame, interface.vid) {
                Ok(()) => {
                    self.sink.straight.push(frame);
                    if self.sink.straight.is_full() {
                        self.outlet.forward(self.sink.port, &mut self.sink.straight);
                    }
                }
                Err(_) => self.dropped(DropReason::NoHeadroom, Some(frame)),
            }
        }
        found
    }

    /// Hands frames for the kernel to their shadows. Returns their number.
    fn send_to(&mut self, shadows: &mut [Box<Shadow<P>>], burst: &mut Burst<P>) -> usize {
        let mut found = 0;
        for _ in 0..self.sink.punted.len() {
            let Some((index, frame)) = self.sink.punted.pop() else {
                break;
            };
            found += 1;
            let shadow = shadows.iter_mut().find(|shadow| shadow.interface == index);
            let Some(tx) = shadow.and_then(|shadow| shadow.tx.first_mut()) else {
                self.dropped(DropReason::RoutePuntFull, Some(frame));
                continue;
            };
            match GsoLayout::of(&frame) {
                None => burst.push(frame),
                // The kernel's interface takes ordinary frames only.
                Some(layout) => {
                    for number in 0..layout.count() {
                        burst.extend(layout.segment(&frame, number));
                        if burst.is_full() {
                            tx.tx_burst(burst);
                            self.outlet.discard(DropReason::RoutePuntFull, burst);
                        }
                    }
                }
            }
            tx.tx_burst(burst);
            self.outlet.discard(DropReason::RoutePuntFull, burst);
        }
        found
    }

    /// Routes the waiting packets whose neighbours are known now, and gives up those that waited too long.
    #[cold]
    fn retry(&mut self, router: &mut Router, state: &RouterState, burst: &mut Burst<P>) {
        let now = self.sink.now;
        let mut at = 0;
        while at < self.sink.room.len() {
            let queue = self.sink.room.queue(at);
            let is_resolved = queue
                .and_then(|queue| queue.first())
                .is_some_and(|waiting| router.is_resolved(state, waiting));
            if !is_resolved && !queue.is_some_and(|queue| queue.is_over(now)) {
                at += 1;
                continue;
            }
            for (waiting, packet) in self.sink.room.remove(at).packets {
                match is_resolved {
                    true => {
                        burst.push(packet);
                        router.forward(state, waiting.arrival, burst, now, self);
                    }
                    false => router.give_up(state, waiting.arrival, packet, now, self),
                }
            }
        }
    }
}

/// Returns true for classes that do not fill the queue to the kernel: the others keep half of it for themselves.
fn is_bulk(class: PuntClass) -> bool {
    matches!(
        class,
        PuntClass::Bgp | PuntClass::Local | PuntClass::Options | PuntClass::Dhcp | PuntClass::Glean
    )
}

impl<P: Packet> RouteOutput<P> for Output<'_, P> {
    #[inline]
    fn send(&mut self, interface: &Interface, frame: P) {
        if interface.bridge == self.sink.bridge {
            return self.deliver(interface, frame);
        }
        self.send_to_peer(interface.bridge, PeerTarget::Interface(interface.index), frame);
    }

    fn decapsulate(&mut self, to: UnderlayPort, frame: P) {
        match to.bridge == self.sink.bridge {
            true => self.receive_at(to.port, frame),
            false => self.send_to_peer(to.bridge, PeerTarget::Underlay(to), frame),
        }
    }

    fn punt(&mut self, interface: &Interface, class: PuntClass, frame: P) {
        let queue = &self.sink.punted;
        let refused = match is_bulk(class) && queue.len() * 2 >= queue.capacity() {
            true => Some(frame),
            false => queue.push((interface.index, frame)).err().map(|(_, frame)| frame),
        };
        if let Some(frame) = refused {
            self.dropped(DropReason::RoutePuntFull, Some(frame));
        }
    }

    fn wait(&mut self, waiting: Waiting, frame: P) -> Result<(), P> {
        match self.sink.room.add(waiting, frame, self.sink.now) {
            Added::Later => {}
            Added::Full(frame) => return Err(frame),
            Added::First(evicted) => {
                self.probe(waiting.glean);
                for (_, packet) in evicted.into_iter().flat_map(|queue| queue.packets) {
                    self.dropped(DropReason::RouteNeighbour, Some(packet));
                }
            }
        }
        Ok(())
    }

    fn probe(&mut self, glean: Glean) {
        // A request that finds no room is repeated with the next packet for the neighbour.
        let _full = self.sink.gleans.push(glean);
    }

    fn dropped(&mut self, reason: DropReason, packet: Option<P>) {
        let Some(packet) = packet else {
            return self.outlet.count_drops(reason, 1);
        };
        if reason != self.sink.reason || self.sink.dropped.is_full() {
            self.outlet.discard(self.sink.reason, &mut self.sink.dropped);
            self.sink.reason = reason;
        }
        self.sink.dropped.push(packet);
    }
}
