//! The origin of the figures: the machine, the systems, the command.

use crate::page::source::{RunHeader, Source};
use millrace_report::Section;
use millrace_report::html::{Cell, commands, table};
use millrace_types::calendar::civil;

/// Returns the section; `None` if the run has no header and no systems.
pub(super) fn section(source: &Source) -> Option<Section> {
    let head = source.header();
    let systems: Vec<Vec<Cell>> = source
        .systems()
        .map(|(system, version, configuration)| {
            vec![
                Cell::head(system),
                Cell::text(version.unwrap_or("not installed")),
                Cell::text(configuration),
            ]
        })
        .collect();
    if head.is_none() && systems.is_empty() {
        return None;
    }
    let mut html = String::new();
    let mut experiment = "run";
    if let Some(head) = head {
        experiment = head.experiment;
        html.push_str(&machine(&head));
    }
    if !systems.is_empty() {
        let caption = "The systems, and their settings that differ from the systems as shipped";
        html.push_str(&table(caption, &["system", "version", "configuration"], &systems));
    }
    if let Some(head) = head {
        html.push_str("<h3>The command that repeats the run</h3>\n");
        html.push_str(&commands(&[head.command]));
    }
    Some(Section {
        id: source.anchor("origin"),
        title: format!("Machine and systems: {experiment}"),
        lead: None,
        html,
        plots: Vec::new(),
    })
}

/// Returns the table of the machine.
fn machine(head: &RunHeader<'_>) -> String {
    let machine = head.machine;
    let huge = match machine.huge_pages_mib {
        0 => "none".to_owned(),
        mib => format!("{mib} MiB for each system"),
    };
    let core_latency = machine.core_latency.map_or_else(
        || "not measured".to_owned(),
        |latency| format!("{} to {} ns", latency.min_ns, latency.max_ns),
    );
    let rows: Vec<Vec<Cell>> = [
        ("when", date(head.started)),
        (
            "length",
            if head.quick {
                "quick: shorter than the published form"
            } else {
                "full"
            }
            .to_owned(),
        ),
        ("processor", machine.processor.clone()),
        ("cores", machine.cores.to_string()),
        (
            "memory",
            format!("{:.1} GiB", machine.memory as f64 / (1_u64 << 30) as f64),
        ),
        ("huge pages", huge),
        ("kernel", machine.kernel.clone()),
        ("distribution", machine.distribution.clone()),
        ("virtualisation", machine.virtualisation.clone()),
        ("load average at the start", machine.load.clone()),
        ("core-to-core latency of a cache line", core_latency),
    ]
    .into_iter()
    .map(|(name, value)| vec![Cell::head(name), Cell::text(value)])
    .collect();
    table("The machine", &["what", "value"], &rows)
}

/// Formats seconds since 1970 as `2026-11-21 06:24 UTC`.
fn date(seconds: u64) -> String {
    let (year, month, day) = civil(seconds / 86_400);
    let (hour, minute) = (seconds / 3600 % 24, seconds / 60 % 60);
    format!("{year}-{month:02}-{day:02} {hour:02}:{minute:02} UTC")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (seconds, text) in [
            (0, "1970-01-01 00:00 UTC"),
            (951_782_399, "2000-02-28 23:59 UTC"),
            (951_782_400, "2000-02-29 00:00 UTC"),
            (1_795_240_508, "2026-11-21 05:55 UTC"),
            (4_107_542_400, "2100-03-01 00:00 UTC"),
        ] {
            assert_eq!(date(seconds), text);
        }
    }
}
