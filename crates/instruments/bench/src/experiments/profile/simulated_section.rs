//! The section of `millrace profile --simulate` (E6 in docs/gates.md): simulated events of each case, side by side.

use crate::page::source::Source;
use crate::record::Record;
use millrace_profile::simulated::{LINES, Simulated};
use millrace_report::Section;
use millrace_report::html::{Cell, commands, details, escape, figure, paragraph, table};
use millrace_report::plot::{StageRow, stages};

/// Returns the section; `None` if nothing was simulated.
pub(crate) fn section(source: &Source) -> Option<Section> {
    let runs: Vec<&Simulated> = source
        .records
        .iter()
        .filter_map(|record| match record {
            Record::Simulated(run) => Some(run.as_ref()),
            _ => None,
        })
        .collect();
    let first = runs.first()?;
    let mut html = paragraph(
        "Simulated, not measured: the fast path of millrace forwarded each case's packets single-threaded between \
         memory devices, on a processor that valgrind simulates. The figures show the effect of table size; they are not counters \
         of this machine.",
    );
    let model: String = first
        .model
        .sentences()
        .iter()
        .map(|sentence| format!("<li>{}</li>\n", escape(sentence)))
        .collect();
    html.push_str(&format!("<ul class=\"soft\">\n{model}</ul>\n"));
    html.push_str(&events(&runs));
    let rows: Vec<StageRow> = runs
        .iter()
        .map(|run| StageRow {
            label: run.case.clone(),
            parts: run
                .stages
                .iter()
                .map(|stage| {
                    let share = stage.instructions as f64 / run.counts.instructions.max(1) as f64;
                    (stage.stage.clone(), share)
                })
                .collect(),
        })
        .collect();
    let title = "Simulated: instructions by stage";
    let plot = stages(&source.anchor("simulated-stages"), title, &rows);
    html.push_str(&figure(
        &plot,
        "Simulated: shares of the instructions of each case.",
        &by_stage(&runs),
    ));
    for run in &runs {
        let inner = functions(run) + &commands(&run.commands);
        html.push_str(&details(&format!("Simulated: functions in {}", run.case), &inner));
    }
    Some(Section {
        id: source.anchor("simulated"),
        title: "Caches, TLBs and branches, simulated (E6)".to_owned(),
        lead: None,
        html,
        plots: vec![plot],
    })
}

/// Returns a table with a row for each event and a column for each case.
fn events(runs: &[&Simulated]) -> String {
    let cases: Vec<String> = runs.iter().map(|run| format!("#{}", run.case)).collect();
    let headings: Vec<&str> = std::iter::once("for each packet")
        .chain(cases.iter().map(String::as_str))
        .collect();
    let mut rows: Vec<Vec<Cell>> = LINES
        .into_iter()
        .map(|(name, count, _)| {
            let cells = runs
                .iter()
                .map(|run| Cell::number(Some(run.per_packet(count(run.counts)))));
            std::iter::once(Cell::head(name.trim())).chain(cells).collect()
        })
        .collect();
    let mut add = |name: &str, value: fn(&Simulated) -> f64| {
        let cells = runs.iter().map(|run| Cell::number(Some(value(run))));
        rows.push(std::iter::once(Cell::head(name)).chain(cells).collect());
    };
    add("flow entries", |run| run.entries as f64);
    add("flows", |run| run.flows as f64);
    add("packets counted", |run| run.packets as f64);
    table("Simulated events for each packet", &headings, &rows)
}

/// Returns the table of the stages of all cases.
fn by_stage(runs: &[&Simulated]) -> String {
    let rows: Vec<Vec<Cell>> = runs
        .iter()
        .flat_map(|run| run.stages.iter().map(move |stage| (run, stage)))
        .map(|(run, stage)| {
            vec![
                Cell::head(run.case.as_str()),
                Cell::text(stage.stage.as_str()),
                Cell::number(Some(run.per_packet(stage.instructions))),
                Cell::number(Some(run.per_packet(stage.l1d_misses))),
            ]
        })
        .collect();
    table(
        "Simulated events for each packet, by stage",
        &["case", "stage", "#instructions", "#L1 data misses"],
        &rows,
    )
}

/// Returns the table of the functions of a case.
fn functions(run: &Simulated) -> String {
    let rows: Vec<Vec<Cell>> = run
        .functions
        .iter()
        .map(|function| {
            vec![
                Cell::head(function.function.as_str()),
                Cell::text(function.stage.as_str()),
                Cell::number(Some(run.per_packet(function.instructions))),
                Cell::number(Some(run.per_packet(function.l1d_misses))),
            ]
        })
        .collect();
    let caption = format!(
        "Simulated events for each packet in {} ({}), without callees",
        run.case,
        run.tables.join("; ")
    );
    table(
        &caption,
        &["function", "stage", "#instructions", "#L1 data misses"],
        &rows,
    )
}
