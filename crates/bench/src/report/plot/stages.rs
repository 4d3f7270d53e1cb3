//! Shares of a whole: one bar a row, cut where one stage ends and the next begins.

use super::axis::number;
use super::svg::Anchor;
use super::{FONT, Paint, Plot, WIDTH};

/// A bar.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct StageRow {
    pub(crate) label: String,
    /// Name and share, 0 to 1, in order; together at most 1.
    pub(crate) parts: Vec<(String, f64)>,
}

const ROW: f64 = 40.0;
const LEGEND: f64 = 19.0;

/// Bars with a legend; a stage has one colour in all rows.
pub(crate) fn stages(id: &str, title: &str, rows: &[StageRow]) -> Plot {
    let mut names: Vec<&str> = Vec::new();
    for (name, _) in rows.iter().flat_map(|row| &row.parts) {
        if !names.contains(&name.as_str()) {
            names.push(name);
        }
    }
    let paint = |name: &str| {
        // Shades apart from the neighbour's: the grey ones are for what is none of the stages.
        const ORDER: [usize; 8] = [7, 0, 5, 2, 1, 6, 3, 4];
        let place = names.iter().position(|other| *other == name).unwrap_or(0);
        Paint::Series(ORDER[place % ORDER.len()])
    };
    let legend = legend_rows(&names);
    let left = rows
        .iter()
        .map(|row| Plot::text_width(&row.label, FONT))
        .fold(40.0, f64::max)
        + 12.0;
    let top = 8.0 + LEGEND * legend.len() as f64;
    let mut plot = Plot::new(id, title, top + ROW * rows.len() as f64 + 6.0);
    for (index, entries) in legend.iter().enumerate() {
        let mut x = 6.0;
        let y = 16.0 + LEGEND * index as f64;
        for name in entries {
            plot.block((x, y - 10.0), (12.0, 12.0), paint(name), 1.0, "");
            plot.text((x + 17.0, y), Anchor::Start, Paint::Ink, FONT - 1.0, name);
            x += 17.0 + Plot::text_width(name, FONT - 1.0) + 12.0;
        }
    }
    let mut seen = Vec::new();
    for (index, row) in rows.iter().enumerate() {
        let y = top + ROW * index as f64 + 6.0;
        plot.text((left - 8.0, y + 18.0), Anchor::End, Paint::Ink, FONT, &row.label);
        let mut x = left;
        let mut parts = Vec::new();
        for (name, share) in &row.parts {
            let width = share.clamp(0.0, 1.0) * (WIDTH - 10.0 - left);
            let percent = format!("{} %", number((share * 1000.0).round() / 10.0));
            plot.block(
                (x, y),
                (width, 26.0),
                paint(name),
                1.0,
                &format!("{}: {name} {percent}", row.label),
            );
            if width > Plot::text_width(&percent, FONT - 2.0) + 6.0 {
                plot.text(
                    (x + width / 2.0, y + 17.5),
                    Anchor::Middle,
                    Paint::Paper,
                    FONT - 2.0,
                    &percent,
                );
            }
            // A seam of paper, so that neighbours are told apart without their colours.
            plot.line((x + width, y), (x + width, y + 26.0), Paint::Paper, 1.0);
            x += width;
            parts.push(format!("{name} {percent}"));
        }
        seen.push(format!("{}: {}", row.label, parts.join(", ")));
    }
    plot.description = format!("Shares of the time. {}.", seen.join("; "));
    plot
}

fn legend_rows<'a>(names: &[&'a str]) -> Vec<Vec<&'a str>> {
    let mut rows: Vec<Vec<&str>> = Vec::new();
    let mut used = f64::INFINITY;
    for name in names {
        let width = 29.0 + Plot::text_width(name, FONT - 1.0);
        if used + width > WIDTH {
            rows.push(Vec::new());
            used = 6.0;
        }
        used += width;
        if let Some(row) = rows.last_mut() {
            row.push(name);
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stage_has_one_colour_in_all_bars() {
        let row = |label: &str, parts: &[(&str, f64)]| StageRow {
            label: label.to_owned(),
            parts: parts
                .iter()
                .map(|(name, share)| ((*name).to_owned(), *share))
                .collect(),
        };
        let plot = stages(
            "s",
            "stages",
            &[
                row("millrace", &[("receive", 0.25), ("lookup", 0.75)]),
                row("ovs", &[("lookup", 0.5)]),
            ],
        );
        assert_eq!(
            plot.description,
            "Shares of the time. millrace: receive 25 %, lookup 75 %; ovs: lookup 50 %."
        );
        assert_eq!(
            plot.inline().matches(r#"fill="var(--s0)""#).count(),
            3,
            "legend and two bars"
        );
    }
}
