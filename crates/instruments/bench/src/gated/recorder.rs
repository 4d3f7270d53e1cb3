//! Records rows with gates: writes each value to the log of the run, and prints it as progress.

use std::io::{self, Write as _};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use super::{Gate, Item, Missing, Row, Value, rows, text};
use crate::file_error::{FileError, file};
use crate::machine::Machine;
use crate::record::{Log, Record};

/// The records of an experiment whose rows have gates.
pub trait GatedRecord: From<Value> + From<Missing> + Into<Record> + Sized {
    /// The name of the experiment, and of its files.
    const NAME: &'static str;

    /// The error of the experiment.
    type Error: From<FileError>;

    /// Returns the record of the experiment that a record of a run holds.
    fn of(record: &Record) -> Option<&Self>;

    /// Returns the value or the missing row that the record holds.
    fn item(&self) -> Option<Item<'_>>;

    /// Orders rows, which are in the order of measurement.
    fn sort(_rows: &mut [Row]) {}
}

/// Makes an enum with variants `Value` and `Missing` the records of an experiment with a name: a variant of `Record` holds it.
/// Further items belong to its [`GatedRecord`].
macro_rules! gated_record {
    ($record:ident, $variant:ident, $name:literal, $error:ty $(, $items:item)*) => {
        impl From<$crate::gated::Value> for $record {
            fn from(value: $crate::gated::Value) -> Self {
                $record::Value(value)
            }
        }

        impl From<$crate::gated::Missing> for $record {
            fn from(missing: $crate::gated::Missing) -> Self {
                $record::Missing(missing)
            }
        }

        impl From<$record> for $crate::record::Record {
            fn from(record: $record) -> Self {
                $crate::record::Record::$variant(Box::new(record))
            }
        }

        impl $crate::gated::recorder::GatedRecord for $record {
            const NAME: &'static str = $name;

            type Error = $error;

            fn of(record: &$crate::record::Record) -> Option<&Self> {
                match record {
                    $crate::record::Record::$variant(record) => Some(record),
                    _ => None,
                }
            }

            fn item(&self) -> Option<$crate::gated::Item<'_>> {
                if let $record::Value(value) = self {
                    return Some($crate::gated::Item::Value(value));
                }
                if let $record::Missing(missing) = self {
                    return Some($crate::gated::Item::Missing(missing));
                }
                None
            }

            $($items)*
        }
    };
}
pub(crate) use gated_record;

/// The definition of a row; its values are measured in one round or more.
#[derive(Debug, Clone)]
pub struct Case {
    /// The gate's identifier in docs/gates.md, and the quantity.
    pub name: String,
    /// The setting.
    pub asked: String,
    pub gate: Gate,
    /// The target beyond the gate, if there is one.
    pub target: Option<f64>,
    /// The unit of the values.
    pub unit: &'static str,
}

/// Returns a row without a target.
pub fn case(name: impl Into<String>, asked: impl Into<String>, gate: Gate, unit: &'static str) -> Case {
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
    #[must_use]
    pub fn target(self, target: f64) -> Case {
        self.with_target(Some(target))
    }

    /// Returns the row with a target, if there is one.
    #[must_use]
    pub fn with_target(self, target: Option<f64>) -> Case {
        Case { target, ..self }
    }
}

/// The length of a run, its log and its progress. `L` is the length of a run, `R` the records of the experiment.
pub struct Recorder<'a, L, R> {
    /// The length of the run.
    pub length: L,
    /// The function that prints progress.
    pub progress: &'a mut dyn FnMut(&str),
    log: &'a mut Log,
    /// The end of the names of rows of another build, which have no gates.
    suffix: Option<&'static str>,
    records: std::marker::PhantomData<R>,
}

impl<'a, L, R: GatedRecord> Recorder<'a, L, R> {
    /// Returns a recorder that appends to `log`.
    pub fn new(length: L, log: &'a mut Log, progress: &'a mut dyn FnMut(&str)) -> Self {
        Recorder {
            length,
            progress,
            log,
            suffix: None,
            records: std::marker::PhantomData,
        }
    }

    /// Returns a recorder of the same log. With a suffix, its rows are named by it, and have no gates and no targets: rows of
    /// another build, which are for comparison.
    pub fn with_suffix(&mut self, suffix: Option<&'static str>) -> Recorder<'_, L, R>
    where
        L: Copy,
    {
        Recorder {
            length: self.length,
            progress: &mut *self.progress,
            log: &mut *self.log,
            suffix,
            records: std::marker::PhantomData,
        }
    }

    /// Returns the row as it is recorded.
    fn named(&self, case: &Case) -> Case {
        match self.suffix {
            None => case.clone(),
            Some(suffix) => Case {
                name: format!("{}{suffix}", case.name),
                gate: Gate::None,
                target: None,
                ..case.clone()
            },
        }
    }

    /// Records the run, its machine and its command, which come first in the file. `quick` says that the run is shorter than
    /// the gates ask for.
    ///
    /// # Errors
    /// The log cannot be written.
    pub fn begin(&mut self, quick: bool) -> Result<(), R::Error> {
        let started = SystemTime::now().duration_since(UNIX_EPOCH);
        self.log(Record::Run {
            experiment: R::NAME.to_owned(),
            started: started.map_or(0, |since| since.as_secs()),
            quick,
            machine: Box::new(Machine::describe(0)),
            command: std::env::args().collect::<Vec<_>>().join(" "),
        })
    }

    /// Appends a record of any kind.
    ///
    /// # Errors
    /// The log cannot be written.
    pub fn log(&mut self, record: Record) -> Result<(), R::Error> {
        let path = self.log.path().to_owned();
        Ok(self.log.add(record).map_err(file(&path))?)
    }

    /// Appends a record of the experiment.
    ///
    /// # Errors
    /// The log cannot be written.
    pub fn add(&mut self, record: R) -> Result<(), R::Error> {
        self.log(record.into())
    }

    /// Records and prints the value of a row. A value that is not finite, such as the ratio to a rate of 0, is recorded as
    /// missing: JSON has no such numbers.
    ///
    /// # Errors
    /// The log cannot be written.
    pub fn value(&mut self, case: &Case, round: usize, value: f64) -> Result<(), R::Error> {
        if !value.is_finite() {
            return self.missing(
                case,
                &format!("the value is {value}: a part of it was not measured"),
            );
        }
        let Case {
            name,
            asked,
            gate,
            target,
            unit,
        } = self.named(case);
        (self.progress)(&format!("  {name} ({asked}): {value:.4} {unit}"));
        self.add(R::from(Value {
            case: name,
            round,
            asked,
            gate,
            target,
            value,
            unit: unit.to_owned(),
        }))
    }

    /// Records and prints the reason why a row could not be measured.
    ///
    /// # Errors
    /// The log cannot be written.
    pub fn missing(&mut self, case: &Case, reason: &str) -> Result<(), R::Error> {
        let Case {
            name,
            asked,
            gate,
            target,
            unit,
        } = self.named(case);
        (self.progress)(&format!("  {name} ({asked}): not measured: {reason}"));
        self.add(R::from(Missing {
            case: name,
            asked,
            gate,
            target,
            unit: unit.to_owned(),
            reason: reason.to_owned(),
        }))
    }

    /// Returns the number of records so far.
    pub fn recorded(&self) -> usize {
        self.log.records().len()
    }

    /// Returns the value of a row in a round.
    pub fn value_of(&self, case: &str, round: usize) -> Option<&Value> {
        self.log
            .records()
            .iter()
            .find_map(|record| match R::of(record)?.item()? {
                Item::Value(value) if value.case == case && value.round == round => Some(value),
                _ => None,
            })
    }

    /// Records that rows could not be measured in some round: the rows of the records from `first` on with fewer values
    /// than `rounds`. A row that was recorded as missing keeps its reason.
    ///
    /// # Errors
    /// The log cannot be written.
    pub fn incomplete_from(&mut self, first: usize, rounds: usize, reason: &str) -> Result<(), R::Error> {
        let records = self.log.records().get(first..).unwrap_or_default();
        let incomplete: Vec<Missing> = rows_of::<R>(records)
            .iter()
            .filter(|row| row.rounds < rounds && row.reason.is_none())
            .filter_map(|row| {
                records.iter().find_map(|record| match R::of(record)?.item()? {
                    Item::Value(value) if value.case == row.case => Some(value.missing(reason)),
                    _ => None,
                })
            })
            .collect();
        incomplete.into_iter().try_for_each(|row| self.add(R::from(row)))
    }

    /// Records and prints the reason why none of these rows could be measured.
    ///
    /// # Errors
    /// The log cannot be written.
    pub fn all_missing(
        &mut self,
        cases: impl IntoIterator<Item = Case>,
        reason: &str,
    ) -> Result<(), R::Error> {
        cases.into_iter().try_for_each(|case| self.missing(&case, reason))
    }
}

/// Returns a row that stands for several rows that could not be measured. It has no gate.
pub fn part(name: impl Into<String>, asked: impl Into<String>) -> Case {
    case(name, asked, Gate::None, "")
}

/// Returns a row that stands for the rows that a failure left out. It has a gate, so that it counts among the gates that
/// were not measured.
pub fn left_out(name: impl Into<String>, asked: impl Into<String>) -> Case {
    case(name, asked, Gate::Exactly(0.0), "failures")
}

/// Returns the rows of an experiment.
pub fn rows_of<R: GatedRecord>(records: &[Record]) -> Vec<Row> {
    let mut rows = rows(records.iter().filter_map(|record| R::of(record)?.item()));
    R::sort(&mut rows);
    rows
}

/// Runs an experiment with a recorder, writes its records to `NAME.jsonl` in a folder and its rows to `NAME.json`, and prints
/// the rows as JSON or as a table. Progress goes to standard error.
///
/// # Errors
/// The error of the experiment, whose rows so far are written and printed, too; or a file, or standard output, cannot be written.
pub fn run<L, R: GatedRecord>(
    length: L,
    folder: &Path,
    json: bool,
    measure: impl FnOnce(&mut Recorder<'_, L, R>) -> Result<(), R::Error>,
) -> Result<(), R::Error> {
    std::fs::create_dir_all(folder).map_err(file(folder))?;
    let path = folder.join(format!("{}.jsonl", R::NAME));
    let mut log = Log::create(&path).map_err(file(&path))?;
    let progress = &mut |text: &str| eprintln!("{text}");
    let outcome = measure(&mut Recorder::new(length, &mut log, progress));
    let rows = rows_of::<R>(log.records());
    let rows_as_json = format!("{:#}\n", serde_json::json!(rows));
    let path = folder.join(format!("{}.json", R::NAME));
    std::fs::write(&path, &rows_as_json).map_err(file(&path))?;
    let shown = if json { rows_as_json } else { text(&rows) };
    let printed = io::stdout().write_all(shown.as_bytes());
    printed.map_err(file(Path::new("standard output")))?;
    outcome
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments::ips::{IpsRecord, Recorder, RunLength};

    #[test]
    fn a_value_that_is_no_number_is_a_missing_round() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ips.jsonl");
        let mut log = Log::create(&path).unwrap();
        let mut progress = |_: &str| {};
        let length = RunLength {
            rounds: 2,
            seconds: 1.0,
            quick: true,
        };
        let mut recorder = Recorder::new(length, &mut log, &mut progress);
        let row = case("ratio", "", Gate::AtLeast(1.0), "");
        recorder.value(&row, 0, 2.0).unwrap();
        recorder.value(&row, 1, f64::INFINITY).unwrap();
        assert_eq!(crate::record::read(&path).unwrap(), log.records());
        let row = &rows_of::<IpsRecord>(log.records())[0];
        assert_eq!((row.reached, row.rounds, row.met), (Some(2.0), 1, Some(false)));
        assert!(
            row.reason.as_deref().is_some_and(|reason| reason.contains("inf")),
            "{row:?}"
        );
    }
}
