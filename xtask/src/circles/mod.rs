//! Refuses circles of imports among the files of a crate: file a uses b, and b uses a, directly or through
//! others. Without circles, a reader can begin with the files that use no other, and a file can be moved with
//! the files that it uses.
//!
//! A file depends on the files that define the items named by its paths, in a `use` declaration or anywhere
//! in its code. A re-export (`pub use`) is followed to the definition, and is no dependency. A declaration
//! `mod x;` is no dependency either. So a `mod.rs` that only declares and re-exports is in no circle. Code
//! that is compiled only for tests does not count.
//!
//! ```text
//!   source --lexer--> tokens --modules--> items, imports, paths --mod--> edges --graph--> circles
//! ```

mod graph;
mod lexer;
mod modules;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path as FilePath;

use anyhow::{Context, Result, bail};

use graph::{Graph, circles};
use modules::{Import, Modules, Path, load};

/// The dependencies among files, each with the paths (and their lines) that cause it.
type Edges = BTreeMap<(String, String), Vec<String>>;

/// Fails if a crate has a circle, and names its files and the paths between them.
pub(crate) fn check(root: &FilePath) -> Result<()> {
    let mut problems = Vec::new();
    let crates = crates(root)?;
    for krate in &crates {
        let circles = problems_of(root, krate)?;
        problems.extend(circles.iter().map(|circle| format!("{krate}: {circle}")));
    }
    if !problems.is_empty() {
        bail!(
            "files import each other in circles. Move the items that both sides use into a file below both:\n{}",
            problems.join("\n")
        );
    }
    println!("circles: none among the files of {} crates", crates.len());
    Ok(())
}

/// Returns the folders of all crates, in order.
fn crates(root: &FilePath) -> Result<Vec<String>> {
    let mut crates = Vec::new();
    for planes in ["bin", "crates"] {
        let mut folders = vec![root.join(planes)];
        while let Some(folder) = folders.pop() {
            if folder.join("Cargo.toml").exists() {
                crates.push(folder.strip_prefix(root)?.display().to_string());
                continue;
            }
            for entry in std::fs::read_dir(&folder).with_context(|| folder.display().to_string())? {
                let entry = entry?;
                if entry.file_type()?.is_dir() {
                    folders.push(entry.path());
                }
            }
        }
    }
    crates.sort();
    Ok(crates)
}

/// Prints the circles of the crates in the folders `crates`, and fails if there are any.
pub(crate) fn list(root: &FilePath, crates: &[String]) -> Result<()> {
    let mut count = 0;
    for krate in crates {
        let problems = problems_of(root, krate)?;
        println!("{krate}: {} circles", problems.len());
        problems.iter().for_each(|circle| println!("{circle}"));
        count += problems.len();
    }
    if count > 0 {
        bail!("{count} circles");
    }
    Ok(())
}

/// Describes each circle of the crate in the folder `krate`.
fn problems_of(root: &FilePath, krate: &str) -> Result<Vec<String>> {
    let source = root.join(krate).join("src");
    let read = |file: &str| std::fs::read_to_string(source.join(file)).ok();
    let start = ["lib.rs", "main.rs"]
        .into_iter()
        .find(|file| read(file).is_some());
    let start = start.with_context(|| format!("{}: expected lib.rs or main.rs", source.display()))?;
    Ok(described(&edges(&load(start, &read))))
}

/// Describes each circle: its files, then each dependency within it.
fn described(edges: &Edges) -> Vec<String> {
    let mut graph = Graph::new();
    for (from, to) in edges.keys() {
        graph.entry(from.clone()).or_default().insert(to.clone());
    }
    let inside = |circle: &BTreeSet<String>| {
        let edges = edges
            .iter()
            .filter(|((from, to), _)| circle.contains(from) && circle.contains(to))
            .map(|((from, to), paths)| format!("\n  {from} -> {to}: {}", paths.join(", ")));
        format!("a circle of {} files{}", circle.len(), edges.collect::<String>())
    };
    circles(&graph).iter().map(inside).collect()
}

/// Returns the dependencies among the files of a crate.
fn edges(modules: &Modules) -> Edges {
    let mut edges = Edges::new();
    for (here, module) in modules {
        let mut add = |file: Option<&str>, path: &Path, line: usize| {
            if let Some(file) = file.filter(|file| *file != module.file) {
                let paths = edges.entry((module.file.clone(), file.to_owned())).or_default();
                paths.push(format!("{} (line {line})", path.join("::")));
            }
        };
        for import in module.imports.iter().filter(|import| !import.is_public) {
            let target = absolute(&import.path, here, modules);
            let file = target.and_then(|target| match import.name {
                Some(_) => definition(&target, modules, &mut BTreeSet::new()),
                None => modules.get(&target).map(|module| module.file.as_str()),
            });
            add(file, &import.path, import.line);
        }
        for (path, line) in &module.paths {
            let through = |import: &&Import| import.name.as_ref() == path.first();
            let target = absolute(path, here, modules).or_else(|| {
                let import = module.imports.iter().find(through)?;
                let mut target = absolute(&import.path, here, modules)?;
                target.extend_from_slice(&path[1..]);
                Some(target)
            });
            let file = target.and_then(|target| definition(&target, modules, &mut BTreeSet::new()));
            add(file, path, *line);
        }
    }
    edges
}

/// Returns a path from the root of the crate, or `None` if the path leads to another crate.
fn absolute(path: &[String], here: &Path, modules: &Modules) -> Option<Path> {
    let (first, rest) = path.split_first()?;
    match first.as_str() {
        "crate" => Some(rest.to_vec()),
        "self" => Some([here.as_slice(), rest].concat()),
        "super" => {
            let supers = path.iter().take_while(|name| *name == "super").count();
            let above = here.len().checked_sub(supers)?;
            Some([&here[..above], &path[supers..]].concat())
        }
        _ => {
            let child = [here.as_slice(), std::slice::from_ref(first)].concat();
            modules
                .contains_key(&child)
                .then(|| [here.as_slice(), path].concat())
        }
    }
}

/// Returns the file that defines the item at a path from the root of the crate. Returns `None` if the path
/// names a module, or an item that is not found. `seen` holds the imports that were followed, which may form
/// a circle.
fn definition<'a>(path: &Path, modules: &'a Modules, seen: &mut BTreeSet<(Path, String)>) -> Option<&'a str> {
    let len = (0..=path.len())
        .rev()
        .find(|len| modules.contains_key(&path[..*len]))?;
    let (here, rest) = (path[..len].to_vec(), &path[len..]);
    let module = modules.get(&here)?;
    let (name, below) = rest.split_first()?;
    if module.items.contains(name) {
        return Some(&module.file);
    }
    if !seen.insert((here.clone(), name.clone())) {
        return None;
    }
    let named = module
        .imports
        .iter()
        .find(|import| import.name.as_ref() == Some(name));
    if let Some(import) = named {
        let target = [absolute(&import.path, &here, modules)?, below.to_vec()].concat();
        return definition(&target, modules, seen);
    }
    let globs = module.imports.iter().filter(|import| import.name.is_none());
    let targets: Vec<Path> = globs
        .filter_map(|glob| absolute(&glob.path, &here, modules))
        .collect();
    targets
        .into_iter()
        .find_map(|target| definition(&[target, rest.to_vec()].concat(), modules, seen))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn circles_of(files: &[(&str, &str)]) -> Vec<String> {
        let files: BTreeMap<&str, &str> = files.iter().copied().collect();
        let read = |file: &str| files.get(file).map(|text| (*text).to_owned());
        described(&edges(&load("lib.rs", &read)))
    }

    #[test]
    fn two_files_that_use_each_other_are_a_circle() {
        let circles = circles_of(&[
            ("lib.rs", "mod a; mod b;"),
            ("a.rs", "use crate::b::B;\npub struct A;"),
            ("b.rs", "pub struct B;\nfn f() -> super::a::A {}"),
        ]);
        assert_eq!(
            circles,
            [
                "a circle of 2 files\n  a.rs -> b.rs: crate::b::B (line 1)\n  b.rs -> a.rs: super::a::A (line 2)"
            ]
        );
    }

    #[test]
    fn a_circle_may_lead_through_several_files_and_through_names_of_modules() {
        let circles = circles_of(&[
            ("lib.rs", "mod a; mod b; mod c;"),
            ("a.rs", "use super::b;\npub fn a() { b::b() }"),
            ("b.rs", "pub fn b() { crate::c::c() }"),
            ("c.rs", "use crate::a as first;\npub fn c() { first::a() }"),
        ]);
        assert_eq!(circles.len(), 1);
        assert!(circles[0].starts_with("a circle of 3 files"), "{circles:?}");
    }

    #[test]
    fn a_module_that_re_exports_its_children_is_in_no_circle_with_them() {
        let circles = circles_of(&[
            ("lib.rs", "mod a; pub use a::*;"),
            ("a/mod.rs", "mod b; mod c; pub use b::B; pub use c::C;"),
            ("a/b.rs", "pub struct B;"),
            ("a/c.rs", "use super::B; pub struct C(crate::B);"),
        ]);
        assert!(circles.is_empty(), "{circles:?}");
    }

    #[test]
    fn a_module_that_uses_a_child_which_uses_an_item_of_its_own_is_a_circle() {
        let circles = circles_of(&[
            ("lib.rs", "mod a;"),
            ("a/mod.rs", "mod b; pub struct Error; pub fn run() { b::run() }"),
            ("a/b.rs", "use super::Error; pub fn run() -> Result<(), Error> {}"),
        ]);
        assert_eq!(circles.len(), 1, "{circles:?}");
    }

    #[test]
    fn re_exports_in_a_circle_end_the_search() {
        assert!(
            circles_of(&[
                ("lib.rs", "mod a; mod b;"),
                ("a.rs", "pub use super::b::X;"),
                ("b.rs", "pub use super::a::X; fn f() { super::a::X::new() }"),
            ])
            .is_empty()
        );
    }

    #[test]
    fn every_crate_is_found_and_the_problem_of_a_missing_one_is_named() {
        let root = FilePath::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let crates = crates(&root).unwrap();
        for krate in ["bin/millraced", "crates/switch/datapath"] {
            assert!(crates.iter().any(|found| found == krate), "{crates:?}");
        }
        let error = problems_of(&root, "crates/none").unwrap_err().to_string();
        assert!(error.contains("crates/none/src"), "{error}");
    }
}
