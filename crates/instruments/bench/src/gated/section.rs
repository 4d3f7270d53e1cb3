//! Rows with gates in the report: a sentence and a table.

use super::Row;
use millrace_report::html::{Cell, table};

/// Returns a sentence with the number of gates that are met, and the number of rows that could not be
/// measured.
pub(crate) fn lead(rows: &[Row]) -> String {
    let (judged, others): (Vec<&Row>, Vec<&Row>) = rows.iter().partition(|row| !row.gate.is_empty());
    let met = judged.iter().filter(|row| row.met == Some(true)).count();
    let missing = |rows: &[&Row]| rows.iter().filter(|row| row.reached.is_none()).count();
    let not_measured = match missing(&judged) {
        0 => String::new(),
        count => format!(", {count} not measured"),
    };
    let without_gate = match missing(&others) {
        0 => String::new(),
        count => format!(" Rows without a gate that were not measured: {count}."),
    };
    format!(
        "{met} of {} gates are met{not_measured}.{without_gate}",
        judged.len()
    )
}

/// Returns the table of the rows; it has a column of targets if a row has one.
pub(crate) fn rows_table(rows: &[Row]) -> String {
    let has_targets = rows.iter().any(|row| !row.target.is_empty());
    let target = |cell: Cell| has_targets.then_some(cell);
    let cells: Vec<Vec<Cell>> = rows
        .iter()
        .map(|row| {
            let mut cells = vec![
                Cell::head(row.case.as_str()),
                Cell::text(row.asked.as_str()),
                Cell::text(row.gate.as_str()),
            ];
            cells.extend(target(Cell::text(row.target.as_str())));
            cells.extend([
                Cell::number(row.reached),
                Cell::text(row.unit.as_str()),
                match row.gate.is_empty() {
                    true => Cell::text(""),
                    false => Cell::Verdict(row.met),
                },
                Cell::text(row.reason.as_deref().unwrap_or_default()),
            ]);
            cells
        })
        .collect();
    match has_targets {
        true => table(
            "Asked, gate, target and reached: the median of all rounds, or the round furthest off where every round has to keep the gate",
            &[
                "case", "asked", "gate", "target", "#reached", "unit", "met", "note",
            ],
            &cells,
        ),
        false => table(
            "Asked, gate and reached: the median of all rounds, or the round furthest off where every round has to keep the gate",
            &["case", "asked", "gate", "#reached", "unit", "met", "note"],
            &cells,
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Gate, Item, Missing, Value, rows};
    use super::*;

    #[test]
    fn a_row_that_was_not_measured_counts_among_the_gates() {
        let value = |case: &str, value: f64| Value {
            case: case.to_owned(),
            round: 0,
            asked: String::new(),
            gate: Gate::AtMost(20.0),
            target: None,
            value,
            unit: "us".to_owned(),
        };
        let missing = |case: &str, gate| Missing {
            case: case.to_owned(),
            asked: String::new(),
            gate,
            target: None,
            unit: "us".to_owned(),
            reason: "the emulator has ended".to_owned(),
        };
        let values = [value("p50", 1.0), value("p99", 1.0)];
        let missing = [
            missing("p99", Gate::AtMost(20.0)),
            missing("max", Gate::AtMost(20.0)),
            missing("netem", Gate::None),
        ];
        let measured = values.iter().map(Item::Value);
        assert_eq!(lead(&rows(measured.clone())), "2 of 2 gates are met.");
        let all = measured.chain(missing.iter().map(Item::Missing));
        assert_eq!(
            lead(&rows(all)),
            "1 of 3 gates are met, 1 not measured. Rows without a gate that were not measured: 1."
        );
    }
}
