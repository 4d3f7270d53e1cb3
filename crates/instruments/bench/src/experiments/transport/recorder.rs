//! The length of a run, and where its values go.

use super::error::{TransportBenchError, file};
use super::record::{Transferred, TransportRecord};
use crate::gated::{Gate, Missing, Value};
use crate::record::{Log, Record};

/// The number of rounds and the size of each measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunLength {
    /// The number of rounds of live rows.
    pub rounds: usize,
    /// The time of a live transfer after its ramp, in seconds at the rate of the link.
    pub seconds: u64,
    /// The number of small files of row T10.
    pub small_files: usize,
    /// The number of kills of row T11.
    pub kills: u32,
    /// True if the run is shorter than the gates ask for.
    pub quick: bool,
}

impl RunLength {
    /// The run length of the gates, as far as a machine carries them live.
    pub const FULL: RunLength = RunLength {
        rounds: 5,
        seconds: 15,
        small_files: 100_000,
        kills: 200,
        quick: false,
    };
    /// A run that shows the shape of the result.
    pub const QUICK: RunLength = RunLength {
        rounds: 1,
        seconds: 5,
        small_files: 5_000,
        kills: 10,
        quick: true,
    };
}

/// The output of the experiment.
pub struct Recorder<'a> {
    /// The run length.
    pub length: RunLength,
    /// The log for the records.
    pub log: &'a mut Log,
    /// The function that prints progress.
    pub progress: &'a mut dyn FnMut(&str),
}

/// A row, whose values are measured in one round or more.
#[derive(Debug, Clone)]
pub(super) struct Case {
    pub(super) name: String,
    pub(super) asked: String,
    pub(super) gate: Gate,
    pub(super) target: Option<f64>,
    pub(super) unit: &'static str,
}

/// Returns a row without a target.
pub(super) fn case(
    name: impl Into<String>,
    asked: impl Into<String>,
    gate: Gate,
    unit: &'static str,
) -> Case {
    Case {
        name: name.into(),
        asked: asked.into(),
        gate,
        target: None,
        unit,
    }
}

impl Case {
    /// Returns the row with a target.
    pub(super) fn target(self, target: f64) -> Case {
        self.with_target(Some(target))
    }

    /// Returns the row with a target, if there is one.
    pub(super) fn with_target(self, target: Option<f64>) -> Case {
        Case { target, ..self }
    }
}

impl Recorder<'_> {
    /// Appends a record.
    pub(super) fn log(&mut self, record: Record) -> Result<(), TransportBenchError> {
        let path = self.log.path().to_owned();
        self.log.add(record).map_err(file(&path))
    }

    fn add(&mut self, record: TransportRecord) -> Result<(), TransportBenchError> {
        self.log(Record::Transport(Box::new(record)))
    }

    /// Records and prints the value of a row.
    pub(super) fn value(&mut self, case: &Case, round: usize, value: f64) -> Result<(), TransportBenchError> {
        let Case {
            name, asked, unit, ..
        } = case;
        (self.progress)(&format!("  {name} ({asked}): {value:.4} {unit}"));
        self.add(TransportRecord::Value(Value {
            case: name.clone(),
            round,
            asked: asked.clone(),
            gate: case.gate,
            target: case.target,
            value,
            unit: (*unit).to_owned(),
        }))
    }

    /// Records and prints a transfer.
    pub(super) fn transferred(&mut self, transfer: &Transferred) -> Result<(), TransportBenchError> {
        let each = transfer.goodput_bps / 1e6;
        let (system, receivers) = (&transfer.system, transfer.receivers);
        (self.progress)(&format!(
            "    {system} to {receivers}, RTT {} ms, {}: {each:.2} Mbit/s",
            transfer.rtt_ms, transfer.loss
        ));
        self.add(TransportRecord::Transferred(transfer.clone()))
    }

    /// Records and prints the reason why a row could not be measured.
    pub(super) fn missing(
        &mut self,
        name: &str,
        asked: &str,
        reason: &str,
    ) -> Result<(), TransportBenchError> {
        (self.progress)(&format!("  {name} ({asked}): not measured: {reason}"));
        self.add(TransportRecord::Missing(Missing {
            case: name.to_owned(),
            asked: asked.to_owned(),
            reason: reason.to_owned(),
        }))
    }
}
