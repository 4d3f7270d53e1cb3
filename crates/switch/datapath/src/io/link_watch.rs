//! The watch of kernel interfaces: calls back when one may have changed. One thread and one socket for each network
//! namespace serve all devices in it.
//!
//! ```text
//!   kernel ── RTNLGRP_LINK ──▶ thread ── name, index ──▶ callback of each device of that interface
//!      ▲                         │
//!      └── carrier, state ───────┘   a net for what is announced late, or never
//! ```
//!
//! Announcements may be lost (ENOBUFS): all devices are called back then. And they may be late: while links change often, the
//! kernel collects them for up to a second (ADR 63). So the thread looks at carriers itself, every 50 ms: at those of a hundred
//! interfaces one after the other, and at all while links change.

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::net::if_::if_nametoindex;
use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, bind, recv, socket_with};

use super::kernel::{self, InterfaceState};
use super::peer::WakeEvent;
use super::socket_file::FileId;

/// `RTMGRP_LINK`, `RTM_NEWLINK` and `RTM_DELLINK` of linux/rtnetlink.h, `IFLA_IFNAME` of linux/if_link.h.
const LINKS: u32 = 1;
const NEW_LINK: u16 = 16;
const DEL_LINK: u16 = 17;
const NAME: u16 = 3;
/// `IFF_LOWER_UP` and `IFF_RUNNING` of linux/if.h.
const CARRIER: u32 = 0x1_0000 | 0x40;
/// The sizes of `nlmsghdr`, `ifinfomsg` and `rtattr`.
const HEADER: usize = 16;
const INFO: usize = 16;
const ATTRIBUTE: usize = 4;
/// The largest datagram of events that is read; a larger one counts as lost.
const DATAGRAM: usize = 32 << 10;

/// The interval at which carriers are looked at.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);
/// The number of carriers that are looked at in an interval while no link changes.
const LOOKS_MAX: usize = 100;
/// The time after a change of a carrier in which all of them are looked at: the kernel delays announcements by a second.
const CHANGING_TIME: Duration = Duration::from_secs(2);
/// The interval at which the whole state of all interfaces is looked at.
const NET_INTERVAL: Duration = Duration::from_secs(5);

/// Calls back until it is dropped.
pub(super) struct LinkWatch {
    number: u64,
    monitor: Arc<Monitor>,
}

impl LinkWatch {
    /// Watches an interface of this thread's network namespace, which need not exist yet. `tell` is called on another thread
    /// and must not block.
    ///
    /// # Errors
    /// The error of the kernel: a socket or a thread too many.
    pub(super) fn start(name: &str, tell: impl Fn() + Send + Sync + 'static) -> std::io::Result<LinkWatch> {
        let monitor = Monitor::of_this_namespace()?;
        let number = monitor.shared.last_number.fetch_add(1, Ordering::Relaxed) + 1;
        let watched = Watched {
            name: name.to_owned(),
            index: if_nametoindex(name).ok(),
            state: kernel::state(name).ok(),
            has_carrier: false,
            tell: Box::new(tell),
        };
        monitor.shared.watched.lock().insert(number, watched);
        Ok(LinkWatch { number, monitor })
    }
}

impl Drop for LinkWatch {
    fn drop(&mut self) {
        self.monitor.shared.watched.lock().remove(&self.number);
    }
}

struct Watched {
    name: String,
    /// The index of the interface that has the name, by the last event about it.
    index: Option<u32>,
    /// The state and the carrier as the thread saw them last.
    state: Option<InterfaceState>,
    has_carrier: bool,
    tell: Box<dyn Fn() + Send + Sync>,
}

struct Shared {
    watched: Mutex<BTreeMap<u64, Watched>>,
    last_number: AtomicU64,
    stop: AtomicBool,
    wake: WakeEvent,
}

impl Shared {
    /// Calls back the devices of the interface that has, or had, the index or name of an event.
    fn tell(&self, event: &Event<'_>) {
        for watched in self.watched.lock().values_mut() {
            let (had_index, has_name) = (
                watched.index == Some(event.index),
                event.name == Some(watched.name.as_bytes()),
            );
            if !event.is_gone && has_name {
                watched.index = Some(event.index);
            } else if had_index {
                watched.index = None;
            }
            if had_index || has_name {
                (watched.tell)();
            }
        }
    }

    fn tell_all(&self) {
        self.watched.lock().values().for_each(|watched| (watched.tell)());
    }

    /// Looks at all interfaces, and calls back the devices of those that are not as they were.
    fn look(&self, socket: &OwnedFd) {
        for watched in self.watched.lock().values_mut() {
            let state = kernel::state_by(socket, &watched.name).ok();
            if state != watched.state {
                watched.state = state;
                watched.index = state.map(|state| state.index);
                (watched.tell)();
            }
        }
    }

    /// Looks at `limit` carriers that follow the watch with the number `after`, and calls back the devices of those that changed.
    /// Returns the number of the last watch.
    fn look_at_carriers(&self, socket: &OwnedFd, after: u64, limit: usize) -> u64 {
        let mut last = 0;
        let after = (Bound::Excluded(after), Bound::Unbounded);
        for (number, watched) in self.watched.lock().range_mut(after).take(limit) {
            last = *number;
            let has_carrier = kernel::has_carrier(socket, &watched.name).unwrap_or(false);
            if core::mem::replace(&mut watched.has_carrier, has_carrier) != has_carrier {
                (watched.tell)();
            }
        }
        last
    }
}

/// The thread of a network namespace, which ends with the last watch.
struct Monitor {
    namespace: FileId,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

/// The monitors that run.
static MONITORS: Mutex<Vec<Weak<Monitor>>> = Mutex::new(Vec::new());

impl Monitor {
    fn of_this_namespace() -> std::io::Result<Arc<Monitor>> {
        let stat = rustix::fs::stat("/proc/thread-self/ns/net")?;
        let namespace = FileId {
            device: stat.st_dev,
            inode: stat.st_ino,
        };
        let mut monitors = MONITORS.lock();
        monitors.retain(|monitor| monitor.strong_count() > 0);
        let running = monitors.iter().filter_map(Weak::upgrade);
        let mut running = running.filter(|monitor| monitor.namespace == namespace);
        if let Some(monitor) = running.next() {
            return Ok(monitor);
        }
        drop(running);
        let monitor = Arc::new(Monitor::start(namespace)?);
        monitors.push(Arc::downgrade(&monitor));
        Ok(monitor)
    }

    fn start(namespace: FileId) -> std::io::Result<Monitor> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        // NETLINK_ROUTE is protocol 0.
        let events = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, None)?;
        bind(&events, &SocketAddrNetlink::new(0, LINKS))?;
        let requests = kernel::socket_for_requests()?;
        let shared = Arc::new(Shared {
            watched: Mutex::default(),
            last_number: AtomicU64::new(0),
            stop: AtomicBool::new(false),
            wake: WakeEvent::new()?,
        });
        // The thread is in the network namespace of this one.
        let thread = std::thread::Builder::new().name("links".to_owned()).spawn({
            let shared = Arc::clone(&shared);
            move || run(&shared, &events, &requests)
        })?;
        Ok(Monitor {
            namespace,
            shared,
            thread: Some(thread),
        })
    }
}

impl Drop for Monitor {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        self.shared.wake.wake();
        if let Some(thread) = self.thread.take() {
            let _panicked = thread.join();
        }
    }
}

fn run(shared: &Shared, events: &OwnedFd, requests: &OwnedFd) {
    let mut carriers = Carriers::default();
    let (mut changing_until, mut next_look) = (Instant::now(), Instant::now());
    let mut next_net = Instant::now() + NET_INTERVAL;
    let mut last_look = 0;
    let mut bytes = vec![0_u8; DATAGRAM];
    while !shared.stop.load(Ordering::Acquire) {
        let longest = next_look.saturating_duration_since(Instant::now());
        if wait(shared, events, longest) && read(shared, events, &mut bytes, &mut carriers) {
            changing_until = Instant::now() + CHANGING_TIME;
        }
        let now = Instant::now();
        if now < next_look {
            continue;
        }
        next_look = now + LOOK_INTERVAL;
        last_look = match now < changing_until {
            true => shared.look_at_carriers(requests, 0, usize::MAX),
            false => shared.look_at_carriers(requests, last_look, LOOKS_MAX),
        };
        if now >= next_net {
            next_net = now + NET_INTERVAL;
            shared.look(requests);
        }
    }
}

/// Waits for an event or the end. Returns true if there may be events.
fn wait(shared: &Shared, events: &OwnedFd, longest: Duration) -> bool {
    let longest = Timespec::try_from(longest).ok();
    let mut files = [
        PollFd::new(events, PollFlags::IN),
        PollFd::new(&shared.wake, PollFlags::IN),
    ];
    // An interrupted poll only makes the loop run once more.
    let _interrupted = poll(&mut files, longest.as_ref());
    let [events, wake] = files.map(|file| file.revents());
    if !wake.is_empty() {
        shared.wake.clear();
    }
    !events.is_empty()
}

/// Reads all events. Returns true if the carrier of an interface changed, whether a device has it or not.
fn read(shared: &Shared, events: &OwnedFd, bytes: &mut [u8], carriers: &mut Carriers) -> bool {
    let mut has_changed = false;
    loop {
        match recv(events, &mut *bytes, RecvFlags::DONTWAIT | RecvFlags::TRUNC) {
            Ok((read, size)) if read == size => {
                for event in events_of(&bytes[..read]) {
                    has_changed |= carriers.note(&event);
                    shared.tell(&event);
                }
            }
            // Events were lost.
            Ok(_) | Err(Errno::NOBUFS) => {
                shared.tell_all();
                has_changed = true;
            }
            Err(_) => return has_changed,
        }
    }
}

/// The carriers of the interfaces of which there were events, by index.
#[derive(Default)]
struct Carriers(HashMap<u32, u32>);

impl Carriers {
    /// Notes an event. Returns true if the carrier differs from that of the event before.
    fn note(&mut self, event: &Event<'_>) -> bool {
        match event.is_gone {
            true => self.0.remove(&event.index).is_some(),
            false => self.0.insert(event.index, event.flags & CARRIER) != Some(event.flags & CARRIER),
        }
    }
}

/// An event of an interface.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Event<'a> {
    is_gone: bool,
    index: u32,
    flags: u32,
    name: Option<&'a [u8]>,
}

/// Returns the events of a datagram: messages of RTM_NEWLINK and RTM_DELLINK.
fn events_of(mut bytes: &[u8]) -> Vec<Event<'_>> {
    let mut events = Vec::new();
    while let Some(size) = word(bytes, 0) {
        let size = size as usize;
        let Some(message) = bytes.get(HEADER..size) else {
            break;
        };
        if let (Some(kind @ (NEW_LINK | DEL_LINK)), Some(index), Some(flags)) =
            (half(bytes, 4), word(message, 4), word(message, 8))
        {
            events.push(Event {
                is_gone: kind == DEL_LINK,
                index,
                flags,
                name: name_of(message.get(INFO..).unwrap_or_default()),
            });
        }
        bytes = bytes.get(size.next_multiple_of(4)..).unwrap_or_default();
    }
    events
}

fn name_of(mut attributes: &[u8]) -> Option<&[u8]> {
    while let Some(size) = half(attributes, 0) {
        let size = usize::from(size);
        let value = attributes.get(ATTRIBUTE..size)?;
        if half(attributes, 2) == Some(NAME) {
            return value.split(|byte| *byte == 0).next();
        }
        attributes = attributes.get(size.next_multiple_of(4)..)?;
    }
    None
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..at + 4)?;
    Some(u32::from_ne_bytes(bytes.try_into().ok()?))
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    let bytes = bytes.get(at..at + 2)?;
    Some(u16::from_ne_bytes(bytes.try_into().ok()?))
}

#[cfg(test)]
mod tests;
