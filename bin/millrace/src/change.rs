//! Changes of the configuration: apply, confirm, diff, rollback.

use std::io::Read;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use millrace_api::client::{ChangeOptions, Client, ClientError};
use millrace_api::view::{Change, Committed, Reconciliation, Revision, Status, format_utc};
use millrace_model::Config;
use serde::Serialize;

use crate::cli::{Apply, ChangeArgs, Confirm, Diff, DiffFrom, Rollback, Wait};
use crate::output::{Session, author, say};
use crate::own::left_alone;
use crate::show::{operation, problems};

/// The exit status of a change that is committed but does not run completely.
const NOT_RUNNING: u8 = 4;

/// The interval of status requests while the command waits for a change to run.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

fn options(comment: &str) -> ChangeOptions {
    ChangeOptions {
        author: author(),
        comment: comment.to_owned(),
        ..ChangeOptions::default()
    }
}

/// Returns the configuration in a file. The check happens here, so that errors name line and column.
pub(crate) fn read(path: &Path) -> Result<Config> {
    let mut bytes = Vec::new();
    let name = if path.as_os_str() == "-" {
        std::io::stdin()
            .read_to_end(&mut bytes)
            .context("cannot read standard input")?;
        "standard input".to_owned()
    } else {
        bytes = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
        path.display().to_string()
    };
    let is_json = path.extension().is_some_and(|extension| extension == "json")
        || bytes.trim_ascii_start().starts_with(b"{");
    let config = if is_json {
        let json = serde_json::from_slice(&bytes).with_context(|| format!("{name} is not JSON"))?;
        Config::from_json(&json)
    } else {
        Config::from_toml_bytes(&name, &bytes)
    };
    config.or_else(|errors| bail!("{name} is not a valid configuration:\n{errors}"))
}

fn lines(changes: &[Change]) -> String {
    changes
        .iter()
        .map(|change| format!("{}\n", change.text))
        .collect()
}

/// Returns the outcome of a change in words; `before` is the newest revision before the change.
fn done(committed: &Committed, before: u64) -> String {
    let number = committed.revision.number;
    let mut text = lines(&committed.changes) + &left_alone(&committed.left_alone);
    if committed.changes.is_empty() && committed.dry_run {
        text += "dry run: no difference; only the order of the file may differ\n";
    } else if committed.changes.is_empty() && number > before {
        text += &format!("only the order changes: revision {number}\n");
    } else if committed.changes.is_empty() {
        text += &format!("nothing changes: revision {number} is the same\n");
    } else if committed.dry_run {
        text += &format!("dry run: revision {number} stays in force\n");
    } else {
        text += &format!("revision {number}\n");
    }
    if let (Some(pending), false) = (committed.pending, committed.dry_run) {
        text += &format!(
            "rolled back at {} unless confirmed: millrace confirm {}\n",
            format_utc(pending.deadline),
            pending.revision
        );
    }
    text
}

pub(crate) fn apply(session: &Session, args: &Apply) -> Result<ExitCode> {
    let wanted = read(&args.file)?;
    let client = session.client()?;
    let (_, revision) = client.config()?;
    let change = &args.change;
    let options = ChangeOptions {
        dry_run: change.dry_run,
        confirm_within: change.confirm_within,
        // A file holds what people configure.
        keep_others: true,
        ..options(&change.why.comment)
    };
    let expected = Some(change.expect.unwrap_or(revision));
    let committed = client.replace_config(&wanted.to_json(), expected, &options)?;
    if change.dry_run {
        session.print(&committed, |committed| {
            format!(
                "{}{}: {}\n",
                done(committed, revision),
                args.file.display(),
                wanted.summary()
            )
        })?;
        return Ok(ExitCode::SUCCESS);
    }
    follow(session, committed, revision, &change.wait)
}

/// Prints the differences of a dry run, or follows a committed change. `before` is the newest revision before the
/// change.
pub(crate) fn finish(
    session: &Session,
    committed: Committed,
    before: u64,
    args: &ChangeArgs,
) -> Result<ExitCode> {
    if args.dry_run {
        session.print(&committed, |committed| done(committed, before))?;
        return Ok(ExitCode::SUCCESS);
    }
    follow(session, committed, before, &args.wait)
}

/// A committed change, and the status of the switch after it.
#[derive(Serialize)]
struct Followed {
    #[serde(flatten)]
    committed: Committed,
    /// The status at the end of the wait; `null` without a wait or a response.
    status: Option<Status>,
}

/// Prints a committed change, waits until it runs, and prints its problems. `before` is the newest revision before the change.
///
/// Returns [`NOT_RUNNING`] if the change does not run completely, or if that is unknown at the end of the wait.
pub(crate) fn follow(session: &Session, committed: Committed, before: u64, wait: &Wait) -> Result<ExitCode> {
    if !session.json() {
        say(&done(&committed, before))?;
    }
    let number = committed.revision.number;
    let found = match wait.wait {
        Duration::ZERO => Ok(None),
        time => wait_for(session.client()?, number, time).map(Some),
    };
    let is_well = match &found {
        Ok(Some(status)) => is_settled(status, number) && status.problems.is_empty(),
        Ok(None) => true,
        Err(_) => false,
    };
    if session.json() {
        let status = found.ok().flatten();
        session.print(&Followed { committed, status }, |_| String::new())?;
    } else {
        say(&match found {
            Ok(None) => String::new(),
            Ok(Some(status)) if is_settled(&status, number) => problems(&status.problems),
            Ok(Some(_)) => format!(
                "revision {number} does not run completely after {} s: `millrace show status` shows its progress\n",
                wait.wait.as_secs_f64()
            ),
            Err(error) => format!(
                "the daemon does not report if revision {number} runs ({error}): `millrace show status` shows it\n"
            ),
        })?;
    }
    Ok(if is_well {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(NOT_RUNNING)
    })
}

/// Returns true if the data plane runs this revision or a later one, and no part of the switch is still
/// starting.
fn is_settled(status: &Status, revision: u64) -> bool {
    let runs = status.running_revision.is_some_and(|running| running >= revision);
    runs && status.state != Reconciliation::Working
}

/// Returns the status as soon as [`is_settled`] is true, at the latest after `time`.
fn wait_for(client: &Client, revision: u64, time: Duration) -> Result<Status, ClientError> {
    let end = Instant::now() + time;
    loop {
        let status = client.status()?;
        if is_settled(&status, revision) || Instant::now() >= end {
            return Ok(status);
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}

pub(crate) fn confirm(session: &Session, args: &Confirm) -> Result<()> {
    let client = session.client()?;
    if args.cancel {
        let revision = client.cancel(args.revision, &options(&args.comment))?;
        return session.print(&revision, |revision| {
            format!(
                "revision {}: {}\n",
                revision.number,
                operation(revision.operation)
            )
        });
    }
    let revision = client.confirm(args.revision)?;
    session.print(&revision, |revision: &Revision| {
        format!("revision {} is confirmed\n", revision.number)
    })
}

/// Returns the number of the newest revision, and that of the revision before it. The latter is any lower number: the
/// newest revision may have replaced others.
fn newest_two(client: &Client) -> Result<(u64, Option<u64>)> {
    let newest = client.revisions(2)?.revisions;
    let mut numbers = newest.iter().map(|revision| revision.number);
    let newest = numbers.next().context("the daemon lists no revision")?;
    Ok((newest, numbers.next()))
}

pub(crate) fn diff(session: &Session, args: &Diff) -> Result<()> {
    let client = session.client()?;
    if let (Some(DiffFrom::File(path)), Some(_)) = (&args.from, args.to) {
        bail!(
            "{} is not the number of a revision: a file is compared with the newest revision, so expected no second \
             argument",
            path.display()
        );
    }
    let (changes, others) = match &args.from {
        Some(DiffFrom::File(path)) => {
            let options = ChangeOptions {
                dry_run: true,
                // With `confirm_within`, the comparison also works while another change waits for its
                // confirmation.
                confirm_within: Some(1),
                keep_others: true,
                ..ChangeOptions::default()
            };
            let committed = client.replace_config(&read(path)?.to_json(), None, &options)?;
            (committed.changes, committed.left_alone)
        }
        Some(DiffFrom::Revision(from)) => (client.diff(*from, args.to)?.changes, Vec::new()),
        None => {
            let (newest, before) = newest_two(client)?;
            (
                client.diff(before.unwrap_or(newest), args.to)?.changes,
                Vec::new(),
            )
        }
    };
    if session.json() {
        return session.print(&changes, |_| String::new());
    }
    let text = match changes.is_empty() {
        true => "no difference\n".to_owned(),
        false => lines(&changes),
    };
    say(&(text + &left_alone(&others)))
}

pub(crate) fn rollback(session: &Session, args: &Rollback) -> Result<ExitCode> {
    let options = ChangeOptions {
        dry_run: args.dry_run,
        ..options(&args.why.comment)
    };
    let client = session.client()?;
    let (before, earlier) = newest_two(client)?;
    let to = match (args.revision, earlier) {
        (Some(revision), _) | (None, Some(revision)) => revision,
        (None, None) => bail!("revision {before} is the first: there is no revision before it"),
    };
    let committed = client.rollback(to, &options)?;
    if args.dry_run {
        session.print(&committed, |committed| done(committed, before))?;
        return Ok(ExitCode::SUCCESS);
    }
    follow(session, committed, before, &args.wait)
}
