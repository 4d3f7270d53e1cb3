//! SIGINT and SIGTERM: they end the process before a transfer has begun, and the session afterwards.

use crate::event::EXIT_RESUMABLE;
use crate::session::SessionHandle;
use nix::sys::signal::{SigSet, Signal, kill};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::unistd::Pid;
use parking_lot::Mutex;
use std::process::Child;
use std::sync::Arc;

/// The signals by which a user or the system asks this process to end (SIGINT, SIGTERM). Before [`Interrupts::cancel`] they end
/// the process with status 6, because no transfer has begun.
#[derive(Debug, Default)]
pub struct Interrupts(Arc<Mutex<Interrupted>>);

/// The session and the child processes that a signal ends.
#[derive(Debug, Default)]
struct Interrupted {
    session: Option<SessionHandle>,
    /// Children to kill if a signal comes before the session.
    children: Vec<Pid>,
}

impl Interrupts {
    /// Blocks the signals, and starts a thread that reads them and lives as long as the process. It must be called before other
    /// threads start: they inherit the signal mask.
    ///
    /// # Errors
    /// If the kernel gives no descriptor.
    pub fn new() -> std::io::Result<Interrupts> {
        let mut signals = SigSet::empty();
        signals.add(Signal::SIGINT);
        signals.add(Signal::SIGTERM);
        signals.thread_block()?;
        let descriptor = SignalFd::with_flags(&signals, SfdFlags::SFD_CLOEXEC)?;
        let interrupts = Interrupts::default();
        let interrupted = Arc::clone(&interrupts.0);
        std::thread::Builder::new()
            .name("signals".into())
            .spawn(move || {
                while let Ok(Some(_)) = descriptor.read_signal() {
                    let interrupted = interrupted.lock();
                    let Some(session) = &interrupted.session else {
                        for child in &interrupted.children {
                            let _ = kill(*child, Signal::SIGKILL);
                        }
                        std::process::exit(EXIT_RESUMABLE.into());
                    };
                    session.cancel();
                }
            })?;
        Ok(interrupts)
    }

    /// Kills a child, which inherits the blocked signals, if a signal comes before the session.
    pub fn kill_early(&self, child: &Child) {
        if let Ok(pid) = i32::try_from(child.id()) {
            self.0.lock().children.push(Pid::from_raw(pid));
        }
    }

    /// Registers the session that later signals cancel.
    pub fn cancel(self, session: SessionHandle) {
        self.0.lock().session = Some(session);
    }
}
