//! The legend above a plot: a line with its mark for each label.

use super::marker::mark;
use super::panel::{Panel, Stroke};
use super::svg::Anchor;
use super::{FONT, Paint, Plot, WIDTH};

/// The height of a row.
pub(super) const ROW: f64 = 18.0;
/// The length of the sample line.
const SAMPLE: f64 = 24.0;
const GAP: f64 = 5.0;
const BETWEEN: f64 = 14.0;

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Entry {
    label: String,
    paint: Paint,
    stroke: Stroke,
}

impl Entry {
    fn width(&self) -> f64 {
        SAMPLE + GAP + Plot::text_width(&self.label, FONT - 1.0) + BETWEEN
    }
}

/// Returns each label once, in rows between `left` and the right edge.
pub(super) fn rows(panels: &[Panel], left: f64) -> Vec<Vec<Entry>> {
    let mut rows: Vec<Vec<Entry>> = Vec::new();
    let mut used = f64::INFINITY;
    for curve in panels.iter().flat_map(|panel| &panel.curves) {
        if rows.iter().flatten().any(|entry| entry.label == curve.label) {
            continue;
        }
        let entry = Entry {
            label: curve.label.clone(),
            paint: curve.paint,
            stroke: curve.stroke,
        };
        if used + entry.width() > WIDTH - left + BETWEEN {
            rows.push(Vec::new());
            used = 0.0;
        }
        used += entry.width();
        if let Some(row) = rows.last_mut() {
            row.push(entry);
        }
    }
    rows
}

/// Draws the rows below the corner `(left, top)`.
pub(super) fn draw(plot: &mut Plot, rows: &[Vec<Entry>], (left, top): (f64, f64)) {
    for (row, entries) in rows.iter().enumerate() {
        let mut x = left;
        let y = top + ROW * row as f64 + 4.0;
        for entry in entries {
            let ends = [(x, y), (x + SAMPLE, y)];
            if entry.stroke == Stroke::Dashes {
                plot.dashes(&ends, entry.paint, 1.6, "");
            } else {
                plot.line(ends[0], ends[1], entry.paint, 2.2);
                mark(plot, (x + SAMPLE / 2.0, y), entry.paint, "");
            }
            let at = (x + SAMPLE + GAP, y + 4.0);
            plot.text(at, Anchor::Start, Paint::Ink, FONT - 1.0, &entry.label);
            x += entry.width();
        }
    }
}
