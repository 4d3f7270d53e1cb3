//! The devices that need no driver: memory, links and pcap files, for any type of packet.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use super::link::Cable;
use super::memory::{self, MemoryPeer};
use super::{DeviceOptions, DeviceSpec, OpenError, Opened, pcap, tap};
use millrace_wire::Packet;

/// Makes a packet from bytes; `None` when no buffer is free.
pub(crate) type Allocate<P> = Arc<dyn Fn(&[u8]) -> Option<P> + Send + Sync>;

/// Opens driverless devices, and remembers those that have two ends.
pub struct Registry<P> {
    allocate: Allocate<P>,
    links: Mutex<HashMap<String, Cable<P>>>,
    memories: Mutex<HashMap<String, MemoryPeer<P>>>,
}

impl<P: Packet + 'static> Registry<P> {
    /// Devices whose packets `allocate` makes.
    pub fn new(allocate: impl Fn(&[u8]) -> Option<P> + Send + Sync + 'static) -> Registry<P> {
        Registry {
            allocate: Arc::new(allocate),
            links: Mutex::default(),
            memories: Mutex::default(),
        }
    }

    /// A packet with these bytes.
    pub fn packet(&self, bytes: &[u8]) -> Option<P> {
        (self.allocate)(bytes)
    }

    /// The far end of the memory device `name`, which need not be open yet.
    pub fn memory(&self, name: &str) -> MemoryPeer<P> {
        let mut memories = self.memories.lock().unwrap_or_else(PoisonError::into_inner);
        memories
            .entry(name.to_owned())
            .or_insert_with(|| MemoryPeer::new(Arc::clone(&self.allocate)))
            .clone()
    }

    /// Opens a driverless device; `None` for one that needs a driver.
    ///
    /// # Errors
    /// [`OpenError`], with a remedy.
    pub fn open(&self, spec: &DeviceSpec, options: DeviceOptions) -> Option<Result<Opened<P>, OpenError>> {
        match spec {
            DeviceSpec::Memory(name) => Some(memory::open(spec, options, &self.memory(name))),
            DeviceSpec::Link(name) => {
                let mut links = self.links.lock().unwrap_or_else(PoisonError::into_inner);
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
            DeviceSpec::Pci(_) | DeviceSpec::Vdev(_) | DeviceSpec::Vnic(_) => None,
        }
    }
}
