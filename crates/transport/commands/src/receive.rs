//! `millrace receive`: files into a directory.

use std::os::fd::AsFd;
use std::process::ExitCode;
use std::time::Duration;

use millrace_courier::local::{LocalStore, PlaceOptions};
use millrace_courier::{ReceiveOptions, exit_status, interrupts, receive_over};

use crate::args::Receive;
use crate::device::{OpenDpdk, open};
use crate::display::{Display, Result, identity};
use crate::error::CommandError;

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
    let identity = identity(args.identity.as_deref())?;
    let stop = interrupts().map_err(CommandError::Signals)?;
    let mut options = ReceiveOptions {
        listen: args.listen,
        addresses: args.address.clone(),
        once: args.once,
        allow: args.allow.clone(),
        expiry: Duration::from_secs(args.valid.saturating_mul(3_600)),
    };
    let place = PlaceOptions {
        all_at_once: args.all_at_once,
        keep_existing: args.keep_existing,
        delta: args.delta,
        modes_and_times: args.modes_and_times,
    };
    let mut store = LocalStore::new(&args.directory, place);
    let mut display = Display::new(json);
    let mut on_event = |event| display.show(&event);
    let (store, stop) = (&mut store, Some(stop.as_fd()));
    let outcomes = match &args.via {
        Some(via) => {
            let io = open(via, args.listen.port(), open_dpdk)?;
            if options.addresses.is_empty() {
                options.addresses = via.ips();
            }
            receive_over(io, store, &identity, options, stop, &mut on_event)?
        }
        None => millrace_courier::receive(store, &identity, options, stop, &mut on_event)?,
    };
    display.finish()?;
    let status = if outcomes.is_empty() && !args.once {
        0
    } else {
        exit_status(&outcomes)
    };
    Ok(ExitCode::from(status))
}
