//! A peering LAN with many members: a request for an address reaches the owner of the address and nobody else. `make
//! exchange-check` has 1,000 members and 10,000 pairs.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::collections::BTreeMap;

use millrace_ix_model::{
    ConfigId, LanPolicy, Operation, PolicyId, ServiceId, ServiceKind, SwitchId, TrunkKind,
};
use millrace_ix_plan::{Settings, plan};

use crate::circuits::number;
use crate::fabric::Fabric;
use crate::frames::{BROADCAST, Untagged, arp, discovery, ipv6, solicited_node};
use crate::lan_world::mac;
use crate::oracle::{join, tags_of};
use crate::world::{NOW, Random, World, c_tag};

/// The number of ends that share a connection, as the customers of a reseller do.
const EACH: usize = 25;

/// A member: its addresses, and the switch, port and tags of its frames.
struct Member {
    mac: [u8; 6],
    v4: Ipv4Addr,
    v6: Ipv6Addr,
    switch: SwitchId,
    port: u32,
    tags: Vec<(u16, u8, u16)>,
}

impl Member {
    fn frame(&self, frame: &Untagged) -> Vec<u8> {
        join(&frame.addresses(), &self.tags, &frame.rest())
    }
}

/// Returns a LAN of `count` members at both switches, out of quarantine.
fn large_lan(count: usize) -> (World, Vec<Member>) {
    let mut world = World::new(2, TrunkKind::Vxlan);
    let policy: PolicyId = world.create(Operation::CreatePolicy {
        policy: LanPolicy {
            broadcast_pps: 50,
            multicast_pps: 50,
            ..LanPolicy::usual("peering")
        },
    });
    let account = world.account("exchange");
    let service: ServiceId = world.create(Operation::CreateService {
        account: Some(account),
        kind: ServiceKind::ExchangeLan,
        name: "peering".to_owned(),
        peer: None,
        policy: Some(policy),
        networks: vec!["10.0.0.0/16".parse().unwrap(), "2001:db8::/64".parse().unwrap()],
        external_ref: None,
    });
    let mut members = Vec::new();
    for first in (0..count).step_by(EACH) {
        let place = first / EACH;
        let port = world.port(place % 2, 1 + place as u32 / 2);
        let connection = world.connection(account, vec![port]);
        for n in first..count.min(first + EACH) {
            let applied = world
                .end(service, connection, c_tag(2 + (n % EACH) as u16))
                .unwrap();
            let config: ConfigId = applied.first().unwrap();
            let [high, low] = (n as u16 + 1).to_be_bytes();
            let member = Member {
                mac: [2, 0, 0, 7, high, low],
                v4: Ipv4Addr::new(10, 0, high, low),
                v6: Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, n as u16 + 1),
                switch: port.switch,
                port: port.port.raw(),
                tags: tags_of(world.exchange.configs[&config].vlan, 0),
            };
            mac(&mut world, config, member.mac);
            for address in [IpAddr::from(member.v4), member.v6.into()] {
                let valid_until = None;
                world
                    .apply(Operation::AddIp {
                        config,
                        address,
                        valid_until,
                    })
                    .unwrap();
            }
            let reason = "test".to_owned();
            world
                .apply(Operation::WaiveQuarantine { config, reason })
                .unwrap();
            members.push(member);
        }
    }
    (world, members)
}

#[test]
fn each_question_for_an_address_reaches_its_owner_alone_and_the_answer_comes_back() {
    let is_long = std::env::var_os("MILLRACE_EXCHANGE_LONG").is_some();
    let count = number("MILLRACE_EXCHANGE_MEMBERS", if is_long { 1_000 } else { 60 }) as usize;
    let pairs = if is_long { 10_000 } else { 300 };
    let (world, members) = large_lan(count);
    let settings = Settings {
        now: NOW,
        extensions: false,
    };
    let plan = plan(&world.exchange, &settings);
    assert_eq!(plan.problems, []);
    let entries: Vec<usize> = plan.switches.values().map(BTreeMap::len).collect();
    let mut fabric = Fabric::new(&world.exchange);
    fabric.install(&plan);
    let mut random = Random(1);
    let mut resolved = 0;
    for _ in 0..pairs {
        let (asker, owner) = (random.pick(&members), random.pick(&members));
        if asker.mac == owner.mac {
            continue;
        }
        let solicit = |target, mac| discovery(135, target, Some(mac));
        let advertise = |target, mac| discovery(136, target, Some(mac));
        let questions = [
            (
                arp(BROADCAST, asker.mac, 1, asker.mac, asker.v4, owner.v4),
                arp(asker.mac, owner.mac, 2, owner.mac, owner.v4, asker.v4),
            ),
            (
                ipv6(
                    solicited_node(owner.v6),
                    asker.mac,
                    asker.v6,
                    owner.v6,
                    58,
                    &solicit(owner.v6, asker.mac),
                ),
                ipv6(
                    asker.mac,
                    owner.mac,
                    owner.v6,
                    asker.v6,
                    58,
                    &advertise(owner.v6, owner.mac),
                ),
            ),
        ];
        for (question, answer) in questions {
            // Storm meters let fifty broadcast and multicast frames pass in a second, so frames are 100 ms
            // apart.
            fabric.now = fabric.now + core::time::Duration::from_millis(100);
            for (from, to, sent) in [(asker, owner, question), (owner, asker, answer)] {
                let delivered = fabric.send(from.switch, from.port, &from.frame(&sent));
                // The switch replaces the destination of a request with the MAC address of the owner.
                let arrived = to.frame(&Untagged { dst: to.mac, ..sent });
                let [one] = &delivered[..] else {
                    panic!("{} copies for {}: {delivered:?}", delivered.len(), to.v4);
                };
                assert!(
                    (one.switch, one.port) == (to.switch, to.port) && one.frame == arrived,
                    "{} to {}: {one:?}",
                    from.v4,
                    to.v4
                );
            }
            resolved += 1;
        }
    }
    println!(
        "{count} members, {entries:?} entries: {resolved} questions by ARP and ND reached the owner alone, and the answers came back"
    );
    assert!(resolved > pairs * 19 / 10);
}
