//! Driver and device in one process, connected by a socket and by the messages that they exchange.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arrayvec::ArrayVec;
use millrace_vhost::driver::{BUFFER, DeviceViolation, Driver, DriverError, FRAME_AT, FRAME_MAX};
use millrace_vhost::memory::{Memory, MemoryRegion, UnsealedPolicy};
use millrace_vhost::message::Message;
use millrace_vhost::ring::{Limits, Receiver, Sender, Setup};
use millrace_vhost::session::{Device, RingConfig, Session};
use millrace_vhost::{Connection, Features, MessageError, ProtocolViolation};
use millrace_wire::{Frame, FramePool, Packet as _};

const BOUND: Duration = Duration::from_secs(60);
const LIMITS: Limits = Limits {
    frame_size: 4096,
    mtu: 1500,
    is_segmented: false,
};

/// The rings of the switch, which is the device.
struct Rings {
    pool: FramePool,
    memory: Option<Arc<Memory>>,
    send: Option<Sender>,
    receive: Option<Receiver>,
}

impl Device for Rings {
    type Fd = OwnedFd;

    fn share(&mut self, memory: Vec<(MemoryRegion, OwnedFd)>) -> Result<(), MessageError> {
        self.memory = Some(Arc::new(Memory::open(memory, UnsealedPolicy::Reject)?));
        Ok(())
    }

    fn start(&mut self, ring: u16, config: &RingConfig) -> Result<(), MessageError> {
        let setup = Setup {
            memory: self.memory.clone().unwrap(),
            size: config.size,
            descriptors: config.addresses.descriptors,
            driver: config.addresses.driver,
            device: config.addresses.device,
            base: config.base,
            features: config.features,
        };
        match ring {
            0 => self.send = Some(Sender::open(&setup)?),
            _ => self.receive = Some(Receiver::open(&setup, LIMITS)?),
        }
        Ok(())
    }

    fn stop(&mut self, ring: u16) -> Option<u32> {
        match ring {
            0 => self.send.take().map(|ring| ring.base()),
            _ => self.receive.take().map(|ring| ring.base()),
        }
    }

    fn call(&mut self, _: u16, _: Option<OwnedFd>) {}
}

type Burst = ArrayVec<Frame, 64>;

impl Rings {
    fn new() -> Rings {
        Rings {
            pool: FramePool::new(64, 4096),
            memory: None,
            send: None,
            receive: None,
        }
    }

    fn send(&mut self, frames: &[Vec<u8>]) -> usize {
        let mut burst: Burst = frames.iter().map(|bytes| Frame::new(bytes)).collect();
        self.send.as_mut().unwrap().send(&mut burst).unwrap().packets
    }

    fn receive(&mut self) -> Result<Vec<Vec<u8>>, ProtocolViolation> {
        let mut burst = Burst::new();
        let pool = &self.pool;
        let empty = |count, burst: &mut Burst| burst.extend((0..count).map_while(|_| pool.take(&[])));
        self.receive.as_mut().unwrap().receive(&mut burst, empty)?;
        Ok(burst.iter().map(|frame| frame.head().to_vec()).collect())
    }
}

fn socket(dir: &tempfile::TempDir) -> (PathBuf, UnixListener) {
    let path = dir.path().join("socket");
    let listener = UnixListener::bind(&path).unwrap();
    (path, listener)
}

/// Returns a device that offers these features, and a driver that is connected to it.
fn pair(features: Features, len: u16) -> (Rings, Connection, Driver) {
    let dir = tempfile::tempdir().unwrap();
    let (path, listener) = socket(&dir);
    let switch = std::thread::spawn(move || {
        let mut line = Connection::new(listener.accept().unwrap().0.into());
        let (mut session, mut rings) = (Session::new(1, features), Rings::new());
        let deadline = Instant::now() + BOUND;
        while !session.is_up() {
            assert!(Instant::now() < deadline, "the driver says nothing");
            let Some(received) = line.receive().unwrap() else {
                std::thread::yield_now();
                continue;
            };
            let reply = session
                .receive(received.message, received.needs_reply, received.fds, &mut rings)
                .unwrap();
            if let Some(reply) = reply {
                line.send(&reply).unwrap();
            }
        }
        (rings, line)
    });
    let driver = Driver::connect(&path, len).unwrap();
    let (rings, line) = switch.join().unwrap();
    (rings, line, driver)
}

/// Returns a frame that has its number at the beginning and at the end.
fn frame(number: u32, size: usize) -> Vec<u8> {
    let mut bytes = vec![number as u8; size];
    bytes[..4].copy_from_slice(&number.to_be_bytes());
    bytes
}

/// Applies the network function's treatment of every third frame, in rotation: drop it, prepend four bytes, remove six
/// bytes.
fn expected(number: u32, bytes: &[u8]) -> Option<Vec<u8>> {
    match number % 9 {
        2 => None,
        5 => Some([&[1, 2, 3, 4], bytes].concat()),
        8 => Some(bytes[6..].to_vec()),
        _ => Some(bytes.to_vec()),
    }
}

fn work(driver: &mut Driver, next: &mut u32) -> Result<usize, DeviceViolation> {
    let batch = driver.receive()?;
    let mut places = Vec::new();
    for (buffer, size) in driver.buffers(&batch).zip(batch.sizes()) {
        let (number, size) = (*next, usize::from(*size));
        *next += 1;
        assert_eq!(buffer[FRAME_AT..FRAME_AT + 4], number.to_be_bytes());
        places.push(match number % 9 {
            2 => None,
            5 => {
                buffer[FRAME_AT - 4..FRAME_AT].copy_from_slice(&[1, 2, 3, 4]);
                Some(FRAME_AT - 4..FRAME_AT + size)
            }
            8 => Some(FRAME_AT + 6..FRAME_AT + size),
            _ => Some(FRAME_AT..FRAME_AT + size),
        });
    }
    driver.send(&batch, places);
    driver.flush()?;
    Ok(batch.sizes().len())
}

#[test]
fn frames_come_back_in_order_as_the_function_left_them() {
    let promised = Features::offered(false);
    let unpromised = Features::from_bits(promised.bits() & !Features::IN_ORDER.bits());
    for (features, len) in [(promised, 256), (promised, 2), (unpromised, 64)] {
        let (mut rings, _line, mut driver) = pair(features, len);
        let deadline = Instant::now() + 4 * BOUND;
        let (mut sent, mut seen, mut due) = (0_u32, 0_u32, VecDeque::new());
        // More frames than the 16-bit indices count.
        let total = 70_000;
        while sent < total || !due.is_empty() {
            let more = (1 + sent * 7 % 33).min(2 * u32::from(len)).min(total - sent);
            let frames: Vec<Vec<u8>> = (sent..sent + more)
                .map(|number| frame(number, 60 + (number as usize * 31) % 1400))
                .collect();
            let went = rings.send(&frames);
            for (number, bytes) in (sent..).zip(&frames[..went]) {
                due.extend(expected(number, bytes));
            }
            sent += went as u32;
            assert!(
                Instant::now() < deadline,
                "{sent} sent, {seen} seen, {} due",
                due.len()
            );
            work(&mut driver, &mut seen).unwrap();
            for bytes in rings.receive().unwrap() {
                assert_eq!(Some(bytes), due.pop_front());
            }
        }
        while seen < total {
            work(&mut driver, &mut seen).unwrap();
        }
        // The next flush sees the last returned buffers.
        driver.flush().unwrap();
        let room: usize = (0..=len / 32)
            .map(|_| rings.send(&vec![frame(seen, 60); 32]))
            .sum();
        assert_eq!(room, len.into(), "each buffer is there again");
    }
}

#[test]
fn a_frame_longer_than_a_buffer_does_not_come_and_the_longest_does() {
    let (mut rings, _line, mut driver) = pair(Features::offered(false), 4);
    rings.send(&[frame(0, FRAME_MAX), frame(1, FRAME_MAX + 1), frame(2, 60)]);
    let batch = driver.receive().unwrap();
    assert_eq!(batch.sizes(), [FRAME_MAX as u16, 60]);
    assert!(driver.buffers(&batch).all(|buffer| buffer.len() == BUFFER));
}

#[test]
fn what_does_not_fit_into_its_buffer_is_not_sent() {
    let (mut rings, _line, mut driver) = pair(Features::offered(false), 4);
    rings.send(&[frame(0, 60), frame(1, 60), frame(2, 60)]);
    let batch = driver.receive().unwrap();
    let places = [
        Some(11..71),
        Some(FRAME_AT..FRAME_AT + FRAME_MAX + 1),
        Some(usize::MAX..2),
    ];
    driver.send(&batch, places);
    driver.flush().unwrap();
    assert!(rings.receive().unwrap().is_empty());
    assert_eq!(rings.send(&vec![frame(0, 60); 4]), 4, "nothing is kept");
}

#[test]
fn a_switch_that_goes_is_seen_and_one_of_another_kind_refused() {
    let (_rings, line, driver) = pair(Features::offered(false), 4);
    assert!(driver.is_connected());
    drop(line);
    assert!(!driver.is_connected());

    let dir = tempfile::tempdir().unwrap();
    let (path, listener) = socket(&dir);
    let switch = std::thread::spawn(move || {
        let mut line = Connection::new(listener.accept().unwrap().0.into());
        let asked = loop {
            if let Some(received) = line.receive().unwrap() {
                break received.message;
            }
        };
        assert_eq!(asked, Message::GetFeatures);
        line.send(&millrace_vhost::message::Reply::number(1, 7)).unwrap();
    });
    let refused = Driver::connect(&path, 4).unwrap_err();
    assert!(
        matches!(refused, DriverError::Features { offered: 7, .. }),
        "{refused}"
    );
    switch.join().unwrap();
    for len in [0, 1, 3, 48] {
        let refused = Driver::connect(&path, len).unwrap_err();
        assert!(matches!(refused, DriverError::Length { .. }), "{refused}");
    }
    drop(dir);
    let refused = Driver::connect(&path, 4).unwrap_err();
    assert!(matches!(refused, DriverError::Connect { .. }), "{refused}");
}
