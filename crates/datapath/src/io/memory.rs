//! A device whose other end is held by somebody in this process: what tests send and receive through.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crossbeam_queue::ArrayQueue;
use millrace_types::Mac;
use millrace_wire::Packet;

use super::registry::Allocate;
use super::{Burst, Device, DeviceInfo, DeviceSpec, DeviceStats, OpenError, Opened, RxQueue, TxQueue};

/// Packets that fit into each direction.
const QUEUE_LEN: usize = 4096;

struct Wire<P> {
    to_switch: ArrayQueue<P>,
    from_switch: ArrayQueue<P>,
    open: AtomicBool,
    link_up: AtomicBool,
}

/// The far end of a memory device.
pub struct MemoryPeer<P> {
    wire: Arc<Wire<P>>,
    allocate: Allocate<P>,
}

impl<P> Clone for MemoryPeer<P> {
    fn clone(&self) -> Self {
        MemoryPeer {
            wire: Arc::clone(&self.wire),
            allocate: Arc::clone(&self.allocate),
        }
    }
}

impl<P: Packet> MemoryPeer<P> {
    pub(super) fn new(allocate: Allocate<P>) -> MemoryPeer<P> {
        let wire = Wire {
            to_switch: ArrayQueue::new(QUEUE_LEN),
            from_switch: ArrayQueue::new(QUEUE_LEN),
            open: AtomicBool::new(false),
            link_up: AtomicBool::new(true),
        };
        MemoryPeer {
            wire: Arc::new(wire),
            allocate,
        }
    }

    /// Sends a frame towards the switch. Returns whether there was room.
    pub fn send(&self, bytes: &[u8]) -> bool {
        (self.allocate)(bytes).is_some_and(|packet| self.send_packet(packet))
    }

    /// Sends a packet towards the switch. Returns whether there was room.
    pub fn send_packet(&self, packet: P) -> bool {
        self.wire.to_switch.push(packet).is_ok()
    }

    /// The next packet that the switch sent, if there is one.
    pub fn receive(&self) -> Option<P> {
        self.wire.from_switch.pop()
    }

    /// The bytes of the next packet that the switch sends, waiting up to `bound` for it.
    pub fn receive_within(&self, bound: core::time::Duration) -> Option<Vec<u8>> {
        let deadline = std::time::Instant::now() + bound;
        loop {
            if let Some(packet) = self.receive() {
                let mut bytes = Vec::with_capacity(packet.len());
                packet.copy_to(&mut bytes, usize::MAX);
                return Some(bytes);
            }
            if std::time::Instant::now() >= deadline {
                return None;
            }
            std::thread::sleep(core::time::Duration::from_micros(50));
        }
    }

    /// Pulls or plugs the cable.
    pub fn set_link(&self, up: bool) {
        self.wire.link_up.store(up, Ordering::Relaxed);
    }
}

struct Rx<P>(Arc<Wire<P>>);
struct Tx<P>(Arc<Wire<P>>);
struct MemoryDevice<P>(Arc<Wire<P>>);

pub(super) fn open<P: Packet + 'static>(
    spec: &DeviceSpec,
    peer: &MemoryPeer<P>,
) -> Result<Opened<P>, OpenError> {
    if peer.wire.open.swap(true, Ordering::AcqRel) {
        return Err(OpenError::Busy {
            device: spec.to_string(),
            reason: "another port has this device".to_owned(),
            remedy: "give each port a memory device of its own".to_owned(),
        });
    }
    let wire = || Arc::clone(&peer.wire);
    Ok(Opened {
        rx: vec![Box::new(Rx(wire()))],
        tx: vec![Box::new(Tx(wire()))],
        device: Box::new(MemoryDevice(wire())),
    })
}

impl<P: Send> RxQueue<P> for Rx<P> {
    fn rx_burst(&mut self, burst: &mut Burst<P>) {
        while !burst.is_full()
            && let Some(packet) = self.0.to_switch.pop()
        {
            burst.push(packet);
        }
    }
}

impl<P: Send> TxQueue<P> for Tx<P> {
    fn tx_burst(&mut self, burst: &mut Burst<P>) {
        let room = self.0.from_switch.capacity() - self.0.from_switch.len();
        for packet in burst.drain(..room.min(burst.len())) {
            // There is room: this queue is the only one that fills it.
            let _refused = self.0.from_switch.push(packet);
        }
    }
}

impl<P: Send> Device for MemoryDevice<P> {
    fn info(&self) -> DeviceInfo {
        DeviceInfo {
            driver: "memory".to_owned(),
            mac: Mac([0x02, 0, 0, 0, 0, 0]),
            speed_mbps: None,
            link_up: self.0.link_up.load(Ordering::Relaxed),
            mtu: 9582,
            numa_node: None,
        }
    }

    fn stats(&self) -> DeviceStats {
        DeviceStats::default()
    }

    fn set_link(&mut self, up: bool) {
        self.0.link_up.store(up, Ordering::Relaxed);
    }
}

impl<P> Drop for MemoryDevice<P> {
    fn drop(&mut self) {
        self.0.open.store(false, Ordering::Release);
    }
}
