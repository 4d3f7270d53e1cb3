//! `millrace bench route`: the arguments and the output.

use std::path::PathBuf;

use clap::Args;

use super::{Experiment, RunLength};
use crate::gated::program::ProgramError;
use crate::gated::recorder::run;

/// The router: lookups, programming and memory of a full table, and the rate of routing beside that of NORMAL.
///
/// The full table has 1,000,000 IPv4 and 200,000 IPv6 routes with the lengths of the Internet's; destinations are random or by
/// Zipf's law. The measurements are the examples `lookup`, `feed` and `rates`, in processor time of one thread, and a running
/// router beside the kernel's, for which the program must be root; `dpdk-test` measures DPDK's structures after them.
#[derive(Debug, Clone, Args)]
pub struct RouteArgs {
    /// The number of rounds, of which medians are judged
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u8).range(1..=100))]
    rounds: u8,
    /// One round over a tenth of the table, without dpdk-test
    #[arg(long)]
    quick: bool,
    /// The folder with the examples; `examples` beside the program unless given
    #[arg(long, value_name = "DIR")]
    examples: Option<PathBuf>,
    /// The folder of the project's sources, whose tests/interop/live_routes.py measures a running router
    #[arg(long, value_name = "DIR", default_value = ".")]
    sources: PathBuf,
    /// The folder for the results: route.jsonl, route.json
    #[arg(long, value_name = "DIR", default_value = "out/bench")]
    out: PathBuf,
    /// Print the rows as JSON instead of a table
    #[arg(long)]
    json: bool,
}

impl RouteArgs {
    /// Runs the experiment, prints the rows and writes them to `route.json`. Progress goes to standard error.
    ///
    /// # Errors
    /// [`ProgramError`]. A gate that is not met is not an error.
    pub fn run(&self) -> Result<(), ProgramError> {
        let share = if self.quick { 10 } else { 1 };
        let length = RunLength {
            rounds: if self.quick { 1 } else { self.rounds.into() },
            routes_v4: 1_000_000 / share,
            routes_v6: 200_000 / share,
            has_peers: !self.quick,
        };
        let beside = || Some(std::env::current_exe().ok()?.parent()?.join("examples"));
        let experiment = Experiment {
            examples: self.examples.clone().or_else(beside).unwrap_or_default(),
            sources: self.sources.clone(),
        };
        run(length, &self.out, self.json, |recorder| experiment.run(recorder))
    }
}
