//! The controller of an exchange point that members run themselves.
//!
//! The crates implement all functions; this program assembles them, and is the command line of the exchange's staff.

#![forbid(unsafe_code)]

mod admission;
mod audit;
mod backup;
mod cli;
mod clock;
mod control;
mod copy_database;
mod heads;
mod keys;
#[cfg(test)]
mod log_lines;
mod messages;
mod pages;
mod routing;
mod series;
mod serve;
mod settings;
mod show;
mod standing;
mod switches;
mod web;

use std::process::ExitCode;

use clap::Parser as _;
use millrace_types::ErrorChain;

/// Threads of the runtime free what others allocated, such as old versions of the exchange; the allocator of the C library keeps
/// that memory in arenas of its own.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    let options = cli::Options::parse();
    match cli::run(options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("millrace-ix: {}", ErrorChain(error.as_ref()));
            ExitCode::FAILURE
        }
    }
}
