//! Simulated runs as text for a terminal, with the cases side by side.

use std::fmt::Write as _;

use super::{Events, Simulated};

/// The number of functions that are shown.
const FUNCTIONS_SHOWN: usize = 8;
/// The widths of the names of rows, and of the column of a case.
const NAME: usize = 30;
const COLUMN: usize = 18;

/// A row of the comparison: its name, its events, and the events that its percentage refers to.
pub type ComparisonRow = (&'static str, fn(Events) -> u64, Option<fn(Events) -> u64>);

/// The rows of the comparison, each per packet.
pub const LINES: [ComparisonRow; 13] = [
    ("instructions", |events| events.instructions, None),
    ("data reads", |events| events.data_reads, None),
    ("data writes", |events| events.data_writes, None),
    ("branches", |events| events.branches, None),
    (
        "branch mispredictions",
        |events| events.branch_misses,
        Some(|events| events.branches),
    ),
    (
        "L1 instruction misses",
        |events| events.l1i_misses,
        Some(|events| events.instructions),
    ),
    ("L1 data misses", Events::l1d_misses, Some(Events::data_accesses)),
    (
        "  of reads",
        |events| events.l1d_read_misses,
        Some(|events| events.data_reads),
    ),
    ("L2 misses", |events| events.l2_misses, Some(references)),
    ("LLC misses", |events| events.llc_misses, Some(references)),
    (
        "iTLB misses",
        |events| events.itlb_misses,
        Some(|events| events.instructions),
    ),
    (
        "dTLB misses",
        |events| events.dtlb_misses,
        Some(Events::data_accesses),
    ),
    (
        "second-level TLB misses",
        |events| events.page_walks,
        Some(references),
    ),
];

/// Returns the number of accesses that can miss.
fn references(events: Events) -> u64 {
    events.instructions + events.data_accesses()
}

impl Simulated {
    /// Returns a count per packet.
    pub fn per_packet(&self, count: u64) -> f64 {
        count as f64 / self.packets.max(1) as f64
    }
}

/// Returns a number with about three significant digits: `412`, `41.2`, `4.12`, `0.041`, `0`.
fn figure(value: f64) -> String {
    match value {
        0.0 => "0".to_owned(),
        value if value < 0.0005 => "<0.001".to_owned(),
        value if value < 1.0 => format!("{value:.3}"),
        value if value < 10.0 => format!("{value:.2}"),
        value if value < 100.0 => format!("{value:.1}"),
        value => format!("{value:.0}"),
    }
}

/// Returns a share as a percentage in parentheses.
fn share(part: u64, of: u64) -> String {
    let percent = 100.0 * part as f64 / of.max(1) as f64;
    match percent {
        percent if percent < 0.005 && part > 0 => " (<0.01 %)".to_owned(),
        percent => format!(" ({percent:.2} %)"),
    }
}

/// Appends a row of the comparison.
fn row(out: &mut String, name: &str, cells: impl Iterator<Item = String>) {
    let _ = write!(out, "{name:<NAME$}");
    for cell in cells {
        let _ = write!(out, " {cell:>COLUMN$}");
    }
    out.push('\n');
}

/// Returns the model, then the comparison of all cases, then the functions of each case.
pub fn text(runs: &[Simulated]) -> String {
    let mut out = String::new();
    let Some(first) = runs.first() else {
        return out;
    };
    out.push_str("SIMULATED, not measured: the fast path of millrace, one worker, memory devices\n");
    for sentence in first.model.sentences() {
        // Writing to a string does not fail.
        let _ = writeln!(out, "  {sentence}");
    }
    out.push('\n');
    row(
        &mut out,
        "simulated, a packet",
        runs.iter().map(|run| run.case.clone()),
    );
    for (name, count, of) in LINES {
        let cell = |run: &Simulated| {
            let counted = count(run.counts);
            let share = of.map_or_else(String::new, |of| share(counted, of(run.counts)));
            figure(run.per_packet(counted)) + &share
        };
        row(&mut out, name, runs.iter().map(cell));
    }
    out.push('\n');
    stages(&mut out, runs);
    row(
        &mut out,
        "entries",
        runs.iter().map(|run| run.entries.to_string()),
    );
    row(&mut out, "flows", runs.iter().map(|run| run.flows.to_string()));
    row(
        &mut out,
        "packets counted",
        runs.iter().map(|run| run.packets.to_string()),
    );
    row(
        &mut out,
        "packets before, not counted",
        runs.iter().map(|run| run.warm_up.to_string()),
    );
    for run in runs {
        let _ = writeln!(out, "\n{}: {}", run.case, run.title);
        let _ = writeln!(out, "  {}", run.tables.join("; "));
        out.push_str("  functions, without their callees; simulated, per packet:\n");
        let _ = writeln!(
            out,
            "  {:>12} {:>14}  {:<17} function",
            "instructions", "L1 data misses", "stage"
        );
        for function in run.functions.iter().take(FUNCTIONS_SHOWN) {
            let _ = writeln!(
                out,
                "  {:>12} {:>14}  {:<17} {}",
                figure(run.per_packet(function.instructions)),
                figure(run.per_packet(function.l1d_misses)),
                function.stage,
                function.function
            );
        }
    }
    out
}

/// Appends instructions and misses by stage, one row for each stage.
fn stages(out: &mut String, runs: &[Simulated]) {
    let mut names: Vec<&str> = Vec::new();
    for stage in runs.iter().flat_map(|run| &run.stages) {
        if !names.contains(&stage.stage.as_str()) {
            names.push(&stage.stage);
        }
    }
    row(out, "instructions, L1 data misses", std::iter::empty());
    for name in names {
        let cell = |run: &Simulated| {
            let found = run.stages.iter().find(|stage| stage.stage == name);
            found.map_or_else(
                || "-".to_owned(),
                |stage| {
                    let (instructions, misses) = (stage.instructions, stage.l1d_misses);
                    format!(
                        "{}, {}",
                        figure(run.per_packet(instructions)),
                        figure(run.per_packet(misses))
                    )
                },
            )
        };
        row(out, &format!("  {name}"), runs.iter().map(cell));
    }
    out.push('\n');
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::{FunctionCost, Model, StageCost};
    use super::*;

    fn run(case: &str, instructions: u64) -> Simulated {
        let mut model = Model::of(Path::new("/nowhere"), "callgrind (valgrind-3.19.0)".to_owned());
        model.simd = "avx2".to_owned();
        Simulated {
            label: "simulated, not measured".to_owned(),
            system: "millrace".to_owned(),
            case: case.to_owned(),
            title: format!("the case {case}"),
            entries: 1,
            flows: 512,
            packets: 1000,
            warm_up: 2000,
            model,
            counts: Events {
                instructions,
                data_reads: 40_000,
                data_writes: 20_000,
                branches: 10_000,
                branch_misses: 50,
                l1d_read_misses: 900,
                l1d_write_misses: 300,
                ..Events::default()
            },
            tables: vec!["table 0: exact hash".to_owned()],
            stages: vec![StageCost {
                stage: "lookup: hash".to_owned(),
                instructions: 60_000,
                l1d_misses: 900,
            }],
            functions: vec![FunctionCost {
                function: "millrace_flow::classify::hash::find".to_owned(),
                stage: "lookup: hash".to_owned(),
                instructions: 60_000,
                l1d_misses: 900,
            }],
            commands: Vec::new(),
        }
    }

    #[test]
    fn cases_are_side_by_side_under_a_heading_that_says_simulated() {
        let text = text(&[run("one-rule", 120_000), run("exact-10k", 230_000)]);
        assert!(text.starts_with("SIMULATED, not measured"), "{text}");
        let line = |name: &str| {
            let line = text.lines().find(|line| line.starts_with(name)).unwrap();
            line.split_whitespace().collect::<Vec<_>>().join(" ")
        };
        assert_eq!(
            line("simulated, a packet"),
            "simulated, a packet one-rule exact-10k"
        );
        assert_eq!(line("instructions "), "instructions 120 230");
        assert_eq!(
            line("branch mispredictions"),
            "branch mispredictions 0.050 (0.50 %) 0.050 (0.50 %)"
        );
        assert_eq!(
            line("L1 data misses"),
            "L1 data misses 1.20 (2.00 %) 1.20 (2.00 %)"
        );
        assert_eq!(line("  lookup: hash"), "lookup: hash 60.0, 0.900 60.0, 0.900");
        for said in [
            "no prefetcher",
            "no overlap of misses",
            "avx2",
            "4 KiB",
            "L1 data 48 KiB 12-way",
        ] {
            assert!(text.contains(said), "{said}: {text}");
        }
    }

    #[test]
    fn numbers_have_three_digits_and_small_ones_are_not_zero() {
        let shown = [412.4, 41.23, 4.123, 0.0412, 0.0001, 0.0].map(figure);
        assert_eq!(shown, ["412", "41.2", "4.12", "0.041", "<0.001", "0"]);
        assert_eq!(
            (share(1, 1_000_000), share(0, 5)),
            (" (<0.01 %)".to_owned(), " (0.00 %)".to_owned())
        );
    }

    #[test]
    fn a_simulated_record_says_that_it_is_simulated() {
        let simulated = run("one-rule", 1);
        let json = serde_json::to_string(&simulated).unwrap();
        assert!(json.starts_with("{\"label\":\"simulated, not measured"), "{json}");
        assert_eq!(serde_json::from_str::<Simulated>(&json).unwrap(), simulated);
    }
}
