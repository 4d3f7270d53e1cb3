//! What was wanted, and what was reached.

use super::{Section, id};
use crate::case::{self, Against, CASES, Case};
use crate::record::Record;
use crate::report::html::{Cell, figure, paragraph, table};
use crate::report::plot::{RatioRow, ratios};
use crate::report::source::Source;
use crate::table::{Outcome, outcomes};

pub(super) fn section(source: &Source) -> Option<Section> {
    let measured: Vec<&Case> = names(source).into_iter().filter_map(case::find).collect();
    let all: Vec<(&Case, Outcome)> = measured
        .iter()
        .flat_map(|case| {
            outcomes(case, &source.file)
                .into_iter()
                .map(move |outcome| (*case, outcome))
        })
        .collect();
    if all.is_empty() {
        return None;
    }
    // Of the other experiments, a run has all cases, or those that were asked for.
    let is_forward = source.head().is_some_and(|head| head.experiment == "forward");
    let left_out: Vec<&Case> = CASES
        .iter()
        .filter(|case| is_forward && measured.iter().all(|known| known.name != case.name))
        .collect();
    let rows: Vec<Vec<Cell>> = all
        .iter()
        .map(|(case, outcome)| {
            vec![
                Cell::head(case.title),
                Cell::text(outcome.target.to_string()),
                Cell::number(outcome.reached),
                Cell::Verdict(outcome.met()),
            ]
        })
        .collect();
    let table = table(
        "What Millrace must reach, as ratios of medians measured in one run",
        &["case", "wanted: at least", "#reached", "verdict"],
        &rows,
    );
    let marks: Vec<RatioRow> = all
        .iter()
        .map(|(case, outcome)| RatioRow {
            label: case.name.to_owned(),
            to: to(outcome.target.against),
            reached: outcome.reached,
            wanted: outcome.target.at_least,
        })
        .collect();
    let plot = ratios(
        &id(source, "ratios"),
        "Ratios of Millrace to others, and what is wanted",
        &marks,
    );
    let mut html = table;
    html.push_str(&figure(&plot, "Reached and wanted; the axis is logarithmic.", ""));
    if !left_out.is_empty() {
        let names: Vec<&str> = left_out.iter().map(|case| case.name).collect();
        html.push_str(&paragraph(&format!("Not in this run: {}.", names.join(", "))));
    }
    Some(Section {
        id: id(source, "acceptance"),
        title: format!("Targets: {}", source.id),
        lead: Some(lead(source, &all)),
        html,
        plots: vec![plot],
    })
}

/// The cases of the run, in order.
fn names(source: &Source) -> Vec<&str> {
    let mut names: Vec<&str> = Vec::new();
    for record in &source.records {
        if let Record::Sample { case, .. } | Record::Failed { case, .. } = record
            && !names.contains(&case.as_str())
        {
            names.push(case);
        }
    }
    names
}

fn titled(id: &str) -> String {
    let mut chars = id.chars();
    chars
        .next()
        .map_or_else(String::new, |first| first.to_uppercase().chain(chars).collect())
}

fn to(against: Against) -> String {
    match against {
        Against::Ovs => "to OVS-DPDK, the better".to_owned(),
        Against::OvsShipped => "to OVS-DPDK as shipped".to_owned(),
        Against::OvsTuned => "to OVS-DPDK, tuned".to_owned(),
        Against::Testpmd => "to testpmd io".to_owned(),
        Against::Own(case) => format!("to our {}", case::find(case).map_or(case, |case| case.name)),
    }
}

fn lead(source: &Source, all: &[(&Case, Outcome)]) -> String {
    let count = |wanted: Option<bool>| all.iter().filter(|(_, outcome)| outcome.met() == wanted).count();
    let (met, missed, unknown) = (count(Some(true)), count(Some(false)), count(None));
    let mut text = format!("{}: {met} of {} targets met", titled(&source.id), all.len());
    if missed > 0 {
        text.push_str(&format!(", {missed} NOT MET"));
    }
    if unknown > 0 {
        text.push_str(&format!(", {unknown} not measured"));
    }
    text + "."
}
