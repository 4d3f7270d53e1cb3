//! The targets of Millrace, and the measured values.

use crate::case::{self, Baseline, CASES, Case};
use crate::figure;
use crate::page::source::Source;
use crate::page::verdict::OURS;
use crate::record::Record;
use crate::table::{INCOMPLETE, Outcome, outcomes};
use millrace_report::Section;
use millrace_report::html::{Cell, figure, paragraph, table};
use millrace_report::plot::{Plot, RatioRow, ratios};

/// A target of Millrace.
struct TargetRow {
    of: &'static str,
    target: String,
    reached: Option<f64>,
    met: Option<bool>,
    /// The reason why the measured value does not count; empty if it counts.
    note: String,
}

/// Returns the section; `None` if the run has no targets.
pub(super) fn section(source: &Source) -> Option<Section> {
    let measured: Vec<&Case> = names(source).into_iter().filter_map(case::find).collect();
    let all: Vec<(&Case, Outcome)> = measured
        .iter()
        .flat_map(|case| {
            outcomes(case, &source.all)
                .into_iter()
                .map(move |outcome| (*case, outcome))
        })
        .collect();
    let wanted: Vec<TargetRow> = all
        .iter()
        .map(|(case, outcome)| TargetRow {
            of: case.title,
            target: format!("at least {}", outcome.target),
            reached: outcome.reached,
            met: outcome.met(),
            note: outcome.flaws(),
        })
        .chain(quantities(source))
        .collect();
    if wanted.is_empty() {
        return None;
    }
    let has_notes = wanted.iter().any(|wanted| !wanted.note.is_empty());
    let rows: Vec<Vec<Cell>> = wanted
        .iter()
        .map(|wanted| {
            let mut cells = vec![
                // The verdict is the first column, so that it is visible on a narrow screen.
                Cell::Verdict(wanted.met),
                Cell::head(wanted.of),
                Cell::text(wanted.target.as_str()),
                Cell::number(wanted.reached),
            ];
            cells.extend(has_notes.then(|| Cell::text(wanted.note.as_str())));
            cells
        })
        .collect();
    let mut html = table(
        "The targets of Millrace: medians, and ratios of medians measured in one run",
        &["verdict", "what", "wanted", "#reached", "note"][..4 + usize::from(has_notes)],
        &rows,
    );
    let mut plots = Vec::new();
    if !all.is_empty() {
        let plot = plot(source, &all);
        html.push_str(&figure(
            &plot,
            "Measured and target; the axis is logarithmic.",
            "",
        ));
        plots.push(plot);
    }
    // Only for `forward` are missing cases named: runs of other experiments have all their cases, or those
    // that were asked for.
    let is_forward = source.header().is_some_and(|head| head.experiment == "forward");
    let left_out: Vec<&str> = CASES
        .iter()
        .map(|case| case.name)
        .filter(|name| is_forward && measured.iter().all(|known| known.name != *name))
        .collect();
    if !left_out.is_empty() {
        html.push_str(&paragraph(&format!("Not in this run: {}.", left_out.join(", "))));
    }
    Some(Section {
        id: source.anchor("acceptance"),
        title: format!("Targets: {}", source.id),
        lead: Some(lead(source, &wanted)),
        html,
        plots,
    })
}

/// Returns the targets of quantities that were measured or failed.
fn quantities(source: &Source) -> impl Iterator<Item = TargetRow> {
    figure::all().filter_map(|wanted| {
        let target = wanted.target()?;
        let reached = wanted.aggregate(&wanted.values(&source.records, OURS));
        let failure = wanted.failure(&source.records, OURS);
        (reached.is_some() || failure.is_some()).then(|| TargetRow {
            of: wanted.title,
            target,
            reached,
            met: wanted.verdict(&source.records, OURS),
            note: failure.map_or_else(String::new, |reason| {
                let reason = reason.lines().next().unwrap_or_default();
                match reached {
                    Some(_) => format!("{INCOMPLETE}: {reason}"),
                    None => reason.to_owned(),
                }
            }),
        })
    })
}

/// Returns the plot of the ratios and their targets.
fn plot(source: &Source, all: &[(&Case, Outcome)]) -> Plot {
    let marks: Vec<RatioRow> = all
        .iter()
        .map(|(case, outcome)| RatioRow {
            label: case.name.to_owned(),
            to: baseline_text(outcome.target.baseline),
            reached: outcome.reached,
            wanted: outcome.target.at_least,
        })
        .collect();
    ratios(
        &source.anchor("ratios"),
        "Ratios of Millrace to others, and their targets",
        &marks,
    )
}

/// Returns the names of the cases of the run, in the order of the records.
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

fn capitalized(id: &str) -> String {
    let mut chars = id.chars();
    chars
        .next()
        .map_or_else(String::new, |first| first.to_uppercase().chain(chars).collect())
}

fn baseline_text(baseline: Baseline) -> String {
    match baseline {
        Baseline::Ovs => "to OVS-DPDK, the better".to_owned(),
        Baseline::OvsShipped => "to OVS-DPDK as shipped".to_owned(),
        Baseline::OvsTuned => "to OVS-DPDK, tuned".to_owned(),
        Baseline::Testpmd => "to testpmd io".to_owned(),
        Baseline::Before => "to the build before".to_owned(),
        Baseline::Own(case) => format!("to our {}", case::find(case).map_or(case, |case| case.name)),
    }
}

/// Returns the numbers of met, missed and unmeasured targets in a sentence.
fn lead(source: &Source, wanted: &[TargetRow]) -> String {
    let count = |met: Option<bool>| wanted.iter().filter(|wanted| wanted.met == met).count();
    let (met, missed, unknown) = (count(Some(true)), count(Some(false)), count(None));
    let mut text = format!(
        "{}: {met} of {} targets met",
        capitalized(&source.id),
        wanted.len()
    );
    if missed > 0 {
        text.push_str(&format!(", {missed} NOT MET"));
    }
    if unknown > 0 {
        text.push_str(&format!(", {unknown} not measured"));
    }
    text + "."
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments::install::quantities::INSTALL;

    #[test]
    fn the_targets_of_quantities_that_failed_are_counted_and_not_met() {
        let failed = Record::Failed {
            case: INSTALL.to_owned(),
            system: OURS.to_owned(),
            quantity: None,
            reason: "the daemon ended".to_owned(),
        };
        let install = figure::find(INSTALL, "install").unwrap();
        let figure = Record::Figure {
            case: INSTALL.to_owned(),
            system: OURS.to_owned(),
            round: 0,
            quantity: install.name.to_owned(),
            unit: install.unit.to_owned(),
            value: 1.0,
        };
        let targets =
            figure::all().filter(|quantity| quantity.case == INSTALL && quantity.target().is_some());
        let targets = targets.count();
        let section = |records: &[Record]| {
            section(&Source {
                id: "install".to_owned(),
                all: records.to_vec().into(),
                records: records.to_vec(),
                problems: Vec::new(),
            })
            .unwrap()
        };
        assert_eq!(
            section(std::slice::from_ref(&figure)).lead.as_deref(),
            Some("Install: 1 of 1 targets met.")
        );
        let all = section(&[figure, failed.clone()]);
        assert_eq!(
            all.lead,
            Some(format!(
                "Install: 0 of {targets} targets met, 1 NOT MET, {} not measured.",
                targets - 1
            ))
        );
        assert!(all.html.contains("not measured in all rounds: the daemon ended"));
        assert_eq!(
            section(&[failed]).lead,
            Some(format!(
                "Install: 0 of {targets} targets met, {targets} not measured."
            ))
        );
    }
}
