//! Builds built-in functions as WebAssembly modules, and prints their paths.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

const TARGET: &str = "wasm32-unknown-unknown";

/// The functions that are built. Each becomes `NAME.wasm`.
const FUNCTIONS: [&str; 2] = ["firewall", "macswap"];

pub(crate) fn build(root: &Path) -> Result<()> {
    // A separate target directory, so that this build does not wait for the cargo that started it.
    let target = root.join("target/wasm");
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command
        .args(["build", "--release", "--locked", "--quiet", "--target", TARGET])
        .args(["--package", "millrace-builtin", "--target-dir"])
        .arg(&target)
        .current_dir(root)
        // RUSTFLAGS is meant for the crate under test.
        .env_remove("RUSTFLAGS");
    for function in FUNCTIONS {
        command.args(["--example", function]);
    }
    let output = command.output().context("cargo cannot be started")?;
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr);
        if text.contains("can't find crate for `core`") || text.contains("can't find crate for `std`") {
            bail!("there is no standard library for {TARGET}: run `rustup target add {TARGET}`");
        }
        bail!("{text}");
    }
    println!("{}", target.join(TARGET).join("release/examples").display());
    Ok(())
}
