//! Iteration over bridges and ports with their paths in the configuration.

use crate::bridge::Bridge;
use crate::config::Config;
use crate::device::Device;
use crate::error::Path;
use crate::lag::{Lag, LagMember};
use crate::mirror::Mirror;
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

/// Returns the LAGs of a bridge with their paths.
pub(super) fn lags<'a>(bridge: &'a Bridge, path: &Path) -> impl Iterator<Item = (&'a Lag, Path)> {
    let list = path.key("lag");
    bridge
        .lags
        .iter()
        .enumerate()
        .map(move |(index, lag)| (lag, list.index(index)))
}

/// Returns the mirrors of a bridge with their paths.
pub(super) fn mirrors<'a>(bridge: &'a Bridge, path: &Path) -> impl Iterator<Item = (&'a Mirror, Path)> {
    let list = path.key("mirror");
    bridge
        .mirrors
        .iter()
        .enumerate()
        .map(move |(index, mirror)| (mirror, list.index(index)))
}

/// Returns the members of a LAG with their paths.
pub(super) fn members<'a>(lag: &'a Lag, path: &Path) -> impl Iterator<Item = (&'a LagMember, Path)> {
    let list = path.key("member");
    lag.members
        .iter()
        .enumerate()
        .map(move |(index, member)| (member, list.index(index)))
}

/// Returns the devices of the ports and of the members of LAGs of all bridges with their paths.
pub(super) fn all_devices(config: &Config) -> impl Iterator<Item = (&Device, Path)> {
    bridges(config).flat_map(|(bridge, path)| bridge.device_paths(&path))
}
