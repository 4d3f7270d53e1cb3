//! `millrace bench lan`: the arguments and the output.

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;

use crate::experiments::wan::link::WanLink;

use super::{LanError, Run, RunLength, System, rows, text};
use crate::record::Log;

/// One TCP stream between two hosts through each switch, second by second: the published comparison of virtual
/// switches (E1).
///
/// Each system is started again for each run, in turn, between the same two network namespaces; offloads are off at
/// both hosts. Ten runs of a minute for each system, or with --quick three of eight seconds. Needs root and iperf3.
#[derive(Debug, Clone, Args)]
pub struct LanArgs {
    /// Only this system; may be given several times
    #[arg(long = "system", value_name = "NAME", value_enum)]
    systems: Vec<System>,
    /// Show the shape of the result in about two minutes
    #[arg(long)]
    quick: bool,
    /// The number of runs of each system
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=100))]
    rounds: Option<u8>,
    /// The duration of a run
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u16).range(2..=3600))]
    seconds: Option<u16>,
    /// Measure two sites with one switch each, instead of one switch. The path between the sites has these
    /// settings, as in "delay=10ms,rate=1Gbps"; the keys are those of `wan = {…}` in a lab file (E3)
    #[arg(long, value_name = "SETTINGS")]
    wan: Option<WanLink>,
    /// The folder for the results: lan.jsonl, or lan-wan.jsonl with --wan
    #[arg(long, value_name = "DIR", default_value = "out/bench")]
    out: PathBuf,
    /// The daemon to measure; without it, the one beside this program
    #[arg(long, value_name = "FILE")]
    millraced: Option<PathBuf>,
    /// Print the rows as JSON instead of a table
    #[arg(long)]
    json: bool,
}

fn failed(path: &Path) -> impl FnOnce(io::Error) -> LanError + use<> {
    let path = path.to_owned();
    move |source| LanError::Write { path, source }
}

impl LanArgs {
    /// Runs the experiment and prints the result. Progress goes to standard error.
    ///
    /// # Errors
    /// [`LanError`].
    pub fn run(&self) -> Result<(), LanError> {
        let mut run_length = if self.quick {
            RunLength::QUICK
        } else {
            RunLength::FULL
        };
        run_length.rounds = self.rounds.map_or(run_length.rounds, usize::from);
        run_length.run = self
            .seconds
            .map_or(run_length.run, |seconds| Duration::from_secs(seconds.into()));
        fs::create_dir_all(&self.out).map_err(failed(&self.out))?;
        let path = self.out.join(match self.wan {
            None => "lan.jsonl",
            Some(_) => "lan-wan.jsonl",
        });
        let mut log = Log::create(&path).map_err(failed(&path))?;
        let mut progress = |text: &str| eprintln!("{text}");
        let outcome = Run {
            systems: System::ALL
                .into_iter()
                .filter(|system| self.systems.is_empty() || self.systems.contains(system))
                .collect(),
            length: run_length,
            millraced: self.millraced.clone(),
            wan: self.wan.clone(),
            log: &mut log,
            path,
            progress: &mut progress,
            command: std::env::args().collect::<Vec<_>>().join(" "),
        }
        .run();
        // The rows of an interrupted run are printed, too.
        let rows = rows(log.records());
        let text = if self.json {
            format!("{:#}\n", serde_json::json!(rows))
        } else {
            text(&rows)
        };
        io::stdout()
            .write_all(text.as_bytes())
            .map_err(failed(Path::new("standard output")))?;
        outcome
    }
}
