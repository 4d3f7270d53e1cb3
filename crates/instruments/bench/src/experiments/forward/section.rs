//! The section of a forwarding experiment: packets per second of every system, case by case, with quartiles.

use super::CORE_SHARE_MIN;
use crate::case;
use crate::page::source::Source;
use crate::page::verdict;
use crate::record::Record;
use millrace_report::Section;
use millrace_report::html::{Cell, commands, details, figure, table};
use millrace_report::plot::{BoxRow, Paint, boxes};
use millrace_report::stats::Summary;

/// The measurements of a system in a case.
struct SystemResult {
    system: String,
    /// Million packets per second, one for each measurement.
    mpps: Vec<f64>,
    core_share: f64,
    right: bool,
    reason: Option<String>,
}

/// Returns the section; `None` if the run has no rates of packets.
pub(crate) fn section(source: &Source) -> Option<Section> {
    let mut html = String::new();
    let mut plots = Vec::new();
    for name in cases(source) {
        let results = results(source, &name);
        let title = case::find(&name).map_or_else(|| name.clone(), |case| case.title.to_owned());
        let rows: Vec<BoxRow> = results
            .iter()
            .map(|result| BoxRow {
                label: result.system.clone(),
                paint: Paint::of_system(&result.system),
                values: result.mpps.clone(),
                note: result
                    .reason
                    .as_deref()
                    .map_or("not measured", first_line)
                    .to_owned(),
            })
            .collect();
        let missed = verdict::missed(&name, &source.all);
        let titled = verdict::titled(&title, &missed);
        let plot = boxes(&source.anchor(&name), &titled, "million packets a second", &rows);
        html.push_str(&format!("<h3>{}</h3>\n", millrace_report::html::escape(&title)));
        html.push_str(&verdict::paragraphs(&missed));
        let caption = format!("{title}. 64-byte frames; each system on the same core or cores.");
        html.push_str(&figure(
            &plot,
            &caption,
            &figures(&title, &results, verdict::of_case(&name, &source.all)),
        ));
        html.push_str(&lookups(source, &name));
        html.push_str(&repeat(source, &name));
        plots.push(plot);
    }
    (!plots.is_empty()).then(|| Section {
        id: source.anchor("forward"),
        title: format!("Packets a second: {}", source.id),
        lead: None,
        html,
        plots,
    })
}

/// Returns the cases, in the order of measurement.
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

/// Returns the measurements of each system in a case.
fn results(source: &Source, of_case: &str) -> Vec<SystemResult> {
    let mut results: Vec<SystemResult> = Vec::new();
    for record in &source.records {
        let (Record::Sample { case, system, .. } | Record::Failed { case, system, .. }) = record else {
            continue;
        };
        if case != of_case {
            continue;
        }
        let index = results
            .iter()
            .position(|result| result.system == *system)
            .unwrap_or_else(|| {
                results.push(SystemResult {
                    system: system.clone(),
                    mpps: Vec::new(),
                    core_share: 1.0,
                    right: true,
                    reason: None,
                });
                results.len() - 1
            });
        let result = &mut results[index];
        match record {
            Record::Sample {
                pps,
                core_share,
                right,
                ..
            } => {
                result.mpps.push(pps.iter().sum::<f64>() / 1e6);
                result.core_share = result.core_share.min(*core_share);
                result.right &= right;
            }
            Record::Failed { reason, .. } => result.reason = Some(reason.clone()),
            _ => {}
        }
    }
    results
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}

/// Returns the table of a case, with a verdict on Millrace if the case has targets.
fn figures(title: &str, results: &[SystemResult], verdict: Option<Option<bool>>) -> String {
    let ours = results.iter().find(|result| result.system == "millrace");
    let ours = ours.and_then(|result| Some(Summary::of(&result.mpps)?.median));
    let rows: Vec<Vec<Cell>> = results
        .iter()
        .map(|result| {
            let summary = Summary::of(&result.mpps);
            let of = |value: fn(&Summary) -> f64| Cell::number(summary.as_ref().map(value));
            let times = ours.zip(summary).filter(|(_, summary)| summary.median > 0.0);
            let mut row = vec![
                Cell::head(result.system.as_str()),
                of(|summary| summary.median),
                of(|summary| summary.min),
                of(|summary| summary.q1),
                of(|summary| summary.q3),
                of(|summary| summary.max),
                Cell::percent(summary.map(|summary| summary.cv)),
                Cell::Number(summary.map_or(0, |summary| summary.len).to_string()),
                Cell::number(times.map(|(ours, summary)| ours / summary.median)),
                Cell::text(notes(result)),
            ];
            row.extend(verdict::cell(verdict, &result.system));
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

/// Returns the notes on a system: failure, wrong ports, disturbance.
fn notes(result: &SystemResult) -> String {
    let mut notes = Vec::new();
    if let Some(reason) = &result.reason {
        notes.push(first_line(reason).to_owned());
    }
    if !result.right {
        notes.push("packets left by the wrong port".to_owned());
    }
    if result.core_share < CORE_SHARE_MIN {
        notes.push(format!(
            "disturbed: got {:.0} % of its core",
            result.core_share * 100.0
        ));
    }
    notes.join("; ")
}

/// Returns the lookup statistics of the systems in a case.
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
    details("Lookup statistics, as the systems print them", &commands(&said))
}

/// Returns the commands that started each system, and the duration of the installation of flow entries.
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
        // With few entries, the growth of the process is not the memory of the entries.
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
    lines.insert(0, "# the whole case".to_owned());
    details("How to repeat it", &commands(&lines))
}
