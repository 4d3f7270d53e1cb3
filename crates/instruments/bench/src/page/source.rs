//! The records of a report. A run may have been interrupted, or recorded by another version of this program: the page
//! shows the lines that can be read and names the others.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::error::ReportError;
use crate::machine::Machine;
use crate::record::Record;

/// The number of unreadable lines that are named; further ones are only counted.
const PROBLEMS_MAX: usize = 5;

/// The records of one run of one experiment. A file may hold several runs; each begins with a `run` record.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Source {
    /// The identifier of the run, unique on the page, of lower-case letters, digits and hyphens: `forward`, `forward-2`.
    pub(crate) id: String,
    pub(crate) records: Vec<Record>,
    /// The records of all runs: a case may be compared with a case of another run.
    pub(crate) all: Arc<[Record]>,
    /// A sentence for each of the first [`PROBLEMS_MAX`] lines that could not be read, one with the number of further
    /// lines, and one for each older run that is left out.
    pub(crate) problems: Vec<String>,
}

/// The `run` record of a run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RunHeader<'a> {
    pub(crate) experiment: &'a str,
    /// The start of the run, in seconds since 1970.
    pub(crate) started: u64,
    pub(crate) quick: bool,
    pub(crate) machine: &'a Machine,
    pub(crate) command: &'a str,
}

/// Reads all `*.jsonl` files of a folder, in the order of their names.
pub(crate) fn read_folder(dir: &Path) -> Result<Vec<Source>, ReportError> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| ReportError::Read { path, source }
    };
    let mut paths: Vec<PathBuf> = fs::read_dir(dir)
        .map_err(failed(dir))?
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "jsonl") && path.is_file())
        .collect();
    paths.sort();
    let mut sources = Vec::new();
    for path in paths {
        let text = fs::read(&path).map_err(failed(&path))?;
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        sources.extend(parse(&name, &String::from_utf8_lossy(&text)));
    }
    let mut sources = newest(sources);
    link_records(&mut sources);
    assign_ids(&mut sources);
    if sources.iter().all(|source| source.records.is_empty()) {
        return Err(ReportError::Empty {
            dir: dir.to_owned(),
            problems: sources.into_iter().flat_map(|source| source.problems).collect(),
        });
    }
    Ok(sources)
}

/// Returns the runs in the text of a file, at least one. The first run holds the problems of all unreadable lines.
pub(crate) fn parse(name: &str, text: &str) -> Vec<Source> {
    let mut sources: Vec<Source> = Vec::new();
    let mut problems = Vec::new();
    let mut unread = 0;
    for (index, line) in text.lines().enumerate() {
        if line.trim().is_empty() {
            continue;
        }
        match serde_json::from_str(line) {
            Ok(record) => {
                if sources.is_empty() || matches!(record, Record::Run { .. }) {
                    sources.push(Source::new(name));
                }
                if let Some(source) = sources.last_mut() {
                    source.records.push(record);
                }
            }
            Err(error) => {
                unread += 1;
                if unread <= PROBLEMS_MAX {
                    problems.push(format!("{name}, line {}: {}", index + 1, describe(line, &error)));
                }
            }
        }
    }
    if unread > PROBLEMS_MAX {
        problems.push(format!("{name}: {} more lines", unread - PROBLEMS_MAX));
    }
    if sources.is_empty() {
        sources.push(Source::new(name));
    }
    if let Some(first) = sources.first_mut() {
        first.problems = problems;
    }
    link_records(&mut sources);
    sources
}

/// Gives each run the records of all runs.
fn link_records(sources: &mut [Source]) {
    let all: Arc<[Record]> = sources
        .iter()
        .flat_map(|source| source.records.iter().cloned())
        .collect();
    for source in sources {
        source.all = Arc::clone(&all);
    }
}

/// Returns the newest run of each experiment, because figures of different runs must not be mixed, and all runs without
/// a `run` record. The problems of the newest run name the older runs.
fn newest(sources: Vec<Source>) -> Vec<Source> {
    let mut kept: Vec<Source> = Vec::new();
    for mut source in sources {
        let key = |source: &Source| {
            source
                .header()
                .map(|head| (head.experiment.to_owned(), head.started))
        };
        let Some((experiment, started)) = key(&source) else {
            kept.push(source);
            continue;
        };
        let same = |other: &&mut Source| key(other).is_some_and(|(name, _)| name == experiment);
        match kept.iter_mut().find(same) {
            None => kept.push(source),
            Some(other) => {
                if key(other).is_some_and(|(_, earlier)| earlier <= started) {
                    std::mem::swap(other, &mut source);
                }
                other.problems.append(&mut source.problems);
                let file = &source.id;
                other
                    .problems
                    .push(format!("{file}.jsonl: an older run of {experiment} is left out"));
            }
        }
    }
    kept
}

/// Replaces the characters that an identifier must not have by hyphens.
fn identifier(text: &str) -> String {
    let plain = |c: char| {
        if c.is_ascii_alphanumeric() {
            c.to_ascii_lowercase()
        } else {
            '-'
        }
    };
    text.chars().map(plain).collect()
}

/// Names each run after its experiment. The second run of an experiment and later ones also get a number.
fn assign_ids(sources: &mut [Source]) {
    let mut known: Vec<String> = Vec::new();
    for source in sources {
        let base = source
            .header()
            .map_or_else(|| source.id.clone(), |head| head.experiment.to_owned());
        let base = identifier(&base);
        known.push(base.clone());
        let count = known.iter().filter(|other| **other == base).count();
        source.id = if count > 1 {
            format!("{base}-{count}")
        } else {
            base
        };
    }
}

/// Returns the reason why a line is not a record.
fn describe(line: &str, error: &serde_json::Error) -> String {
    let kind = serde_json::from_str::<serde_json::Value>(line)
        .ok()
        .and_then(|value| Some(value.get("record")?.as_str()?.to_owned()));
    match kind {
        Some(kind) => {
            // The list of all known records would not help.
            let error = error.to_string();
            let error = error.split(", expected").next().unwrap_or_default();
            format!("a record `{kind}` that this version does not read: {error}")
        }
        None if error.is_eof() => "it is incomplete: was the run interrupted?".to_owned(),
        None => format!("not a record: {error}"),
    }
}

impl Source {
    /// Returns a run without records, named after its file.
    fn new(file: &str) -> Source {
        Source {
            id: file.split('.').next().unwrap_or_default().to_owned(),
            records: Vec::new(),
            all: Arc::new([]),
            problems: Vec::new(),
        }
    }

    /// Returns the anchor of a section or plot of this run, unique on the page.
    pub(crate) fn anchor(&self, part: &str) -> String {
        format!("{}-{}", self.id, identifier(part))
    }

    /// Returns the first `run` record; `None` if the run has none.
    pub(crate) fn header(&self) -> Option<RunHeader<'_>> {
        self.records.iter().find_map(|record| match record {
            Record::Run {
                experiment,
                started,
                quick,
                machine,
                command,
            } => Some(RunHeader {
                experiment,
                started: *started,
                quick: *quick,
                machine,
                command,
            }),
            _ => None,
        })
    }

    /// Returns name, version and configuration of each system.
    pub(crate) fn systems(&self) -> impl Iterator<Item = (&str, Option<&str>, &str)> {
        self.records.iter().filter_map(|record| match record {
            Record::System {
                system,
                version,
                configuration,
            } => Some((system.as_str(), version.as_deref(), configuration.as_str())),
            _ => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAMPLE: &str = r#"{"record":"sample","case":"one-rule","system":"millrace","round":0,"window":0,"pps":[1e6,0.0],"core_share":1.0,"right":true}"#;

    #[test]
    fn a_line_cut_short_and_a_record_of_another_version_are_named_and_the_rest_is_read() {
        let text = format!(
            "{SAMPLE}\n{{\"record\":\"weather\"}}\n\n{SAMPLE}\n{}",
            &SAMPLE[..40]
        );
        let source = &parse("runs.jsonl", &text)[0];
        assert_eq!(source.records.len(), 2);
        assert_eq!(source.problems.len(), 2, "{:?}", source.problems);
        assert!(source.problems[0].starts_with("runs.jsonl, line 2: a record `weather`"));
        assert!(source.problems[1].starts_with("runs.jsonl, line 5: it is incomplete"));
    }

    #[test]
    fn a_file_of_several_runs_is_several_sources_with_names_of_their_own() {
        let machine = serde_json::to_string(&Machine::describe(0)).unwrap();
        let run = |experiment: &str| {
            format!(
                r#"{{"record":"run","experiment":"{experiment}","started":0,"quick":true,"machine":{machine},"command":""}}"#
            )
        };
        let text = format!(
            "{}\n{SAMPLE}\n{}\n{}\n{SAMPLE}",
            run("forward"),
            run("A b"),
            run("forward")
        );
        let mut sources = parse("runs.jsonl", &text);
        assign_ids(&mut sources);
        let ids: Vec<&str> = sources.iter().map(|source| source.id.as_str()).collect();
        assert_eq!(ids, ["forward", "a-b", "forward-2"]);
        assert_eq!(sources[2].records.len(), 2);
    }

    #[test]
    fn the_newer_of_two_runs_of_an_experiment_is_shown() {
        let machine = serde_json::to_string(&Machine::describe(0)).unwrap();
        let run = |started: u64| {
            format!(
                r#"{{"record":"run","experiment":"forward","started":{started},"quick":true,"machine":{machine},"command":""}}"#
            )
        };
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("forward.jsonl"), run(9)).unwrap();
        fs::write(dir.path().join("runs.jsonl"), format!("{}\n{SAMPLE}\n", run(5))).unwrap();
        let sources = read_folder(dir.path()).unwrap();
        assert_eq!((sources.len(), sources[0].header().unwrap().started), (1, 9));
        assert_eq!(
            sources[0].problems,
            ["runs.jsonl: an older run of forward is left out"]
        );
        assert_eq!(sources[0].all.len(), 1);
    }

    #[test]
    fn unreadable_lines_beyond_the_limit_are_counted() {
        let source = &parse("x.jsonl", &"nonsense\n".repeat(9))[0];
        assert_eq!(source.problems.len(), PROBLEMS_MAX + 1);
        assert_eq!(source.problems[PROBLEMS_MAX], "x.jsonl: 4 more lines");
    }

    #[test]
    fn the_error_of_a_folder_without_records_names_the_command() {
        let dir = tempfile::tempdir().unwrap();
        let error = read_folder(dir.path()).unwrap_err().to_string();
        assert!(error.contains("millrace bench"), "{error}");
    }
}
