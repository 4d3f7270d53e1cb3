//! The thread of a port that follows its interface: after each change of the interface, the thread reads its state, and
//! attaches or detaches the queues.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::interface::Interface;
use crate::io::link_watch::LinkWatch;

/// Time until an interface that could not be opened is tried again.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// The thread. Dropping this ends the thread and closes the queues.
pub(super) struct LinkMonitor {
    interface: Arc<Interface>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    /// Wakes the thread until it is dropped.
    _watch: LinkWatch,
}

impl LinkMonitor {
    pub(super) fn start(interface: &Arc<Interface>) -> std::io::Result<LinkMonitor> {
        let watch = LinkWatch::start(&interface.name, {
            let interface = Arc::clone(interface);
            move || {
                // The bridge hears of a lost link at once, and of queues that the thread detaches later.
                interface.reporter.report();
                interface.wake.wake();
            }
        })?;
        let stop = Arc::new(AtomicBool::new(false));
        let thread = std::thread::Builder::new().name(format!("link-{}", interface.name));
        let thread = thread.spawn({
            let (interface, stop) = (Arc::clone(interface), Arc::clone(&stop));
            move || {
                while !stop.load(Ordering::Acquire) {
                    let is_settled = interface.follow();
                    wait(&interface, is_settled);
                }
            }
        })?;
        Ok(LinkMonitor {
            interface: Arc::clone(interface),
            stop,
            thread: Some(thread),
            _watch: watch,
        })
    }
}

/// Waits for a change or the end, and for [`RETRY_INTERVAL`] at most if the interface is not settled.
fn wait(interface: &Interface, is_settled: bool) {
    let again = Timespec::try_from(RETRY_INTERVAL).ok().filter(|_| !is_settled);
    let mut files = [PollFd::new(&interface.wake, PollFlags::IN)];
    // An interrupted poll only makes the loop run once more.
    let _interrupted = poll(&mut files, again.as_ref());
    interface.wake.clear();
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
