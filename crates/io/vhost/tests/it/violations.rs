//! Drivers that violate the protocol: the device names each violation, and drops a frame with an invalid
//! header.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::driver::{
    BUFFERS, Burst, Driver, GUEST, HALF, INDIRECT, LIMITS, NEXT, USER, WRITE, empties, memfd, plain,
};
use millrace_vhost::memory::{Memory, MemoryRegion, REGIONS_MAX, UnsealedPolicy};
use millrace_vhost::ring::{Receiver, Sender, Setup};
use millrace_vhost::{Features, MessageError, ProtocolViolation};
use millrace_wire::{Frame, FramePool};

const KINDS: [bool; 2] = [false, true];
const PLACE: u64 = GUEST + BUFFERS;
const END: u64 = GUEST + 2 * HALF;

/// Returns the outcome of a receiver, and of a sender, for the same state of the ring.
fn said(is_packed: bool, act: impl Fn(&mut Driver, u16)) -> [Option<ProtocolViolation>; 2] {
    let pool = FramePool::new(32, 2048);
    let mut driver = Driver::new(8, plain(is_packed));
    let mut receiver = Receiver::open(&driver.setup(), LIMITS).unwrap();
    act(&mut driver, 0);
    let mut burst = Burst::new();
    burst.push(Frame::new(b"first"));
    let received = receiver.receive(&mut burst, empties(&pool)).err();
    if received.is_some() {
        assert_eq!(burst.len(), 1, "it is as it was");
        assert_eq!(pool.free_len(), 32);
    }
    let mut driver = Driver::new(8, plain(is_packed));
    let mut sender = Sender::open(&driver.setup()).unwrap();
    act(&mut driver, WRITE);
    let mut burst: Burst = (0..9).map(|_| Frame::new(&[7; 60])).collect();
    let sent = sender.send(&mut burst).err();
    if sent.is_some() {
        assert_eq!(burst.len(), 9, "it is as it was");
    }
    [received, sent]
}

fn both(violation: ProtocolViolation) -> [Option<ProtocolViolation>; 2] {
    [Some(violation), Some(violation)]
}

#[test]
fn an_index_that_runs_ahead_or_back_is_a_violation() {
    for to in [9, 0x7fff, 0x8000, 0xffff] {
        let violations = said(false, |driver, _| {
            driver.available.at(1).store(to, Ordering::Relaxed);
        });
        assert_eq!(
            violations,
            both(ProtocolViolation::Index { from: 0, to, room: 8 })
        );
    }
    let pool = FramePool::new(32, 2048);
    let driver = Driver::new(8, plain(false));
    let mut receiver = Receiver::open(&driver.setup(), LIMITS).unwrap();
    driver.describe(0, PLACE, 20, 0, 0);
    let mut receive = |to| {
        driver.available.at(1).store(to, Ordering::Relaxed);
        receiver.receive(&mut Burst::new(), empties(&pool))
    };
    assert_eq!(receive(5).unwrap().frames, 5);
    for to in [4, 14] {
        assert_eq!(
            receive(to),
            Err(ProtocolViolation::Index { from: 5, to, room: 8 })
        );
    }
}

#[test]
fn descriptors_that_there_are_not_are_violations() {
    let violations = said(false, |driver, _| driver.announce(8));
    assert_eq!(
        violations,
        both(ProtocolViolation::Descriptor { index: 8, len: 8 })
    );
    let violations = said(false, |driver, flags| {
        driver.describe(0, PLACE, 20, flags | NEXT, 0xffff);
        driver.announce(0);
    });
    let violation = ProtocolViolation::Descriptor {
        index: 0xffff,
        len: 8,
    };
    assert_eq!(violations, both(violation));
}

#[test]
fn buffers_outside_of_memory_are_violations() {
    for is_packed in KINDS {
        for (guest, size) in [
            (0, 20),
            (GUEST - 1, 20),
            (END, 20),
            (u64::MAX, 20),
            (u64::MAX - 10, u32::MAX),
            (GUEST.wrapping_sub(1 << 63), 20),
        ] {
            let violations = said(is_packed, |driver, flags| {
                driver.offer(&[(guest, size)], flags, false).unwrap();
            });
            assert_eq!(
                violations,
                both(ProtocolViolation::Outside { guest, size }),
                "{guest:#x}"
            );
        }
        // A buffer that begins in a region must end there.
        for (guest, size) in [(END - 19, 20), (END - 1, u32::MAX), (PLACE, u32::MAX)] {
            let violations = said(is_packed, |driver, flags| {
                driver.offer(&[(guest, size)], flags, false).unwrap();
            });
            let is_named = |violation: &Option<ProtocolViolation>| {
                matches!(violation, Some(ProtocolViolation::Outside { guest: END, .. }))
            };
            assert!(violations.iter().all(is_named), "{guest:#x} {violations:?}");
        }
    }
}

#[test]
fn buffers_for_the_other_direction_are_violations() {
    for is_packed in KINDS {
        for (len, is_indirect) in [(1, false), (2, false), (1, true), (2, true)] {
            let violations = said(is_packed, |driver, flags| {
                let buffers = [(PLACE, 20); 2];
                driver.offer(&buffers[..len], flags ^ WRITE, is_indirect).unwrap();
            });
            for violation in violations {
                assert!(
                    matches!(violation, Some(ProtocolViolation::Direction { .. })),
                    "{violation:?}"
                );
            }
        }
    }
}

#[test]
fn chains_without_end_are_violations() {
    let violations = said(false, |driver, flags| {
        driver.describe(0, PLACE, 4, flags | NEXT, 1);
        driver.describe(1, PLACE, 4, flags | NEXT, 0);
        driver.announce(0);
    });
    assert_eq!(violations, both(ProtocolViolation::Chain));
    // An empty indirect table.
    let violations = said(false, |driver, flags| {
        driver.describe(0, PLACE, 0, flags | NEXT, 0);
        driver.announce(0);
    });
    assert_eq!(violations, both(ProtocolViolation::Chain));
    let violations = said(true, |driver, flags| {
        for index in 0..8 {
            driver.describe(index, PLACE, 1, flags | NEXT | driver.available_flags(), 0);
        }
    });
    assert_eq!(violations, both(ProtocolViolation::Chain));
    // Inside an indirect table.
    let violations = said(false, |driver, flags| {
        let word = 4 | u64::from(flags | NEXT) << 32;
        let mut bytes = PLACE.to_le_bytes().to_vec();
        bytes.extend(word.to_le_bytes());
        driver.put(PLACE, &bytes);
        driver.describe(0, PLACE, 16, INDIRECT, 0);
        driver.announce(0);
    });
    assert_eq!(violations, both(ProtocolViolation::Chain));
    let violations = said(true, |driver, flags| {
        let mut table = Vec::new();
        for _ in 0..300 {
            table.extend(PLACE.to_le_bytes());
            table.extend((u64::from(flags) << 48).to_le_bytes());
        }
        driver.put(PLACE, &table);
        driver.describe(
            0,
            PLACE,
            table.len() as u32,
            INDIRECT | driver.available_flags(),
            0,
        );
    });
    assert_eq!(violations, both(ProtocolViolation::Chain));
}

#[test]
fn tables_that_are_none_are_violations() {
    for is_packed in KINDS {
        let table = |guest, size, more: u16| {
            said(is_packed, |driver, _| {
                let turn = if is_packed { driver.available_flags() } else { 0 };
                driver.describe(0, guest, size, INDIRECT | more | turn, 0);
                if !is_packed {
                    driver.announce(0);
                }
            })
        };
        for size in [0, 8, 15, 17, u32::MAX] {
            assert_eq!(table(PLACE, size, 0), both(ProtocolViolation::Table { size }));
        }
        assert_eq!(
            table(PLACE, 16, NEXT),
            both(ProtocolViolation::Table { size: 16 })
        );
        for (guest, size) in [(END - 16, 32), (END, 16), (GUEST + HALF - 16, 32)] {
            assert_eq!(
                table(guest, size, 0),
                both(ProtocolViolation::Outside { guest, size })
            );
        }
        // An indirect table in an indirect table.
        let violations = said(is_packed, |driver, _| {
            driver.offer(&[(PLACE, 16)], INDIRECT, true).unwrap();
        });
        assert_eq!(violations, both(ProtocolViolation::Table { size: 16 }));
    }
    // A descriptor index outside of the indirect table.
    let violations = said(false, |driver, flags| {
        let mut bytes = PLACE.to_le_bytes().to_vec();
        bytes.extend((4 | u64::from(flags | NEXT) << 32 | 1 << 48).to_le_bytes());
        driver.put(PLACE, &bytes);
        driver.describe(0, PLACE, 16, INDIRECT, 0);
        driver.announce(0);
    });
    assert_eq!(
        violations,
        both(ProtocolViolation::Descriptor { index: 1, len: 1 })
    );
}

#[test]
fn chains_that_hold_no_header_are_violations() {
    for is_packed in KINDS {
        for size in [0, 1, 11] {
            let violations = said(is_packed, |driver, flags| {
                driver.offer(&[(PLACE, size)], flags, false).unwrap();
            });
            let size = size as usize;
            assert_eq!(violations, both(ProtocolViolation::Short { size, expected: 12 }));
        }
    }
}

#[test]
fn a_later_chain_of_a_frame_that_holds_no_header_is_a_violation() {
    for is_packed in KINDS {
        for size in [0, 11] {
            let violations = said(is_packed, |driver, flags| {
                driver.offer(&[(PLACE, 20)], flags, false).unwrap();
                driver.offer(&[(PLACE, size)], flags, false).unwrap();
            });
            let size = size as usize;
            assert_eq!(violations, both(ProtocolViolation::Short { size, expected: 12 }));
        }
    }
}

#[test]
fn empty_buffers_count_towards_the_limit_of_a_chain() {
    for is_packed in KINDS {
        let [received, sent] = said(is_packed, |driver, flags| {
            // Two chains name one table: 255 empty buffers, and one that holds a header.
            let mut table = Vec::new();
            for index in 0..256_u16 {
                let is_last = index == 255;
                let next = if is_last || is_packed { 0 } else { NEXT };
                table.extend(PLACE.to_le_bytes());
                let word = driver.word(if is_last { 12 } else { 0 }, flags | next, index + 1);
                table.extend(word.to_le_bytes());
            }
            driver.put(PLACE, &table);
            let turn = if is_packed { driver.available_flags() } else { 0 };
            for chain in 0..2 {
                driver.describe(chain, PLACE, table.len() as u32, INDIRECT | turn, chain);
                if !is_packed {
                    driver.announce(chain);
                }
            }
        });
        assert_eq!(received, None, "each chain alone is within the limit");
        assert_eq!(sent, Some(ProtocolViolation::Chain));
    }
}

#[test]
fn memory_that_is_none_or_can_be_taken_back_is_refused() {
    let region = |size| MemoryRegion {
        guest: GUEST,
        size,
        user: USER,
        offset: 4096,
    };
    let open = |region, file| Memory::open([(region, file)], UnsealedPolicy::Reject).err();
    assert_eq!(open(region(4096), memfd(8192)), None);
    let short = MessageError::FileSize {
        index: 0,
        offset: 4096,
        size: 4097,
        found: 8192,
    };
    assert_eq!(open(region(4097), memfd(8192)), Some(short));
    assert!(matches!(
        open(region(0), memfd(8192)),
        Some(MessageError::RegionSize { .. })
    ));
    for far in [
        MemoryRegion {
            guest: u64::MAX - 4094,
            ..region(4096)
        },
        MemoryRegion {
            user: u64::MAX - 4094,
            ..region(4096)
        },
        MemoryRegion {
            offset: u64::MAX - 4094,
            ..region(4096)
        },
        region(u64::MAX),
    ] {
        assert!(
            matches!(open(far, memfd(8192)), Some(MessageError::RegionSize { .. })),
            "{far:?}"
        );
    }
    let null = || std::fs::File::open("/dev/null").unwrap().into();
    assert_eq!(
        open(region(4096), null()),
        Some(MessageError::NotMemory { index: 0 })
    );
    let many = (0..=REGIONS_MAX).map(|_| (region(4096), memfd(8192)));
    assert_eq!(
        Memory::open(many, UnsealedPolicy::Reject).err(),
        Some(MessageError::Regions)
    );
    // Memory that can shrink, and does.
    let file = rustix::fs::memfd_create("t", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    rustix::fs::ftruncate(&file, 8192).unwrap();
    let copy = || file.try_clone().unwrap();
    assert_eq!(
        open(region(4096), copy()),
        Some(MessageError::NotSealed { index: 0 })
    );
    let memory = Memory::open([(region(4096), copy())], UnsealedPolicy::Accept).unwrap();
    assert!(memory.can_shrink());
    assert_eq!(memory.check(), Ok(()));
    rustix::fs::ftruncate(&file, 8191).unwrap();
    assert_eq!(memory.check(), Err(MessageError::Shrunk { index: 0 }));
}

#[test]
fn rings_that_are_not_in_memory_or_cannot_be_are_refused() {
    for is_packed in KINDS {
        let good = Driver::new(8, plain(is_packed)).setup();
        let refused = |setup: Setup| {
            let refusal = Receiver::open(&setup, LIMITS).err().unwrap();
            assert_eq!(Sender::open(&setup).err(), Some(refusal));
            refusal
        };
        for size in [0, 32_769, 65_536, u32::MAX] {
            let refusal = refused(Setup { size, ..good.clone() });
            assert_eq!(refusal, MessageError::RingSize { size });
        }
        let end = USER + 2 * HALF;
        for user in [0, 8, end, end - 1, end - 4, u64::MAX, u64::MAX - 3, USER + 0x1001] {
            for setup in [
                Setup {
                    descriptors: user,
                    ..good.clone()
                },
                Setup {
                    driver: user,
                    ..good.clone()
                },
                Setup {
                    device: user,
                    ..good.clone()
                },
            ] {
                // The event suppression structures of a packed ring are four bytes long.
                if is_packed && user == end - 4 && setup.descriptors != user {
                    assert!(Receiver::open(&setup, LIMITS).is_ok());
                    continue;
                }
                let refusal = refused(setup);
                assert!(
                    matches!(refusal, MessageError::RingOutside { .. }),
                    "{user:#x} {refusal}"
                );
            }
        }
        let across = Setup {
            descriptors: USER + HALF - 64,
            ..good
        };
        assert!(matches!(refused(across), MessageError::RingOutside { .. }));
    }
    let setup = Driver::new(8, plain(false)).setup();
    let refusal = Receiver::open(&Setup { size: 7, ..setup }, LIMITS).err();
    assert_eq!(refusal, Some(MessageError::RingSize { size: 7 }));
    let setup = Driver::new(8, plain(true)).setup();
    let base = 0x8008;
    let refusal = Receiver::open(&Setup { base, ..setup }, LIMITS).err();
    assert_eq!(refusal, Some(MessageError::RingBase { size: 8, base }));
    // The driver shares no memory at all.
    let memory = Arc::new(Memory::open([], UnsealedPolicy::Reject).unwrap());
    let setup = Setup {
        memory,
        ..Driver::new(8, Features::NONE).setup()
    };
    assert!(Receiver::open(&setup, LIMITS).is_err());
}
