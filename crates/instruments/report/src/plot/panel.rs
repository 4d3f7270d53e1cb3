//! The data of panels of curves.

use super::Paint;

/// The style of a curve.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Stroke {
    /// A solid line, with marks if there is a legend.
    #[default]
    Line,
    /// A dashed line without marks, for values that were not measured.
    Dashes,
    /// A histogram: a line with the area below it, and a mark at its top. The points are the corners of the
    /// steps.
    Area,
}

/// A curve of a panel.
#[derive(Debug, Clone, PartialEq)]
pub struct Curve {
    /// The name in the legend.
    pub label: String,
    /// The colour of the line.
    pub paint: Paint,
    /// The style of the line.
    pub stroke: Stroke,
    /// The points in the order of x; a point that is not finite is a gap.
    pub points: Vec<(f64, f64)>,
}

/// A panel: curves over the same axes.
#[derive(Debug, Clone, PartialEq)]
pub struct Panel {
    /// The heading of the panel.
    pub title: String,
    /// The curves of the panel.
    pub curves: Vec<Curve>,
}
