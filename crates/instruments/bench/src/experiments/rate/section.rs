//! The section of the experiments `rate` and `latency`: the highest rate without loss by frame size, and the latency
//! at shares of that rate, by percentile and as histograms.

use crate::experiments::latency::section as histogram;
use crate::page::source::Source;
use crate::record::Record;
use millrace_report::Section;
use millrace_report::html::{Cell, figure, paragraph, table};
use millrace_report::plot::{Curve, Frame, Paint, Panel, Scale, Stroke, curves};
use millrace_report::stats::Summary;

/// The names of the two cases.
const RATE: &str = "rate";
const LATENCY: &str = "latency";

/// The values of one quantity of one system.
#[derive(Debug, PartialEq)]
struct Point {
    system: String,
    /// The share of the highest rate: `90%`; empty for rates.
    load: String,
    /// The percentile or the frame size.
    name: String,
    values: Vec<f64>,
}

impl Point {
    fn median(&self) -> f64 {
        Summary::of(&self.values).map_or(f64::NAN, |summary| summary.median)
    }
}

/// Returns true if this section shows a quantity of a case.
pub(crate) fn shows(case: &str, quantity: &str) -> bool {
    case == RATE || case == LATENCY && quantity.contains("%-")
}

/// Returns the section; `None` if the run has neither rates nor latencies.
pub(crate) fn section(source: &Source) -> Option<Section> {
    let (rates, latencies) = (points(source, RATE), points(source, LATENCY));
    let mut html = String::new();
    let mut plots = Vec::new();
    if !rates.is_empty() {
        let plot = rate_plot(source, &rates);
        let table = rate_table(&rates);
        html.push_str(&figure(
            &plot,
            "Highest rate at which no packet is lost (RFC 2544), by frame size.",
            &table,
        ));
        plots.push(plot);
    }
    if !latencies.is_empty() {
        html.push_str(&paragraph(
            "Latency from the generator and back, at shares of each system's own highest rate without loss. The \
             horizontal axis counts the nines of the percentile: p90, p99, and so on.",
        ));
        let plot = latency_plot(source, &latencies);
        let table = latency_table(&latencies);
        html.push_str(&figure(
            &plot,
            "Latency by percentile; the axis is logarithmic.",
            &table,
        ));
        plots.push(plot);
    }
    let histogram = histogram::draw(source);
    let has_latencies = !latencies.is_empty() || histogram.is_some();
    if let Some((plot, table)) = histogram {
        html.push_str(&figure(
            &plot,
            "Share of packets by latency, all runs of a system at a load; the upper bound of each bar is 19 % above the \
             one before, and the axis of latency is logarithmic. Bars of less than a thousandth at either end are only in \
             the table.",
            &table,
        ));
        plots.push(plot);
    }
    (!plots.is_empty()).then(|| Section {
        id: source.anchor("loads"),
        title: match (rates.is_empty(), !has_latencies) {
            (false, true) => "Rate without loss",
            (true, _) => "Latency",
            (false, false) => "Rate without loss, and latency",
        }
        .to_owned(),
        lead: None,
        html,
        plots,
    })
}

/// Returns the values of a case by system, load and name.
fn points(source: &Source, of_case: &str) -> Vec<Point> {
    let mut points: Vec<Point> = Vec::new();
    for record in &source.records {
        let Record::Figure {
            case,
            system,
            quantity,
            value,
            ..
        } = record
        else {
            continue;
        };
        if case != of_case || !shows(case, quantity) {
            continue;
        }
        let (load, name) = quantity.split_once('-').unwrap_or(("", quantity));
        let same = |point: &&mut Point| point.system == *system && point.load == load && point.name == name;
        match points.iter_mut().find(same) {
            Some(point) => point.values.push(*value),
            None => points.push(Point {
                system: system.clone(),
                load: load.to_owned(),
                name: name.to_owned(),
                values: vec![*value],
            }),
        }
    }
    points
}

/// Returns the distinct values of a field, in the order of their first appearance.
fn distinct<'a>(points: &'a [Point], of: impl Fn(&'a Point) -> &'a str) -> Vec<&'a str> {
    let mut all: Vec<&str> = Vec::new();
    for text in points.iter().map(of) {
        if !all.contains(&text) {
            all.push(text);
        }
    }
    all
}

/// Returns a plot of rate by frame size, one curve for each system.
fn rate_plot(source: &Source, points: &[Point]) -> millrace_report::plot::Plot {
    let sizes = distinct(points, |point| &point.name);
    let position = |name: &str| sizes.iter().position(|size| *size == name).unwrap_or(0) as f64;
    let lines = distinct(points, |point| &point.system)
        .into_iter()
        .map(|system| Curve {
            label: system.to_owned(),
            paint: Paint::of_system(system),
            stroke: Stroke::Line,
            points: of_sizes(points.iter().filter(|point| point.system == system), position),
        })
        .collect();
    let frame = Frame {
        x: "frame size, bytes",
        y: "million packets a second without loss",
        x_scale: Scale::Linear,
        scale: Scale::Linear,
        x_names: sizes
            .iter()
            .map(|size| (position(size), (*size).to_owned()))
            .collect(),
        legend: true,
    };
    let panel = Panel {
        title: String::new(),
        curves: lines,
    };
    curves(
        &source.anchor("sizes"),
        "Highest rate without loss",
        &frame,
        &[panel],
    )
}

/// Returns the points as pairs of position and rate. A gap in the curve comes before a mix of sizes, because
/// a mix is not a size that follows the largest one.
fn of_sizes<'a>(points: impl Iterator<Item = &'a Point>, position: impl Fn(&str) -> f64) -> Vec<(f64, f64)> {
    let mut out = Vec::new();
    for point in points {
        if point.name.parse::<u16>().is_err() {
            out.push((f64::NAN, f64::NAN));
        }
        out.push((position(&point.name), point.median()));
    }
    out
}

/// Returns the table of rates.
fn rate_table(points: &[Point]) -> String {
    let rows: Vec<Vec<Cell>> = points
        .iter()
        .map(|point| {
            let summary = Summary::of(&point.values);
            vec![
                Cell::head(point.system.as_str()),
                Cell::Number(point.name.clone()),
                Cell::number(summary.map(|summary| summary.median)),
                Cell::number(summary.map(|summary| summary.min)),
                Cell::number(summary.map(|summary| summary.max)),
            ]
        })
        .collect();
    table(
        "Highest rate without loss, million packets a second",
        &["system", "#frame size", "#median", "#min", "#max"],
        &rows,
    )
}

/// Returns the number of nines of a percentile: 1 for `p90`, 3 for `p99.9`; `None` for another name.
fn nines(name: &str) -> Option<f64> {
    let percent: f64 = name.strip_prefix('p')?.parse().ok()?;
    (0.0..100.0)
        .contains(&percent)
        .then(|| -(1.0 - percent / 100.0).log10())
}

/// Returns the loads in ascending order.
fn loads(points: &[Point]) -> Vec<&str> {
    let mut loads = distinct(points, |point| &point.load);
    loads.sort_by_key(|load| load.trim_end_matches('%').parse().unwrap_or(u32::MAX));
    loads
}

/// Returns a plot of latency by percentile, one panel for each load.
fn latency_plot(source: &Source, points: &[Point]) -> millrace_report::plot::Plot {
    let names = distinct(points, |point| &point.name);
    let last = names.iter().filter_map(|name| nines(name)).fold(0.0, f64::max);
    // The maximum is drawn one step after the last percentile.
    let position = |name: &str| match (nines(name), name) {
        (Some(nines), _) => Some(nines),
        (None, "max") => Some(last + 1.0),
        _ => None,
    };
    let panels: Vec<Panel> = loads(points)
        .into_iter()
        .map(|load| Panel {
            title: format!("at {} % of its highest rate", load.trim_end_matches('%')),
            curves: distinct(points, |point| &point.system)
                .into_iter()
                .map(|system| Curve {
                    label: system.to_owned(),
                    paint: Paint::of_system(system),
                    stroke: Stroke::Line,
                    points: points
                        .iter()
                        .filter(|point| point.system == system && point.load == load)
                        .filter_map(|point| Some((position(&point.name)?, point.median())))
                        .collect(),
                })
                .collect(),
        })
        .collect();
    let frame = Frame {
        x: "share of packets with at most this latency",
        y: "microseconds",
        x_scale: Scale::Linear,
        scale: Scale::Log,
        x_names: names
            .iter()
            .filter_map(|name| Some((position(name)?, (*name).to_owned())))
            .collect(),
        legend: true,
    };
    curves(
        &source.anchor("percentiles"),
        "Latency by percentile",
        &frame,
        &panels,
    )
}

/// Returns the table of latencies, one row for each system and load.
fn latency_table(points: &[Point]) -> String {
    let names = distinct(points, |point| &point.name);
    let mut rows = Vec::new();
    for system in distinct(points, |point| &point.system) {
        for load in loads(points) {
            let of = |name: &str| {
                let same =
                    |point: &&Point| point.system == system && point.load == load && point.name == name;
                points.iter().find(same).map(Point::median)
            };
            let mut row = vec![Cell::head(system), Cell::Number(load.to_owned())];
            row.extend(names.iter().map(|name| Cell::number(of(name))));
            rows.push(row);
        }
    }
    let mut headings = vec!["system".to_owned(), "#load".to_owned()];
    headings.extend(names.iter().map(|name| format!("#{name}")));
    let headings: Vec<&str> = headings.iter().map(String::as_str).collect();
    table("Latency, microseconds", &headings, &rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure(case: &str, system: &str, quantity: &str, value: f64) -> Record {
        Record::Figure {
            case: case.to_owned(),
            system: system.to_owned(),
            round: 0,
            quantity: quantity.to_owned(),
            unit: "us".to_owned(),
            value,
        }
    }

    #[test]
    fn percentiles_are_placed_by_their_number_of_nines() {
        assert!((nines("p90").unwrap() - 1.0).abs() < 1e-9);
        assert!((nines("p99.9").unwrap() - 3.0).abs() < 1e-9);
        assert_eq!((nines("max"), nines("p100"), nines("64")), (None, None, None));
    }

    #[test]
    fn rates_and_latencies_of_a_generator_have_a_plot_each() {
        let records = vec![
            figure(RATE, "millrace", "64", 8.0),
            figure(RATE, "millrace", "1518", 3.0),
            figure(LATENCY, "millrace", "10%-p50", 8.0),
            figure(LATENCY, "millrace", "10%-p50", 10.0),
            figure(LATENCY, "millrace", "10%-max", 90.0),
            figure(LATENCY, "millrace", "other", 1.0),
        ];
        let source = Source {
            id: "latency".to_owned(),
            records,
            all: [].into(),
            problems: Vec::new(),
        };
        let section = section(&source).unwrap();
        assert_eq!(section.plots.len(), 2);
        assert!(section.html.contains("Latency, microseconds"));
        let latency = &section.plots[1].description;
        assert!(
            latency.contains("at 10 % of its highest rate, millrace: from 9 to 90"),
            "{latency}"
        );
        assert!(!shows(LATENCY, "other"));
    }
}
