//! `millrace report`: from the JSON lines of a folder to one HTML page that needs nothing else, with PNG
//! files of its plots beside it.
//!
//! The page is a function of the records: no clock, no machine, no network. What is missing in them is
//! missing on the page, and said.

mod acceptance;
pub mod cli;
mod numbered;
mod origin;
mod other;
pub(crate) mod sections;
pub(crate) mod source;
#[cfg(test)]
mod tests;
pub(crate) mod verdict;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use millrace_report::{Document, Page, page, png};
use thiserror::Error;

use source::Source;

/// Why there is no report.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ReportError {
    /// A file or folder cannot be read.
    #[error("{}: {source}. To fix it: `millrace bench` writes results, and `millrace report DIR` reads those of DIR", .path.display())]
    Read {
        /// Which.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// A file cannot be written.
    #[error("{}: {source}", .path.display())]
    Write {
        /// Which.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// There is nothing to report.
    #[error("{} has no records (*.jsonl); `millrace bench` makes some{}", .dir.display(), because(.problems))]
    Nothing {
        /// The folder.
        dir: PathBuf,
        /// What could not be read in it.
        problems: Vec<String>,
    },
}

fn because(problems: &[String]) -> String {
    problems.iter().map(|problem| format!("\n  {problem}")).collect()
}

/// What was written.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Written {
    /// The page.
    pub page: PathBuf,
    /// The plots, as PNG files.
    pub plots: Vec<PathBuf>,
    /// What of the records could not be read, and why there are no PNG files if there are none.
    pub notes: Vec<String>,
}

/// Returns the page of these runs, which were found in the folder `dir`.
fn compose(sources: &[Source], dir: &str) -> Page {
    let remarks: Vec<String> = sources
        .iter()
        .flat_map(|source| source.problems.clone())
        .collect();
    let document = Document {
        title: "Millrace beside others: measurements",
        remarks: &remarks,
        footer: &format!(
            "Made by `millrace report` from the records in {dir}. A box spans the middle half of the measurements, \
             with the median as its upright line; whiskers reach the minimum and the maximum. The coefficient of \
             variation (CV) is the standard deviation over the mean. Absolute figures belong to the machine; \
             compare systems within one run."
        ),
    };
    page(&document, sections::all(sources))
}

/// Reads every `*.jsonl` of `dir` and writes the page to `file`, the plots beside it.
///
/// # Errors
/// [`ReportError`]. Lines that cannot be read are none: the page names them.
pub fn write(dir: &Path, file: &Path) -> Result<Written, ReportError> {
    let sources = source::read_folder(dir)?;
    let page = compose(&sources, &dir.display().to_string());
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| ReportError::Write { path, source }
    };
    let folder = match file.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    fs::create_dir_all(folder).map_err(failed(folder))?;
    fs::write(file, &page.html).map_err(failed(file))?;
    let mut written = Written {
        page: file.to_owned(),
        plots: Vec::new(),
        notes: sources.into_iter().flat_map(|source| source.problems).collect(),
    };
    let Some(painter) = png::Painter::new() else {
        let note = "no PNG files: this machine has no font. To fix it: apt-get install fonts-dejavu-core";
        written.notes.push(note.to_owned());
        return Ok(written);
    };
    for plot in &page.plots {
        let path = folder.join(format!("{}.png", plot.id));
        match painter.png(plot) {
            Some(bytes) => {
                fs::write(&path, bytes).map_err(failed(&path))?;
                written.plots.push(path);
            }
            None => written.notes.push(format!("{} cannot be drawn as PNG", plot.id)),
        }
    }
    Ok(written)
}
