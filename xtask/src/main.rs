//! Checks of the project itself: `cargo xtask architecture`, `cargo xtask circles`, `cargo xtask index`,
//! `cargo xtask ledger`, `cargo xtask nic-registers`, `cargo xtask words`; and `cargo xtask wasm`, which builds network functions as WebAssembly modules.

#![forbid(unsafe_code)]
#![allow(clippy::print_stdout)]

mod architecture;
mod circles;
mod index;
mod ledger;
mod nic;
mod wasm;
mod words;

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};

const USAGE: &str = "usage: cargo xtask COMMAND

commands:
  architecture     compares ARCHITECTURE.md with the workspace: planes, crates, what each imports; and fails if files import
                   each other in circles, except in crates that xtask/src/circles/mod.rs lists; runs `index` and `words`
  circles CRATE…   lists the circles of imports among the files of any crate, by its folder (crates/control/agent), with the
                   paths that make each; move the items that both sides use into a file below both
  index            fails if a page of docs/ has no line in docs/README.md, or a line there has no page
  ledger           compares docs/openflow-1.3.5.md with the tests that it names
  nic-registers    writes rtl/pkg/millrace_nic_pkg.sv and docs/nic-interface.md from the tables of the crate `nic`
  words            finds comments without a subject or that repeat a name, public items without a comment, long files
  wasm             builds network functions as WebAssembly modules";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let Err(error) = run(&arguments) {
        eprintln!("xtask: {error:#}");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

fn run(arguments: &[String]) -> Result<()> {
    // Read when it runs, not when it is compiled: `target` may have been copied from another clone.
    let package = std::env::var_os("CARGO_MANIFEST_DIR").context("start xtask with cargo: `cargo xtask`")?;
    let root = Path::new(&package)
        .parent()
        .context("xtask has no parent folder")?;
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        ["architecture"] => {
            architecture::check(root)?;
            circles::check(root)?;
            index::check(root)?;
            words::check(root)
        }
        ["circles", _, ..] => circles::list(root, &arguments[1..]),
        ["index"] => index::check(root),
        ["ledger"] => ledger::check(root),
        ["words"] => words::check(root),
        ["nic-registers"] => nic::write(root),
        ["wasm"] => wasm::build(root),
        _ => bail!("{USAGE}"),
    }
}
