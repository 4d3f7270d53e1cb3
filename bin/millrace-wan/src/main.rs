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
use std::io::{IsTerminal, Write};
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::error::ErrorKind;
use clap::{CommandFactory, Parser, Subcommand};
use millrace_log::Lines;
use millrace_types::ErrorChain;
use millrace_wan_control::args::BetweenArgs;
use tracing_subscriber::EnvFilter;

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

/// Returns the text if it is a valid log filter, or the error of the invalid directive.
fn log_filter(text: &str) -> Result<String, tracing_subscriber::filter::ParseError> {
    EnvFilter::try_new(text).map(|_| text.to_owned())
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
    let has_colors = std::io::stderr().is_terminal();
    tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::new(&options.log))
        .with_ansi(has_colors)
        .with_writer(move || Lines::new(std::io::stderr(), has_colors))
        .init();
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
    let mut page = Vec::new();
    let named = between.clone().name("millrace-wan");
    clap_mangen::Man::new(named).section("8").render(&mut page)?;
    std::io::stdout()
        .write_all(&page)
        .context("standard output cannot be written")
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
