//! Rows in virtual time: the cases of the simulator.

use millrace_transport_simulator::rows::{self, Part, Size};

use super::error::TransportBenchError;
use super::recorder::Recorder;
use crate::gated::Gate;
use crate::gated::recorder::Case;
use crate::gated::recorder::left_out;

/// The first word of the settings of these rows.
const ASKED: &str = "virtual";

/// Measures the parts of a row, if it has any in virtual time.
pub(super) fn measure(recorder: &mut Recorder<'_>, row: u8) -> Result<(), TransportBenchError> {
    let size = if recorder.length.quick {
        Size::Short
    } else {
        Size::Full
    };
    for part in Part::ALL.into_iter().filter(|part| part.row() == row) {
        (recorder.progress)(&format!("T{row}, virtual time"));
        let (mut outcome, mut cases) = (Ok(()), Vec::new());
        let measured = part.run(size, &mut |measured| {
            if outcome.is_ok() {
                let case = Case {
                    name: measured.case,
                    asked: format!("{ASKED}: {}", measured.conditions),
                    gate: match measured.gate {
                        rows::Gate::AtLeast(least) => Gate::AtLeast(least),
                        rows::Gate::AtMost(most) => Gate::AtMost(most),
                    },
                    target: measured.target,
                    unit: measured.unit,
                };
                outcome = recorder.value(&case, 0, measured.reached);
                cases.push(case);
            }
        });
        outcome?;
        if let Err(error) = measured {
            cases.push(left_out(format!("T{row} {part:?}"), ASKED));
            recorder.all_missing(cases, &error.to_string())?;
        }
        millrace_process::pause(std::time::Duration::ZERO)?;
    }
    Ok(())
}
