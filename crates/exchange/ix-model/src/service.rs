//! Connections, services and their ends, addresses, service keys and LAN policies.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::collections::{BTreeMap, BTreeSet};

use millrace_types::Mac;
use serde::{Deserialize, Serialize};

use crate::fabric::PortId;
use crate::id::{
    AccountId, ConfigId, ConnectionId, ConnectionIndex, GroupNumber, MeterNumber, PolicyId, ServiceId,
    ServiceIndex, SwitchId, WireId,
};
use crate::serde_text;
use crate::state::CommercialState;
use crate::time::Timestamp;
use crate::vlan::VlanConfig;

/// The way in which the ports of a connection form one link.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ConnectionKind {
    /// One port.
    Standalone,
    /// A link aggregation group without LACP.
    LagStatic,
    /// A link aggregation group with LACP: one port of a switch that speaks LACP for its members (`[[bridge.lag]]` of
    /// Millrace). Stored connections of several ports are read, too.
    LagLacp,
}

/// A connection: one or more ports of one switch, sold as one.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Connection {
    /// The account that uses the connection.
    pub account: AccountId,
    /// The name, unique in the account.
    pub name: String,
    /// The way in which the ports form one link.
    pub kind: ConnectionKind,
    pub ports: Vec<PortId>,
    /// The number in the metadata of packets.
    pub index: ConnectionIndex,
    /// The group of a LAG.
    #[serde(default)]
    pub group: Option<GroupNumber>,
    /// The reference that the customer chose, unique in the account (IX-API: `external_ref`).
    #[serde(default)]
    pub external_ref: Option<String>,
    /// The account that locked the connection against deletion.
    #[serde(default)]
    pub locked_by: Option<AccountId>,
}

impl Connection {
    /// Returns the switch of the ports: all ports of a connection are at one switch.
    pub fn switch(&self) -> Option<SwitchId> {
        self.ports.first().map(|port| port.switch)
    }
}

/// The type of a service.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ServiceKind {
    /// A virtual circuit between two ends.
    P2pVc,
    /// A virtual circuit between roots and leaves; leaves reach roots only.
    P2mpVc,
    /// A virtual circuit between many ends.
    Mp2mpVc,
    /// A peering LAN.
    ExchangeLan,
}

/// The consent of the invited account of a virtual circuit.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "answer")]
pub enum Consent {
    /// Nobody has to consent: both ends belong to the account that ordered.
    NotNeeded,
    /// The invited account has not answered.
    Pending,
    /// The invited account has accepted, or configured its end.
    Accepted,
    /// The invited account has refused.
    Refused {
        /// The reason in words.
        reason: String,
    },
}

/// A service, which carries frames between its ends.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Service {
    pub kind: ServiceKind,
    /// The account that ordered the service.
    pub account: AccountId,
    /// The name, unique in the account.
    pub name: String,
    /// The number in the metadata of packets.
    pub index: ServiceIndex,
    /// The version of the path that frames take; it grows with each change of an end or a path.
    pub generation: u32,
    /// The wire id of this generation; `None` while all ends are at one switch.
    #[serde(default)]
    pub wire_id: Option<WireId>,
    /// The switches that a circuit passes through between the switches of its ends, from the end at the switch with the lower
    /// number; empty if a trunk joins those two.
    #[serde(default)]
    pub via: Vec<SwitchId>,
    /// The invited account of a p2p circuit.
    #[serde(default)]
    pub peer: Option<AccountId>,
    /// The consent of the invited account.
    pub consent: Consent,
    /// The commercial state.
    pub state: CommercialState,
    /// The policy of a peering LAN.
    #[serde(default)]
    pub policy: Option<PolicyId>,
    /// The addresses of a peering LAN, as prefixes.
    #[serde(default)]
    pub networks: Vec<crate::prefix::Prefix>,
    /// The reference that the customer chose, unique in the account (IX-API: `external_ref`).
    #[serde(default)]
    pub external_ref: Option<String>,
    /// The account that locked the service against deletion.
    #[serde(default)]
    pub locked_by: Option<AccountId>,
}

/// The role of an end in a `p2mp_vc`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EndRole {
    /// A root, which reaches all ends.
    #[default]
    Root,
    /// A leaf, which reaches roots only.
    Leaf,
}

/// The admission of an end to a peering LAN.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "phase")]
pub enum Quarantine {
    /// The service has no quarantine.
    NotNeeded,
    /// The frames of the end are judged and not forwarded.
    Running {
        /// The time since which no offending frame was seen.
        clean_since: Timestamp,
    },
    /// The end was clean for the time that the policy asks for.
    Passed,
    /// An operator admitted the end before that time.
    Waived {
        /// The reason in words.
        reason: String,
    },
}

impl Quarantine {
    /// Returns true if the end takes part in the service.
    pub fn is_over(&self) -> bool {
        !matches!(self, Quarantine::Running { .. })
    }
}

/// One connection's end of a service (IX-API: network-service-config, NSC).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Config {
    pub service: ServiceId,
    pub connection: ConnectionId,
    /// The account that uses the end.
    pub account: AccountId,
    /// The tags of the end.
    pub vlan: VlanConfig,
    /// The contracted rate in Mbit/s; `None` for the speed of the connection.
    #[serde(default)]
    pub capacity_mbps: Option<u32>,
    /// The role in a `p2mp_vc`.
    #[serde(default)]
    pub role: EndRole,
    /// The number of the end in the metadata of packets: that of its connection, or one of its own.
    pub index: ConnectionIndex,
    /// The meter of the contracted rate.
    pub meter: MeterNumber,
    /// The group that copies the frames of this end in a multipoint service with flooding.
    #[serde(default)]
    pub group: Option<GroupNumber>,
    /// True while the end is shut down, for example for a failover test.
    #[serde(default)]
    pub shut_down: bool,
    /// The admission to a peering LAN.
    pub quarantine: Quarantine,
    /// The autonomous systems of the end.
    #[serde(default)]
    pub asns: BTreeSet<u32>,
    /// The reference that the customer chose, unique in the account (IX-API: `external_ref`).
    #[serde(default)]
    pub external_ref: Option<String>,
    /// The account that locked the end against deletion.
    #[serde(default)]
    pub locked_by: Option<AccountId>,
}

/// A MAC address that frames from an end may have as source.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RegisteredMac {
    /// The end.
    pub config: ConfigId,
    /// The address, unique in the service.
    #[serde(with = "serde_text")]
    pub address: Mac,
    /// The time of the registration, or the later time from which the address is valid if it is planned.
    pub valid_from: Timestamp,
    /// True if the validity was ordered to begin after the registration. Any other address is valid at once, and no
    /// clock decides about its beginning.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub planned: bool,
    /// The end of validity; `None` for no end.
    #[serde(default)]
    pub valid_until: Option<Timestamp>,
}

impl RegisteredMac {
    /// Returns the time at which the validity begins; `None` if it began with the registration.
    pub fn begin(&self) -> Option<Timestamp> {
        self.planned.then_some(self.valid_from)
    }

    /// Returns true if frames may have the address at a time.
    pub fn is_valid(&self, now: Timestamp) -> bool {
        self.begin().is_none_or(|begin| begin <= now) && self.valid_until.is_none_or(|end| end > now)
    }
}

/// An IP address of an end of a peering LAN.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RegisteredIp {
    /// The end.
    pub config: ConfigId,
    /// The address, unique in the service.
    pub address: IpAddr,
    /// The end of validity; `None` for no end.
    #[serde(default)]
    pub valid_until: Option<Timestamp>,
}

impl RegisteredIp {
    /// Returns true if the end has the address at a time.
    pub fn is_valid(&self, now: Timestamp) -> bool {
        self.valid_until.is_none_or(|end| end > now)
    }
}

/// A permission to configure the other end of a service, valid once and until `valid_until`. The bounds of a redeemed key hold
/// for the holder's end as long as the key exists.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ServiceKey {
    pub service: ServiceId,
    /// The secret text that the holder presents. The store gives it as an argument, because this crate has no
    /// randomness.
    pub secret: String,
    /// The end of validity.
    pub valid_until: Timestamp,
    /// The first and the last VID that the holder may use, when the key is redeemed and afterwards.
    #[serde(default)]
    pub vlans: Option<(u16, u16)>,
    /// The highest rate that the holder may order, when the key is redeemed and afterwards, in Mbit/s.
    #[serde(default)]
    pub capacity_mbps: Option<u32>,
    /// The account that redeemed the key.
    #[serde(default)]
    pub redeemed_by: Option<AccountId>,
}

/// The treatment of ARP requests and neighbour solicitations in a peering LAN.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ArpMode {
    /// The switch writes the owner's MAC address as destination and sends to the owner only.
    Unicast,
}

/// The rules of a peering LAN.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LanPolicy {
    /// The name, unique in the exchange.
    pub name: String,
    /// The EtherTypes that pass.
    pub ethertypes: BTreeSet<u16>,
    /// The highest number of MAC addresses of an end.
    pub macs_max: u8,
    /// The highest rate of broadcast frames from an end, in packets a second.
    pub broadcast_pps: u32,
    /// The highest rate of multicast frames from an end, in packets a second.
    pub multicast_pps: u32,
    /// The treatment of ARP requests and neighbour solicitations.
    pub arp: ArpMode,
    /// The time without an offending frame that ends the quarantine, in seconds.
    pub quarantine_secs: u32,
}

impl LanPolicy {
    /// Returns the policy that most exchanges have: IPv4, ARP and IPv6, one MAC address, fifteen minutes of quarantine.
    pub fn usual(name: &str) -> LanPolicy {
        LanPolicy {
            name: name.to_owned(),
            ethertypes: BTreeSet::from([0x0800, 0x0806, 0x86dd]),
            macs_max: 1,
            broadcast_pps: 50,
            multicast_pps: 50,
            arp: ArpMode::Unicast,
            quarantine_secs: 900,
        }
    }
}

/// The type of a numbered resource.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PoolKind {
    /// [`ConnectionIndex`]
    ConnectionIndex,
    /// [`ServiceIndex`]
    ServiceIndex,
    /// [`WireId`]
    WireId,
    /// [`MeterNumber`]
    Meter,
    /// [`GroupNumber`]
    Group,
}

/// The numbers of one type that were given back and are not free for a new use yet.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Pool {
    /// The numbers that were given back, each with its state.
    pub released: BTreeMap<u32, NumberHold>,
}

/// The state of a number that was given back, until it is free again.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NumberHold {
    /// The switches may still have rules with the number.
    InSwitches,
    /// The rules are confirmed gone; the number is free from this time on.
    FreeFrom(Timestamp),
}

/// Returns the link-local address that follows from a MAC address (RFC 4291, appendix A).
pub fn link_local(Mac([a, b, c, d, e, f]): Mac) -> Ipv6Addr {
    Ipv6Addr::from([0xfe, 0x80, 0, 0, 0, 0, 0, 0, a ^ 2, b, c, 0xff, 0xfe, d, e, f])
}

/// Returns false for unspecified, broadcast, multicast and loopback addresses, which no end can have.
pub(crate) fn is_usable(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => {
            v4 != Ipv4Addr::UNSPECIFIED && !v4.is_broadcast() && !v4.is_multicast() && !v4.is_loopback()
        }
        IpAddr::V6(v6) => v6 != Ipv6Addr::UNSPECIFIED && !v6.is_multicast() && !v6.is_loopback(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_link_local_address_is_that_of_the_rfc() {
        let mac = Mac([0x34, 0x56, 0x78, 0x9a, 0xbc, 0xde]);
        assert_eq!(link_local(mac).to_string(), "fe80::3656:78ff:fe9a:bcde");
    }
}
