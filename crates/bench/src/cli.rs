//! `millrace bench`: the arguments, and what is printed.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use thiserror::Error;

use crate::case::{self, CASES, Case};
use crate::forward::{Effort, ForwardError, Run};
use crate::peer::Peer;
use crate::peer::millrace::Millrace;
use crate::peer::ovs::{OvsDpdk, Tuning};
use crate::peer::testpmd::{Mode, Testpmd};
use crate::record::Log;
use crate::table::Table;

/// Measure switches beside each other: Millrace, Open vSwitch with DPDK, testpmd.
#[derive(Debug, Clone, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Command {
    #[command(subcommand)]
    experiment: Option<Experiment>,
    #[command(flatten)]
    forward: ForwardArgs,
}

#[derive(Debug, Clone, Subcommand)]
enum Experiment {
    /// Packets a second on one core, case by case (this is what `bench` does by itself)
    Forward(ForwardArgs),
    /// The cases and systems that there are
    List,
}

/// Which cases, which systems, how long.
#[derive(Debug, Clone, Args)]
struct ForwardArgs {
    /// Only this case; may be given several times
    #[arg(long = "case", value_name = "NAME", value_parser = case_named)]
    cases: Vec<&'static Case>,
    /// Only this system; may be given several times
    #[arg(long = "system", value_name = "NAME", value_parser = clap::builder::PossibleValuesParser::new(SYSTEMS))]
    systems: Vec<String>,
    /// The shape of the result in a minute or two: fewer rounds, short warm-up
    #[arg(long)]
    quick: bool,
    /// How often each system is started
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=100))]
    rounds: Option<u8>,
    /// Where results go
    #[arg(long, value_name = "DIR", default_value = "out/bench")]
    out: PathBuf,
    /// The daemon to measure; without it, the one beside this program
    #[arg(long, value_name = "FILE")]
    millraced: Option<PathBuf>,
    /// The nice level of every system: what else runs should disturb little
    #[arg(long, value_name = "LEVEL", default_value_t = -20, allow_negative_numbers = true, value_parser = clap::value_parser!(i32).range(-20..=19))]
    nice: i32,
    /// Print the rows as JSON instead of a table
    #[arg(long)]
    json: bool,
}

/// The systems, in the order in which they are measured.
const SYSTEMS: [&str; 5] = [
    "testpmd-io",
    "millrace",
    "ovs-dpdk",
    "ovs-dpdk-tuned",
    "testpmd-mac",
];
/// Those that take part unless others are named.
const USUAL: usize = 4;

/// Why there is no result.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum BenchError {
    /// The run.
    #[error(transparent)]
    Forward(#[from] ForwardError),
    /// A result cannot be written.
    #[error("{}: {source}", .path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// The daemon is not there.
    #[error("millraced is not at {}. Remedy: make build, or name it with --millraced", .0.display())]
    NoDaemon(PathBuf),
}

fn case_named(name: &str) -> Result<&'static Case, String> {
    case::find(name).ok_or_else(|| {
        let names: Vec<&str> = CASES.iter().map(|case| case.name).collect();
        format!("expected one of {}", names.join(", "))
    })
}

fn peer(name: &str) -> Option<Box<dyn Peer>> {
    Some(match name {
        "testpmd-io" => Box::new(Testpmd(Mode::Io)),
        "testpmd-mac" => Box::new(Testpmd(Mode::Mac)),
        "millrace" => Box::new(Millrace),
        "ovs-dpdk" => Box::new(OvsDpdk(Tuning::Shipped)),
        "ovs-dpdk-tuned" => Box::new(OvsDpdk(Tuning::Tuned)),
        _ => return None,
    })
}

fn file(path: &Path) -> impl FnOnce(io::Error) -> BenchError + use<> {
    let path = path.to_owned();
    move |source| BenchError::File { path, source }
}

impl Command {
    /// Does it, and prints the result; progress goes to standard error.
    ///
    /// # Errors
    /// [`BenchError`]. A figure short of its target is none.
    pub fn run(&self) -> Result<(), BenchError> {
        match &self.experiment {
            Some(Experiment::Forward(args)) => args.run(),
            Some(Experiment::List) => list(),
            None => self.forward.run(),
        }
    }
}

fn list() -> Result<(), BenchError> {
    let mut text = String::from("cases:\n");
    for case in CASES {
        text.push_str(&format!("  {:<15} {}\n", case.name, case.title));
    }
    text.push_str("systems:\n");
    for peer in SYSTEMS.iter().filter_map(|name| peer(name)) {
        text.push_str(&format!("  {:<15} {}\n", peer.name(), peer.configuration()));
    }
    print(&text)
}

fn print(text: &str) -> Result<(), BenchError> {
    io::stdout()
        .write_all(text.as_bytes())
        .map_err(file(Path::new("standard output")))
}

impl ForwardArgs {
    fn run(&self) -> Result<(), BenchError> {
        let millraced = self.daemon();
        let names: Vec<&str> = if self.systems.is_empty() {
            SYSTEMS.into_iter().take(USUAL).collect()
        } else {
            SYSTEMS
                .into_iter()
                .filter(|name| self.systems.iter().any(|wanted| wanted == name))
                .collect()
        };
        if names.contains(&"millrace") && !millraced.is_file() {
            return Err(BenchError::NoDaemon(millraced));
        }
        let mut effort = if self.quick { Effort::QUICK } else { Effort::FULL };
        effort.rounds = self.rounds.map_or(effort.rounds, usize::from);
        fs::create_dir_all(&self.out).map_err(file(&self.out))?;
        let path = self.out.join("runs.jsonl");
        let mut log = Log::create(&path).map_err(file(&path))?;
        let mut progress = |text: &str| eprintln!("{text}");
        let outcome = Run {
            cases: if self.cases.is_empty() {
                CASES.iter().collect()
            } else {
                self.cases.clone()
            },
            peers: names.iter().filter_map(|name| peer(name)).collect(),
            effort,
            millraced,
            nice: self.nice,
            log: &mut log,
            progress: &mut progress,
            command: std::env::args().collect::<Vec<_>>().join(" "),
        }
        .run();
        // Also of a run that was interrupted: what was measured was measured.
        let table = Table::of(log.records());
        let rows = serde_json::to_string_pretty(&table.rows).map_err(io::Error::from);
        let path = self.out.join("table.json");
        let rows = rows.map_err(file(&path))?;
        fs::write(&path, &rows).map_err(file(&path))?;
        if self.json {
            print(&format!("{rows}\n"))?;
        } else {
            print(&table.text(log.records()))?;
        }
        Ok(outcome?)
    }

    /// The daemon: as named, or the one beside this program or one folder up (examples, tests).
    fn daemon(&self) -> PathBuf {
        if let Some(path) = &self.millraced {
            return path.clone();
        }
        let own = std::env::current_exe().unwrap_or_default();
        own.ancestors()
            .skip(1)
            .take(2)
            .map(|folder| folder.join("millraced"))
            .find(|path| path.is_file())
            .unwrap_or_else(|| own.with_file_name("millraced"))
    }
}
