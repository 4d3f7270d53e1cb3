//! `own` and `lock`: who may change what.

use std::time::Duration;

use clap::{ArgGroup, Args, Subcommand};

use super::change::CommentArg;
use super::duration::between;

#[derive(Debug, Args)]
#[command(
    group(ArgGroup::new("owner").required(true)),
    after_help = "Examples:\n  \
    millrace own br0 --local\n  \
    millrace own br0 wan/lossy --origin ovsdb\n\n\
    `millrace show owners` lists the objects. The owner before refuses no change of hands: it keeps its own copy, and its \
    changes of these objects are refused from now on."
)]
pub(crate) struct Own {
    /// Objects: `br0`, or with their kind `bridge/br0`; `system`
    #[arg(required = true, value_name = "OBJECT")]
    pub(crate) objects: Vec<String>,
    /// Give them to REST and the command line
    #[arg(long, group = "owner")]
    pub(crate) local: bool,
    /// Give them to this front end, as `ovsdb`
    #[arg(long, value_name = "NAME", group = "owner")]
    pub(crate) origin: Option<String>,
    #[command(flatten)]
    pub(crate) why: CommentArg,
}

/// The lease of the lock.
#[derive(Debug, Args)]
pub(crate) struct Lease {
    /// Time until the lock is free unless it is renewed, 1s to 1d
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = between("1s", "1d"))]
    pub(crate) lease: Duration,
}

#[derive(Debug, Subcommand)]
#[command(after_help = "Examples:\n  \
    millrace lock run -- ./migrate.sh\n  \
    export $(millrace lock take --lease 10m)\n\n\
    While a session holds the lock, every change of others is refused, whatever front end makes it. Commands belong to \
    the session whose token is in MILLRACE_LOCK.")]
pub(crate) enum Lock {
    /// Hold the lock while a command runs, which gets its token in MILLRACE_LOCK
    Run {
        /// The command with its arguments
        #[arg(
            required = true,
            trailing_var_arg = true,
            allow_hyphen_values = true,
            value_name = "COMMAND"
        )]
        command: Vec<String>,
    },
    /// Take the lock, and print `MILLRACE_LOCK=TOKEN`
    Take(Lease),
    /// Renew the lease of the lock of this session
    Renew(Lease),
    /// Release the lock of this session
    Release,
    /// Show who holds the lock
    Show,
    /// Take the lock away from whoever holds it
    Break,
}
