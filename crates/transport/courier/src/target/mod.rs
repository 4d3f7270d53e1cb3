//! Words that name a receiver: tickets, paths of a daemon, and addresses with a key or with a known key.

mod error;
mod known;
mod url;

pub use error::TargetError;
pub use known::remember;
pub use url::{SCHEME, Url};

use crate::identity::PublicKey;
use crate::sender::Target;
use crate::ticket::PREFIX;
use known::recall;
use std::net::ToSocketAddrs;
use std::path::{Path, PathBuf};
use url::with_port;

/// Returns the directory of this user's identity and known receivers: `~/.config/millrace`, or as `XDG_CONFIG_HOME` says.
pub fn config_directory() -> Option<PathBuf> {
    let from = |name: &str| {
        let path = std::env::var_os(name).filter(|path| !path.is_empty());
        path.map(PathBuf::from)
    };
    let base = from("XDG_CONFIG_HOME").or_else(|| from("HOME").map(|home| home.join(".config")));
    Some(base?.join("millrace"))
}

/// Returns the file with the keys of receivers that this user reached before.
pub fn known_receivers() -> Option<PathBuf> {
    config_directory().map(|directory| directory.join("known_receivers"))
}

/// Returns the receiver of a ticket, `millrace://HOST/GRANT/PATH`, KEY@HOST, KEY@HOST:PORT, or HOST:PORT. `known`: the file of known keys.
///
/// # Errors
/// If the word is none of these, a host cannot be resolved, or its key is not known.
pub fn parse(word: &str, known: Option<&Path>) -> Result<Target, TargetError> {
    if word.starts_with(PREFIX) && !word.contains(':') {
        // The receiver decides by its own clock whether the ticket has expired.
        return Ok(Target::from_ticket(&word.parse()?));
    }
    if let Some(url) = Url::parse(word) {
        return url?.target(known);
    }
    let (key, address) = match word.split_once('@') {
        Some((key, address)) => (key.parse::<PublicKey>()?, with_port(address)),
        None => (recall(known, word)?, word.to_owned()),
    };
    let addresses = address.to_socket_addrs().map_err(|error| TargetError::Resolve {
        address: address.clone(),
        error,
    })?;
    Ok(Target {
        addresses: addresses.collect(),
        name: address,
        key,
        secret: None,
        into: Vec::new(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ticket::Ticket;
    use std::time::{Duration, UNIX_EPOCH};

    #[test]
    fn a_key_at_a_host_needs_no_port_and_the_receiver_decides_about_the_expiry_of_a_ticket() {
        let key = PublicKey::new([7; 32]);
        for (host, address) in [
            ("127.0.0.1", "127.0.0.1:7800"),
            ("127.0.0.1:9", "127.0.0.1:9"),
            ("[::1]", "[::1]:7800"),
        ] {
            let target = parse(&format!("{key}@{host}"), None).unwrap();
            assert_eq!(target.addresses, [address.parse().unwrap()], "{host}");
        }
        let ticket = Ticket {
            expires: UNIX_EPOCH + Duration::from_secs(1),
            key,
            secret: [1; 16],
            addresses: vec!["127.0.0.1:7800".parse().unwrap()],
        };
        assert_eq!(parse(&ticket.to_string(), None).unwrap().key, key);
    }
}
