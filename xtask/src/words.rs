//! Refuses violations of CONTRIBUTING.md ("Words") that a program can find: comments that begin with a
//! pronoun in place of a subject, comments that only repeat a name, public items without a comment, and files
//! that are too long.
//!
//! Fields, variants and constants need no comment: their names and types may say enough. rustc's lint
//! `missing_docs` would require a comment on each, and would get "The table." on `table`. So this check
//! replaces the lint.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

/// The maximum number of lines in a file of source code.
const LINES_MAX: usize = 600;

/// The extensions of files of source code.
const EXTENSIONS: [&str; 5] = ["rs", "py", "ts", "tsx", "sh"];

/// First words that leave a comment without a noun as its subject.
const NO_SUBJECT: [&str; 6] = ["What", "Whether", "Whoever", "Where", "That", "Its"];

/// Words of a comment that add nothing to a name.
const ARTICLES: [&str; 5] = ["the", "a", "an", "of", "its"];

/// A name, and the words that mean the same.
const SYNONYMS: [(&str, &[&str]); 7] = [
    ("path", &["file", "directory", "folder"]),
    ("source", &["reason", "cause", "error"]),
    ("error", &["reason", "cause"]),
    ("reason", &["cause"]),
    ("kind", &["type"]),
    ("matching", &["match"]),
    ("at", &["time"]),
];

/// A file whose comments become texts for users: help, man pages, the OpenAPI description, docs/configuration.md.
const PUBLISHED: [&str; 6] = [
    "clap",
    "utoipa",
    "ToSchema",
    "section!",
    "JsonSchema",
    "$doc:literal",
];

/// Folders with source code of this project.
const FOLDERS: [&str; 9] = [
    "bin", "contrib", "crates", "examples", "fuzz", "portal", "python", "tests", "xtask",
];

/// Folders with generated files, and one generated file: the types of the exchange's page.
const MADE: [&str; 6] = [
    "target",
    "node_modules",
    "dist",
    "corpus",
    "generated",
    "schema.d.ts",
];

/// Fails if a file breaks a rule, and names file, line and rule.
pub(crate) fn check(root: &Path) -> Result<()> {
    let mut files = Vec::new();
    for folder in FOLDERS {
        add_files(&root.join(folder), &mut files)?;
    }
    files.sort();
    let mut problems = Vec::new();
    for file in files {
        let text = std::fs::read_to_string(&file).with_context(|| file.display().to_string())?;
        let name = file.strip_prefix(root).unwrap_or(&file);
        problems.extend(problems_of(&name.display().to_string(), &text));
    }
    if !problems.is_empty() {
        bail!(
            "{} lines break the rules of CONTRIBUTING.md, \"Words\":\n{}",
            problems.len(),
            problems.join("\n")
        );
    }
    println!("words: no comment repeats a name or lacks a subject; public items have comments");
    Ok(())
}

/// Adds the files of source code below a folder.
fn add_files(folder: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    for entry in std::fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let entry = entry?;
        let (path, kind) = (entry.path(), entry.file_type()?);
        let name = entry.file_name();
        if MADE.iter().any(|made| name == *made) {
            continue;
        }
        if kind.is_dir() {
            add_files(&path, files)?;
        } else if kind.is_file()
            && path
                .extension()
                .is_some_and(|extension| EXTENSIONS.iter().any(|e| extension == *e))
        {
            files.push(path);
        }
    }
    Ok(())
}

/// Describes the violations in one file.
fn problems_of(file: &str, text: &str) -> Vec<String> {
    let mut problems = Vec::new();
    let len = text.lines().count();
    if len > LINES_MAX {
        problems.push(format!(
            "{file}: {len} lines; expected {LINES_MAX} at most: split it at a seam of meaning"
        ));
    }
    if !file.ends_with(".rs") {
        return problems;
    }
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let is_published = PUBLISHED.iter().any(|word| text.contains(word));
    let needs_docs = file.contains("/src/") && !file.contains("/tests") && !is_published;
    let tests = lines
        .iter()
        .position(|line| *line == "mod tests {")
        .unwrap_or(len);
    for (at, line) in lines.iter().enumerate() {
        let number = at + 1;
        let comment = line
            .strip_prefix("//")
            .map(|rest| rest.trim_start_matches(['/', '!']).trim_start());
        if let Some(word) = comment.and_then(|comment| comment.split(' ').next())
            && NO_SUBJECT.contains(&word)
        {
            problems.push(format!(
                "{file}:{number}: the comment begins with `{word}`; expected a noun as its subject"
            ));
        }
        let begins = line.starts_with("///")
            && !at
                .checked_sub(1)
                .is_some_and(|last| lines[last].starts_with("///"));
        if begins
            && !is_published
            && let Some(name) = repeated_name(&lines[at..])
        {
            problems.push(format!(
                "{file}:{number}: the comment only repeats the name `{name}`; leave it out"
            ));
        }
        if needs_docs
            && at < tests
            && let Some(name) = public_item(line)
            && !is_documented(&lines[..at])
        {
            problems.push(format!(
                "{file}:{number}: `{name}` is public and has no comment; say what it is or returns"
            ));
        }
    }
    problems
}

/// Returns the name of the item below a comment of one line, if the comment contains nothing except the name.
fn repeated_name<'a>(lines: &[&'a str]) -> Option<&'a str> {
    let (comment, below) = lines.split_first()?;
    let item = below.iter().find(|line| !line.starts_with("#["))?;
    let mut words = item.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let name = words.find(|word| !word.is_empty() && !KEYWORDS.contains(word))?;
    if item.starts_with("///") {
        return None;
    }
    let said: Vec<String> = words_of(comment.trim_start_matches('/'))
        .into_iter()
        .filter(|word| !ARTICLES.contains(&word.as_str()))
        .collect();
    let of_name: BTreeSet<String> = words_of(name).into_iter().collect();
    let synonyms = SYNONYMS
        .iter()
        .find(|(of, _)| *of == name)
        .map_or(&[][..], |(_, words)| *words);
    let adds_nothing = |word: &String| of_name.contains(word) || synonyms.contains(&word.as_str());
    let is_plain = !comment.contains(['`', '[', '(']) && !comment.contains(|c: char| c.is_ascii_digit());
    (is_plain && (1..=2).contains(&said.len()) && said.iter().all(adds_nothing)).then_some(name)
}

/// Words of a declaration before its name.
const KEYWORDS: [&str; 17] = [
    "pub", "crate", "super", "in", "self", "const", "async", "unsafe", "extern", "fn", "struct", "enum",
    "trait", "type", "static", "mod", "mut",
];

/// Returns the words of a text or of a name, in lower case and in the singular.
fn words_of(text: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let mut is_lower = false;
    for c in text.chars() {
        match words.last_mut() {
            Some(word) if c.is_alphanumeric() && !(is_lower && c.is_uppercase()) => {
                word.extend(c.to_lowercase());
            }
            _ if c.is_alphanumeric() => words.push(c.to_lowercase().collect()),
            Some(word) if !word.is_empty() => words.push(String::new()),
            _ => {}
        }
        is_lower = c.is_lowercase();
    }
    words.retain(|word| !word.is_empty());
    words
        .iter()
        .map(|word| word.trim_end_matches('s').to_owned())
        .collect()
}

/// Returns the name of the public function, type or trait that a line declares.
fn public_item(line: &str) -> Option<&str> {
    let mut words = line.strip_prefix("pub ")?.split_whitespace().peekable();
    while words
        .next_if(|word| ["async", "unsafe", "extern", "\"C\""].contains(word))
        .is_some()
    {}
    let mut kind = words.next()?;
    if kind == "const" && words.peek().is_some_and(|next| ["fn", "unsafe"].contains(next)) {
        words.next_if_eq(&"unsafe");
        kind = words.next()?;
    }
    let is_item = ["fn", "struct", "enum", "trait", "type", "union"].contains(&kind);
    let name = words
        .next()?
        .split(|c: char| !c.is_alphanumeric() && c != '_')
        .next();
    name.filter(|name| is_item && !name.is_empty())
}

/// Returns true if a comment is above an item. Attributes between them are skipped.
fn is_documented(above: &[&str]) -> bool {
    let mut is_in_attribute = false;
    for line in above.iter().rev() {
        // The interface of an exported symbol is described where the other language declares it.
        if ["///", "#[doc", "#[unsafe(no_mangle)]"]
            .iter()
            .any(|text| line.starts_with(text))
            || line.contains("$doc")
        {
            return true;
        }
        // The lines are read upwards: an attribute of several lines begins at its closing bracket and ends at
        // its first line.
        is_in_attribute = (is_in_attribute || line.ends_with(']')) && !line.starts_with("#[");
        if !is_in_attribute && !line.starts_with("#[") && !line.starts_with("//") {
            return false;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(text: &str) -> usize {
        problems_of("crates/a/src/a.rs", text).len()
    }

    #[test]
    fn a_comment_without_a_subject_is_refused() {
        assert_eq!(problems("// What a packet needs.\nlet x = 1;"), 1);
        assert_eq!(problems("// Packets need this.\nlet x = 1;"), 0);
    }

    #[test]
    fn a_comment_that_only_repeats_the_name_is_refused() {
        assert_eq!(problems("/// The table.\ntable: u8,"), 1);
        assert_eq!(
            problems("/// The flow entries.\n#[serde(default)]\npub flow_entries: Vec<u8>,"),
            1
        );
        assert_eq!(problems("/// The file.\npath: PathBuf,"), 1);
        assert_eq!(problems("/// The table, 0 to 254.\ntable: u8,"), 0);
        assert_eq!(problems("/// The table\n/// of the entry.\ntable: u8,"), 0);
        assert_eq!(problems("/// `ofp_match`.\npub struct Match;"), 0);
        assert_eq!(problems("use clap::Args;\n/// The bridge\nbridge: String,"), 0);
    }

    #[test]
    fn a_public_item_needs_a_comment_and_a_field_needs_none() {
        assert_eq!(problems("pub const fn a() {}"), 1);
        assert_eq!(problems("/// Returns a.\n#[must_use]\npub const fn a() {}"), 0);
        assert_eq!(problems("pub table: u8,"), 0);
        assert_eq!(problems("mod tests {\npub fn a() {}\n}"), 0);
    }

    #[test]
    fn a_file_over_the_limit_is_refused_in_any_language() {
        let text = "x\n".repeat(LINES_MAX + 1);
        assert_eq!(problems_of("portal/src/a.ts", &text).len(), 1);
        assert!(problems_of("portal/src/a.ts", &text[2..]).is_empty());
    }
}
