//! N4: slots that are bound to other keys again and again, while packets with marks of before wait in a queue of the device. No
//! packet may be taken for one of another key, with a tag of four bits, nor by the fence alone; without either, some are.

use std::collections::VecDeque;

use millrace_flow::Field;
use millrace_types::split_mix;

use super::tests::{bits, key};
use super::*;

const INDEX_BITS: u32 = 4;

/// The guard that is removed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Removed {
    Nothing,
    /// Workers compare the index of a mark only.
    Tag,
    /// Both: a removal is also confirmed before the queue has passed.
    TagAndFence,
}

enum InQueue {
    Packet { mark: u32, flow: u32 },
    Fence { slot: u32, reset: u64 },
}

/// A device with entries, and a queue that the worker reads late.
struct Device {
    removed: Removed,
    entries: BTreeMap<u32, (u32, FlowKey)>,
    outcomes: VecDeque<DeviceOutcome>,
    queue: VecDeque<InQueue>,
    reset: u64,
    operations: u64,
}

impl Offload for Device {
    fn capabilities(&self) -> Option<OffloadCapabilities> {
        Some(OffloadCapabilities {
            session: 1,
            entries: 1 << (INDEX_BITS + 1),
            mark_bits: INDEX_BITS + 4,
            fields: EntryFields::Masked,
            is_trusted: true,
        })
    }

    fn submit(&mut self, operation: DeviceOperation) -> bool {
        self.operations += 1;
        match operation {
            DeviceOperation::Reset { number, .. } => {
                self.reset = number;
                self.outcomes.push_back(DeviceOutcome::Reset { number });
            }
            DeviceOperation::Install { slot, mark, key } => {
                self.entries.insert(slot, (mark, key));
                self.answer(slot, self.reset, Outcome::Installed);
            }
            DeviceOperation::Remove { slot } => {
                self.entries.remove(&slot);
                let reset = self.reset;
                if self.removed == Removed::TagAndFence {
                    self.answer(slot, reset, Outcome::Removed);
                } else {
                    self.queue.push_back(InQueue::Fence { slot, reset });
                }
            }
        }
        true
    }

    fn poll(&mut self) -> Option<DeviceOutcome> {
        self.outcomes.pop_front()
    }
}

impl Device {
    fn answer(&mut self, slot: u32, reset: u64, outcome: Outcome) {
        self.outcomes
            .push_back(DeviceOutcome::Slot { reset, slot, outcome });
    }

    /// Takes a packet from the wire.
    fn receive(&mut self, flow: u32, mask: &FlowMask) {
        let key = key(flow).masked(mask);
        let entry = self.entries.values().find(|(_, known)| *known == key);
        let mark = entry.map_or(0, |(mark, _)| *mark);
        self.queue.push_back(InQueue::Packet { mark, flow });
    }
}

/// Operations in `make test`.
const OPERATIONS: u64 = 2_000;

/// Returns the number of packets that were taken for those of another key while the device did this many operations: a rebind of
/// a slot is a removal and an addition.
fn wrong_packets(removed: Removed, operations: u64) -> u32 {
    let settings = OffloadSettings {
        mode: OffloadMode::Trust,
        entries: Some(1 << INDEX_BITS),
        operations_per_second: 10_000,
        drops: false,
    };
    let mut offload = PortOffload::new(settings, 1);
    let bits = (bits(Field::Ipv4Dst), 1);
    let mask = entry_bits(&bits.0);
    let mut device = Device {
        removed,
        entries: BTreeMap::new(),
        outcomes: VecDeque::new(),
        queue: VecDeque::new(),
        reset: 0,
        operations: 0,
    };
    let mut now = Time::from_secs(1);
    let mut setup = None;
    // The slots of the worker: mark and key.
    let mut slots: BTreeMap<u32, (u32, FlowKey)> = BTreeMap::new();
    let (mut wrong, mut random) = (0, 3_u64);
    let mut tick = 0_u32;
    while device.operations < operations {
        tick += 1;
        now = now + Duration::from_millis(50);
        // Sixteen of all flows are heavy, and others each second.
        let heavy = tick / 20 * 16;
        for _ in 0..64 {
            device.receive(heavy + split_mix::next(&mut random) as u32 % 16, &mask);
        }
        // The worker reads late: hundreds of packets stay in the queue for seconds.
        let kept = split_mix::next(&mut random) as usize % 4000;
        while device.queue.len() > kept {
            match device.queue.pop_front() {
                Some(InQueue::Fence { slot, reset }) => device.answer(slot, reset, Outcome::Removed),
                Some(InQueue::Packet { mark, flow }) => {
                    let index = mark & ((1 << INDEX_BITS) - 1);
                    let slot = slots.get(&index).filter(|_| mark != 0);
                    let is_known = slot.filter(|(held, _)| *held == mark || removed != Removed::Nothing);
                    match is_known {
                        Some((_, held)) => wrong += u32::from(*held != key(flow).masked(&mask)),
                        None => {
                            let setup: &Option<Arc<MarkSetup>> = &setup;
                            if let Some(setup) = setup {
                                let _full = setup.samples.push(key(flow));
                            }
                        }
                    }
                }
                None => break,
            }
        }
        for change in offload.tick(&mut device, bits, Load::default(), now) {
            match change {
                WorkerChange::Setup(new) => setup = new,
                WorkerChange::Slots(changes) => {
                    for change in &*changes {
                        match change.key {
                            Some((mark, key, _)) => slots.insert(change.slot, (mark, key)),
                            None => slots.remove(&change.slot),
                        };
                    }
                }
            }
        }
    }
    wrong
}

/// A million rebinds with `MILLRACE_NIC_LONG`, which gate N4 asks for.
#[test]
fn a_mark_of_the_past_is_never_taken_for_one_of_another_key() {
    let is_long = std::env::var_os("MILLRACE_NIC_LONG").is_some();
    let operations = if is_long { 2_000_000 } else { OPERATIONS };
    let wrong = wrong_packets(Removed::Nothing, operations);
    println!("N4: {wrong} wrong packets, {} rebinds", operations / 2);
    assert_eq!(wrong, 0);
}

#[test]
fn the_fence_alone_is_enough_and_without_tag_and_fence_marks_of_the_past_are_mistaken() {
    assert_eq!(wrong_packets(Removed::Tag, OPERATIONS), 0);
    assert!(
        wrong_packets(Removed::TagAndFence, OPERATIONS) > 0,
        "the test sees the fault"
    );
}
