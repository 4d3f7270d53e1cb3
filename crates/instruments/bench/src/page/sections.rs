//! The sections of the page, in their order. Each is made of one run, and is left out if the run has no records for it.

use millrace_report::Section;

use super::source::{Source, identifier};
use super::{acceptance, numbered, origin, other};
use crate::experiments::{chain, forward, lan, profile, qos, rate};

/// All parts, of all runs: first what was found, then where it was found.
pub(super) fn all(sources: &[Source]) -> Vec<Section> {
    let mut sources: Vec<&Source> = sources.iter().collect();
    sources.sort_by_key(|source| place(source));
    let parts = [
        acceptance::section,
        numbered::section,
        forward::section::section,
        rate::section::section,
        qos::section::section,
        chain::section::section,
        other::section,
        lan::section::section,
        profile::section::section,
        profile::simulated_section::section,
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

/// Returns the anchor of a part of a run.
pub(crate) fn id(source: &Source, part: &str) -> String {
    format!("{}-{}", source.id, identifier(part))
}
