//! Lookups of DPDK's own structures by `dpdk-test`, on the same machine after ours, for comparison.

use std::process::Command;

use millrace_process::is_installed;

use super::recorder::Recorder;
use crate::gated::Gate;
use crate::gated::program::{ProgramError, said};
use crate::gated::recorder::case;

/// The time after which a test is ended, in seconds. On busy machines the IPv6 tests take minutes.
const LIMIT: &str = "300";

/// Tests of `dpdk-test`, and the beginning of the line with the cycles of a lookup.
const TESTS: [(&str, &str); 4] = [
    ("lpm_perf_autotest", "BULK LPM Lookup"),
    ("lpm6_perf_autotest", "BULK LPM Lookup"),
    ("fib_perf_autotest", "BULK FIB Lookup"),
    ("fib6_perf_autotest", "BULK FIB Lookup"),
];

/// Records the cycles of a lookup that each test prints.
///
/// # Errors
/// SIGINT, or a file that cannot be written.
pub(super) fn measure(recorder: &mut Recorder<'_>) -> Result<(), ProgramError> {
    for (test, line) in TESTS {
        let row = case(
            format!("R1 dpdk-test {test}"),
            "its own tables and addresses",
            Gate::None,
            "cycles",
        );
        if !is_installed("dpdk-test") {
            recorder.missing(
                &row,
                "dpdk-test is not installed. To fix it: apt-get install dpdk-dev",
            )?;
            continue;
        }
        let mut command = Command::new("timeout");
        command.env("DPDK_TEST", test).args([LIMIT, "dpdk-test"]);
        command.args(["--no-huge", "-m", "1024", "--no-pci", "--no-shconf", "-l", "0"]);
        match said(&mut command)? {
            Err(reason) => recorder.missing(&row, &reason)?,
            Ok(text) => match cycles(&text, line) {
                Some(cycles) => recorder.value(&row, 0, cycles)?,
                None => recorder.missing(&row, &format!("no line \"{line}\" in its output"))?,
            },
        }
    }
    Ok(())
}

/// Returns the number before "cycles" in the line that begins so.
fn cycles(text: &str, line: &str) -> Option<f64> {
    let found = text
        .lines()
        .find(|candidate| candidate.trim_start().starts_with(line))?;
    let before = found.split("cycles").next()?;
    before.split_whitespace().last()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cycles_of_a_lookup_are_read_from_the_output_of_dpdk_test() {
        let text = "RTE>>lpm_perf_autotest\nAverage LPM Lookup: 13.2 cycles (fails = 11.1%)\nBULK LPM Lookup: 9.6 cycles (fails = 11.1%)\n";
        assert_eq!(cycles(text, "BULK LPM Lookup"), Some(9.6));
        assert_eq!(cycles(text, "BULK FIB Lookup"), None);
    }
}
