//! `lab`: networks of hosts, links and switches on this machine.

use std::path::PathBuf;

use clap::Subcommand;

#[derive(Debug, Subcommand)]
pub(crate) enum Lab {
    /// Build a lab and start its switches
    Up {
        /// The lab file
        file: PathBuf,
        /// The daemon of Millrace switches; the one beside this program, or in PATH, unless given
        #[arg(long, value_name = "PROGRAM")]
        millraced: Option<PathBuf>,
        /// Keep what was built, logs included, if something fails
        #[arg(long)]
        keep_on_failure: bool,
    },
    /// Run a command in a host or a switch
    Run {
        /// The lab; the only one unless given
        #[arg(long, value_name = "NAME", env = "MILLRACE_LAB", hide_env_values = true)]
        lab: Option<String>,
        /// The host or switch
        host: String,
        /// The command
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
        command: Vec<std::ffi::OsString>,
    },
    /// Show labs with their hosts, links and switches
    Status {
        /// Only this lab
        name: Option<String>,
    },
    /// Remove a lab completely, whatever its state; exits with status 1 if there is no such lab
    Down {
        /// The lab; the only one unless given
        #[arg(conflicts_with = "all")]
        name: Option<String>,
        /// Every lab
        #[arg(long)]
        all: bool,
    },
}
