//! The fabric: sites, switches with their ports, and trunks.

use core::fmt;
use core::str::FromStr;

use millrace_types::{Dpid, PortNo};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::id::{GroupNumber, SiteId, SwitchId, parse_number};
use crate::serde_text;

/// A site: a building with switches (IX-API: pop).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Site {
    /// The name, unique in the exchange.
    pub name: String,
}

/// A switch of the exchange: its site, datapath id, group and ports.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Switch {
    /// The name, unique in the exchange.
    pub name: String,
    pub site: SiteId,
    /// The datapath id, unique in the exchange.
    #[serde(with = "serde_text")]
    pub dpid: Dpid,
    /// The group that leads to this switch over the trunks. Every other switch has a group with this number.
    pub group: GroupNumber,
    /// The ports that connections and trunks may use, in the order of their numbers.
    pub ports: Vec<SwitchPort>,
    /// True if the switch does not return: no change waits for it while it is not connected.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub retired: bool,
}

impl Switch {
    /// Returns the port with this number.
    pub fn port(&self, number: PortNo) -> Option<&SwitchPort> {
        self.ports.iter().find(|port| port.number == number)
    }
}

/// A port of a switch in the inventory.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SwitchPort {
    /// The OpenFlow port number.
    #[serde(with = "serde_text::port")]
    pub number: PortNo,
    /// The speed in Mbit/s.
    pub speed_mbps: u32,
}

/// A port by switch and number. The text form is `sw-2:9`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PortId {
    pub switch: SwitchId,
    /// The OpenFlow port number.
    pub port: PortNo,
}

/// A text that is no port.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("\"{0}\" is no port: expected a switch and a port number, such as sw-2:9")]
pub struct PortIdParseError(String);

impl fmt::Display for PortId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.switch, self.port.raw())
    }
}

impl FromStr for PortId {
    type Err = PortIdParseError;

    fn from_str(text: &str) -> Result<PortId, PortIdParseError> {
        let parts = text.split_once(':').and_then(|(switch, number)| {
            let port = PortNo::ordinary(number.parse().ok()?).ok()?;
            Some(PortId {
                switch: SwitchId(parse_number(switch, SwitchId::PREFIX)?),
                port,
            })
        });
        parts.ok_or_else(|| PortIdParseError(text.to_owned()))
    }
}

impl TryFrom<String> for PortId {
    type Error = PortIdParseError;

    fn try_from(text: String) -> Result<PortId, PortIdParseError> {
        text.parse()
    }
}

impl From<PortId> for String {
    fn from(port: PortId) -> String {
        port.to_string()
    }
}

/// The encapsulation of a trunk.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TrunkKind {
    /// A VXLAN tunnel with `key=flow`: the wire id is the tunnel key, 24 bits.
    Vxlan,
    /// An S-tag (0x88a8): the wire id is the VID, 12 bits.
    STag,
}

/// A trunk between two switches.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Trunk {
    /// The name, unique in the exchange.
    pub name: String,
    /// The encapsulation.
    pub kind: TrunkKind,
    /// The two ends, at different switches.
    pub ends: [PortId; 2],
    /// The cost; the trunk with the lowest cost carries the traffic.
    pub cost: u32,
    /// The capacity in Mbit/s.
    pub capacity_mbps: u32,
    /// The size in bytes of the largest IP packet of the underlay (VXLAN), or of the largest frame payload (S-tag).
    pub mtu: u16,
    /// The shared-risk group: trunks of one group fail together.
    #[serde(default)]
    pub risk_group: Option<String>,
    /// True if the trunk is drained: traffic uses it only if no other trunk is available.
    #[serde(default)]
    pub drained: bool,
    /// The share of the capacity that contracted rates may fill, in percent; more than 100 sells capacity more than once.
    #[serde(default = "contract_percent")]
    pub contract_percent: u32,
}

/// Returns the default of [`Trunk::contract_percent`], in percent.
pub(crate) const fn contract_percent() -> u32 {
    100
}

/// The smallest MTU of a trunk: service frames of 1,500 bytes with two tags, in VXLAN over IPv6.
pub const TRUNK_MTU_MIN: u16 = 1600;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_read_back_from_its_text() {
        let port: PortId = "sw-2:9".parse().unwrap();
        assert_eq!((port.switch, port.port.raw()), (SwitchId(2), 9));
        assert_eq!(port.to_string(), "sw-2:9");
        for text in ["sw-2", "sw-2:0", "sw-2:4294967292", "9", "cn-2:9"] {
            assert!(text.parse::<PortId>().is_err(), "{text}");
        }
    }
}
