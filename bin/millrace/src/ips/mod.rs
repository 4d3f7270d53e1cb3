//! `millrace ips`: rule files are checked, explained and imported on this machine, without the daemon.

mod explain;
mod import;
mod load;
mod profile;
mod rate;
mod read;
mod trace;

use std::collections::BTreeMap;
use std::fmt::Write;
use std::process::ExitCode;

use anyhow::Result;
use millrace_ips_rules::Refusal;
use serde::Serialize;

use crate::cli::Ips;
use crate::output::Session;

use explain::Explanation;
use load::{Loading, load};

pub(crate) fn run(session: &Session, command: &Ips) -> Result<ExitCode> {
    match command {
        Ips::Check {
            rules,
            files,
            strict,
            most,
        } => {
            let report = Report::new(&load(rules, files)?);
            session.print(&report, |report| report.text(*most))?;
            let is_empty = report.loaded == 0;
            if is_empty || *strict && report.refused > 0 {
                return Ok(ExitCode::FAILURE);
            }
        }
        Ips::Explain { sid, rules, files } => {
            let explanation = Explanation::new(&load(rules, files)?, *sid)?;
            session.print(&explanation, Explanation::text)?;
        }
        Ips::Read(args) => read::run(session, args)?,
        Ips::Trace(args) => trace::run(session, args)?,
        Ips::Rate(args) => rate::run(session, args)?,
        Ips::Profile(args) => profile::run(session, args)?,
        Ips::Import { file } => import::run(session, file)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// The result of a check.
#[derive(Debug, Serialize)]
struct Report {
    loaded: usize,
    refused: usize,
    disabled: usize,
    disabled_refused: usize,
    reasons: Vec<ReasonCount>,
    refusals: Vec<RefusalLine>,
}

/// The number of refusals of one kind for one option.
#[derive(Debug, Serialize)]
struct ReasonCount {
    count: usize,
    option: String,
    reason: &'static str,
}

/// A refusal, field by field.
#[derive(Debug, Serialize)]
struct RefusalLine {
    file: String,
    line: u32,
    column: u32,
    sid: Option<u32>,
    option: String,
    kind: &'static str,
    reason: String,
}

impl Report {
    fn new(loaded: &Loading<'_>) -> Report {
        let set = &loaded.set;
        // A rule of valid form may still have a combination of options that the engine refuses.
        let (ruleset, uncompiled) = loaded.compile_plainly();
        let mut refusals: Vec<&Refusal> = set.refusals().iter().chain(&uncompiled).collect();
        refusals.sort_by_key(|refusal| (&refusal.file, refusal.position.line, refusal.position.column));
        let mut counts: BTreeMap<(&str, &'static str), usize> = BTreeMap::new();
        for refusal in &refusals {
            *counts
                .entry((&refusal.option, refusal.reason.kind()))
                .or_default() += 1;
        }
        let count = |((option, reason), count): ((&str, &'static str), usize)| ReasonCount {
            count,
            option: option.to_owned(),
            reason,
        };
        let mut reasons: Vec<ReasonCount> = counts.into_iter().map(count).collect();
        reasons.sort_by_key(|row| std::cmp::Reverse(row.count));
        let (disabled, disabled_refused) = set.disabled();
        Report {
            loaded: ruleset.rules.len(),
            refused: refusals.len(),
            disabled,
            disabled_refused,
            reasons,
            refusals: refusals.into_iter().map(RefusalLine::new).collect(),
        }
    }

    fn text(&self, most: usize) -> String {
        let mut text = String::new();
        for line in self.refusals.iter().take(most) {
            let RefusalLine {
                file,
                line,
                column,
                sid,
                option,
                reason,
                ..
            } = line;
            let sid = sid.map(|sid| format!("sid {sid}: ")).unwrap_or_default();
            // Writing to a string does not fail.
            let _ = writeln!(text, "{file}:{line}:{column}: {sid}{option}: {reason}");
        }
        if self.refused > most {
            let _ = writeln!(
                text,
                "… and {} more; --most {} prints all",
                self.refused - most,
                self.refused
            );
        }
        let _ = writeln!(text, "{} loaded, {} refused", self.loaded, self.refused);
        let _ = writeln!(
            text,
            "{} commented out, {} of which would be refused",
            self.disabled + self.disabled_refused,
            self.disabled_refused
        );
        for ReasonCount {
            count,
            option,
            reason,
        } in &self.reasons
        {
            let _ = writeln!(text, "  {count:>6}  {option}: {reason}");
        }
        text
    }
}

impl RefusalLine {
    fn new(refusal: &Refusal) -> RefusalLine {
        RefusalLine {
            file: refusal.file.clone(),
            line: refusal.position.line,
            column: refusal.position.column,
            sid: refusal.sid,
            option: refusal.option.clone(),
            kind: refusal.reason.kind(),
            reason: refusal.reason.to_string(),
        }
    }
}
