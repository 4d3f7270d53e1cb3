//! The state that workers read besides the FIB: interfaces, and rates. It is small, so it has two copies (left-right,
//! [`millrace_datapath::publish`]); the FIB has one copy of its own, with atomics.

use core::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use millrace_datapath::publish::Replica;
use millrace_fib::{Fib, GroupId, NextHopKind, NextHops};
use millrace_types::Vid;

use crate::class::PuntClass;
use crate::glean::Glean;
use crate::icmp::ErrorClass;
use crate::interface::Interface;
use crate::limit::PacketRate;
use crate::tunnel::{TunnelEnds, TunnelPath};

/// The number of VLANs.
const VLANS: usize = 4096;
/// The index of no interface.
const NONE: u16 = u16::MAX;

/// The rates of one worker.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rates {
    /// By [`PuntClass`].
    pub punt: [PacketRate; PuntClass::COUNT],
    /// By [`ErrorClass`].
    pub errors: [PacketRate; ErrorClass::COUNT],
}

impl Default for Rates {
    fn default() -> Rates {
        Rates {
            punt: PuntClass::ALL.map(PuntClass::default_rate),
            errors: ErrorClass::ALL.map(ErrorClass::default_rate),
        }
    }
}

/// A change of the state.
#[derive(Clone, Debug)]
pub enum Change {
    /// Adds or replaces an interface, by its index.
    Interface(Arc<Interface>),
    /// The interface with this index is gone.
    RemoveInterface(u16),
    /// Sets the routes of a VRF, or removes the VRF. It then has no tunnels.
    Vrf(u16, Option<Fib>),
    /// Sets the tunnels of a VRF.
    Tunnels(u16, Arc<TunnelEnds>),
    Rates(Arc<Rates>),
    /// Changes nothing: when it is published, no worker reads what was reachable before.
    Nothing,
}

/// The state of a router, as a worker reads it.
#[derive(Clone, Debug)]
pub struct RouterState {
    /// By index.
    interfaces: Vec<Option<Arc<Interface>>>,
    /// By index of the bridge, and then by VLAN, the index of an interface.
    by_vlan: Vec<Box<[u16; VLANS]>>,
    /// By index.
    vrfs: Vec<Option<Vrf>>,
    next_hops: NextHops,
    pub(crate) rates: Arc<Rates>,
}

/// A VRF as a worker reads it.
#[derive(Clone, Debug)]
pub(crate) struct Vrf {
    pub(crate) fib: Fib,
    /// The tunnels that it carries, if there are any.
    pub(crate) tunnels: Option<Arc<TunnelEnds>>,
    /// The IPv4 addresses of its interfaces, sorted: none of them is the source of a packet from outside.
    own: Vec<Ipv4Addr>,
    /// The bits of [`filter_bit`] of all of them.
    own_filter: u64,
}

/// Returns one of 64 bits for an address: most addresses have none of those of a few others.
#[inline]
fn filter_bit(address: Ipv4Addr) -> u64 {
    // 2^32 divided by the golden ratio.
    1 << (address.to_bits().wrapping_mul(0x9e37_79b9) >> 26)
}

impl Vrf {
    #[inline]
    pub(crate) fn is_own(&self, address: Ipv4Addr) -> bool {
        self.own_filter & filter_bit(address) != 0 && self.own.binary_search(&address).is_ok()
    }
}

impl RouterState {
    /// Returns the state of a router without interfaces.
    pub fn new(next_hops: NextHops) -> RouterState {
        RouterState {
            interfaces: Vec::new(),
            by_vlan: Vec::new(),
            vrfs: Vec::new(),
            next_hops,
            rates: Arc::default(),
        }
    }

    /// Returns the interface with an index.
    #[inline]
    pub fn interface(&self, index: u16) -> Option<&Interface> {
        self.interfaces.get(usize::from(index))?.as_deref()
    }

    /// Returns all interfaces.
    pub fn interfaces(&self) -> impl Iterator<Item = &Interface> {
        self.interfaces.iter().filter_map(Option::as_deref)
    }

    /// Returns the interface in a VLAN of a bridge.
    #[inline]
    pub fn interface_in(&self, bridge: u16, vid: Vid) -> Option<&Interface> {
        let index = self.by_vlan.get(usize::from(bridge))?[usize::from(vid.raw()) % VLANS];
        self.interface(index)
    }

    #[inline]
    pub(crate) fn vrf(&self, index: u16) -> Option<&Vrf> {
        self.vrfs.get(usize::from(index))?.as_ref()
    }

    /// Returns true if an address is one of this machine in a VRF.
    pub fn is_own_address(&self, vrf: u16, address: IpAddr) -> bool {
        let found = self
            .group_of(vrf, address)
            .and_then(|group| self.next_hops.member(group, 0));
        found.is_some_and(|hop| hop.kind() == NextHopKind::Local)
    }

    /// Returns the way to the remote end of a tunnel in a VRF, and keeps its next hops in use, so that the kernel keeps
    /// asking for them.
    pub fn tunnel_path(&self, vrf: u16, remote: IpAddr) -> TunnelPath {
        let Some(group) = self.group_of(vrf, remote) else {
            return TunnelPath::None;
        };
        let members = self.next_hops.members(group);
        let hops = members.iter().filter_map(|id| self.next_hops.next_hop(*id));
        let (mut smallest, mut asked) = (None, None);
        for hop in hops {
            let Some(interface) = self
                .interface(hop.interface())
                .filter(|interface| interface.is_up)
            else {
                continue;
            };
            match hop.kind() {
                NextHopKind::Forward => {
                    hop.mark_used();
                    let mtu = hop.mtu().min(interface.mtu);
                    smallest = Some(smallest.map_or(mtu, |before: u16| before.min(mtu)));
                }
                NextHopKind::Glean => {
                    asked = Some(Glean {
                        interface: interface.index,
                        neighbour: hop.gateway().unwrap_or(remote),
                    });
                }
                _ => {}
            }
        }
        match (smallest, asked) {
            (Some(mtu), _) => TunnelPath::There { mtu },
            (None, Some(glean)) => TunnelPath::Unresolved(glean),
            (None, None) => TunnelPath::None,
        }
    }

    fn group_of(&self, vrf: u16, address: IpAddr) -> Option<GroupId> {
        let fib = &self.vrf(vrf)?.fib;
        Some(match address {
            IpAddr::V4(address) => fib.lookup_v4(address.to_bits()),
            IpAddr::V6(address) => fib.lookup_v6(address.to_bits()),
        })
    }

    #[inline]
    pub(crate) fn next_hops(&self) -> &NextHops {
        &self.next_hops
    }

    fn remove(&mut self, index: u16) {
        let held = self.interfaces.get_mut(usize::from(index));
        let Some(old) = held.and_then(Option::take) else {
            return;
        };
        if let Some(vlans) = self.by_vlan.get_mut(usize::from(old.bridge)) {
            let place = &mut vlans[usize::from(old.vid.raw()) % VLANS];
            if *place == index {
                *place = NONE;
            }
        }
        self.collect_addresses(old.vrf);
    }

    fn insert(&mut self, interface: &Arc<Interface>) {
        let Interface {
            index,
            bridge,
            vid,
            vrf,
            ..
        } = **interface;
        if index == NONE {
            return;
        }
        self.remove(index);
        let (at, bridge) = (usize::from(index), usize::from(bridge));
        if self.interfaces.len() <= at {
            self.interfaces.resize(at + 1, None);
        }
        self.interfaces[at] = Some(Arc::clone(interface));
        while self.by_vlan.len() <= bridge {
            self.by_vlan.push(Box::new([NONE; VLANS]));
        }
        if !interface.is_passive() {
            self.by_vlan[bridge][usize::from(vid.raw()) % VLANS] = index;
        }
        self.collect_addresses(vrf);
    }

    /// Updates the addresses of a VRF after a change of its interfaces.
    fn collect_addresses(&mut self, index: u16) {
        let of_vrf = |interface: &&Interface| interface.vrf == index;
        let addresses = self
            .interfaces()
            .filter(of_vrf)
            .flat_map(|interface| &interface.ipv4);
        let mut own: Vec<Ipv4Addr> = addresses.map(|own| own.address).collect();
        own.sort_unstable();
        if let Some(Some(vrf)) = self.vrfs.get_mut(usize::from(index)) {
            vrf.own_filter = own
                .iter()
                .fold(0, |filter, address| filter | filter_bit(*address));
            vrf.own = own;
        }
    }
}

impl Replica for RouterState {
    type Change = Change;

    fn apply(&mut self, change: &Change) {
        match change {
            Change::Interface(interface) => self.insert(interface),
            Change::RemoveInterface(index) => self.remove(*index),
            Change::Vrf(index, fib) => {
                let at = usize::from(*index);
                if self.vrfs.len() <= at {
                    self.vrfs.resize(at + 1, None);
                }
                self.vrfs[at] = fib.clone().map(|fib| Vrf {
                    fib,
                    tunnels: None,
                    own: Vec::new(),
                    own_filter: 0,
                });
                self.collect_addresses(*index);
            }
            Change::Tunnels(index, tunnels) => {
                if let Some(Some(vrf)) = self.vrfs.get_mut(usize::from(*index)) {
                    vrf.tunnels = (!tunnels.is_empty()).then(|| Arc::clone(tunnels));
                }
            }
            Change::Rates(rates) => self.rates = Arc::clone(rates),
            Change::Nothing => {}
        }
    }
}
