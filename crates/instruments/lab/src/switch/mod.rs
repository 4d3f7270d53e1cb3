//! Switches: one file for each kind, with the same interface. The forwarding program runs in the switch's namespace,
//! which contains the switch ends of the links, and listens on the loopback interface of that namespace.

mod linux_bridge;
mod millrace;
mod ovs;

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::directory::LabDirectory;
use crate::launch::Running;
use crate::progress::Progress;
use crate::state::Journal;
use crate::system::SystemError;
use crate::topology::{Switch, SwitchKind};
use crate::up::{UpError, UpOptions};

/// The polling interval of a starting daemon.
const ASK_EVERY: Duration = Duration::from_millis(20);

/// The arguments for the start of a switch of any kind.
struct SwitchContext<'a> {
    switch: &'a Switch,
    options: &'a UpOptions,
    journal: &'a mut Journal,
    progress: &'a mut dyn FnMut(Progress<'_>),
}

/// Starts the forwarding program of `switch`; returns when it forwards.
pub(crate) fn start(
    switch: &Switch,
    options: &UpOptions,
    journal: &mut Journal,
    progress: &mut dyn FnMut(Progress<'_>),
) -> Result<(), UpError> {
    let began = Instant::now();
    let dir = journal.directory().node(&switch.name);
    fs::create_dir_all(&dir).map_err(SystemError::file("create", &dir))?;
    let mut context = SwitchContext {
        switch,
        options,
        journal,
        progress,
    };
    match &switch.kind {
        SwitchKind::Millrace {
            device,
            control,
            workers,
        } => millrace::start(&mut context, *device, control, *workers)?,
        SwitchKind::LinuxBridge => linux_bridge::start(&mut context)?,
        SwitchKind::Ovs { control, ports } => ovs::start(&mut context, control, *ports)?,
    }
    progress(Progress::Ready {
        switch: &switch.name,
        took: began.elapsed(),
    });
    Ok(())
}

/// Returns the environment variables by which commands in the switch's namespace find the switch.
pub(crate) fn environment(switch: &Switch, directory: &LabDirectory) -> Vec<(String, String)> {
    match &switch.kind {
        SwitchKind::Millrace { .. } => millrace::environment(&directory.node(&switch.name)),
        SwitchKind::LinuxBridge => Vec::new(),
        SwitchKind::Ovs { .. } => ovs::environment(&directory.node(&switch.name)),
    }
}

impl SwitchContext<'_> {
    fn starting(&mut self, what: &str) {
        (self.progress)(Progress::Starting {
            switch: &self.switch.name,
            what,
        });
    }

    fn dir(&self) -> std::path::PathBuf {
        self.journal.directory().node(&self.switch.name)
    }

    fn namespace(&self) -> std::path::PathBuf {
        self.journal.directory().namespace(&self.switch.name)
    }

    /// Polls the daemon until it answers, and returns the answer.
    ///
    /// # Errors
    /// [`UpError::Daemon`] if the daemon ends, or does not answer in time.
    fn wait_for<T>(
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

    fn failed(&self, role: &str, daemon: &Running, problem: String) -> UpError {
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
fn listens(path: &Path) -> Option<()> {
    std::os::unix::net::UnixStream::connect(path).ok().map(drop)
}
