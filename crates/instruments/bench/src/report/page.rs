//! The page: what was found first, then how it was measured.

use super::html::{details, escape, paragraph, with_verdicts};
use super::plot::{Paint, Plot};
use super::section::{self, Section};
use super::source::Source;

/// A page and the plots that are on it.
pub(super) struct Page {
    pub(super) html: String,
    pub(super) plots: Vec<Plot>,
}

const STYLE: &str = include_str!("style.css");

/// The page of these files, found in the folder `dir`.
pub(super) fn page(sources: &[Source], dir: &str) -> Page {
    let sections: Vec<Section> = section::all(sources);
    let problems: Vec<&String> = sources.iter().flat_map(|source| &source.problems).collect();
    let mut html = String::from(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <title>Millrace beside others: measurements</title>\n<style>\n",
    );
    html.push_str(&colours());
    html.push_str(STYLE);
    html.push_str("</style>\n</head>\n<body>\n<header>\n<h1>Millrace beside others: measurements</h1>\n");
    for lead in sections.iter().filter_map(|section| section.lead.as_ref()) {
        html.push_str(&format!("<p class=\"lead\">{}</p>\n", with_verdicts(lead)));
    }
    html.push_str("<nav aria-label=\"Sections\">\n<ul>\n");
    html.push_str(&contents(&sections));
    html.push_str("</ul>\n</nav>\n");
    if !problems.is_empty() {
        let list: String = problems
            .iter()
            .map(|problem| format!("<li>{}</li>\n", escape(problem)))
            .collect();
        let summary = format!(
            "{} remark(s) on the results: what could not be read, and what is left out",
            problems.len()
        );
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
    html.push_str(&paragraph(&format!(
        "Made by `millrace report` of the records in {dir}. A box spans the middle half of the measurements, \
         with the median as its upright line; whiskers reach the least and the greatest. The coefficient of \
         variation (CV) is the standard deviation over the mean. Absolute figures belong to the machine; \
         compare systems within one run."
    )));
    html.push_str("</footer>\n</body>\n</html>\n");
    Page { html, plots }
}

/// Links to all sections; those of one kind, `KIND: RUN`, share a line.
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

/// The colours, light and dark.
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
