//! Frames of peering LANs and multipoint circuits that random frames seldom show: one case each.

use core::net::{IpAddr, Ipv6Addr};
use core::time::Duration;

use millrace_ix_model::{
    ConfigId, EndRole, LanPolicy, Operation, PolicyId, ServiceId, ServiceKind, TrunkKind,
};
use millrace_ix_plan::layout::{FORWARD, Metadata};
use millrace_ix_plan::{Entry, EntryId, Settings, plan};
use millrace_types::Mac;

use crate::fabric::Fabric;
use crate::frames::{BROADCAST, Untagged, arp, discovery, ipv6, solicited_node};
use crate::lan_world::{Member, address, lan, mac};
use crate::oracle::{join, split, tags_of};
use crate::world::{NOW, World, c_tag, qinq};

const SETTINGS: Settings = Settings {
    now: NOW,
    extensions: false,
};
const FOREIGN: [u8; 6] = [2, 9, 9, 9, 9, 9];

/// A peering LAN, and two of its members.
struct Lan {
    world: World,
    fabric: Fabric,
    me: Member,
    you: Member,
}

impl Lan {
    fn new(change: impl FnOnce(&mut World, &[Member])) -> Lan {
        let (mut world, _, members) = lan(11, 4, None, 50);
        change(&mut world, &members);
        let plan = plan(&world.exchange, &SETTINGS);
        assert_eq!(plan.problems, []);
        let mut fabric = Fabric::new(&world.exchange);
        fabric.install(&plan);
        let [me, you, ..] = &members[..] else {
            panic!("two members")
        };
        Lan {
            me: me.clone(),
            you: you.clone(),
            world,
            fabric,
        }
    }

    /// Returns the destinations of the frames that members receive after one member has sent a frame.
    fn send(&mut self, from: &Member, frame: &Untagged) -> Vec<[u8; 6]> {
        let delivered = send(&self.world, &mut self.fabric, from.config, frame);
        delivered
            .iter()
            .map(|frame| split(frame).0[..6].try_into().unwrap())
            .collect()
    }
}

/// Returns the frames that leave at members after an end has sent one.
fn send(world: &World, fabric: &mut Fabric, from: ConfigId, frame: &Untagged) -> Vec<Vec<u8>> {
    let config = &world.exchange.configs[&from];
    let port = world.exchange.connections[&config.connection].ports[0];
    let bytes = join(&frame.addresses(), &tags_of(config.vlan, 0), &frame.rest());
    let delivered = fabric.send(port.switch, port.port.raw(), &bytes);
    delivered.into_iter().map(|delivered| delivered.frame).collect()
}

fn link_local([a, b, c, d, e, f]: [u8; 6]) -> Ipv6Addr {
    Ipv6Addr::from([0xfe, 0x80, 0, 0, 0, 0, 0, 0, a ^ 2, b, c, 0xff, 0xfe, d, e, f])
}

#[test]
fn unicast_neighbour_discovery_may_omit_the_link_layer_address() {
    let mut lan = Lan::new(|_, _| {});
    let (me, you) = (lan.me.clone(), lan.you.clone());
    let nd = |dst: [u8; 6], body: Vec<u8>| ipv6(dst, me.mac, me.v6, you.v6, 58, &body);
    for option in [None, Some(me.mac)] {
        let probe = nd(you.mac, discovery(135, you.v6, option));
        assert_eq!(lan.send(&me, &probe), [you.mac], "a unicast probe, {option:02x?}");
        let answer = nd(you.mac, discovery(136, me.v6, option));
        assert_eq!(lan.send(&me, &answer), [you.mac], "an answer, {option:02x?}");
    }
    for (name, frame) in [
        (
            "a foreign source",
            ipv6(you.mac, me.mac, you.v6, you.v6, 58, &discovery(135, you.v6, None)),
        ),
        ("a foreign target", nd(you.mac, discovery(136, you.v6, None))),
        (
            "a foreign MAC address",
            nd(you.mac, discovery(136, me.v6, Some(FOREIGN))),
        ),
        (
            "a foreign source option",
            nd(you.mac, discovery(135, you.v6, Some(FOREIGN))),
        ),
        (
            "a question to a group",
            nd(solicited_node(you.v6), discovery(135, you.v6, None)),
        ),
    ] {
        assert!(lan.send(&me, &frame).is_empty(), "{name}");
    }
}

#[test]
fn no_member_gets_a_probe_for_its_own_address() {
    let mut lan = Lan::new(|_, _| {});
    let (me, you) = (lan.me.clone(), lan.you.clone());
    for dst in [solicited_node(you.v6), you.mac] {
        let detection = ipv6(
            dst,
            me.mac,
            Ipv6Addr::UNSPECIFIED,
            you.v6,
            58,
            &discovery(135, you.v6, None),
        );
        assert!(lan.send(&me, &detection).is_empty());
    }
    for dst in [BROADCAST, you.mac] {
        let probe = arp(dst, me.mac, 1, me.mac, [0, 0, 0, 0].into(), you.v4);
        assert!(lan.send(&me, &probe).is_empty());
    }
}

#[test]
fn a_link_local_address_of_a_mac_address_stays_there_while_a_router_is_replaced() {
    let new = [2, 0, 0, 0, 8, 1];
    // The old router's address may also be registered.
    for is_registered in [false, true] {
        let mut lan = Lan::new(|world, members| {
            if is_registered {
                let operation = Operation::AddIp {
                    config: members[1].config,
                    address: IpAddr::from(link_local(members[1].mac)),
                    valid_until: None,
                };
                world.apply(operation).unwrap();
            }
            let operation = Operation::AddMac {
                config: members[1].config,
                address: Mac(new),
                valid_from: None,
                valid_until: Some(NOW.after(Duration::from_secs(3600))),
            };
            world.apply(operation).unwrap();
        });
        let (me, you) = (lan.me.clone(), lan.you.clone());
        for (target, at) in [
            (link_local(you.mac), you.mac),
            (link_local(new), new),
            (you.v6, new),
        ] {
            let body = discovery(135, target, Some(me.mac));
            let question = ipv6(solicited_node(target), me.mac, me.v6, target, 58, &body);
            assert_eq!(lan.send(&me, &question), [at], "{target}");
        }
    }
}

#[test]
fn a_frame_whose_end_is_not_known_yet_names_no_end() {
    for seed in 0..4 {
        let (world, _, _) = lan(seed, 6, Some(TrunkKind::Vxlan), 50);
        let plan = plan(&world.exchange, &SETTINGS);
        for (id, entry) in plan.switches.values().flatten() {
            let (EntryId::Flow(id), Entry::Flow(flow)) = (id, entry) else {
                continue;
            };
            let Some(change) = flow.instructions.write_metadata.filter(|_| id.table < FORWARD) else {
                continue;
            };
            let fields = Metadata::from_word(change.apply(0));
            let is_none = fields.egress_end == 0 || fields.egress_end & Metadata::COPIES != 0;
            assert!(is_none || fields.by_trunk, "{id:?}: {fields:?}");
        }
    }
}

#[test]
fn quarantine_sees_frames_with_a_wrong_inner_tag_and_all_their_tags() {
    let mut world = World::new(1, TrunkKind::Vxlan);
    let policy: PolicyId = world.create(Operation::CreatePolicy {
        policy: LanPolicy::usual("peering"),
    });
    let account = world.account("a");
    let service: ServiceId = world.create(Operation::CreateService {
        account: Some(account),
        kind: ServiceKind::ExchangeLan,
        name: "peering".to_owned(),
        peer: None,
        policy: Some(policy),
        networks: vec!["192.0.2.0/24".parse().unwrap()],
        external_ref: None,
    });
    let port = world.port(0, 1);
    let connection = world.connection(account, vec![port]);
    let end: ConfigId = world
        .end(service, connection, qinq(7, 8))
        .unwrap()
        .first()
        .unwrap();
    mac(&mut world, end, address(1));
    let mut fabric = Fabric::new(&world.exchange);
    fabric.install(&plan(&world.exchange, &SETTINGS));
    let sent = arp(
        BROADCAST,
        address(1),
        1,
        address(1),
        [192, 0, 2, 1].into(),
        [192, 0, 2, 2].into(),
    );
    let outer = tags_of(world.exchange.configs[&end].vlan, 0)[0];
    for inner in [Some((0x8100, 0, 9)), None] {
        let tags: Vec<_> = [Some(outer), inner].into_iter().flatten().collect();
        let bytes = join(&sent.addresses(), &tags, &sent.rest());
        assert!(fabric.send(port.switch, port.port.raw(), &bytes).is_empty());
        assert_eq!(fabric.last_packet_in, bytes, "{tags:?}");
    }
}

#[test]
fn frames_to_unknown_destinations_are_copied_up_to_the_storm_limit() {
    let mut world = World::new(2, TrunkKind::Vxlan);
    let account = world.account("a");
    let service = world.service(account, ServiceKind::Mp2mpVc, None);
    let mut ends: Vec<ConfigId> = Vec::new();
    for (n, at) in [(1u8, 0), (2, 0), (3, 1)] {
        let port = world.port(at, n.into());
        let connection = world.connection(account, vec![port]);
        let operation = Operation::ConfigureEnd {
            service,
            connection,
            vlan: c_tag(5),
            capacity_mbps: None,
            role: EndRole::Root,
            asns: Default::default(),
            external_ref: None,
        };
        ends.push(world.create(operation));
        mac(&mut world, ends[ends.len() - 1], address(n));
    }
    let mut fabric = Fabric::new(&world.exchange);
    fabric.install(&plan(&world.exchange, &SETTINGS));
    let start = fabric.now;
    let (mut copies, mut known) = (0, 0);
    for number in 0..500u32 {
        // All frames are sent within 0.1 s.
        fabric.now = start + Duration::from_micros(u64::from(number) * 180);
        let dst = match number % 2 {
            0 => [2, 9, 9, 9, (number >> 8) as u8, number as u8],
            _ => [1, 0, 0x5e, 0, 0, 7],
        };
        let frame = |dst| Untagged {
            dst,
            src: address(1),
            ethertype: 0x0800,
            payload: vec![0; 60],
        };
        let config = &world.exchange.configs[&ends[0]];
        let port = world.exchange.connections[&config.connection].ports[0];
        let mut count = |dst| {
            let frame: Untagged = frame(dst);
            let bytes = join(&frame.addresses(), &tags_of(config.vlan, 0), &frame.rest());
            fabric.send_now(port.switch, port.port.raw(), &bytes).len()
        };
        copies += count(dst);
        known += count(address(2));
    }
    assert_eq!(known, 500, "registered destinations have no limit");
    // 100 frames at once, and a tenth of a second's worth more, to two ends each.
    assert!((200..=2 * 112).contains(&copies), "{copies}");
}
