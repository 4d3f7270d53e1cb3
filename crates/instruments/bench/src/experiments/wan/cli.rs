//! `millrace bench wan`: the arguments and the output.

use std::path::PathBuf;

use clap::Args;

use super::error::WanBenchError;
use super::{Experiment, Part, RunLength};
use crate::gated::recorder::run;

/// The emulator of wide-area paths: the bounds that docs/gates.md sets for it (W1 to W6), and what it reaches.
///
/// Live rows run `millrace-wan` between veth pairs, and need root. Packet sockets send and capture the
/// frames. The kernel's tbf, and netem if the kernel has it, are measured in the same run. Rows W2, W3 and W5
/// do not need root.
#[derive(Debug, Clone, Args)]
pub struct WanArgs {
    /// Only this row; may be given several times
    #[arg(long = "row", value_name = "ROW", value_enum)]
    parts: Vec<Part>,
    /// Show the shape of the result in a few minutes: one round, short runs
    #[arg(long)]
    quick: bool,
    /// The number of rounds of live rows and of rates of one core, of which medians are judged
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=100))]
    rounds: Option<u8>,
    /// The folder for the results: wan.jsonl, wan.json
    #[arg(long, value_name = "DIR", default_value = "out/bench")]
    out: PathBuf,
    /// The emulator to measure; without it, the one beside this program
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
    /// The core of the emulator; the last one unless given
    #[arg(long, value_name = "CORE")]
    core: Option<usize>,
    /// Print the rows as JSON instead of a table
    #[arg(long)]
    json: bool,
}

impl WanArgs {
    /// Runs the experiment, prints the rows and writes them to `wan.json`. Progress goes to standard error.
    ///
    /// # Errors
    /// [`WanBenchError`]. A gate that is not met is not an error.
    pub fn run(&self) -> Result<(), WanBenchError> {
        let mut length = if self.quick {
            RunLength::QUICK
        } else {
            RunLength::FULL
        };
        length.rounds = self.rounds.map_or(length.rounds, usize::from);
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let experiment = Experiment {
            parts: match self.parts.as_slice() {
                [] => Part::ALL.to_vec(),
                given => given.to_vec(),
            },
            program: self
                .program
                .clone()
                .unwrap_or_else(|| millrace_process::program_path("millrace-wan", "MILLRACE_WAN_PROGRAM")),
            core: self.core.unwrap_or(cores - 1),
        };
        run(length, &self.out, self.json, |recorder| experiment.run(recorder))
    }
}
