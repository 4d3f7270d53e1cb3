//! Connecting to a controller: bounds, errors, and randomness for pauses.

use core::hash::{BuildHasher, Hasher};
use std::collections::hash_map::RandomState;
use std::io;

use millrace_model::Host;
use millrace_types::Duration;
use tokio::net::{TcpStream, lookup_host};

use super::tls::TlsProblem;

/// The maximum duration of one attempt.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Waits for an attempt, for ten seconds at most.
pub(super) async fn in_time<T>(attempt: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    tokio::time::timeout(CONNECT_TIMEOUT, attempt)
        .await
        .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

/// Connects to the first address of `host` that accepts the connection. Each address gets ten seconds.
pub(super) async fn connect_to(host: &Host, port: u16) -> io::Result<TcpStream> {
    let name = match host {
        Host::Ip(ip) => return in_time(TcpStream::connect((*ip, port))).await,
        Host::Name(name) => name.as_str(),
    };
    let mut failed = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for address in in_time(lookup_host((name, port))).await? {
        match in_time(TcpStream::connect(address)).await {
            Ok(tcp) => return Ok(tcp),
            Err(error) => failed = io::Error::new(error.kind(), format!("{address}: {error}")),
        }
    }
    Err(failed)
}

/// Returns the text of a failed attempt, with the next step.
pub(super) fn explain(error: &io::Error, target: &str) -> String {
    let next_step = match error.kind() {
        io::ErrorKind::ConnectionRefused => "is the controller running, and on this port?",
        io::ErrorKind::TimedOut | io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable => {
            "is there a route to the controller, and no firewall in between?"
        }
        _ if error
            .get_ref()
            .is_some_and(<dyn core::error::Error + Send + Sync>::is::<TlsProblem>) =>
        {
            return format!("{target}: {error}");
        }
        _ => "check the address of the controller",
    };
    format!("{target}: {error}; {next_step}")
}

/// Returns a random number: the keys of hash maps are random in every process and differ at each call.
pub(super) fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}
