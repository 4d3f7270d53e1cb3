//! Marks on curves. Each colour of a series has a different shape, so that curves can be distinguished
//! without colours.

use std::f64::consts::TAU;

use super::{Paint, Plot};

/// Half of the width of a mark.
const RADIUS: f64 = 4.0;
/// The number of shapes. Further series use the same shapes without fill.
const SHAPES: usize = 6;

/// Draws a mark of `paint` around a point, with `tip` as its tooltip.
pub(super) fn mark(plot: &mut Plot, at: (f64, f64), paint: Paint, tip: &str) {
    let index = match paint {
        Paint::Series(index) => index % super::SERIES,
        _ => 0,
    };
    let inside = if index < SHAPES { paint } else { Paint::Paper };
    let points: Vec<(f64, f64)> = outline(index % SHAPES)
        .into_iter()
        .map(|(x, y)| (at.0 + RADIUS * x, at.1 + RADIUS * y))
        .collect();
    plot.shape(&points, inside, paint, tip);
}

/// Returns the corners of a shape around zero.
fn outline(shape: usize) -> Vec<(f64, f64)> {
    /// Half of the width of the bars of a cross.
    const BAR: f64 = 0.36;
    match shape {
        0 => around(16, 0.0, 0.95),
        1 => around(4, TAU / 8.0, 1.2),
        2 => around(4, 0.0, 1.2),
        3 => around(3, -TAU / 4.0, 1.25),
        4 => around(3, TAU / 4.0, 1.25),
        _ => vec![
            (-BAR, -1.0),
            (BAR, -1.0),
            (BAR, -BAR),
            (1.0, -BAR),
            (1.0, BAR),
            (BAR, BAR),
            (BAR, 1.0),
            (-BAR, 1.0),
            (-BAR, BAR),
            (-1.0, BAR),
            (-1.0, -BAR),
            (-BAR, -BAR),
        ],
    }
}

/// Returns the corners of a regular polygon, the first of them at the angle `first`.
fn around(corners: usize, first: f64, radius: f64) -> Vec<(f64, f64)> {
    (0..corners)
        .map(|corner| {
            let angle = first + TAU * corner as f64 / corners as f64;
            (radius * angle.cos(), radius * angle.sin())
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plot::SERIES;

    #[test]
    fn no_two_series_have_the_same_mark_even_without_colours() {
        let drawn = |index: usize| {
            let mut plot = Plot::new("x", "x", 20.0);
            mark(&mut plot, (10.0, 10.0), Paint::Series(index), "");
            plot.inline().replace(&Paint::Series(index).css(), "black")
        };
        let all: Vec<String> = (0..SERIES).map(drawn).collect();
        for (index, one) in all.iter().enumerate() {
            assert_eq!(all.iter().position(|other| other == one), Some(index));
        }
    }
}
