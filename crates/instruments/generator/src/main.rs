//! The program `millrace-generator`.

#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::{CommandFactory as _, Parser as _};
use millrace_generator::args::Args;
use millrace_generator::program;
use millrace_program::{print_man_page, start_log};

fn main() -> ExitCode {
    // The option of packages needs none of the others.
    let outcome = if std::env::args_os().skip(1).eq(["--man"]) {
        print_man_page(Args::command()).map_err(|error| error.to_string())
    } else {
        let args = Args::parse();
        start_log(&args.log);
        program::run(&args).map_err(|error| error.to_string())
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("millrace-generator: {error}");
            ExitCode::FAILURE
        }
    }
}
