//! Packets a second, case by case: every system that took part, with its spread.

use crate::case;
use crate::page::sections::id;
use crate::page::source::Source;
use crate::page::verdict;
use crate::record::Record;
use millrace_report::Section;
use millrace_report::html::{Cell, commands, details, figure, table};
use millrace_report::plot::{BoxRow, Paint, boxes};
use millrace_report::stats::Summary;

/// A system in a case.
struct Turn {
    system: String,
    /// Million packets a second.
    mpps: Vec<f64>,
    core_share: f64,
    right: bool,
    reason: Option<String>,
}

pub(crate) fn section(source: &Source) -> Option<Section> {
    let mut html = String::new();
    let mut plots = Vec::new();
    for name in cases(source) {
        let turns = turns(source, &name);
        let title = case::find(&name).map_or_else(|| name.clone(), |case| case.title.to_owned());
        let rows: Vec<BoxRow> = turns
            .iter()
            .map(|turn| BoxRow {
                label: turn.system.clone(),
                paint: Paint::of_system(&turn.system),
                values: turn.mpps.clone(),
                note: turn
                    .reason
                    .as_deref()
                    .map_or("not measured", first_line)
                    .to_owned(),
            })
            .collect();
        let missed = verdict::missed(&name, &source.all);
        let titled = verdict::titled(&title, &missed);
        let plot = boxes(&id(source, &name), &titled, "million packets a second", &rows);
        html.push_str(&format!("<h3>{}</h3>\n", millrace_report::html::escape(&title)));
        html.push_str(&verdict::paragraphs(&missed));
        let caption = format!("{title}. 64-byte frames; each system on the same core or cores.");
        html.push_str(&figure(
            &plot,
            &caption,
            &figures(&title, &turns, verdict::of_case(&name, &source.all)),
        ));
        html.push_str(&lookups(source, &name));
        html.push_str(&repeat(source, &name));
        plots.push(plot);
    }
    (!plots.is_empty()).then(|| Section {
        id: id(source, "forward"),
        title: format!("Packets a second: {}", source.id),
        lead: None,
        html,
        plots,
    })
}

/// The cases, in the order in which they were measured.
fn cases(source: &Source) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for record in &source.records {
        let name = match record {
            Record::Sample { case, .. } => case,
            Record::Failed { case, .. } if case::find(case).is_some() => case,
            _ => continue,
        };
        if !names.contains(name) {
            names.push(name.clone());
        }
    }
    names
}

fn turns(source: &Source, of_case: &str) -> Vec<Turn> {
    let mut turns: Vec<Turn> = Vec::new();
    for record in &source.records {
        let (Record::Sample { case, system, .. } | Record::Failed { case, system, .. }) = record else {
            continue;
        };
        if case != of_case {
            continue;
        }
        let place = turns
            .iter()
            .position(|turn| turn.system == *system)
            .unwrap_or_else(|| {
                turns.push(Turn {
                    system: system.clone(),
                    mpps: Vec::new(),
                    core_share: 1.0,
                    right: true,
                    reason: None,
                });
                turns.len() - 1
            });
        let turn = &mut turns[place];
        match record {
            Record::Sample {
                pps,
                core_share,
                right,
                ..
            } => {
                turn.mpps.push(pps.iter().sum::<f64>() / 1e6);
                turn.core_share = turn.core_share.min(*core_share);
                turn.right &= right;
            }
            Record::Failed { reason, .. } => turn.reason = Some(reason.clone()),
            _ => {}
        }
    }
    turns
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}

/// With a verdict on Millrace where something is wanted of it.
fn figures(title: &str, turns: &[Turn], verdict: Option<Option<bool>>) -> String {
    let ours = turns.iter().find(|turn| turn.system == "millrace");
    let ours = ours.and_then(|turn| Some(Summary::of(&turn.mpps)?.median));
    let rows: Vec<Vec<Cell>> = turns
        .iter()
        .map(|turn| {
            let summary = Summary::of(&turn.mpps);
            let of = |value: fn(&Summary) -> f64| Cell::number(summary.as_ref().map(value));
            let times = ours.zip(summary).filter(|(_, summary)| summary.median > 0.0);
            let mut row = vec![
                Cell::head(turn.system.as_str()),
                of(|summary| summary.median),
                of(|summary| summary.min),
                of(|summary| summary.q1),
                of(|summary| summary.q3),
                of(|summary| summary.max),
                Cell::percent(summary.map(|summary| summary.cv)),
                Cell::Number(summary.map_or(0, |summary| summary.len).to_string()),
                Cell::number(times.map(|(ours, summary)| ours / summary.median)),
                Cell::text(notes(turn)),
            ];
            row.extend(verdict::cell(verdict, &turn.system));
            row
        })
        .collect();
    let mut headings = vec![
        "system",
        "#median",
        "#min",
        "#lower quartile",
        "#upper quartile",
        "#max",
        "#CV",
        "#measurements",
        "#Millrace is … times",
        "note",
    ];
    headings.extend(verdict.map(|_| "verdict"));
    table(&format!("{title}: million packets a second"), &headings, &rows)
}

fn notes(turn: &Turn) -> String {
    let mut notes = Vec::new();
    if let Some(reason) = &turn.reason {
        notes.push(first_line(reason).to_owned());
    }
    if !turn.right {
        notes.push("packets left by the wrong port".to_owned());
    }
    if turn.core_share < 0.95 {
        notes.push(format!(
            "disturbed: had {:.0} % of its core",
            turn.core_share * 100.0
        ));
    }
    notes.join("; ")
}

/// What systems said of where their lookups ended.
fn lookups(source: &Source, of_case: &str) -> String {
    let said: Vec<String> = source
        .records
        .iter()
        .filter_map(|record| match record {
            Record::Lookups { case, system, text } if case == of_case => Some(format!("# {system}\n{text}")),
            _ => None,
        })
        .collect();
    if said.is_empty() {
        return String::new();
    }
    details("Where lookups ended, in the systems' own words", &commands(&said))
}

/// How each system was brought up, and what it took to give it its flow entries.
fn repeat(source: &Source, of_case: &str) -> String {
    let mut lines: Vec<String> = Vec::new();
    let mut known: Vec<&str> = Vec::new();
    for record in &source.records {
        let Record::Start {
            case,
            system,
            commands,
            install_s,
            install_bytes,
            flows,
            ..
        } = record
        else {
            continue;
        };
        if case != of_case || known.contains(&system.as_str()) {
            continue;
        }
        known.push(system);
        lines.push(format!("# {system}"));
        // A few entries tell nothing: what grows with the first is not theirs.
        if let Some(seconds) = install_s.filter(|_| *flows >= 1000) {
            let bytes = install_bytes.map_or_else(String::new, |bytes| {
                format!(", {:.0} bytes each", bytes as f64 / *flows as f64)
            });
            lines.push(format!("# {flows} flow entries in {seconds:.2} s{bytes}"));
        }
        lines.extend(commands.iter().cloned());
    }
    let repeat = format!("millrace bench forward --case {of_case}");
    lines.insert(0, repeat);
    lines.insert(0, "# the whole case again".to_owned());
    details("How to repeat it", &commands(&lines))
}
