//! All commands, options and help texts. The parser, `--help`, the man pages, the completions and docs/cli.md are
//! generated from these definitions.

mod change;
mod duration;
mod edit;
mod fleet;
mod flow;
mod functions;
mod import;
mod ips;
mod lab;
mod nic;
mod own;
mod packets;
mod select;
mod show;
mod wan;

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use clap_complete::Shell;

pub(crate) use change::{Apply, ChangeArgs, Confirm, Diff, DiffFrom, Rollback, Wait};
pub(crate) use edit::{
    BridgeCommand, BridgePort, ControllerCommand, ControllerRemove, PortAdd, PortCommand, PortRemove,
};
pub(crate) use fleet::{Fleet, FleetCommand, PushArgs};
pub(crate) use flow::{Fdb, Flow, FlowTexts};
pub(crate) use functions::{ChainCommand, Nf, Plan, Rate, Run, RunClass};
pub(crate) use import::Import;
pub(crate) use ips::{Ips, ProfileArgs, RateArgs, ReadArgs, ReadMode, ReadRecords, RuleArgs, TraceArgs};
pub(crate) use lab::Lab;
pub(crate) use nic::{Nic, NicPort};
pub(crate) use own::{Lock, Own};
pub(crate) use packets::{Capture, Trace};
pub(crate) use select::{BridgeSelection, HopName};
pub(crate) use show::{FlowSort, Flows, Routes, Show, VrfSelection, Watch};
pub(crate) use wan::{Wan, WanName};

/// Show, change and understand a Millrace switch.
#[derive(Debug, Parser)]
#[command(
    name = "millrace",
    version,
    max_term_width = 100,
    arg_required_else_help = true,
    after_help = "Exit status: 0 done; 1 rejected or failed; 2 wrong usage; 3 the daemon does not respond; 4 the \
        change is committed but does not run completely (`apply`, `rollback`, `bridge`, `port`, `controller`). `lab run` exits with the status \
        of its command. `send` and `receive` have statuses of their own: see their help."
)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The options of all commands.
#[derive(Debug, Args)]
pub(crate) struct Global {
    /// Address of the daemon: unix:PATH, http://HOST:PORT or https://HOST:PORT
    #[arg(
        long,
        global = true,
        value_name = "URL",
        env = "MILLRACE_API",
        hide_env_values = true,
        default_value = "unix:/run/millrace/millraced.sock"
    )]
    pub(crate) api: String,
    /// File whose first line is the bearer token for TCP; MILLRACE_TOKEN holds the token itself. Without either, the
    /// token in /var/lib/millrace/api-token is used for a loopback address
    #[arg(
        long,
        global = true,
        value_name = "FILE",
        env = "MILLRACE_TOKEN_FILE",
        hide_env_values = true
    )]
    pub(crate) token_file: Option<PathBuf>,
    /// PEM file with the certificate of the authority that signed the daemon's certificate (https)
    #[arg(
        long,
        global = true,
        value_name = "FILE",
        env = "MILLRACE_CA",
        hide_env_values = true
    )]
    pub(crate) ca: Option<PathBuf>,
    /// Print JSON
    #[arg(long, global = true)]
    pub(crate) json: bool,
}

/// The arguments of a command of `millrace-bench`, which docs/cli-bench.md describes.
#[derive(Debug, Args)]
pub(crate) struct Experiment {
    /// The arguments; `--help` lists them
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENT")]
    pub(crate) args: Vec<OsString>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Show the desired and the running state
    #[command(subcommand)]
    Show(Show),
    /// Apply a configuration file to the running switch
    Apply(Apply),
    /// Confirm or cancel a configuration that was applied with --confirm-within
    Confirm(Confirm),
    /// Show what changed between two revisions, or what a file would change
    Diff(Diff),
    /// Roll back to the configuration of an earlier revision
    Rollback(Rollback),
    /// Give objects of the configuration to another owner
    Own(Own),
    /// Lock the configuration against changes of others
    #[command(subcommand)]
    Lock(Lock),
    /// Many switches behind one store in etcd: documents, roll-outs
    Fleet(Fleet),
    /// Trace a packet through the tables and chains
    Trace(Trace),
    /// Add, change and remove bridges of the configuration
    #[command(subcommand)]
    Bridge(BridgeCommand),
    /// Add, change and remove ports of the configuration, and reset their counters
    #[command(subcommand)]
    Port(PortCommand),
    /// Add and remove controllers of the configuration
    #[command(subcommand)]
    Controller(ControllerCommand),
    /// Add, change and remove flow entries, reset their counters, and save them for the next start
    #[command(subcommand)]
    Flow(Flow),
    /// Forget learned MAC addresses
    #[command(subcommand)]
    Fdb(Fdb),
    /// Registers and entries of devices that classify packets
    #[command(subcommand)]
    Nic(Nic),
    /// Show live rates
    Watch(Watch),
    /// Capture packets of a bridge to a pcapng file
    Capture(Capture),
    /// Network functions of chains: list, count, run, restart, scale, drain
    #[command(subcommand)]
    Nf(Nf),
    /// Chains of network functions
    #[command(subcommand)]
    Chain(ChainCommand),
    /// Compare switches by measurement: Millrace, Open vSwitch with DPDK, testpmd (`millrace-bench`)
    #[command(disable_help_flag = true)]
    Bench(Experiment),
    /// Make a page of measurements (`millrace-bench`)
    #[command(disable_help_flag = true)]
    Report(Experiment),
    /// Profile a running switch, or another process (`millrace-bench`)
    #[command(disable_help_flag = true)]
    Profile(Experiment),
    /// Show the levels of the daemon's log, or change them until it ends
    #[command(after_help = "Examples:\n  \
        millrace log\n  \
        millrace log debug\n  \
        millrace log warn,millrace_agent=debug,dpdk=info")]
    Log {
        /// A level for all targets (off, error, warn, info, debug, trace), followed by levels of single targets after
        /// commas
        filter: Option<String>,
    },
    /// Check this machine for problems of a switch, and print the commands that correct them
    Doctor,
    /// Emulate wide-area paths with delay, loss and a rate; show and change them
    #[command(subcommand)]
    Wan(Wan),
    Send(millrace_transfer_commands::Send),
    Receive(millrace_transfer_commands::Receive),
    #[command(subcommand)]
    Courier(millrace_transfer_commands::Courier),
    /// Intrusion prevention: check and explain rules of Suricata and Snort, import a suricata.yaml
    #[command(subcommand)]
    Ips(Ips),
    /// Translate the configuration of another switch: Open vSwitch, Lagopus, bridges of Linux
    #[command(subcommand)]
    Import(Import),
    /// Build networks of hosts, links and switches on this machine, from one file
    #[command(subcommand)]
    Lab(Lab),
    /// Print the completion script for a shell
    Completions {
        /// The shell
        shell: Shell,
    },
    /// Write the man pages
    Man {
        /// The directory to write them to
        dir: PathBuf,
    },
}
