//! Prints the processor time of one change: `changes [SERVICES] [CHANGES] [GROUP]`, 10,000 of each and groups of 20 by default.
//!
//! A core with a database in a file and two switches in memory runs in virtual time. Groups of orders, each for another rate of an
//! end, wait at the same time as they do for the engine's thread; the switches answer after 5 ms. The figure has what an order
//! costs from the model to the last journal record, without HTTP, OpenFlow and subscribers. With `valgrind --tool=callgrind
//! --toggle-collect='*change_rates*'` it is counted in instructions.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    reason = "a measurement fails by panicking"
)]

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write as _;

use millrace_ix_engine::Event;
use millrace_ix_model::{Actor, ConfigId, Operation, SwitchId};
use millrace_ix_service::simulation::ModelSwitch;
use millrace_ix_service::{
    ApplyOptions, Core, FabricRequest, Now, OrderOptions, OrderRequest, Output, Snapshot, text::Document,
};
use millrace_ix_store::{Sqlite, UnixMillis};
use millrace_types::{Duration, Time};
use serde_json::json;

/// The time from a request to the answer of a switch.
const LATENCY: Duration = Duration::from_millis(5);
/// The time between two groups.
const PAUSE: Duration = Duration::from_millis(20);
/// The number of the port of the trunk at both switches.
const TRUNK_PORT: usize = 9_999;

/// Returns an exchange file with two switches, and circuits between members at one and members at the other.
fn document(services: usize) -> Document {
    let half = (services / 20).max(1);
    let mut text = String::new();
    for site in 1..=2 {
        let ports = (1..=half).chain([TRUNK_PORT]);
        let ports: Vec<String> = ports
            .map(|port| format!("{{ number = {port}, speed_mbps = 1000 }}"))
            .collect();
        write!(
            text,
            "[[site]]\nname = \"s{site}\"\n[[switch]]\nname = \"w{site}\"\nsite = \"s{site}\"\ndpid = \"{site:016x}\"\nports = [{}]\n",
            ports.join(", ")
        )
        .unwrap();
    }
    write!(
        text,
        "[[trunk]]\nname = \"north\"\nkind = \"vxlan\"\nends = [\"w1:{TRUNK_PORT}\", \"w2:{TRUNK_PORT}\"]\ncost = 10\n\
         capacity_mbps = 100000\nmtu = 1700\n"
    )
    .unwrap();
    for member in 0..2 * half {
        let (site, port) = (1 + member / half, 1 + member % half);
        write!(
            text,
            "[[account]]\nname = \"M{member}\"\nkind = \"member\"\nasns = [{}]\n[[connection]]\naccount = \"M{member}\"\n\
             name = \"c\"\nkind = \"standalone\"\nports = [\"w{site}:{port}\"]\n",
            64_512 + member
        )
        .unwrap();
    }
    let mut vlans = vec![100; 2 * half];
    for service in 0..services {
        let (here, there) = (service % half, half + (service * 7 + service / half) % half);
        write!(
            text,
            "[[service]]\naccount = \"M{here}\"\nname = \"s{service}\"\nkind = \"p2p_vc\"\npeer = \"M{there}\"\n"
        )
        .unwrap();
        for member in [here, there] {
            let vlan = vlans[member];
            vlans[member] += 1;
            write!(
                text,
                "[[service.end]]\nconnection = [\"M{member}\", \"c\"]\ncapacity_mbps = 1\nvlan = {{ type = \"dot1q\", vlan = {vlan} }}\n"
            )
            .unwrap();
        }
    }
    toml::from_str(&text).unwrap()
}

struct World {
    time: Time,
    core: Core,
    switches: BTreeMap<SwitchId, ModelSwitch>,
    waiting: VecDeque<(Time, FabricRequest)>,
    /// The snapshot that readers have.
    snapshot: Snapshot,
}

impl World {
    fn now(&self) -> Now {
        Now {
            time: self.time,
            wall: UnixMillis(1_700_000_000_000 + self.time.nanos() / 1_000_000),
        }
    }

    /// Does what the engine's thread does after each batch.
    fn publish(&mut self) {
        let outputs = self.core.outputs();
        if !outputs.is_empty() {
            self.snapshot = Snapshot::of(&self.core);
        }
        for output in outputs {
            if let Output::Request(request) = output {
                self.waiting.push_back((self.time + LATENCY, request));
            }
        }
    }

    /// Runs until a time.
    fn run(&mut self, until: Time) {
        loop {
            let answer = self.waiting.front().map(|(at, _)| *at);
            let next = answer.into_iter().chain(self.core.deadline()).min();
            let Some(next) = next.filter(|next| *next <= until) else {
                self.time = until;
                return;
            };
            self.time = self.time.max(next);
            let now = self.now();
            while let Some((at, _)) = self.waiting.front()
                && *at <= self.time
            {
                let (_, request) = self.waiting.pop_front().unwrap();
                let (FabricRequest::Dump { switch, .. }
                | FabricRequest::Commit { switch, .. }
                | FabricRequest::PacketOut { switch, .. }) = &request;
                let answer = self.switches.get_mut(switch).unwrap().answer(request);
                if let Some(event) = answer {
                    self.core.handle(event, now);
                }
            }
            self.core.tick(now);
            self.publish();
        }
    }
}

/// Orders changes in groups, and runs until all are in place.
#[inline(never)]
fn change_rates(world: &mut World, ends: &[ConfigId], changes: usize, group: usize) {
    let mut numbers = 0..changes;
    loop {
        let orders: Vec<_> = numbers.by_ref().take(group).collect();
        if orders.is_empty() {
            break;
        }
        let request = |number: usize| {
            let end = ends[number % ends.len()];
            let rate = 6 + number / ends.len() % 3;
            let operation = json!({"operation": "set_rate", "config": end, "capacity_mbps": rate});
            let operation: Operation = serde_json::from_value(operation).unwrap();
            OrderRequest::of_system(vec![operation])
        };
        let now = world.now();
        for result in world
            .core
            .order_all(orders.into_iter().map(request).collect(), now)
        {
            assert!(result.unwrap().change.is_some());
        }
        world.publish();
        world.run(world.time + PAUSE);
    }
    while world.core.engine().changes().next().is_some() {
        world.run(world.time + PAUSE);
    }
}

/// Returns the processor time that this process has used as a user, in seconds.
fn user_time() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let (_, fields) = stat.rsplit_once(") ").unwrap();
    let ticks: u32 = fields.split(' ').nth(11).unwrap().parse().unwrap();
    // Linux counts in hundredths of a second for programs (USER_HZ).
    f64::from(ticks) / 100.0
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let mut number = |default: usize| {
        arguments
            .next()
            .map_or(default, |text| text.parse().expect("a number"))
    };
    let (services, changes, group) = (number(10_000), number(10_000), number(20));
    let folder = tempfile::tempdir().unwrap();
    let store = Sqlite::open(&folder.path().join("exchange.db")).unwrap();
    let time = Time::from_secs(1);
    let start = Now {
        time,
        wall: UnixMillis(1_700_000_001_000),
    };
    let settings = millrace_ix_engine::Settings::default();
    let mut core = Core::start(Box::new(store), settings, false, start).unwrap();
    let (actor, options) = (Actor::system(), OrderOptions::default());
    core.apply(
        document(services),
        ApplyOptions::default(),
        &actor,
        &options,
        start,
    )
    .unwrap();
    let ids: Vec<SwitchId> = core.exchange().switches.keys().copied().collect();
    let snapshot = Snapshot::of(&core);
    let mut world = World {
        time,
        core,
        switches: ids.iter().map(|id| (*id, ModelSwitch::default())).collect(),
        waiting: VecDeque::new(),
        snapshot,
    };
    for (session, id) in (1..).zip(&ids) {
        world.switches.get_mut(id).unwrap().session = Some(session);
        let now = world.now();
        let switch = id.0;
        world.core.handle(Event::Connected { switch, session }, now);
    }
    world.publish();
    while world.core.engine().changes().next().is_some() {
        world.run(world.time + PAUSE);
    }
    let ends: Vec<ConfigId> = world.core.exchange().configs.keys().copied().collect();
    let began = user_time();
    change_rates(&mut world, &ends, changes, group);
    let took = user_time() - began;
    let count = u32::try_from(changes).unwrap();
    println!(
        "{services} services, {changes} changes in groups of {group}: {:.0} us of processor time each, as a user",
        took * 1e6 / f64::from(count)
    );
    assert_eq!(world.snapshot.exchange.configs.len(), ends.len());
}
