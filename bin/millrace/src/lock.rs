//! `millrace lock`: the lock on the configuration.

use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};
use millrace_api::view::{Lock, LockState, LockTaken, format_utc};

use crate::cli;
use crate::output::{LOCK_VARIABLE, Session, author};

/// The exit status of a command that a signal ended, as a shell gives it, without the number of the signal.
const BY_SIGNAL: u8 = 128;

pub(crate) fn run(session: &Session, args: &cli::Lock) -> Result<ExitCode> {
    match args {
        cli::Lock::Run { command } => return hold(session, command),
        cli::Lock::Take(lease) => {
            let taken = session.client()?.take_lock(&author(), lease.lease.as_secs())?;
            session.print(&taken, |taken| format!("{LOCK_VARIABLE}={}\n", taken.token))?;
        }
        cli::Lock::Renew(lease) => {
            let lock = session.client()?.renew_lock(lease.lease.as_secs())?;
            session.print(&lock, |lock| held(lock) + "\n")?;
        }
        cli::Lock::Release => {
            let lock = session.client()?.release_lock(false)?;
            session.print(&lock, |_| "the lock is free\n".to_owned())?;
        }
        cli::Lock::Show => session.print(&session.client()?.lock()?, |LockState { lock }| match lock {
            Some(lock) => held(lock) + "\n",
            None => "the lock is free\n".to_owned(),
        })?,
        cli::Lock::Break => {
            let lock = session.client()?.release_lock(true)?;
            session.print(&lock, |lock| format!("the lock of {} is broken\n", lock.holder))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn held(lock: &Lock) -> String {
    let until = format_utc(lock.expires);
    format!(
        "{} holds the lock, until {until} unless it is renewed",
        lock.holder
    )
}

/// Runs a command while this process holds the lock. The daemon frees it when the connection of this process ends.
fn hold(session: &Session, command: &[String]) -> Result<ExitCode> {
    let mut events = session.client()?.hold_lock(&author())?;
    let first = events.next().filter(|event| event.name == "lock");
    let first = first.context("the daemon ended the session of the lock")?;
    let taken: LockTaken = serde_json::from_str(&first.data)?;
    std::thread::spawn(move || {
        if events.any(|event| event.name == "lost") {
            eprintln!(
                "millrace: somebody broke the lock: changes of this session are refused if another one takes it"
            );
        }
    });
    let [program, arguments @ ..] = command else {
        bail!("expected a command");
    };
    let status = Command::new(program)
        .args(arguments)
        .env(LOCK_VARIABLE, &taken.token)
        .status()
        .with_context(|| format!("cannot run {program}"))?;
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    Ok(ExitCode::from(code.unwrap_or(BY_SIGNAL)))
}
