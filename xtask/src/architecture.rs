//! Compares the tables of ARCHITECTURE.md with `cargo metadata`: the crates, the plane of each, the crates that it imports,
//! and the planes that it may know.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::Value;

/// Sets of names by name: the crates that a crate imports, or the planes that a plane may know.
type Names = BTreeMap<String, BTreeSet<String>>;

/// The plane of crates in folders that belong to no plane. These crates may know every plane.
const OUTSIDE: &str = "";

/// A crate, as the document or the workspace describes it.
#[derive(Debug, PartialEq, Eq)]
struct Crate {
    /// The plane, which is the name of the folder (`switch`), or [`OUTSIDE`].
    plane: String,
    imports: BTreeSet<String>,
}

type Crates = BTreeMap<String, Crate>;

/// Fails if the tables and the workspace in the folder `root` differ, and names each difference.
pub(crate) fn check(root: &Path) -> Result<()> {
    let text = std::fs::read_to_string(root.join("ARCHITECTURE.md")).context("ARCHITECTURE.md")?;
    let planes = planes(&text);
    let documented = documented(&text);
    let actual = workspace(root)?;
    let mut problems = differences(&documented, &actual);
    problems.extend(unknown_planes(&planes, &actual));
    if !problems.is_empty() {
        bail!(
            "ARCHITECTURE.md and the workspace disagree:\n  {}",
            problems.join("\n  ")
        );
    }
    println!(
        "architecture: {} crates in {} planes import only what ARCHITECTURE.md allows",
        actual.len(),
        planes.len()
    );
    Ok(())
}

/// Returns the cells of each row whose first cell is a name in backquotes.
fn rows(text: &str) -> impl Iterator<Item = (&str, Vec<&str>)> {
    text.lines().filter_map(|line| {
        let inner = line.strip_prefix('|')?.strip_suffix('|')?;
        let mut cells = inner.split('|').map(str::trim);
        let name = cells.next()?.strip_prefix('`')?.strip_suffix('`')?;
        Some((name, cells.collect()))
    })
}

/// Returns the names of a comma-separated list.
fn list(cell: &str) -> BTreeSet<String> {
    let names = cell.split(',').map(str::trim).filter(|name| !name.is_empty());
    names.map(str::to_owned).collect()
}

/// Reads the table under "The planes": `` `plane/` ``, description, planes that it may know.
fn planes(text: &str) -> Names {
    rows(text)
        .filter_map(|(name, cells)| match cells[..] {
            [_, knows] => Some((name.strip_suffix('/')?.to_owned(), list(knows))),
            _ => None,
        })
        .collect()
}

/// Reads the table under "The crates": `` `crate` ``, plane, description, crates that it may import.
fn documented(text: &str) -> Crates {
    rows(text)
        .filter_map(|(name, cells)| match cells[..] {
            [plane, _, imports] => {
                let (plane, imports) = (plane.to_owned(), list(imports));
                Some((name.to_owned(), Crate { plane, imports }))
            }
            _ => None,
        })
        .collect()
}

/// Returns the plane of a crate from the path of its manifest: the folder below `crates/`, or `bin`.
fn plane(root: &Path, manifest: &str) -> String {
    let path = Path::new(manifest).strip_prefix(root).unwrap_or(Path::new(""));
    let parts: Vec<_> = path.iter().filter_map(|part| part.to_str()).collect();
    match parts[..] {
        ["crates", plane, _, _] => plane.to_owned(),
        ["bin", ..] => "bin".to_owned(),
        _ => OUTSIDE.to_owned(),
    }
}

/// Returns the crates of the workspace, each with its dependencies except dev-dependencies.
fn workspace(root: &Path) -> Result<Crates> {
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
            let manifest = package["manifest_path"].as_str().unwrap_or_default();
            let (plane, imports) = (plane(root, manifest), imports.collect());
            (short(&package["name"]), Crate { plane, imports })
        })
        .collect())
}

/// Returns a message for each difference: a crate that one side lacks, a crate in another plane, or a crate
/// that imports more than its row allows.
fn differences(documented: &Crates, actual: &Crates) -> Vec<String> {
    let mut problems = Vec::new();
    for (name, krate) in actual {
        let Some(row) = documented.get(name) else {
            problems.push(format!("crate `{name}` has no row in the table"));
            continue;
        };
        if row.plane != krate.plane {
            problems.push(format!(
                "`{name}` stands in the plane `{}`, its row says `{}`",
                krate.plane, row.plane
            ));
        }
        let forbidden = krate.imports.difference(&row.imports);
        problems.extend(forbidden.map(|import| format!("`{name}` must not import `{import}`")));
    }
    let absent = documented.keys().filter(|name| !actual.contains_key(*name));
    problems.extend(absent.map(|name| format!("the table has `{name}`, the workspace has not")));
    problems
}

/// Returns a message for each import from a plane that the crate's own plane may not know, and for each plane without a row.
fn unknown_planes(planes: &Names, actual: &Crates) -> Vec<String> {
    let mut problems = Vec::new();
    for (name, krate) in actual.iter().filter(|(_, krate)| krate.plane != OUTSIDE) {
        let Some(known) = planes.get(&krate.plane) else {
            problems.push(format!("the plane `{}` of `{name}` has no row", krate.plane));
            continue;
        };
        for import in &krate.imports {
            let Some(other) = actual.get(import) else { continue };
            if other.plane != krate.plane && !known.contains(&other.plane) {
                problems.push(format!(
                    "`{name}` imports `{import}`, but the plane `{}` may not know `{}`",
                    krate.plane, other.plane
                ));
            }
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLES: &str = "| plane | holds | may know |\n| --- | --- | --- |\n| `low/` | x | |\n| `high/` | y | low |\n\n\
        | crate | plane | holds | may import |\n| --- | --- | --- | --- |\n| `a` | low | x | |\n| `b` | high | y | a, c |\n";

    fn krate(plane: &str, imports: &[&str]) -> Crate {
        Crate {
            plane: plane.to_owned(),
            imports: imports.iter().map(|&import| import.to_owned()).collect(),
        }
    }

    #[test]
    fn the_tables_are_told_apart_by_their_columns() {
        let documented = documented(TABLES);
        assert_eq!(documented.keys().collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(documented["b"], krate("high", &["a", "c"]));
        assert_eq!(planes(TABLES)["high"], list("low"));
        assert!(planes(TABLES)["low"].is_empty());
    }

    #[test]
    fn an_import_that_is_not_allowed_is_named() {
        let actual = Crates::from([("a".to_owned(), krate("low", &["b"]))]);
        let problems = differences(&documented(TABLES), &actual);
        assert_eq!(
            problems,
            [
                "`a` must not import `b`",
                "the table has `b`, the workspace has not"
            ]
        );
    }

    #[test]
    fn a_crate_in_another_plane_than_its_row_says_is_named() {
        let actual = Crates::from([
            ("a".to_owned(), krate("high", &[])),
            ("b".to_owned(), krate("high", &[])),
        ]);
        let problems = differences(&documented(TABLES), &actual);
        assert_eq!(problems, ["`a` stands in the plane `high`, its row says `low`"]);
    }

    #[test]
    fn an_import_of_a_plane_above_is_named() {
        let actual = Crates::from([
            ("a".to_owned(), krate("low", &["b"])),
            ("b".to_owned(), krate("high", &["a"])),
        ]);
        let problems = unknown_planes(&planes(TABLES), &actual);
        assert_eq!(
            problems,
            ["`a` imports `b`, but the plane `low` may not know `high`"]
        );
    }

    #[test]
    fn the_plane_is_the_folder_of_the_manifest() {
        let root = Path::new("/work");
        assert_eq!(plane(root, "/work/crates/io/vhost/Cargo.toml"), "io");
        assert_eq!(plane(root, "/work/bin/millraced/Cargo.toml"), "bin");
        assert_eq!(plane(root, "/work/xtask/Cargo.toml"), OUTSIDE);
    }
}
