//! `millrace receive`: files into a directory.

use std::os::fd::AsFd;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use millrace_courier::local::{LocalStore, PlaceOptions};
use millrace_courier::{ReceiveOptions, exit_status, interrupts, receive};

use crate::cli::Receive;
use crate::output::Session;
use crate::transfer::{Display, identity};

pub(crate) fn run(session: &Session, args: &Receive) -> Result<ExitCode> {
    if !args.directory.is_dir() {
        bail!("{} is no directory; create it first", args.directory.display());
    }
    let identity = identity(args.identity.as_deref())?;
    let stop = interrupts().context("cannot watch for signals")?;
    let options = ReceiveOptions {
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
    let mut display = Display::new(session.json());
    let outcomes = receive(&mut store, &identity, options, Some(stop.as_fd()), &mut |event| {
        display.show(&event);
    })?;
    display.finish()?;
    let status = if outcomes.is_empty() && !args.once {
        0
    } else {
        exit_status(&outcomes)
    };
    Ok(ExitCode::from(status))
}
