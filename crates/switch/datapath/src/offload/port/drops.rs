//! The flows whose packets a device drops, in the bridge's thread.
//!
//! A flow gets here from its slot, and leaves when a change of the tables gives its packets another path, when something keeps
//! marks from being used, or with its slot. Each time, the device has ended the drop before the bridge's thread goes on, and its
//! last counts belong to the entries that dropped the packets.

use std::collections::BTreeMap;
use std::sync::Arc;

use millrace_flow::FlowKey;
use millrace_pipeline::{DropPath, Forwarding};

use crate::offload::drops::{DeviceDrops, DropOperation};

/// The most flows that a device drops. Each is looked up when tables change.
const FLOWS_MAX: usize = 1024;
/// The most flows that begin in one call.
const BEGIN_MAX: usize = 256;

/// Packets that the device dropped in place of the entries of a path.
#[derive(Clone, Debug)]
pub(crate) struct DropCount {
    pub(crate) path: Arc<DropPath>,
    pub(crate) packets: u64,
    pub(crate) bytes: u64,
}

#[derive(Debug)]
struct Dropped {
    key: FlowKey,
    path: Arc<DropPath>,
}

/// The drops of a port while its device is there.
#[derive(Debug)]
pub(crate) struct PortDrops {
    device: Arc<DeviceDrops>,
    flows: BTreeMap<u32, Dropped>,
    /// By slot, the device's counts that entries have got.
    taken: Vec<[u64; 2]>,
    /// Counts that no entry has got yet.
    counts: Vec<DropCount>,
    /// The generation of the tables at which all paths were looked up.
    generation: u64,
    packets: u64,
}

impl PortDrops {
    pub(crate) fn new(device: Arc<DeviceDrops>) -> PortDrops {
        PortDrops {
            // Former settings of the port have taken what the device has counted until now.
            taken: (0..device.len()).map(|slot| device.count(slot as u32)).collect(),
            device,
            flows: BTreeMap::new(),
            counts: Vec::new(),
            generation: 0,
            packets: 0,
        }
    }

    /// Returns the number of flows.
    pub(crate) fn len(&self) -> usize {
        self.flows.len()
    }

    /// Returns the number of packets that the device dropped.
    pub(crate) fn packets(&self) -> u64 {
        self.packets
    }

    /// Returns the number of drops that the device refused.
    pub(crate) fn refused(&self) -> u64 {
        self.device.refused()
    }

    /// Returns the number of packets of a slot that the device dropped, as they were read last.
    pub(crate) fn of_slot(&self, slot: u32) -> u64 {
        self.device.count(slot)[0]
    }

    /// Returns true if the device drops packets of a slot.
    pub(crate) fn drops(&self, slot: u32) -> bool {
        self.flows.contains_key(&slot)
    }

    /// Lets the device drop packets of these slots, as far as the tables drop them and nothing else happens to them.
    pub(crate) fn begin<'a>(&mut self, slots: impl Iterator<Item = (u32, &'a FlowKey)>, fwd: &Forwarding) {
        if !self.device.is_done() || self.device.is_over() {
            return;
        }
        self.end_changed(fwd);
        let room = FLOWS_MAX.saturating_sub(self.flows.len()).min(BEGIN_MAX);
        let len = self.device.len();
        let new = slots
            .filter(|(slot, _)| (*slot as usize) < len && !self.flows.contains_key(slot))
            .filter_map(|(slot, key)| Some((slot, *key, Arc::new(fwd.drop_path(key)?))));
        for (slot, key, path) in new.take(room).collect::<Vec<_>>() {
            if !self.device.submit(DropOperation::Drop { slot }) {
                return;
            }
            self.flows.insert(slot, Dropped { key, path });
        }
    }

    /// Ends the drops of flows that have another path by now.
    pub(crate) fn end_changed(&mut self, fwd: &Forwarding) {
        if self.generation == fwd.generation() {
            return;
        }
        self.generation = fwd.generation();
        let has_changed = |flow: &Dropped| fwd.drop_path(&flow.key).as_ref() != Some(&*flow.path);
        let changed = self.flows.iter().filter(|(_, flow)| has_changed(flow));
        let slots: Vec<u32> = changed.map(|(slot, _)| *slot).collect();
        self.end(&slots);
    }

    /// Ends all drops.
    pub(crate) fn end_all(&mut self) {
        let slots: Vec<u32> = self.flows.keys().copied().collect();
        self.end(&slots);
    }

    /// Ends the drops of some slots: when this returns, the device drops none of their packets.
    pub(crate) fn end(&mut self, slots: &[u32]) {
        let ending = slots.iter().filter(|slot| self.flows.contains_key(slot));
        let ending: Vec<u32> = ending.copied().collect();
        if ending.is_empty() {
            return;
        }
        for slot in &ending {
            if !self.device.submit(DropOperation::Pass { slot: *slot }) {
                // It takes thousands of operations that the device has not executed.
                self.device.end();
            }
        }
        self.device.wait();
        for slot in ending {
            if let Some(flow) = self.flows.remove(&slot) {
                self.take(slot, &flow.path);
            }
        }
    }

    /// Takes what the device has counted for a slot since the last call.
    fn take(&mut self, slot: u32, path: &Arc<DropPath>) {
        let Some(taken) = self.taken.get_mut(slot as usize) else {
            return;
        };
        let now = self.device.count(slot);
        let [packets, bytes] = [0, 1].map(|half| now[half].wrapping_sub(taken[half]));
        *taken = now;
        if packets != 0 || bytes != 0 {
            self.packets += packets;
            self.counts.push(DropCount {
                path: Arc::clone(path),
                packets,
                bytes,
            });
        }
    }

    /// Returns the counts that no entry has got yet.
    pub(crate) fn take_counts(&mut self) -> Vec<DropCount> {
        let flows = self.flows.iter();
        let flows: Vec<_> = flows
            .map(|(slot, flow)| (*slot, Arc::clone(&flow.path)))
            .collect();
        flows.iter().for_each(|(slot, path)| self.take(*slot, path));
        core::mem::take(&mut self.counts)
    }
}
