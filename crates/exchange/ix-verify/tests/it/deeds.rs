//! Predicted ways against deeds: each packet leaves the pipeline of the switch as a way says.

use millrace_ix_model::SwitchId;
use millrace_ix_plan::plan;
use millrace_ix_verify::{Frames, Outcome, Register, ways};
use std::collections::{BTreeMap, BTreeSet};

use crate::fabric::Fabric;
use crate::right::number;
use crate::support::{Packet, SETTINGS, fabric, frames, sent, world};
use crate::world::NOW;

#[test]
fn every_packet_leaves_the_pipeline_as_one_of_its_ways_says() {
    let (mut delivered, mut dropped) = (0, 0);
    for seed in 0..number("MILLRACE_EXCHANGES", 9) {
        let (world, members) = world(seed);
        let plan = plan(&world.exchange, &SETTINGS);
        let register = Register::of(&world.exchange, NOW);
        let model = fabric(&plan, &register);
        let mut switches = Fabric::new(&world.exchange);
        switches.install(&plan);
        let mut of_port = BTreeMap::new();
        for (switch, port, frame) in frames(&world, &members, number("MILLRACE_FRAMES", 150) as usize, seed) {
            switches.now = switches.now + core::time::Duration::from_millis(100);
            let deed: BTreeSet<(u32, u32, Vec<u8>)> = switches
                .send(SwitchId(switch), port, &frame)
                .into_iter()
                .map(|found| (found.switch.0, found.port, found.frame))
                .collect();
            let packet = Packet::of(&frame);
            let all = of_port
                .entry((switch, port))
                .or_insert_with(|| ways(&model, &register, switch, port, Frames::all()));
            let own: Vec<_> = all
                .iter()
                .filter(|way| way.is_real && packet.takes(way))
                .collect();
            assert!(!own.is_empty(), "seed {seed}: no way for {frame:02x?}");
            let predicted: BTreeSet<(u32, u32, Vec<u8>)> = own
                .iter()
                .filter_map(|way| match way.outcome {
                    Outcome::Delivered { switch, port } => Some((switch, port, sent(way, &frame))),
                    _ => None,
                })
                .collect();
            let case = || format!("seed {seed}, port {port} of {switch}: {frame:02x?}: {own:?}");
            // A LAG and several trunks are alternatives: one member carries the frame.
            assert!(deed.is_subset(&predicted), "{}: deed {deed:02x?}", case());
            assert_eq!(
                deed.is_empty(),
                predicted.is_empty(),
                "{}: deed {deed:02x?}",
                case()
            );
            if deed.is_empty() {
                dropped += 1;
            } else {
                delivered += 1;
            }
        }
    }
    assert!(delivered > 300 && dropped > 300, "{delivered} {dropped}");
}
