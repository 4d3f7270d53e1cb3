//! `millrace ips trace`: the conditions of a rule on the packets of a capture.

use std::collections::BTreeMap;
use std::fmt::Write;

use anyhow::{Result, bail};
use millrace_ips_engine::detect::{Condition, TraceOutcome, TracePlace, TraceRecord};
use millrace_ips_engine::{Direction, Engine, Settings};
use millrace_ips_offline::trace;
use millrace_ips_rules::frames;
use serde::Serialize;

use super::load::load;
use crate::cli::TraceArgs;
use crate::output::Session;

/// The trace of a rule over a capture.
#[derive(Debug, Serialize)]
struct Report {
    sid: u32,
    lines: Vec<Line>,
    /// The number of evaluations by the condition that failed, or by outcome if none failed.
    ends: BTreeMap<String, u64>,
    alerts: u64,
    frames: u64,
    #[serde(skip)]
    shows_all: bool,
}

/// An evaluation of the rule.
#[derive(Debug, Serialize)]
struct Line {
    packet: u64,
    flow: u64,
    source: String,
    destination: String,
    direction: &'static str,
    place: String,
    outcome: &'static str,
    conditions: Vec<Step>,
}

#[derive(Debug, Serialize)]
struct Step {
    condition: String,
    holds: bool,
    #[serde(skip_serializing_if = "String::is_empty")]
    found: String,
}

pub(super) fn run(session: &Session, args: &TraceArgs) -> Result<()> {
    let (ruleset, _) = load(&args.rules, &args.files)?.compile()?;
    let Some(index) = ruleset.rules.iter().position(|rule| rule.sid == args.sid) else {
        bail!(
            "no rule that loads has sid {}; `millrace ips explain {}` says whether it is refused",
            args.sid,
            args.sid
        );
    };
    let settings = Settings {
        mode: args.mode.into(),
        ..Settings::default()
    };
    let mut engine = Engine::new(settings, [1, 2]);
    engine.detector().trace(Some(index as u32));
    let mut report = Report {
        sid: args.sid,
        lines: Vec::new(),
        ends: BTreeMap::new(),
        alerts: 0,
        frames: 0,
        shows_all: args.all,
    };
    let summary = trace(&args.capture, &mut engine, &ruleset, |record| {
        let ports = record.subject.ports.unwrap_or_default();
        if args.port.is_none_or(|port| ports.0 == port || ports.1 == port) {
            report.add(record);
        }
    });
    // If a capture is damaged, the frames before the damage are reported.
    report.frames = summary.as_ref().map_or(0, |summary| summary.frames);
    session.print(&report, Report::text)?;
    summary?;
    Ok(())
}

impl Report {
    fn add(&mut self, record: TraceRecord) {
        let (outcome, end) = match record.outcome {
            TraceOutcome::Alert => ("alert", None),
            TraceOutcome::NoMatch => (
                "no match",
                record.conditions.iter().find(|condition| !condition.holds),
            ),
            TraceOutcome::Silent => ("match without alert (noalert)", None),
            TraceOutcome::Withheld => (
                "match without alert (threshold, pass rule, or too many alerts of the packet)",
                None,
            ),
            TraceOutcome::Repeated => ("match of data that raised its alert before", None),
        };
        let end = end.map_or(outcome, |condition| condition.words.as_str());
        *self.ends.entry(end.to_owned()).or_default() += 1;
        self.alerts += u64::from(record.outcome == TraceOutcome::Alert);
        let subject = record.subject;
        let (source, destination) = subject.ports.unwrap_or_default();
        let place = match record.place {
            TracePlace::Packet if record.is_pseudo => "end of the flow".to_owned(),
            TracePlace::Packet => "packet".to_owned(),
            TracePlace::Stream { offset, size } => format!("stream, {size} bytes from {offset}"),
            TracePlace::Transaction { id, app } => format!("{} transaction {id}", app.name()),
            TracePlace::Frame(view) => {
                let (app, name) = frames::name(view.kind).unwrap_or_default();
                let begin = view
                    .begin
                    .map_or(String::new(), |begin| format!(", from {begin}"));
                let size = view.size.map_or(String::new(), |size| format!(", {size} bytes"));
                format!("frame {app}.{name} {}{begin}{size}", view.id)
            }
        };
        self.lines.push(Line {
            packet: subject.packet,
            flow: subject.flow,
            source: format!("{} {source}", subject.src),
            destination: format!("{} {destination}", subject.dst),
            direction: match record.direction {
                Direction::ToServer => "to_server",
                Direction::ToClient => "to_client",
            },
            place,
            outcome,
            conditions: record.conditions.into_iter().map(Step::from).collect(),
        });
    }

    fn text(&self) -> String {
        let mut text = String::new();
        for line in &self.lines {
            let packet = match line.packet {
                0 => "end of the capture".to_owned(),
                number => format!("packet {number}"),
            };
            // Writing to a string does not fail.
            let _ = write!(
                text,
                "{packet} ({} -> {}, {}), {}: {}",
                line.source, line.destination, line.direction, line.place, line.outcome
            );
            let failed = line.conditions.iter().find(|step| !step.holds);
            match failed {
                Some(step) if !self.shows_all => {
                    let _ = writeln!(text, ": {}", step.text());
                }
                _ => text.push('\n'),
            }
            for step in line.conditions.iter().filter(|_| self.shows_all) {
                let mark = if step.holds { "yes" } else { " no" };
                let _ = writeln!(text, "  {mark}  {}", step.text());
            }
        }
        let _ = writeln!(
            text,
            "sid {}: {} {} in {} frames",
            self.sid,
            self.alerts,
            if self.alerts == 1 { "alert" } else { "alerts" },
            self.frames
        );
        let mut ends: Vec<_> = self.ends.iter().collect();
        ends.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
        for (end, count) in ends {
            let _ = writeln!(text, "{count:>8}  {end}");
        }
        text
    }
}

impl From<Condition> for Step {
    fn from(condition: Condition) -> Step {
        Step {
            condition: condition.words,
            holds: condition.holds,
            found: condition.found,
        }
    }
}

impl Step {
    fn text(&self) -> String {
        match self.found.is_empty() {
            true => self.condition.clone(),
            false => format!("{} [found: {}]", self.condition, self.found),
        }
    }
}
