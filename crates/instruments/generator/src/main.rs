//! The program `millrace-generator`.

#![forbid(unsafe_code)]

use std::io::{IsTerminal as _, Write as _};
use std::process::ExitCode;

use clap::{CommandFactory as _, Parser as _};
use millrace_generator::args::Args;
use millrace_generator::program;
use millrace_log::Lines;
use tracing_subscriber::EnvFilter;

/// Writes `millrace-generator(8)` to standard output.
fn man() -> ExitCode {
    let mut page = Vec::new();
    let rendered = clap_mangen::Man::new(Args::command())
        .section("8")
        .render(&mut page);
    match rendered.and_then(|()| std::io::stdout().write_all(&page)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("millrace-generator: {error}");
            ExitCode::FAILURE
        }
    }
}

fn main() -> ExitCode {
    // The option of packages needs none of the others.
    if std::env::args_os().skip(1).eq(["--man"]) {
        return man();
    }
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
