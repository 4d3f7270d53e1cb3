//! The parts of the page: one file for each kind of experiment. A part is made of one run, and is left out
//! where the run has nothing for it.

mod acceptance;
mod forward;
mod lan;
mod origin;
mod other;
mod profile;

use super::plot::Plot;
use super::source::Source;

/// A part of the page.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Section {
    /// Unique on the page.
    pub(super) id: String,
    pub(super) title: String,
    /// What was found, in a sentence for the top of the page.
    pub(super) lead: Option<String>,
    pub(super) html: String,
    pub(super) plots: Vec<Plot>,
}

/// All parts for one run.
pub(super) fn all(source: &Source) -> Vec<Section> {
    [
        acceptance::section(source),
        forward::section(source),
        lan::section(source),
        other::section(source),
        profile::section(source),
        origin::section(source),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// An identifier on the page: of the run, and of a part of it.
fn id(source: &Source, part: &str) -> String {
    let part: String = part
        .chars()
        .map(|c| {
            if c.is_ascii_alphanumeric() {
                c.to_ascii_lowercase()
            } else {
                '-'
            }
        })
        .collect();
    format!("{}-{part}", source.id)
}
