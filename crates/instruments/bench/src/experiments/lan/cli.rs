//! `millrace bench lan`: the arguments, and what is printed.

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;

use super::{Effort, LanError, Run, System, rows, text};
use crate::record::Log;

/// One TCP stream between two hosts through each switch, second by second: the published comparison of
/// virtual switches (E1).
///
/// Each system is built anew for each run, in turn, between the same two network namespaces; offloads of the
/// hosts' ends are off for all. Ten runs of a minute for each system, or with --quick three of eight seconds.
/// Needs root and iperf3.
#[derive(Debug, Clone, Args)]
pub struct LanArgs {
    /// Only this system; may be given several times
    #[arg(long = "system", value_name = "NAME", value_enum)]
    systems: Vec<System>,
    /// The shape of the result in about two minutes
    #[arg(long)]
    quick: bool,
    /// Runs of each system
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=100))]
    rounds: Option<u8>,
    /// The length of a run
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u16).range(2..=3600))]
    seconds: Option<u16>,
    /// Where results go: lan.jsonl in this folder
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
    /// Does it, and prints the result; progress goes to standard error.
    ///
    /// # Errors
    /// [`LanError`].
    pub fn run(&self) -> Result<(), LanError> {
        let mut effort = if self.quick { Effort::QUICK } else { Effort::FULL };
        effort.rounds = self.rounds.map_or(effort.rounds, usize::from);
        effort.run = self
            .seconds
            .map_or(effort.run, |seconds| Duration::from_secs(seconds.into()));
        fs::create_dir_all(&self.out).map_err(failed(&self.out))?;
        let path = self.out.join("lan.jsonl");
        let mut log = Log::create(&path).map_err(failed(&path))?;
        let mut progress = |text: &str| eprintln!("{text}");
        let outcome = Run {
            systems: System::ALL
                .into_iter()
                .filter(|system| self.systems.is_empty() || self.systems.contains(system))
                .collect(),
            effort,
            millraced: self.millraced.clone(),
            log: &mut log,
            path,
            progress: &mut progress,
            command: std::env::args().collect::<Vec<_>>().join(" "),
        }
        .run();
        // Also of a run that was interrupted: what was measured was measured.
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
