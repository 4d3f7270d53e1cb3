//! The experiments: comparisons with other switches and transports, profiles of a process, and pages of their results.
//! `millrace bench`, `millrace profile` and `millrace report` run this program, so that the command line that operators
//! install has no experiments in it.

#![forbid(unsafe_code)]

mod cli;
mod pages;

use std::process::ExitCode;

use clap::{CommandFactory as _, Parser};
use millrace_types::ErrorChain;

use cli::{Cli, Command};

/// The allocator of the daemon: transfers of rows in this process are measured as they run elsewhere.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    match run(&Cli::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("millrace-bench: {}", ErrorChain(error.as_ref()));
            ExitCode::FAILURE
        }
    }
}

fn run(cli: &Cli) -> anyhow::Result<()> {
    match &cli.command {
        Command::Bench(args) => args.run()?,
        Command::Report(args) => args.run(cli.json)?,
        Command::Profile(args) => args.run(&cli.api, cli.json)?,
        Command::Completions { shell } => pages::completions(*shell)?,
        Command::Man { dir } => millrace_program::write_man_pages(Cli::command(), dir)?,
    }
    Ok(())
}
