//! All commands and options. The parser, `--help`, the man pages, the completions and docs/cli-bench.md are generated
//! from these definitions.

use std::path::PathBuf;

use clap::{Parser, Subcommand};
use clap_complete::Shell;

/// Measure Millrace beside other switches and transports
#[derive(Debug, Parser)]
#[command(
    name = "millrace-bench",
    version,
    disable_help_subcommand = true,
    arg_required_else_help = true
)]
pub(crate) struct Cli {
    /// Address of the daemon, for `profile`: unix:PATH, http://HOST:PORT or https://HOST:PORT
    #[arg(
        long,
        global = true,
        value_name = "URL",
        env = "MILLRACE_API",
        hide_env_values = true,
        default_value = "unix:/run/millrace/millraced.sock"
    )]
    pub(crate) api: String,
    /// Print JSON
    #[arg(long, global = true)]
    pub(crate) json: bool,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Compare switches by measurement: Millrace, Open vSwitch with DPDK, testpmd
    Bench(millrace_bench::cli::Command),
    Report(millrace_bench::page::cli::Command),
    Profile(millrace_bench::experiments::profile::cli::Command),
    /// Print completions for a shell
    Completions {
        /// The shell
        shell: Shell,
    },
    /// Write man pages into a directory
    Man {
        /// The directory, which is created
        #[arg(value_name = "DIRECTORY")]
        dir: PathBuf,
    },
}
