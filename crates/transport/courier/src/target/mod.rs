//! Words that name a receiver: tickets, paths of a daemon, and addresses with a key or with a known key.

mod error;
mod known;
mod url;

pub use error::TargetError;
pub use known::remember;
pub use url::{SCHEME, Url};

use crate::identity::PublicKey;
use crate::sender::Target;
use crate::ticket::{PREFIX, Ticket};
use known::recall;
use std::net::ToSocketAddrs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

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

/// Returns the receiver of a ticket, `millrace://HOST/GRANT/PATH`, KEY@HOST:PORT, or HOST:PORT. `known`: the file of known keys.
///
/// # Errors
/// If the word is none of these, a host cannot be resolved, or its key is not known.
pub fn parse(word: &str, known: Option<&Path>) -> Result<Target, TargetError> {
    if word.starts_with(PREFIX) && !word.contains(':') {
        let ticket: Ticket = word.parse()?;
        if ticket.is_expired(SystemTime::now()) {
            return Err(TargetError::Expired);
        }
        return Ok(Target::from_ticket(&ticket));
    }
    if let Some(url) = Url::parse(word) {
        return url?.target(known);
    }
    let (key, address) = match word.split_once('@') {
        Some((key, address)) => (key.parse::<PublicKey>()?, address),
        None => (recall(known, word)?, word),
    };
    let addresses = address.to_socket_addrs().map_err(|error| TargetError::Resolve {
        address: address.to_owned(),
        error,
    })?;
    Ok(Target {
        name: address.to_owned(),
        addresses: addresses.collect(),
        key,
        secret: None,
        into: Vec::new(),
    })
}
