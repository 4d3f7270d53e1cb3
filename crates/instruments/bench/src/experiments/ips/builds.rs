//! The builds of `millrace` that are measured in turn: this one, and an earlier one if the run has it. Each measurement
//! runs with both; rows of the earlier build are named as such and have no gates, and rows of rates have the ratio.

use std::path::Path;
use std::process::Command;

use super::error::IpsBenchError;
use super::recorder::Recorder;
use crate::gated::Gate;
use crate::gated::recorder::{Case, case};

/// The end of the names of rows of the earlier build.
const EARLIER: &str = ", earlier build";
/// The end of the names of ratios to the earlier build.
const OVER: &str = ", over earlier build";
/// The gate `before`: the share of the rate of the earlier build that a rate must have.
const BEFORE: f64 = 0.95;

/// A build of `millrace`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Build<'a> {
    pub(super) program: &'a Path,
    pub(super) is_earlier: bool,
}

impl Build<'_> {
    /// Returns a recorder of the rows of this build.
    pub(super) fn rows<'r>(self, recorder: &'r mut Recorder<'_>) -> Recorder<'r> {
        recorder.with_suffix(self.is_earlier.then_some(EARLIER))
    }

    /// Returns the command of the program on a core, or on any core with `None`.
    pub(super) fn command(self, core: Option<usize>) -> Command {
        match core {
            Some(core) => {
                let mut command = Command::new("taskset");
                command.args(["-c", &core.to_string()]).arg(self.program);
                command
            }
            None => Command::new(self.program),
        }
    }
}

/// Returns the builds of two programs, in the order of measurement.
pub(super) fn builds<'a>(program: &'a Path, before: Option<&'a Path>) -> Vec<Build<'a>> {
    let this = Build {
        program,
        is_earlier: false,
    };
    let earlier = before.map(|program| Build {
        program,
        is_earlier: true,
    });
    [Some(this), earlier].into_iter().flatten().collect()
}

/// Records the ratios of rates of a round to those of the earlier build.
pub(super) fn over_earlier(
    recorder: &mut Recorder<'_>,
    round: usize,
    rates: impl IntoIterator<Item = Case>,
) -> Result<(), IpsBenchError> {
    for rate in rates {
        let rate_of = |name: &str| recorder.value_of(name, round).map(|value| value.value);
        let this = rate_of(&rate.name);
        let earlier = rate_of(&format!("{}{EARLIER}", rate.name));
        let row = case(
            format!("{}{OVER}", rate.name),
            rate.asked,
            Gate::AtLeast(BEFORE),
            "times",
        );
        match (this, earlier) {
            (Some(this), Some(earlier)) => recorder.value(&row, round, this / earlier)?,
            (None, _) => recorder.missing(&row, "this build was not measured: its row has the reason")?,
            (_, None) => {
                recorder.missing(&row, "the earlier build was not measured: its row has the reason")?;
            }
        }
    }
    Ok(())
}
