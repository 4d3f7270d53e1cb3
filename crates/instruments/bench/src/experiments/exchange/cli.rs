//! `millrace bench exchange`: the arguments and the output.

use std::path::PathBuf;

use clap::Args;

use super::{Experiment, RunLength};
use crate::gated::program::ProgramError;
use crate::gated::recorder::run;

/// The duration of `--quick` in seconds.
const QUICK_S: u32 = 120;

/// An exchange for a week, in an hour (E11): traffic of tenants over two sites, changes by the API, filters, kills of the
/// engine, cuts of a trunk.
///
/// No frame may reach a wrong tenant, none of a circuit that nobody changes may be lost, and the memory of engine and
/// switches must stay flat. The engine and the switches are those beside the program; it must be root.
#[derive(Debug, Clone, Args)]
pub struct ExchangeArgs {
    /// The duration in seconds; memory is judged from 600 on
    #[arg(long, value_name = "N", default_value_t = RunLength::FULL_S, value_parser = clap::value_parser!(u32).range(4..))]
    seconds: u32,
    /// Two minutes
    #[arg(long, conflicts_with = "seconds")]
    quick: bool,
    /// The mean rate of all tenants in Mbit/s; it triples for one second in ten
    #[arg(long, value_name = "MBPS", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..))]
    rate: u32,
    /// Changes a second
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    changes: u32,
    /// The number of tenants, of which a quarter changes
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u32).range(2..=1000))]
    tenants: u32,
    /// The folder with millrace-ix and millraced; that of the program unless given
    #[arg(long, value_name = "DIR")]
    programs: Option<PathBuf>,
    /// The folder of the project's sources, whose tests/interop/soak_exchange.py runs the exchange
    #[arg(long, value_name = "DIR", default_value = ".")]
    sources: PathBuf,
    /// The folder for the results: exchange.jsonl, exchange.json, exchange.log
    #[arg(long, value_name = "DIR", default_value = "out/bench")]
    out: PathBuf,
    /// Print the rows as JSON instead of a table
    #[arg(long)]
    json: bool,
}

impl ExchangeArgs {
    /// Runs the experiment, prints the rows and writes them to `exchange.json`. Progress goes to standard error.
    ///
    /// # Errors
    /// [`ProgramError`]. A gate that is not met is not an error.
    pub fn run(&self) -> Result<(), ProgramError> {
        let length = RunLength {
            seconds: if self.quick { QUICK_S } else { self.seconds },
            rate_mbps: self.rate,
            changes: self.changes,
            tenants: self.tenants,
        };
        let beside = || Some(std::env::current_exe().ok()?.parent()?.to_owned());
        let programs = self.programs.clone().or_else(beside).unwrap_or_default();
        let experiment = Experiment {
            // The script runs the programs in the folder of the sources.
            programs: std::path::absolute(&programs).unwrap_or(programs),
            sources: self.sources.clone(),
        };
        let log = self.out.join("exchange.log");
        run(length, &self.out, self.json, |recorder| {
            experiment.run(recorder, &log)
        })
    }
}
