//! The keys of receivers that this user reached before: `known_receivers`.

use std::fs;
use std::io::Write;
use std::net::ToSocketAddrs;
use std::path::Path;

use super::error::TargetError;
use crate::identity::PublicKey;
use crate::sender::Target;

/// Returns the key of a receiver that was reached before.
pub(super) fn recall(known: Option<&Path>, address: &str) -> Result<PublicKey, TargetError> {
    let text = known
        .and_then(|path| fs::read_to_string(path).ok())
        .unwrap_or_default();
    let mut keys = text.lines().filter_map(|line| line.split_once(' '));
    // The file may contain the name, or the addresses to which it resolves.
    let resolved: Vec<String> = address
        .to_socket_addrs()
        .into_iter()
        .flatten()
        .map(|address| address.to_string())
        .collect();
    let key = keys.rfind(|(known, _)| *known == address || resolved.iter().any(|other| other == known));
    let (_, key) = key.ok_or_else(|| TargetError::UnknownKey {
        address: address.to_owned(),
    })?;
    Ok(key.parse()?)
}

/// Stores the key of a receiver under its addresses. The receiver has proved that it holds the key.
///
/// # Errors
/// If the file cannot be written.
pub fn remember(known: &Path, peer: &Target) -> std::io::Result<()> {
    let text = fs::read_to_string(known).unwrap_or_default();
    let lines = peer
        .addresses
        .iter()
        .map(|address| format!("{address} {}\n", peer.key));
    let new: Vec<String> = lines
        .filter(|line| !text.lines().any(|known| known == line.trim_end()))
        .collect();
    if new.is_empty() {
        return Ok(());
    }
    if let Some(directory) = known.parent() {
        fs::create_dir_all(directory)?;
    }
    let mut file = fs::OpenOptions::new().append(true).create(true).open(known)?;
    // Another process may append at the same time: one write keeps the lines whole.
    file.write_all(new.concat().as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_receiver_is_known_after_a_ticket_led_to_it() {
        let dir = tempfile::tempdir().unwrap();
        let known = dir.path().join("millrace/known_receivers");
        let peer = Target {
            name: "a".into(),
            addresses: vec!["10.0.0.1:7800".parse().unwrap()],
            key: PublicKey::new([5; 32]),
            secret: None,
            into: Vec::new(),
        };
        assert!(recall(Some(&known), "10.0.0.1:7800").is_err());
        remember(&known, &peer).unwrap();
        remember(&known, &peer).unwrap();
        assert_eq!(recall(Some(&known), "10.0.0.1:7800").unwrap(), peer.key);
        assert_eq!(fs::read_to_string(&known).unwrap().lines().count(), 1);
    }
}
