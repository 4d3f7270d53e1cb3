//! Stacked bars: the shares of stages, one bar per row.

use super::axis::number;
use super::svg::Anchor;
use super::{FONT, Paint, Plot, WIDTH};

/// A row of a stage plot.
#[derive(Debug, Clone, PartialEq)]
pub struct StageRow {
    /// The name of the row.
    pub label: String,
    /// The names and shares of the parts in order. Each share is from 0 to 1, and their sum is at most 1.
    pub parts: Vec<(String, f64)>,
}

const ROW: f64 = 40.0;
const LEGEND: f64 = 19.0;

/// Returns the position of a stage in the legend, in the order of the packet path.
fn position(name: &str) -> usize {
    const PACKET_PATH: [&str; 9] = [
        "receive",
        "parse",
        "lookup",
        "actions",
        "transmit",
        "poll",
        "control",
        "kernel",
        "without names",
    ];
    PACKET_PATH
        .iter()
        .position(|stage| name.starts_with(stage))
        .unwrap_or(PACKET_PATH.len())
}

/// Returns the colour and the opacity of a stage. Related stages have shades of one colour.
fn shade(name: &str) -> (Paint, f64) {
    let (series, strength) = match name {
        "receive" => (7, 1.0),
        "receive: kernel" => (7, 0.5),
        "parse" => (5, 1.0),
        "lookup: cache" => (0, 0.4),
        "lookup: hash" => (0, 0.6),
        "lookup: compare" => (0, 0.5),
        "lookup: prefix" => (0, 0.7),
        "lookup: tuples" => (0, 0.8),
        "parse and actions" => (6, 0.6),
        "actions" => (6, 1.0),
        "transmit" => (2, 1.0),
        "transmit: kernel" => (2, 0.5),
        "poll" => (1, 0.5),
        "control" => (1, 1.0),
        "kernel" => (3, 1.0),
        "without names" => (4, 0.6),
        _ if name.starts_with("lookup") => (0, 1.0),
        _ => (4, 0.4),
    };
    (Paint::Series(series), strength)
}

/// Returns stacked bars with a legend. A stage has the same colour in all rows.
pub fn stages(id: &str, title: &str, rows: &[StageRow]) -> Plot {
    let mut names: Vec<&str> = Vec::new();
    for (name, _) in rows.iter().flat_map(|row| &row.parts) {
        if !names.contains(&name.as_str()) {
            names.push(name);
        }
    }
    names.sort_by_key(|name| position(name));
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
            let (paint, strength) = shade(name);
            plot.block((x, y - 10.0), (12.0, 12.0), paint, strength, "");
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
            let (paint, strength) = shade(name);
            plot.block(
                (x, y),
                (width, 26.0),
                paint,
                strength,
                &format!("{}: {name} {percent}", row.label),
            );
            if width > Plot::text_width(&percent, FONT - 2.0) + 6.0 {
                plot.text(
                    (x + width / 2.0, y + 17.5),
                    Anchor::Middle,
                    if strength < 0.7 { Paint::Ink } else { Paint::Paper },
                    FONT - 2.0,
                    &percent,
                );
            }
            // A line in the colour of the paper separates neighbours without relying on colours.
            plot.line((x + width, y), (x + width, y + 26.0), Paint::Paper, 1.0);
            x += width;
            parts.push(format!("{name} {percent}"));
        }
        seen.push(format!("{}: {}", row.label, parts.join(", ")));
    }
    plot.description = format!("Shares of the time. {}.", seen.join("; "));
    plot
}

/// Returns the names in rows that fit into the width.
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
