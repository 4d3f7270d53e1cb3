//! The table of a run as text for a terminal.

use std::fmt::Write as _;

use super::{OURS, Row, Table, WRONG_PORT, outcomes};
use crate::case;
use crate::record::Record;

impl Table {
    /// Returns the table as text for a terminal.
    pub fn text(&self, records: &[Record]) -> String {
        let mut out = String::new();
        // Writing to a string does not fail.
        let _ = writeln!(
            out,
            "{:<15} {:<15} {:>9} {:>7} {:>8} {:>10} {:>8}  note",
            "case", "system", "Mpps", "spread", "to OVS", "to testpmd", "to self"
        );
        let mut last = "";
        for row in self.rows.iter().filter(|row| row.quantity.is_none()) {
            let ratio =
                |ratio: Option<f64>| ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}"));
            let _ = writeln!(
                out,
                "{:<15} {:<15} {:>9} {:>7} {:>8} {:>10} {:>8}  {}",
                if row.case == last { "" } else { row.case },
                row.system,
                row.mpps
                    .map_or_else(|| "-".to_owned(), |mpps| format!("{mpps:.3}")),
                row.spread_percent
                    .map_or_else(String::new, |spread| format!("±{spread:.0} %")),
                ratio(row.ratio_ovs),
                ratio(row.ratio_testpmd),
                ratio(row.ratio_self),
                row.note(),
            );
            last = row.case;
        }
        self.figures_text(&mut out);
        self.targets_text(records, &mut out);
        out
    }

    /// Appends the rows of quantities.
    fn figures_text(&self, out: &mut String) {
        let mut last = ("", "");
        for row in &self.rows {
            let Some(name) = row.quantity else { continue };
            if last.0.is_empty() {
                let _ = writeln!(
                    out,
                    "\n{:<15} {:<12} {:<15} {:>14} {:>7}  note",
                    "case", "quantity", "system", "value", "spread"
                );
            }
            let value = row
                .value
                .map(|value| format!("{} {}", rounded(value), row.unit.unwrap_or_default()));
            let _ = writeln!(
                out,
                "{:<15} {:<12} {:<15} {:>14} {:>7}  {}",
                if row.case == last.0 { "" } else { row.case },
                if (row.case, name) == last { "" } else { name },
                row.system,
                value.as_deref().unwrap_or("-").trim_end(),
                row.spread_percent
                    .map_or_else(String::new, |spread| format!("±{spread:.0} %")),
                row.note(),
            );
            last = (row.case, name);
        }
    }

    /// Appends the targets of Millrace with their verdicts.
    fn targets_text(&self, records: &[Record], out: &mut String) {
        out.push_str("\nwanted of Millrace:\n");
        let mut line = |case: &str, target: &str, reached: Option<f64>, met: Option<bool>| {
            let verdict = match met {
                Some(true) => "met",
                Some(false) => "NOT MET",
                None => "not measured",
            };
            let reached = reached.map_or_else(|| "-".to_owned(), rounded);
            let _ = writeln!(out, "  {case:<15} {target:<40} reached {reached:>9}  {verdict}");
        };
        for row in self.rows.iter().filter(|row| row.system == OURS) {
            match (row.quantity, case::find(row.case)) {
                (None, Some(case)) => {
                    for outcome in outcomes(case, records) {
                        line(
                            case.name,
                            &outcome.target.to_string(),
                            outcome.reached,
                            outcome.met(),
                        );
                    }
                }
                (Some(name), _) => {
                    if let Some(target) = &row.target {
                        line(row.case, &format!("{name}: {target}"), row.value, row.met);
                    }
                }
                (None, None) => {}
            }
        }
    }
}

impl Row {
    fn note(&self) -> String {
        let mut notes = Vec::new();
        if let Some(reason) = &self.reason {
            notes.push(reason.lines().next().unwrap_or_default().to_owned());
        }
        if !self.right {
            notes.push(WRONG_PORT.to_owned());
        }
        if let Some(share) = self.core_share.filter(|share| *share < 0.95) {
            notes.push(format!("disturbed: got {:.0} % of its core", share * 100.0));
        }
        notes.join("; ")
    }
}

/// Returns a number with about three significant digits.
fn rounded(value: f64) -> String {
    if value.abs() >= 100.0 || value == value.trunc() {
        format!("{value:.0}")
    } else {
        format!("{value:.2}")
    }
}
