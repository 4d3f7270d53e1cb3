//! Prints the times of a full verification and of the verification of one change: `times [SERVICES]`, 10,000 by default.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    dead_code,
    reason = "a measurement fails by panicking; the worlds are those of the planner's tests"
)]

use std::time::Instant;

use millrace_flow::Match;
use millrace_ix_model::{ServiceKind, TrunkKind};
use millrace_ix_plan::{Entry, EntryId, GroupKind, Settings, SwitchState, plan};
use millrace_ix_verify::{Checker, Content, Fabric, FlowEntry, GroupEntry, GroupType, Register};

#[path = "../../ix-plan/tests/it/oracle.rs"]
mod oracle;
#[path = "../../ix-plan/tests/it/world.rs"]
mod world;

use world::{NOW, World, c_tag};

fn content(state: &SwitchState) -> Content {
    let mut content = Content::default();
    for (id, entry) in state {
        match (id, entry) {
            (EntryId::Flow(id), Entry::Flow(flow)) => {
                let matching: Match = id.matching.to_match().unwrap();
                content.add_flow(FlowEntry {
                    table: id.table,
                    priority: id.priority,
                    matching,
                    cookie: flow.cookie.0,
                    instructions: flow.instructions.clone(),
                });
            }
            (EntryId::Group(number), Entry::Group(group)) => {
                let kind = match group.kind {
                    GroupKind::All => GroupType::All,
                    GroupKind::Select => GroupType::Select,
                    GroupKind::Indirect => GroupType::Indirect,
                    GroupKind::FastFailover => GroupType::FastFailover,
                };
                let buckets = group.buckets.clone();
                content.set_group(*number, Some(GroupEntry { kind, buckets }));
            }
            _ => {}
        }
    }
    content
}

fn main() {
    let services: usize = std::env::args()
        .nth(1)
        .map_or(10_000, |text| text.parse().expect("a number of services"));
    let mut world = World::new(2, TrunkKind::Vxlan);
    let mut connections = [Vec::new(), Vec::new()];
    for port in 1..=40 {
        let account = world.account(&format!("member {port}"));
        for (at, connections) in connections.iter_mut().enumerate() {
            let ports = vec![world.port(at, port)];
            connections.push((account, world.connection(account, ports)));
        }
    }
    let mut last = None;
    for number in 0..services {
        let (account, here) = connections[0][number % 40];
        let (_, there) = connections[1][number % 40];
        let service = world.service(account, ServiceKind::P2pVc, None);
        for (connection, vlan) in [(here, number / 40), (there, number / 40 + 1000)] {
            let end = world.end(service, connection, c_tag(2 + vlan as u16));
            end.expect("each end has a VLAN of its own");
        }
        last = Some(service);
    }
    let settings = Settings {
        now: NOW,
        extensions: false,
    };
    let started = Instant::now();
    let plan = plan(&world.exchange, &settings);
    println!("plan of {services} services: {:.2?}", started.elapsed());
    let started = Instant::now();
    let register = Register::of(&world.exchange, NOW);
    let mut fabric = Fabric {
        switches: plan
            .switches
            .iter()
            .map(|(id, state)| (id.0, content(state)))
            .collect(),
        ..Fabric::default()
    };
    register.wire(&mut fabric);
    let entries: usize = fabric.switches.values().map(Content::len).sum();
    assert!(entries > services, "each service has entries at both sites");
    println!(
        "register, and mirror of {entries} entries: {:.2?}",
        started.elapsed()
    );
    let started = Instant::now();
    let mut checker = Checker::new(&fabric, &register);
    checker.all();
    let ways = checker.ways;
    let found = checker.into_findings();
    println!(
        "full verification, {ways} ways, {} findings: {:.2?}",
        found.len(),
        started.elapsed()
    );
    for finding in found.iter().take(3) {
        println!("  {finding}");
    }
    let last = last.expect("a service");
    let mut times: Vec<_> = (0..100)
        .map(|_| {
            let started = Instant::now();
            let mut checker = Checker::new(&fabric, &register);
            checker.service(last, None);
            for (switch, port) in register.ports_of(&register.ends_of(last).collect()) {
                checker.outside(switch, port);
            }
            assert!(checker.into_findings().is_empty());
            started.elapsed()
        })
        .collect();
    times.sort_unstable();
    println!(
        "verification of one circuit, of 100: median {:.2?}, 95th percentile {:.2?}",
        times[50], times[94]
    );
}
