//! The section of the experiment `ips`: the rows, and the rates by frame size next to the line rates of 1 and 10 Gbit/s.

use millrace_report::Section;
use millrace_report::html::{Cell, figure, paragraph, table};
use millrace_report::plot::{Curve, Frame, Paint, Panel, Plot, Scale, Stroke, curves};
use millrace_report::stats::Summary;

use super::rows::FRAMES;
use super::{GAP, IpsRecord, Rate};
use crate::gated::recorder::{GatedRecord as _, rows_of};
use crate::gated::section::{lead, rows_table};
use crate::page::source::Source;

/// Returns the section; `None` if the run has no records of the experiment.
pub(crate) fn section(source: &Source) -> Option<Section> {
    let rows = rows_of::<IpsRecord>(&source.records);
    if rows.is_empty() {
        return None;
    }
    let mut html = paragraph(
        "Intrusion prevention on one core, by frame size: one rule that alerts on every TCP packet, and 14,000 rules, with \
         connections that are new on every pass. The function is driven in memory; the shares are of two directions of 1 \
         Gbit/s, as in the experiment of 2011 with Snort 2.9.1.2 (46.5 % at 64 bytes, 81 % at 128, all from 256 on).",
    );
    html.push_str(&rows_table(&rows));
    let (plot, cells) = rates(source);
    html.push_str(&figure(
        &plot,
        "Packets per second by frame size, medians of all rounds; dashes are 2 x 1 and 2 x 10 Gbit/s.",
        &cells,
    ));
    Some(Section {
        id: source.anchor("rows"),
        title: "Intrusion prevention".to_owned(),
        lead: Some(lead(&rows)),
        html,
        plots: vec![plot],
    })
}

/// Returns the plot of rates, and its table.
fn rates(source: &Source) -> (Plot, String) {
    let all: Vec<&Rate> = source
        .records
        .iter()
        .filter_map(|record| match IpsRecord::of(record)? {
            IpsRecord::Rate(rate) => Some(rate),
            _ => None,
        })
        .collect();
    let mut systems: Vec<&str> = Vec::new();
    for rate in &all {
        if !systems.contains(&rate.system.as_str()) {
            systems.push(&rate.system);
        }
    }
    let (mut lines, mut cells) = (Vec::new(), Vec::new());
    for (index, system) in systems.into_iter().enumerate() {
        let mut points = Vec::new();
        for frame in FRAMES {
            let of_frame = all
                .iter()
                .filter(|rate| rate.system == system && rate.frame == frame);
            let rates: Vec<f64> = of_frame.map(|rate| rate.packets_per_second / 1e6).collect();
            let Some(summary) = Summary::of(&rates) else {
                continue;
            };
            points.push((f64::from(frame), summary.median));
            cells.push(vec![
                Cell::head(system),
                Cell::Number(frame.to_string()),
                Cell::number(Some(summary.median)),
                Cell::number(Some(summary.median * f64::from(frame) * 8.0 / 1e3)),
            ]);
        }
        lines.push(Curve {
            label: system.to_owned(),
            paint: Paint::Series(index),
            stroke: Stroke::Line,
            points,
        });
    }
    for (index, gbps) in [1.0, 10.0].into_iter().enumerate() {
        let offered = |frame: u16| 2.0 * gbps * 1e3 / ((f64::from(frame) + GAP) * 8.0);
        lines.push(Curve {
            label: format!("2 x {gbps} Gbit/s"),
            paint: Paint::Series(3 + index),
            stroke: Stroke::Dashes,
            points: FRAMES
                .iter()
                .map(|frame| (f64::from(*frame), offered(*frame)))
                .collect(),
        });
    }
    let axes = Frame {
        x: "frame, B",
        y: "Mpps",
        x_scale: Scale::Log,
        scale: Scale::Log,
        x_names: Vec::new(),
        legend: true,
    };
    let panel = Panel {
        title: String::new(),
        curves: lines,
    };
    let plot = curves(
        &source.anchor("rate"),
        "Intrusion prevention on one core",
        &axes,
        &[panel],
    );
    let headings = ["system", "#frame, B", "#Mpps", "#Gbit/s of frames"];
    (plot, table("Rates: medians of all rounds", &headings, &cells))
}
