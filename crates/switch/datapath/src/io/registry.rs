//! The devices that need no driver: memory, links, pcap files, taps, interfaces of the kernel, memif and vhost-user,
//! for any type of packet.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

use super::allocate::{Allocate, Empty};
use super::link::Cable;
use super::memif::Sockets;
use super::memory::{self, MemoryPeer};
use super::vnic::{VnicKind, VnicSpec};
use super::wan::Wans;
use super::{Burst, DeviceOptions, DeviceSpec, OpenError, Opened, af_packet, nic, pcap, tap, vhost, wan};
use millrace_wire::Packet;

/// Opens devices without a driver, and keeps the devices that have two ends.
pub struct Registry<P> {
    allocate: Allocate<P>,
    empty: Empty<P>,
    memifs: Sockets,
    accepts_unsealed: bool,
    wans: Arc<Wans>,
    links: Mutex<HashMap<String, Cable<P>>>,
    memories: Mutex<HashMap<String, MemoryPeer<P>>>,
}

impl<P: Packet + 'static> Registry<P> {
    /// Returns a registry. `allocate` makes packets from bytes; `empty` appends up to the given number of
    /// empty packets to a burst, for devices to fill. `accepts_unsealed` is true if this process survives a
    /// SIGBUS that a peer causes when it shrinks the memory that it shares.
    pub fn new(
        allocate: impl Fn(&[u8]) -> Option<P> + Send + Sync + 'static,
        empty: impl Fn(usize, &mut Burst<P>) + Send + Sync + 'static,
        accepts_unsealed: bool,
    ) -> Registry<P> {
        Registry {
            allocate: Arc::new(allocate),
            empty: Arc::new(empty),
            memifs: Sockets::new(accepts_unsealed),
            accepts_unsealed,
            wans: Arc::default(),
            links: Mutex::default(),
            memories: Mutex::default(),
        }
    }

    /// Returns a packet with these bytes.
    pub fn packet(&self, bytes: &[u8]) -> Option<P> {
        (self.allocate)(bytes)
    }

    /// Returns the emulated paths.
    pub fn wans(&self) -> &Arc<Wans> {
        &self.wans
    }

    /// Returns the far end of the memory device `name`, which need not be open yet.
    pub fn memory(&self, name: &str) -> MemoryPeer<P> {
        let mut memories = self.memories.lock();
        memories
            .entry(name.to_owned())
            .or_insert_with(|| MemoryPeer::new(Arc::clone(&self.allocate)))
            .clone()
    }

    /// Opens a device without a driver; `None` for a device that needs one.
    ///
    /// # Errors
    /// Returns [`OpenError`], which has the next step.
    pub fn open(&self, spec: &DeviceSpec, options: DeviceOptions) -> Option<Result<Opened<P>, OpenError>> {
        match spec {
            DeviceSpec::Memory(name) => Some(memory::open(spec, options, &self.memory(name))),
            DeviceSpec::Link(name) => {
                let mut links = self.links.lock();
                Some(links.entry(name.clone()).or_insert_with(Cable::new).open(spec))
            }
            DeviceSpec::Pcap { rx, tx, repeat } => Some(pcap::open(
                spec,
                rx.as_deref(),
                tx.as_deref(),
                *repeat,
                &self.allocate,
            )),
            DeviceSpec::Tap(name) => Some(tap::open(spec, name, options, &self.allocate)),
            DeviceSpec::Shadow(shadow) => Some(tap::shadow::open(spec, shadow, options, &self.allocate)),
            DeviceSpec::Nic(path) => Some(nic::open(spec, path, options, &self.empty)),
            DeviceSpec::Vnic(vnic) => self.open_vnic(vnic, options, &self.empty),
            DeviceSpec::Kernel(name) => Some(af_packet::open(spec, name, options, &self.empty)),
            DeviceSpec::Wan { name, end } => Some(wan::open(spec, &self.wans, name, *end, &self.empty)),
            DeviceSpec::Pci(_) | DeviceSpec::Vdev(_) => None,
        }
    }

    /// Opens a memif or a vhost-user port; `None` for another virtual NIC. `empty` supplies packets for
    /// received frames.
    pub(super) fn open_vnic(
        &self,
        vnic: &VnicSpec,
        options: DeviceOptions,
        empty: &Empty<P>,
    ) -> Option<Result<Opened<P>, OpenError>> {
        match vnic.kind {
            VnicKind::Memif { id } => Some(self.memifs.open(vnic, id, options, empty)),
            VnicKind::Vhost { tso } => Some(vhost::open(vnic, tso, options, empty, self.accepts_unsealed)),
            VnicKind::VirtioUser { .. } => None,
        }
    }
}
