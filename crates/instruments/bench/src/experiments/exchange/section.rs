//! The section of the experiment `exchange`: its rows, and load, changes, loss, orders and memory over time.

use millrace_report::Section;
use millrace_report::html::{Cell, figure, paragraph, table};
use millrace_report::plot::{Curve, Frame, Paint, Panel, Plot, Scale, Stroke, curves};

use super::record::{ExchangeRecord, Moment, Sample};
use crate::gated::recorder::{GatedRecord as _, rows_of};
use crate::gated::section::{lead, rows_table};
use crate::page::source::Source;

/// The most rows of the table below the last plot.
const TABLE_ROWS: usize = 60;
/// The names of the sites, in the order of the switches of a sample.
const SITES: [&str; 2] = ["switch at site one", "switch at site two"];

/// A curve: its name, and the value of a sample; `None` is a gap.
type Measure<'a> = (&'a str, Box<dyn Fn(&Sample) -> Option<f64>>);

/// Returns the section; `None` if the run has no records of the experiment.
pub(crate) fn section(source: &Source) -> Option<Section> {
    let rows = rows_of::<ExchangeRecord>(&source.records);
    if rows.is_empty() {
        return None;
    }
    let mut html = paragraph(
        "An exchange of two sites with two trunks. The frames of each tenant name it, so that one that arrives at \
         another is seen; a quarter of the tenants change their circuits over the API all the time, filters come and go, \
         the engine is killed now and then, and the trunk that carries the circuits is cut. Frames on a trunk at the \
         moment of its cut are lost; they are counted apart.",
    );
    html.push_str(&rows_table(&rows));
    html.push_str(&moments_table(source));
    let samples = samples(source);
    let mut plots = Vec::new();
    if !samples.is_empty() {
        let wanted = [
            ("load", "Load", "Mbit/s", load()),
            ("changes", "Changes accepted", "changes a second", changes()),
            ("loss", "Frames, since the start", "frames", loss()),
            (
                "orders",
                "Orders by the API, p95 of each interval",
                "ms",
                orders(),
            ),
            ("memory", "Resident memory", "MB", memory()),
        ];
        let count = wanted.len();
        for (at, (id, title, unit, measures)) in wanted.into_iter().enumerate() {
            let plot = over_time(&source.anchor(id), title, unit, &measures, &samples);
            // One table has the samples of all plots.
            let figures = if at + 1 == count {
                samples_table(&samples)
            } else {
                String::new()
            };
            html.push_str(&figure(&plot, &format!("{title}, over the run."), &figures));
            plots.push(plot);
        }
    }
    Some(Section {
        id: source.anchor("rows"),
        title: "An exchange for a week (E11)".to_owned(),
        lead: Some(lead(&rows)),
        html,
        plots,
    })
}

/// Returns the table of the moments of loss; nothing without loss.
fn moments_table(source: &Source) -> String {
    let moments = source
        .records
        .iter()
        .filter_map(|record| match ExchangeRecord::of(record)? {
            ExchangeRecord::Moment(moment) => Some(moment),
            _ => None,
        });
    let body: Vec<Vec<Cell>> = moments
        .map(|moment: &Moment| {
            vec![
                Cell::number(Some(moment.at)),
                Cell::number(Some(moment.ms)),
                Cell::Number(moment.frames.to_string()),
                Cell::Number(moment.asleep.to_string()),
                Cell::Text(moment.beside.join("; ")),
            ]
        })
        .collect();
    if body.is_empty() {
        return String::new();
    }
    let headings = [
        "#second",
        "#ms",
        "#frames",
        "#at a ring whose reader did not run",
        "what the machine did",
    ];
    table("Moments of loss", &headings, &body)
}

fn samples(source: &Source) -> Vec<&Sample> {
    source
        .records
        .iter()
        .filter_map(|record| match ExchangeRecord::of(record)? {
            ExchangeRecord::Sample(sample) => Some(sample),
            _ => None,
        })
        .collect()
}

fn load() -> Vec<Measure<'static>> {
    vec![("load", Box::new(|sample| Some(sample.load_mbps)))]
}

fn changes() -> Vec<Measure<'static>> {
    vec![("changes", Box::new(|sample| Some(sample.changes_per_s)))]
}

fn loss() -> Vec<Measure<'static>> {
    vec![
        (
            "missing, also at cuts",
            Box::new(|sample| Some(sample.missing as f64)),
        ),
        ("at a wrong tenant", Box::new(|sample| Some(sample.wrong as f64))),
    ]
}

fn orders() -> Vec<Measure<'static>> {
    vec![("orders", Box::new(|sample| sample.order_ms))]
}

fn memory() -> Vec<Measure<'static>> {
    let mut measures: Vec<Measure<'static>> = vec![("engine", Box::new(|sample| sample.engine_mb))];
    for (index, name) in SITES.into_iter().enumerate() {
        measures.push((
            name,
            Box::new(move |sample| sample.switches_mb.get(index).copied().flatten()),
        ));
    }
    measures
}

/// Returns a plot of measures over the seconds of the run.
fn over_time(id: &str, title: &str, unit: &str, measures: &[Measure<'_>], samples: &[&Sample]) -> Plot {
    let curve = |(index, (name, value)): (usize, &Measure<'_>)| Curve {
        label: (*name).to_owned(),
        paint: Paint::Series(index),
        stroke: Stroke::Line,
        points: samples
            .iter()
            .map(|sample| (sample.at, value(sample).unwrap_or(f64::NAN)))
            .collect(),
    };
    let panel = Panel {
        title: String::new(),
        curves: measures.iter().enumerate().map(curve).collect(),
    };
    let frame = Frame {
        x: "second of the run",
        y: unit,
        x_scale: Scale::Linear,
        scale: Scale::Linear,
        x_names: Vec::new(),
        legend: measures.len() > 1,
    };
    curves(id, title, &frame, &[panel])
}

/// Returns the table of the samples, of which a long run shows some.
fn samples_table(samples: &[&Sample]) -> String {
    let every = samples.len().div_ceil(TABLE_ROWS).max(1);
    let body: Vec<Vec<Cell>> = samples
        .iter()
        .step_by(every)
        .map(|sample| {
            let switch = |index: usize| Cell::number(sample.switches_mb.get(index).copied().flatten());
            vec![
                Cell::number(Some(sample.at)),
                Cell::number(Some(sample.load_mbps)),
                Cell::number(Some(sample.changes_per_s)),
                Cell::Number(sample.missing.to_string()),
                Cell::Number(sample.wrong.to_string()),
                Cell::number(sample.order_ms),
                Cell::number(sample.engine_mb),
                switch(0),
                switch(1),
            ]
        })
        .collect();
    let headings = [
        "#second",
        "#load, Mbit/s",
        "#changes a second",
        "#missing",
        "#at a wrong tenant",
        "#orders p95, ms",
        "#engine, MB",
        "#site one, MB",
        "#site two, MB",
    ];
    table("Samples of the run", &headings, &body)
}
