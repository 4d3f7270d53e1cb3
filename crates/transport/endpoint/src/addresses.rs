//! Own addresses: duplicate address detection (RFC 5227 for IPv4, RFC 4862 for IPv6), announcements, defence, and routes.
//!
//! ```text
//!  Probing ── probes sent, interval over ──> Announcing ── announcements sent ──> Settled
//!     │ another host answers, or probes, too     │ conflict: defend, once in 10 s    │
//!     v                                          └───────────────────────────────────┘
//!  Duplicate: never used
//! ```

use std::net::{IpAddr, Ipv6Addr};

use millrace_types::{Duration, Mac, Time};

use crate::config::{Config, InterfaceAddress};
use crate::limits::{ANNOUNCE_INTERVAL, ANNOUNCE_NUM, DEFEND_INTERVAL};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    Probing { sent: u8, next: Time },
    Announcing { sent: u8, next: Time },
    Settled,
    Duplicate,
}

/// An action that the state of an own address requires.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Action {
    Probe(IpAddr),
    Announce(IpAddr),
    Usable(IpAddr),
}

#[derive(Debug)]
struct OwnAddress {
    address: InterfaceAddress,
    stage: Stage,
    defended: Option<Time>,
}

impl OwnAddress {
    fn is_usable(&self) -> bool {
        matches!(self.stage, Stage::Announcing { .. } | Stage::Settled)
    }
}

/// All own addresses, and the gateways.
#[derive(Debug)]
pub(crate) struct OwnAddresses {
    list: Vec<OwnAddress>,
    gateways: Vec<IpAddr>,
    probes: u8,
    probe_interval: Duration,
}

/// Returns the link-local address of an interface (RFC 4291, appendix A: modified EUI-64).
pub(crate) fn link_local(mac: Mac) -> Ipv6Addr {
    let [a, b, c, d, e, f] = mac.0;
    let id = u64::from_be_bytes([a ^ 2, b, c, 0xff, 0xfe, d, e, f]);
    Ipv6Addr::from_bits(0xfe80 << 112 | u128::from(id))
}

/// Returns the group of all hosts whose address has the same last 24 bits (RFC 4291, section 2.7.1).
pub(crate) fn solicited_node(address: Ipv6Addr) -> Ipv6Addr {
    let group = 0xff02_0000_0000_0000_0000_0001_ff00_0000;
    Ipv6Addr::from_bits(group | address.to_bits() & 0xff_ffff)
}

impl OwnAddresses {
    pub(crate) fn new(config: &Config, now: Time) -> OwnAddresses {
        let mut addresses = config.addresses.clone();
        let has_v6 = addresses.iter().any(|address| address.ip().is_ipv6());
        if has_v6
            && let Ok(own) = InterfaceAddress::new(link_local(config.mac).into(), 64)
            && !addresses.contains(&own)
        {
            addresses.push(own);
        }
        let stage = Stage::Probing { sent: 0, next: now };
        let list = addresses.into_iter().map(|address| OwnAddress {
            address,
            stage,
            defended: None,
        });
        OwnAddresses {
            list: list.collect(),
            gateways: config.gateways.clone(),
            probes: config.probes,
            probe_interval: config.probe_interval,
        }
    }

    /// Returns true for an own address that is used.
    pub(crate) fn is_usable(&self, ip: IpAddr) -> bool {
        self.find(ip).is_some_and(OwnAddress::is_usable)
    }

    /// Returns true for an own address that is not a duplicate.
    pub(crate) fn is_own(&self, ip: IpAddr) -> bool {
        self.find(ip).is_some_and(|own| own.stage != Stage::Duplicate)
    }

    /// Returns true if no address is being probed any more.
    pub(crate) fn is_probed(&self) -> bool {
        let probes = |own: &OwnAddress| matches!(own.stage, Stage::Probing { .. });
        !self.list.iter().any(probes)
    }

    /// Returns true for the solicited-node group of an own address.
    pub(crate) fn is_own_group(&self, group: Ipv6Addr) -> bool {
        self.list.iter().any(|own| match own.address.ip() {
            IpAddr::V6(ip) => own.stage != Stage::Duplicate && solicited_node(ip) == group,
            IpAddr::V4(_) => false,
        })
    }

    /// Returns true if an address needs no gateway: it has an own prefix, or is link-local.
    pub(crate) fn is_on_link(&self, ip: IpAddr) -> bool {
        self.list.iter().any(|own| own.address.contains(ip))
    }

    /// Returns true for the broadcast address of an own subnet.
    pub(crate) fn is_broadcast(&self, ip: IpAddr) -> bool {
        self.list.iter().any(|own| own.address.is_subnet_broadcast(ip))
    }

    /// Returns the next hop of an address, and the own address to send from.
    pub(crate) fn route(&self, to: IpAddr) -> Option<(IpAddr, IpAddr)> {
        let hop = if self.is_on_link(to) {
            to
        } else {
            *self
                .gateways
                .iter()
                .find(|gateway| gateway.is_ipv4() == to.is_ipv4())?
        };
        Some((hop, self.source(to)?))
    }

    /// Returns the source address for packets to an address: an own address with the same prefix, or else one
    /// that is not link-local.
    pub(crate) fn source(&self, to: IpAddr) -> Option<IpAddr> {
        let usable = || {
            let version = |own: &&OwnAddress| own.is_usable() && own.address.ip().is_ipv4() == to.is_ipv4();
            self.list.iter().filter(version)
        };
        let is_global = |own: &&OwnAddress| match own.address.ip() {
            IpAddr::V4(_) => true,
            IpAddr::V6(ip) => !ip.is_unicast_link_local(),
        };
        let near = usable().find(|own| own.address.contains(to));
        near.or_else(|| usable().find(is_global))
            .map(|own| own.address.ip())
    }

    /// Returns when the next probe or announcement is due.
    pub(crate) fn next_timeout(&self) -> Option<Time> {
        let next = |own: &OwnAddress| match own.stage {
            Stage::Probing { next, .. } | Stage::Announcing { next, .. } => Some(next),
            Stage::Settled | Stage::Duplicate => None,
        };
        self.list.iter().filter_map(next).min()
    }

    /// Returns the probes and announcements that are due.
    pub(crate) fn on_timeout(&mut self, now: Time) -> Vec<Action> {
        let mut actions = Vec::new();
        for own in &mut self.list {
            let ip = own.address.ip();
            if let Stage::Probing { sent, next } = own.stage
                && next <= now
            {
                if sent < self.probes {
                    let next = now + self.probe_interval;
                    own.stage = Stage::Probing { sent: sent + 1, next };
                    actions.push(Action::Probe(ip));
                } else {
                    own.stage = Stage::Announcing { sent: 0, next: now };
                    actions.push(Action::Usable(ip));
                }
            }
            if let Stage::Announcing { sent, next } = own.stage
                && next <= now
            {
                actions.push(Action::Announce(ip));
                own.stage = if sent + 1 < ANNOUNCE_NUM {
                    let next = now + ANNOUNCE_INTERVAL;
                    Stage::Announcing { sent: sent + 1, next }
                } else {
                    Stage::Settled
                };
            }
        }
        actions
    }

    /// Notes that another host uses an own address. Returns true if the address stays in use, and an announcement if it is time
    /// to defend it; `None` if the address is not an own one or is a known duplicate.
    pub(crate) fn conflict(&mut self, now: Time, ip: IpAddr) -> Option<(bool, Option<Action>)> {
        let own = self.list.iter_mut().find(|own| own.address.ip() == ip)?;
        match own.stage {
            Stage::Duplicate => None,
            Stage::Probing { .. } => {
                own.stage = Stage::Duplicate;
                Some((false, None))
            }
            Stage::Announcing { .. } | Stage::Settled => {
                let is_time = own.defended.is_none_or(|at| now.since(at) >= DEFEND_INTERVAL);
                if is_time {
                    own.defended = Some(now);
                }
                Some((true, is_time.then_some(Action::Announce(ip))))
            }
        }
    }

    fn find(&self, ip: IpAddr) -> Option<&OwnAddress> {
        self.list.iter().find(|own| own.address.ip() == ip)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAC: Mac = Mac([0x02, 0x12, 0x34, 0x56, 0x78, 0x9a]);

    fn addresses(list: &[&str], gateways: &[&str]) -> OwnAddresses {
        let mut config = Config::new(MAC, list[0].parse().unwrap(), 1);
        config.addresses = list.iter().map(|text| text.parse().unwrap()).collect();
        config.gateways = gateways.iter().map(|text| text.parse().unwrap()).collect();
        OwnAddresses::new(&config, Time::ZERO)
    }

    fn settled(list: &[&str], gateways: &[&str]) -> OwnAddresses {
        let mut own = addresses(list, gateways);
        (0..10).for_each(|second| drop(own.on_timeout(Time::from_secs(second))));
        assert_eq!(own.next_timeout(), None);
        own
    }

    #[test]
    fn an_address_is_probed_three_times_then_used_and_announced_twice() {
        let mut own = addresses(&["192.0.2.1/24"], &[]);
        let ip: IpAddr = "192.0.2.1".parse().unwrap();
        let mut log = Vec::new();
        while let Some(at) = own.next_timeout() {
            log.extend(
                own.on_timeout(at)
                    .into_iter()
                    .map(|action| (at.nanos() / 1_000_000_000, action)),
            );
        }
        let (probe, announce) = (Action::Probe(ip), Action::Announce(ip));
        assert_eq!(
            log,
            [
                (0, probe),
                (1, probe),
                (2, probe),
                (3, Action::Usable(ip)),
                (3, announce),
                (5, announce)
            ]
        );
        assert!(own.is_usable(ip));
    }

    #[test]
    fn a_duplicate_is_never_used_and_a_used_address_is_defended_once_in_ten_seconds() {
        let ip: IpAddr = "192.0.2.1".parse().unwrap();
        let mut own = addresses(&["192.0.2.1/24"], &[]);
        own.on_timeout(Time::ZERO);
        assert_eq!(own.conflict(Time::from_millis(10), ip), Some((false, None)));
        assert_eq!(own.conflict(Time::from_millis(11), ip), None);
        assert!(own.next_timeout().is_none() && !own.is_own(ip));
        let mut own = settled(&["192.0.2.1/24"], &[]);
        let defence = Some((true, Some(Action::Announce(ip))));
        assert_eq!(own.conflict(Time::from_secs(20), ip), defence);
        assert_eq!(own.conflict(Time::from_secs(29), ip), Some((true, None)));
        assert_eq!(own.conflict(Time::from_secs(30), ip), defence);
    }

    #[test]
    fn packets_leave_by_the_gateway_of_their_version_from_an_address_of_their_scope() {
        let own = settled(
            &["192.0.2.1/24", "198.51.100.1/24", "2001:db8::1/64"],
            &["198.51.100.254", "fe80::1"],
        );
        let route = |to: &str| {
            let (hop, from) = own.route(to.parse().unwrap()).unwrap();
            (hop.to_string(), from.to_string())
        };
        let expected = |hop: &str, from: &str| (hop.to_owned(), from.to_owned());
        assert_eq!(route("198.51.100.7"), expected("198.51.100.7", "198.51.100.1"));
        assert_eq!(route("203.0.113.7"), expected("198.51.100.254", "192.0.2.1"));
        assert_eq!(route("2001:db8::7"), expected("2001:db8::7", "2001:db8::1"));
        assert_eq!(route("2001:db8:1::7"), expected("fe80::1", "2001:db8::1"));
        let own_link_local = link_local(MAC).to_string();
        assert_eq!(own_link_local, "fe80::12:34ff:fe56:789a");
        assert_eq!(route("fe80::7"), expected("fe80::7", &own_link_local));
        assert_eq!(
            settled(&["192.0.2.1/24"], &[]).route("203.0.113.7".parse().unwrap()),
            None
        );
    }
}
