//! `millrace bench ips`: the arguments and the output.

use std::path::PathBuf;

use clap::Args;
use millrace_process::program_path;

use super::{Experiment, IpsBenchError, RunLength};
use crate::gated::recorder::run;

/// Intrusion prevention on one core, by frame size (E7): one rule that alerts on every TCP packet, and 14,000 rules.
///
/// `millrace nf rate` runs the function in memory, with connections that are new on every pass. Rows compare
/// the rate with links of 2 x 1 Gbit/s, with gates for 64-byte frames, and with the function `monitor`.
/// Further rows measure HTTP connections and open connections as RFC 9411 asks for, latency at half load,
/// twice the load, a reload of all rules under load, lanes, and the engine alone over four mixes of
/// connections.
#[derive(Debug, Clone, Args)]
pub struct IpsArgs {
    /// The number of rounds, of which medians are judged
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u8).range(1..=100))]
    rounds: u8,
    /// One short round
    #[arg(long)]
    quick: bool,
    /// Only the engine over four mixes of connections (web, http, dns, mail), in Mbit/s, beside Suricata if it is on PATH
    #[arg(long)]
    engine: bool,
    /// The file of 14,000 rules, packed by xz or not
    #[arg(
        long,
        value_name = "FILE",
        default_value = "../shared/data/rules/et-open-suricata5-2023-05-15-14k.rules.xz"
    )]
    rules: PathBuf,
    /// The file of rules that are loaded again under load, packed by xz or not
    #[arg(
        long,
        value_name = "FILE",
        default_value = "../shared/data/rules/et-open-suricata5-2023-05-15.rules.xz"
    )]
    all_rules: PathBuf,
    /// The core of the function; the last one unless given
    #[arg(long, value_name = "CORE")]
    core: Option<usize>,
    /// The folder for the results: ips.jsonl, ips.json
    #[arg(long, value_name = "DIR", default_value = "out/bench")]
    out: PathBuf,
    /// Print the rows as JSON instead of a table
    #[arg(long)]
    json: bool,
}

impl IpsArgs {
    /// Runs the experiment, prints the rows and writes them to `ips.json`. Progress goes to standard error.
    ///
    /// # Errors
    /// [`IpsBenchError`]. A gate that is not met is not an error.
    pub fn run(&self) -> Result<(), IpsBenchError> {
        let length = RunLength {
            rounds: if self.quick { 1 } else { self.rounds.into() },
            seconds: if self.quick { 0.2 } else { 1.0 },
            quick: self.quick,
        };
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let experiment = Experiment {
            program: program_path("millrace", "MILLRACE"),
            core: self.core.unwrap_or(cores - 1),
            rules: self.rules.clone(),
            all_rules: self.all_rules.clone(),
            engine_only: self.engine,
        };
        run(length, &self.out, self.json, |recorder| experiment.run(recorder))
    }
}
