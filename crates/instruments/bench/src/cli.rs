//! `millrace bench`: the arguments, the order of the steps, and the output.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, Subcommand};
use thiserror::Error;

use crate::case::{self, Case, EXPERIMENTS, Experiment};
use crate::experiments::updates;
use crate::experiments::{bridge, forward, grow, guests, install, latency, qos, rate, veth};
use crate::figure;
use crate::generate::search::Search;
use crate::page::source;
use crate::peer::Peer;
use crate::peer::millrace::Millrace;
use crate::peer::ovs::{OvsDpdk, Tuning};
use crate::peer::testpmd::{Mode, Testpmd};
use crate::record::Record;
use crate::run::{Run, RunError, RunLength};
use crate::table::Table;

/// Measure switches beside each other: Millrace, Open vSwitch with DPDK, testpmd.
#[derive(Debug, Clone, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Command {
    #[command(subcommand)]
    experiment: Option<BenchCommand>,
    #[command(flatten)]
    args: CaseArgs,
}

#[derive(Debug, Clone, Subcommand)]
enum BenchCommand {
    /// Packets per second on one core, case by case
    Forward(CaseArgs),
    /// The same rules under hostile traffic
    Hostile(CaseArgs),
    /// Other rule sets: an IP chain, a long access list, routes
    Rules(CaseArgs),
    /// The cost of further tables, at 10,000 flows, with and without the cache of traversals
    Tables(CaseArgs),
    /// The gain of further cores, at 10,000 flows
    Workers(CaseArgs),
    /// A million entries and flows on one core and more
    Million(CaseArgs),
    /// A million entries are added, time out and are deleted
    Install(RunArgs),
    /// A table grows to 500,000 entries at the highest rate that the switch accepts, while packets pass
    Grow(RunArgs),
    /// Entries change while packets of other entries pass, measured by a generator: loss and latency
    Updates(RunArgs),
    /// The highest rate without loss, by frame size (RFC 2544), from a generator over memif
    Rate(RateArgs),
    /// The latency at 10, 50 and 90 % of that rate
    Latency(RunArgs),
    /// The learning bridge: addresses held, learning rate, broadcast frames (RFC 2889)
    Bridge(RunArgs),
    /// The accuracy of meters and shapers, and the latency of packets with strict priority
    Qos(RunArgs),
    /// Frames between two hosts over veth pairs, also through switches without DPDK
    Veth(RunArgs),
    /// One TCP stream between virtual machines, and from one to a host, through switches with vhost-user ports
    Guests(RunArgs),
    Lan(crate::experiments::lan::cli::LanArgs),
    Chain(crate::experiments::chain::ChainArgs),
    Ips(crate::experiments::ips::cli::IpsArgs),
    Route(crate::experiments::route::cli::RouteArgs),
    Exchange(crate::experiments::exchange::cli::ExchangeArgs),
    Nic(crate::experiments::nic::cli::NicArgs),
    Wan(crate::experiments::wan::cli::WanArgs),
    Transport(crate::experiments::transport::cli::TransportArgs),
    /// All of the above except lan, chain, ips, route, exchange, nic, wan and transport; without a subcommand, `bench` runs forward,
    /// updates and install
    All(RunArgs),
    /// List the cases, quantities and systems
    List,
}

/// The arguments of experiments that consist of cases.
#[derive(Debug, Clone, Args)]
struct CaseArgs {
    /// Only this case; may be given several times
    #[arg(long = "case", value_name = "NAME", value_parser = case_named)]
    cases: Vec<&'static Case>,
    #[command(flatten)]
    run: RunArgs,
}

/// The arguments of the experiment `rate`.
#[derive(Debug, Clone, Args)]
struct RateArgs {
    /// The share of packets that may be lost, 0 to 0.5
    #[arg(long, value_name = "SHARE", default_value_t = 0.0, value_parser = loss)]
    loss: f64,
    #[command(flatten)]
    run: RunArgs,
}

/// The arguments of all experiments: systems, run length, output.
#[derive(Debug, Clone, Args)]
struct RunArgs {
    /// Only this system; may be given several times
    #[arg(long = "system", value_name = "NAME", value_parser = clap::builder::PossibleValuesParser::new(SYSTEMS))]
    systems: Vec<String>,
    /// Show the shape of the result in a few minutes: fewer rounds, short warm-up
    #[arg(long)]
    quick: bool,
    /// The number of measurements for each median
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=100))]
    rounds: Option<u8>,
    /// The folder for the results
    #[arg(long, value_name = "DIR", default_value = "out/bench")]
    out: PathBuf,
    /// The daemon to measure; without it, the one beside this program
    #[arg(long, value_name = "FILE")]
    millraced: Option<PathBuf>,
    /// The daemon of an earlier build, which takes part as the system millrace-before; each case then has the target of
    /// 0.95 of its rate
    #[arg(long, value_name = "FILE")]
    before: Option<PathBuf>,
    /// The nice level of every system, which reduces the influence of other load
    #[arg(long, value_name = "LEVEL", default_value_t = -20, allow_negative_numbers = true, value_parser = clap::value_parser!(i32).range(-20..=19))]
    nice: i32,
    /// Print the rows as JSON instead of a table
    #[arg(long)]
    json: bool,
}

/// The name of an earlier build of Millrace.
const BEFORE: &str = "millrace-before";

/// The names of the systems, in the order of measurement.
const SYSTEMS: [&str; 7] = [
    "testpmd-io",
    "millrace",
    BEFORE,
    "millrace-no-cache",
    "ovs-dpdk",
    "ovs-dpdk-tuned",
    "testpmd-mac",
];

/// The error of `millrace bench`.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum BenchError {
    /// A run failed.
    #[error(transparent)]
    Run(#[from] RunError),
    /// The experiment `lan` failed.
    #[error(transparent)]
    Lan(#[from] crate::experiments::lan::LanError),
    /// The experiment `chain` failed.
    #[error(transparent)]
    Chain(#[from] crate::experiments::chain::ChainBenchError),
    /// The experiment `ips` failed.
    #[error(transparent)]
    Ips(#[from] crate::experiments::ips::IpsBenchError),
    /// The experiment `route`, `exchange` or `nic` failed.
    #[error(transparent)]
    Program(#[from] crate::gated::program::ProgramError),
    /// The experiment `wan` failed.
    #[error(transparent)]
    Wan(#[from] crate::experiments::wan::WanBenchError),
    /// The experiment `transport` failed.
    #[error(transparent)]
    Transport(#[from] crate::experiments::transport::TransportBenchError),
    /// A result cannot be written.
    #[error("{}: {source}", .path.display())]
    File {
        /// The path of the file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// The daemon does not exist.
    #[error("millraced does not exist at {}. To fix it: make build, or name it with --millraced", .0.display())]
    NoDaemon(PathBuf),
    /// The daemon of an earlier build does not exist.
    #[error("--before {}: there is no such file. To build one: git worktree add DIR COMMIT && cargo build --release -p millraced there", .0.display())]
    NoBefore(PathBuf),
    /// The system of an earlier build is named without its daemon.
    #[error("the system millrace-before needs the daemon of an earlier build: add --before FILE")]
    BeforeUnnamed,
}

/// An experiment of a run, with its arguments.
enum Step {
    Cases(&'static Experiment, Vec<&'static Case>),
    Install,
    Grow,
    Veth,
    Guests,
    Updates,
    /// The share of packets that may be lost, 0 to 0.5.
    Rate(f64),
    Latency,
    Bridge,
    Qos,
}

fn loss(text: &str) -> Result<f64, String> {
    let share = text.parse().ok().filter(|share| (0.0..=0.5).contains(share));
    share.ok_or_else(|| "expected a share from 0 to 0.5, as in 0.001".to_owned())
}

/// Returns the case with this name. For the command line.
pub(crate) fn case_named(name: &str) -> Result<&'static Case, String> {
    case::find(name).ok_or_else(|| {
        let names: Vec<&str> = case::all().map(|case| case.name).collect();
        format!("expected one of {}", names.join(", "))
    })
}

/// Returns the system with this name.
pub(crate) fn peer(name: &str) -> Option<Box<dyn Peer>> {
    Some(match name {
        "testpmd-io" => Box::new(Testpmd(Mode::Io)),
        "testpmd-mac" => Box::new(Testpmd(Mode::Mac)),
        "millrace" => Box::new(Millrace::Default),
        BEFORE => Box::new(Millrace::Before),
        "millrace-no-cache" => Box::new(Millrace::NoCache),
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
    /// Runs the experiments and prints the result. Progress goes to standard error.
    ///
    /// # Errors
    /// [`BenchError`]. A figure that misses its target is not an error.
    pub fn run(&self) -> Result<(), BenchError> {
        match &self.experiment {
            None if self.args.cases.is_empty() => self.args.run.run(&acceptance()),
            None => self.args.run.run(&of_cases(None, &self.args.cases)),
            Some(BenchCommand::Forward(args)) => args.run("forward"),
            Some(BenchCommand::Hostile(args)) => args.run("hostile"),
            Some(BenchCommand::Rules(args)) => args.run("rules"),
            Some(BenchCommand::Tables(args)) => args.run("tables"),
            Some(BenchCommand::Workers(args)) => args.run("workers"),
            Some(BenchCommand::Million(args)) => args.run("million"),
            Some(BenchCommand::Install(args)) => args.run(&[Step::Install]),
            Some(BenchCommand::Grow(args)) => args.run(&[Step::Grow]),
            Some(BenchCommand::Updates(args)) => args.run(&[Step::Updates]),
            Some(BenchCommand::Rate(args)) => args.run.run(&[Step::Rate(args.loss)]),
            Some(BenchCommand::Latency(args)) => args.run(&[Step::Latency]),
            Some(BenchCommand::Bridge(args)) => args.run(&[Step::Bridge]),
            Some(BenchCommand::Qos(args)) => args.run(&[Step::Qos]),
            Some(BenchCommand::Veth(args)) => args.run(&[Step::Veth]),
            Some(BenchCommand::Guests(args)) => args.run(&[Step::Guests]),
            Some(BenchCommand::All(args)) => args.run(&everything()),
            Some(BenchCommand::Lan(args)) => Ok(args.run()?),
            Some(BenchCommand::Chain(args)) => Ok(args.run(&installed_daemon())?),
            Some(BenchCommand::Ips(args)) => Ok(args.run()?),
            Some(BenchCommand::Route(args)) => Ok(args.run()?),
            Some(BenchCommand::Exchange(args)) => Ok(args.run()?),
            Some(BenchCommand::Nic(args)) => Ok(args.run()?),
            Some(BenchCommand::Wan(args)) => Ok(args.run()?),
            Some(BenchCommand::Transport(args)) => Ok(args.run()?),
            Some(BenchCommand::List) => list(),
        }
    }
}

/// Returns the named cases of an experiment, or all of them if none is named; without an experiment, those of all
/// experiments.
fn of_cases(experiment: Option<&str>, named: &[&'static Case]) -> Vec<Step> {
    EXPERIMENTS
        .iter()
        .filter(|of| experiment.is_none_or(|name| of.name == name))
        .map(|of| {
            let cases = of.cases.iter();
            let cases = cases.filter(|case| named.is_empty() || named.contains(case));
            Step::Cases(of, cases.collect())
        })
        .filter(|step| !matches!(step, Step::Cases(_, cases) if cases.is_empty()))
        .collect()
}

/// Returns the steps of `make bench`: the acceptance table.
fn acceptance() -> Vec<Step> {
    let mut steps = of_cases(Some("forward"), &[]);
    let routes = ["routes-mixed", "routes-uncovered"].map(case::find);
    steps.extend(of_cases(
        Some("rules"),
        &routes.into_iter().flatten().collect::<Vec<_>>(),
    ));
    steps.extend([Step::Updates, Step::Install]);
    steps
}

/// Returns the steps of `bench all`.
fn everything() -> Vec<Step> {
    let mut steps = acceptance();
    for experiment in ["hostile", "rules", "tables", "workers", "million"] {
        steps.extend(of_cases(Some(experiment), &[]));
    }
    steps.extend([
        Step::Rate(Search::ZERO_LOSS.tolerance),
        Step::Latency,
        Step::Bridge,
        Step::Qos,
        Step::Veth,
        Step::Grow,
        Step::Guests,
    ]);
    steps
}

/// Prints all cases, quantities and systems.
fn list() -> Result<(), BenchError> {
    let mut text = String::new();
    for experiment in EXPERIMENTS {
        text.push_str(&format!("{}: {}\n", experiment.name, experiment.title));
        for case in experiment.cases {
            text.push_str(&format!("  {:<15} {}\n", case.name, case.title));
        }
    }
    for quantity in figure::all() {
        text.push_str(&format!("{}: {}\n", quantity, quantity.title));
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

impl CaseArgs {
    fn run(&self, experiment: &str) -> Result<(), BenchError> {
        self.run.run(&of_cases(Some(experiment), &self.cases))
    }
}

impl RunArgs {
    /// Runs the steps, and prints and writes the table.
    fn run(&self, steps: &[Step]) -> Result<(), BenchError> {
        let millraced = self.daemon();
        if self.takes_part("millrace") && !millraced.is_file() {
            return Err(BenchError::NoDaemon(millraced));
        }
        match &self.before {
            Some(before) if !before.is_file() => return Err(BenchError::NoBefore(before.clone())),
            None if self.systems.iter().any(|name| name == BEFORE) => return Err(BenchError::BeforeUnnamed),
            _ => {}
        }
        let mut run_length = if self.quick {
            RunLength::QUICK
        } else {
            RunLength::FULL
        };
        run_length.rounds = self.rounds.map_or(run_length.rounds, usize::from);
        let mut progress = |text: &str| eprintln!("{text}");
        let mut run = Run::new(run_length, millraced, self.nice, &self.out, &mut progress)?;
        run.before.clone_from(&self.before);
        let outcome = self.steps(&mut run, steps);
        // The table is written for an interrupted run, too: it has the rows measured so far.
        let records = run.records().to_vec();
        drop(run);
        let table = Table::of(&records);
        self.write_table()?;
        if self.json {
            let rows = serde_json::to_string_pretty(&table.rows).map_err(io::Error::from);
            print(&format!("{}\n", rows.map_err(file(&self.out))?))?;
        } else {
            print(&table.text(&records))?;
        }
        Ok(outcome?)
    }

    /// Runs each step with the systems that take part in it.
    fn steps(&self, run: &mut Run<'_>, steps: &[Step]) -> Result<(), RunError> {
        let command = std::env::args().collect::<Vec<_>>().join(" ");
        let estimate: Duration = steps.iter().map(|step| self.estimate(run.length, step)).sum();
        run.progress(&format!(
            "this takes about {} minutes",
            estimate.as_secs().div_ceil(60)
        ));
        for step in steps {
            let peers: Vec<Box<dyn Peer>> = SYSTEMS
                .into_iter()
                .filter(|name| match step {
                    Step::Cases(_, cases) => cases.iter().any(|case| self.in_case(name, case)),
                    Step::Install | Step::Grow | Step::Updates => self.in_figures(name),
                    // These experiments record their systems themselves.
                    Step::Veth | Step::Guests => false,
                    Step::Qos => *name == "millrace",
                    Step::Rate(_) | Step::Latency => self.in_generated(name),
                    Step::Bridge => !name.starts_with("testpmd") && self.in_generated(name),
                })
                .filter_map(peer)
                .collect();
            match step {
                Step::Cases(experiment, cases) => {
                    run.begin(experiment.name, &command, &peers)?;
                    for case in cases {
                        forward::case(run, case, &self.peers(case))?;
                    }
                }
                Step::Install => {
                    run.begin("install", &command, &peers)?;
                    install::run(run, &peers)?;
                }
                Step::Grow => {
                    run.begin("grow", &command, &peers)?;
                    grow::run(run, &peers)?;
                }
                Step::Veth => {
                    run.begin(veth::quantities::VETH, &command, &peers)?;
                    veth::run(run, |name| self.takes_part(name))?;
                }
                Step::Guests => {
                    run.begin(guests::quantities::GUESTS, &command, &peers)?;
                    guests::run(run, |name| {
                        self.takes_part(name) || name == "millrace-tso" && self.takes_part("millrace")
                    })?;
                }
                Step::Updates => {
                    run.begin("updates", &command, &peers)?;
                    updates::run(run, &peers)?;
                }
                Step::Rate(tolerance) => {
                    run.begin(rate::quantities::RATE, &command, &peers)?;
                    let search = Search {
                        tolerance: *tolerance,
                        ..Search::ZERO_LOSS
                    };
                    rate::run(run, &peers, search)?;
                }
                Step::Qos => {
                    run.begin(qos::quantities::QOS, &command, &peers)?;
                    qos::run(run)?;
                }
                Step::Bridge => {
                    run.begin(bridge::quantities::BRIDGE, &command, &peers)?;
                    bridge::run(run, &peers)?;
                }
                Step::Latency => {
                    run.begin(latency::quantities::LATENCY, &command, &peers)?;
                    latency::run(run, &peers)?;
                }
            }
        }
        Ok(())
    }

    /// Returns the expected duration of a step.
    fn estimate(&self, run_length: RunLength, step: &Step) -> Duration {
        match step {
            Step::Cases(_, cases) => {
                let cases: Vec<_> = cases.iter().map(|case| (*case, self.peers(case))).collect();
                forward::estimate(run_length, &cases)
            }
            Step::Install => install::ESTIMATE,
            Step::Grow => grow::ESTIMATE,
            Step::Veth => veth::ESTIMATE,
            Step::Guests => guests::ESTIMATE,
            Step::Updates => updates::ESTIMATE,
            Step::Rate(_) => rate::ESTIMATE,
            Step::Latency => latency::ESTIMATE,
            Step::Bridge => bridge::ESTIMATE,
            Step::Qos => qos::ESTIMATE,
        }
    }

    fn takes_part(&self, name: &str) -> bool {
        self.systems.is_empty() || self.systems.iter().any(|wanted| wanted == name)
    }

    fn in_case(&self, name: &str, case: &Case) -> bool {
        if name == BEFORE {
            self.before.is_some()
        } else if self.systems.is_empty() {
            case.systems.contains(&name)
        } else {
            self.takes_part(name)
        }
    }

    fn in_figures(&self, name: &str) -> bool {
        matches!(name, "millrace" | "ovs-dpdk-tuned") && self.takes_part(name)
    }

    /// Returns true if a system is measured with a generator. By default the tuned Open vSwitch is not: its tuning is
    /// for many flows.
    fn in_generated(&self, name: &str) -> bool {
        if self.systems.is_empty() {
            matches!(name, "testpmd-io" | "millrace" | "ovs-dpdk")
        } else {
            self.takes_part(name)
        }
    }

    fn peers(&self, case: &Case) -> Vec<Box<dyn Peer>> {
        let names = SYSTEMS.into_iter().filter(|name| self.in_case(name, case));
        names.filter_map(peer).collect()
    }

    /// Writes `table.json` from all records in the folder, of this run and of earlier ones.
    fn write_table(&self) -> Result<(), BenchError> {
        let (records, problems) = recorded(&self.out)?;
        for problem in problems {
            eprintln!("{problem}");
        }
        let path = self.out.join("table.json");
        let rows = serde_json::to_string_pretty(&Table::of(&records).rows).map_err(io::Error::from);
        let rows = rows.map_err(file(&path))?;
        fs::write(&path, &rows).map_err(file(&path))
    }

    /// Returns the path of the daemon: the argument, or the result of [`installed_daemon`].
    fn daemon(&self) -> PathBuf {
        if let Some(path) = &self.millraced {
            return path.clone();
        }
        installed_daemon()
    }
}

/// Returns the records of all experiments of the table in a folder, and a sentence about each line that is not read,
/// such as one of another version.
fn recorded(folder: &Path) -> Result<(Vec<Record>, Vec<String>), BenchError> {
    let experiments = EXPERIMENTS.iter().map(|experiment| experiment.name);
    let (mut records, mut problems) = (Vec::new(), Vec::new());
    for name in experiments.chain([
        "install", "grow", "updates", "rate", "latency", "bridge", "qos", "veth", "guests",
    ]) {
        let name = format!("{name}.jsonl");
        let path = folder.join(&name);
        let text = match fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(file(&path)(error)),
        };
        for source in source::parse(&name, &String::from_utf8_lossy(&text)) {
            records.extend(source.records);
            problems.extend(source.problems);
        }
    }
    Ok((records, problems))
}

/// Returns the path of the installed daemon.
fn installed_daemon() -> PathBuf {
    millrace_process::program_path("millraced", "MILLRACED")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_torn_line_costs_the_table_this_line_alone_and_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let sample =
            r#"{"record":"sample","case":"one-rule","system":"millrace","round":0,"window":0,"pps":[1e6,0.0],
            "core_share":1.0,"right":true}"#
                .replace('\n', "");
        let text = format!("{sample}\n{}", &sample[..40]);
        fs::write(folder.path().join("forward.jsonl"), text).unwrap();
        let (records, problems) = recorded(folder.path()).unwrap();
        assert_eq!(Table::of(&records).rows.len(), 1);
        assert_eq!(problems.len(), 1);
        assert!(
            problems[0].starts_with("forward.jsonl, line 2: it is incomplete"),
            "{problems:?}"
        );
    }
}
