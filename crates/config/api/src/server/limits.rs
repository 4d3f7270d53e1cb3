//! Limits on connections, bodies and waiting times.

use std::time::Duration;

/// The largest body of a request, in bytes: enough for a configuration of thousands of ports.
pub const BODY_LIMIT: usize = 4 << 20;

/// The limits for clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The largest number of connections to one listener.
    pub connections: usize,
    /// The largest number of connections of one user, IPv4 address or IPv6 /64 to one listener.
    pub connections_per_peer: usize,
    /// The largest number of further connections, which are served `/health` and `/ready` only.
    pub probes: usize,
    /// The longest duration of the TLS handshake, of a request's head, and of the pause between two requests.
    pub head: Duration,
    /// The longest time until the body of a request is complete.
    pub body: Duration,
    /// The longest time without progress while a response is written to the client.
    pub write: Duration,
    /// The longest duration of a connection that is served `/health` and `/ready` only.
    pub probe: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            connections: 256,
            connections_per_peer: 64,
            probes: 16,
            head: Duration::from_secs(10),
            body: Duration::from_secs(10),
            write: Duration::from_secs(10),
            probe: Duration::from_secs(5),
        }
    }
}
