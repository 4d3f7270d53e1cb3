//! A running lab: its status, and commands in its hosts.

use std::convert::Infallible;
use std::ffi::OsStr;
use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Command, ExitStatus, Output, Stdio};

use serde::Serialize;

use crate::directory::LabDirectory;
use crate::down::{self, DownError, DownReport};
use crate::guest;
use crate::netns;
use crate::process::{MARK, ProcessId};
use crate::progress::Progress;
use crate::state::{GUEST, Journal, NodeRecord, Resource, State};
use crate::system::SystemError;
use crate::topology::Topology;
use crate::up::{self, UpError, UpOptions};

/// A running lab. Dropping it leaves the lab up.
#[derive(Debug)]
pub struct Lab {
    directory: LabDirectory,
    state: State,
}

/// Reasons why a lab cannot be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// No lab is up.
    #[error("no lab is up: start one with `millrace lab up FILE`")]
    NoLab,
    /// No lab has this name.
    #[error("no lab `{name}` is up: expected one of {known}")]
    Unknown {
        /// The requested name.
        name: String,
        /// The names of the labs that are up.
        known: String,
    },
    /// No name was given and several labs are up.
    #[error("several labs are up ({known}): select one with `--lab NAME` or MILLRACE_LAB=NAME")]
    Several {
        /// The names of the labs.
        known: String,
    },
    /// `up` has not finished.
    #[error(
        "lab `{name}` is incomplete: wait until its `lab up` ends, or remove it with `millrace lab down {name}`"
    )]
    HalfUp {
        /// The name of the lab.
        name: String,
    },
    /// An operation failed in the operating system.
    #[error(transparent)]
    System(#[from] SystemError),
}

/// Reasons why a command did not run in a host.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// The caller is not root, which entering a namespace needs.
    #[error("running in a host of a lab needs root: use sudo")]
    NotRoot,
    /// The lab has no such host or switch.
    #[error("lab `{lab}` has no host or switch `{node}`: expected one of {known}")]
    UnknownNode {
        /// The name of the lab.
        lab: String,
        /// The requested name.
        node: String,
        /// The names of the lab's hosts and switches.
        known: String,
    },
    /// No command was given.
    #[error("no command was given: expected one, as in `millrace lab run {node} ip address`")]
    NoCommand {
        /// The host or switch.
        node: String,
    },
    /// The program cannot be started.
    #[error("cannot run `{program}` in `{node}`: {source}")]
    Program {
        program: String,
        /// The host or switch.
        node: String,
        source: io::Error,
    },
    /// An operation failed in the operating system.
    #[error(transparent)]
    System(#[from] SystemError),
}

/// The status of a lab.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Status {
    /// The name of the lab.
    pub name: String,
    /// The hosts, then the switches.
    pub nodes: Vec<NodeRecord>,
    /// The daemons of the switches.
    pub daemons: Vec<DaemonStatus>,
}

/// A daemon of a switch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DaemonStatus {
    pub switch: String,
    /// The role of the daemon, such as `millraced`.
    pub role: String,
    /// The process, if it was started.
    pub process: Option<ProcessId>,
    /// True if the process runs.
    pub alive: bool,
    /// The path of the log.
    pub log: String,
}

impl Lab {
    fn new(journal: Journal) -> Lab {
        Lab {
            directory: journal.directory().clone(),
            state: journal.state,
        }
    }

    /// Builds a lab and starts its switches; returns when all of them forward. After a failure, removes all created
    /// resources.
    ///
    /// # Errors
    /// [`UpError`]; most often, the caller is not root, or a lab of this name exists.
    pub fn up(
        topology: &Topology,
        options: &UpOptions,
        progress: &mut dyn FnMut(Progress<'_>),
    ) -> Result<Lab, UpError> {
        up::up(topology, options, progress).map(Lab::new)
    }

    /// Removes the lab `name` with all its processes, namespaces, links and files, in any state, even after `up` was
    /// killed. An absent lab is no error.
    ///
    /// # Errors
    /// [`DownError`]; resources that could not be removed stay listed, and `down` can be repeated.
    pub fn down(name: &str) -> Result<DownReport, DownError> {
        down::down(name)
    }

    /// Returns the names of all labs, including those whose `up` has not finished.
    ///
    /// # Errors
    /// [`SystemError`] if the directory of labs cannot be read.
    pub fn names() -> Result<Vec<String>, SystemError> {
        LabDirectory::all()
    }

    /// Opens the lab `name`; without a name, the lab of `$MILLRACE_LAB`, which is set for commands in a lab; without
    /// that, the only lab.
    ///
    /// # Errors
    /// [`OpenError`]; most often, no lab is up.
    pub fn open(name: Option<&str>) -> Result<Lab, OpenError> {
        let names = LabDirectory::all()?;
        let known = names.join(", ");
        let around = std::env::var("MILLRACE_LAB").ok().filter(|lab| !lab.is_empty());
        let name = match (name.or(around.as_deref()), names.as_slice()) {
            (_, []) => return Err(OpenError::NoLab),
            (Some(name), all) if all.iter().any(|lab| lab == name) => name.to_owned(),
            (Some(name), _) => {
                return Err(OpenError::Unknown {
                    name: name.to_owned(),
                    known,
                });
            }
            (None, [only]) => only.clone(),
            (None, _) => return Err(OpenError::Several { known }),
        };
        let directory = LabDirectory::of(&name);
        match Journal::load(&directory)? {
            Some(state) if state.complete => Ok(Lab { directory, state }),
            _ => Err(OpenError::HalfUp { name }),
        }
    }

    /// Returns the name of the lab.
    pub fn name(&self) -> &str {
        self.directory.name()
    }

    /// Returns the status of the lab.
    pub fn status(&self) -> Status {
        let daemons = self.state.resources.iter().filter_map(|resource| match resource {
            Resource::Process { switch, role, id } => Some(DaemonStatus {
                switch: switch.clone(),
                role: role.clone(),
                process: *id,
                alive: id.is_some_and(ProcessId::is_alive),
                log: self
                    .directory
                    .node(switch)
                    .join(format!("{role}.log"))
                    .display()
                    .to_string(),
            }),
            _ => None,
        });
        Status {
            name: self.name().to_owned(),
            nodes: self.state.nodes.clone(),
            daemons: daemons.collect(),
        }
    }

    /// Runs a command in a host or switch, with this process's standard streams, and waits for it.
    ///
    /// # Errors
    /// [`RunError`]; a failure of the command itself is in the returned status.
    pub fn run<S: AsRef<OsStr> + Sync>(&self, node: &str, argv: &[S]) -> Result<ExitStatus, RunError> {
        match self.guest(node, argv)? {
            Some(guest) => guest.run(&mut io::stdout()),
            None => self.spawned(node, argv, Command::status),
        }
    }

    /// Runs a command in a host or switch, without input, and returns its output.
    ///
    /// # Errors
    /// [`RunError`]; a failure of the command itself is in the status of the output.
    pub fn output<S: AsRef<OsStr> + Sync>(&self, node: &str, argv: &[S]) -> Result<Output, RunError> {
        let Some(guest) = self.guest(node, argv)? else {
            return self.spawned(node, argv, |command| command.stdin(Stdio::null()).output());
        };
        let mut stdout = Vec::new();
        let status = guest.run(&mut stdout)?;
        Ok(Output {
            status,
            stdout,
            stderr: Vec::new(),
        })
    }

    /// Replaces this process with a command in a host or switch: on success the command has the terminal, signals and
    /// exit status of this process. A command in a guest has no input, and its output and errors are written to
    /// standard output. The command line uses this function.
    ///
    /// # Errors
    /// [`RunError`]; the calling thread may then be in the namespace.
    pub fn exec<S: AsRef<OsStr>>(&self, node: &str, argv: &[S]) -> Result<Infallible, RunError> {
        if let Some(guest) = self.guest(node, argv)? {
            let status = guest.run(&mut io::stdout())?;
            std::process::exit(status.code().unwrap_or(1));
        }
        let mut command = self.command(node, argv)?;
        netns::enter(&self.directory.namespace(node))?;
        let source = command.exec();
        Err(RunError::Program {
            program: program(&command),
            node: node.to_owned(),
            source,
        })
    }

    /// Returns the command in a guest; `None` if the node is not a guest.
    fn guest<S: AsRef<OsStr>>(&self, node: &str, argv: &[S]) -> Result<Option<GuestCommand>, RunError> {
        // The call checks the conditions that hold for every node.
        let command = self.command(node, argv)?;
        let mut records = self.state.nodes.iter();
        if !records.any(|record| record.name == node && record.kind == GUEST) {
            return Ok(None);
        }
        let words = std::iter::once(command.get_program()).chain(command.get_args());
        Ok(Some(GuestCommand {
            node: node.to_owned(),
            socket: guest::console_socket(&self.directory, node),
            words: words.map(|word| word.to_string_lossy().into_owned()).collect(),
        }))
    }

    fn spawned<T: Send, S: AsRef<OsStr> + Sync>(
        &self,
        node: &str,
        argv: &[S],
        start: impl FnOnce(&mut Command) -> io::Result<T> + Send,
    ) -> Result<T, RunError> {
        let mut command = self.command(node, argv)?;
        let path = self.directory.namespace(node);
        let result = netns::within(&path, || {
            netns::enter(&path)?;
            Ok(start(&mut command))
        })?;
        let program = program(&command);
        result.map_err(|source| RunError::Program {
            program,
            node: node.to_owned(),
            source,
        })
    }

    fn command<S: AsRef<OsStr>>(&self, node: &str, argv: &[S]) -> Result<Command, RunError> {
        if !nix::unistd::geteuid().is_root() {
            return Err(RunError::NotRoot);
        }
        let Some(record) = self.state.nodes.iter().find(|record| record.name == node) else {
            let known = self
                .state
                .nodes
                .iter()
                .map(|record| record.name.as_str())
                .collect::<Vec<_>>()
                .join(", ");
            return Err(RunError::UnknownNode {
                lab: self.name().to_owned(),
                node: node.to_owned(),
                known,
            });
        };
        let Some((program, args)) = argv.split_first() else {
            return Err(RunError::NoCommand {
                node: node.to_owned(),
            });
        };
        let mut command = Command::new(program);
        command.args(args);
        command.envs(record.environment.iter().map(|(key, value)| (key, value)));
        command.env(MARK, &self.state.mark);
        Ok(command)
    }
}

/// A command in a guest.
struct GuestCommand {
    node: String,
    socket: PathBuf,
    words: Vec<String>,
}

impl GuestCommand {
    fn run(self, to: &mut dyn io::Write) -> Result<ExitStatus, RunError> {
        match guest::console::run(&self.socket, &self.words, to) {
            // The wait status of wait(2) holds the exit code in bits 8 to 15.
            Ok(code) => Ok(ExitStatus::from_raw(i32::from(code) << 8)),
            Err(source) => Err(RunError::Program {
                program: self.words.into_iter().next().unwrap_or_default(),
                node: self.node,
                source,
            }),
        }
    }
}

fn program(command: &Command) -> String {
    command.get_program().to_string_lossy().into_owned()
}
