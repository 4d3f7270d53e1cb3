//! `millrace bench nic`: the arguments and the output.

use std::path::PathBuf;

use clap::Args;

use super::{Experiment, RunLength};
use crate::gated::program::ProgramError;
use crate::gated::recorder::run;

/// Marks of a NIC that classifies: the time of a packet without marks, with marks that are compared, and with trusted marks.
///
/// The device is ideal: marks are computed beforehand, and cost nothing. Headers are those that RSS does not see, too: QinQ,
/// MPLS, PBB, GRE, VXLAN. The measurement is the example `marks`, in one thread without input and output.
#[derive(Debug, Clone, Args)]
pub struct NicArgs {
    /// The number of rounds, of which medians are judged
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u8).range(1..=100))]
    rounds: u8,
    /// One short round
    #[arg(long)]
    quick: bool,
    /// Also measure the mode `auto` on each case of `forward` and `hostile`, for this many seconds each; 0 for none
    #[arg(long, value_name = "SECONDS", default_value_t = 0)]
    governed: u32,
    /// The folder with the examples; `examples` beside the program unless given
    #[arg(long, value_name = "DIR")]
    examples: Option<PathBuf>,
    /// The folder for the results: nic.jsonl, nic.json
    #[arg(long, value_name = "DIR", default_value = "out/bench")]
    out: PathBuf,
    /// Print the rows as JSON instead of a table
    #[arg(long)]
    json: bool,
}

impl NicArgs {
    /// Runs the experiment, prints the rows and writes them to `nic.json`. Progress goes to standard error.
    ///
    /// # Errors
    /// [`ProgramError`]. A gate that is not met is not an error.
    pub fn run(&self) -> Result<(), ProgramError> {
        let length = RunLength {
            rounds: if self.quick { 1 } else { self.rounds.into() },
            windows: if self.quick { 10 } else { 60 },
            flows: 10_000,
            governed_seconds: self.governed,
        };
        let beside = || Some(std::env::current_exe().ok()?.parent()?.join("examples"));
        let experiment = Experiment {
            examples: self.examples.clone().or_else(beside).unwrap_or_default(),
        };
        run(length, &self.out, self.json, |recorder| experiment.run(recorder))
    }
}
