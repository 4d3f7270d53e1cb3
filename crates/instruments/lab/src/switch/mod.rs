//! Switches: one file for each kind, all with the same outside. What forwards runs in the switch's namespace,
//! where the switch ends of the links are, and listens on that namespace's loopback.

mod linux_bridge;
mod millrace;
mod ovs;

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::launch::Running;
use crate::place::Place;
use crate::progress::Progress;
use crate::state::Journal;
use crate::system::SystemError;
use crate::topology::{Switch, SwitchKind};
use crate::up::{UpError, UpOptions};

/// How often a starting daemon is asked whether it is ready.
const ASK_EVERY: Duration = Duration::from_millis(20);

/// What every kind of switch is given to start with.
struct Site<'a> {
    switch: &'a Switch,
    options: &'a UpOptions,
    journal: &'a mut Journal,
    progress: &'a mut dyn FnMut(Progress<'_>),
}

/// Starts what forwards in `switch`; returns when it does.
pub(crate) fn start(
    switch: &Switch,
    options: &UpOptions,
    journal: &mut Journal,
    progress: &mut dyn FnMut(Progress<'_>),
) -> Result<(), UpError> {
    let began = Instant::now();
    let dir = journal.place().node(&switch.name);
    fs::create_dir_all(&dir).map_err(SystemError::file("create", &dir))?;
    let mut site = Site {
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
        } => millrace::start(&mut site, *device, control, *workers)?,
        SwitchKind::LinuxBridge => linux_bridge::start(&mut site)?,
        SwitchKind::Ovs { control, ports } => ovs::start(&mut site, control, *ports)?,
    }
    progress(Progress::Ready {
        switch: &switch.name,
        took: began.elapsed(),
    });
    Ok(())
}

/// What commands in the switch's namespace need to find the switch.
pub(crate) fn environment(switch: &Switch, place: &Place) -> Vec<(String, String)> {
    match &switch.kind {
        SwitchKind::Millrace { .. } => millrace::environment(&place.node(&switch.name)),
        SwitchKind::LinuxBridge => Vec::new(),
        SwitchKind::Ovs { .. } => ovs::environment(&place.node(&switch.name)),
    }
}

impl Site<'_> {
    fn starting(&mut self, what: &str) {
        (self.progress)(Progress::Starting {
            switch: &self.switch.name,
            what,
        });
    }

    fn dir(&self) -> std::path::PathBuf {
        self.journal.place().node(&self.switch.name)
    }

    fn namespace(&self) -> std::path::PathBuf {
        self.journal.place().namespace(&self.switch.name)
    }

    /// Asks until there is an answer, and gives it.
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
            // In this order: a daemon that is ready and then ends is found by the next question.
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

/// An answer as soon as somebody listens on the Unix socket at `path`.
fn listens(path: &Path) -> Option<()> {
    std::os::unix::net::UnixStream::connect(path).ok().map(drop)
}
