//! The oracle of peering LANs and multipoint circuits. It reads the model and parses frames itself, and shares no
//! code with the planner.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::collections::BTreeSet;

use millrace_ix_model::{
    Config, ConfigId, Connection, EndRole, Exchange, ServiceId, ServiceKind, SwitchId, TagType, VlanConfig,
};

use crate::oracle::{Delivery, join, split, tags_of};

/// Returns the end to which a frame belongs by its port and tags, and the priority of the frame.
fn end_of<'a>(
    exchange: &'a Exchange,
    switch: SwitchId,
    port: u32,
    tags: &[(u16, u8, u16)],
    strict: bool,
) -> Option<(ConfigId, &'a Config, u8)> {
    let has = |connection: &Connection| {
        connection
            .ports
            .iter()
            .any(|at| at.switch == switch && at.port.raw() == port)
    };
    let (id, _) = exchange
        .connections
        .iter()
        .find(|(_, connection)| has(connection))?;
    exchange
        .configs
        .iter()
        .filter(|(_, config)| config.connection == *id && !config.shut_down)
        .find_map(|(id, config)| {
            let wanted = tags_of(config.vlan, 0);
            let is_long_enough = if strict || wanted.is_empty() {
                tags.len() == wanted.len()
            } else {
                tags.len() >= wanted.len()
            };
            let fits = is_long_enough
                && tags
                    .iter()
                    .zip(&wanted)
                    .all(|(seen, wanted)| (seen.0, seen.2) == (wanted.0, wanted.2));
            let pcp = if wanted.is_empty() {
                0
            } else {
                tags.get(wanted.len() - 1).map_or(0, |tag| tag.1)
            };
            fits.then_some((*id, config, pcp))
        })
}

fn macs(exchange: &Exchange, id: ConfigId) -> Vec<[u8; 6]> {
    exchange
        .macs
        .values()
        .filter(|mac| mac.config == id)
        .map(|mac| mac.address.0)
        .collect()
}

fn link_local(mac: [u8; 6]) -> Ipv6Addr {
    let mut octets = [0; 16];
    octets[0] = 0xfe;
    octets[1] = 0x80;
    octets[8..11].copy_from_slice(&mac[..3]);
    octets[8] ^= 2;
    octets[11] = 0xff;
    octets[12] = 0xfe;
    octets[13..].copy_from_slice(&mac[3..]);
    octets.into()
}

fn v4(exchange: &Exchange, id: ConfigId) -> Vec<Ipv4Addr> {
    let ips = exchange.ips.values().filter(|ip| ip.config == id);
    ips.filter_map(|ip| match ip.address {
        IpAddr::V4(v4) => Some(v4),
        IpAddr::V6(_) => None,
    })
    .collect()
}

fn v6(exchange: &Exchange, id: ConfigId) -> Vec<Ipv6Addr> {
    let ips = exchange.ips.values().filter(|ip| ip.config == id);
    let mut all: Vec<_> = ips
        .filter_map(|ip| match ip.address {
            IpAddr::V6(v6) => Some(v6),
            IpAddr::V4(_) => None,
        })
        .collect();
    if !all.is_empty() {
        all.extend(macs(exchange, id).into_iter().map(link_local));
    }
    all
}

/// Returns the end of a service that `fits` accepts, if it is in use and is not `asker`.
fn owner(
    exchange: &Exchange,
    service: ServiceId,
    asker: ConfigId,
    fits: impl Fn(ConfigId) -> bool,
) -> Option<ConfigId> {
    let ends = exchange
        .configs
        .iter()
        .filter(|(_, config)| config.service == service && !config.shut_down);
    let mut ends = ends.filter(|(_, config)| config.quarantine.is_over());
    ends.find(|(id, _)| fits(**id))
        .map(|(id, _)| *id)
        .filter(|id| *id != asker)
}

/// Returns the delivery at an end; `copied` frames have no priority in outer tags.
#[allow(clippy::too_many_arguments, reason = "each is a part of one frame's way")]
fn deliver(
    exchange: &Exchange,
    from: &Config,
    port: u32,
    to: ConfigId,
    pcp: u8,
    copied: bool,
    addresses: &[u8],
    own: &[(u16, u8, u16)],
    rest: &[u8],
) -> Delivery {
    let config = &exchange.configs[&to];
    let connection = &exchange.connections[&config.connection];
    let mut tags = tags_of(config.vlan, pcp);
    let is_plain = matches!(
        config.vlan,
        VlanConfig::Dot1q {
            ethertype: TagType::CTag,
            ..
        }
    );
    if copied && !is_plain && !tags.is_empty() {
        tags[0].1 = 0;
    }
    tags.extend(own);
    let ports = if config.connection == from.connection {
        BTreeSet::from([port])
    } else {
        connection.ports.iter().map(|port| port.port.raw()).collect()
    };
    Delivery {
        switch: connection.ports[0].switch,
        ports,
        frame: join(addresses, &tags, rest),
    }
}

/// Returns the delivery of a frame in a peering LAN, or `None` if it must be dropped.
pub(crate) fn lan(exchange: &Exchange, switch: SwitchId, port: u32, frame: &[u8]) -> Option<Delivery> {
    let (addresses, tags, rest) = split(frame);
    let (id, end, pcp) = end_of(exchange, switch, port, &tags, true)?;
    let service = &exchange.services[&end.service];
    if service.kind != ServiceKind::ExchangeLan || !end.quarantine.is_over() {
        return None;
    }
    let policy = &exchange.policies[&service.policy.unwrap()];
    let (dst, src): ([u8; 6], [u8; 6]) = (
        addresses[..6].try_into().unwrap(),
        addresses[6..].try_into().unwrap(),
    );
    let ethertype = u16::from_be_bytes([rest[0], rest[1]]);
    let body = &rest[2..];
    if dst[..5] == [1, 0x80, 0xc2, 0, 0] && dst[5] < 16 {
        return None;
    }
    if !macs(exchange, id).contains(&src) || !policy.ethertypes.contains(&ethertype) {
        return None;
    }
    let by_mac = |mac: [u8; 6]| {
        owner(exchange, end.service, id, |other| {
            macs(exchange, other).contains(&mac)
        })
    };
    let mut target = by_mac(dst);
    let mut new_dst = dst;
    let ask = |found: Option<ConfigId>| {
        let newest = found.and_then(|found| macs(exchange, found).last().copied());
        found.zip(newest)
    };
    match ethertype {
        0x0800 if body[9] == 17 && [67, 68].contains(&u16::from_be_bytes([body[22], body[23]])) => {
            return None;
        }
        0x0806 => {
            let op = u16::from_be_bytes([body[6], body[7]]);
            let spa: Ipv4Addr = <[u8; 4]>::try_from(&body[14..18]).unwrap().into();
            let tpa: Ipv4Addr = <[u8; 4]>::try_from(&body[24..28]).unwrap().into();
            if body[8..14] != src || !v4(exchange, id).contains(&spa) {
                return None;
            }
            if dst == [0xff; 6] {
                let (found, mac) = ask(owner(exchange, end.service, id, |other| {
                    v4(exchange, other).contains(&tpa)
                }))?;
                (target, new_dst) = (Some(found).filter(|_| op == 1), mac);
            }
        }
        0x86dd => {
            let from: Ipv6Addr = <[u8; 16]>::try_from(&body[8..24]).unwrap().into();
            let next = body[6];
            let icmp = (next == 58).then_some(body[40]);
            if next == 17 && [546, 547].contains(&u16::from_be_bytes([body[42], body[43]])) {
                return None;
            }
            let asked: Ipv6Addr = <[u8; 16]>::try_from(body.get(48..64).unwrap_or(&[0; 16]))
                .unwrap()
                .into();
            let size = usize::from(u16::from_be_bytes([body[4], body[5]]));
            let option = (size >= 32).then(|| (body[64], &body[66..72]));
            // RFC 4861, sections 4.3 and 4.4: only unicast messages may omit the option.
            let names_sender = |kind| option == Some((kind, &src[..])) || option.is_none() && dst[0] & 1 == 0;
            match icmp {
                Some(133 | 134 | 137) => return None,
                Some(135) => {
                    if !v6(exchange, id).contains(&from) || !names_sender(1) {
                        return None;
                    }
                    let octets = asked.octets();
                    if dst == [0x33, 0x33, 0xff, octets[13], octets[14], octets[15]] {
                        let found = owner(exchange, end.service, id, |other| {
                            v6(exchange, other).contains(&asked)
                        });
                        let (found, newest) = ask(found)?;
                        // A link-local address that follows from a MAC address is at that address.
                        let own = macs(exchange, found);
                        let mac = own.into_iter().find(|mac| link_local(*mac) == asked);
                        (target, new_dst) = (Some(found), mac.unwrap_or(newest));
                    }
                }
                Some(136) if !v6(exchange, id).contains(&asked) || !names_sender(2) => {
                    return None;
                }
                _ => {}
            }
        }
        _ => {}
    }
    let addresses = [new_dst, src].concat();
    Some(deliver(
        exchange,
        end,
        port,
        target?,
        pcp,
        false,
        &addresses,
        &[],
        rest,
    ))
}

/// Returns the deliveries of a frame in a multipoint circuit.
pub(crate) fn multipoint(exchange: &Exchange, switch: SwitchId, port: u32, frame: &[u8]) -> Vec<Delivery> {
    let (addresses, tags, rest) = split(frame);
    if addresses[..5] == [1, 0x80, 0xc2, 0, 0] && addresses[5] < 16 {
        return Vec::new();
    }
    let Some((id, end, pcp)) = end_of(exchange, switch, port, &tags, false) else {
        return Vec::new();
    };
    let (dst, src): ([u8; 6], [u8; 6]) = (
        addresses[..6].try_into().unwrap(),
        addresses[6..].try_into().unwrap(),
    );
    if !macs(exchange, id).contains(&src) {
        return Vec::new();
    }
    let own = &tags[tags_of(end.vlan, 0).len()..];
    let others: Vec<_> = exchange
        .configs
        .iter()
        .filter(|(other, config)| config.service == end.service && **other != id && !config.shut_down)
        .collect();
    let reaches = |config: &Config| end.role == EndRole::Root || config.role == EndRole::Root;
    let known = exchange.macs.values().find(|mac| {
        let config = &exchange.configs[&mac.config];
        mac.address.0 == dst && config.service == end.service
    });
    let (to, copied): (Vec<_>, bool) = match known {
        Some(mac) => (
            others
                .into_iter()
                .filter(|(other, _)| **other == mac.config)
                .collect(),
            false,
        ),
        None => (others, true),
    };
    let to = to.into_iter().filter(|(_, config)| reaches(config));
    to.map(|(other, _)| deliver(exchange, end, port, *other, pcp, copied, addresses, own, rest))
        .collect()
}
