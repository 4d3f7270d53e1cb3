//! The keys of receivers that this user reached before: `known_receivers`.

use std::fs;
use std::io::Write;
use std::net::{SocketAddr, ToSocketAddrs};
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

/// Stores the key of a receiver under its addresses, at one of which it has proved that it holds the key. The receiver writes its
/// ticket, which may name addresses of others: an address that is known under another key keeps that key, and is returned.
/// Addresses that the user gave get the key that the user gave.
///
/// # Errors
/// If the file cannot be written.
pub fn remember(known: &Path, peer: &Target) -> std::io::Result<Vec<SocketAddr>> {
    let text = fs::read_to_string(known).unwrap_or_default();
    let (mut new, mut others) = (Vec::new(), Vec::new());
    for address in &peer.addresses {
        let name = address.to_string();
        let mut keys = text.lines().filter_map(|line| line.split_once(' '));
        match keys.rfind(|(known, _)| *known == name) {
            Some((_, key)) if key == peer.key.to_string() => {}
            Some(_) if peer.secret.is_some() => others.push(*address),
            _ => new.push(format!("{address} {}\n", peer.key)),
        }
    }
    if new.is_empty() {
        return Ok(others);
    }
    if let Some(directory) = known.parent() {
        fs::create_dir_all(directory)?;
    }
    let mut file = fs::OpenOptions::new().append(true).create(true).open(known)?;
    // Another process may append at the same time: one write keeps the lines whole.
    file.write_all(new.concat().as_bytes())?;
    Ok(others)
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

    #[test]
    fn a_ticket_does_not_change_the_known_key_of_an_address() {
        let dir = tempfile::tempdir().unwrap();
        let known = dir.path().join("known_receivers");
        let [own, other] = ["10.0.0.1:7800", "10.0.0.7:7800"].map(|text| text.parse().unwrap());
        let peer = |key: u8, addresses: Vec<SocketAddr>, secret| Target {
            name: "a".into(),
            addresses,
            key: PublicKey::new([key; 32]),
            secret,
            into: Vec::new(),
        };
        let daemon = peer(1, vec![other], None);
        assert_eq!(remember(&known, &daemon).unwrap(), []);
        let ticket = peer(2, vec![own, other], Some([0; 16]));
        assert_eq!(remember(&known, &ticket).unwrap(), [other]);
        let key = |address: &str| recall(Some(&known), address).unwrap();
        assert_eq!(
            [key("10.0.0.7:7800"), key("10.0.0.1:7800")],
            [daemon.key, ticket.key]
        );
        // The user gives address and key.
        let renewed = peer(3, vec![other], None);
        assert_eq!(remember(&known, &renewed).unwrap(), []);
        assert_eq!(key("10.0.0.7:7800"), renewed.key);
    }
}
