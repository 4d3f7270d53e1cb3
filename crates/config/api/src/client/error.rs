//! Errors of a request of the REST client.

use std::path::PathBuf;

use crate::view::Problem;

/// Errors of a request.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// No server responds at the address.
    #[error("no response from {url}: {detail}")]
    Unreachable {
        /// The address.
        url: String,
        /// The error of the system.
        detail: String,
    },
    /// The user may not connect to the Unix socket.
    #[error("no access to {}: only {allowed} may connect", path.display())]
    Denied {
        /// The path of the socket.
        path: PathBuf,
        /// The users that may connect: `root`, or `root and user 997`.
        allowed: String,
    },
    /// The server rejected the request.
    #[error("{0}")]
    Problem(Problem),
    /// The response is not that of a Millrace server.
    #[error("the response of {url} is not that of a Millrace server (HTTP {status}): {detail}")]
    NotMillrace {
        /// The address.
        url: String,
        /// The HTTP status.
        status: u16,
        /// The difference from the expected response.
        detail: String,
    },
    /// The address is not valid.
    #[error(
        "`{url}` is not the address of a server: expected unix:/run/millrace/millraced.sock or the form http://127.0.0.1:8080"
    )]
    BadUrl {
        /// The address.
        url: String,
    },
    /// The file with the authority's certificate cannot be used.
    #[error("{path}: {detail}: expected a PEM certificate")]
    BadCa {
        path: String,
        /// The cause.
        detail: String,
    },
}
