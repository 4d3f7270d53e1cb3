//! OAM of a port (operations, administration and maintenance): BFD, continuity check messages, flap damping.

use std::net::{IpAddr, Ipv4Addr};

use millrace_types::Mac;

use crate::choice::CcmInterval;
use crate::decode::text_field;
use crate::name::DescriptionText;
use crate::number::{BfdInterval, BfdMultiplier, DampingTime, FlapCount, MaintenanceLevel, MepNumber};
use crate::section::{deserialize, section};

/// The default source address of BFD, the same as in Open vSwitch.
const LOCAL: IpAddr = IpAddr::V4(Ipv4Addr::new(169, 254, 1, 0));
/// The default destination address of BFD, the same as in Open vSwitch.
const REMOTE: IpAddr = IpAddr::V4(Ipv4Addr::new(169, 254, 1, 1));
/// The default destination MAC address of BFD, the same as in Open vSwitch.
const REMOTE_MAC: Mac = Mac([0x00, 0x23, 0x20, 0x00, 0x00, 0x01]);

text_field!(Mac, "a MAC address", "00:23:20:00:00:01");

section! {
    /// BFD on the port (RFC 5880, RFC 5881): asynchronous mode, one hop, without authentication. The port is live only while
    /// the session is up. The defaults fit an interface of Open vSwitch with `bfd:enable=true`.
    pub struct Bfd (live) {
        required {}
        optional {
            /// The minimum interval between packets that the port sends while the session is up (RFC 5880,
            /// Desired Min TX Interval).
            pub min_tx_ms: BfdInterval = BfdInterval::DEFAULT,
            /// The minimum interval between packets that the port can receive (RFC 5880, Required Min RX
            /// Interval).
            pub min_rx_ms: BfdInterval = BfdInterval::DEFAULT,
            /// The number of missing packets in a row that ends the session (RFC 5880, Detect Mult).
            pub multiplier: BfdMultiplier = BfdMultiplier::DEFAULT,
            /// The source address. Packets to this address and to `remote` belong to the session.
            pub local: IpAddr = LOCAL,
            /// The destination address.
            pub remote: IpAddr = REMOTE,
            /// The destination MAC address.
            pub remote_mac: Mac = REMOTE_MAC,
        }
    }
}

section! {
    /// Continuity check messages on the port (IEEE 802.1ag, ITU-T Y.1731). The port is live only while messages of the other
    /// end arrive without defect.
    pub struct Ccm (live) {
        required {
            /// The number of this maintenance end point.
            pub mep: MepNumber,
        }
        optional {
            /// The number of the other end. Unset, any number except `mep`.
            pub remote_mep: Option<MepNumber> = None,
            /// The level of the maintenance domain. Messages of other levels pass through the port.
            pub level: MaintenanceLevel = MaintenanceLevel::LINK,
            /// The interval of messages, the same at both ends.
            pub interval: CcmInterval = CcmInterval::S1,
            /// The name of the maintenance domain, the same at both ends. The default is that of Open vSwitch.
            pub domain: DescriptionText<22> = DescriptionText::fixed("ovs"),
            /// The name of the maintenance association, the same at both ends. The default is that of Open vSwitch.
            pub association: DescriptionText<22> = DescriptionText::fixed("ovs"),
        }
    }
}

section! {
    /// Flap damping: a link that goes down `flaps` times within `window_s` counts as down for `hold_down_s`.
    pub struct FlapDamping (live) {
        required {}
        optional {
            /// The number of times that the link goes down before it is damped.
            pub flaps: FlapCount = FlapCount::DEFAULT,
            /// The time in which `flaps` are counted.
            pub window_s: DampingTime = DampingTime::WINDOW,
            /// The time for which a damped link counts as down. Another flap restarts this time.
            pub hold_down_s: DampingTime = DampingTime::HOLD_DOWN,
        }
    }
}

deserialize!(Bfd, Ccm, FlapDamping);
