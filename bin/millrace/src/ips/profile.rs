//! `millrace ips profile`: the cost of rules and of the searches of the prefilter.

use std::fmt::Write;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use anyhow::Result;
use millrace_ips_engine::detect::{Cost, GroupId, Ruleset};
use millrace_ips_engine::{Engine, Settings};
use millrace_ips_offline::read;
use serde::Serialize;

use super::load::load;
use crate::cli::ProfileArgs;
use crate::output::Session;

/// The costs of a run.
#[derive(Debug, Serialize)]
struct Report {
    frames: u64,
    bytes: u64,
    /// Time in the engine, in seconds.
    seconds: f64,
    /// Rules that were evaluated at least once.
    evaluated: usize,
    rules: Vec<Row>,
    groups: Vec<Row>,
}

#[derive(Debug, Serialize)]
struct Row {
    name: String,
    checks: u64,
    hits: u64,
    #[serde(skip_serializing_if = "is_zero")]
    bytes: u64,
    samples: u64,
    /// Mean time of a check; absent if none was timed.
    mean_nanos: Option<f64>,
    /// Time of all checks, extrapolated from the timed checks.
    total_microseconds: f64,
    /// Share of the time in the engine, in percent.
    share: f64,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// Returns the nanoseconds since the first call.
fn clock() -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed().as_nanos() as u64
}

pub(super) fn run(session: &Session, args: &ProfileArgs) -> Result<()> {
    let (ruleset, _) = load(&args.rules, &args.files)?.compile()?;
    let settings = Settings {
        mode: args.mode.into(),
        ..Settings::default()
    };
    let mut engine = Engine::new(settings, [1, 2]);
    engine.detector().profile(clock);
    let (mut frames, mut bytes, mut time) = (0, 0, Duration::ZERO);
    for _ in 0..args.repeat {
        for path in &args.captures {
            let summary = read(path, &mut engine, &ruleset, |_, _| {})?;
            frames += summary.frames;
            bytes += summary.bytes;
            time += summary.engine;
        }
    }
    let costs = engine.detector().take_profile();
    let row = |name: String, cost: &Cost| Row {
        name,
        checks: cost.checks,
        hits: cost.hits,
        bytes: cost.bytes,
        samples: cost.samples,
        mean_nanos: cost.mean_nanos(),
        total_microseconds: cost.total_nanos() / 1000.0,
        share: 100.0 * cost.total_nanos() / (time.as_nanos() as f64).max(1.0),
    };
    let rules = costs.rules.iter().filter_map(|(index, cost)| {
        let rule = ruleset.rules.get(*index as usize)?;
        Some(row(format!("{} {}", rule.sid, rule.msg), cost))
    });
    let groups = costs
        .groups
        .iter()
        .map(|(group, cost)| row(group_name(*group, &ruleset), cost));
    let mut report = Report {
        frames,
        bytes,
        seconds: time.as_secs_f64(),
        evaluated: costs.rules.len(),
        rules: rules.collect(),
        groups: groups.collect(),
    };
    for rows in [&mut report.rules, &mut report.groups] {
        rows.sort_by(|a, b| {
            let key = |row: &Row| (row.total_microseconds, row.checks);
            key(b).partial_cmp(&key(a)).unwrap_or(std::cmp::Ordering::Equal)
        });
    }
    report.rules.truncate(args.most);
    session.print(&report, Report::text)
}

/// Returns the name of a group of the prefilter.
fn group_name(group: GroupId, rules: &Ruleset) -> String {
    match group {
        GroupId::Packets(class) => {
            let names = ["TCP", "UDP", "ICMP", "other"];
            format!("packets, {}", names.get(usize::from(class)).unwrap_or(&"other"))
        }
        GroupId::Stream => "stream".to_owned(),
        GroupId::Hook(index) => rules.hooks.get(usize::from(index)).map_or_else(
            || "buffer".to_owned(),
            |hook| {
                let names = hook.buffer.names();
                let mut name = names.suricata.first().copied().unwrap_or(names.words).to_owned();
                for transform in &hook.transforms {
                    name = format!("{name}, {}", transform.word());
                }
                name
            },
        ),
    }
}

impl Report {
    fn text(&self) -> String {
        let mut text = format!(
            "{} frames, {} bytes, {:.3} s in the engine, {} rules evaluated\n",
            self.frames, self.bytes, self.seconds, self.evaluated
        );
        for (title, rows) in [("search", &self.groups), ("rule", &self.rules)] {
            // Writing to a string does not fail.
            let _ = writeln!(
                text,
                "{:>10} {:>10} {:>10} {:>10} {:>6}  {title}",
                "checks", "hits", "mean ns", "total us", "%"
            );
            for row in rows {
                let mean = row
                    .mean_nanos
                    .map_or_else(|| "-".to_owned(), |mean| format!("{mean:.0}"));
                let _ = writeln!(
                    text,
                    "{:>10} {:>10} {mean:>10} {:>10.0} {:>6.1}  {}",
                    row.checks, row.hits, row.total_microseconds, row.share, row.name
                );
            }
        }
        text
    }
}
