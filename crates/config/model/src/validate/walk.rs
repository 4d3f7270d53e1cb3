//! Iteration over bridges and ports with their paths in the configuration.

use crate::bridge::Bridge;
use crate::config::Config;
use crate::error::Path;
use crate::port::Port;

/// Returns the bridges with their paths.
pub(super) fn bridges(config: &Config) -> impl Iterator<Item = (&Bridge, Path)> {
    let list = Path::default().key("bridge");
    config
        .bridges
        .iter()
        .enumerate()
        .map(move |(index, bridge)| (bridge, list.index(index)))
}

/// Returns the ports of a bridge with their paths.
pub(super) fn ports<'a>(bridge: &'a Bridge, path: &Path) -> impl Iterator<Item = (&'a Port, Path)> {
    let list = path.key("port");
    bridge
        .ports
        .iter()
        .enumerate()
        .map(move |(index, port)| (port, list.index(index)))
}

/// Returns the ports of all bridges with their paths.
pub(super) fn all_ports(config: &Config) -> impl Iterator<Item = (&Port, Path)> {
    bridges(config).flat_map(|(bridge, path)| ports(bridge, &path).collect::<Vec<_>>())
}
