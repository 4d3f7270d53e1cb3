//! The page: findings first, then the sections.

use crate::html::{details, escape, paragraph, with_verdicts};
use crate::plot::{Paint, Plot};

/// A section of the page.
#[derive(Debug, Clone, PartialEq)]
pub struct Section {
    /// The anchor, unique on the page.
    pub id: String,
    /// The heading. Sections whose headings `KIND: RUN` have the same kind share a line of the contents.
    pub title: String,
    /// The finding: a sentence for the top of the page.
    pub lead: Option<String>,
    /// The body, as HTML.
    pub html: String,
    /// The plots of the body. They are also written to files.
    pub plots: Vec<Plot>,
}

/// The content of a page.
#[derive(Debug, Clone, Copy)]
pub struct Document<'a> {
    /// The heading of the page.
    pub title: &'a str,
    /// Remarks on the records, such as lines that cannot be read.
    pub remarks: &'a [String],
    /// The last paragraph: the origin of the page, and how to read it.
    pub footer: &'a str,
}

/// A page with its plots.
pub struct Page {
    /// The HTML document.
    pub html: String,
    /// The plots of all sections.
    pub plots: Vec<Plot>,
}

const STYLE: &str = include_str!("style.css");

/// Returns the page with these sections, in this order.
pub fn page(document: &Document<'_>, sections: Vec<Section>) -> Page {
    let title = escape(document.title);
    let mut html = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <title>{title}</title>\n<style>\n",
    );
    html.push_str(&colours());
    html.push_str(STYLE);
    html.push_str(&format!(
        "</style>\n</head>\n<body>\n<header>\n<h1>{title}</h1>\n"
    ));
    for lead in sections.iter().filter_map(|section| section.lead.as_ref()) {
        html.push_str(&format!("<p class=\"lead\">{}</p>\n", with_verdicts(lead)));
    }
    html.push_str("<nav aria-label=\"Sections\">\n<ul>\n");
    html.push_str(&contents(&sections));
    html.push_str("</ul>\n</nav>\n");
    if !document.remarks.is_empty() {
        let list: String = document
            .remarks
            .iter()
            .map(|remark| format!("<li>{}</li>\n", escape(remark)))
            .collect();
        let summary = match document.remarks.len() {
            1 => "1 remark on the results".to_owned(),
            len => format!("{len} remarks on the results"),
        };
        html.push_str(&details(&summary, &format!("<ul>\n{list}</ul>\n")));
    }
    html.push_str("</header>\n<main>\n");
    let mut plots = Vec::new();
    for section in sections {
        html.push_str(&format!(
            "<section aria-labelledby=\"{id}\">\n<h2 id=\"{id}\">{}</h2>\n{}</section>\n",
            escape(&section.title),
            section.html,
            id = section.id,
        ));
        plots.extend(section.plots);
    }
    html.push_str("</main>\n<footer>\n");
    html.push_str(&paragraph(document.footer));
    html.push_str("</footer>\n</body>\n</html>\n");
    Page { html, plots }
}

/// Returns links to all sections. Sections of one kind, `KIND: RUN`, share a line.
fn contents(sections: &[Section]) -> String {
    let mut kinds: Vec<(&str, Vec<(&str, &Section)>)> = Vec::new();
    for section in sections {
        let (kind, run) = section.title.split_once(": ").unwrap_or((&section.title, ""));
        match kinds.iter_mut().find(|known| known.0 == kind) {
            Some(known) => known.1.push((run, section)),
            None => kinds.push((kind, vec![(run, section)])),
        }
    }
    let link = |text: &str, section: &Section| {
        let title = escape(&section.title);
        format!(
            "<a href=\"#{}\" aria-label=\"{title}\">{}</a>",
            section.id,
            escape(text)
        )
    };
    let item = |(kind, of_kind): (&str, Vec<(&str, &Section)>)| match of_kind.as_slice() {
        [(_, only)] => format!("<li>{}</li>\n", link(&only.title, only)),
        _ => {
            let runs: Vec<String> = of_kind.iter().map(|(run, section)| link(run, section)).collect();
            format!("<li>{}: {}</li>\n", escape(kind), runs.join(", "))
        }
    };
    kinds.into_iter().map(item).collect()
}

/// Returns the style sheet of the colours, light and dark.
fn colours() -> String {
    let set = |shade: fn(Paint) -> &'static str| -> String {
        Paint::all()
            .map(|paint| format!("--{}:{};", paint.name(), shade(paint)))
            .collect()
    };
    format!(
        ":root{{color-scheme:light dark;{}}}\n@media (prefers-color-scheme:dark){{:root{{{}}}}}\n",
        set(Paint::light),
        set(Paint::dark)
    )
}
