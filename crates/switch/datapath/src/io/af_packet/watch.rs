//! The thread of a port that follows its interface: after each link event (`RTNLGRP_LINK`), the thread reads
//! the state of the interface.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, bind, recv, socket_with};

use super::interface::Interface;

/// `RTMGRP_LINK` of linux/rtnetlink.h.
const LINKS: u32 = 1;
/// Time until an interface that could not be opened is tried again.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// The thread. Dropping this ends the thread and closes the queues.
pub(super) struct LinkMonitor {
    interface: Arc<Interface>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl LinkMonitor {
    pub(super) fn start(interface: &Arc<Interface>) -> std::io::Result<LinkMonitor> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        // NETLINK_ROUTE is protocol 0.
        let events = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, None)?;
        bind(&events, &SocketAddrNetlink::new(0, LINKS))?;
        let stop = Arc::new(AtomicBool::new(false));
        let thread = std::thread::Builder::new().name(format!("link-{}", interface.name));
        let thread = thread.spawn({
            let (interface, stop) = (Arc::clone(interface), Arc::clone(&stop));
            move || {
                while !stop.load(Ordering::Acquire) {
                    let is_settled = interface.follow();
                    wait(&events, &interface, is_settled);
                }
            }
        })?;
        Ok(LinkMonitor {
            interface: Arc::clone(interface),
            stop,
            thread: Some(thread),
        })
    }
}

/// Waits for an event or the end, and for [`AGAIN`] at most if the interface is not settled.
fn wait(events: &OwnedFd, interface: &Interface, is_settled: bool) {
    let again = Timespec::try_from(RETRY_INTERVAL).ok().filter(|_| !is_settled);
    let mut files = [
        PollFd::new(events, PollFlags::IN),
        PollFd::new(&interface.wake, PollFlags::IN),
    ];
    // An interrupted poll only makes the loop run once more.
    let _interrupted = poll(&mut files, again.as_ref());
    let mut bytes = [0_u8; 4096];
    // The content of the events is not used: an overflow (ENOBUFS) is one more reason to read the interface's
    // state.
    while !matches!(recv(events, &mut bytes, RecvFlags::DONTWAIT), Err(Errno::AGAIN)) {}
}

impl Drop for LinkMonitor {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        self.interface.wake.wake();
        if let Some(thread) = self.thread.take() {
            let _panicked = thread.join();
        }
        self.interface.detach();
    }
}
