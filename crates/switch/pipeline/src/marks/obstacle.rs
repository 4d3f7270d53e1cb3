//! The settings of a bridge because of which marks of a port are not used: something beside the tables decides about its packets,
//! or the tables decide by the port alone.

use millrace_types::PortNo;

use crate::forwarding::Forwarding;
use crate::fragments::FragmentMode;
use crate::standalone::Standalone;

/// The reason why marks of a port are not used.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum MarkObstacle {
    /// The tables match the port only: no lookup is saved.
    NoMatch,
    /// The port does not receive, or the spanning tree blocks it.
    Closed,
    /// OAM takes frames of the port.
    Oam,
    /// The bridge drops or reassembles fragments.
    Fragments,
    /// The bridge has tunnels.
    Tunnels,
    /// NORMAL forwards all packets while no controller is connected.
    Standalone,
    /// NORMAL forwards packets of some ports or VLANs.
    Normal,
    /// Mirrors copy packets of the bridge.
    Mirrors,
    /// A live trace watches the tables.
    Trace,
}

impl MarkObstacle {
    /// Returns the word for people.
    pub fn name(self) -> &'static str {
        match self {
            MarkObstacle::NoMatch => "no_match",
            MarkObstacle::Closed => "closed",
            MarkObstacle::Oam => "oam",
            MarkObstacle::Fragments => "fragments",
            MarkObstacle::Tunnels => "tunnels",
            MarkObstacle::Standalone => "standalone",
            MarkObstacle::Normal => "normal",
            MarkObstacle::Mirrors => "mirrors",
            MarkObstacle::Trace => "trace",
        }
    }
}

impl Forwarding {
    /// Returns the reason why marks of a port are not used, if there is one.
    pub fn mark_obstacle(&self, in_port: PortNo) -> Option<MarkObstacle> {
        let receives = self
            .port(in_port)
            .is_some_and(|port| port.ingress_block().is_none());
        if self.matches_in_port_only() {
            Some(MarkObstacle::NoMatch)
        } else if !receives {
            Some(MarkObstacle::Closed)
        } else if self.oam().is_some_and(|oam| oam.find(in_port).is_some()) {
            Some(MarkObstacle::Oam)
        } else if self.fragments() != FragmentMode::Normal {
            Some(MarkObstacle::Fragments)
        } else if self.tunnels().is_some() {
            Some(MarkObstacle::Tunnels)
        } else if self.standalone() == Standalone::All {
            Some(MarkObstacle::Standalone)
        } else if self.normal_ingress().is_some() {
            Some(MarkObstacle::Normal)
        } else if self.mirrors().is_some() {
            Some(MarkObstacle::Mirrors)
        } else if !self.traces().is_empty() {
            Some(MarkObstacle::Trace)
        } else {
            None
        }
    }
}
