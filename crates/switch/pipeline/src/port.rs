//! Ports in the pipeline: whether they receive and send, and the VLANs that they carry.

use core::ops::{BitAnd, BitOr, BitXor};
use std::sync::Arc;

use millrace_types::{PortNo, Vid};
use millrace_wire::EtherType;

use crate::DropReason;

macro_rules! flags {
    ($(#[$doc:meta])* $name:ident { $( $(#[$flag_doc:meta])* $flag:ident = $bit:literal; )* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
        pub struct $name(pub u32);

        impl $name {
            $( $(#[$flag_doc])* pub const $flag: $name = $name(1 << $bit); )*

            /// Returns true if any of the bits of `other` is set.
            #[inline]
            pub const fn has(self, other: $name) -> bool {
                self.0 & other.0 != 0
            }
        }

        impl BitOr for $name {
            type Output = $name;

            fn bitor(self, other: $name) -> $name {
                $name(self.0 | other.0)
            }
        }

        impl BitXor for $name {
            type Output = $name;

            fn bitxor(self, other: $name) -> $name {
                $name(self.0 ^ other.0)
            }
        }

        impl BitAnd for $name {
            type Output = $name;

            fn bitand(self, other: $name) -> $name {
                $name(self.0 & other.0)
            }
        }
    };
}

flags! {
    /// The configuration of a port (`OFPPC_*`, OpenFlow 1.3.5, section 7.2.1).
    PortConfig {
        /// Administratively down.
        DOWN = 0;
        /// Drop all packets received.
        NO_RECV = 2;
        /// Leaves the port out of FLOOD (`OFPPC_NO_FLOOD` of OpenFlow 1.0; 1.3 lacks it, and operators still
        /// use it).
        NO_FLOOD = 4;
        /// Drop packets forwarded to the port.
        NO_FWD = 5;
        /// A table miss of a packet from the port causes no packet-in.
        NO_PACKET_IN = 6;
        /// The port is the output port of a mirror, which sends copies only. This bit belongs to Millrace, not to OpenFlow.
        MIRROR_OUTPUT = 29;
        /// NORMAL forwards nothing to another port with this bit. It belongs to Millrace, not to OpenFlow.
        PROTECTED = 30;
        /// Only tunnels, whose underlay the port is, send through it. This bit belongs to Millrace, not to OpenFlow.
        TUNNELS_ONLY = 31;
    }
}

flags! {
    /// The state of a port (`OFPPS_*`, OpenFlow 1.3.5, section 7.2.1).
    PortState {
        /// No link.
        LINK_DOWN = 0;
        /// Blocked by a protocol outside of OpenFlow.
        BLOCKED = 1;
        /// Live for fast failover.
        LIVE = 2;
        /// OAM found that the path behind the port is broken. The port is not live, but still sends and
        /// receives. This bit belongs to Millrace, not to OpenFlow.
        NOT_LIVE = 16;
    }
}

/// A set of VLAN identifiers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VidSet([u64; 64]);

impl VidSet {
    /// No VLAN.
    pub const EMPTY: VidSet = VidSet([0; 64]);

    /// Adds an identifier.
    pub fn insert(&mut self, vid: Vid) {
        self.0[usize::from(vid.raw() >> 6)] |= 1 << (vid.raw() & 63);
    }

    /// Returns true if the set has an identifier.
    #[inline]
    pub fn contains(&self, vid: Vid) -> bool {
        self.0[usize::from(vid.raw() >> 6)] & 1 << (vid.raw() & 63) != 0
    }
}

impl FromIterator<Vid> for VidSet {
    fn from_iter<I: IntoIterator<Item = Vid>>(vids: I) -> VidSet {
        let mut set = VidSet::EMPTY;
        vids.into_iter().for_each(|vid| set.insert(vid));
        set
    }
}

/// The VLANs that a port carries when NORMAL forwards.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum VlanMode {
    /// One VLAN, untagged.
    Access(Vid),
    /// Many VLANs, tagged.
    Trunk {
        /// The VLAN of untagged packets, which leave untagged, too. `None` is VLAN 0, the VLAN of a bridge without
        /// VLANs.
        native: Option<Vid>,
        /// The VLANs that are carried; `None` is all of them.
        allowed: Option<Arc<VidSet>>,
    },
    /// Many VLANs, tagged, and untagged packets that arrive as those of one of them.
    NativeTagged {
        /// The VLAN of untagged packets that arrive.
        native: Vid,
        /// The VLANs that are carried; `None` is all of them.
        allowed: Option<Arc<VidSet>>,
    },
    /// All packets of a customer in one service VLAN, whose tag packets do not have at this port.
    Tunnel(Arc<ServicePort>),
}

/// The service VLAN of a port of a customer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ServicePort {
    pub service: Vid,
    /// The EtherType of the service tag that packets from the port get.
    pub tag_type: EtherType,
    /// The VLANs of the customer that are carried, 0 for untagged packets; `None` is all of them.
    pub customer: Option<VidSet>,
}

impl Default for VlanMode {
    /// Returns the mode of a bridge without VLANs: the port carries every VLAN, and packets keep their tag,
    /// if any.
    fn default() -> VlanMode {
        VlanMode::Trunk {
            native: None,
            allowed: None,
        }
    }
}

impl VlanMode {
    /// Returns the VLAN of a packet that arrives with this tag (`None`: no tag). Returns `None` if the port
    /// does not accept the packet.
    #[inline]
    pub(crate) fn classify(&self, tag: Option<Vid>) -> Option<Vid> {
        match self {
            VlanMode::Access(vid) => match tag {
                None => Some(*vid),
                Some(tag) => (tag == Vid::default()).then_some(*vid),
            },
            VlanMode::Trunk { native, allowed } => {
                let vid = match tag {
                    Some(tag) if tag != Vid::default() => tag,
                    _ => native.unwrap_or_default(),
                };
                allowed
                    .as_ref()
                    .is_none_or(|set| set.contains(vid))
                    .then_some(vid)
            }
            VlanMode::NativeTagged { native, allowed } => {
                let vid = tag.filter(|tag| *tag != Vid::default()).unwrap_or(*native);
                allowed
                    .as_ref()
                    .is_none_or(|set| set.contains(vid))
                    .then_some(vid)
            }
            VlanMode::Tunnel(port) => port.has_customer(tag.unwrap_or_default()).then_some(port.service),
        }
    }

    /// Returns true if packets of this VLAN leave by this port.
    #[inline]
    pub fn carries(&self, vid: Vid) -> bool {
        match self {
            VlanMode::Access(own) => *own == vid,
            VlanMode::Trunk { allowed, .. } => allowed.as_ref().is_none_or(|set| set.contains(vid)),
            // Packets of VLAN 0 have no tag, and would arrive at the other end as those of its native VLAN.
            VlanMode::NativeTagged { allowed, .. } => {
                vid != Vid::default() && allowed.as_ref().is_none_or(|set| set.contains(vid))
            }
            VlanMode::Tunnel(port) => port.service == vid,
        }
    }

    /// Returns the service VLAN of packets that arrive here, if they are a customer's.
    #[inline]
    pub(crate) fn service(&self) -> Option<&ServicePort> {
        match self {
            VlanMode::Tunnel(port) => Some(port),
            _ => None,
        }
    }

    /// Returns true if packets of this VLAN leave by this port with a tag.
    #[inline]
    pub(crate) fn tags(&self, vid: Vid) -> bool {
        match self {
            VlanMode::Access(_) => false,
            VlanMode::Trunk { native, .. } => vid != native.unwrap_or_default(),
            VlanMode::NativeTagged { .. } => vid != Vid::default(),
            VlanMode::Tunnel(_) => false,
        }
    }
}

impl ServicePort {
    /// Returns true if the port carries packets with this tag of the customer; 0 is none.
    #[inline]
    pub(crate) fn has_customer(&self, vid: Vid) -> bool {
        self.customer.as_ref().is_none_or(|set| set.contains(vid))
    }
}

/// A port of the bridge.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Port {
    /// The number: ordinary, or [`PortNo::LOCAL`].
    pub number: PortNo,
    /// The configuration.
    pub config: PortConfig,
    pub state: PortState,
    /// The VLANs, for NORMAL.
    pub vlan: VlanMode,
}

impl Port {
    /// Returns a port that is up and carries every VLAN.
    pub fn new(number: PortNo) -> Port {
        Port {
            number,
            config: PortConfig::default(),
            state: PortState::default(),
            vlan: VlanMode::default(),
        }
    }

    /// Returns the drop reason of received packets, if the port does not receive.
    #[inline]
    pub(crate) fn ingress_block(&self) -> Option<DropReason> {
        self.config
            .has(PortConfig(PortConfig::DOWN.0 | PortConfig::NO_RECV.0))
            .then_some(DropReason::PortNoReceive)
            .or_else(|| {
                self.state
                    .has(PortState::BLOCKED)
                    .then_some(DropReason::PortBlocked)
            })
            .or_else(|| {
                self.config
                    .has(PortConfig::MIRROR_OUTPUT)
                    .then_some(DropReason::MirrorPort)
            })
    }

    /// Returns true if buckets that watch the port are live (OpenFlow 1.3.5, section 7.3.4.2): the port is
    /// not down, and its state has none of the bits `LINK_DOWN`, `BLOCKED` and `NOT_LIVE`.
    #[inline]
    pub(crate) fn is_live(&self) -> bool {
        let dead = PortState(PortState::LINK_DOWN.0 | PortState::BLOCKED.0 | PortState::NOT_LIVE.0);
        !self.config.has(PortConfig::DOWN) && !self.state.has(dead)
    }

    /// Returns the drop reason of packets to be sent, if the port does not send.
    #[inline]
    pub(crate) fn egress_block(&self) -> Option<DropReason> {
        let is_mirror_output = self.config.has(PortConfig::MIRROR_OUTPUT);
        self.copy_block()
            .or_else(|| is_mirror_output.then_some(DropReason::MirrorPort))
    }

    /// Returns the drop reason of copies of a mirror to be sent, if the port does not send them.
    #[inline]
    pub(crate) fn copy_block(&self) -> Option<DropReason> {
        if self.config.has(PortConfig::DOWN)
            || self
                .state
                .has(PortState(PortState::LINK_DOWN.0 | PortState::BLOCKED.0))
        {
            Some(DropReason::PortDown)
        } else if self
            .config
            .has(PortConfig(PortConfig::NO_FWD.0 | PortConfig::TUNNELS_ONLY.0))
        {
            Some(DropReason::PortNoForward)
        } else {
            None
        }
    }

    /// Returns the drop reason of encapsulated packets to be sent, if the port does not send them.
    #[inline]
    pub(crate) fn underlay_block(&self) -> Option<DropReason> {
        let is_for_tunnels = self.config.has(PortConfig::TUNNELS_ONLY);
        self.egress_block().filter(|_| !is_for_tunnels)
    }
}

/// The ports of a bridge: lookup by number in constant time, iteration in order of numbers.
#[derive(Clone, Debug, Default)]
pub(crate) struct PortMap {
    /// The ports in order of numbers.
    ports: Vec<Port>,
    /// The index in `ports` plus one, for numbers below [`PortMap::DIRECT`].
    direct: Vec<u16>,
}

impl PortMap {
    /// Ports with numbers below this are found by array index; operators number ports from one.
    const DIRECT: u32 = 1024;

    #[inline]
    pub(crate) fn port(&self, number: PortNo) -> Option<&Port> {
        if number.raw() < Self::DIRECT {
            let position = *self.direct.get(number.raw() as usize)?;
            return self.ports.get(usize::from(position).checked_sub(1)?);
        }
        let at = self.position(number).ok()?;
        self.ports.get(at)
    }

    fn position(&self, number: PortNo) -> Result<usize, usize> {
        self.ports.binary_search_by_key(&number, |port| port.number)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Port> {
        self.ports.iter()
    }

    /// Adds or replaces a port.
    pub(crate) fn insert(&mut self, port: Port) {
        match self.position(port.number) {
            Ok(at) => self.ports[at] = port,
            Err(at) => {
                self.ports.insert(at, port);
                self.index();
            }
        }
    }

    /// Calls `change` with each port; it changes no number.
    pub(crate) fn change_all(&mut self, change: impl FnMut(&mut Port)) {
        self.ports.iter_mut().for_each(change);
    }

    pub(crate) fn remove(&mut self, number: PortNo) -> Option<Port> {
        let at = self.position(number).ok()?;
        let port = self.ports.remove(at);
        self.index();
        Some(port)
    }

    fn index(&mut self) {
        self.direct.clear();
        for (at, port) in self.ports.iter().enumerate() {
            let number = port.number.raw();
            if number < Self::DIRECT {
                self.direct.resize(number as usize + 1, 0);
                self.direct[number as usize] = at as u16 + 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_found_whatever_their_number_and_listed_in_order() {
        let mut map = PortMap::default();
        for raw in [70_000, 3, 1, 1024] {
            map.insert(Port::new(PortNo::from_raw(raw)));
        }
        map.insert(Port::new(PortNo::LOCAL));
        map.remove(PortNo::from_raw(1));
        let numbers: Vec<u32> = map.iter().map(|port| port.number.raw()).collect();
        assert_eq!(numbers, [3, 1024, 70_000, PortNo::LOCAL.raw()]);
        for raw in numbers {
            assert_eq!(map.port(PortNo::from_raw(raw)).unwrap().number.raw(), raw);
        }
        for raw in [0, 1, 2, 4, 1023, 1025, u32::MAX] {
            assert!(map.port(PortNo::from_raw(raw)).is_none());
        }
    }

    #[test]
    fn an_access_port_takes_untagged_packets_only_and_a_trunk_what_it_carries() {
        let vid = |raw| Vid::new(raw).unwrap();
        let access = VlanMode::Access(vid(10));
        assert_eq!(access.classify(None), Some(vid(10)));
        assert_eq!(access.classify(Some(vid(0))), Some(vid(10)));
        assert_eq!(access.classify(Some(vid(10))), None);
        let trunk = VlanMode::Trunk {
            native: Some(vid(20)),
            allowed: Some(Arc::new([vid(20), vid(30)].into_iter().collect())),
        };
        assert_eq!(trunk.classify(None), Some(vid(20)));
        assert_eq!(trunk.classify(Some(vid(30))), Some(vid(30)));
        assert_eq!(trunk.classify(Some(vid(10))), None);
        assert!(trunk.tags(vid(30)) && !trunk.tags(vid(20)) && !access.tags(vid(10)));
        assert!(VlanMode::default().carries(vid(0)) && !VlanMode::default().tags(vid(0)));
    }

    #[test]
    fn a_native_tagged_port_tags_all_it_sends_and_a_port_of_a_customer_hides_what_it_takes() {
        let vid = |raw| Vid::new(raw).unwrap();
        let native = VlanMode::NativeTagged {
            native: vid(20),
            allowed: Some(Arc::new([vid(20), vid(30)].into_iter().collect())),
        };
        let arrives =
            [None, Some(vid(0)), Some(vid(20)), Some(vid(30)), Some(vid(10))].map(|tag| native.classify(tag));
        assert_eq!(
            arrives,
            [Some(vid(20)), Some(vid(20)), Some(vid(20)), Some(vid(30)), None]
        );
        assert!(
            native.tags(vid(20))
                && native.tags(vid(30))
                && !native.carries(vid(0))
                && !native.carries(vid(10))
        );
        let customer = |vids: Option<[Vid; 2]>| {
            VlanMode::Tunnel(Arc::new(ServicePort {
                service: vid(200),
                tag_type: EtherType::QINQ,
                customer: vids.map(|vids| vids.into_iter().collect()),
            }))
        };
        let (all, some) = (customer(None), customer(Some([vid(30), vid(40)])));
        for tag in [None, Some(vid(10)), Some(vid(200))] {
            assert_eq!(
                (all.classify(tag), some.classify(tag)),
                (Some(vid(200)), None),
                "{tag:?}"
            );
        }
        assert_eq!(some.classify(Some(vid(30))), Some(vid(200)));
        assert!(some.carries(vid(200)) && !some.carries(vid(30)) && !some.tags(vid(200)));
    }
}
