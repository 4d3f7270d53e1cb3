//! Plots as SVG. Colours are named by role: the page shows them in light and dark (`var(--ink)`), and a PNG file in
//! light colours.
//!
//! Every plot is 560 units wide. The page shows a unit as 0.63 (on a phone) to 1.26 pixels.

mod axis;
mod boxes;
mod curves;
pub mod flame;
mod legend;
mod marker;
mod panel;
mod ratios;
mod stages;
mod svg;

pub use axis::{Scale, number};
pub use boxes::{BoxRow, boxes};
pub use curves::{Frame, curves};
pub use panel::{Curve, Panel, Stroke};
pub use ratios::{RatioRow, ratios};
pub use stages::{StageRow, stages};
pub use svg::Plot;

/// The width of a plot.
pub const WIDTH: f64 = 560.0;
/// The font size of text.
const FONT: f64 = 13.0;

/// A colour by its role.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Paint {
    /// Text and marks.
    Ink,
    /// Secondary text.
    Soft,
    /// Grid lines.
    Grid,
    /// The background.
    Paper,
    /// One of the [`SERIES`] colours of systems.
    Series(usize),
    /// A target that is met.
    Good,
    /// A target that is missed.
    Bad,
}

/// The number of colours for series.
pub const SERIES: usize = 12;

/// The colours of series after the palette of Okabe and Ito, which suits readers who cannot distinguish red and green.
/// They are darker on white, and lighter on black where the contrast requires it. Marks on curves also differ in shape
/// (`marker`).
const SERIES_LIGHT: [&str; SERIES] = [
    "#0067a5", "#c44e00", "#b97a00", "#6b7280", "#9ca3af", "#00805c", "#a8487f", "#2b9cc9", "#5b3fb8",
    "#8c1c2e", "#6b6b00", "#00737a",
];
const SERIES_DARK: [&str; SERIES] = [
    "#58b0ee", "#ff8a4c", "#f0b429", "#9aa3b2", "#6f7887", "#3cc79d", "#e291bf", "#8fd6f5", "#b09cff",
    "#ff9aa8", "#c9c45a", "#55d0d6",
];

impl Paint {
    /// Returns all colours, for the style sheet.
    pub fn all() -> impl Iterator<Item = Paint> {
        [
            Paint::Ink,
            Paint::Soft,
            Paint::Grid,
            Paint::Paper,
            Paint::Good,
            Paint::Bad,
        ]
        .into_iter()
        .chain((0..SERIES).map(Paint::Series))
    }

    /// Returns the colour of a system. Each known system has a different colour.
    pub fn of_system(system: &str) -> Paint {
        Paint::Series(match system {
            "millrace" => 0,
            "ovs-dpdk" => 1,
            "ovs-dpdk-tuned" => 2,
            "testpmd-io" => 3,
            "testpmd-mac" => 4,
            "linux-bridge" => 5,
            "ovs" => 6,
            "millrace-no-cache" => 8,
            "millrace-tso" => 9,
            _ => 7,
        })
    }

    /// Returns the name of the variable in the style sheet.
    pub fn name(self) -> String {
        match self {
            Paint::Ink => "ink".to_owned(),
            Paint::Soft => "soft".to_owned(),
            Paint::Grid => "grid".to_owned(),
            Paint::Paper => "paper".to_owned(),
            Paint::Good => "good".to_owned(),
            Paint::Bad => "bad".to_owned(),
            Paint::Series(index) => format!("s{}", index % SERIES),
        }
    }

    /// Returns the value of an attribute of a drawing.
    pub fn css(self) -> String {
        format!("var(--{})", self.name())
    }

    /// Returns the colour on white.
    pub fn light(self) -> &'static str {
        match self {
            Paint::Ink => "#1b1f24",
            Paint::Soft => "#57606a",
            Paint::Grid => "#d8dee4",
            Paint::Paper => "#ffffff",
            Paint::Good => "#116329",
            Paint::Bad => "#b3261e",
            Paint::Series(index) => SERIES_LIGHT[index % SERIES],
        }
    }

    /// Returns the colour on black.
    pub fn dark(self) -> &'static str {
        match self {
            Paint::Ink => "#e8ecf1",
            Paint::Soft => "#a3adba",
            Paint::Grid => "#333c48",
            Paint::Paper => "#12161c",
            Paint::Good => "#57d38c",
            Paint::Bad => "#ff8d84",
            Paint::Series(index) => SERIES_DARK[index % SERIES],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the relative luminance (WCAG 2.1).
    fn luminance(hex: &str) -> f64 {
        let part = |from: usize| {
            let value = f64::from(u8::from_str_radix(&hex[from..from + 2], 16).unwrap()) / 255.0;
            if value <= 0.03928 {
                value / 12.92
            } else {
                ((value + 0.055) / 1.055).powf(2.4)
            }
        };
        0.2126 * part(1) + 0.7152 * part(3) + 0.0722 * part(5)
    }

    fn contrast(a: &str, b: &str) -> f64 {
        let (a, b) = (luminance(a), luminance(b));
        (a.max(b) + 0.05) / (a.min(b) + 0.05)
    }

    #[test]
    fn every_system_that_we_know_has_a_colour_of_its_own() {
        let systems = [
            "millrace",
            "millrace-no-cache",
            "millrace-tso",
            "ovs-dpdk",
            "ovs-dpdk-tuned",
            "testpmd-io",
            "testpmd-mac",
            "linux-bridge",
            "ovs",
            "another",
        ];
        for (index, system) in systems.iter().enumerate() {
            let paint = Paint::of_system(system);
            for shade in [Paint::light, Paint::dark] {
                let first = systems
                    .iter()
                    .position(|other| shade(Paint::of_system(other)) == shade(paint));
                assert_eq!(first, Some(index), "{system}");
            }
        }
    }

    #[test]
    fn text_and_marks_stand_out_from_the_paper_light_and_dark() {
        for (paper, shade) in [
            (Paint::Paper.light(), Paint::light as fn(Paint) -> &'static str),
            (Paint::Paper.dark(), Paint::dark),
        ] {
            for paint in [Paint::Ink, Paint::Soft, Paint::Good, Paint::Bad] {
                assert!(contrast(shade(paint), paper) >= 4.5, "{paint:?}");
            }
            // Graphical objects need a contrast of 3:1 (WCAG 2.1, section 1.4.11); the lightest grey is always beside
            // a label.
            for index in (0..SERIES).filter(|index| *index != 4) {
                let paint = Paint::Series(index);
                assert!(
                    contrast(shade(paint), paper) >= 3.0,
                    "{paint:?} {}",
                    contrast(shade(paint), paper)
                );
            }
        }
    }
}
