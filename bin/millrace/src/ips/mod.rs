//! `millrace ips`: rule files are checked, explained and imported on this machine, without the daemon.

mod explain;
mod load;
mod profile;
mod rate;
mod read;
mod trace;

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use millrace_ips_rules::Refusal;
use millrace_ips_rules::suricata_yaml::SuricataYaml;
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
            if *strict && report.refused > 0 {
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
        Ips::Import { file } => {
            let text =
                std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
            let imported = Imported::new(SuricataYaml::parse(&text));
            session.print(&imported, Imported::toml)?;
        }
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

/// The settings of a suricata.yaml.
#[derive(Debug, Serialize)]
struct Imported {
    rule_files: Vec<String>,
    classification_file: Option<String>,
    reference_file: Option<String>,
    threshold_file: Option<String>,
    variables: BTreeMap<String, String>,
    ignored: Vec<String>,
}

impl Imported {
    fn new(yaml: SuricataYaml) -> Imported {
        let folder = PathBuf::from(yaml.rule_path.unwrap_or_default());
        // An absolute name replaces the folder.
        let path = |file: &String| folder.join(file).display().to_string();
        Imported {
            rule_files: yaml.rule_files.iter().map(path).collect(),
            classification_file: yaml.classification_file,
            reference_file: yaml.reference_file,
            threshold_file: yaml.threshold_file,
            variables: yaml.variables.into_iter().collect(),
            ignored: yaml.ignored,
        }
    }

    fn toml(&self) -> String {
        // A JSON string is a basic string of TOML, too.
        let quoted = |text: &str| serde_json::Value::from(text).to_string();
        let mut text = String::new();
        for line in &self.ignored {
            let _ = writeln!(text, "# not understood, line {line}");
        }
        let files: Vec<String> = self.rule_files.iter().map(|file| quoted(file)).collect();
        let _ = writeln!(text, "[ips]\nrule_files = [{}]", files.join(", "));
        let tables = [
            ("classification_file", &self.classification_file),
            ("reference_file", &self.reference_file),
            ("threshold_file", &self.threshold_file),
        ];
        for (key, value) in tables {
            if let Some(value) = value {
                let _ = writeln!(text, "{key} = {}", quoted(value));
            }
        }
        text += "\n[ips.variables]\n";
        for (name, value) in &self.variables {
            let _ = writeln!(text, "{} = {}", quoted(name), quoted(value));
        }
        text
    }
}
