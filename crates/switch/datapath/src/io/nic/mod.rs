//! `nic:PATH`: a NIC that classifies and dispatches packets, over the interface of [`millrace_nic`].
//!
//! The device hashes each frame as [`FlowHash`](crate::spread::FlowHash) does, and sends it to the queue of its bucket, so each
//! worker polls a queue of its own and no packet crosses a ring between workers: MPLS, QinQ, PBB and tunnels included, which
//! RSS sees as one flow.
//!
//! ```text
//!   millrace-nic --- socket --> control thread ([`client`]): memory, hash key, buckets
//!                                   | mailboxes
//!                                   v
//!   queue 0..n  --- memory ---> Rx of each worker ([`queue`]);  Tx of one worker
//! ```
//! The port exists while the device is away; its link is down then, and the thread connects again.

mod client;
mod moves;
mod offload;
mod queue;
mod state;

use core::sync::atomic::Ordering;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;
use std::sync::Arc;

use millrace_nic::QUEUES_MAX;
use millrace_nic::reading::{Reading, read_all};
use millrace_types::Mac;
use millrace_wire::Packet;

use self::client::Client;
use self::offload::Entries;
use self::queue::{Rx, Tx};
use self::state::Nic;
use super::allocate::Empty;
use super::peer::{WakeEvent, failed};
use super::{
    BucketTable, Device, DeviceInfo, DeviceOptions, DeviceSpec, DeviceStats, OpenError, Opened, PortModes,
    RxQueue, TxQueue,
};
use crate::offload::Offload;

struct NicDevice {
    nic: Arc<Nic>,
    mac: Mac,
    mtu: u16,
    is_up: bool,
    entries: Entries,
    /// Stops when it is dropped.
    _client: Client,
}

/// Opens a port at the socket of a device, which need not be there yet.
pub(super) fn open<P: Packet + 'static>(
    spec: &DeviceSpec,
    path: &Path,
    options: DeviceOptions,
    empty: &Empty<P>,
) -> Result<Opened<P>, OpenError> {
    // The device spreads flows itself, so each worker gets a queue (`DeviceOptions::only_if_spread`).
    let queues = options.queues.clamp(1, QUEUES_MAX as u16);
    let wake = Arc::new(WakeEvent::new().map_err(|error| failed(spec, &error))?);
    let nic = Arc::new(Nic::new(spec.to_string(), queues, wake));
    let client = Client::start(path, &nic)?;
    let rx = (0..queues)
        .map(|queue| Box::new(Rx::new(Arc::clone(&nic), queue, Arc::clone(empty))) as Box<dyn RxQueue<P>>);
    Ok(Opened {
        rx: rx.collect(),
        // One queue, so that the device sends packets in the order in which workers gave them to the port.
        tx: vec![Box::new(Tx::new(Arc::clone(&nic))) as Box<dyn TxQueue<P>>],
        device: Box::new(NicDevice {
            mac: mac_of(path),
            entries: Entries {
                nic: Arc::clone(&nic),
            },
            nic,
            mtu: options.mtu,
            is_up: true,
            _client: client,
        }),
    })
}

/// Returns a locally administered address that is the same at each start.
fn mac_of(path: &Path) -> Mac {
    let mut hasher = DefaultHasher::new();
    ("nic", path).hash(&mut hasher);
    let [a, b, c, d, e, ..] = hasher.finish().to_be_bytes();
    Mac([0x02, a, b, c, d, e])
}

impl Device for NicDevice {
    fn info(&self) -> DeviceInfo {
        let is_connected = self.nic.is_connected.load(Ordering::Acquire);
        DeviceInfo {
            driver: "nic".to_owned(),
            mac: self.mac,
            speed_mbps: None,
            link_up: self.is_up && is_connected,
            modes: PortModes::default(),
            mtu: self.mtu,
            numa_node: None,
            rx_queues: self.nic.rx.len() as u16,
            // The headers of the flow hash (docs/nic-interface.md).
            rss: Some("flow-hash,mpls".to_owned()),
            offload: is_connected.then(|| {
                format!(
                    "dispatch over {} queues",
                    self.nic.queues_in_use.load(Ordering::Relaxed)
                )
            }),
        }
    }

    fn stats(&self) -> DeviceStats {
        self.nic.counters.read()
    }

    fn set_link(&mut self, up: bool) {
        self.is_up = up;
    }

    fn offload(&mut self) -> Option<&mut dyn Offload> {
        Some(&mut self.entries)
    }

    fn registers(&self) -> Option<Vec<Reading>> {
        let memory = self.nic.memory.lock();
        Some(memory.as_ref().map_or_else(Vec::new, read_all))
    }

    fn follow(&mut self, table: &Arc<dyn BucketTable>) -> bool {
        let wake = Arc::clone(&self.nic.wake);
        table.set_waker(Box::new(move || wake.wake()));
        let is_first = self.nic.table.set(Arc::clone(table)).is_ok();
        // The thread may have set the buckets of a device that was quicker than this call.
        self.nic.wake.wake();
        is_first
    }
}

#[cfg(test)]
mod tests;
