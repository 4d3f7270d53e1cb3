//! The experiment `route`: lookups, programming and memory of full tables, and the rate of routing.
//!
//! The measurements are examples of the crates that they measure (`fib`: `lookup`, `rib`: `feed`, `router`: `rates`), and
//! scripts in `tests/interop` that start a router: `live_routes.py` with a full table, `beside_l3fwd.py` beside DPDK's l3fwd.
//! They run alone, too. Each line of their output is a row: `NAME: VALUE UNIT`. The rows with their gates are data (`rows.rs`);
//! a row that its program did not print is recorded as missing.

pub mod cli;
mod peers;
mod record;
mod recorder;
mod rows;
pub(crate) mod section;

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use millrace_process::pause;

pub use record::RouteRecord;
pub use recorder::{Recorder, RunLength};
use rows::{PROGRAMS, Program};

use crate::gated::program::{ProgramError, said, script, value_of};

/// The programs that the experiment runs.
#[derive(Debug, Clone)]
pub struct Experiment {
    /// The folder with the examples.
    pub examples: PathBuf,
    /// The folder of the project's sources, with the script that starts a router.
    pub sources: PathBuf,
}

impl Experiment {
    /// Measures all rows.
    ///
    /// # Errors
    /// SIGINT, or a file that cannot be written. What fails besides is recorded as missing.
    pub fn run(&self, recorder: &mut Recorder<'_>) -> Result<(), ProgramError> {
        recorder.begin(!recorder.length.has_peers)?;
        for round in 0..recorder.length.rounds {
            for program in &PROGRAMS {
                if round == 0 || !program.is_script() {
                    self.measure(recorder, round, program)?;
                }
            }
        }
        if recorder.length.has_peers {
            peers::measure(recorder)?;
        }
        Ok(())
    }

    /// Returns the command of a program, without its arguments.
    fn command(&self, program: &Program) -> Command {
        if !program.is_script() {
            return Command::new(self.examples.join(program.name));
        }
        let mut command = script(&self.sources, program.name);
        // The programs are those of the same build.
        if let Some(target) = self.examples.parent() {
            command.env("MILLRACE_TARGET", target);
        }
        command
    }

    /// Runs a program once, and records its rows.
    fn measure(
        &self,
        recorder: &mut Recorder<'_>,
        round: usize,
        program: &Program,
    ) -> Result<(), ProgramError> {
        pause(Duration::ZERO)?;
        let asked = program.asked(recorder.length);
        let mut command = self.command(program);
        command.args(program.arguments(recorder.length));
        match said(&mut command)? {
            Ok(text) => {
                for row in program.rows {
                    let case = row.case(&asked);
                    match value_of(&text, row.line) {
                        Some(value) => recorder.value(&case, round, value)?,
                        None => recorder.missing(&case, &format!("{} did not print it", program.name))?,
                    }
                }
            }
            Err(reason) => {
                let reason = format!("{reason}. To fix it: {}", program.remedy);
                recorder.all_missing(program.rows.iter().map(|row| row.case(&asked)), &reason)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gated::recorder::rows_of;
    use crate::record::Log;

    /// Runs the experiment with examples that are shell scripts of this text.
    fn rows_with(script: &str) -> Vec<crate::gated::Row> {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("scripts")).unwrap();
        for name in ["lookup", "feed", "rates", "scripts/apart.sh"] {
            let path = folder.path().join(name);
            std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        }
        let mut log = Log::create(&folder.path().join("route.jsonl")).unwrap();
        let mut progress = |_: &str| {};
        let length = RunLength {
            rounds: 1,
            routes_v4: 10,
            routes_v6: 5,
            has_peers: false,
        };
        let experiment = Experiment {
            examples: folder.path().to_owned(),
            sources: folder.path().to_owned(),
        };
        experiment
            .run(&mut Recorder::new(length, &mut log, &mut progress))
            .unwrap();
        rows_of::<RouteRecord>(log.records())
    }

    #[test]
    fn each_line_of_an_example_is_a_row_with_its_gate() {
        let rows = rows_with(
            "echo 'IPv6 lookup, random: 60.5 ns a lookup'; echo 'IPv4 lookup, random: 17.1 ns a lookup'",
        );
        let row = |name: &str| rows.iter().find(|row| row.case.contains(name)).unwrap();
        assert_eq!(
            (row("IPv6 lookup, random").reached, row("IPv6 lookup, random").met),
            (Some(60.5), Some(false))
        );
        assert_eq!(
            (row("IPv4 lookup, random").reached, row("IPv4 lookup, random").met),
            (Some(17.1), Some(true))
        );
        assert!(
            row("IPv4 lookup, Zipf")
                .reason
                .as_deref()
                .unwrap()
                .contains("lookup did not print it")
        );
    }

    #[test]
    fn each_script_prints_each_of_its_rows() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../tests/interop");
        let scripts: Vec<_> = PROGRAMS.iter().filter(|program| program.is_script()).collect();
        assert_eq!(scripts.len(), 2);
        for script in scripts {
            let text = std::fs::read_to_string(folder.join(script.name)).unwrap();
            for row in script.rows {
                assert!(text.contains(&format!("say(\"{}\"", row.line)), "{}", row.line);
            }
        }
    }

    #[test]
    fn an_example_that_fails_leaves_its_rows_with_the_reason_and_the_remedy() {
        for row in rows_with("echo 'no memory' >&2; exit 3") {
            assert_eq!(row.reached, None);
            let reason = row.reason.unwrap();
            assert!(
                reason.contains("no memory") && reason.contains("To fix it: "),
                "{reason}"
            );
        }
    }
}
