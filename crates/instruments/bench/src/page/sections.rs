//! The sections of the page, in their order. Each section shows one run. A section is left out if the run has
//! no records for it.

use millrace_report::Section;

use super::source::Source;
use super::{acceptance, numbered, origin, other};
use crate::experiments::{
    chain, exchange, forward, ips, lan, nic, profile, qos, rate, route, transport, wan,
};

/// Returns the sections of all runs: the results first, then the origins.
pub(super) fn all(sources: &[Source]) -> Vec<Section> {
    let mut sources: Vec<&Source> = sources.iter().collect();
    sources.sort_by_key(|source| position(source));
    let parts = [
        acceptance::section,
        numbered::section,
        forward::section::section,
        rate::section::section,
        qos::section::section,
        chain::section::section,
        other::section,
        ips::section::section,
        lan::section::section,
        route::section::section,
        exchange::section::section,
        nic::section::section,
        wan::section::section,
        transport::section::section,
        profile::section::section,
        profile::simulated_section::section,
    ];
    let found = sources
        .iter()
        .flat_map(|source| parts.into_iter().filter_map(move |part| part(source)));
    let origins = sources.iter().filter_map(|source| origin::section(source));
    found.chain(origins).collect()
}

/// Returns the position of a run on the page. Experiments that are in neither list come between the two.
fn position(source: &Source) -> usize {
    const FIRST: [&str; 13] = [
        "forward", "hostile", "rules", "tables", "workers", "million", "install", "grow", "updates", "rate",
        "latency", "bridge", "qos",
    ];
    const LAST: [&str; 8] = [
        "ips",
        "lan",
        "route",
        "exchange",
        "nic",
        "wan",
        "transport",
        "profile",
    ];
    let name = source.header().map_or("", |head| head.experiment);
    match LAST.iter().position(|last| name.starts_with(last)) {
        Some(index) => FIRST.len() + 1 + index,
        None => FIRST
            .iter()
            .position(|first| *first == name)
            .unwrap_or(FIRST.len()),
    }
}
