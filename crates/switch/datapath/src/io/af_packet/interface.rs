//! The state that a port's queues, its watch and its device share.

use core::cell::Cell;
use core::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

use millrace_af_packet::{OpenError, Receiver, Sender, SocketState, open};
use millrace_types::Mac;
use millrace_wire::virtio_net::Accepted;
use parking_lot::Mutex;

use crate::io::changes::ReporterSlot;
use crate::io::kernel::{self, InterfaceState};
use crate::io::owner::{self, Owned};
use crate::io::peer::{Counters, WakeEvent};
use crate::io::ring_slot::RingSlot;
use crate::io::{DeviceSpec, DeviceStats, PortModes};

/// The index that no interface has.
const DETACHED: u32 = 0;

pub(super) struct Interface {
    pub(super) name: String,
    pub(super) rx: Box<[RingSlot<Receiver>]>,
    pub(super) tx: Box<[RingSlot<Sender>]>,
    pub(super) counters: Counters,
    /// Number of frames for which the kernel had no slot or no room.
    pub(super) missed: AtomicU64,
    sockets: Mutex<Vec<SocketState>>,
    /// The ownership of the interface that has the name.
    owned: Mutex<Owned>,
    /// The largest IP packet in bytes.
    mtu: AtomicUsize,
    /// Index of the interface that the queues are attached to, or [`DETACHED`].
    index: AtomicU32,
    pub(super) wake: WakeEvent,
    pub(super) reporter: ReporterSlot,
}

impl Interface {
    pub(super) fn new(name: &str, queues: u16, owned: Owned) -> rustix::io::Result<Interface> {
        Ok(Interface {
            name: name.to_owned(),
            rx: (0..queues).map(|_| RingSlot::new()).collect(),
            tx: (0..queues).map(|_| RingSlot::new()).collect(),
            counters: Counters::default(),
            missed: AtomicU64::new(0),
            sockets: Mutex::default(),
            owned: Mutex::new(owned),
            mtu: AtomicUsize::new(0),
            index: AtomicU32::new(DETACHED),
            wake: WakeEvent::new()?,
            reporter: ReporterSlot::default(),
        })
    }

    /// Returns the number of queue pairs.
    pub(super) fn queues(&self) -> u16 {
        self.rx.len() as u16
    }

    pub(super) fn mtu(&self) -> usize {
        self.mtu.load(Ordering::Relaxed)
    }

    /// Returns the offloads and the sizes of frames that the port accepts from the kernel.
    #[inline]
    pub(super) fn accepted(&self) -> Accepted {
        Accepted {
            tcpv4: true,
            tcpv6: true,
            udp: true,
            frame_size: usize::MAX,
            mtu: self.mtu(),
        }
    }

    /// Returns the current state of the interface, and stores its MTU.
    fn query(&self) -> Option<InterfaceState> {
        let state = kernel::state(&self.name).ok()?;
        self.mtu.store(state.mtu as usize, Ordering::Relaxed);
        Some(state)
    }

    /// Opens the interface for the first time. If it is down, the queues are attached later, since kernels before 6.13
    /// refuse fanout on such an interface.
    pub(super) fn attach_first(&self) -> Result<(), OpenError> {
        match self.query() {
            Some(state) if state.is_up => self.attach(state.index),
            _ => open(&self.name, 1).map(drop),
        }
    }

    fn attach(&self, index: u32) -> Result<(), OpenError> {
        let pairs = open(&self.name, self.queues())?;
        debug_assert_eq!(pairs.len(), self.rx.len(), "one pair for each queue");
        let mut sockets = self.sockets.lock();
        for ((receiver, sender), (rx, tx)) in pairs.into_iter().zip(self.rx.iter().zip(&self.tx)) {
            sockets.push(receiver.state());
            rx.insert(receiver);
            tx.insert(sender);
        }
        self.index.store(index, Ordering::Release);
        self.reporter.report();
        Ok(())
    }

    /// Takes the queues from the workers and closes them.
    pub(super) fn detach(&self) {
        self.index.store(DETACHED, Ordering::Release);
        self.count_drops();
        self.sockets.lock().clear();
        for slot in &self.rx {
            drop(slot.remove());
        }
        for slot in &self.tx {
            drop(slot.remove());
        }
        self.reporter.report();
    }

    /// Attaches the queues to the interface that has the name now, or detaches them if none has. The watch calls
    /// this. Returns false if the watch must call it again without an event.
    pub(super) fn follow(&self) -> bool {
        let (state, index) = (self.query(), self.index.load(Ordering::Acquire));
        let found = state.map_or(DETACHED, |state| state.index);
        if index != DETACHED && (found != index || !self.is_bound()) {
            tracing::info!(interface = self.name, "interface removed");
            self.detach();
        }
        let is_new = self.index.load(Ordering::Acquire) == DETACHED;
        match state.filter(|state| state.is_up && is_new) {
            None => true,
            Some(state) => match self
                .own(state.index)
                .and_then(|()| self.attach(state.index).map_err(|error| error.to_string()))
            {
                Ok(()) => {
                    tracing::info!(interface = self.name, "interface attached");
                    true
                }
                Err(error) => {
                    tracing::debug!(
                        interface = self.name,
                        error,
                        "the interface cannot be opened yet; it is tried again"
                    );
                    false
                }
            },
        }
    }

    /// Becomes the owner of the interface that has the name now; of the former one, others may.
    fn own(&self, index: u32) -> Result<(), String> {
        let mut owned = self.owned.lock();
        if !owned.is_of(index) {
            *owned = Owned::default();
            let spec = DeviceSpec::Kernel(self.name.clone());
            *owned = owner::own(&spec).map_err(|error| error.to_string())?;
        }
        Ok(())
    }

    /// Returns false if the kernel has unbound a socket: the interface was away, also if it has the same index again.
    fn is_bound(&self) -> bool {
        let sockets = self.sockets.lock();
        sockets.iter().all(SocketState::is_bound)
    }

    fn count_drops(&self) {
        let sockets = self.sockets.lock();
        let new: u64 = sockets.iter().map(|socket| u64::from(socket.take_drops())).sum();
        self.missed.fetch_add(new, Ordering::Relaxed);
    }

    pub(super) fn stats(&self) -> DeviceStats {
        self.count_drops();
        DeviceStats {
            rx_missed: self.missed.load(Ordering::Relaxed),
            ..self.counters.read()
        }
    }
}

/// The MAC address and the link of the interface, as the kernel reported them last.
#[derive(Clone, Copy, Default)]
pub(super) struct Connection {
    pub(super) mac: Mac,
    pub(super) is_up: bool,
    pub(super) speed_mbps: Option<u32>,
    pub(super) modes: PortModes,
}

/// Reads the MAC address and the link of an interface. Speed and modes are read only when the link changes, because
/// some drivers ask their firmware for them.
#[derive(Default)]
pub(super) struct LinkReader(Cell<Option<Connection>>);

impl LinkReader {
    pub(super) fn connection(&self, interface: &Interface) -> Connection {
        let known = self.0.get().unwrap_or_default();
        let state = interface.query();
        let is_attached = interface.index.load(Ordering::Acquire) != DETACHED;
        let is_up = is_attached && state.is_some_and(|state| state.is_running);
        let mac = state.map_or(known.mac, |state| Mac(state.mac));
        let connection = if self.0.get().is_some() && known.is_up == is_up {
            Connection { mac, ..known }
        } else {
            let settings = kernel::link_settings(&interface.name).unwrap_or_default();
            Connection {
                mac,
                is_up,
                speed_mbps: settings.speed,
                modes: PortModes::of_settings(&settings),
            }
        };
        self.0.set(Some(connection));
        connection
    }
}
