//! `millrace bench` as a program of its own, without the rest of the command line.

use std::process::ExitCode;

use clap::Parser;

#[derive(Parser)]
struct Bench {
    #[command(flatten)]
    command: millrace_bench::cli::Command,
}

fn main() -> ExitCode {
    match Bench::parse().command.run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench: {error}");
            ExitCode::FAILURE
        }
    }
}
