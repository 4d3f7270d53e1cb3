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
use quantities::QOS;
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
    for part in [rates::run, wait::run] {
        match part(run) {
            Ok(()) => {}
            Err(RoundError::Peer(error)) => run.failed(QOS, Millrace::Default.name(), &error)?,
            Err(RoundError::Run(error)) => return Err(error),
        }
    }
    Ok(())
}
