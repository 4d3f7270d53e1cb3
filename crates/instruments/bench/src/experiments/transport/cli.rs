//! `millrace bench transport`: the arguments and the output.

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use clap::Args;
use millrace_types::BitRate;

use super::error::{TransportBenchError, file};
use super::{Experiment, Recorder, RowNumber, RunLength, rows};
use crate::gated::text;
use crate::record::Log;

/// Bulk transfers against the gates of their design (T1 to T15): asked, gate, target, reached.
///
/// Rows T1, T2 and T4 to T9 are measured in virtual time, on one thread. Live rows send files over an emulated path between
/// network namespaces, beside iperf3 (CUBIC and BBR), uftp, SRT, rsync and scp, where they are installed
/// (scripts/setup.sh peers); they need root. The rate of the link is calibrated: half of what plain UDP passes without
/// loss, 1 Gbit/s at most.
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
        fs::create_dir_all(&self.out).map_err(file(&self.out))?;
        let path = self.out.join("transport.jsonl");
        let mut log = Log::create(&path).map_err(file(&path))?;
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let experiment = Experiment {
            rows: match self.rows.as_slice() {
                [] => RowNumber::ALL.to_vec(),
                given => given.to_vec(),
            },
            program: millrace_process::program_path("millrace", "MILLRACE"),
            receive_path: millrace_process::program_path("receive_path", "MILLRACE_RECEIVE_PATH"),
            live: !self.no_live,
            link_bps: self.link.map(BitRate::bps),
            core: self.core.unwrap_or(cores - 1),
            command: std::env::args().collect::<Vec<_>>().join(" "),
        };
        let outcome = experiment.run(&mut Recorder {
            length,
            log: &mut log,
            progress: &mut |text: &str| eprintln!("{text}"),
        });
        // The rows of an interrupted run are printed and written, too.
        let rows = rows(log.records());
        let json = format!("{:#}\n", serde_json::json!(rows));
        let path = self.out.join("transport.json");
        fs::write(&path, &json).map_err(file(&path))?;
        let text = if self.json { json } else { text(&rows) };
        let print = |text: &str| -> io::Result<()> { io::stdout().write_all(text.as_bytes()) };
        print(&text).map_err(file(Path::new("standard output")))?;
        outcome
    }
}
