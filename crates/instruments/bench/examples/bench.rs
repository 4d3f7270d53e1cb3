//! `millrace bench` before there is a `millrace`.

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
