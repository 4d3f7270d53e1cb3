//! The NIC that classifies: frames, commands, shared memory, and outcomes of a device.

use std::collections::BTreeSet;

use millrace_flow::{Field, FlowKey};
use millrace_memif::region::{Regions, UnsealedPolicy};
use millrace_nic::driver::{Driver, Entry};
use millrace_nic::memory::{Layout, Memory};
use millrace_nic::{
    Capabilities, Command, Config, FRAME_SIZE_MAX, FRAME_SIZE_MIN, HashKeys, STEPS_MAX, command,
};
use millrace_nic_model::{Model, SoftwareNic, parse};
use millrace_offload::{Operation, Outcome, Planner, PlannerSettings, Refusal};
use millrace_types::{Duration, Time};
use millrace_wire::flow_hash::FlowHash;

/// Parses a frame.
///
/// Properties: the walk is bounded, and its hash is that of the switch.
pub(crate) fn frames(bytes: &[u8]) {
    if !(FRAME_SIZE_MIN..=FRAME_SIZE_MAX).contains(&bytes.len()) {
        return;
    }
    let config = Config::new(HashKeys::new(1));
    let parsed = parse(bytes, 0, &config);
    assert!(parsed.steps <= STEPS_MAX);
    assert_eq!(parsed.hash, FlowHash::new(1).of(bytes));
}

/// Executes commands of 64 bytes each, and classifies a frame after each.
///
/// Properties: a command that is decoded encodes to itself; its completion has its tag; a frame gets a queue that the device
/// has.
pub(crate) fn commands(bytes: &[u8]) {
    let capabilities = Capabilities {
        queues: 3,
        row_bits: 2,
        ..Capabilities::TEN
    };
    let mut model = Model::new(capabilities, Config::new(HashKeys::new(1)), 16);
    let frame = [2; 60];
    for bytes in bytes.as_chunks::<{ command::SIZE }>().0 {
        let (tag, parsed) = Command::parse(bytes);
        if let Ok(command) = parsed {
            let again = Command::parse(&command.to_bytes(tag));
            assert_eq!(again, (tag, Ok(command)));
        }
        let (completion, _) = model.command(bytes);
        assert_eq!(completion.tag, tag);
        let classified = model.classify(0, &frame);
        assert!(classified.queue < capabilities.queues);
    }
}

/// A peer that writes into all of the memory, an offset and eight bytes at a time, while the other side works: the driver, or,
/// if the first byte is odd, the device.
///
/// Properties: no access leaves the memory; a frame is not longer than its buffer; a driver that sees a violation stops.
pub(crate) fn rings(bytes: &[u8]) {
    let Some((role, rest)) = bytes.split_first() else {
        return;
    };
    let layout = Layout {
        capabilities: Capabilities {
            queues: 2,
            row_bits: 2,
            ports: 1,
            ..Capabilities::TEN
        },
        ring_bits: 4,
        buffer_size: 64,
    };
    let Ok((memory, file)) = Memory::create(layout) else {
        return;
    };
    let copy = || file.try_clone().unwrap();
    let peer = Regions::open([(layout.size(), copy())], UnsealedPolicy::Reject).unwrap();
    let mut nic = SoftwareNic::new(memory).unwrap();
    let Ok(mut driver) = Driver::start(Memory::open(copy()).unwrap(), &Config::new(HashKeys::new(1))) else {
        return;
    };
    let mut buffer = Vec::new();
    for step in rest.as_chunks::<14>().0 {
        let [what, number, offset @ .., a, b, c, d, e, f, g, h] = *step;
        let at = u32::from_le_bytes(offset) % layout.size() as u32;
        if let Ok(to) = peer.buffer(0, at & !7, 8) {
            to.write(&[a, b, c, d, e, f, g, h]);
        }
        let frame = vec![number; 14 + usize::from(number) % 60];
        if role & 1 == 1 {
            nic.poll();
            nic.receive(0, &frame, 0);
            nic.transmit(4, &mut buffer, |frame| assert!(frame.len() <= 64));
            continue;
        }
        let queue = usize::from(what & 1);
        let received = driver.receivers[queue].receive(|entry| {
            if let Entry::Frame { bytes, .. } = entry {
                assert!(bytes.size() <= 64);
            }
            true
        });
        let polled = driver.commands.poll();
        let room = driver.senders[queue].room();
        if received.is_err() || polled.is_err() || room.is_err() {
            return;
        }
        if room != Ok(0) {
            driver.senders[queue].send(frame.len(), core::iter::once(&frame[..]));
            driver.senders[queue].publish();
        }
        driver.commands.submit(&Command::Fence {
            number: number.into(),
        });
    }
}

/// A device that answers anything at any time.
///
/// Properties: no mark is used twice, every operation has a slot, and no more slots are in use than there are.
pub(crate) fn planner(bytes: &[u8]) {
    let settings = PlannerSettings {
        slots: 8,
        index_bits: 3,
        mark_bits: 32,
        operations_per_second: 1000,
        sampling_interval: 256,
        saved_nanos: 18.0,
        operation_nanos: 20_000.0,
    };
    let mut planner = Planner::new(settings);
    let (mut now, mut marks) = (Time::from_secs(1), BTreeSet::new());
    for [what, number, value] in bytes.as_chunks::<3>().0 {
        let slot = u32::from(*number);
        match what % 8 {
            0 => planner.clear(),
            1..4 => {
                let mut key = FlowKey::default();
                key.put(Field::Ipv4Dst, u128::from(*number % 32));
                (0..*value % 8).for_each(|_| planner.sample(&key));
            }
            4 | 5 => {
                now = now + Duration::from_millis(u64::from(*value) * 20);
                for operation in planner.tick(now, |slot| u64::from(slot * 100)) {
                    let (Operation::Install { slot, .. } | Operation::Remove { slot }) = operation;
                    assert!(slot < 8);
                    if let Operation::Install { mark, .. } = operation {
                        assert!(mark != 0 && marks.insert(mark), "mark {mark:#x} again");
                    }
                }
            }
            _ => {
                let outcome = match value % 6 {
                    0 => Outcome::Installed,
                    1 => Outcome::Removed,
                    2 => Outcome::Leaked,
                    3 => Outcome::Refused(Refusal::Shape),
                    4 => Outcome::Refused(Refusal::Capacity),
                    _ => Outcome::Refused(Refusal::Transient),
                };
                planner.outcome(slot, outcome, now);
            }
        }
        let counts = planner.counts();
        assert!(counts.installed + counts.pending + counts.leaked <= 8);
    }
}
