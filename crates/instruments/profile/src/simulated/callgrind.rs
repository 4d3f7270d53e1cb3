//! The output of callgrind: the sums of its events, and the costs of each function without its callees. Every line is
//! checked, and an error names the line that is wrong. The format is that of valgrind's manual, "Callgrind Format
//! Specification".

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use super::error::SimulateError;
use super::model::Geometry;

/// The function of millraced whose events are counted (`bin/millraced/src/simulate.rs`).
const COUNTED: &str = "counted_round";

/// The costs in the order of [`Output::events`].
type Costs = Vec<u64>;

/// A parsed file of callgrind.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Output {
    events: Vec<String>,
    totals: Costs,
    /// The costs of each function without its callees, by name and file.
    functions: BTreeMap<(String, String), Costs>,
}

/// The simulated caches of one run.
#[derive(Debug, Clone, Copy)]
pub(super) struct Caches {
    pub(super) i1: Geometry,
    pub(super) d1: Geometry,
    pub(super) ll: Geometry,
}

/// Returns the command that runs `program` under callgrind.
pub(super) fn command(caches: Caches, out: &Path, program: &Command) -> Command {
    let mut command = Command::new("valgrind");
    command.args(["-q", "--tool=callgrind", "--cache-sim=yes", "--branch-sim=yes"]);
    command.arg("--collect-atstart=no");
    command.arg(format!("--toggle-collect=*{COUNTED}*"));
    command.args(["--dump-line=no", "--compress-strings=no", "--compress-pos=no"]);
    command.arg(format!("--I1={}", caches.i1.option()));
    command.arg(format!("--D1={}", caches.d1.option()));
    command.arg(format!("--LL={}", caches.ll.option()));
    command.arg(format!("--callgrind-out-file={}", out.display()));
    command.arg(program.get_program()).args(program.get_args());
    command
}

impl Output {
    /// Parses the text of a file.
    pub(super) fn parse(text: &str) -> Result<Output, SimulateError> {
        let mut output = Output::default();
        let (mut object, mut function) = (String::new(), None);
        let mut is_of_a_call = false;
        for (index, line) in text.lines().enumerate() {
            let wrong = |expected| SimulateError::Callgrind {
                line: index + 1,
                text: line.chars().take(120).collect(),
                expected,
            };
            if let Some(events) = line.strip_prefix("events:") {
                output.events = events.split_whitespace().map(str::to_owned).collect();
            } else if let Some(totals) = line.strip_prefix("totals:") {
                output.totals = costs(totals).ok_or_else(|| wrong("a number for each event"))?;
            } else if let Some(name) = line.strip_prefix("ob=") {
                name.clone_into(&mut object);
            } else if let Some(name) = line.strip_prefix("fn=") {
                function = Some((name.to_owned(), object.clone()));
            } else if line.starts_with("calls=") {
                is_of_a_call = true;
            } else if line.starts_with(|c: char| c.is_ascii_digit()) {
                // The line after `calls=` has the costs of the callee, which are counted in the lines of the
                // callee.
                if std::mem::take(&mut is_of_a_call) {
                    continue;
                }
                let (_, numbers) = line.split_once(' ').unwrap_or((line, ""));
                let costs = costs(numbers).ok_or_else(|| wrong("a position and numbers"))?;
                let key = function
                    .clone()
                    .ok_or_else(|| wrong("a function (fn=) before its costs"))?;
                add(output.functions.entry(key).or_default(), &costs);
            }
        }
        if output.events.is_empty() || output.totals.is_empty() {
            return Err(SimulateError::Callgrind {
                line: text.lines().count(),
                text: String::new(),
                expected: "lines `events:` and `totals:` before the end of the file",
            });
        }
        Ok(output)
    }

    /// Returns the number of an event; 0 if callgrind leaves it out.
    pub(super) fn total(&self, event: &str) -> u64 {
        self.pick(&self.totals, &[event])
    }

    /// Returns the sum of several events.
    pub(super) fn sum(&self, events: &[&str]) -> u64 {
        self.pick(&self.totals, events)
    }

    /// Returns each function and its file, with the sums of the two groups of events.
    pub(super) fn functions<'a>(
        &'a self,
        one: &'a [&str],
        other: &'a [&str],
    ) -> impl Iterator<Item = (&'a str, &'a str, u64, u64)> {
        self.functions.iter().map(move |((function, object), costs)| {
            let function = function.as_str();
            (
                function,
                object.as_str(),
                self.pick(costs, one),
                self.pick(costs, other),
            )
        })
    }

    fn pick(&self, costs: &[u64], events: &[&str]) -> u64 {
        self.events
            .iter()
            .zip(costs)
            .filter(|(event, _)| events.contains(&event.as_str()))
            .map(|(_, cost)| cost)
            .sum()
    }
}

fn costs(text: &str) -> Option<Costs> {
    text.split_whitespace()
        .map(|number| number.parse().ok())
        .collect()
}

/// Adds costs. Callgrind leaves out zeroes at the end of a line.
fn add(sum: &mut Costs, costs: &[u64]) {
    sum.resize(sum.len().max(costs.len()), 0);
    for (sum, cost) in sum.iter_mut().zip(costs) {
        *sum += cost;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The output of valgrind 3.19, shortened.
    const TEXT: &str = "# callgrind format\nversion: 1\ncreator: callgrind-3.19.0\npid: 1\n\
        cmd:  millraced --simulate x\npart: 1\n\n\ndesc: I1 cache: 65536 B, 64 B, 16-way associative\n\
        positions: line\nevents: Ir Dr Dw I1mr D1mr D1mw ILmr DLmr DLmw Bc Bcm Bi Bim\n\
        summary: 100 50 30 3 4 5 1\n\n\
        ob=/lib/ld.so\nfl=???\nfn=0x01ab70\ncob=/bin/millraced\ncfi=???\ncfn=(below main)\ncalls=1 0 \n\
        0 100 50 30 3 4 5 1\n\n\
        ob=/bin/millraced\nfl=worker.rs\nfn=millrace_datapath::stepper::Stepper<P>::forward_round\n\
        0 60 20 10 3 4 1\nfi=vec.rs\n0 10 5\nfe=worker.rs\ncfn=memcpy\ncalls=7 0\n0 30 25 20 0 0 4 1\n\n\
        fl=???\nfn=memcpy\n0 30 25 20 0 0 4 1\n\ntotals: 100 50 30 3 4 5 1\n";

    #[test]
    fn sums_and_the_own_costs_of_functions_are_read() {
        let output = Output::parse(TEXT).unwrap();
        assert_eq!((output.total("Ir"), output.total("Bim")), (100, 0));
        assert_eq!(output.sum(&["D1mr", "D1mw"]), 9);
        let functions: Vec<_> = output.functions(&["Ir"], &["D1mr", "D1mw"]).collect();
        assert_eq!(
            functions,
            [
                ("memcpy", "/bin/millraced", 30, 4),
                (
                    "millrace_datapath::stepper::Stepper<P>::forward_round",
                    "/bin/millraced",
                    70,
                    5
                ),
            ]
        );
    }

    #[test]
    fn a_line_that_is_not_callgrinds_is_named() {
        let error = Output::parse("events: Ir\nfn=x\n0 nonsense\n")
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("line 3") && error.contains("a position and numbers"),
            "{error}"
        );
        let error = Output::parse("events: Ir\n0 1\n").unwrap_err().to_string();
        assert!(error.contains("a function (fn=)"), "{error}");
        let error = Output::parse("events: Ir\n").unwrap_err().to_string();
        assert!(error.contains("`totals:`"), "{error}");
    }

    #[test]
    fn the_command_counts_one_function_and_names_its_caches() {
        let cache = |size, line| Geometry { size, ways: 4, line };
        let caches = Caches {
            i1: cache(32_768, 64),
            d1: cache(262_144, 4096),
            ll: cache(1 << 20, 64),
        };
        let mut program = Command::new("/bin/millraced");
        program.arg("--simulate");
        let shown = millrace_process::command_line(&command(caches, Path::new("/x/out"), &program));
        assert!(shown.contains("--D1=262144,4,4096"), "{shown}");
        assert!(shown.contains("--toggle-collect=*counted_round*"), "{shown}");
        assert!(shown.ends_with("/bin/millraced --simulate"), "{shown}");
    }
}
