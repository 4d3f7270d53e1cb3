//! Rows with gates in the report: a sentence and a table.

use super::Row;
use millrace_report::html::{Cell, table};

/// Returns the number of gates that are met in a sentence.
pub(crate) fn lead(rows: &[Row]) -> String {
    let judged = rows.iter().filter(|row| !row.gate.is_empty());
    let met = judged.clone().filter(|row| row.met == Some(true)).count();
    format!("{met} of {} gates are met.", judged.count())
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
            "Asked, gate, target and reached: medians of all rounds",
            &[
                "case", "asked", "gate", "target", "#reached", "unit", "met", "note",
            ],
            &cells,
        ),
        false => table(
            "Asked, gate and reached: medians of all rounds",
            &["case", "asked", "gate", "#reached", "unit", "met", "note"],
            &cells,
        ),
    }
}
