//! Curves: panels below each other that share both axes, so that what is steady looks steady.

use super::axis::{Axis, Scale, number};
use super::svg::Anchor;
use super::{FONT, Paint, Plot, WIDTH};

/// A curve.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Curve {
    pub(crate) label: String,
    pub(crate) paint: Paint,
    /// In the order of x.
    pub(crate) points: Vec<(f64, f64)>,
}

/// Curves over the same axes.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Panel {
    pub(crate) title: String,
    pub(crate) curves: Vec<Curve>,
}

/// The axes.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Frame<'a> {
    pub(crate) x: &'a str,
    pub(crate) y: &'a str,
    pub(crate) scale: Scale,
    /// Names for places on the x axis; without any, numbers.
    pub(crate) x_names: Vec<(f64, String)>,
    /// Whether each curve has its name in a legend above.
    pub(crate) legend: bool,
}

const TOP: f64 = 8.0;
const HEAD: f64 = 20.0;
const LEFT: f64 = 58.0;
const RIGHT: f64 = 14.0;
const BOTTOM: f64 = 42.0;
const GAP: f64 = 10.0;

/// Panels of curves.
pub(crate) fn curves(id: &str, title: &str, frame: &Frame<'_>, panels: &[Panel]) -> Plot {
    let body = match panels.len() {
        0 | 1 => 240.0,
        2 | 3 => 150.0,
        _ => 88.0,
    };
    let legend = if frame.legend {
        legend_rows(panels)
    } else {
        Vec::new()
    };
    let top = TOP + 18.0 * legend.len() as f64;
    let height = top + (HEAD + body + GAP) * panels.len() as f64 + BOTTOM - GAP;
    let mut plot = Plot::new(id, title, height);
    for (row, entries) in legend.iter().enumerate() {
        let mut x = LEFT;
        let y = TOP + 18.0 * row as f64 + 8.0;
        for (label, paint) in entries {
            plot.line((x, y - 4.0), (x + 18.0, y - 4.0), *paint, 3.0);
            plot.text((x + 23.0, y), Anchor::Start, Paint::Ink, FONT - 1.0, label);
            x += 23.0 + Plot::text_width(label, FONT - 1.0) + 14.0;
        }
    }
    let all = || {
        panels
            .iter()
            .flat_map(|panel| &panel.curves)
            .flat_map(|curve| &curve.points)
    };
    let x_axis = Axis::new(
        Scale::Linear,
        all().map(|point| point.0),
        (LEFT, WIDTH - RIGHT),
        7,
    );
    for (index, panel) in panels.iter().enumerate() {
        let head = top + (HEAD + body + GAP) * index as f64;
        let (ceiling, floor) = (head + HEAD, head + HEAD + body);
        if !panel.title.is_empty() {
            plot.text(
                (LEFT, ceiling - 6.0),
                Anchor::Start,
                Paint::Ink,
                FONT,
                &panel.title,
            );
        }
        let wanted = if panels.len() > 1 { 3 } else { 5 };
        let y_axis = Axis::new(frame.scale, all().map(|point| point.1), (floor, ceiling), wanted);
        for tick in &y_axis.ticks {
            let y = y_axis.at(*tick);
            plot.line((LEFT, y), (WIDTH - RIGHT, y), Paint::Grid, 1.0);
            plot.text(
                (LEFT - 6.0, y + 4.0),
                Anchor::End,
                Paint::Soft,
                FONT - 2.0,
                &number(*tick),
            );
        }
        let thin = if panel.curves.len() > 3 {
            (1.3, 0.75)
        } else {
            (2.2, 1.0)
        };
        for curve in &panel.curves {
            let points: Vec<(f64, f64)> = curve
                .points
                .iter()
                .filter(|(x, y)| x.is_finite() && y.is_finite())
                .map(|(x, y)| (x_axis.at(*x), y_axis.at(*y)))
                .collect();
            if let [only] = points.as_slice() {
                plot.dot(*only, 3.0, curve.paint, 1.0, &curve.label);
            }
            plot.polyline(&points, curve.paint, thin.0, thin.1, &curve.label);
        }
        if index + 1 == panels.len() {
            feet(&mut plot, frame, &x_axis, floor);
        }
    }
    plot.text(
        (LEFT - 50.0, TOP + 8.0),
        Anchor::Start,
        Paint::Soft,
        FONT - 2.0,
        if legend.is_empty() { frame.y } else { "" },
    );
    if !legend.is_empty() {
        plot.text(
            (LEFT, top + HEAD - 6.0),
            Anchor::Start,
            Paint::Soft,
            FONT - 2.0,
            frame.y,
        );
    }
    plot.description = describe(frame, panels);
    plot
}

fn feet(plot: &mut Plot, frame: &Frame<'_>, axis: &Axis, floor: f64) {
    let numbers = || axis.ticks.iter().map(|tick| (*tick, number(*tick))).collect();
    let names: Vec<(f64, String)> = if frame.x_names.is_empty() {
        numbers()
    } else {
        frame.x_names.clone()
    };
    for (place, name) in names {
        let x = axis.at(place);
        plot.line((x, floor), (x, floor + 4.0), Paint::Soft, 1.0);
        plot.text((x, floor + 17.0), Anchor::Middle, Paint::Soft, FONT - 2.0, &name);
    }
    let middle = (LEFT + WIDTH - RIGHT) / 2.0;
    plot.text(
        (middle, floor + 35.0),
        Anchor::Middle,
        Paint::Soft,
        FONT - 1.0,
        frame.x,
    );
}

/// Every label once, in rows that fit.
fn legend_rows(panels: &[Panel]) -> Vec<Vec<(String, Paint)>> {
    let mut rows: Vec<Vec<(String, Paint)>> = Vec::new();
    let mut used = f64::INFINITY;
    let mut known: Vec<&str> = Vec::new();
    for curve in panels.iter().flat_map(|panel| &panel.curves) {
        if known.contains(&curve.label.as_str()) {
            continue;
        }
        known.push(&curve.label);
        let width = 37.0 + Plot::text_width(&curve.label, FONT - 1.0);
        if used + width > WIDTH - LEFT {
            rows.push(Vec::new());
            used = 0.0;
        }
        used += width;
        if let Some(row) = rows.last_mut() {
            row.push((curve.label.clone(), curve.paint));
        }
    }
    rows
}

fn describe(frame: &Frame<'_>, panels: &[Panel]) -> String {
    let mut seen = Vec::new();
    for panel in panels {
        for curve in &panel.curves {
            let values = || {
                curve
                    .points
                    .iter()
                    .map(|point| point.1)
                    .filter(|value| value.is_finite())
            };
            let (least, most) = (
                values().fold(f64::INFINITY, f64::min),
                values().fold(f64::NEG_INFINITY, f64::max),
            );
            let name = [panel.title.as_str(), curve.label.as_str()];
            let name: Vec<&str> = name.into_iter().filter(|part| !part.is_empty()).collect();
            if least <= most {
                seen.push(format!(
                    "{}: from {} to {}",
                    name.join(", "),
                    number(least),
                    number(most)
                ));
            }
        }
    }
    format!("{} over {}. {}.", frame.y, frame.x, seen.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn panels_share_their_axes_and_the_description_has_each_curve() {
        let curve = |label: &str, y: f64| Curve {
            label: label.to_owned(),
            paint: Paint::Series(0),
            points: vec![(0.0, y), (60.0, y / 2.0)],
        };
        let frame = Frame {
            x: "second",
            y: "Gbit/s",
            scale: Scale::Linear,
            x_names: Vec::new(),
            legend: false,
        };
        let panels = [("ovs", 8.0), ("millrace", 4.0)].map(|(title, y)| Panel {
            title: title.to_owned(),
            curves: vec![curve("run 1", y)],
        });
        let plot = curves("c", "lan", &frame, &panels);
        assert_eq!(
            plot.description,
            "Gbit/s over second. ovs, run 1: from 4 to 8; millrace, run 1: from 2 to 4."
        );
        // Half of the way up in the second panel is where the first one has a quarter.
        let inline = plot.inline();
        assert_eq!(inline.matches("<polyline").count(), 2);
    }
}
