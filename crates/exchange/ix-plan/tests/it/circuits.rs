//! Circuits in the pipeline: all pairs of tags at all positions of the ends, and random exchanges.

use millrace_ix_model::{ServiceKind, TrunkKind, VlanRequest};
use millrace_ix_plan::{Settings, plan};

use crate::fabric::{Delivered, Fabric};
use crate::oracle::{self, Delivery, join, tags_of};
use crate::world::{NOW, Random, World, c_tag, qinq, random_circuits, random_frame, s_tag};

const SETTINGS: Settings = Settings {
    now: NOW,
    extensions: false,
};

/// Fails unless the frames that left are exactly the wanted one.
pub(crate) fn check(wanted: Option<&Delivery>, delivered: &[Delivered], case: &dyn Fn() -> String) {
    match wanted {
        None => assert!(delivered.is_empty(), "{}: a leak: {delivered:?}", case()),
        Some(wanted) => {
            let [one] = delivered else {
                panic!("{}: expected {wanted:?}, got {delivered:?}", case());
            };
            let is_right =
                one.switch == wanted.switch && wanted.ports.contains(&one.port) && one.frame == wanted.frame;
            assert!(is_right, "{}: expected {wanted:?}, got {one:?}", case());
        }
    }
}

/// The positions of the second end, relative to the first.
#[derive(Clone, Copy, Debug)]
enum Place {
    SameSwitch,
    OtherSite(TrunkKind),
    SamePort,
    Lag,
    LagItself,
}

#[test]
fn every_pair_of_tags_is_translated_at_every_distance_with_its_priority() {
    let requests = [VlanRequest::Port, c_tag(100), s_tag(200), qinq(300, 33)];
    let others = [VlanRequest::Port, c_tag(101), s_tag(201), qinq(301, 33)];
    let places = [
        Place::SameSwitch,
        Place::OtherSite(TrunkKind::Vxlan),
        Place::OtherSite(TrunkKind::STag),
        Place::SamePort,
        Place::Lag,
        Place::LagItself,
    ];
    let mut frames = 0;
    for place in places {
        for one in requests {
            for two in others {
                let kind = match place {
                    Place::OtherSite(kind) => kind,
                    _ => TrunkKind::Vxlan,
                };
                let mut world = World::new(2, kind);
                let account = world.account("a");
                let here = match place {
                    Place::LagItself => vec![world.port(0, 1), world.port(0, 2)],
                    _ => vec![world.port(0, 1)],
                };
                let here = world.connection(account, here);
                let there = match place {
                    Place::SameSwitch => vec![world.port(0, 9)],
                    Place::OtherSite(_) => vec![world.port(1, 9)],
                    Place::Lag => vec![world.port(1, 9), world.port(1, 10), world.port(1, 11)],
                    Place::SamePort | Place::LagItself => Vec::new(),
                };
                let there = if there.is_empty() {
                    here
                } else {
                    world.connection(account, there)
                };
                let service = world.service(account, ServiceKind::P2pVc, None);
                world.end(service, here, one).unwrap();
                if world.end(service, there, two).is_err() {
                    assert!(here == there && (one == VlanRequest::Port || two == VlanRequest::Port));
                    continue;
                }
                let plan = plan(&world.exchange, &SETTINGS);
                assert_eq!(plan.problems, []);
                let mut fabric = Fabric::new(&world.exchange);
                fabric.install(&plan);
                let mut random = Random(7);
                for pcp in 0..8 {
                    for size in [60, 61, 64, 512, 1514, 1518, 1522] {
                        for config in world.exchange.configs.values() {
                            let payload = random.bytes(size - 14);
                            let addresses = [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
                            let rest = [&[0x08, 0x00][..], &payload].concat();
                            let frame = join(&addresses, &tags_of(config.vlan, pcp), &rest);
                            let from = world.exchange.connections[&config.connection].ports[0];
                            let wanted =
                                oracle::circuit(&world.exchange, from.switch, from.port.raw(), &frame);
                            assert!(wanted.is_some());
                            let delivered = fabric.send(from.switch, from.port.raw(), &frame);
                            check(wanted.as_ref(), &delivered, &|| {
                                format!("{place:?} {one:?} {two:?} {pcp} {size}")
                            });
                            frames += 1;
                        }
                    }
                }
                assert_eq!(
                    fabric.on_trunks > 0,
                    matches!(place, Place::OtherSite(_) | Place::Lag)
                );
            }
        }
    }
    assert!(frames > 7000, "{frames}");
}

#[test]
fn a_whole_port_passes_tags_untouched_and_with_a_tagged_end_untagged_frames_only() {
    let mut world = World::new(2, TrunkKind::Vxlan);
    let account = world.account("a");
    let ports: Vec<_> = [(0, 1), (1, 1), (0, 2), (1, 2)]
        .map(|(switch, port)| world.port(switch, port))
        .to_vec();
    let connections: Vec<_> = ports
        .iter()
        .map(|port| world.connection(account, vec![*port]))
        .collect();
    let transparent = world.service(account, ServiceKind::P2pVc, None);
    world.end(transparent, connections[0], VlanRequest::Port).unwrap();
    world.end(transparent, connections[1], VlanRequest::Port).unwrap();
    let mixed = world.service(account, ServiceKind::P2pVc, None);
    world.end(mixed, connections[2], VlanRequest::Port).unwrap();
    world.end(mixed, connections[3], c_tag(5)).unwrap();
    let mut fabric = Fabric::new(&world.exchange);
    fabric.install(&plan(&world.exchange, &SETTINGS));
    let addresses = [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
    let rest = [&[0x08, 0x00][..], &[0; 46]].concat();
    for tags in [
        vec![],
        vec![(0x8100, 3, 9)],
        vec![(0x88a8, 5, 1), (0x8100, 7, 1)],
        vec![(0x8100, 0, 0)],
    ] {
        let frame = join(&addresses, &tags, &rest);
        let delivered = fabric.send(world.switches[0], 1, &frame);
        assert_eq!(
            delivered
                .iter()
                .map(|out| (out.port, &out.frame))
                .collect::<Vec<_>>(),
            [(1, &frame)],
            "{tags:?}"
        );
        let delivered = fabric.send(world.switches[0], 2, &frame);
        assert_eq!(delivered.len(), usize::from(tags.is_empty()), "{tags:?}");
    }
    // STP, LACP, LLDP and pause frames end at the exchange.
    for last in [0, 1, 2, 3, 0x0e, 0x0f] {
        let frame = join(&[1, 0x80, 0xc2, 0, 0, last, 2, 0, 0, 0, 0, 2], &[], &rest);
        assert_eq!(fabric.send(world.switches[0], 1, &frame), []);
    }
}

/// Returns the value of an environment variable, or `short` without it.
pub(crate) fn number(name: &str, short: u64) -> u64 {
    std::env::var(name)
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(short)
}

#[test]
fn random_exchanges_deliver_what_the_oracle_says_and_nothing_else() {
    let (exchanges, frames) = (number("MILLRACE_EXCHANGES", 12), number("MILLRACE_FRAMES", 250));
    let (mut delivered_frames, mut dropped) = (0u64, 0u64);
    for seed in 0..exchanges {
        let world = random_circuits(seed, None);
        let plan = plan(&world.exchange, &SETTINGS);
        assert_eq!(plan.problems, [], "seed {seed}");
        let mut fabric = Fabric::new(&world.exchange);
        fabric.install(&plan);
        let mut random = Random(seed ^ 0xf00d);
        for _ in 0..frames {
            let (switch, port, frame) = random_frame(&world, &mut random);
            let wanted = oracle::circuit(&world.exchange, switch, port, &frame);
            let delivered = fabric.send(switch, port, &frame);
            check(wanted.as_ref(), &delivered, &|| {
                format!("seed {seed} {switch} {port} {:02x?}", &frame[..22])
            });
            if wanted.is_some() {
                delivered_frames += 1;
            } else {
                dropped += 1;
            }
        }
    }
    println!("{exchanges} exchanges: {delivered_frames} frames delivered, {dropped} dropped, 0 differences");
    assert!(delivered_frames > exchanges * frames / 4 && dropped > exchanges * frames / 20);
}
