//! Errors of the operating system, each with the operation that failed.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::process::MARK;

/// A failed operation on files, namespaces, links or tools.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SystemError {
    /// A file or directory of the lab.
    #[error("cannot {doing} {path}: {source}", path = path.display())]
    File {
        /// The verb: `create`, `write`, `read`, `remove`.
        doing: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    /// A system call on a namespace.
    #[error("cannot {doing} the namespace {namespace}: {source}")]
    Namespace {
        /// The verb: `create`, `enter`.
        doing: &'static str,
        namespace: String,
        source: io::Error,
    },
    /// A request to the kernel's routing socket.
    #[error("cannot {doing}: the kernel answers: {source}{next_step}", next_step = if hint.is_empty() { String::new() } else { format!(" ({hint})") })]
    Netlink {
        /// The operation.
        doing: String,
        /// The answer of the kernel.
        source: Box<rtnetlink::Error>,
        /// The next step of the user, if it is known; otherwise empty.
        hint: &'static str,
    },
    /// A tool that is not installed.
    #[error("`{tool}` was not found: install the package `{package}` (apt-get install {package})")]
    ToolMissing {
        /// The name of the program.
        tool: String,
        /// The Debian package that contains it.
        package: &'static str,
    },
    /// A tool that failed.
    #[error("`{command}` failed: {output}")]
    Tool {
        /// The command line.
        command: String,
        /// The output in one line.
        output: String,
    },
    /// A thread or the asynchronous runtime could not be started.
    #[error("cannot start a thread: {source}")]
    Thread { source: io::Error },
}

impl SystemError {
    pub(crate) fn file(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> SystemError {
        let path = path.to_owned();
        move |source| SystemError::File { doing, path, source }
    }
}

/// Returns the Debian package of a tool that the lab calls.
fn package_of(tool: &str) -> &'static str {
    match tool {
        "ethtool" => "ethtool",
        "tc" => "iproute2",
        "qemu-system-x86_64" => "qemu-system-x86",
        _ => "openvswitch-switch",
    }
}

/// Runs a short-lived tool in the calling thread's namespace and returns its standard output. The tool carries the
/// lab's mark, so that `down` finds a tool that outlives this process.
pub(crate) fn tool(mark: &str, command: &mut Command) -> Result<String, SystemError> {
    let line = || {
        let words = std::iter::once(command.get_program()).chain(command.get_args());
        words
            .map(|word| word.to_string_lossy().into_owned())
            .collect::<Vec<_>>()
            .join(" ")
    };
    let line = line();
    let output = command
        .env(MARK, mark)
        .output()
        .map_err(|error| not_started(command, &error))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let stderr = String::from_utf8_lossy(&output.stderr).trim().replace('\n', "; ");
    let output = if stderr.is_empty() {
        output.status.to_string()
    } else {
        stderr
    };
    Err(SystemError::Tool {
        command: line,
        output,
    })
}

/// Returns the error of a `command` that could not be started.
pub(crate) fn not_started(command: &Command, error: &io::Error) -> SystemError {
    let tool = command.get_program().to_string_lossy().into_owned();
    if error.kind() == io::ErrorKind::NotFound && !tool.contains('/') {
        let package = package_of(&tool);
        SystemError::ToolMissing { tool, package }
    } else {
        SystemError::Tool {
            command: tool,
            output: error.to_string(),
        }
    }
}
