//! Reasons why a lab was not built, each with the next step.

use std::path::PathBuf;

use crate::down::DownError;
use crate::system::SystemError;

/// Reasons why a lab was not built.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UpError {
    /// The caller is not root.
    #[error("a lab needs root, to create namespaces and links: run it with sudo")]
    NotRoot,
    /// A lab of this name is up.
    #[error("lab `{name}` is up: use it, or remove it first with `millrace lab down {name}`")]
    AlreadyUp {
        /// The name of the lab.
        name: String,
    },
    /// A lab of this name is incomplete, or another process works on it.
    #[error(
        "lab `{name}` is incomplete, or another process works on it: remove it with `millrace lab down {name}`"
    )]
    HalfUp {
        /// The name of the lab.
        name: String,
    },
    /// A namespace of another owner has a name that the lab needs.
    #[error(
        "namespace {namespace} exists and belongs to no lab: remove it with `ip netns del {namespace}`, or give the lab another name"
    )]
    NamespaceTaken {
        /// The name of the namespace.
        namespace: String,
    },
    /// An operation failed in the operating system.
    #[error(transparent)]
    System(#[from] SystemError),
    /// No daemon for Millrace switches was found.
    #[error("`millraced` was not found {looked}: build it (`make build`), or set MILLRACED to its path")]
    NoDaemon {
        /// The places that were searched.
        looked: String,
    },
    /// No kernel for guests was found.
    #[error(
        "no cloud kernel was found in {looked}: get it with `scripts/setup.sh guests`, or set MILLRACE_GUEST to where the package linux-image-cloud-amd64 is unpacked"
    )]
    NoKernel {
        /// The places that were searched.
        looked: String,
    },
    /// A guest failed to start.
    #[error("guest `{guest}` {problem}; the last lines of {log}:\n{tail}", log = log.display())]
    Guest {
        /// The name of the guest.
        guest: String,
        /// The failure.
        problem: String,
        /// The output of QEMU and of the guest's kernel; removed with the lab.
        log: PathBuf,
        /// The last lines of the log.
        tail: String,
    },
    /// A daemon of a switch ended, or was not ready in time.
    #[error("switch `{switch}`: {role} {problem}; the last lines of {log}:\n{tail}", log = log.display())]
    Daemon {
        switch: String,
        /// The role of the daemon.
        role: String,
        /// The failure.
        problem: String,
        /// The log; removed with the lab.
        log: PathBuf,
        /// The last lines of the log.
        tail: String,
    },
    /// The emulator of paths was not found.
    #[error(
        "`millrace-wan` was not found {looked}: build it (`make build`), or set MILLRACE_WAN_PROGRAM to its path"
    )]
    NoEmulator {
        /// The places that were searched.
        looked: &'static str,
    },
    /// The emulator of a path ended, or was not ready in time.
    #[error("emulated path `{wan}`: millrace-wan {problem}; the last lines of {log}:\n{tail}", log = log.display())]
    Emulator {
        /// The node of the path, `wan.1`.
        wan: String,
        /// The failure.
        problem: String,
        /// The log; removed with the lab.
        log: PathBuf,
        /// The last lines of the log.
        tail: String,
    },
    /// A daemon runs, but a part of the configuration does not.
    #[error("switch `{switch}` does not run as configured: {}", problems.join("; "))]
    Degraded {
        switch: String,
        /// The problems, each with the reason and the next step that the daemon reports.
        problems: Vec<String>,
    },
    /// The build failed, and the removal of the created resources failed as well.
    #[error("{up}; and the created resources could not be removed: {down}")]
    NotRemoved {
        /// The reason why the lab was not built.
        up: Box<UpError>,
        /// The reason why it was not removed.
        down: Box<DownError>,
    },
}
