//! A drawing, which is built element by element.

use std::fmt::Write as _;

use super::{FONT, Paint, WIDTH};
use crate::escape::escape;

/// The space above and below the title in a file, and the height of a line of the title.
const HEAD: f64 = 11.0;
const HEAD_LINE: f64 = 19.0;
/// The font size of the title.
const HEAD_FONT: f64 = 15.0;

/// A drawing with a title and a description.
#[derive(Debug, Clone, PartialEq)]
pub struct Plot {
    /// The name, of letters, digits and hyphens: the name of the PNG file, unique on the page.
    pub id: String,
    pub title: String,
    /// The description for readers who cannot see the plot.
    pub description: String,
    height: f64,
    body: String,
}

/// The part of a text that is drawn at the given position.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

/// A coordinate, rounded to a tenth of a unit, which is finer than any screen.
struct Coordinate(f64);

impl std::fmt::Display for Coordinate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let rounded = (self.0 * 10.0).round() / 10.0;
        // The result must not be a negative zero.
        write!(f, "{}", if rounded == 0.0 { 0.0 } else { rounded })
    }
}

impl Plot {
    pub(super) fn new(id: &str, title: &str, height: f64) -> Plot {
        Plot {
            id: id.to_owned(),
            title: title.to_owned(),
            description: String::new(),
            height,
            body: String::new(),
        }
    }

    /// Returns the approximate width of a text, which is rather too large than too small. The width does not
    /// depend on a font.
    pub(super) fn text_width(text: &str, size: f64) -> f64 {
        text.chars().count() as f64 * size * 0.58
    }

    /// Returns the part of a text that fits into `width`, with an ellipsis if something is cut off.
    pub(super) fn fitted(text: &str, width: f64, size: f64) -> String {
        if Plot::text_width(text, size) <= width {
            return text.to_owned();
        }
        let fits = (width / (size * 0.58)).max(1.0) as usize;
        let head: String = text.chars().take(fits - 1).collect();
        format!("{}…", head.trim_end())
    }

    /// Draws a text. A centred text near the right edge is moved to the left until it fits.
    pub(super) fn text(&mut self, at: (f64, f64), anchor: Anchor, paint: Paint, size: f64, text: &str) {
        let end = WIDTH - Plot::text_width(text, size) / 2.0;
        let at = match anchor {
            Anchor::Middle => (at.0.min(end), at.1),
            Anchor::Start | Anchor::End => at,
        };
        let anchor = match anchor {
            Anchor::Start => "",
            Anchor::Middle => r#" text-anchor="middle""#,
            Anchor::End => r#" text-anchor="end""#,
        };
        let size = if size == FONT {
            String::new()
        } else {
            format!(r#" font-size="{}""#, Coordinate(size))
        };
        // Writing to a string does not fail.
        let _ = writeln!(
            self.body,
            r#"<text x="{}" y="{}"{anchor}{size} fill="{}">{}</text>"#,
            Coordinate(at.0),
            Coordinate(at.1),
            paint.css(),
            escape(text)
        );
    }

    pub(super) fn line(&mut self, from: (f64, f64), to: (f64, f64), paint: Paint, width: f64) {
        let _ = writeln!(
            self.body,
            r#"<line x1="{}" y1="{}" x2="{}" y2="{}" stroke="{}" stroke-width="{}"/>"#,
            Coordinate(from.0),
            Coordinate(from.1),
            Coordinate(to.0),
            Coordinate(to.1),
            paint.css(),
            Coordinate(width)
        );
    }

    /// Draws a rectangle with an outline. `at` is the upper left corner, `opacity` is the opacity of the
    /// inside, 0 to 1, and `tip` is the tooltip.
    pub(super) fn rect(&mut self, at: (f64, f64), size: (f64, f64), paint: Paint, opacity: f64, tip: &str) {
        let paint = paint.css();
        let _ = writeln!(
            self.body,
            r#"<rect x="{}" y="{}" width="{}" height="{}" fill="{paint}" fill-opacity="{opacity}" stroke="{paint}">{}</rect>"#,
            Coordinate(at.0),
            Coordinate(at.1),
            Coordinate(size.0.max(0.0)),
            Coordinate(size.1.max(0.0)),
            tip_of(tip)
        );
    }

    /// Draws a rectangle without an outline.
    pub(super) fn block(&mut self, at: (f64, f64), size: (f64, f64), paint: Paint, opacity: f64, tip: &str) {
        let _ = writeln!(
            self.body,
            r#"<rect x="{}" y="{}" width="{}" height="{}" fill="{}" fill-opacity="{opacity}">{}</rect>"#,
            Coordinate(at.0),
            Coordinate(at.1),
            Coordinate(size.0.max(0.0)),
            Coordinate(size.1.max(0.0)),
            paint.css(),
            tip_of(tip)
        );
    }

    pub(super) fn dot(&mut self, at: (f64, f64), radius: f64, paint: Paint, opacity: f64, tip: &str) {
        let _ = writeln!(
            self.body,
            r#"<circle cx="{}" cy="{}" r="{}" fill="{}" fill-opacity="{opacity}">{}</circle>"#,
            Coordinate(at.0),
            Coordinate(at.1),
            Coordinate(radius),
            paint.css(),
            tip_of(tip)
        );
    }

    pub(super) fn polyline(
        &mut self,
        points: &[(f64, f64)],
        paint: Paint,
        width: f64,
        opacity: f64,
        tip: &str,
    ) {
        let _ = writeln!(
            self.body,
            r#"<polyline points="{}" fill="none" stroke="{}" stroke-width="{}" stroke-opacity="{opacity}" stroke-linejoin="round">{}</polyline>"#,
            joined(points),
            paint.css(),
            Coordinate(width),
            tip_of(tip)
        );
    }

    /// Draws a dashed line.
    pub(super) fn dashes(&mut self, points: &[(f64, f64)], paint: Paint, width: f64, tip: &str) {
        let _ = writeln!(
            self.body,
            r#"<polyline points="{}" fill="none" stroke="{}" stroke-width="{}" stroke-dasharray="6 4">{}</polyline>"#,
            joined(points),
            paint.css(),
            Coordinate(width),
            tip_of(tip)
        );
    }

    /// Draws an area without an outline.
    pub(super) fn area(&mut self, points: &[(f64, f64)], paint: Paint, opacity: f64) {
        let _ = writeln!(
            self.body,
            r#"<polygon points="{}" fill="{}" fill-opacity="{opacity}"/>"#,
            joined(points),
            paint.css()
        );
    }

    /// Draws a polygon with an outline; `inside` is the colour of its area.
    pub(super) fn shape(&mut self, points: &[(f64, f64)], inside: Paint, paint: Paint, tip: &str) {
        let _ = writeln!(
            self.body,
            r#"<polygon points="{}" fill="{}" stroke="{}" stroke-width="1.4">{}</polygon>"#,
            joined(points),
            inside.css(),
            paint.css(),
            tip_of(tip)
        );
    }

    /// Returns the SVG element for the page. The element has no size, because the style sheet determines it.
    pub fn inline(&self) -> String {
        let id = &self.id;
        format!(
            "<svg role=\"img\" aria-labelledby=\"{id}-t {id}-d\" viewBox=\"0 0 {} {}\" \
             font-size=\"{FONT}\">\n<title id=\"{id}-t\">{}</title>\n<desc id=\"{id}-d\">{}</desc>\n{}</svg>\n",
            Coordinate(WIDTH),
            Coordinate(self.height),
            escape(&self.title),
            escape(&self.description),
            self.body
        )
    }

    /// Returns the width and height of the file in units.
    pub fn file_size(&self) -> (f64, f64) {
        (WIDTH, self.height + self.head())
    }

    /// Returns the height of the title in a file.
    fn head(&self) -> f64 {
        HEAD + HEAD_LINE * wrapped(&self.title).len() as f64
    }

    /// Returns an SVG file with a white background, and with the title above the plot.
    pub fn file(&self) -> String {
        let mut body = self.body.clone();
        for paint in Paint::all() {
            body = body.replace(&paint.css(), paint.light());
        }
        let mut title = String::new();
        for (index, line) in wrapped(&self.title).iter().enumerate() {
            let _ = writeln!(
                title,
                "<text x=\"8\" y=\"{}\" font-size=\"{HEAD_FONT}\" font-weight=\"bold\" fill=\"{}\">{}</text>",
                Coordinate(HEAD_LINE * (index as f64 + 1.0) + 1.0),
                Paint::Ink.light(),
                escape(line)
            );
        }
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{w}\" height=\"{h}\" viewBox=\"0 0 {w} {h}\" \
             font-family=\"sans-serif\" font-size=\"{FONT}\">\n<title>{}</title>\n<desc>{}</desc>\n\
             <rect width=\"{w}\" height=\"{h}\" fill=\"{}\"/>\n\
             {title}<g transform=\"translate(0 {head})\">\n{body}</g>\n</svg>\n",
            escape(&self.title),
            escape(&self.description),
            Paint::Paper.light(),
            head = Coordinate(self.head()),
            w = Coordinate(WIDTH),
            h = Coordinate(self.file_size().1),
        )
    }
}

/// Returns points in the syntax of SVG.
fn joined(points: &[(f64, f64)]) -> String {
    let points: Vec<String> = points
        .iter()
        .map(|(x, y)| format!("{},{}", Coordinate(*x), Coordinate(*y)))
        .collect();
    points.join(" ")
}

/// Breaks a title into lines that fit. The title is bold, so its letters are wider.
fn wrapped(title: &str) -> Vec<String> {
    let fits = ((WIDTH - 16.0) / (HEAD_FONT * 0.66)) as usize;
    let mut lines: Vec<String> = vec![String::new()];
    for word in title.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.is_empty() => line.push_str(word),
            Some(line) if line.chars().count() + 1 + word.chars().count() <= fits => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

fn tip_of(tip: &str) -> String {
    if tip.is_empty() {
        String::new()
    } else {
        format!("<title>{}</title>", escape(tip))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_no_variables_and_the_page_no_fixed_colours() {
        let mut plot = Plot::new("x", "A & B", 10.0);
        plot.text((1.25, -0.01), Anchor::End, Paint::Ink, FONT, "<1>");
        plot.rect((0.0, 0.0), (-3.0, 2.0), Paint::Series(9), 0.5, "tip");
        let (inline, file) = (plot.inline(), plot.file());
        assert!(
            !file.contains("var(") && !inline.contains('#'),
            "{file}\n{inline}"
        );
        assert!(inline.contains("&lt;1&gt;") && inline.contains("A &amp; B"));
        assert!(inline.contains(r#"x="1.3" y="0""#), "{inline}");
        assert!(inline.contains(r#"width="0""#) && inline.contains("<title>tip</title>"));
    }

    #[test]
    fn a_long_title_has_more_lines_and_the_file_room_for_them() {
        let short = Plot::new("x", "one rule, one flow", 10.0);
        let words = "10,000-rule access list, benign packets, of 32,768 flows";
        let long = Plot::new("x", words, 10.0);
        assert_eq!(long.file_size().1 - short.file_size().1, HEAD_LINE);
        assert_eq!(wrapped(words).join(" "), words);
        assert_eq!(long.file().matches("font-weight").count(), 2);
    }

    #[test]
    fn no_text_is_cut_off_at_the_right() {
        let mut plot = Plot::new("x", "x", 10.0);
        plot.text((WIDTH - 2.0, 5.0), Anchor::Middle, Paint::Ink, 10.0, "12345");
        assert!(plot.inline().contains(r#"x="545.5""#), "{}", plot.inline());
        assert_eq!(Plot::fitted("as it is", 60.0, 10.0), "as it is");
        assert_eq!(Plot::fitted("too long to fit", 60.0, 10.0), "too long…");
    }
}
