//! Curves in panels below each other. All panels share both axes, so that they can be compared.

use super::axis::{Axis, Scale, number};
use super::marker::mark;
use super::panel::{Curve, Panel, Stroke};
use super::svg::Anchor;
use super::{FONT, Paint, Plot, WIDTH, legend};

/// The axes of a plot.
#[derive(Debug, Clone, PartialEq)]
pub struct Frame<'a> {
    /// The label of the horizontal axis.
    pub x: &'a str,
    /// The label of the vertical axis.
    pub y: &'a str,
    /// The scale of x; linear for names.
    pub x_scale: Scale,
    /// The scale of y.
    pub scale: Scale,
    /// The names of values on the x axis; numbers if it is empty.
    pub x_names: Vec<(f64, String)>,
    /// True if there is a legend above.
    pub legend: bool,
}

const TOP: f64 = 8.0;
/// The height of the title of the y axis.
const Y_TITLE: f64 = 16.0;
const HEAD: f64 = 20.0;
const LEFT: f64 = 58.0;
const RIGHT: f64 = 20.0;
const BOTTOM: f64 = 42.0;
const GAP: f64 = 10.0;
/// The largest number of marks on a curve; with more points, some have no mark.
const MARKS_MAX: usize = 16;
/// The largest number of curves that are drawn thick.
const THICK_MAX: usize = 6;

/// Returns a plot of panels of curves.
pub fn curves(id: &str, title: &str, frame: &Frame<'_>, panels: &[Panel]) -> Plot {
    let body = match panels.len() {
        0 | 1 => 240.0,
        2 | 3 => 150.0,
        _ => 88.0,
    };
    let legend = if frame.legend {
        legend::rows(panels, LEFT)
    } else {
        Vec::new()
    };
    let titled = panels.iter().any(|panel| !panel.title.is_empty());
    let head = if titled { HEAD } else { 8.0 };
    let y_title = TOP + legend::ROW * legend.len() as f64;
    let top = y_title + Y_TITLE;
    let height = top + (head + body + GAP) * panels.len() as f64 + BOTTOM - GAP;
    let mut plot = Plot::new(id, title, height);
    legend::draw(&mut plot, &legend, (LEFT, TOP));
    plot.text(
        (8.0, y_title + 11.0),
        Anchor::Start,
        Paint::Soft,
        FONT - 2.0,
        frame.y,
    );
    let all = || {
        panels
            .iter()
            .flat_map(|panel| &panel.curves)
            .flat_map(|curve| &curve.points)
    };
    let (xs, positions) = (all().map(|point| point.0), (LEFT, WIDTH - RIGHT));
    let x_axis = if frame.x_names.is_empty() {
        Axis::new(frame.x_scale, xs, positions, 7)
    } else {
        Axis::of_names(xs, positions)
    };
    for (index, panel) in panels.iter().enumerate() {
        let ceiling = top + (head + body + GAP) * index as f64 + head;
        let floor = ceiling + body;
        if !panel.title.is_empty() {
            let at = (LEFT, ceiling - 6.0);
            plot.text(at, Anchor::Start, Paint::Ink, FONT, &panel.title);
        }
        let wanted = if panels.len() > 1 { 4 } else { 5 };
        let y_axis = Axis::new(frame.scale, all().map(|point| point.1), (floor, ceiling), wanted);
        for tick in &y_axis.ticks {
            let y = y_axis.at(*tick);
            plot.line((LEFT, y), (WIDTH - RIGHT, y), Paint::Grid, 1.0);
            let at = (LEFT - 6.0, y + 4.0);
            plot.text(at, Anchor::End, Paint::Soft, FONT - 2.0, &number(*tick));
        }
        for curve in &panel.curves {
            let thick = frame.legend || panel.curves.len() <= THICK_MAX;
            draw(&mut plot, curve, (&x_axis, &y_axis), (frame.legend, thick));
        }
        if index + 1 == panels.len() {
            x_labels(&mut plot, frame, &x_axis, floor);
        }
    }
    plot.description = describe(frame, panels);
    plot
}

/// Draws a curve between its axes.
fn draw(plot: &mut Plot, curve: &Curve, (x, y): (&Axis, &Axis), (marked, thick): (bool, bool)) {
    let is_gap = |(x, y): &(f64, f64)| !x.is_finite() || !y.is_finite();
    for part in curve.points.split(is_gap).filter(|part| !part.is_empty()) {
        draw_part(plot, curve, part, (x, y), (marked, thick));
    }
}

/// Draws a part of a curve between two gaps.
fn draw_part(
    plot: &mut Plot,
    curve: &Curve,
    values: &[(f64, f64)],
    (x, y): (&Axis, &Axis),
    (marked, thick): (bool, bool),
) {
    let points: Vec<(f64, f64)> = values
        .iter()
        .map(|point| (x.at(point.0), y.at(point.1)))
        .collect();
    let tip = |index: usize| {
        let (x, y) = values[index];
        format!("{}: {} at {}", curve.label, number(y), number(x))
    };
    match curve.stroke {
        Stroke::Dashes => plot.dashes(&points, curve.paint, 1.6, &curve.label),
        Stroke::Area => {
            plot.area(&points, curve.paint, 0.14);
            plot.polyline(&points, curve.paint, 1.8, 1.0, &curve.label);
            // The mark is in the middle of the highest step.
            let top = points.windows(2).enumerate().min_by(|one, other| {
                let height = |step: &[(f64, f64)]| step[0].1 + step[1].1;
                height(one.1).total_cmp(&height(other.1))
            });
            if let Some((index, step)) = top {
                let middle = ((step[0].0 + step[1].0) / 2.0, step[0].1);
                mark(plot, middle, curve.paint, &tip(index));
            }
        }
        Stroke::Line => {
            let (width, opacity) = if thick { (2.0, 1.0) } else { (1.3, 0.75) };
            plot.polyline(&points, curve.paint, width, opacity, &curve.label);
            if marked || points.len() == 1 {
                let every = points.len().div_ceil(MARKS_MAX).max(1);
                for (index, point) in points.iter().enumerate().step_by(every) {
                    mark(plot, *point, curve.paint, &tip(index));
                }
            }
        }
    }
}

/// Draws ticks and labels of the x axis.
fn x_labels(plot: &mut Plot, frame: &Frame<'_>, axis: &Axis, floor: f64) {
    let numbers = || axis.ticks.iter().map(|tick| (*tick, number(*tick))).collect();
    let names: Vec<(f64, String)> = if frame.x_names.is_empty() {
        numbers()
    } else {
        frame.x_names.clone()
    };
    let mut free = 0.0;
    for (position, name) in names {
        let x = axis.at(position);
        plot.line((x, floor), (x, floor + 4.0), Paint::Soft, 1.0);
        let half = Plot::text_width(&name, FONT - 2.0) / 2.0;
        // A name that would overlap its predecessor is left out; its tick is drawn.
        if x - half >= free {
            plot.text((x, floor + 17.0), Anchor::Middle, Paint::Soft, FONT - 2.0, &name);
            free = x + half + 3.0;
        }
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

/// Returns the description of a plot: the range of each curve.
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
            stroke: Stroke::Line,
            points: vec![(0.0, y), (60.0, y / 2.0)],
        };
        let frame = Frame {
            x: "second",
            y: "Gbit/s",
            x_scale: Scale::Linear,
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
        // The panels share the vertical axis.
        let inline = plot.inline();
        assert_eq!(inline.matches("<polyline").count(), 2);
        assert_eq!(inline.matches("<polygon").count(), 0);
    }

    #[test]
    fn with_a_legend_every_curve_has_marks_but_one_of_dashes() {
        let curve = |label: &str, series: usize, stroke: Stroke| Curve {
            label: label.to_owned(),
            paint: Paint::Series(series),
            stroke,
            points: vec![(1.0, 1.0), (2.0, 2.0), (8.0, 8.0)],
        };
        let frame = Frame {
            x: "workers",
            y: "Mpps",
            x_scale: Scale::Linear,
            scale: Scale::Linear,
            x_names: [1.0, 2.0, 8.0].map(|n| (n, n.to_string())).to_vec(),
            legend: true,
        };
        let panel = Panel {
            title: String::new(),
            curves: vec![
                curve("millrace", 0, Stroke::Line),
                curve("ideal", 0, Stroke::Dashes),
            ],
        };
        let inline = curves("c", "scaling", &frame, &[panel]).inline();
        // Three points and the legend have marks.
        assert_eq!(inline.matches("<polygon").count(), 4);
        assert_eq!(inline.matches("stroke-dasharray").count(), 2);
        assert!(inline.contains("<title>millrace: 8 at 8</title>"), "{inline}");
    }

    #[test]
    fn names_that_would_overlap_are_left_out() {
        let frame = Frame {
            x: "tables",
            y: "Mpps",
            x_scale: Scale::Linear,
            scale: Scale::Linear,
            x_names: [1.0, 2.0, 255.0].map(|n| (n, format!("N{n}"))).to_vec(),
            legend: false,
        };
        let panel = Panel {
            title: String::new(),
            curves: vec![Curve {
                label: "millrace".to_owned(),
                paint: Paint::Series(0),
                stroke: Stroke::Line,
                points: vec![(1.0, 1.0), (2.0, 1.0), (255.0, 1.0)],
            }],
        };
        let inline = curves("c", "tables", &frame, &[panel]).inline();
        assert!(inline.contains(">N1<") && inline.contains(">N255<") && !inline.contains(">N2<"));
    }
}
