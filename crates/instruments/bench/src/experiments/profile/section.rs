//! The section of `millrace profile` (E6 in docs/gates.md): the time of each switch by stage and function, context
//! switches and counters.

use crate::page::source::Source;
use crate::record::Record;
use millrace_profile::Profile;
use millrace_report::Section;
use millrace_report::html::{Cell, commands, details, escape, figure, paragraph, table};
use millrace_report::plot::flame::flame;
use millrace_report::plot::{BoxRow, Paint, StageRow, boxes, number, stages};

/// Returns the section; `None` if the run has no profiles.
pub(crate) fn section(source: &Source) -> Option<Section> {
    let profiles: Vec<&Profile> = source
        .records
        .iter()
        .filter_map(|record| match record {
            Record::Profile(profile) => Some(profile.as_ref()),
            _ => None,
        })
        .collect();
    let load = profiles.first()?.load.as_str();
    let mut html = paragraph(
        "Samples of the process, 499 per second, by stage according to the names of functions; context switches and \
         page faults by the counters of the kernel, for the process of the switch and for the whole machine.",
    );
    let mut plots = Vec::new();
    html.push_str(&counts(&profiles));
    let switches: Vec<BoxRow> = profiles
        .iter()
        .map(|profile| BoxRow {
            label: profile.system.clone(),
            paint: Paint::of_system(&profile.system),
            values: own_switches(profile).into_iter().collect(),
            note: "no process of its own, or the number of packets is not known".to_owned(),
        })
        .collect();
    let title = "Context switches of the switch for each million packets";
    let plot = boxes(
        &source.anchor("switches"),
        title,
        "context switches per million packets",
        &switches,
    );
    html.push_str(&figure(&plot, &format!("{title}; fewer are better."), ""));
    plots.push(plot);
    let sampled: Vec<&&Profile> = profiles.iter().filter(|profile| profile.samples > 0).collect();
    if !sampled.is_empty() {
        let rows: Vec<StageRow> = sampled
            .iter()
            .map(|profile| StageRow {
                label: profile.system.clone(),
                parts: profile
                    .stages
                    .iter()
                    .map(|share| (share.stage.clone(), share.share))
                    .collect(),
            })
            .collect();
        let plot = stages(&source.anchor("stages"), "Time by stage", &rows);
        html.push_str(&figure(
            &plot,
            "Shares of the samples of each switch's process.",
            &shares(&sampled),
        ));
        plots.push(plot);
    }
    for (index, profile) in sampled.iter().enumerate() {
        let heading = format!("{} ({})", profile.system, profile.load);
        let flame = flame(
            &source.anchor(&format!("flame-{}-{index}", profile.system)),
            &format!("Flame graph of {heading}"),
            profile
                .stacks
                .iter()
                .map(|stack| (stack.frames.as_str(), stack.count)),
        );
        let graph = figure(
            &flame,
            "Callers are below, callees above, and the width of a frame is its share. Hover over a frame for its name.",
            "",
        );
        let inner = graph + &functions(profile) + &commands(&profile.commands);
        html.push_str(&details(
            &format!("Functions and flame graph of {heading}"),
            &inner,
        ));
        plots.push(flame);
    }
    html.push_str(&notes(&profiles));
    Some(Section {
        id: source.anchor("profile"),
        title: format!("Time by stage and function (E6): {load}"),
        lead: None,
        html,
        plots,
    })
}

/// Returns the context switches of the process per million packets; `None` for a switch in the kernel.
fn own_switches(profile: &Profile) -> Option<f64> {
    let own = profile.counts.voluntary + profile.counts.involuntary;
    profile
        .per_million_packets(own)
        .filter(|_| profile.samples > 0 || profile.counts.cpu_s > 0.0)
}

/// Returns the table of context switches, page faults and hardware counters.
fn counts(profiles: &[&Profile]) -> String {
    let counter = |profile: &Profile, event: &str| match profile.counter(event) {
        Some(value) => Cell::number(Some(profile.per_packet(value).unwrap_or(value))),
        None => Cell::Number("not available here".to_owned()),
    };
    let rows: Vec<Vec<Cell>> = profiles
        .iter()
        .map(|profile| {
            let counts = profile.counts;
            vec![
                Cell::head(profile.system.as_str()),
                Cell::number(profile.packets.map(|packets| packets as f64 / profile.seconds)),
                Cell::percent(Some(counts.cpu_s / profile.seconds).filter(|share| *share > 0.0)),
                Cell::number(own_switches(profile)),
                Cell::number(profile.per_million_packets(counts.machine)),
                Cell::number(profile.per_million_packets(counts.minor_faults + counts.major_faults)),
                match profile.cycles_per_instruction() {
                    Some(cycles) => Cell::number(Some(cycles)),
                    None => Cell::Number("not available here".to_owned()),
                },
                counter(profile, "L1-dcache-load-misses"),
                counter(profile, "LLC-load-misses"),
                counter(profile, "dTLB-load-misses"),
                counter(profile, "branch-misses"),
            ]
        })
        .collect();
    table(
        "Context switches and page faults for each million packets; cache, TLB and branch misses for each packet",
        &[
            "system",
            "#packets a second",
            "#CPU of the process",
            "#context switches",
            "#of the machine",
            "#page faults",
            "#cycles per instruction",
            "#L1 misses",
            "#LLC misses",
            "#TLB misses",
            "#branch misses",
        ],
        &rows,
    )
}

fn shares(profiles: &[&&Profile]) -> String {
    let rows: Vec<Vec<Cell>> = profiles
        .iter()
        .flat_map(|profile| profile.stages.iter().map(move |share| (profile, share)))
        .map(|(profile, share)| {
            vec![
                Cell::head(profile.system.as_str()),
                Cell::text(share.stage.as_str()),
                Cell::percent(Some(share.share)),
            ]
        })
        .collect();
    table("Shares of the samples", &["system", "stage", "#share"], &rows)
}

/// Returns the table of the functions of a profile.
fn functions(profile: &Profile) -> String {
    let rows: Vec<Vec<Cell>> = profile
        .functions
        .iter()
        .map(|function| {
            let file = function.object.rsplit('/').next().unwrap_or_default();
            vec![
                Cell::head(function.function.as_str()),
                Cell::text(function.stage.as_str()),
                Cell::text(file),
                Cell::percent(Some(function.share)),
            ]
        })
        .collect();
    table(
        &format!(
            "Functions of {}, without their callees, of {} samples",
            profile.system,
            number(profile.samples as f64)
        ),
        &["function", "stage", "file", "#share"],
        &rows,
    )
}

fn notes(profiles: &[&Profile]) -> String {
    let list: String = profiles
        .iter()
        .flat_map(|profile| profile.notes.iter().map(move |note| (profile, note)))
        .map(|(profile, note)| format!("<li>{}: {}</li>\n", escape(&profile.system), escape(note)))
        .collect();
    if list.is_empty() {
        return list;
    }
    format!("<ul class=\"soft\">\n{list}</ul>\n")
}
