//! Runs connections on tokio: listeners over TCP, TLS and Unix sockets, and sessions.
//!
//! ```text
//!   Listener ── accept ─► handshake (bounded in number and time) ─► Session ─┬─ Handle: dump, commit, request, send
//!                                                                            └─ Events
//! ```
//!
//! A connection is pending until [`Session::establish`]: at a limit, a newer connection closes it.
//!
//! One task runs one session. The task ends when the connection ends, or when all [`Handle`]s of the session are
//! dropped.

mod listener;
mod private_socket;
mod session;
mod task;
mod tls;

use std::net::SocketAddr;
use std::path::PathBuf;

use tokio::io::{AsyncRead, AsyncWrite};

pub use listener::{Config, Listener, connect, listen};
pub use millrace_listener::{EstablishError, Limits};
pub use private_socket::bind_private;
pub use session::{Events, Handle, Peer, RoleRefused, Session};
pub use tls::{TlsFiles, TlsFilesError};

/// The address at which the controller listens for switches, or at which a switch listens.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Target {
    /// TCP without encryption. Use it on loopback and on closed control networks only.
    Tcp(SocketAddr),
    /// TCP with TLS, in which both sides present a certificate.
    Tls(SocketAddr),
    /// A Unix socket, for a switch on the same machine.
    Unix(PathBuf),
}

impl core::fmt::Display for Target {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Target::Tcp(address) => write!(f, "tcp:{address}"),
            Target::Tls(address) => write!(f, "ssl:{address}"),
            Target::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// A byte stream to a switch.
trait Socket: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Socket for T {}

type Stream = Box<dyn Socket>;
