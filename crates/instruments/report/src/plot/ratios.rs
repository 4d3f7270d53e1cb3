//! Ratios of Millrace to other systems, each with its target.

use super::axis::{Axis, Scale, number};
use super::svg::Anchor;
use super::{FONT, Paint, Plot, WIDTH};

/// A row of a ratio plot.
#[derive(Debug, Clone, PartialEq)]
pub struct RatioRow {
    /// The name of the row.
    pub label: String,
    /// The denominator, in small type below the label.
    pub to: String,
    /// The measured ratio; `None` if it was not measured.
    pub reached: Option<f64>,
    /// The target.
    pub wanted: f64,
}

const ROW: f64 = 38.0;
const TOP: f64 = 6.0;
const BOTTOM: f64 = 40.0;
const RIGHT: f64 = 84.0;

/// Returns a plot of ratios over one logarithmic axis.
pub fn ratios(id: &str, title: &str, rows: &[RatioRow]) -> Plot {
    let left = rows
        .iter()
        .map(|row| Plot::text_width(&row.label, FONT).max(Plot::text_width(&row.to, FONT - 2.0)))
        .fold(40.0, f64::max)
        + 12.0;
    let height = TOP + ROW * rows.len() as f64 + BOTTOM;
    let mut plot = Plot::new(id, title, height);
    let values = rows
        .iter()
        .flat_map(|row| [row.reached.unwrap_or(row.wanted), row.wanted]);
    let axis = Axis::new(Scale::Log, values, (left, WIDTH - RIGHT), 6);
    let foot = height - BOTTOM;
    for tick in &axis.ticks {
        let x = axis.at(*tick);
        plot.line((x, TOP), (x, foot), Paint::Grid, 1.0);
        plot.text(
            (x, foot + 16.0),
            Anchor::Middle,
            Paint::Soft,
            FONT - 1.0,
            &format!("{}x", number(*tick)),
        );
    }
    let middle = (left + WIDTH - RIGHT) / 2.0;
    let legend = "ratio of Millrace to the other: bar and dot measured, vertical line target";
    plot.text(
        (middle, foot + 33.0),
        Anchor::Middle,
        Paint::Soft,
        FONT - 2.0,
        legend,
    );
    let mut seen = Vec::new();
    for (index, row) in rows.iter().enumerate() {
        let y = TOP + ROW * (index as f64 + 0.5);
        plot.text((left - 8.0, y - 1.0), Anchor::End, Paint::Ink, FONT, &row.label);
        plot.text(
            (left - 8.0, y + 12.0),
            Anchor::End,
            Paint::Soft,
            FONT - 2.0,
            &row.to,
        );
        let wanted = axis.at(row.wanted);
        let met = row.reached.map(|reached| reached >= row.wanted);
        if let (Some(reached), Some(met)) = (row.reached, met) {
            let paint = if met { Paint::Good } else { Paint::Bad };
            let tip = format!(
                "{}: reached {}, wanted {}",
                row.label,
                number(reached),
                number(row.wanted)
            );
            let at = axis.at(reached);
            plot.block((left, y - 4.0), (at - left, 8.0), paint, 0.3, &tip);
            plot.dot((at, y), 5.0, paint, 1.0, &tip);
        }
        plot.line((wanted, y - 11.0), (wanted, y + 11.0), Paint::Ink, 2.0);
        let reached = row.reached.map_or_else(
            || "not measured".to_owned(),
            |reached| format!("{}x", number(reached)),
        );
        let (word, paint) = match met {
            Some(true) => ("✓ met", Paint::Good),
            Some(false) => ("✗ NOT MET", Paint::Bad),
            None => ("not measured", Paint::Soft),
        };
        let x = WIDTH - RIGHT + 8.0;
        if row.reached.is_some() {
            plot.text((x, y - 1.0), Anchor::Start, Paint::Ink, FONT - 1.0, &reached);
        }
        plot.text((x, y + 12.0), Anchor::Start, paint, FONT - 2.0, word);
        seen.push(format!(
            "{} {}: wanted {}x, reached {reached}{}",
            row.label,
            row.to,
            number(row.wanted),
            if met == Some(false) { ", NOT MET" } else { "" }
        ));
    }
    plot.description = format!("Ratios on a logarithmic axis. {}.", seen.join("; "));
    plot
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_measurement_is_shown_as_such() {
        let row = RatioRow {
            label: "one-rule".to_owned(),
            to: "to testpmd".to_owned(),
            reached: None,
            wanted: 0.7,
        };
        let plot = ratios("r", "ratios", std::slice::from_ref(&row));
        assert!(
            plot.description
                .contains("one-rule to testpmd: wanted 0.7x, reached not measured")
        );
        assert!(!plot.inline().contains("<circle"));
        let met = RatioRow {
            reached: Some(0.7),
            ..row.clone()
        };
        let plot = ratios("r", "ratios", &[met]);
        assert!(plot.inline().contains("✓ met") && !plot.description.contains("NOT MET"));
        let missed = RatioRow {
            reached: Some(0.6),
            ..row
        };
        let plot = ratios("r", "ratios", &[missed]);
        assert!(plot.inline().contains("✗ NOT MET") && plot.description.ends_with("0.6x, NOT MET."));
    }
}
