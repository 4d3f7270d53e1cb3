//! Plots as PNG files, for programs without SVG: slides, mail, issue trackers.

use std::sync::Arc;

use resvg::tiny_skia::{Pixmap, Transform};
use resvg::usvg::{Options, Tree, fontdb};

use super::plot::Plot;

/// The usual number of pixels for each unit of a plot.
pub const SCALE: f32 = 2.0;
/// The font families that are tried for `sans-serif`, in this order: those of Debian, Fedora, macOS and Windows.
const FAMILIES: [&str; 6] = [
    "DejaVu Sans",
    "Liberation Sans",
    "Noto Sans",
    "Helvetica",
    "Arial",
    "FreeSans",
];

/// Renders plots with a font of this machine.
pub struct Painter {
    fonts: Arc<fontdb::Database>,
}

impl Painter {
    /// Returns a painter; `None` if this machine has no font, as a plot without its numbers would be useless.
    pub fn new() -> Option<Painter> {
        let mut fonts = fontdb::Database::new();
        fonts.load_system_fonts();
        let has = |family: &str| {
            fonts
                .faces()
                .any(|face| face.families.iter().any(|(name, _)| name == family))
        };
        let family = FAMILIES
            .into_iter()
            .find(|family| has(family))
            .map(str::to_owned)
            .or_else(|| Some(fonts.faces().next()?.families.first()?.0.clone()))?;
        fonts.set_sans_serif_family(family);
        Some(Painter {
            fonts: Arc::new(fonts),
        })
    }

    /// Returns the content of the PNG file with `scale` pixels for each unit of the plot; `None` if the plot cannot be
    /// rendered.
    pub fn png(&self, plot: &Plot, scale: f32) -> Option<Vec<u8>> {
        let options = Options {
            fontdb: Arc::clone(&self.fonts),
            ..Options::default()
        };
        let tree = Tree::from_str(&plot.file(), &options).ok()?;
        let (width, height) = plot.file_size();
        let pixels = |units: f64| (units * f64::from(scale)).ceil() as u32;
        let mut pixmap = Pixmap::new(pixels(width), pixels(height))?;
        resvg::render(&tree, Transform::from_scale(scale, scale), &mut pixmap.as_mut());
        pixmap.encode_png().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plot::{BoxRow, Paint, boxes};

    #[test]
    fn a_plot_becomes_a_png_file_of_twice_its_size() {
        let row = BoxRow {
            label: "millrace".to_owned(),
            paint: Paint::of_system("millrace"),
            values: vec![1.0, 2.0, 3.0],
            note: String::new(),
        };
        let plot = boxes("p", "p", "Mpps", &[row]);
        // A painter without fonts renders everything but text.
        let painter = Painter {
            fonts: Arc::new(fontdb::Database::new()),
        };
        let png = painter.png(&plot, SCALE).unwrap();
        assert_eq!(&png[1..4], b"PNG");
        let size = |at: usize| u32::from_be_bytes(png[at..at + 4].try_into().unwrap());
        assert_eq!(f64::from(size(16)), plot.file_size().0 * 2.0);
        assert_eq!(f64::from(size(20)), plot.file_size().1 * 2.0);
    }
}
