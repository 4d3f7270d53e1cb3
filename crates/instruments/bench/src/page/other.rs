//! The quantities that no other section shows, such as durations and memory, and the rates of systems during their
//! warm-up.

use crate::experiments::{qos, rate};
use crate::figure::find;
use crate::page::source::Source;
use crate::page::verdict;
use crate::record::Record;
use millrace_report::Section;
use millrace_report::html::{Cell, figure, table};
use millrace_report::plot::{BoxRow, Curve, Frame, Paint, Panel, Plot, Scale, Stroke, boxes, curves, number};
use millrace_report::stats::Summary;

/// A quantity with the values of several systems.
#[derive(Debug, PartialEq)]
struct Quantity {
    case: String,
    name: String,
    unit: String,
    /// Names of systems, with their values.
    systems: Vec<(String, Vec<f64>)>,
}

/// Returns the section; `None` if other sections show all quantities.
pub(super) fn section(source: &Source) -> Option<Section> {
    let mut html = String::new();
    let mut plots = Vec::new();
    for quantity in quantities(source) {
        let words = find(&quantity.case, &quantity.name).map_or(quantity.name.as_str(), |known| known.title);
        let title = format!("{}: {words}", quantity.case);
        let rows: Vec<BoxRow> = quantity
            .systems
            .iter()
            .map(|(system, values)| BoxRow {
                label: system.clone(),
                paint: Paint::of_system(system),
                values: values.clone(),
                note: String::new(),
            })
            .collect();
        let missed = verdict::missed_quantity(&quantity.case, &quantity.name, &source.records);
        let plot = boxes(
            &source.anchor(&format!("{}-{}", quantity.case, quantity.name)),
            &verdict::titled(&title, &missed),
            axis_unit(&quantity.unit),
            &rows,
        );
        html.push_str(&verdict::paragraphs(&missed));
        html.push_str(&figure(
            &plot,
            &format!("{title}, {}.", axis_unit(&quantity.unit)),
            &figures(
                &title,
                &quantity,
                verdict::of_quantity(&quantity.case, &quantity.name, &source.records),
            ),
        ));
        plots.push(plot);
    }
    for (plot, table) in settling(source) {
        html.push_str(&figure(&plot, &format!("{}.", plot.title), &table));
        plots.push(plot);
    }
    (!plots.is_empty()).then(|| Section {
        id: source.anchor("figures"),
        title: format!("More figures: {}", source.id),
        lead: None,
        html,
        plots,
    })
}

/// Returns the quantities that no other section shows.
fn quantities(source: &Source) -> Vec<Quantity> {
    let mut all: Vec<Quantity> = Vec::new();
    for record in &source.records {
        let Record::Figure {
            case,
            system,
            quantity: name,
            unit,
            value,
            ..
        } = record
        else {
            continue;
        };
        if rate::section::shows(case, name) || qos::section::shows(case) {
            continue;
        }
        let same = |other: &Quantity| other.case == *case && other.name == *name && other.unit == *unit;
        let index = all.iter().position(same).unwrap_or_else(|| {
            all.push(Quantity {
                case: case.clone(),
                name: name.clone(),
                unit: unit.clone(),
                systems: Vec::new(),
            });
            all.len() - 1
        });
        let systems = &mut all[index].systems;
        match systems.iter_mut().find(|known| known.0 == *system) {
            Some(known) => known.1.push(*value),
            None => systems.push((system.clone(), vec![*value])),
        }
    }
    all
}

/// Returns a unit as an axis shows it: in words where its symbol is hard to recognise.
fn axis_unit(unit: &str) -> &str {
    match unit {
        "" => "ratio",
        "s" => "seconds",
        "ms" => "milliseconds",
        "us" => "microseconds",
        "/s" => "a second",
        "B" => "bytes",
        "B/entry" => "bytes for each entry",
        "Mpps" => "million packets a second",
        "kpps" => "thousand packets a second",
        "%" => "percent",
        _ => unit,
    }
}

/// Returns the table of a quantity.
fn figures(title: &str, quantity: &Quantity, verdict: Option<Option<bool>>) -> String {
    let rows: Vec<Vec<Cell>> = quantity
        .systems
        .iter()
        .map(|(system, values)| {
            let summary = Summary::of(values);
            let of = |value: fn(&Summary) -> f64| Cell::number(summary.as_ref().map(value));
            let mut row = vec![
                Cell::head(system.as_str()),
                of(|summary| summary.median),
                of(|summary| summary.min),
                of(|summary| summary.max),
                Cell::Number(values.len().to_string()),
            ];
            row.extend(verdict::cell(verdict, system));
            row
        })
        .collect();
    let mut headings = vec!["system", "#median", "#min", "#max", "#measurements"];
    headings.extend(verdict.map(|_| "verdict"));
    table(
        &format!("{title}, {}", axis_unit(&quantity.unit)),
        &headings,
        &rows,
    )
}

/// Returns a plot and a table for each case: the rate of each system from its start on.
fn settling(source: &Source) -> Vec<(Plot, String)> {
    let mut panels: Vec<(String, Vec<Curve>)> = Vec::new();
    for record in &source.records {
        let Record::Settling {
            case,
            system,
            round,
            slice_s,
            pps,
        } = record
        else {
            continue;
        };
        let points = pps
            .iter()
            .enumerate()
            .map(|(index, pps)| ((index as f64 + 1.0) * slice_s, pps / 1e6))
            .collect();
        let curve = Curve {
            label: system.clone(),
            paint: Paint::of_system(system),
            stroke: Stroke::Line,
            points,
        };
        match panels.iter_mut().find(|panel| panel.0 == *case) {
            // Only the first start of each system is drawn, as the others would cover it.
            Some(panel) if *round == 0 || panel.1.iter().all(|known| known.label != *system) => {
                panel.1.push(curve);
            }
            Some(_) => {}
            None => panels.push((case.clone(), vec![curve])),
        }
    }
    panels
        .into_iter()
        .map(|(case, lines)| {
            let frame = Frame {
                x: "seconds after the start",
                y: "million packets a second",
                x_scale: Scale::Linear,
                scale: Scale::Linear,
                x_names: Vec::new(),
                legend: true,
            };
            let title = format!("{case}: how each system settles");
            let table = settling_table(&title, &lines);
            let panel = Panel {
                title: String::new(),
                curves: lines,
            };
            let plot = curves(
                &source.anchor(&format!("{case}-settling")),
                &title,
                &frame,
                &[panel],
            );
            (plot, table)
        })
        .collect()
}

/// Returns the table of all slices.
fn settling_table(title: &str, lines: &[Curve]) -> String {
    let rows: Vec<Vec<Cell>> = lines
        .iter()
        .map(|curve| {
            let slice_s = curve.points.first().map(|point| point.0);
            let list: Vec<String> = curve.points.iter().map(|point| number(point.1)).collect();
            vec![
                Cell::head(curve.label.as_str()),
                Cell::number(slice_s),
                Cell::text(list.join(" ")),
            ]
        })
        .collect();
    let caption = format!("{title}, million packets a second");
    table(&caption, &["system", "#seconds each", "in order"], &rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_values_of_a_quantity_are_grouped_by_system() {
        let figure = |system: &str, value: f64| Record::Figure {
            case: "install-1m".to_owned(),
            system: system.to_owned(),
            round: 0,
            quantity: "install".to_owned(),
            unit: "s".to_owned(),
            value,
        };
        let source = Source {
            id: "install".to_owned(),
            records: vec![
                figure("millrace", 5.0),
                figure("ovs-dpdk", 17.0),
                figure("millrace", 6.0),
            ],
            all: [].into(),
            problems: Vec::new(),
        };
        let quantities = quantities(&source);
        assert_eq!(quantities.len(), 1);
        assert_eq!(quantities[0].systems[0], ("millrace".to_owned(), vec![5.0, 6.0]));
        let section = section(&source).unwrap();
        assert!(section.html.contains("5.5"));
    }
}
