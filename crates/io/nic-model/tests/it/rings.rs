//! A driver and a NIC in software over one memory: frames, commands, fences, and what the other side may write.

use std::fs::File;
use std::os::unix::fs::FileExt as _;

use millrace_nic::completion::flag;
use millrace_nic::driver::{Driver, Entry, Violation};
use millrace_nic::memory::{Layout, Memory, MemoryError};
use millrace_nic::{Capabilities, Command, Config, Counter, HashKeys, Status};
use millrace_nic_model::{SoftwareNic, frames};

const LAYOUT: Layout = Layout {
    capabilities: Capabilities {
        queues: 2,
        ..Capabilities::TEN
    },
    ring_bits: 4,
    buffer_size: 2048,
};

fn pair() -> (Driver, SoftwareNic) {
    let (driver, nic, _file) = pair_and_file();
    (driver, nic)
}

fn pair_and_file() -> (Driver, SoftwareNic, File) {
    let (memory, file) = Memory::create(LAYOUT).unwrap();
    let copy = File::from(file.try_clone().unwrap());
    let mut nic = SoftwareNic::new(memory).unwrap();
    let config = Config::new(HashKeys::new(5));
    let driver = Driver::start(Memory::open(file).unwrap(), &config).unwrap();
    assert_eq!(driver.memory.layout(), &LAYOUT);
    nic.poll();
    (driver, nic, copy)
}

/// Runs a command, and returns its status and value.
fn run(driver: &mut Driver, nic: &mut SoftwareNic, command: &Command) -> (Status, u64) {
    assert!(driver.commands.submit(command));
    assert_eq!(driver.commands.poll(), Ok(None));
    nic.poll();
    let completion = driver.commands.poll().unwrap().unwrap();
    (completion.status, completion.value)
}

/// Returns the frames and the numbers of fences of a queue, in order.
fn received(driver: &mut Driver, queue: usize) -> Vec<Result<Vec<u8>, u32>> {
    let mut entries = Vec::new();
    let take = |entry: Entry<'_>| {
        entries.push(match entry {
            Entry::Frame { bytes, completion } => {
                assert!(completion.has(flag::HASH));
                let mut frame = vec![0; bytes.size()];
                bytes.read(&mut frame);
                Ok(frame)
            }
            Entry::Fence(number) => Err(number),
        });
        true
    };
    driver.receivers[queue].receive(take).unwrap();
    entries
}

#[test]
fn frames_pass_both_ways_for_many_rounds_of_the_rings() {
    let (mut driver, mut nic) = pair();
    let mut random = frames::Random::new(1);
    for round in 0..200_u32 {
        let sent: Vec<Vec<u8>> = (0..1 + round % 12)
            .map(|_| {
                let mut frame = frames::mutated(&mut random);
                frame.truncate(2048);
                frame
            })
            .collect();
        for frame in &sent {
            assert_eq!(nic.receive(0, frame, 0), Some(0), "round {round}");
        }
        let expected: Vec<_> = sent.iter().cloned().map(Ok).collect();
        assert_eq!(received(&mut driver, 0), expected, "round {round}");
        let sender = &mut driver.senders[1];
        for frame in &sent {
            assert!(sender.room().unwrap() > 0 && sender.send(frame.len(), [&frame[..]].into_iter()));
        }
        sender.publish();
        let (mut out, mut buffer) = (Vec::new(), Vec::new());
        nic.transmit(32, &mut buffer, |frame| out.push(frame.to_vec()));
        assert_eq!(out, sent, "round {round}");
        nic.poll();
    }
    assert_eq!(nic.violations(), 0);
}

#[test]
fn buckets_change_their_queue_at_the_fence() {
    let (mut driver, mut nic) = pair();
    let frame = frames::chains().remove(1).1;
    nic.receive(0, &frame, 0);
    for first in (0..1024).step_by(32) {
        let command = Command::SetBuckets {
            first,
            queues: vec![1; 32],
        };
        assert_eq!(run(&mut driver, &mut nic, &command), (Status::Ok, 0));
    }
    nic.receive(0, &frame, 0);
    assert_eq!(
        run(&mut driver, &mut nic, &Command::Commit { fence: Some(9) }).0,
        Status::Ok
    );
    assert_eq!(nic.receive(0, &frame, 0), Some(1));
    assert_eq!(
        received(&mut driver, 0),
        [Ok(frame.clone()), Ok(frame.clone()), Err(9)]
    );
    assert_eq!(received(&mut driver, 1), [Err(9), Ok(frame)]);
    let count = Command::ReadCount {
        counter: Counter::Received,
        queue: 0,
    };
    assert_eq!(run(&mut driver, &mut nic, &count), (Status::Ok, 2));
}

#[test]
fn a_queue_that_nobody_reads_drops_frames_and_still_takes_four_fences() {
    let (mut driver, mut nic) = pair();
    let frame = frames::chains().remove(1).1;
    let taken = (0..20).filter(|_| nic.receive(0, &frame, 0).is_some()).count();
    assert_eq!(taken, 12, "16 completions, 4 of them for fences");
    for number in 0..4 {
        assert_eq!(
            run(&mut driver, &mut nic, &Command::Fence { number }).0,
            Status::Ok
        );
    }
    assert_eq!(
        run(&mut driver, &mut nic, &Command::Fence { number: 4 }).0,
        Status::Busy
    );
    assert_eq!(received(&mut driver, 0).len(), 16);
    assert_eq!(received(&mut driver, 1).len(), 4);
    nic.poll();
    assert_eq!(nic.receive(0, &frame, 0), Some(0));
}

#[test]
fn the_registers_show_the_counters_and_a_frame_longer_than_a_buffer_is_one_of_a_wrong_length() {
    let (mut driver, mut nic) = pair();
    let frame = frames::chains().remove(1).1;
    for _ in 0..20 {
        nic.receive(0, &frame, 0);
    }
    for size in [13, 2049, 9601] {
        assert_eq!(nic.receive(0, &vec![0; size], 0), None, "{size} bytes");
    }
    nic.poll();
    let register = |name: &str, counter: usize| driver.memory.read_register(name, 2 * counter);
    let shown: Vec<u32> = (0..6).map(|counter| register("COUNT", counter)).collect();
    assert_eq!(shown, [20, 0, 0, 3, 0, 0]);
    assert_eq!([register("NO_BUFFER", 0), register("NO_BUFFER", 1)], [8, 0]);
    let counter = Counter::BadLength;
    let count = Command::ReadCount { counter, queue: 0 };
    assert_eq!(run(&mut driver, &mut nic, &count), (Status::Ok, 3));
}

#[test]
fn a_device_that_is_disabled_and_enabled_again_is_empty_and_its_rings_begin_at_0() {
    let (mut driver, mut nic) = pair();
    let frame = frames::chains().remove(1).1;
    let commit = Command::Commit { fence: Some(1) };
    for round in 0..3 {
        assert!(!nic.has_buckets());
        assert_eq!(run(&mut driver, &mut nic, &commit).0, Status::Ok);
        assert!(nic.has_buckets());
        assert_eq!(driver.memory.read_register("GENERATION", 0), 1);
        // The ring has 16 completions: the second pass begins in each round.
        for _ in 0..17 {
            assert_eq!(nic.receive(0, &frame, 0), Some(0), "round {round}");
            assert!(!received(&mut driver, 0).is_empty());
            nic.poll();
        }
        // The command is lost, and the frame leaves.
        assert!(driver.commands.submit(&commit));
        assert!(driver.senders[0].send(frame.len(), [&frame[..]].into_iter()));
        driver.senders[0].publish();
        driver.memory.write_register("CONTROL", 0, 0);
        nic.poll();
        assert_eq!(driver.memory.read_register("STATUS", 0), 1);
        let (mut buffer, mut sent) = (Vec::new(), Vec::new());
        assert_eq!(
            nic.transmit(8, &mut buffer, |bytes| sent.extend_from_slice(bytes)),
            1
        );
        assert_eq!(sent, frame);
        nic.poll();
        assert_eq!(driver.memory.read_register("STATUS", 0), 0);
        for (name, at) in [("GENERATION", 0), ("COUNT", 0), ("NO_BUFFER", 0)] {
            assert_eq!(driver.memory.read_register(name, at), 0, "{name}");
        }
        assert_eq!(nic.transmit(8, &mut buffer, |_| panic!("it is disabled")), 0);
        driver = Driver::start(driver.memory, &Config::new(HashKeys::new(6))).unwrap();
        nic.poll();
        assert_eq!(driver.memory.read_register("STATUS", 0), 1);
        assert_eq!(nic.transmit(8, &mut buffer, |_| panic!("nothing was sent")), 0);
    }
    assert_eq!(nic.violations(), 0);
}

#[test]
fn a_command_waits_while_its_completion_has_no_room() {
    let (driver, mut nic, file) = pair_and_file();
    // The driver gives commands, and takes no completion.
    let (commands, completions) = (4096, 4096 + 128 + 256 * 16);
    let mut given = 0_u16;
    let mut give = |nic: &mut SoftwareNic, number: u16| {
        given += number;
        file.write_all_at(&given.to_le_bytes(), commands + 6).unwrap();
        (0..8).map(|_| nic.poll()).sum::<usize>()
    };
    let done: usize = (0..4).map(|_| give(&mut nic, 64)).sum();
    assert_eq!((done, give(&mut nic, 64)), (256, 0));
    file.write_all_at(&10_u16.to_le_bytes(), completions + 64)
        .unwrap();
    assert_eq!(give(&mut nic, 0), 10);
    assert_eq!(nic.violations(), 0);
    drop(driver);
}

#[test]
fn a_device_that_names_buffers_it_does_not_have_is_found_out() {
    let (mut driver, _nic) = pair();
    let (memory, _file) = Memory::create(LAYOUT).unwrap();
    // A device of our own writes to the memory of the driver.
    drop(memory);
    let mut device = millrace_nic::device::Device::new(driver.memory.clone()).unwrap();
    let completion = |buffer, length, bucket| millrace_nic::Completion {
        buffer,
        length,
        bucket,
        ..millrace_nic::Completion::default()
    };
    device.complete(0, &completion(15, 60, 0), &[]);
    assert_eq!(
        driver.receivers[0].receive(|_| true),
        Err(Violation::Buffer(15)),
        "it has 12"
    );
    device.complete(1, &completion(3, 2049, 0), &[]);
    assert_eq!(
        driver.receivers[1].receive(|_| true),
        Err(Violation::Length(2049))
    );
    let (mut driver, _nic) = pair();
    let mut device = millrace_nic::device::Device::new(driver.memory.clone()).unwrap();
    device.complete(0, &completion(3, 60, 1024), &[]);
    assert_eq!(
        driver.receivers[0].receive(|_| true),
        Err(Violation::Bucket(1024))
    );
    // A buffer that was given back with the first completion is the device's again; one completion names it once.
    device.complete(1, &completion(3, 60, 0), &[]);
    assert_eq!(driver.receivers[1].receive(|_| true), Ok(1));
}

#[test]
fn memory_of_something_else_is_refused_with_the_reason() {
    let (memory, file) = Memory::create(LAYOUT).unwrap();
    for (name, value, wrong) in [
        ("ID", 1, MemoryError::Id(1)),
        (
            "VERSION",
            0x0002_0003,
            MemoryError::Version { major: 2, minor: 3 },
        ),
    ] {
        let right = memory.read_register(name, 0);
        memory.write_register(name, 0, value);
        assert_eq!(Memory::open(file.try_clone().unwrap()).err(), Some(wrong));
        memory.write_register(name, 0, right);
    }
    for (name, value) in [
        ("CAP_QUEUES", 33),
        ("CAP_QUEUES", 32 | 1 << 8),
        ("CAP_MEMORY", 13),
        ("CAP_MEMORY", 4),
    ] {
        let right = memory.read_register(name, 0);
        memory.write_register(name, 0, value);
        let refused = Memory::open(file.try_clone().unwrap());
        assert!(
            matches!(refused, Err(MemoryError::Capabilities { .. })),
            "{name} {value}"
        );
        memory.write_register(name, 0, right);
    }
    assert!(Memory::open(file).is_ok());
}

/// Size in bytes of registers and rings of [`LAYOUT`], before the buffers.
const RINGS_SIZE: usize = 4096 + 2 * (128 + 16 * 256) + 2 * (3 * 128 + 16 * (16 + 32 + 16));

#[test]
fn whatever_is_written_to_the_memory_each_side_stays_within_its_buffers() {
    let mut random = frames::Random::new(77);
    let (mut frames_taken, mut violations, mut ignored) = (0, 0, 0);
    for _ in 0..60 {
        let (mut driver, mut nic, file) = pair_and_file();
        let frame = frames::chains().remove(1).1;
        for _ in 0..80 {
            for _ in 0..random.below(4) {
                // Rings, and rarely a register; small numbers come near valid ones.
                let first = if random.once_in(20) { 0 } else { 4096 };
                let at = first + random.below((RINGS_SIZE - first) / 2) * 2;
                let value = random.bits() >> (8 * random.below(8));
                let size = random.pick(&[2, 4, 8]);
                file.write_at(&value.to_le_bytes()[..size], at as u64).unwrap();
            }
            nic.poll();
            nic.receive(0, &frame, 0);
            nic.transmit(8, &mut Vec::new(), |frame| assert!(frame.len() <= 2048));
            driver.commands.submit(&Command::Fence { number: 1 });
            violations += usize::from(driver.commands.poll().is_err());
            let sender = &mut driver.senders[0];
            match sender.room() {
                Ok(0) => {}
                Ok(_) => {
                    sender.send(60, [&[1_u8; 60][..]].into_iter());
                    sender.publish();
                }
                Err(_) => violations += 1,
            }
            let receiver = &mut driver.receivers[random.below(2)];
            let taken = receiver.receive(|entry| {
                if let Entry::Frame { bytes, completion } = entry {
                    assert!(bytes.size() <= 2048 && completion.bucket < 1024);
                    bytes.read(&mut [0; 2048]);
                    frames_taken += 1;
                }
                true
            });
            if taken.is_err() {
                violations += 1;
                break;
            }
        }
        ignored += nic.violations();
    }
    assert!(
        frames_taken > 100 && violations > 10 && ignored > 10,
        "{frames_taken} {violations} {ignored}"
    );
}
