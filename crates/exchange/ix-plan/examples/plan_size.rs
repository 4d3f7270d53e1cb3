//! Prints size and time of the plan of a large exchange: `plan_size CIRCUITS`, over two sites.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a tool of measurements")]
#![allow(
    dead_code,
    reason = "the module of the tests has parts that this program does not need"
)]

#[path = "../tests/it/oracle.rs"]
mod oracle;
#[path = "../tests/it/world.rs"]
mod world;

use std::time::Instant;

use millrace_ix_model::{ServiceKind, TrunkKind, VlanRequest};
use millrace_ix_plan::{EntryId, Settings, phases, plan};

use world::{NOW, World, c_tag};

fn main() {
    let circuits = std::env::args()
        .nth(1)
        .and_then(|text| text.parse().ok())
        .unwrap_or(1000u32);
    let mut world = World::new(2, TrunkKind::Vxlan);
    let account = world.account("a");
    let ends = [0, 1].map(|switch| {
        let ports: Vec<_> = (1..=40).map(|port| world.port(switch, port)).collect();
        ports
            .into_iter()
            .map(|port| world.connection(account, vec![port]))
            .collect::<Vec<_>>()
    });
    for number in 0..circuits {
        let service = world.service(account, ServiceKind::P2pVc, None);
        let tag = c_tag(2 + (number / 40 % 4000) as u16);
        for side in &ends {
            world.end(service, side[number as usize % 40], tag).unwrap();
        }
    }
    let settings = Settings {
        now: NOW,
        extensions: false,
    };
    let began = Instant::now();
    let whole = plan(&world.exchange, &settings);
    let planned = began.elapsed();
    let flows = |id: &&EntryId| matches!(id, EntryId::Flow(_));
    let entries: usize = whole
        .switches
        .values()
        .map(|state| state.keys().filter(flows).count())
        .sum();
    let old = world.exchange.clone();
    let (config, found) = old.configs.first_key_value().unwrap();
    let began = Instant::now();
    let vlan: VlanRequest = c_tag(4090);
    world
        .apply(millrace_ix_model::Operation::MoveEnd {
            config: *config,
            connection: found.connection,
            vlan,
        })
        .unwrap();
    let ordered = began.elapsed();
    let began = Instant::now();
    let change = phases(&old, &world.exchange, &settings);
    println!(
        "{circuits} circuits: {entries} flow entries in {planned:?}; one order {ordered:?}, its phases {:?} ({} modifications)",
        began.elapsed(),
        change
            .stage
            .values()
            .chain(change.flip.values())
            .chain(change.clean.values())
            .map(Vec::len)
            .sum::<usize>()
    );
}
