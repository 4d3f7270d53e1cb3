//! `millrace bench|report|profile`: commands of the program `millrace-bench`.

use std::os::unix::process::CommandExt;
use std::process::Command;

use anyhow::{Result, anyhow};
use millrace_lab::find_program;

use crate::cli::Experiment;
use crate::output::Session;

/// The file name of the experiments' program.
const PROGRAM: &str = "millrace-bench";

/// Replaces this process by `millrace-bench` with a command and its arguments. Returns only if that fails.
pub(crate) fn run(session: &Session, command: &str, experiment: &Experiment) -> Result<()> {
    let path = find_program(PROGRAM).ok_or_else(|| {
        anyhow!(
            "there is no program {PROGRAM} beside this one or in PATH: build it with `cargo build --release -p \
             millrace-experiments`, or install it with `make install`"
        )
    })?;
    let mut program = Command::new(&path);
    program.args(["--api", session.api()]);
    if session.json() {
        program.arg("--json");
    }
    let error = program.arg(command).args(&experiment.args).exec();
    Err(anyhow!("{} cannot be run: {error}", path.display()))
}
