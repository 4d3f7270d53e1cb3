//! `millrace receive`: files into a directory.

use std::io::{ErrorKind, Write};
use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

use millrace_courier::io::UdpIo;
use millrace_courier::local::{LocalStore, PlaceOptions};
use millrace_courier::target::{TargetError, Url, known_receivers, remember};
use millrace_courier::{
    Interrupts, KeptTicket, Outcome, ReceiveError, ReceiveOptions, Session as Transfer, SessionError,
    exit_status,
};

use crate::args::{Commit, Receive};
use crate::device::{OpenDpdk, open};
use crate::display::{Display, Result, config_directory, identity, key_log, watch};
use crate::error::CommandError;
use crate::ports::Listen;

/// Receives files; returns the exit status. `json`: events are printed as JSON; `open_dpdk`: opens DPDK devices.
///
/// # Errors
/// If no sender can be served.
pub fn receive(json: bool, args: &Receive, open_dpdk: OpenDpdk<'_>) -> Result<ExitCode> {
    if !args.directory.is_dir() {
        return Err(CommandError::NoDirectory {
            path: args.directory.clone(),
        });
    }
    let place = PlaceOptions {
        all_at_once: args.commit == Commit::All,
        keep_existing: args.keep_existing,
        delta: args.delta,
        modes_and_times: args.modes_and_times,
        preserve: args.preserve,
        ..PlaceOptions::default()
    };
    let mut store = LocalStore::new(&args.directory, place);
    // A sender would learn it only after its first bytes.
    store.check_writable().map_err(|error| CommandError::ReadOnly {
        path: args.directory.clone(),
        error,
    })?;
    let mut addresses = Vec::new();
    for address in &args.address {
        addresses.extend(
            address
                .resolve()
                .map_err(|error| CommandError::Address { error })?,
        );
    }
    let identity = identity(args.identity.as_deref())?;
    let stop = Interrupts::new().map_err(CommandError::Signals)?;
    let mut options = ReceiveOptions {
        listen: args.listen.first,
        addresses,
        once: args.once,
        allow: args.allow.clone(),
        expiry: Duration::from_secs(args.valid.saturating_mul(3_600)),
        silence: args.silence,
        patience: args.patience,
        key_log: key_log(args.key_log.as_deref())?,
        // Without a configuration directory, no ticket is kept: a receiver that is started again needs a new
        // one.
        kept_ticket: config_directory()
            .ok()
            .and_then(|configuration| KeptTicket::of_directory(&configuration, &args.directory).ok()),
    };
    let mut display = Display::new(json);
    let known = known_receivers();
    let from = match &args.from {
        Some(word) => {
            let url = Url::parse(word).ok_or_else(|| TargetError::Url { word: word.clone() })??;
            if let Some(name) = url.entry_name() {
                store = store.only(name.as_bytes());
            }
            Some((url.target(known.as_deref())?, url.path.into_bytes()))
        }
        None => None,
    };
    let store = Box::new(store);
    let once = args.once || from.is_some();
    let daemon = from.as_ref().map(|(target, _)| target.clone());
    let transfer = match (&args.via, from) {
        (_, Some((target, path))) => Transfer::fetch(store, identity, target, path, options)?,
        (Some(via), None) => {
            let io = open(via, args.listen.first.port(), open_dpdk)?;
            if options.addresses.is_empty() {
                let own_port = |ip| SocketAddr::new(ip, 0);
                options.addresses = via.ips().into_iter().map(own_port).collect();
            }
            Transfer::receive_over(io, store, identity, options)?
        }
        (None, None) => {
            let io = bind(args.listen)?;
            Transfer::receive_over(Box::new(io), store, identity, options)?
        }
    };
    let outcomes = watch(transfer, stop, &mut display)?;
    display.finish()?;
    if let (Some(daemon), Some(known), [Outcome::Delivered]) = (&daemon, &known, &outcomes[..]) {
        // Errors are ignored: the files have arrived even if the key cannot be stored.
        let _ = remember(known, daemon);
    }
    let resumable = |outcome: &Outcome| matches!(outcome, Outcome::Resumable { .. });
    // Without any outcome, the receiver was stopped before a transfer began.
    if once && !json && (outcomes.is_empty() || outcomes.iter().any(resumable)) {
        let text = if args.from.is_some() {
            "to go on, run it again: what arrived is kept"
        } else {
            "to go on, run it again; the sender repeats its command with the same ticket: what arrived is kept"
        };
        let _ = writeln!(std::io::stderr(), "{text}");
    }
    let status = if outcomes.is_empty() && !once {
        0
    } else {
        exit_status(&outcomes)
    };
    Ok(ExitCode::from(status))
}

/// Returns a socket at the first free port of `listen`.
fn bind(listen: Listen) -> Result<UdpIo> {
    let Listen { first, last } = listen;
    let mut address = first;
    loop {
        match UdpIo::bind(address) {
            Ok(io) => return Ok(io),
            Err(error) if error.kind() != ErrorKind::AddrInUse || first.port() == last => {
                return Err(SessionError::from(ReceiveError::Listen { address, error }).into());
            }
            Err(_) if address.port() < last => address.set_port(address.port() + 1),
            Err(_) => return Err(CommandError::PortsInUse { first, last }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use millrace_courier::io::DatagramIo;

    #[test]
    fn ports_in_use_are_passed_over_and_a_range_without_a_free_port_is_named() {
        // An address of the loopback interface that no other test has.
        let any = "127.0.0.78:0".parse().unwrap();
        // Two adjacent ports, the first of them in use.
        let (taken, first) = std::iter::repeat_with(|| UdpIo::bind(any).unwrap())
            .map(|io| {
                let address = io.local_address().unwrap();
                (io, address)
            })
            .find(|(_, address)| {
                let next = address.port().checked_add(1);
                next.is_some_and(|port| UdpIo::bind(SocketAddr::new(address.ip(), port)).is_ok())
            })
            .unwrap();
        let single = Listen {
            first,
            last: first.port(),
        };
        let error = bind(single).unwrap_err().to_string();
        let expected = format!("cannot listen at {first}: ");
        assert!(
            error.starts_with(&expected) && error.contains("--listen"),
            "{error}"
        );
        let range = Listen {
            first,
            last: first.port() + 1,
        };
        let second = bind(range).unwrap();
        assert_eq!(second.local_address().unwrap().port(), first.port() + 1);
        let error = bind(range).unwrap_err().to_string();
        let expected = format!(
            "UDP ports {} to {} of {} are all in use",
            first.port(),
            range.last,
            first.ip()
        );
        assert!(error.contains(&expected) && error.contains("--listen"), "{error}");
        drop(taken);
    }
}
