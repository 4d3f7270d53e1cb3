//! `apply`, `confirm`, `diff` and `rollback`: changes of the configuration.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::duration::{between, rounded_seconds};

/// The comment of a change.
#[derive(Debug, Args)]
pub(crate) struct CommentArg {
    /// Comment, stored with the revision
    #[arg(long, short = 'm', value_name = "TEXT", default_value = "")]
    pub(crate) comment: String,
}

/// How long to wait for a change.
#[derive(Debug, Args)]
pub(crate) struct Wait {
    /// Time to wait until the change runs and no hop of a chain is starting, up to 1h; 0 does not wait
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = between("0s", "1h"))]
    pub(crate) wait: Duration,
}

/// Exit statuses of the commands that commit a change and wait for it.
pub(super) const CHANGE_EXIT_STATUS: &str = "Exit status: 0 the change runs (with `--wait 0` or `--dry-run`: it is accepted); \
    1 it is rejected; 3 the daemon does not respond; 4 it is committed but does not yet run completely when the wait \
    ends; `millrace show status` gives the reason.";

/// The options of every change of the configuration.
#[derive(Debug, Args)]
pub(crate) struct ChangeArgs {
    /// Check the change and show its differences, without making it
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Roll the change back after this time, 1s to 1d, unless `millrace confirm` is run before
    #[arg(long, value_name = "TIME", value_parser = rounded_seconds("1s", "1d"))]
    pub(crate) confirm_within: Option<u64>,
    /// Refuse the change if the newest revision is not this one
    #[arg(long, value_name = "NUMBER")]
    pub(crate) expect: Option<u64>,
    #[command(flatten)]
    pub(crate) wait: Wait,
    #[command(flatten)]
    pub(crate) why: CommentArg,
}

#[derive(Debug, Args)]
#[command(after_help = CHANGE_EXIT_STATUS)]
pub(crate) struct Apply {
    /// The configuration file: TOML, or JSON if its name ends in `.json` or its content begins with `{`; `-` for standard input
    pub(crate) file: PathBuf,
    #[command(flatten)]
    pub(crate) change: ChangeArgs,
}

#[derive(Debug, Args)]
pub(crate) struct Confirm {
    /// Confirm only if this is the revision that waits for confirmation
    pub(crate) revision: Option<u64>,
    /// Roll it back now
    #[arg(long)]
    pub(crate) cancel: bool,
    /// Comment, stored with the revision that --cancel makes
    #[arg(
        long,
        short = 'm',
        value_name = "TEXT",
        default_value = "",
        requires = "cancel"
    )]
    pub(crate) comment: String,
}

/// The first side of a comparison: a revision is the older side, a file the newer one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum DiffFrom {
    /// A revision, by its number.
    Revision(u64),
    /// A configuration file. A file whose name is a number is written as a path: `./7`.
    File(PathBuf),
}

impl std::str::FromStr for DiffFrom {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<DiffFrom, Self::Err> {
        Ok(text
            .parse()
            .map_or_else(|_| DiffFrom::File(text.into()), DiffFrom::Revision))
    }
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    millrace diff\n  \
    millrace diff 3 5\n  \
    millrace diff new.toml")]
pub(crate) struct Diff {
    /// The older revision, or a configuration file (`-` for standard input) to compare with the newest
    /// revision; the revision before the newest unless given
    #[arg(value_name = "REVISION|FILE")]
    pub(crate) from: Option<DiffFrom>,
    /// The newer revision; the newest unless given
    #[arg(value_name = "REVISION")]
    pub(crate) to: Option<u64>,
}

#[derive(Debug, Args)]
#[command(after_help = CHANGE_EXIT_STATUS)]
pub(crate) struct Rollback {
    /// The revision whose content becomes a new revision; the one before the newest unless given
    pub(crate) revision: Option<u64>,
    /// Show what would change, without changing it
    #[arg(long)]
    pub(crate) dry_run: bool,
    #[command(flatten)]
    pub(crate) wait: Wait,
    #[command(flatten)]
    pub(crate) why: CommentArg,
}
