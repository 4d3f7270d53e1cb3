//! `millrace send`: files and directories to receivers.

use std::fs;
use std::io::Write;
use std::net::ToSocketAddrs;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::SystemTime;

use millrace_courier::files::Source;
use millrace_courier::identity::PublicKey;
use millrace_courier::io::via::Via;
use millrace_courier::local::LocalSource;
use millrace_courier::ticket::{PREFIX, Ticket};
use millrace_courier::{Event, Outcome, SendOptions, Target, exit_status, interrupts, send_over};

use crate::args::Send;
use crate::device::{OpenDpdk, open};
use crate::display::{Display, Result, config_directory, identity, say, size};
use crate::error::CommandError;

/// Characters of the shortest ticket.
const TICKET_MIN: usize = 90;

/// Sends files; returns the exit status. `json`: events are printed as JSON; `open_dpdk`: opens DPDK devices.
///
/// # Errors
/// If it cannot go on for any target.
pub fn send(json: bool, args: &Send, open_dpdk: OpenDpdk<'_>) -> Result<ExitCode> {
    let (sources, targets) = split(&args.words)?;
    let known = config_directory()
        .map(|directory| directory.join("known_receivers"))
        .ok();
    let targets: Vec<Target> = targets
        .iter()
        .map(|text| target(text, known.as_deref()))
        .collect::<Result<_>>()?;
    let identity = identity(args.identity.as_deref())?;
    let stop = interrupts().map_err(CommandError::Signals)?;
    let mut source = LocalSource::scan(&sources, args.withdraw_changed)?;
    for (path, reason) in source.skipped() {
        let _ = writeln!(std::io::stderr(), "not sent: {path}: {reason}");
    }
    if args.dry_run {
        let text = format!("{} files, {}\n", source.files(), size(source.layout().bytes()));
        say(&text)?;
        return Ok(ExitCode::SUCCESS);
    }
    let options = SendOptions {
        rate: args.rate,
        loss_tolerance: args.loss_tolerance.map(|percent| percent / 100.0),
    };
    let mut display = Display::new(json);
    let peers = targets.clone();
    let mut on_event = |event| display.show(&event);
    let (source, stop) = (&mut source, Some(stop.as_fd()));
    let outcomes = match &args.via {
        Some(via) => {
            let io = open(via, Via::dynamic_port()?, open_dpdk)?;
            send_over(io, source, &identity, targets, options, stop, &mut on_event)?
        }
        None => millrace_courier::send(source, &identity, targets, options, stop, &mut on_event)?,
    };
    let delivered = |outcome: &Outcome| matches!(outcome, Outcome::Delivered);
    for (peer, outcome) in peers.iter().zip(&outcomes) {
        if let (true, Some(known)) = (delivered(outcome), &known) {
            // The transfer is complete, remembered or not.
            let _ = remember(known, peer);
        }
    }
    display.show(&Event::Summary {
        delivered: outcomes.iter().filter(|outcome| delivered(outcome)).count(),
        peers: outcomes.len(),
    });
    display.finish()?;
    let resumable = |outcome: &Outcome| matches!(outcome, Outcome::Resumable { .. });
    if outcomes.iter().any(resumable) && !json {
        let words: Vec<String> = std::env::args().skip(1).map(|word| quoted(&word)).collect();
        let _ = writeln!(
            std::io::stderr(),
            "to go on, run it again: {} {}",
            program(),
            words.join(" ")
        );
    }
    Ok(ExitCode::from(exit_status(&outcomes)))
}

/// Returns the name by which the program was started.
fn program() -> String {
    let path = std::env::args_os().next().map(PathBuf::from).unwrap_or_default();
    let name = path.file_name().unwrap_or_default();
    quoted(&name.to_string_lossy())
}

/// Returns a word as a shell takes it.
fn quoted(word: &str) -> String {
    let plain = |char: char| char.is_ascii_alphanumeric() || "-_./:@=,+%".contains(char);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// Returns true for a ticket, KEY@HOST:PORT and HOST:PORT; as with scp, a slash before the colon makes a word a path.
fn is_target(word: &str) -> bool {
    let is_ticket = word.starts_with(PREFIX) && word.len() >= TICKET_MIN && !word.contains(['/', '.']);
    let is_address = word
        .rsplit_once(':')
        .is_some_and(|(host, port)| !host.contains('/') && !host.is_empty() && port.parse::<u16>().is_ok());
    is_ticket || is_address
}

/// Splits the words into sources and targets.
fn split(words: &[String]) -> Result<(Vec<PathBuf>, Vec<&str>)> {
    let first = words
        .iter()
        .position(|word| is_target(word))
        .unwrap_or(words.len());
    let (sources, targets) = words.split_at(first);
    if targets.is_empty() {
        return Err(CommandError::NoTarget);
    }
    if sources.is_empty() {
        return Err(CommandError::NoSource);
    }
    if let Some(path) = targets.iter().find(|word| !is_target(word)) {
        return Err(CommandError::SourceAfterTarget { word: path.clone() });
    }
    Ok((
        sources.iter().map(PathBuf::from).collect(),
        targets.iter().map(String::as_str).collect(),
    ))
}

fn target(text: &str, known: Option<&Path>) -> Result<Target> {
    if text.starts_with(PREFIX) && !text.contains(':') {
        let ticket: Ticket = text.parse()?;
        if ticket.is_expired(SystemTime::now()) {
            return Err(CommandError::Expired);
        }
        let first = ticket.addresses.first().map(ToString::to_string);
        return Ok(Target {
            name: first.unwrap_or_default(),
            addresses: ticket.addresses,
            key: ticket.key,
            secret: Some(ticket.secret),
        });
    }
    let (key, address) = match text.split_once('@') {
        Some((key, address)) => (key.parse::<PublicKey>()?, address),
        None => (recall(known, text)?, text),
    };
    let addresses: Vec<_> = address
        .to_socket_addrs()
        .map_err(|error| CommandError::Resolve {
            address: address.to_owned(),
            error,
        })?
        .collect();
    Ok(Target {
        name: address.to_owned(),
        addresses,
        key,
        secret: None,
    })
}

/// Returns the key of a receiver that was reached by a ticket before.
fn recall(known: Option<&Path>, address: &str) -> Result<PublicKey> {
    let text = known
        .and_then(|path| fs::read_to_string(path).ok())
        .unwrap_or_default();
    let mut keys = text.lines().filter_map(|line| line.split_once(' '));
    let key = keys.rfind(|(known, _)| *known == address);
    let (_, key) = key.ok_or_else(|| CommandError::UnknownKey {
        address: address.to_owned(),
    })?;
    Ok(key.parse()?)
}

/// Notes the key of a receiver under its addresses.
fn remember(known: &Path, peer: &Target) -> Result<()> {
    let text = fs::read_to_string(known).unwrap_or_default();
    let mut file = fs::OpenOptions::new().append(true).create(true).open(known)?;
    for address in &peer.addresses {
        let line = format!("{address} {}", peer.key);
        if !text.lines().any(|known| known == line) {
            writeln!(file, "{line}")?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn sources_end_where_targets_begin() {
        let given = words("data/ ./a:80 mr1.iso host:7800 key@[::1]:7800");
        let (sources, targets) = split(&given).unwrap();
        assert_eq!(sources, ["data/", "./a:80", "mr1.iso"].map(PathBuf::from));
        assert_eq!(targets, ["host:7800", "key@[::1]:7800"]);
        for wrong in ["a b", "host:1 host:2", "a host:1 b"] {
            assert!(split(&words(wrong)).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_command_that_goes_on_can_be_pasted() {
        assert_eq!(
            ["a b", "it's", "x/y", ""].map(quoted),
            ["'a b'", r"'it'\''s'", "x/y", "''"]
        );
    }

    #[test]
    fn a_receiver_is_known_after_a_ticket_led_to_it() {
        let dir = tempfile::tempdir().unwrap();
        let known = dir.path().join("known_receivers");
        let peer = Target {
            name: "a".into(),
            addresses: vec!["10.0.0.1:7800".parse().unwrap()],
            key: PublicKey::new([5; 32]),
            secret: None,
        };
        assert!(recall(Some(&known), "10.0.0.1:7800").is_err());
        remember(&known, &peer).unwrap();
        remember(&known, &peer).unwrap();
        assert_eq!(recall(Some(&known), "10.0.0.1:7800").unwrap(), peer.key);
        assert_eq!(fs::read_to_string(&known).unwrap().lines().count(), 1);
    }
}
