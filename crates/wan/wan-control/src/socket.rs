//! The control socket of `millrace-wan`: a Unix socket on which each line is a JSON object, a request in one direction
//! and its reply in the other.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::settings::Change;
use crate::status::PathStatus;

/// The directory of control sockets, unless an option or `MILLRACE_WAN` names one.
pub const SOCKET_DIRECTORY: &str = "/run/millrace/wan";
/// The network namespace of this process.
const NAMESPACE: &str = "/proc/self/ns/net";
/// The time limit of a reply.
const ANSWER: Duration = Duration::from_secs(5);

/// A request of a client on the control socket.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "kebab-case")]
pub enum Request {
    /// The state of the path.
    Show,
    /// A change of settings, for frames from now on.
    Set(Change),
}

/// The answer to a [`Request`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reply {
    /// The state of the path, after a change if one was requested.
    Status(Box<PathStatus>),
    /// The reason for a refusal. The path is unchanged.
    Error(String),
}

/// The reason why a request has no reply.
#[derive(Debug, Error)]
pub enum SocketError {
    /// No program listens at the socket.
    #[error(
        "{}: no emulator answers: {source}. To fix it: start one with `millrace wan between`, or name its socket with --control",
        path.display()
    )]
    Unreachable {
        /// The socket.
        path: PathBuf,
        source: std::io::Error,
    },
    /// The answer is not a valid reply.
    #[error("{}: the answer is not one of millrace-wan: {reason}", path.display())]
    Malformed {
        /// The socket.
        path: PathBuf,
        reason: String,
    },
}

/// Returns the directory of the control sockets of this network namespace, in [`SOCKET_DIRECTORY`]: two namespaces may have
/// interfaces of the same names.
pub fn directory() -> PathBuf {
    let number = std::fs::metadata(NAMESPACE).map_or(0, |found| found.ino());
    Path::new(SOCKET_DIRECTORY).join(format!("net-{number}"))
}

/// Returns the default control socket of an emulator between two interfaces of this network namespace. Characters of
/// devargs that are unsuitable in file names become `-`.
pub fn default_socket(a: &str, b: &str) -> PathBuf {
    let name = |text: &str| {
        let text = text.strip_prefix("kernel:").unwrap_or(text);
        let safe = |c: char| {
            if c.is_ascii_alphanumeric() || "._".contains(c) {
                c
            } else {
                '-'
            }
        };
        text.chars().map(safe).collect::<String>()
    };
    directory().join(format!("{}+{}.sock", name(a), name(b)))
}

/// Returns the sockets in [`directory`], sorted, including stale sockets that killed processes left.
pub fn sockets() -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory()).into_iter().flatten();
    let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    let mut found: Vec<_> = paths
        .filter(|path| path.extension().is_some_and(|kind| kind == "sock"))
        .collect();
    found.sort();
    found
}

/// Sends a request to the emulator at a socket, and returns its reply.
///
/// # Errors
/// [`SocketError`].
pub fn ask(path: &Path, request: &Request) -> Result<Reply, SocketError> {
    let unreachable = |source| SocketError::Unreachable {
        path: path.to_owned(),
        source,
    };
    let malformed = |reason: String| SocketError::Malformed {
        path: path.to_owned(),
        reason,
    };
    let mut stream = UnixStream::connect(path).map_err(unreachable)?;
    stream.set_read_timeout(Some(ANSWER)).map_err(unreachable)?;
    let mut line = serde_json::to_string(request).map_err(|error| malformed(error.to_string()))?;
    line.push('\n');
    stream.write_all(line.as_bytes()).map_err(unreachable)?;
    let mut answer = String::new();
    BufReader::new(stream)
        .read_line(&mut answer)
        .map_err(unreachable)?;
    serde_json::from_str(&answer).map_err(|error| malformed(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_lines_that_a_person_can_type() {
        let set: Request = serde_json::from_str(r#"{"command":"set","both":[["delay","10ms"]]}"#).unwrap();
        let Request::Set(change) = &set else { panic!() };
        assert_eq!(change.both, [("delay".to_owned(), "10ms".to_owned())]);
        assert_eq!(
            serde_json::from_str::<Request>(r#"{"command":"show"}"#).unwrap(),
            Request::Show
        );
        assert!(serde_json::from_str::<Request>(r#"{"command":"set","all":[]}"#).is_err());
    }

    #[test]
    fn a_socket_is_named_after_its_interfaces() {
        let socket = default_socket("kernel:eth1", "net_af_xdp0,iface=eth2");
        assert_eq!(socket, directory().join("eth1+net_af_xdp0-iface-eth2.sock"));
        let error = ask(Path::new("/nonexistent/x.sock"), &Request::Show).unwrap_err();
        assert!(error.to_string().contains("millrace wan between"), "{error}");
    }
}
