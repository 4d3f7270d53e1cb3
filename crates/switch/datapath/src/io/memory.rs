//! A device with its other end in this process, by which tests send and receive.
//!
//! The device has as many receive queues as requested. It takes rules, and applies them to the packets that
//! are sent to the switch, as a NIC with rte_flow does. It does not hash, so packets that no rule steers arrive
//! at the first queue.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use crossbeam_queue::ArrayQueue;
use millrace_types::Mac;
use millrace_wire::Packet;
use parking_lot::RwLock;

use super::allocate::Allocate;
use super::changes::ReporterSlot;
use super::steer::{RuleId, SteerAction, SteerError, SteerRule, Steering, Steers};
use super::{
    Burst, ChangeReporter, Device, DeviceInfo, DeviceOptions, DeviceSpec, DeviceStats, OpenError, Opened,
    PortModes, RxQueue, TxQueue,
};

/// Capacity of each direction in packets.
const QUEUE_LEN: usize = 4096;
/// Maximum number of receive queues.
const QUEUES_MAX: u16 = 16;

struct Wire<P> {
    to_switch: ArrayQueue<P>,
    /// The receive queues after the first, created at their first use.
    more: OnceLock<Box<[ArrayQueue<P>]>>,
    rules: RwLock<BTreeMap<RuleId, SteerRule>>,
    rules_made: AtomicU64,
    from_switch: ArrayQueue<P>,
    open: AtomicBool,
    link_up: AtomicBool,
    mac: RwLock<Mac>,
    reporter: ReporterSlot,
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
            more: OnceLock::new(),
            rules: RwLock::default(),
            rules_made: AtomicU64::new(0),
            from_switch: ArrayQueue::new(QUEUE_LEN),
            open: AtomicBool::new(false),
            link_up: AtomicBool::new(true),
            mac: RwLock::new(Mac([0x02, 0, 0, 0, 0, 0])),
            reporter: ReporterSlot::default(),
        };
        MemoryPeer {
            wire: Arc::new(wire),
            allocate,
        }
    }

    /// Sends a frame towards the switch. Returns false if there was no room.
    pub fn send(&self, bytes: &[u8]) -> bool {
        (self.allocate)(bytes).is_some_and(|packet| self.send_packet(packet))
    }

    /// Sends a packet towards the switch. Returns false if there was no room.
    pub fn send_packet(&self, mut packet: P) -> bool {
        let rules = self.wire.rules.read();
        let mut queue = 0;
        for rule in rules.values() {
            if !rule.matches(packet.head()) {
                continue;
            }
            match rule.action {
                SteerAction::Queue(wanted) => queue = wanted,
                SteerAction::Mark(mark) => packet.set_mark(mark),
            }
        }
        self.wire.queue(queue).push(packet).is_ok()
    }

    /// Returns the next packet that the switch sent, if there is one.
    pub fn receive(&self) -> Option<P> {
        self.wire.from_switch.pop()
    }

    /// Returns the bytes of the next packet that the switch sends, waiting up to `bound` for it.
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

    /// Sets the carrier of the link.
    pub fn set_link(&self, up: bool) {
        self.wire.link_up.store(up, Ordering::Release);
        self.wire.reporter.report();
    }

    /// Sets the MAC address of the device.
    pub fn set_mac(&self, mac: Mac) {
        *self.wire.mac.write() = mac;
        self.wire.reporter.report();
    }
}

impl<P> Wire<P> {
    /// Returns a receive queue; the first if there is none with this number.
    fn queue(&self, number: u16) -> &ArrayQueue<P> {
        let more = self.more.get();
        let queue = more.and_then(|more| more.get(usize::from(number).checked_sub(1)?));
        queue.unwrap_or(&self.to_switch)
    }
}

struct Rx<P>(Arc<Wire<P>>, u16);
struct Tx<P>(Arc<Wire<P>>);
struct MemoryDevice<P>(Arc<Wire<P>>, u16);

pub(super) fn open<P: Packet + 'static>(
    spec: &DeviceSpec,
    options: DeviceOptions,
    peer: &MemoryPeer<P>,
) -> Result<Opened<P>, OpenError> {
    if peer.wire.open.swap(true, Ordering::AcqRel) {
        return Err(OpenError::Busy {
            device: spec.to_string(),
            reason: "another port has this device".to_owned(),
            next_step: "give each port a memory device of its own".to_owned(),
        });
    }
    let wire = || Arc::clone(&peer.wire);
    let wanted = if options.only_if_spread {
        1
    } else {
        options.queues.clamp(1, QUEUES_MAX)
    };
    let make = || (1..wanted).map(|_| ArrayQueue::new(QUEUE_LEN)).collect();
    // The number of queues does not change after they were created.
    let queues = wanted.min(1 + peer.wire.more.get_or_init(make).len() as u16);
    let rx = (0..queues).map(|queue| Box::new(Rx(wire(), queue)) as Box<dyn RxQueue<P>>);
    Ok(Opened {
        rx: rx.collect(),
        tx: vec![Box::new(Tx(wire()))],
        device: Box::new(MemoryDevice(wire(), queues)),
    })
}

impl<P: Send> RxQueue<P> for Rx<P> {
    fn rx_burst(&mut self, burst: &mut Burst<P>) {
        while !burst.is_full()
            && let Some(packet) = self.0.queue(self.1).pop()
        {
            burst.push(packet);
        }
    }
}

impl<P: Send> TxQueue<P> for Tx<P> {
    fn tx_burst(&mut self, burst: &mut Burst<P>) {
        let room = self.0.from_switch.capacity() - self.0.from_switch.len();
        for packet in burst.drain(..room.min(burst.len())) {
            // There is room, because no other queue pushes packets here.
            let _refused = self.0.from_switch.push(packet);
        }
    }
}

impl<P: Send> Device for MemoryDevice<P> {
    fn info(&self) -> DeviceInfo {
        DeviceInfo {
            driver: "memory".to_owned(),
            mac: *self.0.mac.read(),
            speed_mbps: None,
            link_up: self.0.link_up.load(Ordering::Acquire),
            modes: PortModes::default(),
            mtu: 9582,
            numa_node: None,
            rx_queues: self.1,
            rss: None,
            offload: Steers {
                flows: true,
                marks: true,
                vlans: true,
                labels: true,
            }
            .names(),
        }
    }

    fn stats(&self) -> DeviceStats {
        DeviceStats::default()
    }

    fn report_changes(&mut self, reporter: &ChangeReporter) -> bool {
        self.0.reporter.set(reporter);
        true
    }

    fn set_link(&mut self, up: bool) {
        self.0.link_up.store(up, Ordering::Release);
        self.0.reporter.report();
    }

    fn steering(&mut self) -> Option<&mut dyn Steering> {
        Some(self)
    }
}

impl<P: Send> Steering for MemoryDevice<P> {
    fn install(&mut self, rule: &SteerRule) -> Result<RuleId, SteerError> {
        let id = RuleId(self.0.rules_made.fetch_add(1, Ordering::Relaxed));
        let mut rules = self.0.rules.write();
        rules.insert(id, rule.clone());
        Ok(id)
    }

    fn remove(&mut self, rule: RuleId) -> bool {
        let mut rules = self.0.rules.write();
        rules.remove(&rule).is_some()
    }
}

impl<P> Drop for MemoryDevice<P> {
    fn drop(&mut self) {
        self.0.reporter.clear();
        self.0.rules.write().clear();
        self.0.open.store(false, Ordering::Release);
    }
}
