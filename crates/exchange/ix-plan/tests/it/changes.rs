//! Changes in phases: no frame is lost, copied or leaked between any two steps.

use millrace_ix_model::{Operation, ServiceKind, SwitchId, TrunkKind};
use millrace_ix_plan::{Modification, Phases, Settings, phases, plan};

use crate::circuits::{check, number};
use crate::fabric::{Delivered, Fabric};
use crate::oracle::{self, join, tags_of};
use crate::world::{NOW, Random, World, c_tag, qinq, random_circuits, s_tag};

const SETTINGS: Settings = Settings {
    now: NOW,
    extensions: false,
};

/// Returns the bundles of a change, one for each phase and switch, in an order that `random` chooses within each phase.
pub(crate) fn bundles(
    phases: Phases,
    random: &mut Random,
) -> Vec<(&'static str, SwitchId, Vec<Modification>)> {
    let mut list = Vec::new();
    for (name, phase) in [
        ("stage", phases.stage),
        ("flip", phases.flip),
        ("clean", phases.clean),
    ] {
        let mut switches: Vec<_> = phase.into_iter().collect();
        while !switches.is_empty() {
            let (switch, modifications) = switches.swap_remove(random.below(switches.len() as u64) as usize);
            list.push((name, switch, modifications));
        }
    }
    list
}

#[test]
fn a_moved_end_loses_no_frame_of_the_other_direction_and_of_other_services() {
    for kind in [TrunkKind::Vxlan, TrunkKind::STag] {
        let mut world = World::new(2, kind);
        let account = world.account("a");
        let ports = [world.port(0, 3), world.port(1, 9), world.port(0, 4)];
        let [a, b, c] = ports.map(|port| world.connection(account, vec![port]));
        let service = world.service(account, ServiceKind::P2pVc, None);
        world.end(service, a, c_tag(100)).unwrap();
        world.end(service, b, s_tag(7)).unwrap();
        let old = world.exchange.clone();
        let (config, _) = old
            .configs
            .iter()
            .find(|(_, config)| config.connection == a)
            .unwrap();
        world
            .apply(Operation::MoveEnd {
                config: *config,
                connection: c,
                vlan: qinq(9, 8),
            })
            .unwrap();
        let new = world.exchange.clone();
        let mut fabric = Fabric::new(&old);
        fabric.install(&plan(&old, &SETTINGS));
        let from_b = |random: &mut Random| {
            let end = old
                .configs
                .values()
                .find(|config| config.connection == b)
                .unwrap();
            let rest = [&[0x08, 0x00][..], &random.bytes(50)].concat();
            join(
                &[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2],
                &tags_of(end.vlan, 5),
                &rest,
            )
        };
        let mut random = Random(1);
        for (phase, switch, modifications) in bundles(phases(&old, &new, &SETTINGS), &mut random) {
            // These frames are between the switches while a bundle is applied.
            let frame = from_b(&mut random);
            let (on_the_way, _) = fabric.step(world.switches[1], 9, &frame);
            assert_eq!(on_the_way.len(), 1);
            fabric.modify(switch, &modifications);
            let places =
                [&old, &new].map(|side| oracle::circuit(side, world.switches[1], 9, &frame).unwrap());
            let arrives = |out: &[Delivered]| {
                let right = places.iter().any(|place| matches!(out, [one] if one.frame == place.frame && place.ports.contains(&one.port)));
                assert!(right, "{phase} {switch}: {out:?}");
            };
            let (between, out) = fabric.step(on_the_way[0].switch, on_the_way[0].port, &on_the_way[0].frame);
            assert!(between.is_empty());
            if phase != "clean" {
                arrives(&out);
            }
            arrives(&fabric.send(world.switches[1], 9, &frame));
        }
        for switch in &world.switches {
            assert_eq!(fabric.state(*switch), &plan(&new, &SETTINGS).switches[switch]);
        }
    }
}

#[test]
fn random_changes_end_in_the_plan_and_leak_nothing_on_the_way() {
    let mut steps = 0;
    for seed in 0..number("MILLRACE_EXCHANGES", 8) {
        let mut world = random_circuits(seed, None);
        let mut random = Random(seed ^ 0xbeef);
        let mut fabric = Fabric::new(&world.exchange);
        fabric.install(&plan(&world.exchange, &SETTINGS));
        for _ in 0..12 {
            let old = world.exchange.clone();
            let configs: Vec<_> = old
                .configs
                .iter()
                .map(|(id, config)| (*id, config.clone()))
                .collect();
            let Some((id, config)) = (!configs.is_empty()).then(|| random.pick(&configs).clone()) else {
                break;
            };
            let of_account: Vec<_> = old
                .connections
                .iter()
                .filter(|(_, connection)| connection.account == config.account)
                .map(|(id, _)| *id)
                .collect();
            let tags = [
                c_tag(70 + random.below(9) as u16),
                s_tag(80),
                qinq(90, 5),
                config.vlan.into(),
            ];
            let operation = match random.below(5) {
                0 => Operation::ShutDown {
                    config: id,
                    shut_down: !config.shut_down,
                },
                1 => Operation::SetRate {
                    config: id,
                    capacity_mbps: Some(1 + random.below(1000) as u32),
                },
                2 => Operation::Delete { target: id.into() },
                _ => Operation::MoveEnd {
                    config: id,
                    connection: *random.pick(&of_account),
                    vlan: *random.pick(&tags),
                },
            };
            if world.apply(operation).is_err() {
                continue;
            }
            let new = world.exchange.clone();
            for (phase, switch, modifications) in bundles(phases(&old, &new, &SETTINGS), &mut random) {
                fabric.modify(switch, &modifications);
                steps += 1;
                for (_, other) in configs.iter().take(12) {
                    let from = old.connections[&other.connection].ports[0];
                    let rest = [&[0x08, 0x00][..], &random.bytes(46)].concat();
                    let frame = join(
                        &[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2],
                        &tags_of(other.vlan, 3),
                        &rest,
                    );
                    let before = oracle::circuit(&old, from.switch, from.port.raw(), &frame);
                    let after = oracle::circuit(&new, from.switch, from.port.raw(), &frame);
                    let delivered = fabric.send(from.switch, from.port.raw(), &frame);
                    if before == after {
                        // The change does not concern this frame: the exchange delivers it at every moment,
                        // as before.
                        let case = || format!("seed {seed} {phase} {switch} {other:?}");
                        check(before.as_ref(), &delivered, &case);
                    } else {
                        assert!(delivered.len() <= 1, "a copy: {delivered:?}");
                        let fits = |wanted: &Option<oracle::Delivery>, out: &Delivered| {
                            wanted.as_ref().is_some_and(|wanted| {
                                wanted.switch == out.switch
                                    && wanted.ports.contains(&out.port)
                                    && wanted.frame == out.frame
                            })
                        };
                        let is_known = delivered
                            .iter()
                            .all(|out| fits(&before, out) || fits(&after, out));
                        assert!(
                            is_known,
                            "seed {seed} {phase} {switch}: {delivered:?}, neither {before:?} nor {after:?}"
                        );
                    }
                }
            }
            let wanted = plan(&new, &SETTINGS);
            for switch in &world.switches {
                assert_eq!(fabric.state(*switch), &wanted.switches[switch]);
            }
        }
    }
    assert!(steps > 50, "{steps}");
}
