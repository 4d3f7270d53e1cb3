//! `fleet`: many switches behind one store in etcd.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::change::CommentArg;
use super::duration::rounded_seconds;

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    millrace fleet attach\n  \
    millrace fleet status\n  \
    millrace fleet push sw1 sw1.toml\n  \
    millrace fleet rollout switches/ --first 2 --wave 10\n\n\
    docs/fleet.md explains how to set a fleet up. Commands that write documents act as the master while they wait, if no \
    `millrace fleet master` runs.\n\n\
    Exit status: 0 done; 1 refused, failed or rolled back; 3 the daemon does not respond (`attach`, `detach`, `diff` without a file).")]
pub(crate) struct Fleet {
    /// File with a section `[etcd]`: the members, their CA, the user
    #[arg(
        long,
        global = true,
        value_name = "FILE",
        env = "MILLRACE_FLEET",
        hide_env_values = true,
        default_value = "/etc/millrace/millrace-mgmt.toml"
    )]
    pub(crate) settings: PathBuf,
    #[command(subcommand)]
    pub(crate) command: FleetCommand,
}

/// The way of a document to a switch.
#[derive(Debug, Args)]
pub(crate) struct PushArgs {
    /// Time in which each switch confirms its document itself, 5s to 1d; otherwise it takes the change back
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = rounded_seconds("5s", "1d"))]
    pub(crate) confirm_within: u64,
    /// Return when the roll-out is recorded, and leave it to a running `millrace fleet master`
    #[arg(long)]
    pub(crate) no_wait: bool,
    #[command(flatten)]
    pub(crate) why: CommentArg,
}

#[derive(Debug, Subcommand)]
pub(crate) enum FleetCommand {
    /// Show the switches of the fleet: who runs its document, who is away, and why
    Status,
    /// Print the state of the fleet as metrics, for the textfile collector of Prometheus' node_exporter
    Metrics,
    /// Give this switch to the fleet: what it runs becomes its first document, so that nothing changes
    Attach {
        /// Join although etcd has another document for this switch, which counts from now on
        #[arg(long)]
        take_document: bool,
        #[command(flatten)]
        why: CommentArg,
    },
    /// Take this switch out of the fleet, also while etcd is away: its objects belong to people again
    Detach {
        #[command(flatten)]
        why: CommentArg,
    },
    /// Show what a file would change in the document of a switch; without a file, how this switch differs from its document
    Diff {
        /// The switch
        node: String,
        /// The configuration file, TOML or JSON
        file: Option<PathBuf>,
    },
    /// Give one switch a new document, and wait until it runs
    Push {
        /// The switch
        node: String,
        /// The configuration file, TOML or JSON; `-` for standard input
        file: PathBuf,
        #[command(flatten)]
        push: PushArgs,
    },
    /// Give several switches new documents in waves; the first one that fails stops the roll-out and rolls all back
    Rollout {
        /// Folder with a file for each switch: `sw1.toml`, `sw2.json`
        folder: PathBuf,
        /// The number of switches in the first wave
        #[arg(long, value_name = "NUMBER", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
        first: u16,
        /// The number of switches in each further wave
        #[arg(long, value_name = "NUMBER", default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..))]
        wave: u16,
        /// Wait for `millrace fleet confirm` after each wave
        #[arg(long)]
        hold: bool,
        #[command(flatten)]
        push: PushArgs,
    },
    /// Show the roll-outs, the newest first
    History,
    /// Stop a roll-out where it is: no further switch gets its document
    Pause {
        /// The roll-out
        id: String,
    },
    /// Go on with a roll-out that is paused, or that waits after a wave
    Confirm {
        /// The roll-out
        id: String,
    },
    /// Give the switches of a roll-out back what they had before it
    Rollback {
        /// The roll-out
        id: String,
        #[command(flatten)]
        push: PushArgs,
    },
    /// After a restored backup or a new cluster: let the documents in etcd count although switches have seen newer ones
    Adopt {
        /// The switches
        #[arg(required = true)]
        nodes: Vec<String>,
    },
    /// Carry roll-outs out, until the process is ended; several may run, and one of them acts
    Master,
}
