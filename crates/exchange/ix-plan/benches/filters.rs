//! Benchmark of the cost of filters in a switch. In one run, a worker forwards packets in turn without rules,
//! with 10,000 rules, and with 10,000 rules while 1,000 rules change each second. The run fails if a
//! forwarding rate is below 80 % of the rate without rules.
//!
//! ```text
//! cargo bench -p millrace-ix-plan --bench filters
//! ```

#![allow(clippy::print_stdout, reason = "the result of a benchmark is printed")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a benchmark fails by panicking"
)]
#![allow(
    dead_code,
    reason = "the module of the tests has parts that this program does not need"
)]

#[path = "../tests/it/oracle.rs"]
mod oracle;
#[path = "../tests/it/world.rs"]
mod world;

use std::collections::{BTreeSet, VecDeque};
use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use millrace_datapath::io::{DeviceOptions, DeviceSpec, HeapBackend};
use millrace_datapath::{Bridge, BridgeSetup, Datapath, Stepper};
use millrace_ix_model::{
    AccountId, Exchange, FilterAction, FilterId, FilterMatch, FilterOrigin, FilterState, Operation, Ports,
    Prefix, ServiceKind, TrunkKind, VlanRequest,
};
use millrace_ix_plan::{Entry, EntryId, Modification, RateUnit, Settings, phases};
use millrace_pipeline::{
    Band, BandKind, Control, ControlConfig, DropReason, FlowMod, FlowModCommand, Meter, MeterFlags, MeterMod,
    Op, Port,
};
use millrace_types::{Mac, PortNo, Time};
use millrace_wire::{Builder, Frame};
use pcap_file::DataLink;
use pcap_file::pcap::{PcapHeader, PcapPacket, PcapWriter};

use world::{NOW, World};

const ACCOUNTS: u32 = 20;
const RULES: u32 = 10_000;
/// The ports of a circuit whose ends have no filters.
const OTHER: [u32; 2] = [100, 101];
/// The packets of one measurement. A measurement takes less than a millisecond, so that one change before
/// each measurement makes at least 1,000 changes a second.
const PACKETS: usize = 4_000;
/// The number of measurements of each kind.
const ROUNDS: usize = 1_500;
/// The flows of a capture file.
const FLOWS: u16 = 256;
const SETTINGS: Settings = Settings {
    now: NOW,
    extensions: false,
};

/// Returns rule `number` of an account: hosts, with and without ports, and networks of sources.
fn rule(account: AccountId, at: u32, number: u32) -> Operation {
    let host = Prefix::host([10, at as u8, (number / 250 % 250) as u8, (number % 250) as u8].into());
    let mut matching = FilterMatch::to(host);
    let port = |port| {
        vec![Ports {
            first: port,
            last: port,
        }]
    };
    match number % 4 {
        0 => {}
        1 => (matching.protocol, matching.source_ports) = (Some(17), port(123)),
        2 => (matching.protocol, matching.source_ports) = (Some(17), port(53)),
        _ => {
            matching.source = Some(Prefix::host([198, 51, 100, 0].into()).truncated(24));
            (matching.protocol, matching.destination_ports) = (Some(6), port(80));
        }
    }
    Operation::CreateFilter {
        account: Some(account),
        matching,
        alternatives: Vec::new(),
        peers: BTreeSet::new(),
        action: FilterAction::Drop,
        origin: FilterOrigin::Flowspec,
        rank: 300,
        order: String::new(),
        state: FilterState::Active,
        valid_until: None,
        exempt_until: None,
        comment: None,
        external_ref: None,
    }
}

/// Writes a capture file with packets of 64 bytes of many flows to one network.
fn capture(path: &Path, to: [u8; 3]) {
    let header = PcapHeader {
        datalink: DataLink::ETHERNET,
        ..PcapHeader::default()
    };
    let mut writer = PcapWriter::with_header(File::create(path).unwrap(), header).unwrap();
    for flow in 0..FLOWS {
        let frame = Builder::ethernet(Mac([2, 0, 0, 0, 0, 2]), Mac([2, 0, 0, 0, 0, 1]))
            .ipv4([192, 0, 2, 1], [to[0], to[1], to[2], flow as u8])
            .udp(1000 + flow, 5000)
            .payload(&[0; 18])
            .build();
        let packet = PcapPacket::new(Duration::ZERO, frame.len() as u32, &frame);
        writer.write_packet(&packet).unwrap();
    }
}

/// Returns the request for a modification of a flow entry.
fn flow_mod(id: &millrace_ix_plan::FlowId, to: Option<&Entry>) -> FlowMod {
    let matching = id.matching.to_match().unwrap();
    let mut request = FlowMod::new(FlowModCommand::Add, id.table, id.priority, matching);
    match to {
        Some(Entry::Flow(flow)) => {
            (request.instructions, request.cookie) = (flow.instructions.clone(), flow.cookie);
        }
        None => request.command = FlowModCommand::DeleteStrict,
        Some(other) => panic!("{id:?} is no {other:?}"),
    }
    request
}

/// A switch of the exchange, run by this program.
struct Switch {
    // The stepper is dropped first, because a bridge waits for its workers when it is dropped.
    stepper: Stepper<Frame>,
    bridge: Bridge<HeapBackend>,
    control: Control,
    ops: Vec<Op>,
    _datapath: Datapath<HeapBackend>,
    now: u64,
}

impl Switch {
    /// Returns a switch that receives a capture file again and again at one port, and sends at another.
    fn new(file: &Path, [from, to]: [u32; 2]) -> Switch {
        let backend = Arc::new(HeapBackend::new());
        let (datapath, mut stepper) = Datapath::stepped(backend);
        let mut control = Control::new(ControlConfig {
            tables: 8,
            ..ControlConfig::default()
        });
        let setup = BridgeSetup {
            forwarding: [control.forwarding(), control.forwarding()],
            counters: vec![control.counters(), control.counters()],
        };
        let mut ops = Vec::new();
        let bridge = stepper.serve(|| {
            let mut bridge = datapath.bridge(setup).unwrap();
            let devices = [(Some(file.to_owned()), None), (None, Some("/dev/null".into()))];
            for (raw, (rx, tx)) in [from, to].into_iter().zip(devices) {
                let port = PortNo::ordinary(raw).unwrap();
                let device = DeviceSpec::Pcap {
                    repeat: rx.is_some(),
                    rx,
                    tx,
                };
                control.set_port(Port::new(port), &mut ops);
                bridge.publish(&mut ops);
                bridge.add_port(port, &device, DeviceOptions::PLAIN).unwrap();
            }
            bridge
        });
        Switch {
            stepper,
            bridge,
            control,
            ops,
            _datapath: datapath,
            now: 1,
        }
    }

    /// Applies the modifications from one exchange to another. Returns the time to compute them.
    fn change(&mut self, old: &Exchange, new: &Exchange) -> Duration {
        let began = Instant::now();
        let phases = phases(old, new, &SETTINGS);
        let took = began.elapsed();
        let now = Time::from_nanos(self.now);
        let all = [phases.stage, phases.flip, phases.clean];
        for Modification { key: id, to, .. } in all
            .into_iter()
            .flatten()
            .flat_map(|(_, modifications)| modifications)
        {
            match (&id, to) {
                (EntryId::Flow(id), to) => {
                    let request = flow_mod(id, to.as_ref());
                    self.control.flow_mod(request, now, &mut self.ops).unwrap();
                }
                (EntryId::Meter(meter), Some(Entry::Meter(body))) => {
                    let unit = match body.unit {
                        RateUnit::Kbps => MeterFlags::KBPS,
                        RateUnit::Pktps => MeterFlags::PKTPS,
                    };
                    let meter = Meter {
                        id: *meter,
                        flags: MeterFlags(unit.0 | MeterFlags::BURST.0),
                        bands: Box::new([Band {
                            rate: body.rate,
                            burst_size: body.burst,
                            kind: BandKind::Drop,
                        }]),
                    };
                    self.control
                        .meter_mod(&MeterMod::Add(meter), now, &mut self.ops)
                        .unwrap();
                }
                // One switch has no trunks, and therefore no groups. The removed rules have no meters.
                (EntryId::Meter(_) | EntryId::Group(_), _) => {}
            }
        }
        let Switch {
            stepper, bridge, ops, ..
        } = self;
        stepper.serve(|| bridge.publish(ops));
        took
    }

    /// Forwards packets, and returns the mean time for one packet in nanoseconds.
    fn forward(&mut self) -> f64 {
        let begin = Instant::now();
        let mut done = 0;
        while done < PACKETS {
            self.now += 100_000;
            done += self.stepper.forward_round(Time::from_nanos(self.now));
        }
        begin.elapsed().as_nanos() as f64 / done as f64
    }

    /// Returns the number of packets that the switch has dropped in its tables.
    fn dropped(&self) -> u64 {
        let reasons = [DropReason::NoOutput, DropReason::TableMiss, DropReason::Meter];
        reasons.map(|reason| self.control.drops(reason)).iter().sum()
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Returns the exchange with its circuits, and the accounts with filters.
fn exchange() -> (World, Vec<AccountId>) {
    let mut world = World::new(1, TrunkKind::Vxlan);
    let circuit = |world: &mut World, name: &str, ports: [u32; 2]| {
        let account = world.account(name);
        let service = world.service(account, ServiceKind::P2pVc, None);
        for port in ports.map(|port| world.port(0, port)) {
            let connection = world.connection(account, vec![port]);
            world.end(service, connection, VlanRequest::Port).unwrap();
        }
        account
    };
    circuit(&mut world, "other", OTHER);
    let accounts = (1..=ACCOUNTS).map(|at| circuit(&mut world, &format!("victim {at}"), [20 + at, at]));
    let accounts = accounts.collect();
    (world, accounts)
}

/// Measures one stream of packets, and prints the result. Returns the lowest ratio to the rate without rules.
fn measure(name: &str, ports: [u32; 2], to: [u8; 3]) -> f64 {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("in.pcap");
    capture(&file, to);
    let (mut world, accounts) = exchange();
    let without = world.exchange.clone();
    let mut rules = VecDeque::new();
    for number in 0..RULES {
        let at = number % ACCOUNTS;
        let filter: FilterId = world.create(rule(accounts[at as usize], at + 1, number / ACCOUNTS));
        rules.push_back((filter, at));
    }
    let [mut none, mut still, mut changing] = [0; 3].map(|_| Switch::new(&file, ports));
    none.change(&Exchange::default(), &without);
    for switch in [&mut still, &mut changing] {
        switch.change(&Exchange::default(), &world.exchange);
    }
    let (mut times, mut plans) = ([Vec::new(), Vec::new(), Vec::new()], Vec::new());
    let mut next = RULES / ACCOUNTS;
    for round in 0..=ROUNDS {
        let old = world.exchange.clone();
        let (filter, at) = rules.pop_front().unwrap();
        world.apply(Operation::DeleteFilter { filter }).unwrap();
        next += u32::from(at == 0);
        let filter: FilterId = world.create(rule(accounts[at as usize], at + 1, next));
        rules.push_back((filter, at));
        plans.push(changing.change(&old, &world.exchange).as_nanos() as f64 / 1000.0);
        let order: [usize; 3] = [[0, 1, 2], [1, 2, 0], [2, 0, 1]][round % 3];
        for index in order {
            let switch = [&mut none, &mut still, &mut changing][index].forward();
            // The first round warms up.
            if round > 0 {
                times[index].push(switch);
            }
        }
    }
    let drops = [&none, &still, &changing].map(Switch::dropped);
    assert_eq!(drops, [0; 3], "{name}: packets that no rule matches were dropped");
    let [none, still, changing] = times.map(median);
    println!(
        "{name}: {none:.1} ns a packet without rules, {still:.1} ns with {RULES}, {changing:.1} ns while a rule is replaced every \
         {:.2} ms; rates {:.3} and {:.3} of that without rules; {:.0} us to plan a change (medians of {ROUNDS})",
        changing * PACKETS as f64 / 1e6,
        none / still,
        none / changing,
        median(plans),
    );
    f64::min(none / still, none / changing)
}

fn main() {
    // `cargo test --benches` only builds the benchmark.
    if !std::env::args().any(|argument| argument == "--bench") {
        return;
    }
    let other = measure("traffic of others", OTHER, [203, 0, 113]);
    // The packets are compared with 500 rules of the destination's account, and match none of them.
    let victim = measure(
        "other traffic of an account with 500 rules",
        [21, 1],
        [10, 1, 255],
    );
    assert!(
        other >= 0.8 && victim >= 0.8,
        "the forwarding rate is below 80 % of that without rules"
    );
}
