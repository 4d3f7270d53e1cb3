//! `millrace bench ips`: the arguments and the output.

use std::path::PathBuf;

use clap::Args;
use millrace_process::program_path;

use super::{Experiment, IpsBenchError, Parts, RunLength};
use crate::gated::recorder::run;

/// Intrusion prevention on one core, by frame size (E7): one rule that alerts on every TCP packet, and 14,000 rules.
///
/// `millrace nf rate` runs the function in memory, with connections that are new on every pass. Rows compare
/// the rate with links of 2 x 1 Gbit/s, with gates for 64-byte frames, and with the function `monitor`.
/// Further rows measure HTTP connections and open connections as RFC 9411 asks for, latency at half load,
/// twice the load, a reload of all rules under load, lanes, and the engine alone over four mixes of
/// connections. A last part reads public captures, many times with other addresses, and takes the user time of `millrace ips read`.
///
/// With `--before`, each measurement also runs with an earlier build, in turn.
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
    /// Only public captures: the user time of `millrace ips read` with 14,000 rules
    #[arg(long, conflicts_with = "engine")]
    captures_only: bool,
    /// The program millrace of an earlier build, which is measured in turn with this one: each rate then has the gate of 0.95 of
    /// its rate, and public captures that of 1.65 times as fast
    #[arg(long, value_name = "FILE")]
    before: Option<PathBuf>,
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
    /// The folder of public captures
    #[arg(long, value_name = "DIR", default_value = "../shared/data/captures")]
    captures: PathBuf,
    /// The number of times that they are read, each time with other addresses; 24 unless given, 6 with --quick
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=200))]
    repetitions: Option<u8>,
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
        if let Some(before) = self.before.as_ref().filter(|before| !before.is_file()) {
            return Err(IpsBenchError::NoBefore(before.clone()));
        }
        let length = RunLength {
            rounds: if self.quick { 1 } else { self.rounds.into() },
            seconds: if self.quick { 0.2 } else { 1.0 },
            quick: self.quick,
        };
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let experiment = Experiment {
            program: program_path("millrace", "MILLRACE"),
            before: self.before.clone(),
            core: self.core.unwrap_or(cores - 1),
            rules: self.rules.clone(),
            all_rules: self.all_rules.clone(),
            captures: self.captures.clone(),
            repetitions: self.repetitions.unwrap_or(if self.quick { 6 } else { 24 }),
            parts: match (self.engine, self.captures_only) {
                (true, _) => Parts::Engine,
                (_, true) => Parts::Captures,
                _ => Parts::All,
            },
        };
        run(length, &self.out, self.json, |recorder| experiment.run(recorder))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        args: IpsArgs,
    }

    #[test]
    fn an_earlier_build_that_is_not_there_is_named_before_anything_is_measured() {
        let folder = tempfile::tempdir().unwrap();
        let (out, before) = (folder.path().join("out"), folder.path().join("no-millrace"));
        let arguments = [
            "ips",
            "--out",
            out.to_str().unwrap(),
            "--before",
            before.to_str().unwrap(),
        ];
        let line: Line = clap::Parser::parse_from(arguments);
        let error = line.args.run().unwrap_err().to_string();
        let wanted = format!("--before {}: there is no such file", before.display());
        assert!(error.starts_with(&wanted), "{error}");
        assert!(!out.exists());
    }
}
