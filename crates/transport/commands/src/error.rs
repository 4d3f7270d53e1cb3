//! Errors of the commands `send`, `receive` and `courier`.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use millrace_courier::SessionError;
use millrace_courier::files::FilesError;
use millrace_courier::identity::IdentityError;
use millrace_courier::target::TargetError;
use millrace_courier::ticket::TicketError;
use thiserror::Error;

use crate::ports::PortRange;

/// A command that cannot continue.
#[derive(Debug, Error)]
pub enum CommandError {
    /// There is no directory for keys.
    #[error("neither HOME nor XDG_CONFIG_HOME is set; give --identity FILE")]
    NoHome,
    /// Signals cannot be watched.
    #[error("cannot watch for signals: {0}")]
    Signals(io::Error),
    /// Standard output failed.
    #[error("standard output failed")]
    Output(#[from] io::Error),
    /// An event cannot be printed.
    #[error("an event cannot be printed as JSON: {0}")]
    Json(#[from] serde_json::Error),
    /// No target is given.
    #[error(
        "no target is given; expected a ticket (mr1…), HOST:DIRECTORY, KEY@HOST[:PORT] or HOST:PORT after the sources"
    )]
    NoTarget,
    /// A ticket is incomplete.
    #[error(
        "`{word}` is no path, and too short for a ticket: it has {given} characters, a ticket {least} at least; copy the whole \
         line that `millrace receive` printed"
    )]
    CutTicket {
        word: String,
        /// Characters of the word.
        given: usize,
        /// Characters of the shortest ticket.
        least: usize,
    },
    /// Standard input is no source.
    #[error(
        "`-` is no source: a transfer announces the size of each file and may read it again, which a stream does not permit; write the \
         stream into a file first, and send that"
    )]
    Stdin,
    /// An address for the ticket cannot be resolved.
    #[error("cannot resolve an address of --address: {error}; give IP addresses")]
    Address { error: io::Error },
    /// The target of a receive cannot be written.
    #[error("no file can be made in {}: {error}; permit it, or receive into another directory", path.display())]
    ReadOnly { path: PathBuf, error: io::Error },
    /// Partial files cannot be removed.
    #[error("{}: {error}", path.display())]
    Clean { path: PathBuf, error: io::Error },
    /// No source is given.
    #[error("no source is given; expected files or directories before the target")]
    NoSource,
    /// A source comes after a target.
    #[error("`{word}` comes after a target and is none; give all sources first")]
    SourceAfterTarget { word: String },
    /// A word names no receiver.
    #[error(transparent)]
    Target(#[from] TargetError),
    /// The target of a receive is no directory.
    #[error("{} is no directory; create it first", path.display())]
    NoDirectory { path: PathBuf },
    /// A range has no free port.
    #[error("UDP ports {} to {last} of {} are all in use; give another range with --listen", first.port(), first.ip())]
    PortsInUse {
        /// The address with the first port.
        first: SocketAddr,
        /// The last port.
        last: u16,
    },
    /// The interface cannot be used.
    #[error("--via {device}: {reason}")]
    Via { device: String, reason: String },
    /// The program has no DPDK.
    #[error(
        "--via {devargs} is a device of DPDK, which this program is built without; use `millrace-courier` in its place"
    )]
    NoDpdk { devargs: String },
    /// The daemon cannot start or continue.
    #[error(transparent)]
    Serve(#[from] millrace_courier_daemon::ServeError),
    /// The daemon's status cannot be read.
    #[error(transparent)]
    Status(#[from] millrace_courier_daemon::StatusError),
    /// A daemon does not answer a request.
    #[error(transparent)]
    Request(#[from] millrace_courier::RequestError),
    /// The identity cannot be used.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// A ticket cannot be read.
    #[error(transparent)]
    Ticket(#[from] TicketError),
    /// The files cannot be read.
    #[error(transparent)]
    Files(#[from] FilesError),
    /// The transfer cannot begin or continue.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// A list of sources or targets cannot be read.
    #[error("cannot open or read {}: {error}", path.display())]
    List { path: PathBuf, error: io::Error },
    /// The command that reaches another machine cannot be run.
    #[error("cannot run `{command}`: {error}; give another command with --ssh")]
    Ssh { command: String, error: io::Error },
    /// A receiver on another machine did not start.
    #[error(
        "the receiver on {host} did not start, for the reason above; its directory must exist, and `millrace` must be in the PATH \
         there, or be named by --remote-program{}",
        ports.map(port_advice).unwrap_or_default()
    )]
    Remote {
        /// The machine.
        host: String,
        /// The ports of `--port`.
        ports: Option<PortRange>,
    },
}

/// Returns the advice for a receiver that may have found its ports in use.
fn port_advice(ports: PortRange) -> String {
    format!(
        "; if UDP port {ports} is in use there, give another port or a range with --port, such as --port 7800:7809"
    )
}
