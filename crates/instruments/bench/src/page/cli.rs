//! `millrace report`: the arguments and the output.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use clap::Args;

use super::{ReportError, write};

/// Make one HTML page, with plots, of the results of `bench` and `profile`.
///
/// The page needs no network and no other file. The page of an interrupted run shows the results so far.
#[derive(Debug, Clone, Args)]
#[command(after_help = "Examples:\n  \
    millrace report\n  \
    millrace report out/bench -o /tmp/millrace.html")]
pub struct Command {
    /// The folder with the results (*.jsonl)
    #[arg(value_name = "DIR", default_value = "out/bench")]
    dir: PathBuf,
    /// The page to write, with its plots beside it as PNG files; report.html in DIR unless given
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
}

impl Command {
    /// Writes the page and prints its path, as JSON if `json` is true.
    ///
    /// # Errors
    /// [`ReportError`].
    pub fn run(&self, json: bool) -> Result<(), ReportError> {
        let file = self
            .output
            .clone()
            .unwrap_or_else(|| self.dir.join("report.html"));
        let written = write(&self.dir, &file)?;
        for note in &written.notes {
            eprintln!("millrace: {note}");
        }
        let text = if json {
            let value = serde_json::json!({
                "page": written.page,
                "plots": written.plots,
                "notes": written.notes,
            });
            format!("{value:#}\n")
        } else {
            let plots = match written.plots.len() {
                0 => String::new(),
                len => format!(" and {len} plots (*.png) beside it"),
            };
            format!("{}{plots}\n", written.page.display())
        };
        io::stdout()
            .write_all(text.as_bytes())
            .map_err(|source| ReportError::Write {
                path: Path::new("standard output").to_owned(),
                source,
            })
    }
}
