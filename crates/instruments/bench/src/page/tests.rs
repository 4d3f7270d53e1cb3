//! Tests of the page of a fixed set of records: it is complete, well-formed, and needs no other file.

use std::fs;
use std::path::{Path, PathBuf};

use super::*;

fn fixture() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src/page/fixture")
}

fn html() -> String {
    compose(&source::read_folder(&fixture()).unwrap(), "out/bench").html
}

/// Returns the tags in order: the name, and the text between the angle brackets.
fn tags(html: &str) -> Vec<(&str, &str)> {
    html.split('<')
        .skip(1)
        .map(|rest| rest.split_once('>').expect("a tag ends").0)
        .filter(|tag| !tag.starts_with('!'))
        .map(|tag| {
            let name = tag.trim_start_matches('/').split([' ', '/']).next().unwrap();
            (name, tag)
        })
        .collect()
}

/// Returns the visible text: headings, captions, sentences and the rows of tables.
fn outline(html: &str) -> String {
    let mut out = String::new();
    let mut in_plot = false;
    for line in html.lines() {
        in_plot = (in_plot || line.starts_with("<svg")) && !line.contains("</svg>");
        let wanted = [
            "<h",
            "<p",
            "<caption",
            "<figcaption",
            "<summary",
            "<tr",
            "<thead",
            "<li",
            "<pre",
        ];
        if in_plot || !wanted.iter().any(|tag| line.starts_with(tag)) || line.starts_with("<html") {
            continue;
        }
        let (mut text, mut inside) = (String::new(), false);
        for c in line.replace("</td>", " | ").replace("</th>", " | ").chars() {
            match c {
                '<' => inside = true,
                '>' => inside = false,
                c if !inside => text.push(c),
                _ => {}
            }
        }
        let text = text.trim().trim_end_matches('|').trim_end();
        if !text.is_empty() {
            let tag = line[1..].split([' ', '>']).next().unwrap();
            out.push_str(&format!("{tag:<10} {text}\n"));
        }
    }
    out
}

#[test]
fn the_page_has_the_recorded_outline() {
    let path = fixture().join("outline.txt");
    let outline = outline(&html());
    if std::env::var_os("MILLRACE_BLESS").is_some() {
        fs::write(&path, &outline).unwrap();
    }
    let written = fs::read_to_string(&path).unwrap_or_default();
    for (now, before) in outline.lines().zip(written.lines()) {
        assert_eq!(
            now, before,
            "MILLRACE_BLESS=1 cargo test -p millrace-bench page, if that is wanted"
        );
    }
    assert_eq!(outline.lines().count(), written.lines().count());
}

#[test]
fn the_markup_is_sound_and_every_identifier_is_there_once() {
    let html = html();
    let mut open = Vec::new();
    for (name, tag) in tags(&html) {
        if tag.starts_with('/') {
            assert_eq!(open.pop(), Some(name), "closed by {tag}");
        } else if !tag.ends_with('/') && name != "meta" {
            open.push(name);
        }
    }
    assert!(open.is_empty(), "left open: {open:?}");
    let ids: Vec<&str> = html
        .split(" id=\"")
        .skip(1)
        .map(|rest| rest.split('"').next().unwrap())
        .collect();
    for (index, id) in ids.iter().enumerate() {
        assert_eq!(ids.iter().position(|other| other == id), Some(index), "{id}");
    }
    for target in html.split("href=\"#").skip(1) {
        let target = target.split('"').next().unwrap();
        assert!(ids.contains(&target), "{target}");
    }
}

#[test]
fn the_page_needs_no_network_and_runs_no_script() {
    let html = html();
    for foreign in [
        "http:", "https:", "//", "<script", "<link", "<img", "url(", "@import", "src=",
    ] {
        let found = html.match_indices(foreign).next();
        assert!(found.is_none(), "{foreign} at {found:?}");
    }
}

#[test]
fn every_plot_has_a_name_a_description_and_figures_in_words() {
    let html = html();
    let plots: Vec<&str> = html.split("<svg ").skip(1).collect();
    assert!(plots.len() >= 9, "{}", plots.len());
    for plot in plots {
        assert!(plot.starts_with("role=\"img\" aria-labelledby=\""));
        let text = |tag: &str| {
            let rest = plot.split_once(&format!("<{tag} id=")).unwrap().1;
            rest.split_once('>').unwrap().1.split('<').next().unwrap()
        };
        assert!(!text("title").is_empty());
        assert!(text("desc").len() > 20, "{}", text("desc"));
    }
}

#[test]
fn text_of_records_cannot_become_markup() {
    let html = html();
    assert!(html.contains("Example &lt;CPU&gt; &amp; Co"));
    assert!(!html.contains("<CPU>") && !html.contains("<Rx<") && !html.contains("'<exact"));
}

#[test]
fn the_page_and_its_plots_are_written_and_unreadable_lines_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("new/report.html");
    // Rendering takes most of the time without optimisation, and grows with the number of pixels.
    let written = write_scaled(&fixture(), &file, png::SCALE / 8.0).unwrap();
    assert!(fs::read_to_string(&file).unwrap().starts_with("<!doctype html>"));
    let notes = written.notes.join("\n");
    assert!(
        notes.contains("runs.jsonl, line") && notes.contains("`weather`"),
        "{notes}"
    );
    assert!(notes.contains("is incomplete"), "{notes}");
    // A machine without fonts has no PNG files, and a note says so.
    assert!(!written.plots.is_empty() || notes.contains("no font"));
    for plot in &written.plots {
        assert_eq!(&fs::read(plot).unwrap()[1..4], b"PNG");
    }
}

#[test]
fn a_part_of_the_records_makes_a_part_of_the_page() {
    let text = fs::read_to_string(fixture().join("runs.jsonl")).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    for len in 1..lines.len() {
        let sources = source::parse("runs.jsonl", &lines[..len].join("\n"));
        let page = compose(&sources, "x");
        assert!(page.html.ends_with("</html>\n"), "{len} lines");
    }
}
