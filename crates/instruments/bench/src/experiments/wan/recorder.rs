//! The length of a run, and where its values go.

use std::time::Duration;

use super::error::{WanBenchError, file};
use super::record::WanRecord;
use crate::gated::{Gate, Missing, Value};
use crate::record::{Log, Record};

/// The number of rounds and the size of each measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunLength {
    /// The number of rounds of live measurements and of rates of one core.
    pub rounds: usize,
    /// The time for which frames are sent in each live run.
    pub window: Duration,
    /// The number of frames from which a distribution is judged.
    pub frames: u64,
    /// The number of frames of a measurement of one core.
    pub core_frames: u64,
    /// The duration of 10 Gbit/s x 200 ms, in seconds of virtual time.
    pub virtual_s: u64,
    /// The number of changes under traffic.
    pub changes: u32,
    /// True if the run is shorter than the gates ask for.
    pub quick: bool,
}

impl RunLength {
    /// The run length of the gates.
    pub const FULL: RunLength = RunLength {
        rounds: 5,
        window: Duration::from_secs(2),
        frames: 1_000_000,
        core_frames: 16_000_000,
        virtual_s: 60,
        changes: 1000,
        quick: false,
    };
    /// A run of about three minutes that shows the shape of the result.
    pub const QUICK: RunLength = RunLength {
        rounds: 1,
        window: Duration::from_millis(500),
        frames: 200_000,
        core_frames: 2_000_000,
        virtual_s: 3,
        changes: 1000,
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
    pub(super) unit: &'static str,
}

/// Returns a row.
pub(super) fn case(name: &str, asked: &str, gate: Gate, unit: &'static str) -> Case {
    Case {
        name: name.to_owned(),
        asked: asked.to_owned(),
        gate,
        unit,
    }
}

impl Recorder<'_> {
    /// Appends a record.
    pub(super) fn add(&mut self, record: WanRecord) -> Result<(), WanBenchError> {
        let path = self.log.path().to_owned();
        self.log.add(Record::Wan(Box::new(record))).map_err(file(&path))
    }

    /// Records and prints the value of a row.
    pub(super) fn value(&mut self, case: &Case, round: usize, value: f64) -> Result<(), WanBenchError> {
        let Case {
            name, asked, unit, ..
        } = case;
        (self.progress)(&format!("  {name} ({asked}): {value:.4} {unit}"));
        self.add(WanRecord::Value(Value {
            case: name.clone(),
            round,
            asked: asked.clone(),
            gate: case.gate,
            target: None,
            value,
            unit: (*unit).to_owned(),
        }))
    }

    /// Records and prints the reason why a row could not be measured.
    pub(super) fn missing(&mut self, name: &str, asked: &str, reason: &str) -> Result<(), WanBenchError> {
        (self.progress)(&format!("  {name} ({asked}): not measured: {reason}"));
        self.add(WanRecord::Missing(Missing {
            case: name.to_owned(),
            asked: asked.to_owned(),
            reason: reason.to_owned(),
        }))
    }
}
