//! The experiment `qos`: the accuracy of meters and shapers, and the latency of an urgent packet while other packets
//! overload the port. Only Millrace is measured: Open vSwitch with DPDK polices and does not schedule.
//!
//! Packets are replayed at full rate from capture files, as in `forward`, with one worker, and with two that share the
//! meter or the port. A rate is the difference of two readings of a counter, divided by the time between the time
//! stamps that the daemon itself took, which excludes the latency of the REST API. The latency is measured with a
//! generator over memif, as in `latency`.

pub(crate) mod quantities;
mod rates;
mod record;
pub(crate) mod section;
mod wait;

use std::time::Duration;

use crate::peer::Peer;
use crate::peer::millrace::Millrace;
use crate::run::{RoundError, Run, RunError};
use quantities::{QOS, of_rates};
pub use record::{Mechanism, RateResult};

/// The expected duration of the experiment.
pub const ESTIMATE: Duration = Duration::from_secs(420);

/// Measures the rates, then the latency.
///
/// # Errors
/// [`RunError`].
pub fn run(run: &mut Run<'_>) -> Result<(), RunError> {
    run.progress(&format!(
        "{QOS}: rates of meters and shapers, and waiting behind an overflowing queue"
    ));
    let parts: [(Part, _); 2] = [(rates::run, true), (wait::run, false)];
    for (part, rates) in parts {
        match part(run) {
            Ok(()) => {}
            Err(RoundError::Peer(error)) => left_out(run, rates, &error.to_string())?,
            Err(RoundError::Run(error)) => return Err(error),
        }
    }
    Ok(())
}

/// A part of the experiment.
type Part = fn(&mut Run<'_>) -> Result<(), RoundError>;

/// Records that a part failed: its quantities that have no value could not be measured.
fn left_out(run: &mut Run<'_>, rates: bool, reason: &str) -> Result<(), RunError> {
    let system = Millrace::Default.name();
    for quantity in of_rates(rates) {
        if quantity.values(run.records(), system).is_empty()
            && quantity.failure(run.records(), system).is_none()
        {
            run.not_measured(system, quantity, reason)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figure;
    use crate::run::RunLength;

    #[test]
    fn a_part_that_fails_leaves_the_verdicts_of_what_was_measured() {
        if std::thread::available_parallelism().map_or(1, usize::from) < 2 {
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let mut progress = |_: &str| {};
        let daemon = folder.path().join("millraced");
        let mut run = Run::new(RunLength::QUICK, daemon, 0, folder.path(), &mut progress).unwrap();
        let system = Millrace::Default.name();
        for (name, value) in [
            ("meter-error", 0.5),
            ("shaper-error", 0.5),
            ("priority-p99", 100.0),
        ] {
            run.figure(system, 0, figure::find(QOS, name).unwrap(), value)
                .unwrap();
        }
        left_out(&mut run, false, "the generator has ended").unwrap();
        let verdict = |name| figure::find(QOS, name).unwrap().verdict(run.records(), system);
        let verdicts = ["meter-error", "shaper-error", "priority-p99", "priority-lost"].map(verdict);
        assert_eq!(verdicts, [Some(true), Some(true), Some(true), None]);
        let lost = figure::find(QOS, "priority-lost").unwrap();
        assert_eq!(
            lost.failure(run.records(), system),
            Some("the generator has ended")
        );
    }
}
