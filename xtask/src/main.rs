//! Checks of the project itself: `cargo xtask architecture`, `cargo xtask ledger`.

#![forbid(unsafe_code)]
#![allow(clippy::print_stdout)]

mod architecture;
mod ledger;

use std::process::ExitCode;

fn main() -> ExitCode {
    let outcome = match std::env::args().nth(1).as_deref() {
        Some("architecture") => architecture::check(),
        Some("ledger") => ledger::check(),
        _ => Err(anyhow::anyhow!("usage: cargo xtask architecture | ledger")),
    };
    if let Err(error) = outcome {
        eprintln!("xtask: {error:#}");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}
