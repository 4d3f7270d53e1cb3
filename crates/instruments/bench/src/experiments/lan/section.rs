//! The section of the experiment `lan` (E1 in docs/gates.md): one TCP stream through each switch, second by second.

use super::summary::{Row, rows};
use crate::page::source::Source;
use crate::record::Record;
use millrace_report::Section;
use millrace_report::html::{Cell, commands, details, escape, figure, paragraph, table};
use millrace_report::plot::{BoxRow, Curve, Frame, Paint, Panel, Scale, Stroke, boxes, curves, number};
use millrace_report::stats::Summary;

/// Returns the section; `None` if the run has no transfers.
pub(crate) fn section(source: &Source) -> Option<Section> {
    let rows = rows(&source.records);
    if rows.is_empty() {
        return None;
    }
    let path = source.systems().find(|(system, ..)| *system == "millrace-wan");
    let mut html = paragraph(
        "One switch between two hosts, one TCP stream by iperf3, second by second. Every switch is between the \
         same two network namespaces, which are created again for each run, in turn. Offloads are off at both \
         hosts: no frame is larger than 1,514 bytes.",
    );
    if let Some((system, _, configuration)) = path {
        let text =
            format!("{system} is {configuration}. Its processor time is not counted as that of a switch.");
        html.push_str(&paragraph(&text));
    }
    let seconds: Vec<BoxRow> = rows
        .iter()
        .map(|row| BoxRow {
            label: row.system.clone(),
            paint: Paint::of_system(&row.system),
            values: of_system(source, &row.system).map(|(_, _, gbps)| gbps).collect(),
            note: first_line(row).to_owned(),
        })
        .collect();
    let title = "Throughput of one TCP stream, all seconds of all runs";
    let spread = boxes(
        &source.anchor("seconds"),
        title,
        "Gbit/s, second by second",
        &seconds,
    );
    html.push_str(&figure(&spread, &format!("{title}."), &table_of(&rows)));
    let over_time = over_time(source, &rows);
    html.push_str(&figure(
        &over_time,
        "Each run over time: one line per run, the same axes for every switch.",
        &by_second(source, &rows),
    ));
    let by_run = boxes(
        &source.anchor("runs"),
        "Throughput by run",
        "Gbit/s, second by second",
        &runs(source, &rows),
    );
    html.push_str(&figure(
        &by_run,
        "Each run by itself.",
        &by_run_table(source, &rows),
    ));
    html.push_str(&repeat(source));
    Some(Section {
        id: source.anchor("throughput"),
        title: match path {
            None => "One stream through each switch (E1)",
            Some(_) => "One stream through each switch, over a WAN (E3)",
        }
        .to_owned(),
        lead: lead(&rows),
        html,
        plots: vec![spread, over_time, by_run],
    })
}

fn first_line(row: &Row) -> &str {
    row.reason
        .as_deref()
        .and_then(|reason| reason.lines().next())
        .unwrap_or("not measured")
}

/// Returns run, second and Gbit/s of each second of a system.
fn of_system<'a>(source: &'a Source, of: &'a str) -> impl Iterator<Item = (usize, usize, f64)> + 'a {
    source.records.iter().filter_map(move |record| match record {
        Record::Second {
            system,
            round,
            second,
            bps,
            ..
        } if system == of => Some((*round, *second, bps / 1e9)),
        _ => None,
    })
}

fn rounds(source: &Source, system: &str) -> Vec<usize> {
    let mut rounds: Vec<usize> = of_system(source, system).map(|(round, _, _)| round).collect();
    rounds.dedup();
    rounds
}

fn of_round(source: &Source, system: &str, of: usize) -> Vec<(f64, f64)> {
    of_system(source, system)
        .filter(|(round, _, _)| *round == of)
        .map(|(_, second, gbps)| (second as f64 + 1.0, gbps))
        .collect()
}

/// Returns a plot with one panel for each system and one curve for each run.
fn over_time(source: &Source, rows: &[Row]) -> millrace_report::plot::Plot {
    let panels: Vec<Panel> = rows
        .iter()
        .filter(|row| row.gbps.is_some())
        .map(|row| Panel {
            title: row.system.clone(),
            curves: rounds(source, &row.system)
                .into_iter()
                .map(|round| Curve {
                    label: format!("run {}", round + 1),
                    paint: Paint::of_system(&row.system),
                    stroke: Stroke::Line,
                    points: of_round(source, &row.system, round),
                })
                .collect(),
        })
        .collect();
    let frame = Frame {
        x: "second of the run",
        y: "Gbit/s",
        x_scale: Scale::Linear,
        scale: Scale::Linear,
        x_names: Vec::new(),
        legend: false,
    };
    curves(
        &source.anchor("over-time"),
        "Throughput over time",
        &frame,
        &panels,
    )
}

/// Returns one row for each run of each system, with the rates of its seconds.
fn runs(source: &Source, rows: &[Row]) -> Vec<BoxRow> {
    rows.iter()
        .flat_map(|row| {
            rounds(source, &row.system).into_iter().map(|round| BoxRow {
                label: format!("{} {}", row.system, round + 1),
                paint: Paint::of_system(&row.system),
                values: of_round(source, &row.system, round)
                    .into_iter()
                    .map(|point| point.1)
                    .collect(),
                note: String::new(),
            })
        })
        .collect()
}

/// Returns the table of the systems.
fn table_of(rows: &[Row]) -> String {
    let rows: Vec<Vec<Cell>> = rows
        .iter()
        .map(|row| {
            let of = |value: fn(&Summary) -> f64| Cell::number(row.gbps.as_ref().map(value));
            vec![
                Cell::head(row.system.as_str()),
                Cell::Number(row.runs.to_string()),
                of(|gbps| gbps.min),
                of(|gbps| gbps.q1),
                of(|gbps| gbps.median),
                of(|gbps| gbps.q3),
                of(|gbps| gbps.max),
                Cell::percent(row.gbps.map(|gbps| gbps.cv)),
                Cell::percent(row.loss),
                Cell::number(row.retransmits_per_gb),
                Cell::number(row.machine_s_per_gb),
                Cell::number(row.switch_s_per_gb),
                Cell::text(
                    row.reason
                        .as_deref()
                        .and_then(|reason| reason.lines().next())
                        .unwrap_or_default(),
                ),
            ]
        })
        .collect();
    table(
        "Gbit/s by the second; loss is of frames between the hosts; CPU seconds for each gigabyte, of the whole \
         machine and of the switch's programs (a switch in the kernel has none)",
        &[
            "system",
            "#runs",
            "#min",
            "#lower quartile",
            "#median",
            "#upper quartile",
            "#max",
            "#CV",
            "#loss",
            "#retransmitted per GB",
            "#CPU s per GB",
            "#of them the switch",
            "note",
        ],
        &rows,
    )
}

/// Returns the table of all seconds.
fn by_second(source: &Source, rows: &[Row]) -> String {
    let rows: Vec<Vec<Cell>> = rows
        .iter()
        .flat_map(|row| {
            rounds(source, &row.system)
                .into_iter()
                .map(move |round| (row, round))
        })
        .map(|(row, round)| {
            let points = of_round(source, &row.system, round);
            let list: Vec<String> = points.iter().map(|point| number(point.1)).collect();
            vec![
                Cell::head(row.system.as_str()),
                Cell::Number((round + 1).to_string()),
                Cell::text(list.join(" ")),
            ]
        })
        .collect();
    table(
        "Gbit/s of each second",
        &["system", "#run", "seconds, in order"],
        &rows,
    )
}

/// Returns the table of all runs.
fn by_run_table(source: &Source, rows: &[Row]) -> String {
    let rows: Vec<Vec<Cell>> = runs(source, rows)
        .iter()
        .map(|row| {
            let summary = Summary::of(&row.values);
            let of = |value: fn(&Summary) -> f64| Cell::number(summary.as_ref().map(value));
            vec![
                Cell::head(row.label.as_str()),
                of(|summary| summary.min),
                of(|summary| summary.q1),
                of(|summary| summary.median),
                of(|summary| summary.q3),
                of(|summary| summary.max),
                Cell::percent(summary.map(|summary| summary.cv)),
            ]
        })
        .collect();
    table(
        "Gbit/s of each run",
        &[
            "system and run",
            "#min",
            "#lower quartile",
            "#median",
            "#upper quartile",
            "#max",
            "#CV",
        ],
        &rows,
    )
}

/// Returns the commands of the first run of each system.
fn repeat(source: &Source) -> String {
    let mut html = String::new();
    let mut known: Vec<&str> = Vec::new();
    for record in &source.records {
        let Record::Transfer(transfer) = record else {
            continue;
        };
        if !known.contains(&transfer.system.as_str()) {
            known.push(&transfer.system);
            html.push_str(&format!("<h3>{}</h3>\n", escape(&transfer.system)));
            html.push_str(&commands(&transfer.commands));
        }
    }
    if html.is_empty() {
        return html;
    }
    let whole = paragraph(
        "The experiment: millrace bench lan (with --wan for a path between two sites). One run by hand:",
    );
    details("How to repeat it", &(whole + &html))
}

/// Returns the medians of all systems in a sentence.
fn lead(rows: &[Row]) -> Option<String> {
    let parts: Vec<String> = rows
        .iter()
        .filter_map(|row| {
            let gbps = row.gbps?;
            Some(format!(
                "{} {} Gbit/s (CV {:.1} %)",
                row.system,
                number(gbps.median),
                gbps.cv * 100.0
            ))
        })
        .collect();
    (!parts.is_empty()).then(|| format!("One TCP stream, median by the second: {}.", parts.join(", ")))
}
