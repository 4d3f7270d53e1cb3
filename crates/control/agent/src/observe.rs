//! Changes of the running switch that front ends follow. The control thread of a bridge, or the task of a channel, reports each
//! change as soon as it knows it; an observer must not block.

use std::net::IpAddr;
use std::sync::Arc;

use millrace_datapath::io::DeviceInfo;
use millrace_l2ctl::lldp::Neighbour;
use millrace_types::{Duration, Mac};

use crate::port::PortStatus;

/// A change of the running switch.
#[derive(Debug)]
pub enum Observation<'a> {
    /// A port was opened, or its settings, its device or its link changed.
    Port {
        /// The name of the bridge.
        bridge: &'a str,
        /// The port after the change.
        status: &'a PortStatus,
    },
    /// A port was closed.
    PortGone {
        /// The name of the bridge.
        bridge: &'a str,
        /// The name of the port.
        port: &'a str,
    },
    /// A member of a LAG was opened, its link changed, or it began or ceased to carry packets.
    Member {
        /// The name of the bridge.
        bridge: &'a str,
        /// The name of the port of the LAG.
        port: &'a str,
        /// The name of the member.
        member: &'a str,
        /// The device after the change.
        info: &'a DeviceInfo,
        /// True if the member sends packets of the LAG.
        distributes: bool,
    },
    /// A member of a LAG was closed; those of a LAG whose port was closed are closed with it.
    MemberGone {
        /// The name of the bridge.
        bridge: &'a str,
        /// The name of the port of the LAG.
        port: &'a str,
        /// The name of the member.
        member: &'a str,
    },
    /// The MAC address of a neighbour on the underlay link of a tunnel was learned, changed or forgotten.
    Neighbour {
        /// The name of the bridge.
        bridge: &'a str,
        /// The name of the port.
        port: &'a str,
        /// The IP address of the neighbour.
        address: IpAddr,
        /// The MAC address; `None` if it was forgotten.
        mac: Option<Mac>,
    },
    /// The MAC address of a neighbour of the router was learned, changed or forgotten.
    RouterNeighbour {
        /// The name of the VRF.
        vrf: &'a str,
        /// The name of the interface.
        interface: &'a str,
        /// The IP address of the neighbour.
        address: IpAddr,
        /// The MAC address; `None` if it was forgotten.
        mac: Option<Mac>,
    },
    /// The neighbours of a port, or of a member of a LAG, by LLDP changed.
    Lldp {
        /// The name of the bridge.
        bridge: &'a str,
        /// The name of the port.
        port: &'a str,
        /// The name of the member, if the port is a LAG.
        member: Option<&'a str>,
        /// All neighbours now, each with the rest of its time to live.
        neighbours: Vec<(&'a Neighbour, Duration)>,
    },
    /// A connection with a controller, or a listener, has another state.
    Channels {
        /// The name of the bridge.
        bridge: &'a str,
    },
    /// A bridge was removed with its ports.
    BridgeGone {
        /// The name of the bridge.
        bridge: &'a str,
    },
}

/// A receiver of observations, called on the thread that makes the change.
pub type Observer = Arc<dyn Fn(&Observation<'_>) + Send + Sync>;
