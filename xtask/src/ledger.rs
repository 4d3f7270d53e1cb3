//! Checks the ledger of the requirements of OpenFlow 1.3.5 (`docs/openflow-1.3.5.md`): every row names existing tests, or the
//! reason why the requirement is not implemented.
//!
//! A row has four cells: the requirement, `must` or `may`, `yes` or `no` (implemented or not), and the evidence. The evidence
//! of a `yes` names tests as `` `crate::test_name` ``, where the crate is a folder of a plane in `crates/`, or `interop` or
//! `conformance`, the folders of `tests/`. The evidence of a `no` is a sentence.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

/// The path of the ledger.
const LEDGER: &str = "docs/openflow-1.3.5.md";
/// The folders of `tests/`, whose tests are in Python.
const PYTHON: [&str; 2] = ["interop", "conformance"];

/// Fails with a list of the invalid rows.
pub(crate) fn check(root: &Path) -> Result<()> {
    let text = std::fs::read_to_string(root.join(LEDGER)).context(LEDGER)?;
    let rows = rows(&text);
    let tests = tests(root)?;
    let problems = problems(&rows, &tests);
    if !problems.is_empty() {
        bail!("{LEDGER}:\n  {}", problems.join("\n  "));
    }
    let there = rows.iter().filter(|row| row.there == "yes").count();
    let named: BTreeSet<_> = rows.iter().flat_map(Row::tests).collect();
    println!(
        "ledger: {there} of {} rows are there, shown by {} tests",
        rows.len(),
        named.len()
    );
    Ok(())
}

/// A row of a table.
struct Row<'a> {
    /// Line number in the file, from 1.
    line: usize,
    kind: &'a str,
    there: &'a str,
    evidence: &'a str,
}

impl<'a> Row<'a> {
    /// Returns the tests that the evidence names: texts in backquotes that have the form of a test.
    fn tests(&self) -> impl Iterator<Item = &'a str> + use<'a> {
        let quoted = self.evidence.split('`').skip(1).step_by(2);
        quoted.filter(|name| name.contains("::"))
    }
}

/// Returns the rows of all tables, without their headings.
fn rows(text: &str) -> Vec<Row<'_>> {
    let mut rows = Vec::new();
    for (line, text) in text.lines().enumerate() {
        let Some([_, kind, there, evidence]) = cells(text) else {
            continue;
        };
        if kind != "kind" && !kind.starts_with("---") {
            rows.push(Row {
                line: line + 1,
                kind,
                there,
                evidence,
            });
        }
    }
    rows
}

/// Returns the cells of a row of a table with four columns.
fn cells(line: &str) -> Option<[&str; 4]> {
    let inner = line.strip_prefix('|')?.strip_suffix('|')?;
    let cells: Vec<&str> = inner.split('|').map(str::trim).collect();
    cells.try_into().ok()
}

fn problems(rows: &[Row<'_>], tests: &BTreeSet<String>) -> Vec<String> {
    let mut problems = Vec::new();
    for row in rows {
        let line = row.line;
        if !["must", "may"].contains(&row.kind) {
            problems.push(format!("line {line}: `{}` is neither must nor may", row.kind));
        }
        match row.there {
            "yes" if row.tests().next().is_none() => problems.push(format!("line {line}: no test is named")),
            "yes" => {}
            "no" if row.evidence.len() < 10 => problems.push(format!("line {line}: no reason is given")),
            "no" => {}
            other => problems.push(format!("line {line}: `{other}` is neither yes nor no")),
        }
        problems.extend(
            row.tests()
                .filter(|name| !tests.contains(*name))
                .map(|name| format!("line {line}: there is no test `{name}`")),
        );
    }
    if rows.is_empty() {
        problems.push("there is no row in it".to_owned());
    }
    problems
}

/// Returns the folder of each crate, `crates/<plane>/<crate>`.
fn crates(root: &Path) -> Result<Vec<PathBuf>> {
    let mut folders = Vec::new();
    for plane in std::fs::read_dir(root.join("crates"))? {
        let plane = plane?.path();
        if plane.is_dir() {
            for entry in std::fs::read_dir(plane)? {
                let entry = entry?.path();
                folders.extend(entry.is_dir().then_some(entry));
            }
        }
    }
    Ok(folders)
}

/// Returns every test, as `folder::name`.
fn tests(root: &Path) -> Result<BTreeSet<String>> {
    let mut tests = BTreeSet::new();
    for folder in crates(root)? {
        let name = folder
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        for file in files(&folder, "rs")? {
            let text = std::fs::read_to_string(&file).with_context(|| file.display().to_string())?;
            tests.extend(rust_tests(&text).map(|test| format!("{name}::{test}")));
        }
    }
    for name in PYTHON {
        for file in files(&root.join("tests").join(name), "py")? {
            let text = std::fs::read_to_string(&file).with_context(|| file.display().to_string())?;
            tests.extend(python_tests(&text).map(|test| format!("{name}::{test}")));
        }
    }
    Ok(tests)
}

/// Returns the functions with an attribute `test`, or with an attribute that ends in `test`, such as
/// `tokio::test`.
fn rust_tests(text: &str) -> impl Iterator<Item = &str> {
    let mut is_test = false;
    text.lines().filter_map(move |line| {
        let line = line.trim();
        if line.starts_with("#[") {
            is_test |= line.starts_with("#[test]") || line.contains("::test");
            return None;
        }
        if line.starts_with("//") {
            return None;
        }
        let was_test = std::mem::take(&mut is_test);
        let name = line.strip_prefix("async ").unwrap_or(line).strip_prefix("fn ")?;
        was_test.then(|| name.split('(').next().unwrap_or_default())
    })
}

/// Returns the functions that pytest runs as tests.
fn python_tests(text: &str) -> impl Iterator<Item = &str> {
    text.lines()
        .filter_map(|line| line.strip_prefix("def "))
        .filter(|name| name.starts_with("test_"))
        .filter_map(|name| name.split('(').next())
}

/// Returns the files below a folder that have an extension.
fn files(folder: &Path, extension: &str) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).with_context(|| folder.display().to_string())? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|found| found == extension) {
                found.push(path);
            }
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEDGER: &str = "\
| asked | kind | there | evidence |
| --- | --- | --- | --- |
| a | must | yes | `pipeline::it_is_so`, with `code` |
| b | may | no | nobody needs it: BAD_REQUEST |
";

    fn told(ledger: &str, tests: &[&str]) -> Vec<String> {
        problems(
            &rows(ledger),
            &tests.iter().map(|name| (*name).to_owned()).collect(),
        )
    }

    #[test]
    fn a_ledger_whose_tests_exist_is_in_order() {
        assert_eq!(told(LEDGER, &["pipeline::it_is_so"]), Vec::<String>::new());
    }

    #[test]
    fn a_test_that_is_missing_is_named_with_its_line() {
        assert_eq!(
            told(LEDGER, &[]),
            ["line 3: there is no test `pipeline::it_is_so`"]
        );
    }

    #[test]
    fn a_row_without_evidence_is_refused() {
        assert_eq!(
            told("| a | must | yes | as one sees |", &[]),
            ["line 1: no test is named"]
        );
        assert_eq!(told("| a | must | no | |", &[]), ["line 1: no reason is given"]);
        assert_eq!(
            told("| a | can | no | nobody needs it |", &[]),
            ["line 1: `can` is neither must nor may"]
        );
        assert_eq!(told("nothing", &[]), ["there is no row in it"]);
    }

    #[test]
    fn tests_are_functions_that_are_marked_as_such() {
        let text = "#[test]\n#[ignore]\nfn one() {\n}\nfn two() {\n#[tokio::test]\nasync fn three() {";
        assert_eq!(rust_tests(text).collect::<Vec<_>>(), ["one", "three"]);
        assert_eq!(
            python_tests("def test_a(x):\ndef other():\n").collect::<Vec<_>>(),
            ["test_a"]
        );
    }
}
