//! Compares the crate table of ARCHITECTURE.md with what cargo says: which crates there are, and which of
//! them imports which.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::Value;

type Imports = BTreeMap<String, BTreeSet<String>>;

/// Fails, naming each difference.
pub(crate) fn check() -> Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .context("xtask has a parent folder")?;
    let text = std::fs::read_to_string(root.join("ARCHITECTURE.md")).context("ARCHITECTURE.md")?;
    let allowed = table(&text);
    let actual = imports(root)?;
    let problems = differences(&allowed, &actual);
    if !problems.is_empty() {
        bail!(
            "ARCHITECTURE.md and the workspace disagree:\n  {}",
            problems.join("\n  ")
        );
    }
    println!(
        "architecture: {} crates import only what ARCHITECTURE.md allows",
        actual.len()
    );
    Ok(())
}

/// The rows of the table under "The crates": name in backquotes, what it holds, what it may import.
fn table(text: &str) -> Imports {
    text.lines()
        .filter_map(|line| {
            let cells: Vec<&str> = line
                .strip_prefix('|')?
                .strip_suffix('|')?
                .split('|')
                .map(str::trim)
                .collect();
            let [name, _, imports] = cells[..] else {
                return None;
            };
            let name = name.strip_prefix('`')?.strip_suffix('`')?;
            let imports = imports
                .split(',')
                .map(str::trim)
                .filter(|import| !import.is_empty());
            Some((name.to_owned(), imports.map(str::to_owned).collect()))
        })
        .collect()
}

/// The crates of the workspace, each with those that it depends on (not for tests).
fn imports(root: &Path) -> Result<Imports> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version=1", "--no-deps", "--offline"])
        .current_dir(root)
        .output()
        .context("cargo metadata")?;
    if !output.status.success() {
        bail!("cargo metadata: {}", String::from_utf8_lossy(&output.stderr));
    }
    let metadata: Value = serde_json::from_slice(&output.stdout)?;
    let packages = metadata["packages"]
        .as_array()
        .context("cargo metadata: no packages")?;
    let short = |value: &Value| {
        let name = value.as_str().unwrap_or_default();
        name.strip_prefix("millrace-").unwrap_or(name).to_owned()
    };
    let names: BTreeSet<String> = packages.iter().map(|package| short(&package["name"])).collect();
    Ok(packages
        .iter()
        .map(|package| {
            let dependencies = package["dependencies"].as_array().into_iter().flatten();
            let imports = dependencies
                .filter(|dependency| dependency["kind"].is_null())
                .map(|dependency| short(&dependency["name"]))
                .filter(|name| names.contains(name));
            (short(&package["name"]), imports.collect())
        })
        .collect())
}

fn differences(allowed: &Imports, actual: &Imports) -> Vec<String> {
    let mut problems = Vec::new();
    for (name, imports) in actual {
        match allowed.get(name) {
            None => problems.push(format!("crate `{name}` has no row in the table")),
            Some(allowed) => problems.extend(
                imports
                    .difference(allowed)
                    .map(|import| format!("`{name}` must not import `{import}`")),
            ),
        }
    }
    problems.extend(
        allowed
            .keys()
            .filter(|name| !actual.contains_key(*name))
            .map(|name| format!("the table has `{name}`, the workspace has not")),
    );
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str =
        "| crate | holds | may import |\n| --- | --- | --- |\n| `a` | x | |\n| `b` | y | a, c |\n";

    #[test]
    fn the_table_is_read_by_its_backquoted_names() {
        let table = table(TABLE);
        assert_eq!(table.keys().collect::<Vec<_>>(), ["a", "b"]);
        assert!(table["b"].contains("c") && table["a"].is_empty());
    }

    #[test]
    fn an_import_that_is_not_allowed_is_named() {
        let actual = Imports::from([("a".to_owned(), BTreeSet::from(["b".to_owned()]))]);
        let problems = differences(&table(TABLE), &actual);
        assert_eq!(
            problems,
            [
                "`a` must not import `b`",
                "the table has `b`, the workspace has not"
            ]
        );
    }
}
