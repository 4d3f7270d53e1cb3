//! The router's port in a bridge: its state, and what the control side of the router tells it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::{Arc, mpsc};

use millrace_pipeline::{FdbKey, VlanMode};
use millrace_router::RouterHandle;
use millrace_types::{PortNo, Vid};
use parking_lot::Mutex;

/// The router, which the RIB's thread and the control threads of bridges share.
pub(crate) type SharedRouter<P> = Arc<Mutex<RouterHandle<P>>>;

/// The part of the router's interfaces that is in one bridge.
#[derive(Clone, Debug, Default)]
pub(crate) struct BridgeInterfaces {
    /// The VLANs of the router's port.
    pub(crate) vlans: VlanMode,
    /// The addresses at which the router receives.
    pub(crate) addresses: BTreeSet<FdbKey>,
    /// The OpenFlow numbers of interfaces, with their index in the router.
    pub(crate) numbers: BTreeMap<PortNo, u16>,
    /// The VLAN of each interface, by index in the router.
    pub(crate) vids: BTreeMap<u16, Vid>,
    /// The ports behind which the kernel's own interfaces are, with the index of the passive interface in the router.
    pub(crate) passive: BTreeMap<PortNo, u16>,
    /// The VRFs that carry tunnels of the bridge, by index in the router.
    pub(crate) underlays: BTreeSet<u16>,
}

/// The way of a tunnel that a VRF carries to its remote end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TunnelRoute {
    /// The index of the VRF in the router.
    pub(crate) vrf: u16,
    /// The local address, if it is known.
    pub(crate) local: Option<IpAddr>,
    /// The longest IP packet that reaches the next hop, in bytes; `None` without a way.
    pub(crate) mtu: Option<u16>,
    /// The interface of the kernel by which packets leave, if the machine itself routes them.
    pub egress: Option<TunnelEgress>,
    /// The reason why there is no way, with the next step.
    pub problem: Option<Arc<str>>,
}

/// The interface of the kernel by which packets of a tunnel leave.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TunnelEgress {
    pub interface: Arc<str>,
    pub has_carrier: bool,
}

/// A change of a link: the index of an interface of the router, and true if its VLAN has a link.
pub(crate) type LinkChange = (u16, bool);

/// The router in a bridge.
pub(super) struct BridgeRouter<P> {
    pub(super) router: SharedRouter<P>,
    /// The index of the bridge in the router.
    pub(super) index: u16,
    /// The router's port, which OpenFlow does not list.
    pub(super) port: PortNo,
    pub(super) interfaces: BridgeInterfaces,
    /// The ports to VRFs that carry tunnels, by index of the VRF; OpenFlow does not list them.
    pub(super) underlays: BTreeMap<u16, PortNo>,
    /// The ways of tunnels, by number of their ports.
    pub(super) tunnel_routes: BTreeMap<PortNo, TunnelRoute>,
    /// The links as they were told last, by index of the interface.
    pub(super) links: BTreeMap<u16, bool>,
    pub(super) told: mpsc::Sender<LinkChange>,
}
