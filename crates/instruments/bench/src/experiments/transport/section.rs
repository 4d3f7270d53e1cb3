//! The section of the experiment `transport`: the rows, goodput by round-trip time, and processor time by system.

use super::record::{Transferred, TransportRecord};
use crate::gated::Row;
use crate::gated::recorder::{GatedRecord as _, rows_of};
use crate::gated::section::{lead, rows_table};
use crate::page::source::Source;
use millrace_report::Section;
use millrace_report::html::{Cell, figure, paragraph, table};
use millrace_report::plot::{Curve, Frame, Paint, Panel, Plot, Scale, Stroke, curves};
use millrace_report::stats::Summary;

/// Returns the section; `None` if the run has no records of the experiment.
pub(crate) fn section(source: &Source) -> Option<Section> {
    let rows = rows_of::<TransportRecord>(&source.records);
    if rows.is_empty() {
        return None;
    }
    let mut html = paragraph(
        "Bulk transfers, and the bounds that docs/gates.md sets for them. Virtual rows run senders and receivers over emulated paths \
         on one thread; live rows send files between network namespaces over millrace-wan. Ideal is the payload that \
         the link carries at best: its rate, less headers, less what it loses.",
    );
    html.push_str(&rows_table(&rows));
    let all = transfers(source);
    let mut plots = Vec::new();
    if let Some((plot, table)) = goodput(source, &rows) {
        let caption = "Goodput over Ideal of one flow in virtual time; the gate is 0.95, at 2 % 0.93.";
        html.push_str(&figure(&plot, caption, &table));
        plots.push(plot);
    }
    if !all.is_empty() {
        html.push_str(&systems_table(&all));
    }
    Some(Section {
        id: source.anchor("rows"),
        title: "Bulk transfers".to_owned(),
        lead: Some(lead(&rows)),
        html,
        plots,
    })
}

fn transfers(source: &Source) -> Vec<&Transferred> {
    source
        .records
        .iter()
        .filter_map(|record| match TransportRecord::of(record)? {
            TransportRecord::Transferred(transfer) => Some(transfer),
            _ => None,
        })
        .collect()
}

/// Returns the round-trip time in ms and the path of a row of T1 in virtual time, such as
/// `T1 goodput / Ideal, RTT 100 ms, loss 2 %`.
fn cell_of(case: &str) -> Option<(f64, &str)> {
    let rest = case.strip_prefix("T1 goodput / Ideal, RTT ")?;
    let (rtt, name) = rest.split_once(" ms, ")?;
    Some((rtt.parse().ok()?, name))
}

/// Returns the plot of T1, with one curve for each path, and its table.
fn goodput(source: &Source, rows: &[Row]) -> Option<(Plot, String)> {
    let cells: Vec<(f64, &str, f64)> = rows
        .iter()
        .filter_map(|row| {
            let (rtt, name) = cell_of(&row.case)?;
            Some((rtt, name, row.reached?))
        })
        .collect();
    let mut names: Vec<&str> = Vec::new();
    for (_, name, _) in &cells {
        if !names.contains(name) {
            names.push(name);
        }
    }
    if names.is_empty() {
        return None;
    }
    let lines = names
        .iter()
        .enumerate()
        .map(|(index, name)| Curve {
            label: (*name).to_owned(),
            paint: Paint::Series(index),
            stroke: Stroke::Line,
            points: cells
                .iter()
                .filter(|cell| cell.1 == *name)
                .map(|cell| (cell.0, cell.2))
                .collect(),
        })
        .collect();
    let axes = Frame {
        x: "round-trip time, ms",
        y: "goodput / Ideal",
        x_scale: Scale::Log,
        scale: Scale::Linear,
        x_names: Vec::new(),
        legend: true,
    };
    let panel = Panel {
        title: String::new(),
        curves: lines,
    };
    let plot = curves(&source.anchor("goodput"), "Goodput by path", &axes, &[panel]);
    let body: Vec<Vec<Cell>> = cells
        .iter()
        .map(|(rtt, name, reached)| {
            vec![
                Cell::head(*name),
                Cell::number(Some(*rtt)),
                Cell::number(Some(*reached)),
            ]
        })
        .collect();
    let headings = ["path", "#RTT, ms", "#goodput / Ideal"];
    Some((plot, table("Goodput by path", &headings, &body)))
}

/// Returns the table of all live transfers: medians of the rounds.
fn systems_table(all: &[&Transferred]) -> String {
    let mut keys = Vec::new();
    for transfer in all {
        let key = (
            transfer.system.as_str(),
            transfer.receivers,
            transfer.rtt_ms,
            transfer.loss.as_str(),
            transfer.link_bps,
        );
        if !keys.contains(&key) {
            keys.push(key);
        }
    }
    let body: Vec<Vec<Cell>> = keys
        .into_iter()
        .map(|key @ (system, receivers, rtt_ms, loss, link_bps)| {
            let of = |value: &dyn Fn(&Transferred) -> f64| {
                let values: Vec<f64> = all
                    .iter()
                    .filter(|each| {
                        key == (
                            each.system.as_str(),
                            each.receivers,
                            each.rtt_ms,
                            each.loss.as_str(),
                            each.link_bps,
                        )
                    })
                    .map(|each| value(each))
                    .collect();
                Cell::number(Summary::of(&values).map(|summary| summary.median))
            };
            vec![
                Cell::head(system),
                Cell::Number(receivers.to_string()),
                Cell::number(Some(rtt_ms)),
                Cell::text(loss),
                Cell::number(Some(link_bps / 1e6)),
                of(&|each| each.goodput_bps / 1e6),
                of(&|each| each.cpu_s[0] / each.bytes.max(1.0) * 1e9),
                of(&|each| each.cpu_s[1] / each.bytes.max(1.0) * 1e9),
                of(&|each| 100.0 * each.frames[0] / each.frames[1].max(1.0)),
            ]
        })
        .collect();
    let headings = [
        "system",
        "#receivers",
        "#RTT, ms",
        "path",
        "#link, Mbit/s",
        "#goodput of each, Mbit/s",
        "#CPU of the sender, s/GB",
        "#CPU of the receivers, s/GB",
        "#bytes back, %",
    ];
    table("Live transfers: medians of all rounds", &headings, &body)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_section_has_the_rows_the_grid_and_the_transfers() {
        let value = |case: &str, value: f64| {
            format!(
                r#"{{"record":"transport","value":{{"case":"{case}","round":0,"asked":"100 Mbit/s","gate":{{"at_least":0.95}},"target":0.974,"value":{value},"unit":""}}}}"#
            )
        };
        let lines = [
            value("T1 goodput / Ideal, RTT 10 ms, loss 1 %", 0.99),
            value("T1 goodput / Ideal, RTT 100 ms, loss 1 %", 0.93),
            r#"{"record":"transport","transferred":{"system":"iperf3 cubic x1","round":0,"rtt_ms":100.0,"loss":"loss=1%","receivers":1,"link_bps":5e8,"goodput_bps":1.2e6,"bytes":2e6,"seconds":10.0,"cpu_s":[0.1,0.2],"frames":[1e5,2e6]}}"#.to_owned(),
        ];
        let source = &crate::page::source::parse("transport.jsonl", &lines.join("\n"))[0];
        assert_eq!(source.problems, Vec::<String>::new());
        let section = section(source).unwrap();
        assert_eq!(section.lead.as_deref(), Some("1 of 2 gates are met."));
        assert_eq!(section.plots.len(), 1);
        assert!(section.html.contains("iperf3 cubic x1") && section.html.contains("NOT MET"));
    }

    #[test]
    fn a_row_of_the_grid_is_found_by_its_name() {
        assert_eq!(
            cell_of("T1 goodput / Ideal, RTT 0.2 ms, jitter 5 ms, reordering"),
            Some((0.2, "jitter 5 ms, reordering"))
        );
        assert_eq!(cell_of("T1 live: goodput / Ideal, 1 receiver, RTT 50 ms"), None);
    }
}
