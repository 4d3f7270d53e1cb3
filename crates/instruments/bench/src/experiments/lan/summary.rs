//! The summary of all runs of a system: throughput, loss, and processor time per gigabyte.

use std::fmt::Write as _;

use serde::Serialize;

use super::record::Transfer;
use crate::record::{Record, failure};
use millrace_report::stats::Summary;

/// The results of a system.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Row {
    /// The name of the system.
    pub system: String,
    /// The number of runs.
    pub runs: usize,
    /// Gbit/s over all seconds of all runs; `None` without measurements.
    pub gbps: Option<Summary>,
    /// Gbit/s over the means of the runs.
    pub runs_gbps: Option<Summary>,
    /// The share of the sent frames that did not arrive, 0 to 1.
    pub loss: Option<f64>,
    /// Retransmitted segments per gigabyte (10^9 bytes).
    pub retransmits_per_gb: Option<f64>,
    /// CPU seconds of the whole machine per gigabyte.
    pub machine_s_per_gb: Option<f64>,
    /// CPU seconds of the programs of the switch per gigabyte.
    pub switch_s_per_gb: Option<f64>,
    /// The reason for a missing result.
    pub reason: Option<String>,
}

/// Returns one row for each system, in the order of measurement.
pub fn rows(records: &[Record]) -> Vec<Row> {
    let mut systems: Vec<&str> = Vec::new();
    for record in records {
        let system = match record {
            Record::Transfer(transfer) => transfer.system.as_str(),
            Record::Second { system, .. } => system,
            Record::Failed { case, system, .. } if case == "lan" => system,
            _ => continue,
        };
        if !systems.contains(&system) {
            systems.push(system);
        }
    }
    systems.into_iter().map(|system| row(records, system)).collect()
}

/// Returns the summary of a system.
fn row(records: &[Record], of_system: &str) -> Row {
    let seconds: Vec<f64> = records
        .iter()
        .filter_map(|record| match record {
            Record::Second { system, bps, .. } if system == of_system => Some(bps / 1e9),
            _ => None,
        })
        .collect();
    let transfers: Vec<&Transfer> = records
        .iter()
        .filter_map(|record| match record {
            Record::Transfer(transfer) if transfer.system == of_system => Some(transfer.as_ref()),
            _ => None,
        })
        .collect();
    let means: Vec<f64> = transfers
        .iter()
        .map(|transfer| transfer.bytes * 8.0 / transfer.seconds / 1e9)
        .collect();
    let sum = |of: fn(&Transfer) -> f64| transfers.iter().map(|transfer| of(transfer)).sum::<f64>();
    let gigabytes = sum(|transfer| transfer.bytes) / 1e9;
    let per_gb = |of: fn(&Transfer) -> f64| (gigabytes > 0.0).then(|| sum(of) / gigabytes);
    let sent = sum(|transfer| transfer.frames_sent as f64);
    let received = sum(|transfer| transfer.frames_received as f64);
    Row {
        system: of_system.to_owned(),
        runs: transfers.len(),
        gbps: Summary::of(&seconds),
        runs_gbps: Summary::of(&means),
        loss: (sent > 0.0).then(|| ((sent - received) / sent).max(0.0)),
        retransmits_per_gb: per_gb(|transfer| transfer.retransmits as f64),
        machine_s_per_gb: per_gb(|transfer| transfer.cpu.machine_s),
        switch_s_per_gb: per_gb(|transfer| transfer.cpu.switch_s),
        reason: failure(records, "lan", of_system, None).map(str::to_owned),
    }
}

/// Returns the rows as text for a terminal.
pub fn text(rows: &[Row]) -> String {
    let mut out = String::new();
    // Writing to a string does not fail.
    let _ = writeln!(
        out,
        "{:<13} {:>4} {:>7} {:>7} {:>7} {:>7} {:>7} {:>6} {:>8} {:>9} {:>10}  note",
        "system", "runs", "min", "q1", "median", "q3", "max", "CV", "loss", "CPU s/GB", "of switch"
    );
    for row in rows {
        let gbps = |of: fn(&Summary) -> f64| {
            row.gbps
                .as_ref()
                .map_or_else(|| "-".to_owned(), |gbps| format!("{:.3}", of(gbps)))
        };
        let plain = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |value| format!("{value:.2}"));
        let percent = |value: Option<f64>, digits: usize| {
            value.map_or_else(|| "-".to_owned(), |value| format!("{:.digits$} %", value * 100.0))
        };
        let note = row.reason.as_deref().and_then(|reason| reason.lines().next());
        let _ = writeln!(
            out,
            "{:<13} {:>4} {:>7} {:>7} {:>7} {:>7} {:>7} {:>6} {:>8} {:>9} {:>10}  {}",
            row.system,
            row.runs,
            gbps(|gbps| gbps.min),
            gbps(|gbps| gbps.q1),
            gbps(|gbps| gbps.median),
            gbps(|gbps| gbps.q3),
            gbps(|gbps| gbps.max),
            percent(row.gbps.as_ref().map(|gbps| gbps.cv), 1),
            percent(row.loss, 3),
            plain(row.machine_s_per_gb),
            plain(row.switch_s_per_gb),
            note.unwrap_or_default(),
        );
    }
    out.push_str("Gbit/s of TCP payload by the second; CPU seconds of the whole machine for each gigabyte\n");
    out
}

#[cfg(test)]
mod tests {
    use super::super::record::Cpu;
    use super::*;

    fn records() -> Vec<Record> {
        let second = |second, bps| Record::Second {
            system: "millrace".to_owned(),
            round: 0,
            second,
            bps,
            retransmits: 0,
        };
        vec![
            second(0, 2e9),
            second(1, 4e9),
            Record::Transfer(Box::new(Transfer {
                system: "millrace".to_owned(),
                round: 0,
                seconds: 2.0,
                bytes: 5e8,
                retransmits: 10,
                frames_sent: 1000,
                frames_received: 990,
                cpu: Cpu {
                    machine_s: 3.0,
                    switch_s: 1.0,
                    hosts_s: [0.5, 0.5],
                    steal_s: 0.0,
                },
                commands: Vec::new(),
            })),
            Record::Failed {
                case: "lan".to_owned(),
                system: "ovs".to_owned(),
                quantity: None,
                reason: "not installed\nat all".to_owned(),
            },
        ]
    }

    #[test]
    fn a_row_has_quartiles_loss_and_processor_time_per_gigabyte() {
        let rows = rows(&records());
        assert_eq!(rows[0].gbps.unwrap().median, 3.0);
        assert_eq!(rows[0].runs_gbps.unwrap().median, 2.0);
        assert_eq!(
            (rows[0].loss, rows[0].retransmits_per_gb),
            (Some(0.01), Some(20.0))
        );
        assert_eq!(
            (rows[0].machine_s_per_gb, rows[0].switch_s_per_gb),
            (Some(6.0), Some(2.0))
        );
    }

    #[test]
    fn a_system_without_result_is_there_with_its_reason() {
        let rows = rows(&records());
        assert_eq!(
            (rows[1].system.as_str(), rows[1].runs, rows[1].gbps),
            ("ovs", 0, None)
        );
        let text = text(&rows);
        assert!(
            text.contains("not installed") && !text.contains("at all"),
            "{text}"
        );
        assert!(text.contains("1.000 %"), "{text}");
    }
}
