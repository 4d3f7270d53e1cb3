//! `millrace bench transport`: the arguments and the output.

use std::path::PathBuf;

use clap::{Args, ValueEnum as _};
use millrace_types::BitRate;

use super::error::TransportBenchError;
use super::{Experiment, RowNumber, RunLength};
use crate::gated::recorder::run;

/// Bulk transfers: the bounds that docs/gates.md sets for them (T1 to T15), and what they reach.
///
/// Rows T1, T2 and T4 to T9 are measured in virtual time, on one thread. Live rows send files over an
/// emulated path between network namespaces, and need root. They compare with iperf3 (CUBIC and BBR), uftp,
/// NORM, PGM, UDT, SRT, quinn, rsync and scp, as far as these are installed (scripts/setup.sh peers). The
/// rate of the link is calibrated: half of the rate at which plain UDP passes without loss, 1 Gbit/s at most.
#[derive(Debug, Clone, Args)]
pub struct TransportArgs {
    /// Only this row; may be given several times
    #[arg(long = "row", value_name = "ROW", value_enum)]
    rows: Vec<RowNumber>,
    /// Show the shape of the result: one round, short runs
    #[arg(long)]
    quick: bool,
    /// The number of rounds of live rows, of which medians are judged
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=100))]
    rounds: Option<u8>,
    /// Measure in virtual time only
    #[arg(long)]
    no_live: bool,
    /// The rate of the link, such as 200Mbps, without calibration
    #[arg(long, value_name = "RATE")]
    link: Option<BitRate>,
    /// The folder for the results: transport.jsonl, transport.json
    #[arg(long, value_name = "DIR", default_value = "out/bench")]
    out: PathBuf,
    /// The core of the emulator; the last one unless given
    #[arg(long, value_name = "CORE")]
    core: Option<usize>,
    /// Print the rows as JSON instead of a table
    #[arg(long)]
    json: bool,
}

impl TransportArgs {
    /// Runs the experiment, prints the rows and writes them to `transport.json`. Progress goes to standard error.
    ///
    /// # Errors
    /// [`TransportBenchError`]. A gate that is not met is not an error.
    pub fn run(&self) -> Result<(), TransportBenchError> {
        let mut length = if self.quick {
            RunLength::QUICK
        } else {
            RunLength::FULL
        };
        length.rounds = self.rounds.map_or(length.rounds, usize::from);
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let experiment = Experiment {
            rows: match self.rows.as_slice() {
                [] => RowNumber::value_variants().to_vec(),
                given => given.to_vec(),
            },
            program: millrace_process::program_path("millrace", "MILLRACE"),
            receive_path: millrace_process::program_path("receive_path", "MILLRACE_RECEIVE_PATH"),
            live: !self.no_live,
            link_bps: self.link.map(BitRate::bps),
            core: self.core.unwrap_or(cores - 1),
        };
        run(length, &self.out, self.json, |recorder| experiment.run(recorder))
    }
}
