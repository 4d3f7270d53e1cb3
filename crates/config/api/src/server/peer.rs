//! The client at the other end of a connection: a user of this machine, or an address.

use std::convert::Infallible;
use std::net::IpAddr;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use millrace_listener::Source;

/// The client at the other end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Peer {
    /// A user of the Unix socket, by user id (`SO_PEERCRED`, unix(7)). The mode of the socket file admitted
    /// the user.
    User(u32),
    /// An address that connected over TCP. Each request must carry the token.
    Address(IpAddr),
    /// No client: a handler was called without a connection, as fuzzers do.
    Unknown,
}

impl Peer {
    /// Returns the origin by which connections are counted: a user, an IPv4 address, or an IPv6 /64.
    pub(super) fn source(self) -> Source {
        match self {
            Peer::Address(address) => address.into(),
            Peer::User(uid) => Source::User(uid),
            Peer::Unknown => Source::Local,
        }
    }

    /// Returns the author of a revision. For a user of the Unix socket the author is the system's user name,
    /// followed by the name that the request claims: `root (alice)`. Over TCP the author is the claimed name
    /// alone.
    pub(super) fn author(self, claimed: Option<&str>) -> String {
        let claimed = claimed.unwrap_or("").trim();
        match self {
            Peer::User(uid) => match user_name(uid) {
                name if claimed.is_empty() || claimed == name => name,
                name => format!("{name} ({claimed})"),
            },
            Peer::Address(_) | Peer::Unknown => claimed.to_owned(),
        }
    }
}

impl std::fmt::Display for Peer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Peer::User(uid) => write!(f, "user {}", user_name(*uid)),
            Peer::Address(address) => write!(f, "{address}"),
            Peer::Unknown => f.write_str("no client"),
        }
    }
}

/// Returns the name in /etc/passwd, or `uid N`.
fn user_name(uid: u32) -> String {
    let number = uid.to_string();
    let users = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    // A line of passwd(5): NAME:PASSWORD:UID:…
    let line = users
        .lines()
        .find(|line| line.split(':').nth(2) == Some(number.as_str()));
    match line.and_then(|line| line.split(':').next()) {
        Some(name) if !name.is_empty() => name.to_owned(),
        _ => format!("uid {uid}"),
    }
}

impl<S: Sync> FromRequestParts<S> for Peer {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Peer, Infallible> {
        Ok(parts.extensions.get().copied().unwrap_or(Peer::Unknown))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_author_is_the_user_that_the_system_knows_with_the_claim_beside_it() {
        let root = Peer::User(0);
        assert_eq!(root.author(None), "root");
        assert_eq!(root.author(Some("root")), "root");
        assert_eq!(root.author(Some("alice")), "root (alice)");
        assert_eq!(Peer::User(4_000_000_001).author(None), "uid 4000000001");
        let address = Peer::Address([10, 0, 0, 1].into());
        assert_eq!(address.author(Some("alice")), "alice");
    }
}
