//! The elements of the page. All text is escaped here.

use std::fmt::Write as _;

pub use super::escape::escape;
use super::plot::Plot;

/// A cell of a table.
#[derive(Debug, Clone, PartialEq)]
pub enum Cell {
    /// The name of the row.
    Head(String),
    /// Left-aligned text.
    Text(String),
    /// A right-aligned number.
    Number(String),
    /// True if a target is met; `None` if it was not measured.
    Verdict(Option<bool>),
}

impl Cell {
    /// Returns a cell that names its row.
    pub fn head(text: impl Into<String>) -> Cell {
        Cell::Head(text.into())
    }

    /// Returns a cell with left-aligned text.
    pub fn text(text: impl Into<String>) -> Cell {
        Cell::Text(text.into())
    }

    /// Returns a cell with a number; a dash for `None`.
    pub fn number(value: Option<f64>) -> Cell {
        Cell::Number(value.map_or_else(|| "–".to_owned(), super::plot::number))
    }

    /// Returns a cell with a share from 0 to 1 in percent; a dash for `None`.
    pub fn percent(share: Option<f64>) -> Cell {
        Cell::Number(share.map_or_else(
            || "–".to_owned(),
            |share| format!("{} %", super::plot::number((share * 1e5).round() / 1e3)),
        ))
    }

    fn html(&self) -> String {
        match self {
            // Only names of several words may be broken into lines.
            Cell::Head(text) if text.contains(' ') => {
                format!("<th scope=\"row\" class=\"words\">{}</th>", escape(text))
            }
            Cell::Head(text) => format!("<th scope=\"row\">{}</th>", escape(text)),
            Cell::Text(text) => format!("<td>{}</td>", escape(text)),
            Cell::Number(text) => format!("<td class=\"n\">{}</td>", escape(text)),
            Cell::Verdict(met) => format!("<td>{}</td>", verdict(*met)),
        }
    }
}

/// Returns text with `NOT MET` marked up as in a table.
pub fn with_verdicts(text: &str) -> String {
    escape(text).replace("NOT MET", verdict(Some(false)))
}

/// Returns a verdict as a word, so that it does not depend on its colour.
pub fn verdict(met: Option<bool>) -> &'static str {
    match met {
        Some(true) => "<strong class=\"good\">met</strong>",
        Some(false) => "<strong class=\"bad\">NOT MET</strong>",
        None => "<span class=\"soft\">not measured</span>",
    }
}

/// Returns a table that scrolls horizontally on a narrow screen. A heading that begins with `#` is right-aligned for
/// numbers. A row with a missed target is highlighted.
pub fn table(caption: &str, headings: &[&str], rows: &[Vec<Cell>]) -> String {
    let mut out = format!(
        "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"{0}\">\n<table>\n<caption>{0}</caption>\n<thead><tr>",
        escape(caption)
    );
    for heading in headings {
        // Writing to a string does not fail.
        let _ = match heading.strip_prefix('#') {
            Some(heading) => write!(out, "<th scope=\"col\" class=\"n\">{}</th>", escape(heading)),
            None => write!(out, "<th scope=\"col\">{}</th>", escape(heading)),
        };
    }
    out.push_str("</tr></thead>\n<tbody>\n");
    for row in rows {
        let missed = row.contains(&Cell::Verdict(Some(false)));
        out.push_str(if missed { "<tr class=\"missed\">" } else { "<tr>" });
        row.iter().for_each(|cell| out.push_str(&cell.html()));
        out.push_str("</tr>\n");
    }
    out.push_str("</tbody>\n</table>\n</div>\n");
    out
}

/// Returns a plot with a caption and a collapsible table of its values.
pub fn figure(plot: &Plot, caption: &str, table: &str) -> String {
    format!(
        "<figure id=\"{id}\">\n<div class=\"plot\">\n{}</div>\n<figcaption>{} <a href=\"{id}.png\" class=\"soft\">PNG</a></figcaption>\n</figure>\n{}",
        plot.inline(),
        escape(caption),
        if table.is_empty() {
            String::new()
        } else {
            details("The figures as a table", table)
        },
        id = plot.id,
    )
}

/// Returns a collapsible element.
pub fn details(summary: &str, inner: &str) -> String {
    format!(
        "<details>\n<summary>{}</summary>\n{inner}</details>\n",
        escape(summary)
    )
}

/// Returns a block of command lines.
pub fn commands<S: AsRef<str>>(lines: &[S]) -> String {
    let lines: Vec<String> = lines.iter().map(|line| escape(line.as_ref())).collect();
    format!("<pre tabindex=\"0\"><code>{}</code></pre>\n", lines.join("\n"))
}

/// Returns a paragraph.
pub fn paragraph(text: &str) -> String {
    format!("<p>{}</p>\n", escape(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_records_never_becomes_markup() {
        let html = table(
            "<b>",
            &["#a\"b"],
            &[vec![Cell::text("<script>alert('x')</script>\u{1b}")]],
        );
        assert!(!html.contains("<script") && !html.contains("<b>"), "{html}");
        assert!(html.contains("a&quot;b") && html.contains('\u{fffd}'));
    }

    #[test]
    fn a_verdict_is_a_word() {
        assert!(Cell::Verdict(Some(false)).html().contains("NOT MET"));
        assert!(Cell::Verdict(Some(true)).html().contains(">met<"));
        assert!(Cell::Verdict(None).html().contains("not measured"));
        let rows = [Some(true), Some(false)].map(|met| vec![Cell::Verdict(met)]);
        assert_eq!(
            table("t", &["verdict"], &rows)
                .matches("<tr class=\"missed\">")
                .count(),
            1
        );
        assert_eq!(
            with_verdicts("2 < 3, 1 NOT MET."),
            "2 &lt; 3, 1 <strong class=\"bad\">NOT MET</strong>."
        );
        assert_eq!(
            Cell::percent(Some(0.123_456)).html(),
            "<td class=\"n\">12.3 %</td>"
        );
        assert_eq!(Cell::number(None).html(), "<td class=\"n\">–</td>");
    }
}
