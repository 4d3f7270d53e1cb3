//! `apply`, `confirm`, `diff` and `rollback`: changes of the configuration.

use std::path::PathBuf;

use clap::Args;

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
    /// Seconds to wait until the change runs and no hop of a chain is starting; 0 does not wait
    #[arg(long, value_name = "SECONDS", default_value_t = 5, value_parser = clap::value_parser!(u64).range(0..=3600))]
    pub(crate) wait: u64,
}

/// Exit statuses of the commands that commit a change and wait for it.
const CHANGE_EXIT_STATUS: &str = "Exit status: 0 the change runs (with `--wait 0` or `--dry-run`: it is accepted); \
    1 it is rejected; 3 the daemon does not respond; 4 it is committed but does not yet run completely when the wait \
    ends; `millrace show status` gives the reason.";

#[derive(Debug, Args)]
#[command(after_help = CHANGE_EXIT_STATUS)]
pub(crate) struct Apply {
    /// The configuration file: TOML, or JSON if its name ends in `.json` or its content begins with `{`; `-` for standard input
    pub(crate) file: PathBuf,
    /// Check the file and show what would change, without applying it
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Roll the change back after this many seconds unless `millrace confirm` is run before
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=86_400))]
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
    /// The revision whose content becomes a new revision
    pub(crate) revision: u64,
    /// Show what would change, without changing it
    #[arg(long)]
    pub(crate) dry_run: bool,
    #[command(flatten)]
    pub(crate) wait: Wait,
    #[command(flatten)]
    pub(crate) why: CommentArg,
}
