//! The dry run against the deed: the frames that a change hits are those that leave otherwise.

use millrace_ix_model::{FilterAction, FilterMatch, Operation, SwitchId};
use millrace_ix_plan::plan;
use millrace_ix_verify::{Reader, Register, effects, follow};
use std::collections::BTreeSet;

use crate::fabric::Fabric;
use crate::right::number;
use crate::support::{Packet, SETTINGS, fabric, filter, frames, world};
use crate::world::{NOW, Random, c_tag};

#[test]
fn the_predicted_packets_are_those_that_a_change_hits() {
    let wanted = number("MILLRACE_CHANGES", 9);
    let (mut changes, mut hit, mut missed) = (0, 0, 0);
    for seed in 0.. {
        if changes == wanted {
            break;
        }
        assert!(
            seed < 4 * wanted,
            "{changes} of {seed} random changes are accepted"
        );
        let (mut world, members) = world(seed);
        let mut random = Random(seed ^ 0xc4a6);
        let before = world.exchange.clone();
        let ends: Vec<_> = before.configs.keys().copied().collect();
        let end = *random.pick(&ends);
        let done = match random.below(3) {
            0 => world.apply(Operation::ShutDown {
                config: end,
                shut_down: true,
            }),
            1 => world.apply(filter(
                before.configs[&end].account,
                FilterMatch::to("192.0.2.0/29".parse().unwrap()),
                BTreeSet::new(),
                FilterAction::Drop,
            )),
            _ => world.end(
                before.configs[&end].service,
                before.configs[&end].connection,
                c_tag(77),
            ),
        };
        if done.is_err() {
            continue;
        }
        changes += 1;
        let after = world.exchange.clone();
        let plans = [&before, &after].map(|exchange| plan(exchange, &SETTINGS));
        let registers = [&before, &after].map(|exchange| Register::of(exchange, NOW));
        let models = [0, 1].map(|at| fabric(&plans[at], &registers[at]));
        let all: BTreeSet<_> = before
            .configs
            .keys()
            .chain(after.configs.keys())
            .copied()
            .collect();
        let was = follow(&models[0], (&registers[0], &registers[1]), &all, &Reader::Staff);
        let is = follow(&models[1], (&registers[1], &registers[0]), &all, &Reader::Staff);
        let told = effects(&was, &is, &Reader::Staff);
        let mut switches = [&before, &after].map(Fabric::new);
        for at in [0, 1] {
            switches[at].install(&plans[at]);
        }
        for (switch, port, frame) in frames(&world, &members, 200, seed) {
            let [was, is] = &mut switches;
            let was = was.send(SwitchId(switch), port, &frame);
            let is = is.send(SwitchId(switch), port, &frame);
            let packet = Packet::of(&frame);
            let is_told = told.iter().any(|effect| {
                let ports = &after.connections[&after
                    .configs
                    .get(&effect.from)
                    .or(before.configs.get(&effect.from))
                    .unwrap()
                    .connection]
                    .ports;
                ports
                    .iter()
                    .any(|own| (own.switch.0, own.port.raw()) == (switch, port))
                    && packet.is_within(&effect.frames)
            });
            assert!(
                was == is || is_told,
                "seed {seed}, port {port} of {switch}: {frame:02x?}: {was:02x?} {is:02x?} is not told: {}",
                texts(&told)
            );
            if was != is {
                hit += 1;
            } else if is_told {
                missed += 1;
            }
        }
    }
    println!("{changes} changes: {hit} packets were hit, all told; {missed} more were told");
    assert!(hit > 50, "{hit}");
}

fn texts(told: &[millrace_ix_verify::Effect]) -> String {
    told.iter().map(|effect| format!("\n{}", effect.text)).collect()
}
