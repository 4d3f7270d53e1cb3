//! The offload of a port in virtual time, with a device that does what it is asked, or not.

use std::collections::VecDeque;

use millrace_flow::Field;

use super::*;

const SETTINGS: OffloadSettings = OffloadSettings {
    mode: OffloadMode::Trust,
    entries: Some(16),
    operations_per_second: 1000,
    drops: false,
};

#[derive(Default)]
struct FakeDevice {
    session: Option<u64>,
    submitted: Vec<DeviceOperation>,
    outcomes: VecDeque<DeviceOutcome>,
    is_silent: bool,
    reset: u64,
}

impl Offload for FakeDevice {
    fn capabilities(&self) -> Option<OffloadCapabilities> {
        self.session.map(|session| OffloadCapabilities {
            session,
            entries: 64,
            mark_bits: 32,
            fields: EntryFields::Masked,
            is_trusted: true,
        })
    }

    fn submit(&mut self, operation: DeviceOperation) -> bool {
        if let DeviceOperation::Reset { number, .. } = operation {
            self.reset = number;
        }
        let slot = |slot: u32, outcome| DeviceOutcome::Slot {
            reset: self.reset,
            slot,
            outcome,
        };
        let outcome = match &operation {
            DeviceOperation::Reset { number, .. } => DeviceOutcome::Reset { number: *number },
            DeviceOperation::Install { slot: at, .. } => slot(*at, Outcome::Installed),
            DeviceOperation::Remove { slot: at } => slot(*at, Outcome::Removed),
        };
        if !self.is_silent {
            self.outcomes.push_back(outcome);
        }
        self.submitted.push(operation);
        true
    }

    fn poll(&mut self) -> Option<DeviceOutcome> {
        self.outcomes.pop_front()
    }
}

struct Bench {
    offload: PortOffload,
    device: FakeDevice,
    bits: (FlowMask, u64),
    now: Time,
    setup: Option<Arc<MarkSetup>>,
    slots: BTreeMap<u32, (u32, u64)>,
}

pub(super) fn key(number: u32) -> FlowKey {
    let mut key = FlowKey::default();
    key.put(Field::EthType, 0x0800);
    key.put(Field::Ipv4Dst, number.into());
    key
}

pub(super) fn bits(field: Field) -> FlowMask {
    let mut mask = FlowMask::default();
    mask.0.put(field, field.max_value());
    mask
}

impl Bench {
    fn new(mode: OffloadMode) -> Bench {
        Bench {
            offload: PortOffload::new(OffloadSettings { mode, ..SETTINGS }, 2),
            device: FakeDevice::default(),
            bits: (bits(Field::Ipv4Dst), 1),
            now: Time::from_secs(5),
            setup: None,
            slots: BTreeMap::new(),
        }
    }

    /// Runs ticks of 50 ms, in each of which these flows are sampled.
    fn run(&mut self, ticks: u32, flows: &[u32]) {
        for _ in 0..ticks {
            self.now = self.now + Duration::from_millis(50);
            if let Some(setup) = &self.setup {
                for flow in flows {
                    setup.samples.push(key(*flow)).unwrap();
                }
            }
            let changes = self
                .offload
                .tick(&mut self.device, self.bits, Load::default(), self.now);
            for change in changes {
                match change {
                    WorkerChange::Setup(setup) => {
                        self.setup = setup;
                        self.slots.clear();
                    }
                    WorkerChange::Slots(changes) => {
                        for change in &*changes {
                            match change.key {
                                Some((mark, _, version)) => self.slots.insert(change.slot, (mark, version)),
                                None => self.slots.remove(&change.slot),
                            };
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn sampled_flows_get_slots_in_workers_and_entries_in_the_device() {
    let mut bench = Bench::new(OffloadMode::Trust);
    bench.run(10, &[1, 2, 3]);
    assert!(bench.setup.is_none() && bench.device.submitted.is_empty());
    assert_eq!(bench.offload.status().by, OffloadBy::Device);
    bench.device.session = Some(1);
    bench.run(40, &[1, 2, 3]);
    assert_eq!(bench.slots.len(), 3);
    let status = bench.offload.status();
    assert_eq!((status.level, status.by), (MarkLevel::Trust, OffloadBy::Operator));
    assert_eq!(status.planner.installed, 3);
    assert!(
        bench
            .offload
            .mark_of(&key(2))
            .is_some_and(|marked| marked.level == MarkLevel::Trust)
    );
    assert_eq!(bench.offload.mark_of(&key(9)), None);
    assert_eq!(bench.setup.unwrap().state.level(), MarkLevel::Trust);
}

#[test]
fn other_match_bits_empty_the_device_before_new_entries_come_and_old_slots_are_of_another_version() {
    let mut bench = Bench::new(OffloadMode::Trust);
    bench.device.session = Some(1);
    bench.run(40, &[1, 2]);
    let old = bench.slots.clone();
    bench.device.submitted.clear();
    bench.device.is_silent = true;
    bench.bits = (bits(Field::Ipv4Src), 2);
    bench.run(20, &[1, 2]);
    assert!(
        matches!(bench.device.submitted[..], [DeviceOperation::Reset { .. }]),
        "no entry before the reset is confirmed: {:?}",
        bench.device.submitted
    );
    let number = bench.device.reset;
    bench.device.outcomes.push_back(DeviceOutcome::Reset { number });
    bench.device.is_silent = false;
    bench.run(40, &[1, 2]);
    for (slot, (mark, version)) in &bench.slots {
        if *version == 2 {
            assert_ne!(old.get(slot).map(|(mark, _)| *mark), Some(*mark));
        }
    }
    assert!(bench.slots.values().any(|(_, version)| *version == 2));
}

#[test]
fn a_device_that_comes_back_begins_with_a_reset_and_stays_distrusted() {
    let mut bench = Bench::new(OffloadMode::Auto);
    bench.device.session = Some(1);
    bench.run(40, &[1]);
    assert_eq!(bench.offload.status().level, MarkLevel::Trust);
    bench.setup.as_ref().unwrap().state.distrust();
    bench.run(1, &[]);
    let status = bench.offload.status();
    assert_eq!((status.level, status.by), (MarkLevel::Verify, OffloadBy::Audit));
    bench.device.session = None;
    bench.run(2, &[]);
    assert!(bench.setup.is_none());
    bench.device.session = Some(2);
    bench.device.submitted.clear();
    bench.run(40, &[1]);
    assert!(matches!(bench.device.submitted[0], DeviceOperation::Reset { .. }));
    assert_eq!(bench.slots.len(), 1);
    assert_eq!(bench.offload.status().level, MarkLevel::Verify);
}

#[test]
fn packets_that_the_device_does_not_tell_apart_get_no_entry_and_a_reason() {
    let mut bench = Bench::new(OffloadMode::Trust);
    bench.device.session = Some(1);
    bench.bits.0.merge(&bits(Field::NwTtl));
    bench.run(40, &[1]);
    assert!(bench.slots.is_empty());
    let status = bench.offload.status();
    assert!(
        matches!(status.unsuitable[..], [("nw_ttl", count)] if count > 10),
        "{status:?}"
    );
}

#[test]
fn in_the_mode_dispatch_no_entry_is_installed() {
    let mut bench = Bench::new(OffloadMode::Dispatch);
    bench.device.session = Some(1);
    bench.run(40, &[1, 2]);
    assert!(bench.slots.is_empty());
    assert_eq!(bench.offload.status().level, MarkLevel::Dispatch);
}
