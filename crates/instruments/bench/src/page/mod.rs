//! `millrace report`: turns the records of a folder into one HTML page that needs no other file, with PNG files of its
//! plots beside it.
//!
//! The page is a function of the records: it uses no clock, no machine and no network. The page names the records that
//! are missing or cannot be read.

mod acceptance;
pub mod cli;
mod error;
mod numbered;
mod origin;
mod other;
mod sections;
pub(crate) mod source;
#[cfg(test)]
mod tests;
pub(crate) mod verdict;

use std::fs;
use std::path::{Path, PathBuf};

use millrace_report::{Document, Page, page, png};

pub use error::ReportError;
use source::Source;

/// The files that were written.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReportFiles {
    /// The path of the page.
    pub page: PathBuf,
    /// The paths of the plots as PNG files.
    pub plots: Vec<PathBuf>,
    /// The lines of records that could not be read, and the reason if there are no PNG files.
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

/// Reads every `*.jsonl` of `dir` and writes the page to `file`, with the plots beside it.
///
/// # Errors
/// [`ReportError`]. A line that cannot be read is not an error: the page names it.
pub fn write(dir: &Path, file: &Path) -> Result<ReportFiles, ReportError> {
    write_scaled(dir, file, png::SCALE)
}

/// Writes the report as [`write()`] does, with PNG files of `scale` pixels for each unit of a plot.
fn write_scaled(dir: &Path, file: &Path, scale: f32) -> Result<ReportFiles, ReportError> {
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
    let mut written = ReportFiles {
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
        match painter.png(plot, scale) {
            Some(bytes) => {
                fs::write(&path, bytes).map_err(failed(&path))?;
                written.plots.push(path);
            }
            None => written.notes.push(format!("{} cannot be drawn as PNG", plot.id)),
        }
    }
    Ok(written)
}
