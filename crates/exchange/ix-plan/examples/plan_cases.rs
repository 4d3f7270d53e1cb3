//! Writes, as JSON, the plans of random exchanges in the syntax of `ovs-ofctl`, and for each frame that enters a
//! switch the frames that our pipeline sends. `tests/interop/test_exchange_plan.py` installs the plans in Open
//! vSwitch and compares the frames.
//!
//! Usage: `plan_cases EXCHANGES FRAMES`

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a tool of tests"
)]
#![allow(
    dead_code,
    reason = "the modules of the tests have parts that this program does not need"
)]

#[path = "../tests/it/fabric.rs"]
mod fabric;
#[path = "../tests/it/frames.rs"]
mod frames;
#[path = "../tests/it/lan_world.rs"]
mod lan_world;
#[path = "../tests/it/oracle.rs"]
mod oracle;
#[path = "../tests/it/world.rs"]
mod world;

use std::collections::BTreeMap;

use millrace_flow::{Action, Bucket};
use millrace_ix_model::{SwitchId, TrunkKind};
use millrace_ix_plan::{Entry, EntryId, GroupKind, RateUnit, Settings, SwitchState, plan};
use millrace_types::PortNo;
use serde_json::{Value, json};

use fabric::{Delivered, Fabric};
use world::{NOW, Random, World};

fn bucket(kind: GroupKind, bucket: &Bucket) -> String {
    let actions: Vec<_> = bucket.actions.iter().map(Action::to_string).collect();
    let watch = match bucket.watch_port {
        PortNo::ANY => String::new(),
        port => format!("watch_port:{},", port.raw()),
    };
    let weight = if kind == GroupKind::Select {
        format!("weight:{},", bucket.weight)
    } else {
        String::new()
    };
    format!(",bucket={weight}{watch}actions={}", actions.join(","))
}

/// Returns the entries of a switch as lines of `ovs-ofctl`: meters, groups, flow entries.
fn lines(state: &SwitchState) -> (Vec<String>, Vec<String>, Vec<String>) {
    let (mut meters, mut groups, mut flows) = (Vec::new(), Vec::new(), Vec::new());
    for (id, entry) in state {
        match (id, entry) {
            (EntryId::Meter(id), Entry::Meter(meter)) => {
                let unit = if meter.unit == RateUnit::Kbps {
                    "kbps"
                } else {
                    "pktps"
                };
                let band = format!("type=drop,rate={},burst_size={}", meter.rate, meter.burst);
                meters.push(format!("meter={id},{unit},burst,band={band}"));
            }
            (EntryId::Group(id), Entry::Group(group)) => {
                let kind = match group.kind {
                    GroupKind::All => "all",
                    GroupKind::Select => "select",
                    GroupKind::Indirect => "indirect",
                    GroupKind::FastFailover => "ff",
                };
                let buckets: String = group.buckets.iter().map(|one| bucket(group.kind, one)).collect();
                groups.push((
                    group.buckets.iter().any(|one| {
                        one.actions
                            .iter()
                            .any(|action| matches!(action, Action::Group(_)))
                    }),
                    format!("group_id={id},type={kind}{buckets}"),
                ));
            }
            (EntryId::Flow(id), Entry::Flow(flow)) => {
                let matching = id.matching.to_match().unwrap();
                let separator = if matching.is_any() { "" } else { "," };
                let cookie = flow.cookie;
                flows.push(format!(
                    "table={},priority={},cookie={cookie}{separator}{matching},actions={}",
                    id.table, id.priority, flow.instructions
                ));
            }
            other => panic!("{other:?}"),
        }
    }
    // A group that forwards to other groups must come after them.
    groups.sort();
    (meters, groups.into_iter().map(|(_, line)| line).collect(), flows)
}

/// Returns true if Open vSwitch cannot carry a frame: it parses two VLAN tags at most, while the exchange adds a
/// tag of its own to the frames of whole ports, and its dummy devices send 1,518 bytes at most.
fn exceeds_open_vswitch(frame: &[u8]) -> bool {
    let (_, tags, _) = oracle::split(frame);
    frame.len() > 1518 || tags.len() > 2 || tags.len() == 2 && tags[0].2 == world::TAGS_OF_WHOLE_PORT[0].2
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns the case of each switch: its entries, and frames in and out.
fn cases(name: &str, world: &World, frames: Vec<(SwitchId, u32, Vec<u8>)>) -> Vec<Value> {
    let plan = plan(
        &world.exchange,
        &Settings {
            now: NOW,
            extensions: false,
        },
    );
    let mut fabric = Fabric::new(&world.exchange);
    fabric.install(&plan);
    let mut steps: BTreeMap<SwitchId, Vec<Value>> = BTreeMap::new();
    for (switch, port, frame) in frames {
        let mut waiting = vec![Delivered { switch, port, frame }];
        let mut chain = Vec::new();
        while let Some(next) = waiting.pop() {
            fabric.now = fabric.now + core::time::Duration::from_millis(100);
            let sent = fabric.raw_step(next.switch, next.port, &next.frame);
            waiting.extend(fabric.across(next.switch, &sent));
            chain.push((next, sent));
        }
        let frames = chain
            .iter()
            .flat_map(|(entered, sent)| sent.iter().map(|(_, frame)| frame).chain([&entered.frame]));
        if frames.into_iter().any(|frame| exceeds_open_vswitch(frame)) {
            continue;
        }
        for (entered, sent) in chain {
            let out: Vec<_> = sent
                .iter()
                .map(|(port, frame)| json!([port, hex(frame)]))
                .collect();
            let step = json!([entered.port, hex(&entered.frame), out]);
            steps.entry(entered.switch).or_default().push(step);
        }
    }
    let lags = |switch: SwitchId| -> Vec<Vec<u32>> {
        let connections = world.exchange.connections.values();
        let here = connections.filter(|connection| connection.ports[0].switch == switch);
        here.map(|connection| connection.ports.iter().map(|port| port.port.raw()).collect())
            .collect()
    };
    let states = plan.switches.iter();
    states
        .map(|(switch, state)| {
            let (meters, groups, flows) = lines(state);
            let ports: Vec<_> = world.exchange.switches[switch]
                .ports
                .iter()
                .map(|port| port.number.raw())
                .collect();
            json!({
                "name": format!("{name} {switch}"), "ports": ports, "lags": lags(*switch),
                "meters": meters, "groups": groups, "flows": flows,
                "frames": steps.remove(switch).unwrap_or_default(),
            })
        })
        .collect()
}

fn main() {
    let mut arguments = std::env::args()
        .skip(1)
        .map(|text| text.parse::<u64>().expect("a number"));
    let (exchanges, frames) = (arguments.next().unwrap_or(2), arguments.next().unwrap_or(60));
    let mut all = Vec::new();
    for seed in 0..exchanges {
        // On a trunk with S-tags the bytes of a frame are all that another switch needs; VXLAN would need a tunnel.
        let world = world::random_circuits(seed, Some(TrunkKind::STag));
        let mut random = Random(seed ^ 0xf00d);
        let sent = (0..frames)
            .map(|_| world::random_frame(&world, &mut random))
            .collect();
        all.extend(cases(&format!("circuits {seed}"), &world, sent));
        let (world, _, members) = lan_world::lan(seed, 8, Some(TrunkKind::STag), 100_000);
        let mut sent = Vec::new();
        for number in 0..frames {
            let [me, you, third] = [0; 3].map(|_| random.pick(&members).clone());
            let config = &world.exchange.configs[&me.config];
            let port = *random.pick(&world.exchange.connections[&config.connection].ports);
            let frame = lan_world::frame(&mut random, &me, &you, &third);
            let tags = oracle::tags_of(config.vlan, random.below(8) as u8);
            // The padding tells frames apart.
            let mut rest = frame.rest();
            rest.extend(random.bytes(8));
            rest.extend(number.to_be_bytes());
            sent.push((
                port.switch,
                port.port.raw(),
                oracle::join(&frame.addresses(), &tags, &rest),
            ));
        }
        all.extend(cases(&format!("lan {seed}"), &world, sent));
    }
    println!("{}", Value::from(all));
}
