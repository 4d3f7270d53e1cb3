//! Checks of the project itself: `cargo xtask architecture`.

#![forbid(unsafe_code)]
#![allow(clippy::print_stdout)]

mod architecture;

use std::process::ExitCode;

fn main() -> ExitCode {
    let outcome = match std::env::args().nth(1).as_deref() {
        Some("architecture") => architecture::check(),
        _ => Err(anyhow::anyhow!("usage: cargo xtask architecture")),
    };
    if let Err(error) = outcome {
        eprintln!("xtask: {error:#}");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}
