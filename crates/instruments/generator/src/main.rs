//! The program `millrace-generator`.

#![forbid(unsafe_code)]

use std::io::IsTerminal as _;
use std::process::ExitCode;

use clap::Parser;
use millrace_generator::args::Args;
use millrace_generator::program;
use millrace_log::Lines;
use tracing_subscriber::EnvFilter;

fn main() -> ExitCode {
    let args = Args::parse();
    // An invalid filter shows errors only: the log is not worth a failed start.
    let filter = EnvFilter::try_new(&args.log).unwrap_or_else(|_| EnvFilter::new("error"));
    let has_colors = std::io::stderr().is_terminal();
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(has_colors)
        .with_writer(move || Lines::new(std::io::stderr(), has_colors))
        .init();
    match program::run(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("millrace-generator: {error}");
            ExitCode::FAILURE
        }
    }
}
