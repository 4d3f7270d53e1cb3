//! RSTP: the spanning tree of a bridge and the part that each port takes in it.

use crate::choice::{RstpEdge, RstpPointToPoint, RstpVersion};
use crate::number::{BridgePriority, ForwardDelay, HelloTime, HoldCount, MaxAge, PathCost, PortPriority};
use crate::routing::UnicastMac;
use crate::section::{deserialize, section};

section! {
    /// The Rapid Spanning Tree Protocol (IEEE 802.1D-2004). Its ports take the bridge's BPDUs before the flow tables. A
    /// port that does not forward has the state `OFPPS_BLOCKED`: it neither receives nor sends packets, whatever the flow
    /// tables say. See docs/rstp.md.
    pub struct Rstp (live) {
        required {}
        optional {
            /// The protocol. With `rstp`, a port speaks STP to a neighbour that knows no other.
            pub version: RstpVersion = RstpVersion::Rstp,
            /// The priority of the bridge, a multiple of 4096, and with `version = "stp"` any number; the bridge with the lowest is
            /// the root.
            pub priority: BridgePriority = BridgePriority::DEFAULT,
            /// The address of the bridge in BPDUs, which decides among bridges of one priority. Unset, `local_mac` of the bridge, or
            /// else the low 48 bits of its datapath ID.
            pub address: Option<UnicastMac> = None,
            /// The time between two BPDUs of a designated port.
            pub hello_time_s: HelloTime = HelloTime::DEFAULT,
            /// The age at which information about the root expires: at least 2 * (`hello_time_s` + 1), at most
            /// 2 * (`forward_delay_s` - 1).
            pub max_age_s: MaxAge = MaxAge::DEFAULT,
            /// The time that a port stays discarding, and learning, where its neighbour does not agree at once.
            pub forward_delay_s: ForwardDelay = ForwardDelay::DEFAULT,
            /// The number of BPDUs that a port sends in one second at most.
            pub transmit_hold_count: HoldCount = HoldCount::DEFAULT,
        }
    }
}

section! {
    /// RSTP at a port of a bridge with `rstp`.
    pub struct PortRstp (live) {
        required {}
        optional {
            /// If false, the port takes no part: it forwards, and BPDUs pass through it like any packet.
            pub enabled: bool = true,
            /// The cost of the path over the port. Unset, 20,000,000 Mb/s divided by the speed of the device; with
            /// `version = "stp"`, that of IEEE 802.1D-1998: 19 for 100 Mb/s, 4 for 1 Gb/s, 2 for 10 Gb/s.
            pub path_cost: Option<PathCost> = None,
            /// The priority of the port, a multiple of 16; lower is better.
            pub priority: PortPriority = PortPriority::DEFAULT,
            /// The decision if the port leads to hosts, and forwards at once.
            pub edge: RstpEdge = RstpEdge::Auto,
            /// The decision if the link has two ends: only then may the port forward as soon as its neighbour agrees.
            pub point_to_point: RstpPointToPoint = RstpPointToPoint::Auto,
            /// A BPDU disables the port until its link goes down.
            pub bpdu_guard: bool = false,
            /// The port never leads to the root: it discards while its neighbour claims a better root.
            pub root_guard: bool = false,
        }
    }
}

deserialize!(Rstp, PortRstp);
