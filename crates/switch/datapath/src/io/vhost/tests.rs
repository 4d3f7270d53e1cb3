//! Tests with a driver of split rings. The driver's memory is a file, which the tests read and write without
//! mapping it.

use std::fs::File;
use std::io::{IoSlice, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use millrace_vhost::Features;
use millrace_vhost::memory::MemoryRegion;
use millrace_vhost::message::{Addresses, Message, RingMessage};
use millrace_wire::Frame;
use rustix::cmsg_space;
use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

use crate::io::{
    Backend, Burst, DeviceOptions, DeviceSpec, HeapBackend, Opened, SocketAccess, VnicKind, VnicSpec,
};

const BOUND: Duration = Duration::from_secs(60);
const RING: u16 = 64;
const GUEST: u64 = 0x10_0000;
const USER: u64 = 0x7f00_0000_0000;
const SIZE: u64 = 4 << 20;
const RING_SIZE: u64 = 0x4000;
const AVAIL: u64 = 0x1000;
const USED: u64 = 0x2000;
const BUFFERS: u64 = 0x10_0000;
const BUFFER: u64 = 2048;
const HEADER: usize = 12;
const WRITE: u16 = 2;

/// A connected driver, which handles only the replies of the switch.
struct Driver {
    stream: UnixStream,
    memory: File,
    offered: [u16; 4],
    seen: [u16; 4],
}

impl Driver {
    fn new(stream: UnixStream) -> Driver {
        let memory = memfd_create("guest", MemfdFlags::ALLOW_SEALING).unwrap();
        let memory = File::from(memory);
        memory.set_len(SIZE).unwrap();
        fcntl_add_seals(&memory, SealFlags::SHRINK).unwrap();
        stream.set_read_timeout(Some(BOUND)).unwrap();
        Driver {
            stream,
            memory,
            offered: [0; 4],
            seen: [0; 4],
        }
    }

    fn connect(path: &Path) -> Driver {
        Driver::new(UnixStream::connect(path).unwrap())
    }

    fn say(&self, message: &Message, fds: &[BorrowedFd<'_>]) {
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(8))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !fds.is_empty() {
            control.push(SendAncillaryMessage::ScmRights(fds));
        }
        let bytes = message.encode(false);
        sendmsg(
            &self.stream,
            &[IoSlice::new(&bytes)],
            &mut control,
            SendFlags::NOSIGNAL,
        )
        .unwrap();
    }

    fn answer(&mut self) -> u64 {
        let mut bytes = [0; 20];
        self.stream.read_exact(&mut bytes).unwrap();
        u64::from_le_bytes(bytes[12..].try_into().unwrap())
    }

    fn ask(&mut self, message: &Message) -> u64 {
        self.say(message, &[]);
        self.answer()
    }

    fn share(&self) {
        let region = MemoryRegion {
            guest: GUEST,
            size: SIZE,
            user: USER,
            offset: 0,
        };
        self.say(&Message::SetMemory(vec![region]), &[self.memory.as_fd()]);
    }

    fn ring(&self, ring: u16) {
        let at = USER + u64::from(ring) * RING_SIZE;
        let addresses = Addresses {
            descriptors: at,
            driver: at + AVAIL,
            device: at + USED,
        };
        let number = u32::from(ring);
        for message in [
            RingMessage::Size(RING.into()),
            RingMessage::Base(0),
            RingMessage::Addresses(addresses),
            RingMessage::Call { has_fd: false },
        ] {
            self.say(&Message::Ring(number, message), &[]);
        }
        self.kick(ring);
    }

    fn kick(&self, ring: u16) {
        let kick = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
        let message = Message::Ring(ring.into(), RingMessage::Kick { has_fd: true });
        self.say(&message, &[kick.as_fd()]);
    }

    /// Sends all messages that a driver sends before packets flow, for this many queue pairs.
    fn run(mut self, pairs: u16) -> Driver {
        self.say(&Message::SetOwner, &[]);
        let offered = Features::from_bits(self.ask(&Message::GetFeatures));
        assert!(offered.contains(Features::VERSION_1));
        self.say(&Message::SetFeatures(Features::VERSION_1.bits()), &[]);
        self.share();
        for ring in 0..2 * pairs {
            self.ring(ring);
        }
        for _ in 0..RING / 2 {
            self.offer_buffer();
        }
        self
    }

    fn put(&self, at: u64, bytes: &[u8]) {
        self.memory.write_all_at(bytes, at).unwrap();
    }

    fn number(&self, at: u64) -> u16 {
        let mut bytes = [0; 2];
        self.memory.read_exact_at(&mut bytes, at).unwrap();
        u16::from_le_bytes(bytes)
    }

    fn buffer(ring: u16, at: u16) -> u64 {
        BUFFERS + u64::from(ring * RING + at) * BUFFER
    }

    fn offer(&mut self, ring: u16, address: u64, size: u32, flags: u16) {
        let offered = &mut self.offered[usize::from(ring)];
        let (at, from) = (*offered % RING, u64::from(ring) * RING_SIZE);
        let mut descriptor = address.to_le_bytes().to_vec();
        descriptor.extend(size.to_le_bytes());
        descriptor.extend(flags.to_le_bytes());
        descriptor.extend([0; 2]);
        *offered = offered.wrapping_add(1);
        let offered = *offered;
        self.put(from + 16 * u64::from(at), &descriptor);
        self.put(from + AVAIL + 4 + 2 * u64::from(at), &at.to_le_bytes());
        self.put(from + AVAIL + 2, &offered.to_le_bytes());
    }

    fn offer_buffer(&mut self) {
        let at = self.offered[0] % RING;
        self.offer(0, GUEST + Self::buffer(0, at), BUFFER as u32, WRITE);
    }

    fn send_on(&mut self, ring: u16, frame: &[u8]) {
        let offset = Self::buffer(ring, self.offered[usize::from(ring)] % RING);
        self.put(offset, &[0; HEADER]);
        self.put(offset + HEADER as u64, frame);
        self.offer(ring, GUEST + offset, (HEADER + frame.len()) as u32, 0);
    }

    fn used(&self, ring: u16) -> u16 {
        self.number(u64::from(ring) * RING_SIZE + USED + 2)
    }

    /// Returns the packets that arrived since the last call.
    fn received(&mut self) -> Vec<Vec<u8>> {
        let mut frames = Vec::new();
        while self.seen[0] != self.used(0) {
            let mut element = [0; 8];
            let at = USED + 4 + 8 * u64::from(self.seen[0] % RING);
            self.memory.read_exact_at(&mut element, at).unwrap();
            let [at, _, _, _, low, high, _, _] = element;
            let size = usize::from(u16::from_le_bytes([low, high]));
            let mut frame = vec![0; size];
            self.memory
                .read_exact_at(&mut frame, Self::buffer(0, at.into()))
                .unwrap();
            frames.push(frame.split_off(HEADER));
            self.seen[0] = self.seen[0].wrapping_add(1);
            self.offer_buffer();
        }
        frames
    }

    /// Returns true if the switch has ended the connection.
    fn is_gone(&mut self) -> bool {
        self.stream.read(&mut [0; 64]).is_ok_and(|size| size == 0)
    }
}

fn spec(path: &Path, is_server: bool) -> DeviceSpec {
    DeviceSpec::Vnic(VnicSpec {
        kind: VnicKind::Vhost { tso: false },
        path: path.to_owned(),
        access: is_server.then_some(SocketAccess {
            owner: None,
            group: None,
            mode: 0o600,
        }),
    })
}

fn open(backend: &HeapBackend, path: &Path, queues: u16, is_server: bool) -> Opened<Frame> {
    let options = DeviceOptions {
        queues,
        ..DeviceOptions::PLAIN
    };
    backend.open(&spec(path, is_server), options).unwrap()
}

fn wait_for(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + BOUND;
    while !condition() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn link_is(port: &Opened<Frame>, up: bool) {
    wait_for("the link changes", || port.device.info().link_up == up);
}

fn send(port: &mut Opened<Frame>, frames: &[&[u8]]) {
    let mut burst: Burst<Frame> = frames.iter().map(|bytes| Frame::new(bytes)).collect();
    port.tx[0].tx_burst(&mut burst);
    assert!(burst.is_empty());
}

/// Sends packets without a driver, and asserts that the remaining packets are to be dropped.
fn send_to_nobody(port: &mut Opened<Frame>) {
    let mut burst: Burst<Frame> = [Frame::new(b"a"), Frame::new(b"b")].into_iter().collect();
    port.tx[0].tx_burst(&mut burst);
    assert_eq!((burst.len(), port.tx[0].refused(2)), (2, 2));
}

fn receive(port: &mut Opened<Frame>) -> Vec<Vec<u8>> {
    let mut burst = Burst::new();
    for queue in &mut port.rx {
        queue.rx_burst(&mut burst);
    }
    burst.iter().map(|frame| frame.bytes().to_vec()).collect()
}

/// Sends packets both ways until the rings have wrapped, and asserts that each side receives them.
fn talk(port: &mut Opened<Frame>, driver: &mut Driver) {
    link_is(port, true);
    for round in 0..100_u8 {
        send(port, &[&[round; 60], &[round; 1514]]);
        driver.send_on(1, &[round; 100]);
        assert!(
            driver.received() == [vec![round; 60], vec![round; 1514]],
            "{round}"
        );
        assert!(receive(port) == [vec![round; 100]], "{round}");
    }
}

#[test]
fn drivers_come_and_go_and_the_link_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    let backend = HeapBackend::new();
    let mut port = open(&backend, &path, 1, true);
    for _ in 0..3 {
        link_is(&port, false);
        let mut driver = Driver::connect(&path).run(1);
        talk(&mut port, &mut driver);
    }
    link_is(&port, false);
    drop(port);
    assert!(!path.exists());
    assert_eq!(backend.buffers().unwrap().used, 0);
}

#[test]
fn a_driver_that_serves_the_socket_is_found_and_found_again() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    let backend = HeapBackend::new();
    let mut port = open(&backend, &path, 1, false);
    for _ in 0..2 {
        let listener = UnixListener::bind(&path).unwrap();
        let mut driver = Driver::new(listener.accept().unwrap().0).run(1);
        talk(&mut port, &mut driver);
        drop((driver, listener));
        link_is(&port, false);
        std::fs::remove_file(&path).unwrap();
    }
}

#[test]
fn a_ring_that_was_said_to_stop_is_not_touched_and_goes_on_where_it_was() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    let backend = HeapBackend::new();
    let mut port = open(&backend, &path, 1, true);
    let mut driver = Driver::connect(&path).run(1);
    talk(&mut port, &mut driver);
    for _ in 0..3 {
        let used = [driver.used(0), driver.used(1)];
        for ring in [0_u16, 1] {
            let base = driver.ask(&Message::Ring(ring.into(), RingMessage::Stop));
            assert_eq!(base >> 32, u64::from(used[usize::from(ring)]));
        }
        link_is(&port, false);
        driver.send_on(1, b"kept");
        send_to_nobody(&mut port);
        assert!(receive(&mut port).is_empty());
        assert_eq!([driver.used(0), driver.used(1)], used);
        driver.kick(0);
        driver.kick(1);
        link_is(&port, true);
        assert_eq!(receive(&mut port), [b"kept"]);
        assert!(driver.received().is_empty());
        talk(&mut port, &mut driver);
    }
}

#[test]
fn memory_may_change_under_workers_that_are_at_it_all_the_time() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    let backend = HeapBackend::new();
    let mut port = open(&backend, &path, 1, true);
    let mut driver = Driver::connect(&path).run(1);
    link_is(&port, true);
    let is_over = Arc::new(AtomicBool::new(false));
    let mut queue = port.rx.remove(0);
    let worker = std::thread::spawn({
        let is_over = Arc::clone(&is_over);
        move || {
            let mut frames = 0;
            while !is_over.load(Ordering::Acquire) {
                let mut burst: Burst<Frame> = Burst::new();
                queue.rx_burst(&mut burst);
                frames += burst.len();
            }
            frames
        }
    });
    for frame in 0..200_u16 {
        wait_for("there is room", || frame - driver.used(1) < RING);
        driver.send_on(1, b"a frame");
        driver.share();
        // The reply comes after the change.
        driver.ask(&Message::GetFeatures);
    }
    wait_for("the switch receives all", || driver.used(1) == 200);
    is_over.store(true, Ordering::Release);
    assert_eq!(worker.join().unwrap(), 200);
}

#[test]
fn a_driver_that_violates_the_protocol_is_disconnected_and_the_next_one_is_served() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    let backend = HeapBackend::new();
    let mut port = open(&backend, &path, 1, true);
    let mut errors = 0;
    for ring in [0, 1] {
        let mut driver = Driver::connect(&path).run(1);
        talk(&mut port, &mut driver);
        let flags = if ring == 0 { WRITE } else { 0 };
        for _ in 0..RING / 2 {
            driver.offer(ring, GUEST + SIZE, 100, flags);
        }
        wait_for("it is found out", || {
            receive(&mut port);
            let mut burst: Burst<Frame> = [Frame::new(b"to nobody")].into_iter().collect();
            port.tx[0].tx_burst(&mut burst);
            port.device.stats().rx_errors > errors
        });
        errors = port.device.stats().rx_errors;
        assert!(driver.is_gone());
        link_is(&port, false);
    }
    talk(&mut port, &mut Driver::connect(&path).run(1));
}

#[test]
fn another_driver_waits_until_the_first_is_gone() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    let backend = HeapBackend::new();
    let mut port = open(&backend, &path, 1, true);
    let mut first = Driver::connect(&path).run(1);
    link_is(&port, true);
    let second = std::thread::spawn({
        let path = path.clone();
        move || Driver::connect(&path).run(1)
    });
    talk(&mut port, &mut first);
    drop(first);
    talk(&mut port, &mut second.join().unwrap());
}

#[test]
fn one_that_takes_up_no_packets_makes_place_for_another_after_a_while() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    let backend = HeapBackend::new();
    let mut port = open(&backend, &path, 1, true);
    let mut silent = Driver::connect(&path);
    // Half a message.
    rustix::net::send(&silent.stream, &[1, 0, 0], SendFlags::empty()).unwrap();
    talk(&mut port, &mut Driver::connect(&path).run(1));
    assert!(silent.is_gone());
}

#[test]
fn a_driver_is_heard_on_all_its_queues() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    let backend = HeapBackend::new();
    let mut port = open(&backend, &path, 2, true);
    let mut driver = Driver::connect(&path).run(2);
    talk(&mut port, &mut driver);
    wait_for("the second pair runs, too", || {
        driver.send_on(1, b"first");
        driver.send_on(3, b"second");
        receive(&mut port) == [&b"first"[..], b"second"]
    });
}

#[test]
fn a_driver_that_sleeps_is_woken_and_one_that_fills_its_bell_holds_up_nobody() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    let backend = HeapBackend::new();
    let mut port = open(&backend, &path, 1, true);
    let mut driver = Driver::connect(&path).run(1);
    let notifier: OwnedFd = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
    let call = Message::Ring(0, RingMessage::Call { has_fd: true });
    driver.say(&call, &[notifier.as_fd()]);
    driver.ask(&Message::GetFeatures);
    send(&mut port, &[b"wake up"]);
    let mut count = [0; 8];
    assert_eq!(rustix::io::read(&notifier, &mut count), Ok(8));
    assert_eq!(driver.received(), [b"wake up"]);
    // The next write blocks for ever.
    rustix::io::write(&notifier, &(u64::MAX - 1).to_ne_bytes()).unwrap();
    talk(&mut port, &mut driver);
    drop(port);
    assert!(driver.is_gone());
}

#[test]
fn what_is_sent_to_a_port_without_a_driver_is_to_be_dropped() {
    let dir = tempfile::tempdir().unwrap();
    let backend = HeapBackend::new();
    let mut port = open(&backend, &dir.path().join("s"), 1, true);
    send_to_nobody(&mut port);
    assert!(receive(&mut port).is_empty());
}
