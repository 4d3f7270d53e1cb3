//! LAGs: ports of a bridge that consist of several devices.

use millrace_types::{Mac, PortNo};

use crate::bridge::Bridge;
use crate::choice::{LagFallback, LagMode, LagRate};
use crate::device::Device;
use crate::name::{LagName, PortName, derived_mac};
use crate::number::{LacpPriority, MinLinks, QueueCount};
use crate::port::Port;
use crate::routing::UnicastMac;
use crate::section::{deserialize, section};

section! {
    /// A link aggregation group (IEEE 802.1AX-2014): several devices as one port. A port of the bridge with the device
    /// `lag:NAME` has the number, the VLANs and all other settings of the LAG; the flow tables, controllers, NORMAL, RSTP
    /// and the router see that port and no members. See docs/lag.md.
    pub struct Lag (live, by name) {
        required {
            /// The name of the LAG, unique in its bridge.
            pub name: LagName,
        }
        optional {
            /// The decision which members carry packets.
            pub mode: LagMode = LagMode::Active,
            /// The rate at which the partner is asked to send LACPDUs.
            pub rate: LagRate = LagRate::Slow,
            /// The number of usable members below which the LAG is down.
            pub min_links: MinLinks = MinLinks::ONE,
            /// The behaviour while no member hears a partner.
            pub fallback: LagFallback = LagFallback::None,
            /// The priority of this system for LACP; of two systems, the one with the lower decides which links are used.
            pub system_priority: LacpPriority = LacpPriority::DEFAULT,
            /// The address of this system for LACP. Unset, the low 48 bits of the datapath ID.
            pub system: Option<UnicastMac> = None,
            /// The MAC address of the port. Unset, an address derived from the names of bridge and LAG.
            pub mac: Option<UnicastMac> = None,
            /// The members, 1 to 16.
            pub members as "member": Vec<LagMember> = Vec::new(),
        }
    }
}

section! {
    /// A member of a LAG: a device that no port has.
    pub struct LagMember (live, by name) {
        required {
            /// The name of the member, unique among the ports and members of the bridge.
            pub name: PortName,
            /// The number of the member in LACPDUs, 1 to 65535, unique among the ports and members of the bridge.
            /// OpenFlow does not know it.
            pub number: PortNo,
            /// The device, as that of a port; no tunnel, `nsh:` or `lag:`.
            pub device: Device,
        }
        optional {
            /// The number of receive queues, and of transmit queues, as `queues` of a port.
            pub queues: Option<QueueCount> = None,
            /// The priority of the member for LACP; lower is better.
            pub priority: LacpPriority = LacpPriority::DEFAULT,
        }
    }
}

deserialize!(Lag, LagMember);

impl Lag {
    /// Returns the MAC address of the port: the configured one, or else a locally administered one that is derived from
    /// the names of bridge and LAG.
    pub fn mac_address(&self, bridge: &Bridge) -> Mac {
        self.mac.map_or_else(
            || {
                let names = bridge.name.as_str().bytes().chain(*b"/lag/");
                derived_mac(names.chain(self.name.as_str().bytes()))
            },
            UnicastMac::get,
        )
    }

    /// Returns the address of this system in LACPDUs.
    pub fn system_address(&self, bridge: &Bridge) -> Mac {
        self.system.map_or_else(|| bridge.address(), UnicastMac::get)
    }
}

impl Bridge {
    /// Returns the LAG behind a port; `None` if its device is no LAG.
    pub fn lag_of(&self, port: &Port) -> Option<&Lag> {
        let Device::Lag(name) = &port.device else {
            return None;
        };
        self.lags.iter().find(|lag| lag.name == *name)
    }
}
