//! Paths of a daemon: `millrace://[KEY@]HOST[:PORT]/GRANT/PATH`.

use std::net::ToSocketAddrs;
use std::path::Path;

use super::error::TargetError;
use super::known;
use crate::identity::PublicKey;
use crate::sender::Target;

/// The start of a path of a daemon.
pub const SCHEME: &str = "millrace://";

/// The UDP port of receivers and daemons, unless another one is given.
const PORT: u16 = 7_800;

/// A path of a daemon.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Url {
    key: Option<PublicKey>,
    /// HOST:PORT.
    address: String,
    /// The name of a grant, and a path below it.
    pub path: String,
}

impl Url {
    /// Parses a word as a path of a daemon; `None` if it does not begin with [`SCHEME`].
    ///
    /// # Errors
    /// If the key or the host is not valid.
    pub fn parse(word: &str) -> Option<Result<Url, TargetError>> {
        let rest = word.strip_prefix(SCHEME)?;
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (key, host) = match authority.split_once('@') {
            Some((key, host)) => match key.parse::<PublicKey>() {
                Ok(key) => (Some(key), host),
                Err(error) => return Some(Err(error.into())),
            },
            None => (None, authority),
        };
        if host.is_empty() {
            return Some(Err(TargetError::Url {
                word: word.to_owned(),
            }));
        }
        let address = with_port(host);
        let path = path.to_owned();
        Some(Ok(Url { key, address, path }))
    }

    /// Returns the name of the one entry that the path stands for; `None` if it stands for the contents of a directory, as the path of a grant
    /// and a path with a trailing slash do.
    pub fn entry_name(&self) -> Option<&str> {
        let (_, name) = self.path.rsplit_once('/')?;
        Some(name).filter(|name| !name.is_empty())
    }

    /// Returns the daemon as a target; the path is the destination of the files. `known`: the file of known
    /// keys.
    ///
    /// # Errors
    /// If the host cannot be resolved, or its key is not known.
    pub fn target(&self, known: Option<&Path>) -> Result<Target, TargetError> {
        let addresses = self
            .address
            .to_socket_addrs()
            .map_err(|error| TargetError::Resolve {
                address: self.address.clone(),
                error,
            })?;
        let key = match self.key {
            Some(key) => key,
            None => known::recall(known, &self.address)?,
        };
        Ok(Target {
            name: self.address.clone(),
            addresses: addresses.collect(),
            key,
            secret: None,
            into: self.path.clone().into_bytes(),
        })
    }
}

/// Returns HOST:PORT for HOST or HOST:PORT. The colons of an IPv6 address are in brackets.
pub(super) fn with_port(host: &str) -> String {
    let has_port = host.rsplit_once(':').is_some_and(|(_, port)| !port.contains(']'));
    if has_port {
        host.to_owned()
    } else {
        format!("{host}:{PORT}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_of_a_daemon_has_host_port_key_and_grant() {
        let url = |word: &str| Url::parse(word).unwrap().unwrap();
        let plain = url("millrace://site-a/in/2026/");
        assert_eq!((&*plain.address, &*plain.path), ("site-a:7800", "in/2026/"));
        assert_eq!(plain.entry_name(), None);
        assert_eq!(url("millrace://site-a/in").entry_name(), None);
        assert_eq!(url("millrace://site-a/in/a/b.h5").entry_name(), Some("b.h5"));
        let key = PublicKey::new([7; 32]);
        let keyed = url(&format!("millrace://{key}@[::1]:7801"));
        assert_eq!(
            (keyed.key, &*keyed.address, &*keyed.path),
            (Some(key), "[::1]:7801", "")
        );
        assert_eq!(url("millrace://[::1]/in").address, "[::1]:7800");
        for other in ["mr1abc", "site:/in", "./millrace://x"] {
            assert!(Url::parse(other).is_none(), "{other}");
        }
        let error = Url::parse("millrace:///in").unwrap().unwrap_err().to_string();
        assert!(error.contains("millrace://HOST"), "{error}");
        assert!(Url::parse("millrace://short@host/in").unwrap().is_err());
    }
}
