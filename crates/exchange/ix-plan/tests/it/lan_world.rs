//! Peering LANs and multipoint circuits to test with, and frames that their members send.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use std::collections::BTreeSet;

use millrace_ix_model::{
    AccountId, ConfigId, ConnectionId, EndRole, LanPolicy, Operation, PolicyId, ServiceId, ServiceKind,
    TrunkKind, VlanRequest,
};
use millrace_types::Mac;

use crate::frames::{BROADCAST, Untagged, arp, discovery, ipv4, ipv6, solicited_node, udp};
use crate::world::{Random, World, c_tag, qinq, s_tag};

/// An end of a multipoint service with its addresses.
#[derive(Clone)]
pub(crate) struct Member {
    pub(crate) config: ConfigId,
    pub(crate) mac: [u8; 6],
    pub(crate) v4: Ipv4Addr,
    pub(crate) v6: Ipv6Addr,
}

pub(crate) fn address(number: u8) -> [u8; 6] {
    [2, 0, 0, 0, 7, number]
}

/// Returns a world with a LAN of `count` members on random ports with random tags; the last is in quarantine.
pub(crate) fn lan(
    seed: u64,
    count: u8,
    kind: Option<TrunkKind>,
    pps: u32,
) -> (World, ServiceId, Vec<Member>) {
    let mut random = Random(seed);
    let drawn = *random.pick(&[TrunkKind::Vxlan, TrunkKind::STag]);
    let kind = kind.unwrap_or(drawn);
    let mut world = World::new(1 + random.below(3) as u32, kind);
    let policy: PolicyId = world.create(Operation::CreatePolicy {
        policy: LanPolicy {
            broadcast_pps: pps,
            multicast_pps: pps,
            ..LanPolicy::usual("peering")
        },
    });
    let exchange = world.account("exchange");
    let service = world.create(Operation::CreateService {
        account: Some(exchange),
        kind: ServiceKind::ExchangeLan,
        name: "peering".to_owned(),
        peer: None,
        policy: Some(policy),
        networks: vec!["192.0.2.0/24".parse().unwrap(), "2001:db8::/64".parse().unwrap()],
        external_ref: None,
    });
    let mut members = Vec::new();
    for n in 1..=count {
        let account = world.account(&format!("member {n}"));
        let connection = random_connection(&mut world, &mut random, account, n);
        let tags = [VlanRequest::Port, c_tag(5), s_tag(6), qinq(7, 8)];
        let vlan = *random.pick(&tags);
        let config = world.end(service, connection, vlan).unwrap().first().unwrap();
        members.push(member(&mut world, config, n, n != count));
        // Some members are customers of a reseller and share a connection with another.
        if vlan != VlanRequest::Port && random.below(3) == 0 {
            let config = world
                .end(service, connection, c_tag(99))
                .unwrap()
                .first()
                .unwrap();
            members.push(member(&mut world, config, n + 100, true));
        }
    }
    (world, service, members)
}

/// Adds the connection of member `n`: one port, or two, of a random switch.
fn random_connection(world: &mut World, random: &mut Random, account: AccountId, n: u8) -> ConnectionId {
    let at = random.below(world.switches.len() as u64) as usize;
    let len = *random.pick(&[1, 1, 2]);
    let ports = (0..len)
        .map(|port| world.port(at, u32::from(n) * 2 + port - 1))
        .collect();
    world.connection(account, ports)
}

/// Returns a world with a multipoint circuit of seven members on random ports with random tags. Some have a second end at
/// their connection. The first two members of a `p2mp_vc` are roots.
pub(crate) fn multipoint(seed: u64, kind: ServiceKind) -> (World, ServiceId, Vec<Member>) {
    let mut random = Random(seed);
    let mut world = World::new(1 + random.below(3) as u32, TrunkKind::Vxlan);
    let account = world.account("a");
    let service = world.service(account, kind, None);
    let mut members = Vec::new();
    for n in 1..=7u8 {
        let connection = random_connection(&mut world, &mut random, account, n);
        let first = *random.pick(&[VlanRequest::Port, c_tag(5), s_tag(6), qinq(7, 8)]);
        let second = if first == VlanRequest::Port {
            None
        } else {
            *random.pick(&[None, Some(c_tag(9)), Some(qinq(7, 9))])
        };
        for (vlan, number) in [(Some(first), n), (second, n + 100)] {
            let Some(vlan) = vlan else { continue };
            let role = if kind == ServiceKind::P2mpVc && n > 2 {
                EndRole::Leaf
            } else {
                EndRole::Root
            };
            let operation = Operation::ConfigureEnd {
                service,
                connection,
                vlan,
                capacity_mbps: None,
                role,
                asns: BTreeSet::new(),
                external_ref: None,
            };
            // An outer VID that the first end has as its only tag is refused.
            if let Ok(applied) = world.apply(operation) {
                let config = applied.first().unwrap();
                mac(&mut world, config, address(number));
                members.push(named(config, number));
            }
        }
    }
    (world, service, members)
}

/// Returns an end with the addresses of a number.
fn named(config: ConfigId, n: u8) -> Member {
    Member {
        config,
        mac: address(n),
        v4: Ipv4Addr::new(192, 0, 2, n),
        v6: Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, n.into()),
    }
}

/// Gives an end of a LAN its addresses.
pub(crate) fn member(world: &mut World, config: ConfigId, n: u8, admitted: bool) -> Member {
    let member = named(config, n);
    mac(world, config, member.mac);
    for address in [IpAddr::from(member.v4), member.v6.into()] {
        world
            .apply(Operation::AddIp {
                config,
                address,
                valid_until: None,
            })
            .unwrap();
    }
    if admitted {
        let reason = "test".to_owned();
        world
            .apply(Operation::WaiveQuarantine { config, reason })
            .unwrap();
    }
    member
}

pub(crate) fn mac(world: &mut World, config: ConfigId, address: [u8; 6]) {
    let operation = Operation::AddMac {
        config,
        address: Mac(address),
        valid_from: None,
        valid_until: None,
    };
    world.apply(operation).unwrap();
}

/// Returns a frame from one member to another, which is correct or has a forged field.
pub(crate) fn frame(random: &mut Random, me: &Member, you: &Member, third: &Member) -> Untagged {
    let src = *random.pick(&[me.mac, me.mac, me.mac, me.mac, third.mac]);
    let dst = *random.pick(&[
        you.mac,
        you.mac,
        you.mac,
        BROADCAST,
        [1, 0, 0x5e, 0, 0, 251],
        [2, 9, 9, 9, 9, 9],
        me.mac,
    ]);
    let spa = *random.pick(&[me.v4, me.v4, me.v4, Ipv4Addr::UNSPECIFIED, third.v4]);
    let tpa = *random.pick(&[you.v4, you.v4, me.v4, Ipv4Addr::new(192, 0, 2, 250)]);
    let sha = *random.pick(&[src, src, src, third.mac]);
    let link_local = |member: &Member| {
        let mac = member.mac;
        Ipv6Addr::new(
            0xfe80,
            0,
            0,
            0,
            u16::from_be_bytes([mac[0] ^ 2, mac[1]]),
            u16::from_be_bytes([mac[2], 0xff]),
            0xfe00 | u16::from(mac[3]),
            u16::from_be_bytes([mac[4], mac[5]]),
        )
    };
    let from = *random.pick(&[me.v6, me.v6, link_local(me), Ipv6Addr::UNSPECIFIED, third.v6]);
    let target = *random.pick(&[
        you.v6,
        you.v6,
        link_local(you),
        me.v6,
        Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0xfff),
    ]);
    let option = *random.pick(&[Some(src), Some(src), None, Some(third.mac)]);
    let discovery_dst = *random.pick(&[
        solicited_node(target),
        solicited_node(target),
        you.mac,
        [0x33, 0x33, 0, 0, 0, 1],
    ]);
    match random.below(12) {
        0 | 1 => arp(BROADCAST, src, 1, sha, spa, tpa),
        2 => arp(dst, src, *random.pick(&[1, 2]), sha, spa, tpa),
        3 | 4 => ipv6(
            discovery_dst,
            src,
            from,
            target,
            58,
            &discovery(135, target, option),
        ),
        5 => ipv6(
            dst,
            src,
            from,
            you.v6,
            58,
            &discovery(136, *random.pick(&[me.v6, me.v6, third.v6]), option),
        ),
        6 => ipv6(
            dst,
            src,
            from,
            you.v6,
            58,
            &discovery(*random.pick(&[133, 134, 137, 128, 143]), target, option),
        ),
        7 => ipv6(
            dst,
            src,
            from,
            you.v6,
            17,
            &udp(1000, *random.pick(&[53, 546, 547])),
        ),
        8 => ipv4(dst, src, you.v4, 17, &udp(1000, *random.pick(&[53, 67, 68, 179]))),
        9 => Untagged {
            ethertype: *random.pick(&[0x88cc, 0x9000, 0x8847, 0x05ff]),
            ..ipv4(dst, src, you.v4, 6, &[0; 20])
        },
        _ => ipv4(you.mac, src, you.v4, 6, &[0; 20]),
    }
}
