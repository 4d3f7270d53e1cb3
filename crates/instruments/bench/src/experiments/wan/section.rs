//! The section of the experiment `wan`: the rows, the error of the delay, and asked and realised rates and
//! losses.

use super::record::{DelayError, LossRuns, RealisedRate, WanRecord};
use crate::gated::recorder::{GatedRecord as _, rows_of};
use crate::gated::section::{lead, rows_table};
use crate::page::source::Source;
use millrace_report::Section;
use millrace_report::html::{Cell, figure, paragraph, table};
use millrace_report::plot::{Curve, Frame, Paint, Panel, Plot, Scale, Stroke, curves};
use millrace_report::stats::Summary;

/// Returns the section; `None` if the run has no records of the experiment.
pub(crate) fn section(source: &Source) -> Option<Section> {
    let rows = rows_of::<WanRecord>(&source.records);
    if rows.is_empty() {
        return None;
    }
    let mut html = paragraph(
        "An emulated path, and the bounds that docs/gates.md sets for it. Live rows are measured over veth pairs by packet sockets, \
         with the kernel's stamps at both ends: the error of the delay is what was measured, less what was asked, less \
         the median of the same load at 0 ms.",
    );
    html.push_str(&rows_table(&rows));
    let mut plots = Vec::new();
    let parts = [
        (
            delays(source),
            "Error of the delay by rate and frame size: median and 99th percentile, medians of all rounds.",
        ),
        (
            rates(source),
            "Realised rate in parts per million of the asked rate.",
        ),
        (
            runs(source),
            "Lengths of losses: dashes are the model's shares, lines those that were counted.",
        ),
    ];
    for (part, caption) in parts {
        if let Some((plot, table)) = part {
            html.push_str(&figure(&plot, caption, &table));
            plots.push(plot);
        }
    }
    Some(Section {
        id: source.anchor("rows"),
        title: "Emulated wide-area paths".to_owned(),
        lead: Some(lead(&rows)),
        html,
        plots,
    })
}

fn records(source: &Source) -> impl Iterator<Item = &WanRecord> {
    source.records.iter().filter_map(WanRecord::of)
}

/// Returns the median of a value over runs, which are the rounds of one measurement.
fn median<'a>(runs: impl Iterator<Item = &'a DelayError>, value: fn(&DelayError) -> f64) -> f64 {
    let values: Vec<f64> = runs.map(value).collect();
    Summary::of(&values).map_or(f64::NAN, |summary| summary.median)
}

/// Returns the distinct keys of items, in their order.
fn distinct<T, K: PartialEq>(items: &[T], key: impl Fn(&T) -> K) -> Vec<K> {
    let mut keys = Vec::new();
    for item in items {
        let key = key(item);
        if !keys.contains(&key) {
            keys.push(key);
        }
    }
    keys
}

/// Returns the plot of delay errors: a panel for each frame size, a curve for each rate and percentile.
fn delays(source: &Source) -> Option<(Plot, String)> {
    let all: Vec<&DelayError> = records(source)
        .filter_map(|record| match record {
            WanRecord::Delay(error) if error.asked_ms > 0.0 => Some(error),
            _ => None,
        })
        .collect();
    if all.is_empty() {
        return None;
    }
    let mut panels = Vec::new();
    let mut cells = Vec::new();
    for (system, frame) in distinct(&all, |error| (error.system.as_str(), error.frame)) {
        let of_panel: Vec<&DelayError> = all
            .iter()
            .copied()
            .filter(|error| (error.system.as_str(), error.frame) == (system, frame))
            .collect();
        let mut panel = Panel {
            title: format!("{system}, {} B", frame + 4),
            curves: Vec::new(),
        };
        for (index, pps) in distinct(&of_panel, |error| error.pps).into_iter().enumerate() {
            let of_rate = || of_panel.iter().copied().filter(move |error| error.pps == pps);
            let mut delays = distinct(&of_rate().collect::<Vec<_>>(), |error| error.asked_ms);
            delays.sort_by(f64::total_cmp);
            let at = |ms: f64| of_rate().filter(move |error| error.asked_ms == ms);
            let points = |value: fn(&DelayError) -> f64| {
                delays
                    .iter()
                    .map(|ms| (*ms, median(at(*ms), value).max(0.01)))
                    .collect::<Vec<_>>()
            };
            panel.curves.push(Curve {
                label: format!("{pps} frames/s, p50"),
                paint: Paint::Series(index),
                stroke: Stroke::Line,
                points: points(|error| error.p50_us),
            });
            panel.curves.push(Curve {
                label: format!("{pps} frames/s, p99"),
                paint: Paint::Series(index),
                stroke: Stroke::Dashes,
                points: points(|error| error.p99_us),
            });
            cells.extend(delays.iter().map(|ms| {
                let value = |value: fn(&DelayError) -> f64| Cell::number(Some(median(at(*ms), value)));
                vec![
                    Cell::head(system),
                    Cell::Number((frame + 4).to_string()),
                    Cell::Number(pps.to_string()),
                    Cell::number(Some(*ms)),
                    value(|error| error.baseline_us),
                    value(|error| error.p50_us),
                    value(|error| error.p99_us),
                    value(|error| error.max_us),
                    value(|error| error.lost as f64),
                    value(|error| error.early as f64),
                ]
            }));
        }
        panels.push(panel);
    }
    let axes = Frame {
        x: "asked delay, ms",
        y: "error, us",
        x_scale: Scale::Log,
        scale: Scale::Log,
        x_names: Vec::new(),
        legend: true,
    };
    let plot = curves(&source.anchor("delay"), "Error of the delay", &axes, &panels);
    let headings = [
        "system",
        "#frame, B",
        "#frames/s",
        "#asked, ms",
        "#at 0 ms, us",
        "#p50, us",
        "#p99, us",
        "#max, us",
        "#lost",
        "#early",
    ];
    let caption = "Error of the delay: medians of all rounds";
    Some((plot, table(caption, &headings, &cells)))
}

/// Returns the plot of rates: a curve for each system.
fn rates(source: &Source) -> Option<(Plot, String)> {
    let all: Vec<&RealisedRate> = records(source)
        .filter_map(|record| match record {
            WanRecord::Rate(rate) => Some(rate),
            _ => None,
        })
        .collect();
    if all.is_empty() {
        return None;
    }
    let mut lines = Vec::new();
    let mut cells = Vec::new();
    for (index, system) in distinct(&all, |rate| rate.system.as_str())
        .into_iter()
        .enumerate()
    {
        let of_system: Vec<&RealisedRate> =
            all.iter().copied().filter(|rate| rate.system == system).collect();
        let mut points = Vec::new();
        for asked in distinct(&of_system, |rate| rate.asked_bps) {
            let realised: Vec<f64> = of_system
                .iter()
                .filter(|rate| rate.asked_bps == asked)
                .map(|rate| rate.realised_bps)
                .collect();
            let Some(summary) = Summary::of(&realised) else {
                continue;
            };
            let ppm = (summary.median / asked - 1.0) * 1e6;
            points.push((asked, ppm));
            cells.push(vec![
                Cell::head(system),
                Cell::number(Some(asked / 1e6)),
                Cell::number(Some(summary.median / 1e6)),
                Cell::number(Some(ppm)),
            ]);
        }
        lines.push(Curve {
            label: system.to_owned(),
            paint: Paint::Series(index),
            stroke: Stroke::Line,
            points,
        });
    }
    let axes = Frame {
        x: "asked rate, bit/s",
        y: "deviation, ppm",
        x_scale: Scale::Log,
        scale: Scale::Linear,
        x_names: Vec::new(),
        legend: true,
    };
    let panel = Panel {
        title: String::new(),
        curves: lines,
    };
    let plot = curves(
        &source.anchor("rate"),
        "Rates asked and realised",
        &axes,
        &[panel],
    );
    let headings = ["system", "#asked, Mbit/s", "#realised, Mbit/s", "#deviation, ppm"];
    Some((plot, table("Rates: medians of all rounds", &headings, &cells)))
}

/// Returns the plot of the lengths of runs of lost frames: a panel for each model.
fn runs(source: &Source) -> Option<(Plot, String)> {
    let all: Vec<&LossRuns> = records(source)
        .filter_map(|record| match record {
            WanRecord::Runs(runs) => Some(runs),
            _ => None,
        })
        .collect();
    if all.is_empty() {
        return None;
    }
    let points = |shares: &[f64]| {
        let shown = shares.iter().enumerate().filter(|(_, share)| **share > 1e-6);
        shown
            .map(|(index, share)| (index as f64 + 1.0, *share))
            .collect::<Vec<_>>()
    };
    let panels: Vec<Panel> = all
        .iter()
        .map(|runs| Panel {
            title: format!("{}, {} runs", runs.loss, runs.runs),
            curves: vec![
                Curve {
                    label: "asked".to_owned(),
                    paint: Paint::Series(1),
                    stroke: Stroke::Dashes,
                    points: points(&runs.asked),
                },
                Curve {
                    label: "realised".to_owned(),
                    paint: Paint::Series(0),
                    stroke: Stroke::Line,
                    points: points(&runs.realised),
                },
            ],
        })
        .collect();
    let axes = Frame {
        x: "frames lost in a row",
        y: "share of losses",
        x_scale: Scale::Linear,
        scale: Scale::Log,
        x_names: Vec::new(),
        legend: true,
    };
    let plot = curves(&source.anchor("loss"), "Lengths of losses", &axes, &panels);
    let cells: Vec<Vec<Cell>> = all
        .iter()
        .flat_map(|runs| {
            let pairs = runs.asked.iter().zip(&runs.realised).take(8).enumerate();
            pairs.map(|(index, (asked, realised))| {
                vec![
                    Cell::head(runs.loss.as_str()),
                    Cell::Number((index + 1).to_string()),
                    Cell::percent(Some(*asked)),
                    Cell::percent(Some(*realised)),
                ]
            })
        })
        .collect();
    let headings = ["loss", "#frames in a row", "#asked", "#realised"];
    Some((plot, table("Shares of losses by length", &headings, &cells)))
}
