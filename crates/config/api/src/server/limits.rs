//! Limits on connections, bodies and waiting times.

use std::time::Duration;

/// The largest body of a request, in bytes: enough for a configuration of thousands of ports.
pub const BODY_LIMIT: usize = 4 << 20;

/// The limits for clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The largest number of connections to one listener with a request that was authorized.
    pub connections: usize,
    /// The largest number of these of one user, IPv4 address or IPv6 /64.
    pub connections_per_peer: usize,
    /// The largest number of connections without such a request. A newer one closes the oldest of them.
    pub pending: usize,
    /// The largest number of these of one user, IPv4 address or IPv6 /64.
    pub pending_per_peer: usize,
    /// The longest duration of the TLS handshake, of a request's head, and of the pause between two requests.
    pub head: Duration,
    /// The longest time until the body of a request is complete.
    pub body: Duration,
    /// The longest time without progress while a response is written to the client.
    pub write: Duration,
}

impl Limits {
    /// Returns the limits on the numbers of connections.
    pub(super) fn of_connections(&self) -> millrace_listener::Limits {
        millrace_listener::Limits {
            established: self.connections,
            established_of_source: self.connections_per_peer,
            pending: self.pending,
            pending_of_source: self.pending_per_peer,
        }
    }
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            connections: 256,
            connections_per_peer: 64,
            pending: 128,
            pending_per_peer: 64,
            head: Duration::from_secs(10),
            body: Duration::from_secs(10),
            write: Duration::from_secs(10),
        }
    }
}
