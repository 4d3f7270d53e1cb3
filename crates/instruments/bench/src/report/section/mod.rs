//! The parts of the page: one file for each kind of experiment. A part is made of one run, and is left out
//! where the run has nothing for it.

mod acceptance;
mod chain;
mod forward;
mod histogram;
mod lan;
mod loads;
mod numbered;
mod origin;
mod other;
mod profile;
mod qos;
mod simulated;
mod verdict;

use super::plot::Plot;
use super::source::{Source, identifier};

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

/// All parts, of all runs: first what was found, then where it was found.
pub(super) fn all(sources: &[Source]) -> Vec<Section> {
    let mut sources: Vec<&Source> = sources.iter().collect();
    sources.sort_by_key(|source| place(source));
    let parts = [
        acceptance::section,
        numbered::section,
        forward::section,
        loads::section,
        qos::section,
        chain::section,
        other::section,
        lan::section,
        profile::section,
        simulated::section,
    ];
    let found = sources
        .iter()
        .flat_map(|source| parts.into_iter().filter_map(move |part| part(source)));
    let origins = sources.iter().filter_map(|source| origin::section(source));
    found.chain(origins).collect()
}

/// In which order a reader wants experiments; those that we do not know come before the last.
fn place(source: &Source) -> usize {
    const FIRST: [&str; 13] = [
        "forward", "hostile", "rules", "tables", "workers", "million", "install", "grow", "updates", "rate",
        "latency", "bridge", "qos",
    ];
    const LAST: [&str; 2] = ["lan", "profile"];
    let name = source.head().map_or("", |head| head.experiment);
    match LAST.iter().position(|last| name.starts_with(last)) {
        Some(index) => FIRST.len() + 1 + index,
        None => FIRST
            .iter()
            .position(|first| *first == name)
            .unwrap_or(FIRST.len()),
    }
}

/// An identifier on the page: of the run, and of a part of it.
fn id(source: &Source, part: &str) -> String {
    format!("{}-{}", source.id, identifier(part))
}
