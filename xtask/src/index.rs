//! Compares docs/README.md, the index of the documentation, with the files of docs/ and its folders.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context, Result, bail};

/// The index, which does not list itself.
const INDEX: &str = "README.md";

/// Fails if a page has no link in the index, or a link of the index has no page.
pub(crate) fn check(root: &Path) -> Result<()> {
    let docs = root.join("docs");
    let index = docs.join(INDEX);
    let text = std::fs::read_to_string(&index).with_context(|| index.display().to_string())?;
    let mut pages = BTreeSet::new();
    add_pages(&docs, "", &mut pages)?;
    pages.remove(INDEX);
    let problems = problems_of(&pages, &links(&text));
    if !problems.is_empty() {
        bail!("docs/{INDEX} and docs/ differ:\n{}", problems.join("\n"));
    }
    println!("index: docs/{INDEX} links all {} pages", pages.len());
    Ok(())
}

/// Adds the files below a folder of docs/, by their paths from there.
fn add_pages(folder: &Path, prefix: &str, pages: &mut BTreeSet<String>) -> Result<()> {
    for entry in std::fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let entry = entry?;
        let name = format!("{prefix}{}", entry.file_name().to_string_lossy());
        if entry.file_type()?.is_dir() {
            add_pages(&entry.path(), &format!("{name}/"), pages)?;
        } else {
            pages.insert(name);
        }
    }
    Ok(())
}

/// Returns the targets of the Markdown links to files below docs/.
fn links(text: &str) -> BTreeSet<String> {
    let targets = text.split("](").skip(1);
    let targets = targets.filter_map(|rest| rest.split([')', '#']).next());
    targets
        .filter(|target| !target.is_empty() && !target.contains("://") && !target.starts_with(".."))
        .map(str::to_owned)
        .collect()
}

fn problems_of(pages: &BTreeSet<String>, links: &BTreeSet<String>) -> Vec<String> {
    let without_line = pages.difference(links);
    let without_line = without_line
        .map(|page| format!("docs/{page} has no line in docs/{INDEX}: add one that says what it holds"));
    let without_page = links.difference(pages);
    let without_page = without_page.map(|link| {
        format!("docs/{INDEX} links {link}, which does not exist: correct the link, or add the page")
    });
    without_line.chain(without_page).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn a_page_without_a_line_and_a_line_without_a_page_are_named() {
        let text = "| [a](a.md) | [one](adr/1.md#context), <https://x.org>, [up](../x), [gone](gone.md) |";
        assert_eq!(links(text), set(&["a.md", "adr/1.md", "gone.md"]));
        let problems = problems_of(&set(&["a.md", "adr/1.md", "new.md"]), &links(text));
        assert_eq!(problems.len(), 2);
        assert!(problems[0].starts_with("docs/new.md has no line"), "{problems:?}");
        assert!(problems[1].contains("links gone.md"), "{problems:?}");
    }
}
