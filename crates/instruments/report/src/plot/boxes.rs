//! Box plots: minimum, quartiles, median and maximum of each row, and every measurement.

use super::axis::{Axis, Scale, number};
use super::svg::Anchor;
use super::{FONT, Paint, Plot, WIDTH};
use crate::stats::Summary;

/// A row of a box plot.
#[derive(Debug, Clone, PartialEq)]
pub struct BoxRow {
    /// The name of the row.
    pub label: String,
    /// The colour of the box.
    pub paint: Paint,
    /// The measurements; an empty row shows its note.
    pub values: Vec<f64>,
    /// The text of a row without measurements.
    pub note: String,
}

const ROW: f64 = 34.0;
const TOP: f64 = 6.0;
const BOTTOM: f64 = 40.0;
/// Half of the height of a box.
const HALF: f64 = 9.0;

/// Returns a box plot over one axis with the unit `unit`.
pub fn boxes(id: &str, title: &str, unit: &str, rows: &[BoxRow]) -> Plot {
    let left = rows
        .iter()
        .map(|row| Plot::text_width(&row.label, FONT))
        .fold(40.0, f64::max)
        + 12.0;
    // The longest median determines the right margin.
    let right = rows
        .iter()
        .filter_map(|row| Summary::of(&row.values))
        .map(|summary| Plot::text_width(&number(summary.median), FONT))
        .fold(40.0, f64::max)
        + 14.0;
    let height = TOP + ROW * rows.len() as f64 + BOTTOM;
    let mut plot = Plot::new(id, title, height);
    let values = rows.iter().flat_map(|row| row.values.iter().copied());
    let axis = Axis::new(Scale::Linear, values, (left, WIDTH - right), 5);
    let foot = height - BOTTOM;
    for tick in &axis.ticks {
        let x = axis.at(*tick);
        plot.line((x, TOP), (x, foot), Paint::Grid, 1.0);
        plot.text(
            (x, foot + 16.0),
            Anchor::Middle,
            Paint::Soft,
            FONT - 1.0,
            &number(*tick),
        );
    }
    let middle = (left + WIDTH - right) / 2.0;
    plot.text(
        (middle, foot + 33.0),
        Anchor::Middle,
        Paint::Soft,
        FONT - 1.0,
        unit,
    );
    let mut seen = Vec::new();
    for (index, row) in rows.iter().enumerate() {
        let y = TOP + ROW * (index as f64 + 0.5);
        plot.text((left - 8.0, y + 4.5), Anchor::End, Paint::Ink, FONT, &row.label);
        let Some(summary) = Summary::of(&row.values) else {
            plot.text(
                (left + 4.0, y + 4.5),
                Anchor::Start,
                Paint::Soft,
                FONT - 1.0,
                &Plot::fitted(&row.note, WIDTH - left - 6.0, FONT - 1.0),
            );
            seen.push(format!("{}: {}", row.label, row.note));
            continue;
        };
        draw(&mut plot, &axis, y, row, &summary);
        plot.text(
            (WIDTH - right + 8.0, y + 4.5),
            Anchor::Start,
            Paint::Ink,
            FONT,
            &number(summary.median),
        );
        seen.push(format!(
            "{}: median {}, from {} to {}",
            row.label,
            number(summary.median),
            number(summary.min),
            number(summary.max)
        ));
    }
    plot.description = format!("Box plot, {unit}. {}.", seen.join("; "));
    plot
}

/// Draws a row: bar, whiskers, box, median and measurements.
fn draw(plot: &mut Plot, axis: &Axis, y: f64, row: &BoxRow, summary: &Summary) {
    let at = |value: f64| axis.at(value);
    let paint = row.paint;
    let tip = format!(
        "{}: median {}, quartiles {} and {}, from {} to {}, {} measurements",
        row.label,
        number(summary.median),
        number(summary.q1),
        number(summary.q3),
        number(summary.min),
        number(summary.max),
        summary.len
    );
    // A pale bar from zero makes the lengths easy to compare.
    plot.block(
        (at(0.0), y - 4.0),
        (at(summary.median) - at(0.0), 8.0),
        paint,
        0.18,
        &tip,
    );
    plot.line((at(summary.min), y), (at(summary.max), y), paint, 1.5);
    for end in [summary.min, summary.max] {
        plot.line((at(end), y - HALF / 2.0), (at(end), y + HALF / 2.0), paint, 1.5);
    }
    let width = at(summary.q3) - at(summary.q1);
    plot.rect((at(summary.q1), y - HALF), (width, 2.0 * HALF), paint, 0.25, &tip);
    plot.line(
        (at(summary.median), y - HALF - 2.0),
        (at(summary.median), y + HALF + 2.0),
        paint,
        3.5,
    );
    // Measurements are drawn as dots unless they would cover the box.
    if row.values.len() <= 40 {
        for value in row.values.iter().filter(|value| value.is_finite()) {
            plot.dot((at(*value), y), 2.2, paint, 0.8, "");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_description_names_rows_with_and_without_measurements() {
        let row = |label: &str, values: &[f64], note: &str| BoxRow {
            label: label.to_owned(),
            paint: Paint::of_system(label),
            values: values.to_vec(),
            note: note.to_owned(),
        };
        let plot = boxes(
            "p",
            "one rule",
            "Mpps",
            &[
                row("millrace", &[3.0, 1.0, 2.0], ""),
                row("ovs", &[], "not installed"),
            ],
        );
        assert_eq!(
            plot.description,
            "Box plot, Mpps. millrace: median 2, from 1 to 3; ovs: not installed."
        );
        assert!(plot.inline().contains("quartiles 1.5 and 2.5"));
    }
}
