//! Identifiers and spanning tree priority vectors (IEEE 802.1D-2004, sections 9.2 and 17.5). Lower is better.

use millrace_types::Mac;

/// A bridge identifier: priority and address.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct BridgeId {
    /// The priority with the system ID extension in the low 12 bits.
    pub priority: u16,
    /// The address of the bridge.
    pub address: Mac,
}

impl core::fmt::Display for BridgeId {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{:04x}.{}", self.priority, self.address)
    }
}

/// A port identifier: 4 bits of priority, 12 bits of number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PortId(pub u16);

impl PortId {
    /// The largest port number.
    pub const MAX_NUMBER: u16 = 0xfff;

    /// Returns the identifier. Only the high 4 bits of the priority and the low 12 of the number count.
    pub const fn new(priority: u8, number: u16) -> PortId {
        PortId((priority as u16 & 0xf0) << 8 | number & Self::MAX_NUMBER)
    }

    /// Returns the number of the port.
    pub const fn number(self) -> u16 {
        self.0 & Self::MAX_NUMBER
    }
}

/// A priority vector: the first four components travel in BPDUs, the last is the port that received them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PriorityVector {
    /// The root bridge.
    pub root: BridgeId,
    /// The cost of the path to the root bridge.
    pub root_path_cost: u32,
    /// The bridge that sends the BPDU.
    pub designated_bridge: BridgeId,
    /// The port that sends the BPDU.
    pub designated_port: PortId,
    /// The port that receives the BPDU.
    pub bridge_port: PortId,
}

impl PriorityVector {
    /// Returns true if this vector of a message replaces `port`, the vector of the port that received it: it is better, or
    /// it comes from the same designated port, which may have become worse (section 17.6).
    pub(super) fn is_superior_to(&self, port: &PriorityVector) -> bool {
        let is_same_sender = self.designated_bridge.address == port.designated_bridge.address
            && self.designated_port.number() == port.designated_port.number();
        self.message() < port.message() || is_same_sender && self.message() != port.message()
    }

    /// Returns true if this vector is the same as or better than `other`, by the components that travel.
    pub(super) fn is_better_or_same(&self, other: &PriorityVector) -> bool {
        self.message() <= other.message()
    }

    pub(super) fn message(&self) -> (BridgeId, u32, BridgeId, PortId) {
        (
            self.root,
            self.root_path_cost,
            self.designated_bridge,
            self.designated_port,
        )
    }
}
