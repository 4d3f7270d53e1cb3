//! An emulated wide-area path between two interfaces: receive, model, send, with no bridge and no controller.
//!
//! `millrace wan between` starts this program, because the command line is not linked with DPDK. The program
//! changes no setting of an interface. Promiscuous mode belongs to the packet socket, and ends with the
//! socket even if the process is killed.

#![forbid(unsafe_code)]

mod backend;
mod control;
mod forward;
mod run;
mod sleep;

use std::ffi::OsString;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::error::ErrorKind;
use clap::{CommandFactory, Parser, Subcommand};
use millrace_program::{log_filter, print_man_page, start_log};
use millrace_types::ErrorChain;
use millrace_wan_control::args::BetweenArgs;

/// Emulate a wide-area path: rate, queue, loss, delay, reordering, duplication and corruption.
#[derive(Parser, Debug)]
#[command(
    name = "millrace-wan",
    version,
    max_term_width = 100,
    arg_required_else_help = true
)]
struct Options {
    #[command(subcommand)]
    command: Option<Command>,
    /// Print the man page.
    #[arg(long, hide = true, exclusive = true)]
    man: bool,
    /// The log on standard error: error, warn, info, debug, or a filter as in RUST_LOG
    #[arg(long, global = true, value_name = "FILTER", default_value = "warn", value_parser = log_filter)]
    log: String,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Forward between two interfaces through an emulated path
    Between(Box<BetweenArgs>),
}

impl Options {
    /// Parses a command line. Only `--man` needs no command.
    fn of(line: impl IntoIterator<Item = OsString>) -> Result<Options, clap::Error> {
        let options = Options::try_parse_from(line)?;
        if options.command.is_none() && !options.man {
            let text = "expected a command; `--help` lists them";
            return Err(Options::command().error(ErrorKind::MissingSubcommand, text));
        }
        Ok(options)
    }
}

fn main() -> ExitCode {
    let options = Options::of(std::env::args_os()).unwrap_or_else(|error| error.exit());
    start_log(&options.log);
    let outcome = match &options.command {
        Some(Command::Between(between)) => backend::run(between),
        // `--man` is the only option that needs no command.
        None => man(),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("millrace-wan: {}", ErrorChain(error.as_ref()));
            ExitCode::FAILURE
        }
    }
}

/// Writes `millrace-wan(8)` to standard output: the page of its one command.
fn man() -> Result<()> {
    let mut command = Options::command();
    command.build();
    let between = command.find_subcommand("between").context("no such command")?;
    print_man_page(between.clone().name("millrace-wan")).context("standard output cannot be written")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definition_is_sound() {
        Options::command().debug_assert();
    }

    #[test]
    fn only_the_man_page_needs_no_command() {
        let of = |words: &[&str]| {
            let line = ["millrace-wan"].iter().chain(words).map(OsString::from);
            Options::of(line).map_err(|error| error.kind())
        };
        assert_eq!(of(&["--log", "debug"]).err(), Some(ErrorKind::MissingSubcommand));
        assert!(of(&["--man"]).is_ok_and(|options| options.man));
    }
}
