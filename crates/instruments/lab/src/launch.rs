//! Daemons of a lab: started in the namespace of their switch, observed until they are ready, then left running.

use std::ffi::OsString;
use std::fs::{self, OpenOptions};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::thread;

use crate::netns;
use crate::process::{MARK, ProcessId};
use crate::state::{Journal, Resource};
use crate::system::{SystemError, not_started};

/// The number of log lines that an error message shows.
const TAIL_LINES: usize = 12;

/// A daemon to start.
pub(crate) struct Daemon<'a> {
    /// The switch or guest in whose namespace the daemon runs.
    pub(crate) switch: &'a str,
    /// The role of the daemon, which is also the name of its log.
    pub(crate) role: &'a str,
    pub(crate) program: &'a Path,
    pub(crate) args: Vec<OsString>,
    pub(crate) environment: &'a [(String, String)],
}

/// A started daemon.
pub(crate) struct Running {
    /// The file of its standard output and error.
    pub(crate) log: PathBuf,
    pub(crate) id: ProcessId,
    ended: mpsc::Receiver<ExitStatus>,
}

impl Running {
    /// Returns the exit status of the daemon if it has ended.
    pub(crate) fn ended(&self) -> Option<ExitStatus> {
        self.ended.try_recv().ok()
    }

    /// Returns the last lines of the log.
    pub(crate) fn tail(&self) -> String {
        let text = fs::read(&self.log).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n")
    }
}

/// Starts a daemon. The journal lists the daemon before it exists. The daemon has a separate process group,
/// so that an interrupt from the terminal does not reach it.
pub(crate) fn launch(journal: &mut Journal, daemon: &Daemon<'_>) -> Result<Running, SystemError> {
    let (switch, role) = (daemon.switch.to_owned(), daemon.role.to_owned());
    let log = journal.directory().node(&switch).join(format!("{role}.log"));
    let open = || {
        OpenOptions::new()
            .create(true)
            .append(true)
            .open(&log)
            .map_err(SystemError::file("write", &log))
    };
    let mut command = Command::new(daemon.program);
    command.args(&daemon.args);
    command.envs(daemon.environment.iter().map(|(key, value)| (key, value)));
    command.env(MARK, &journal.state.mark);
    command.stdin(Stdio::null()).stdout(open()?).stderr(open()?);
    command.current_dir("/").process_group(0);

    let namespace = journal.directory().namespace(&switch);
    journal.record(Resource::Process {
        switch,
        role,
        id: None,
    })?;
    let mut child = netns::within(&namespace, || {
        netns::enter(&namespace)?;
        command.spawn().map_err(|error| not_started(&command, &error))
    })?;
    let pid = i32::try_from(child.id()).unwrap_or(0);
    let id = ProcessId::of(pid).map_err(SystemError::file("read", Path::new("/proc")))?;
    journal.started(id)?;
    let (send, ended) = mpsc::channel();
    // A thread waits for the daemon until this process ends, so that the daemon does not become a zombie of this
    // process.
    let reaper = thread::Builder::new().name("reaper".to_owned()).spawn(move || {
        if let Ok(status) = child.wait() {
            let _ = send.send(status);
        }
    });
    reaper.map_err(|source| SystemError::Thread { source })?;
    Ok(Running { log, id, ended })
}
