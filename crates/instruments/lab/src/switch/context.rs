//! The start of a switch of any kind: its arguments, and the wait for its daemon.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::launch::Running;
use crate::progress::Progress;
use crate::state::Journal;
use crate::topology::Switch;
use crate::up::{UpError, UpOptions};

/// The polling interval of a starting daemon.
const ASK_EVERY: Duration = Duration::from_millis(20);

/// The arguments for the start of a switch of any kind.
pub(super) struct SwitchContext<'a> {
    pub(super) switch: &'a Switch,
    pub(super) options: &'a UpOptions,
    pub(super) journal: &'a mut Journal,
    pub(super) progress: &'a mut dyn FnMut(Progress<'_>),
}

impl SwitchContext<'_> {
    pub(super) fn starting(&mut self, what: &str) {
        (self.progress)(Progress::Starting {
            switch: &self.switch.name,
            what,
        });
    }

    pub(super) fn dir(&self) -> PathBuf {
        self.journal.directory().node(&self.switch.name)
    }

    pub(super) fn namespace(&self) -> PathBuf {
        self.journal.directory().namespace(&self.switch.name)
    }

    /// Polls the daemon until it answers, and returns the answer.
    ///
    /// # Errors
    /// [`UpError::Daemon`] if the daemon ends, or does not answer in time.
    pub(super) fn wait_for<T>(
        &self,
        role: &str,
        daemon: &Running,
        mut ask: impl FnMut() -> Option<T>,
    ) -> Result<T, UpError> {
        let deadline = Instant::now() + self.options.ready_within;
        loop {
            // The exit status is read first: if the daemon ends after this check, the next check finds it.
            let ended = daemon.ended();
            if let Some(status) = ended {
                return Err(self.failed(role, daemon, format!("ended with {status}")));
            }
            if let Some(answer) = ask() {
                return Ok(answer);
            }
            if Instant::now() > deadline {
                let waited = self.options.ready_within.as_secs();
                return Err(self.failed(role, daemon, format!("is not ready after {waited} s")));
            }
            std::thread::sleep(ASK_EVERY);
        }
    }

    pub(super) fn failed(&self, role: &str, daemon: &Running, problem: String) -> UpError {
        UpError::Daemon {
            switch: self.switch.name.clone(),
            role: role.to_owned(),
            problem,
            log: daemon.log.clone(),
            tail: daemon.tail(),
        }
    }
}

/// Returns `Some` if a process listens on the Unix socket at `path`.
pub(super) fn listens(path: &Path) -> Option<()> {
    std::os::unix::net::UnixStream::connect(path).ok().map(drop)
}
