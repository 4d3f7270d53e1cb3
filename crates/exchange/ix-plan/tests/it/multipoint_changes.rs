//! Changes of multipoint circuits and peering LANs in phases: until the flip each frame leaves where it left before, and from
//! the flip on where it will leave. No frame leaves elsewhere in between.

use core::time::Duration;

use millrace_ix_model::{ConfigId, EndRole, Exchange, Operation, ServiceKind, SwitchId, TrunkKind};
use millrace_ix_plan::{Settings, phases, plan};

use crate::changes::bundles;
use crate::circuits::number;
use crate::fabric::{Delivered, Fabric};
use crate::frames::BROADCAST;
use crate::lan_oracle;
use crate::lan_world::{Member, address, frame, lan, mac, member, multipoint};
use crate::lans::unmatched;
use crate::oracle::{Delivery, join, tags_of};
use crate::world::{NOW, Random, World, c_tag, qinq, s_tag};

const SETTINGS: Settings = Settings {
    now: NOW,
    extensions: false,
};

/// A moment of a change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Moment {
    /// No switch has flipped.
    Before,
    /// Some switches have flipped.
    Between,
    /// All switches have flipped.
    After,
}

/// A frame at the place where it enters.
#[derive(Debug)]
struct Sent {
    from: ConfigId,
    switch: SwitchId,
    port: u32,
    bytes: Vec<u8>,
}

impl Sent {
    /// Returns the deliveries of the frame in an exchange.
    fn wanted(&self, exchange: &Exchange, kind: ServiceKind) -> Vec<Delivery> {
        match kind {
            ServiceKind::ExchangeLan => lan_oracle::lan(exchange, self.switch, self.port, &self.bytes)
                .into_iter()
                .collect(),
            _ => lan_oracle::multipoint(exchange, self.switch, self.port, &self.bytes),
        }
    }

    /// Returns true if a frame left at a place of the end that sent it, and that a change moves. Until all switches have flipped,
    /// the switch of the other place does not know that the sender is the same end.
    fn is_back(&self, [old, new]: [&Exchange; 2], out: &Delivered) -> bool {
        let connection = |side: &Exchange| side.configs.get(&self.from).map(|config| config.connection);
        let is_at = |side: &Exchange| {
            let found = connection(side).and_then(|id| side.connections.get(&id));
            let mut ports = found.into_iter().flat_map(|connection| &connection.ports);
            ports.any(|port| (port.switch, port.port.raw()) == (out.switch, out.port))
        };
        connection(old) != connection(new) && (is_at(old) || is_at(new))
    }

    /// Returns the frames that leave. Storm meters let fifty copied frames pass in a second, so that frames are 100 ms apart.
    fn send(&self, fabric: &mut Fabric) -> Vec<Delivered> {
        fabric.now = fabric.now + Duration::from_millis(100);
        fabric.send(self.switch, self.port, &self.bytes)
    }
}

/// Returns a frame from one of the members, whose end the exchange before or after a change has.
fn random_sent(sides: [&Exchange; 2], members: &[Member], random: &mut Random) -> Option<Sent> {
    let [me, you, third] = [0; 3].map(|_| random.pick(members).clone());
    let ends = sides.map(|side| Some((side, side.configs.get(&me.config)?)));
    let ends: Vec<_> = ends.into_iter().flatten().collect();
    if ends.is_empty() {
        return None;
    }
    let (side, config) = *random.pick(&ends);
    let port = *random.pick(&side.connections[&config.connection].ports);
    let sent = frame(random, &me, &you, &third);
    let bytes = join(
        &sent.addresses(),
        &tags_of(config.vlan, random.below(8) as u8),
        &sent.rest(),
    );
    Some(Sent {
        from: me.config,
        switch: port.switch,
        port: port.port.raw(),
        bytes,
    })
}

/// Checks the frames that left at a moment.
fn check(moment: Moment, before: &[Delivery], after: &[Delivery], delivered: Vec<Delivered>, case: &str) {
    let exact = |wanted: &[Delivery], delivered| {
        let (missing, more) = unmatched(wanted.to_vec(), delivered);
        assert!(
            missing.is_empty() && more.is_empty(),
            "{case}: missing {missing:?}, too many {more:?}"
        );
    };
    match moment {
        Moment::Before => exact(before, delivered),
        Moment::After => exact(after, delivered),
        Moment::Between if before == after => exact(before, delivered),
        Moment::Between => {
            let only_after = after.iter().filter(|delivery| !before.contains(delivery));
            let (_, more) = unmatched(before.iter().chain(only_after).cloned().collect(), delivered);
            assert!(more.is_empty(), "{case}: neither before nor after: {more:?}");
        }
    }
}

/// Carries out a change bundle by bundle, and calls `each` after each of them, and before the first.
fn carry_out(
    fabric: &mut Fabric,
    [old, new]: [&Exchange; 2],
    random: &mut Random,
    mut each: impl FnMut(&mut Fabric, Moment, &str, &mut Random),
) {
    let list = bundles(phases(old, new, &SETTINGS), random);
    let flips = list.iter().filter(|(phase, ..)| *phase == "flip").count();
    let mut flipped = 0;
    each(fabric, Moment::Before, "before", random);
    for (phase, switch, modifications) in list {
        fabric.modify(switch, &modifications);
        flipped += usize::from(phase == "flip");
        let moment = match flipped {
            0 if phase == "stage" => Moment::Before,
            done if done == flips => Moment::After,
            _ => Moment::Between,
        };
        each(fabric, moment, &format!("{phase} {switch}"), random);
    }
    let wanted = plan(new, &SETTINGS);
    for (switch, state) in &wanted.switches {
        assert_eq!(fabric.state(*switch), state);
    }
}

/// Orders a random change. Returns false if the exchange refuses it.
fn change(
    world: &mut World,
    kind: ServiceKind,
    members: &mut Vec<Member>,
    next: &mut u8,
    random: &mut Random,
) -> bool {
    let configs: Vec<ConfigId> = world.exchange.configs.keys().copied().collect();
    if configs.len() < 3 {
        return false;
    }
    let id = *random.pick(&configs);
    let config = world.exchange.configs[&id].clone();
    let own = world.exchange.connections.iter();
    let own: Vec<_> = own
        .filter(|(_, connection)| connection.account == config.account)
        .map(|(id, _)| *id)
        .collect();
    let vid = 70 + random.below(9) as u16;
    let vlan = *random.pick(&[c_tag(vid), s_tag(80 + vid), qinq(90, vid)]);
    let connection = *random.pick(&own);
    match random.below(6) {
        0 | 1 => world
            .apply(Operation::ShutDown {
                config: id,
                shut_down: !config.shut_down,
            })
            .is_ok(),
        2 => world.apply(Operation::Delete { target: id.into() }).is_ok(),
        3 => {
            let role = *random.pick(&[config.role, EndRole::Root]);
            let operation = Operation::ConfigureEnd {
                service: config.service,
                connection,
                vlan,
                capacity_mbps: None,
                role,
                asns: Default::default(),
                external_ref: None,
            };
            let Ok(applied) = world.apply(operation) else {
                return false;
            };
            let config = applied.first().unwrap();
            *next += 1;
            if kind == ServiceKind::ExchangeLan {
                members.push(member(world, config, *next, true));
            } else {
                mac(world, config, address(*next));
                let last = members.last().unwrap().clone();
                members.push(Member {
                    config,
                    mac: address(*next),
                    ..last
                });
            }
            true
        }
        _ => world
            .apply(Operation::MoveEnd {
                config: id,
                connection,
                vlan,
            })
            .is_ok(),
    }
}

#[test]
fn random_changes_of_many_ends_leak_nothing_on_the_way_and_nothing_after_the_flip() {
    let mut steps = 0;
    // In 79, a root to which a leaf sends over a trunk is removed at its own switch first; in 105, the last end of a switch moves away.
    for seed in (0..number("MILLRACE_EXCHANGES", 9)).chain([79, 105]) {
        let kind = [
            ServiceKind::Mp2mpVc,
            ServiceKind::P2mpVc,
            ServiceKind::ExchangeLan,
        ][seed as usize % 3];
        let (mut world, _, mut members) = if kind == ServiceKind::ExchangeLan {
            lan(seed, 6, None, 50)
        } else {
            multipoint(seed, kind)
        };
        let mut random = Random(seed ^ 0xbeef);
        let mut fabric = Fabric::new(&world.exchange);
        fabric.install(&plan(&world.exchange, &SETTINGS));
        let mut next = 150;
        for turn in 0..12 {
            let old = world.exchange.clone();
            if !change(&mut world, kind, &mut members, &mut next, &mut random) {
                world.exchange = old;
                continue;
            }
            let new = world.exchange.clone();
            carry_out(
                &mut fabric,
                [&old, &new],
                &mut random,
                |fabric, moment, step, random| {
                    steps += 1;
                    for _ in 0..12 {
                        let Some(sent) = random_sent([&old, &new], &members, random) else {
                            continue;
                        };
                        let [before, after] = [&old, &new].map(|side| sent.wanted(side, kind));
                        let mut delivered = sent.send(fabric);
                        if moment == Moment::Between {
                            delivered.retain(|out| !sent.is_back([&old, &new], out));
                        }
                        let case = format!("seed {seed}, change {turn}, {kind:?}, {step}: {sent:02x?}");
                        check(moment, &before, &after, delivered, &case);
                    }
                },
            );
        }
    }
    assert!(steps > 200, "{steps}");
}

#[test]
fn an_end_that_is_shut_down_gets_nothing_from_the_other_end_of_its_connection_after_the_flip() {
    let mut world = World::new(1, TrunkKind::Vxlan);
    let account = world.account("a");
    let service = world.service(account, ServiceKind::Mp2mpVc, None);
    let ports = vec![world.port(0, 1)];
    let connection = world.connection(account, ports);
    let ends: Vec<ConfigId> = [(1, c_tag(4)), (2, c_tag(22))]
        .map(|(n, vlan)| {
            let config = world.end(service, connection, vlan).unwrap().first().unwrap();
            mac(&mut world, config, address(n));
            config
        })
        .to_vec();
    let mut fabric = Fabric::new(&world.exchange);
    fabric.install(&plan(&world.exchange, &SETTINGS));
    let old = world.exchange.clone();
    world.shut_down(ends[0]);
    let new = world.exchange.clone();
    let mut moments = Vec::new();
    carry_out(
        &mut fabric,
        [&old, &new],
        &mut Random(1),
        |fabric, moment, step, _| {
            moments.push(moment);
            for dst in [address(1), BROADCAST, [2, 9, 9, 9, 9, 9]] {
                let sent = Sent {
                    from: ends[1],
                    switch: world.switches[0],
                    port: 1,
                    bytes: join(
                        &[dst, address(2)].concat(),
                        &tags_of(new.configs[&ends[1]].vlan, 0),
                        &[&[8, 0][..], &[0; 60]].concat(),
                    ),
                };
                let count = usize::from(moment == Moment::Before);
                assert_eq!(sent.send(fabric).len(), count, "{step}: {dst:02x?}");
            }
        },
    );
    assert!(moments.contains(&Moment::After) && moments.contains(&Moment::Before));
}

#[test]
fn a_leaf_that_sends_to_a_root_on_its_way_in_or_out_never_reaches_another_leaf() {
    for seed in 0..8 {
        let mut world = World::new(2, TrunkKind::Vxlan);
        let account = world.account("a");
        let service = world.service(account, ServiceKind::P2mpVc, None);
        let configure = |world: &mut World, switch, port, role, n| {
            let ports = vec![world.port(switch, port)];
            let connection = world.connection(account, ports);
            let operation = Operation::ConfigureEnd {
                service,
                connection,
                vlan: c_tag(5),
                capacity_mbps: None,
                role,
                asns: Default::default(),
                external_ref: None,
            };
            let config: ConfigId = world.apply(operation).unwrap().first().unwrap();
            mac(world, config, address(n));
            config
        };
        let leaf = configure(&mut world, 0, 1, EndRole::Leaf, 1);
        configure(&mut world, 1, 1, EndRole::Leaf, 2);
        // The other root keeps both switches in the circuit.
        configure(&mut world, 1, 2, EndRole::Root, 3);
        let without = world.exchange.clone();
        configure(&mut world, 1, 3, EndRole::Root, 4);
        let with = world.exchange.clone();
        for [old, new] in [[&with, &without], [&without, &with]] {
            let mut fabric = Fabric::new(old);
            fabric.install(&plan(old, &SETTINGS));
            let mut seen = 0;
            carry_out(
                &mut fabric,
                [old, new],
                &mut Random(seed),
                |fabric, _, step, _| {
                    let sent = Sent {
                        from: leaf,
                        switch: world.switches[0],
                        port: 1,
                        bytes: join(
                            &[address(4), address(1)].concat(),
                            &tags_of(old.configs[&leaf].vlan, 0),
                            &[&[8, 0][..], &[0; 60]].concat(),
                        ),
                    };
                    let delivered = sent.send(fabric);
                    seen += delivered.len();
                    let at_leaf = delivered
                        .iter()
                        .any(|out| out.switch == world.switches[1] && out.port == 1);
                    assert!(!at_leaf, "seed {seed}, {step}: {delivered:?}");
                },
            );
            assert!(seen > 2, "roots get the frames: {seen}");
        }
    }
}
