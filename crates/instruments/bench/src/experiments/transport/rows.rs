//! The order of the rows T1 to T15 in tables.

use crate::gated::Row;

/// Sorts rows by number; those of one number stay in their order.
pub(super) fn sort(rows: &mut [Row]) {
    rows.sort_by_key(|row| number(&row.case));
}

/// Returns the number of a row: 12 of `T12 wrong bytes`.
fn number(case: &str) -> u32 {
    let digits = case.strip_prefix('T').unwrap_or_default();
    let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
    digits[..end].parse().unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use crate::experiments::transport::record::TransportRecord;
    use crate::gated::recorder::rows_of;
    use crate::gated::{Gate, Value};
    use crate::record::Record;

    #[test]
    fn rows_are_in_the_order_of_their_numbers() {
        let record = |case: &str| {
            Record::Transport(Box::new(TransportRecord::Value(Value {
                case: case.to_owned(),
                round: 0,
                asked: String::new(),
                gate: Gate::AtLeast(0.95),
                target: Some(0.974),
                value: 0.96,
                unit: String::new(),
            })))
        };
        let records = ["T10 files", "T2 CUBIC", "T1 virtual", "T1 live"].map(record);
        let rows = rows_of::<TransportRecord>(&records);
        let cases: Vec<&str> = rows.iter().map(|row| row.case.as_str()).collect();
        assert_eq!(cases, ["T1 virtual", "T1 live", "T2 CUBIC", "T10 files"]);
        assert_eq!((rows[0].met, rows[0].target.as_str()), (Some(true), "0.9740"));
    }
}
