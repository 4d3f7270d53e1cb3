//! A lab that is up: what it has, and commands in its hosts.

use std::convert::Infallible;
use std::ffi::OsStr;
use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Command, ExitStatus, Output, Stdio};

use serde::Serialize;

use crate::down::{self, DownError, DownReport};
use crate::guest;
use crate::netns;
use crate::place::Place;
use crate::process::{MARK, ProcessId};
use crate::progress::Progress;
use crate::state::{GUEST, Journal, NodeRecord, Resource, State};
use crate::system::SystemError;
use crate::topology::Topology;
use crate::up::{self, UpError, UpOptions};

/// A lab that is up. Dropping it leaves the lab up.
#[derive(Debug)]
pub struct Lab {
    place: Place,
    state: State,
}

/// Why a lab cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// There is none.
    #[error("no lab is up: start one with `millrace lab up FILE`")]
    NoLab,
    /// None has this name.
    #[error("no lab `{name}` is up; there is {known}")]
    Unknown {
        /// The name that was asked for.
        name: String,
        /// Those that there are.
        known: String,
    },
    /// No name was given and there are several.
    #[error("several labs are up ({known}): say which one with `--lab NAME` or MILLRACE_LAB=NAME")]
    Several {
        /// Their names.
        known: String,
    },
    /// `up` has not finished.
    #[error("lab `{name}` is half up: wait for its `lab up`, or remove it with `millrace lab down {name}`")]
    HalfUp {
        /// Its name.
        name: String,
    },
    /// The operating system refuses something.
    #[error(transparent)]
    System(#[from] SystemError),
}

/// Why a command did not run in a host.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// Entering a namespace is root's.
    #[error("running in a host of a lab needs root: use sudo")]
    NotRoot,
    /// There is no such host or switch.
    #[error("lab `{lab}` has no host or switch `{node}`; it has {known}")]
    UnknownNode {
        /// The lab.
        lab: String,
        /// The name that was asked for.
        node: String,
        /// Those that there are.
        known: String,
    },
    /// No command was given.
    #[error("no command was given: say what to run, as in `millrace lab run {node} ip address`")]
    NoCommand {
        /// The host or switch.
        node: String,
    },
    /// The program cannot be started.
    #[error("cannot run `{program}` in `{node}`: {source}")]
    Program {
        /// The program.
        program: String,
        /// The host or switch.
        node: String,
        /// Why.
        source: io::Error,
    },
    /// The operating system refuses something.
    #[error(transparent)]
    System(#[from] SystemError),
}

/// What a lab has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Status {
    /// Its name.
    pub name: String,
    /// Hosts, then switches.
    pub nodes: Vec<NodeRecord>,
    /// The daemons of its switches.
    pub daemons: Vec<DaemonStatus>,
}

/// A daemon of a switch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DaemonStatus {
    /// The switch.
    pub switch: String,
    /// What it is for.
    pub role: String,
    /// Which process it is.
    pub process: Option<ProcessId>,
    /// Whether it runs.
    pub alive: bool,
    /// Its log.
    pub log: String,
}

impl Lab {
    pub(crate) fn new(journal: Journal) -> Lab {
        Lab {
            place: journal.place().clone(),
            state: journal.state,
        }
    }

    /// Builds a lab and starts its switches; returns when all of them forward. If that fails, removes what
    /// was made.
    ///
    /// # Errors
    /// [`UpError`]; above all, no root, and a lab of this name is there already.
    pub fn up(
        topology: &Topology,
        options: &UpOptions,
        progress: &mut dyn FnMut(Progress<'_>),
    ) -> Result<Lab, UpError> {
        up::up(topology, options, progress)
    }

    /// Removes the lab `name` with all its processes, namespaces, links and files, in whatever state it is,
    /// also when `up` was killed. No lab of this name is no error.
    ///
    /// # Errors
    /// [`DownError`]; what could not be removed stays listed, and `down` can be tried again.
    pub fn down(name: &str) -> Result<DownReport, DownError> {
        down::down(name)
    }

    /// The names of all labs, also of those half up.
    ///
    /// # Errors
    /// [`SystemError`] if the directory of labs cannot be read.
    pub fn names() -> Result<Vec<String>, SystemError> {
        Place::all()
    }

    /// The lab `name`; without a name that of `$MILLRACE_LAB`, which commands in a lab find set; without that
    /// the only one.
    ///
    /// # Errors
    /// [`OpenError`]; above all, there is none.
    pub fn open(name: Option<&str>) -> Result<Lab, OpenError> {
        let names = Place::all()?;
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
        let place = Place::of(&name);
        match Journal::load(&place)? {
            Some(state) if state.complete => Ok(Lab { place, state }),
            _ => Err(OpenError::HalfUp { name }),
        }
    }

    /// The lab's name.
    pub fn name(&self) -> &str {
        self.place.name()
    }

    /// What the lab has.
    pub fn status(&self) -> Status {
        let daemons = self.state.resources.iter().filter_map(|resource| match resource {
            Resource::Process { switch, role, id } => Some(DaemonStatus {
                switch: switch.clone(),
                role: role.clone(),
                process: *id,
                alive: id.is_some_and(ProcessId::is_alive),
                log: self
                    .place
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
    /// [`RunError`]; the command's own failure is its status.
    pub fn run<S: AsRef<OsStr> + Sync>(&self, node: &str, argv: &[S]) -> Result<ExitStatus, RunError> {
        match self.guest(node, argv)? {
            Some(guest) => guest.run(&mut io::stdout()),
            None => self.spawned(node, argv, Command::status),
        }
    }

    /// Runs a command in a host or switch, without input, and gives what it writes.
    ///
    /// # Errors
    /// [`RunError`]; the command's own failure is in the output's status.
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

    /// Becomes a command in a host or switch: on success this process is the command, with its terminal,
    /// signals and exit status; one in a guest has no input, and what it writes, errors as well, is written here. What the
    /// command line wants.
    ///
    /// # Errors
    /// [`RunError`]; the calling thread may then be in the namespace.
    pub fn exec<S: AsRef<OsStr>>(&self, node: &str, argv: &[S]) -> Result<Infallible, RunError> {
        if let Some(guest) = self.guest(node, argv)? {
            let status = guest.run(&mut io::stdout())?;
            std::process::exit(status.code().unwrap_or(1));
        }
        let mut command = self.command(node, argv)?;
        netns::enter(&self.place.namespace(node))?;
        let source = command.exec();
        Err(RunError::Program {
            program: program(&command),
            node: node.to_owned(),
            source,
        })
    }

    /// The command in a guest, if the node is one.
    fn guest<S: AsRef<OsStr>>(&self, node: &str, argv: &[S]) -> Result<Option<GuestCommand>, RunError> {
        // For what is refused everywhere.
        let command = self.command(node, argv)?;
        let mut records = self.state.nodes.iter();
        if !records.any(|record| record.name == node && record.kind == GUEST) {
            return Ok(None);
        }
        let words = std::iter::once(command.get_program()).chain(command.get_args());
        Ok(Some(GuestCommand {
            node: node.to_owned(),
            socket: guest::console_socket(&self.place, node),
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
        let path = self.place.namespace(node);
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
            // As wait(2) has it.
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
