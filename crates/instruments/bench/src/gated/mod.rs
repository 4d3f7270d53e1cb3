//! Rows with gates: asked, gate, target, reached, met. Rows are computed from the recorded values alone.

pub(crate) mod program;
pub mod recorder;
pub(crate) mod section;

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use millrace_report::stats::Summary;

/// The gate of a row.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Gate {
    /// The median of all rounds is at most this.
    AtMost(f64),
    /// The median of all rounds is at least this.
    AtLeast(f64),
    /// The value of every round equals this.
    Exactly(f64),
    /// The row has no gate: it is for comparison.
    #[default]
    None,
}

/// A measured value of a row.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Value {
    /// The row: the gate's identifier in docs/gates.md and the quantity, `W1 64 B, 1,000 pps, 10 ms: error, p50`.
    pub case: String,
    /// The number of the round, from 0.
    pub round: usize,
    /// The setting.
    pub asked: String,
    pub gate: Gate,
    /// The target beyond the gate, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<f64>,
    /// The value in the unit `unit`.
    pub value: f64,
    pub unit: String,
}

impl Value {
    /// Returns the record of the same row in a round in which it could not be measured.
    fn missing(&self, reason: &str) -> Missing {
        Missing {
            case: self.case.clone(),
            asked: self.asked.clone(),
            gate: self.gate,
            target: self.target,
            unit: self.unit.clone(),
            reason: reason.to_owned(),
        }
    }
}

/// A row that could not be measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Missing {
    /// The row, under the same name as in its values.
    pub case: String,
    /// The setting.
    pub asked: String,
    #[serde(default, skip_serializing_if = "Gate::is_none")]
    pub gate: Gate,
    /// The target beyond the gate, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<f64>,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub unit: String,
    pub reason: String,
}

/// A row of the result, as `wan.json` and `transport.json` have it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Row {
    /// The gate's identifier in docs/gates.md and the quantity: `W1 64 B, 1,000 pps, 10 ms: error, p50`.
    pub case: String,
    /// The setting.
    pub asked: String,
    /// The gate in words; empty without one.
    pub gate: String,
    /// The target beyond the gate in words.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub target: String,
    /// The median of all rounds. With [`Gate::Exactly`], the value that differs most from the gate. `None` if
    /// not measured.
    pub reached: Option<f64>,
    pub unit: String,
    /// True if the gate is kept; `None` without a gate or a value.
    pub met: Option<bool>,
    /// The number of rounds.
    pub rounds: usize,
    /// The reason for a missing value.
    pub reason: Option<String>,
}

/// A record from which rows are made.
#[derive(Debug, Clone, Copy)]
pub enum Item<'a> {
    /// A value of a row.
    Value(&'a Value),
    /// A row that could not be measured.
    Missing(&'a Missing),
}

impl Item<'_> {
    fn case(&self) -> &str {
        match self {
            Item::Value(value) => &value.case,
            Item::Missing(missing) => &missing.case,
        }
    }
}

/// Returns the rows in the order of measurement.
#[allow(
    clippy::needless_pass_by_value,
    reason = "an iterator over references is as cheap as one"
)]
pub fn rows<'a>(items: impl Iterator<Item = Item<'a>> + Clone) -> Vec<Row> {
    let mut cases: Vec<String> = Vec::new();
    for item in items.clone() {
        if !cases.iter().any(|case| case == item.case()) {
            cases.push(item.case().to_owned());
        }
    }
    let of = |case: &String| row(items.clone().filter(|item| item.case() == case));
    cases.iter().filter_map(of).collect()
}

/// Returns the row of the records of one case; `None` without records. The gate of a row is not met if the
/// row could not be measured in some round.
fn row<'a>(items: impl Iterator<Item = Item<'a>>) -> Option<Row> {
    let mut row: Option<Row> = None;
    let mut reason = None;
    let (mut gate, mut target, mut values) = (Gate::None, None, Vec::new());
    for item in items {
        let (case, asked, unit) = match item {
            Item::Value(value) => {
                (gate, target) = (value.gate, value.target);
                values.push(value.value);
                (&value.case, &value.asked, value.unit.as_str())
            }
            Item::Missing(missing) => {
                if values.is_empty() {
                    (gate, target) = (missing.gate, missing.target);
                }
                reason = Some(missing.reason.clone());
                (&missing.case, &missing.asked, missing.unit.as_str())
            }
        };
        let row = row.get_or_insert_with(|| Row {
            case: case.clone(),
            asked: asked.clone(),
            gate: String::new(),
            target: String::new(),
            reached: None,
            unit: String::new(),
            met: None,
            rounds: 0,
            reason: None,
        });
        if row.unit.is_empty() {
            row.unit = unit.to_owned();
        }
    }
    let mut row = row?;
    row.rounds = values.len();
    row.gate = gate.words(&row.unit);
    row.target = target.map_or_else(String::new, |target| {
        format!("{} {}", short(target), row.unit).trim_end().to_owned()
    });
    row.reached = gate.aggregate(&values);
    row.met = row.reached.and_then(|reached| gate.met(reached));
    row.reason = reason;
    if row.reason.is_some() && row.met.is_some() {
        row.met = Some(false);
    }
    Some(row)
}

impl Gate {
    #[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
    fn is_none(&self) -> bool {
        *self == Gate::None
    }

    /// Returns the value that the gate applies to.
    fn aggregate(self, values: &[f64]) -> Option<f64> {
        match self {
            Gate::Exactly(wanted) => values
                .iter()
                .copied()
                .max_by(|a, b| (a - wanted).abs().total_cmp(&(b - wanted).abs())),
            _ => Some(Summary::of(values)?.median),
        }
    }

    /// Returns true if a value keeps the gate; `None` without a gate.
    pub fn met(self, value: f64) -> Option<bool> {
        match self {
            Gate::AtMost(most) => Some(value <= most),
            Gate::AtLeast(least) => Some(value >= least),
            Gate::Exactly(wanted) => Some(value == wanted),
            Gate::None => None,
        }
    }

    /// Returns the gate in words: `at most 20 us`.
    fn words(self, unit: &str) -> String {
        let words = match self {
            Gate::AtMost(most) => format!("at most {} {unit}", short(most)),
            Gate::AtLeast(least) => format!("at least {} {unit}", short(least)),
            Gate::Exactly(wanted) => format!("{} {unit}", short(wanted)),
            Gate::None => String::new(),
        };
        words.trim_end().to_owned()
    }
}

/// Returns a number with about four significant digits.
fn short(value: f64) -> String {
    if value == value.trunc() || value.abs() >= 1000.0 {
        format!("{value:.0}")
    } else if value.abs() >= 1.0 {
        format!("{value:.2}")
    } else {
        format!("{value:.4}")
    }
}

/// Returns the rows as a table.
pub fn text(rows: &[Row]) -> String {
    let width = rows.iter().map(|row| row.case.chars().count()).max().unwrap_or(4);
    let asked = rows
        .iter()
        .map(|row| row.asked.chars().count())
        .max()
        .unwrap_or(5);
    let has_targets = rows.iter().any(|row| !row.target.is_empty());
    let target = |text: &str| match has_targets {
        true => format!(" {text:<14}"),
        false => String::new(),
    };
    let mut out = format!(
        "{:<width$}  {:<asked$} {:<26}{} {:>14}  met\n",
        "case",
        "asked",
        "gate",
        target("target"),
        "reached"
    );
    for row in rows {
        let reached = row.reached.map_or_else(
            || "-".to_owned(),
            |value| format!("{} {}", short(value), row.unit),
        );
        let met = match row.met {
            Some(true) => "met",
            Some(false) => "NOT MET",
            None if row.reached.is_none() => "not measured",
            None => "",
        };
        let reason = row.reason.as_deref().unwrap_or_default();
        let reason = reason.lines().next().unwrap_or_default();
        let line = format!(
            "{:<width$}  {:<asked$} {:<26}{} {:>14}  {met}  {reason}",
            row.case,
            row.asked,
            row.gate,
            target(&row.target),
            reached.trim_end(),
        );
        let _ = writeln!(out, "{}", line.trim_end());
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(case: &str, gate: Gate, value: f64) -> Value {
        Value {
            case: case.to_owned(),
            round: 0,
            asked: "10 ms".to_owned(),
            gate,
            target: None,
            value,
            unit: "us".to_owned(),
        }
    }

    #[test]
    fn a_row_is_the_median_of_its_rounds_and_an_exact_gate_is_judged_by_the_worst_one() {
        let mut values: Vec<Value> = [9.0, 21.0, 30.0]
            .map(|reached| value("p50", Gate::AtMost(20.0), reached))
            .into();
        values.extend([0.0, 3.0, 0.0].map(|early| value("early", Gate::Exactly(0.0), early)));
        let rows = rows(values.iter().map(Item::Value));
        assert_eq!(
            (rows[0].reached, rows[0].met, rows[0].rounds),
            (Some(21.0), Some(false), 3)
        );
        assert_eq!((rows[1].reached, rows[1].met), (Some(3.0), Some(false)));
        assert_eq!(
            (rows[0].gate.as_str(), rows[1].gate.as_str()),
            ("at most 20 us", "0 us")
        );
    }

    #[test]
    fn a_row_that_failed_in_one_round_is_not_met_and_names_the_reason() {
        let missing = Missing {
            case: "p50".to_owned(),
            asked: "10 ms".to_owned(),
            gate: Gate::AtMost(20.0),
            target: Some(5.0),
            unit: "us".to_owned(),
            reason: "the emulator has ended".to_owned(),
        };
        let value = value("p50", Gate::AtMost(20.0), 1.0);
        let items = [Item::Value(&value), Item::Missing(&missing)];
        let row = &rows(items.into_iter())[0];
        assert_eq!((row.reached, row.met), (Some(1.0), Some(false)));
        assert!(text(&rows(items.into_iter())).contains("NOT MET  the emulator has ended"));
        let alone = rows(items[1..].iter().copied());
        assert_eq!((alone[0].reached, alone[0].met), (None, None));
        assert_eq!(
            (alone[0].gate.as_str(), alone[0].target.as_str()),
            ("at most 20 us", "5 us")
        );
        assert!(text(&alone).contains("not measured  the emulator has ended"));
    }

    #[test]
    fn the_record_of_a_missing_row_without_a_gate_is_read() {
        let text = r#"{"case":"p50","asked":"10 ms","reason":"the emulator has ended"}"#;
        let missing: Missing = serde_json::from_str(text).unwrap();
        assert_eq!(serde_json::to_string(&missing).unwrap(), text);
        let row = &rows([Item::Missing(&missing)].into_iter())[0];
        assert_eq!((row.gate.as_str(), row.reached), ("", None));
    }
}
