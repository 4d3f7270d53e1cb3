//! Checks of the project itself: `cargo xtask architecture`, `cargo xtask ledger`; and `cargo xtask wasm`, which builds
//! network functions as WebAssembly modules.

#![forbid(unsafe_code)]
#![allow(clippy::print_stdout)]

mod architecture;
mod ledger;
mod wasm;

use std::process::ExitCode;

fn main() -> ExitCode {
    let outcome = match std::env::args().nth(1).as_deref() {
        Some("architecture") => architecture::check(),
        Some("ledger") => ledger::check(),
        Some("wasm") => wasm::build(),
        _ => Err(anyhow::anyhow!("usage: cargo xtask architecture | ledger | wasm")),
    };
    if let Err(error) = outcome {
        eprintln!("xtask: {error:#}");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}
