//! The cost of packet samples. A worker forwards the packets of a repeated capture file, alternately with and
//! without sampling in one run. The ratio of the two times is the result; a single time says nothing about
//! other machines.
//!
//! ```text
//! cargo bench -p millrace-datapath --bench sampling
//! ```

#![allow(clippy::print_stdout, reason = "the result of a benchmark is printed")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a benchmark fails by panicking"
)]

use std::fs::File;
use std::sync::Arc;
use std::time::{Duration, Instant};

use millrace_datapath::io::{DeviceOptions, DeviceSpec, HeapBackend};
use millrace_datapath::{Bridge, BridgeSetup, Datapath, SamplingPlan, Stepper};
use millrace_flow::{Action, Field, Instructions, Match};
use millrace_pipeline::{Control, ControlConfig, FlowMod, FlowModCommand, Port};
use millrace_types::{Mac, PortNo, Priority, TableId, Time};
use millrace_wire::{Builder, Frame};
use pcap_file::DataLink;
use pcap_file::pcap::{PcapHeader, PcapPacket, PcapWriter};

/// Packets of one measurement, which takes some milliseconds, so that other processes interrupt few
/// measurements.
const PACKETS: usize = 20_000;
/// Measurements with sampling, and as many without.
const PAIRS: usize = 2_000;
/// The flows of the capture file.
const FLOWS: u16 = 256;

fn port(raw: u32) -> PortNo {
    PortNo::ordinary(raw).unwrap()
}

/// Writes a capture file with packets of 64 bytes of many flows.
fn capture(path: &std::path::Path) {
    let header = PcapHeader {
        datalink: DataLink::ETHERNET,
        ..PcapHeader::default()
    };
    let mut writer = PcapWriter::with_header(File::create(path).unwrap(), header).unwrap();
    for flow in 0..FLOWS {
        let frame = Builder::ethernet(Mac([2, 0, 0, 0, 0, 2]), Mac([2, 0, 0, 0, 0, 1]))
            .ipv4([10, 0, 0, 1], [10, 0, (flow >> 8) as u8, flow as u8])
            .udp(1000 + flow, 53)
            .payload(&[0; 18])
            .build();
        let packet = PcapPacket::new(Duration::ZERO, frame.len() as u32, &frame);
        writer.write_packet(&packet).unwrap();
    }
}

/// Forwards packets, and returns the time for each packet in nanoseconds.
fn forward(stepper: &mut Stepper<Frame>, bridge: &Bridge<HeapBackend>, now: &mut u64) -> f64 {
    let begin = Instant::now();
    let mut done = 0;
    while done < PACKETS {
        *now += 1_000;
        done += stepper.forward_round(Time::from_nanos(*now));
    }
    let spent = begin.elapsed().as_nanos() as f64 / done as f64;
    // The work of the control side is not measured, because it has its own core.
    while bridge.next_sample().is_some() {}
    spent
}

/// Returns the lower quartile of the times, because interruptions lengthen the higher ones.
fn quartile(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 4]
}

/// Prints the times with and without sampling, and their ratio, for flow entries with the match `matching`.
fn cost(name: &str, matching: &dyn Fn(u16) -> Match, entries: u16) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("in.pcap");
    capture(&file);
    let backend = Arc::new(HeapBackend::new());
    let (datapath, mut stepper) = Datapath::stepped(Arc::clone(&backend));
    let mut control = Control::new(ControlConfig::default());
    let setup = BridgeSetup {
        forwarding: [control.forwarding(), control.forwarding()],
        counters: vec![control.counters(), control.counters()],
    };
    let mut ops = Vec::new();
    let mut bridge = stepper.serve(|| {
        let mut bridge = datapath.bridge(setup).unwrap();
        let input = DeviceSpec::Pcap {
            rx: Some(file.clone()),
            tx: None,
            repeat: true,
        };
        let output = DeviceSpec::Pcap {
            rx: None,
            tx: Some("/dev/null".into()),
            repeat: false,
        };
        for (raw, device) in [(1, input), (2, output)] {
            control.set_port(Port::new(port(raw)), &mut ops);
            bridge.publish(&mut ops);
            bridge.add_port(port(raw), &device, DeviceOptions::PLAIN).unwrap();
        }
        for entry in 0..entries {
            let mut request = FlowMod::new(FlowModCommand::Add, TableId(0), Priority(1), matching(entry));
            request.instructions = Instructions::apply([Action::output(port(2))]);
            control.flow_mod(request, Time::ZERO, &mut ops).unwrap();
        }
        bridge.publish(&mut ops);
        bridge
    });
    let plan = SamplingPlan {
        header_size: 128,
        rates: vec![(port(1), 1000)],
        discards_per_second: 0,
        seed: 1,
    };
    let mut now = 1;
    let (mut with, mut without) = (Vec::new(), Vec::new());
    for pair in 0..=PAIRS {
        // The order alternates, so that a drift of the clock rate does not favour one side.
        for is_sampled in [pair % 2 == 0, pair % 2 == 1] {
            stepper.serve(|| bridge.set_sampling(is_sampled.then_some(&plan)));
            let spent = forward(&mut stepper, &bridge, &mut now);
            // The first pair warms up.
            match (pair, is_sampled) {
                (0, _) => {}
                (_, true) => with.push(spent),
                (_, false) => without.push(spent),
            }
        }
    }
    let (with, without) = (quartile(with), quartile(without));
    println!(
        "{name}: {without:.1} ns a packet without samples, {with:.1} ns with 1:1,000, lower quartiles of {PAIRS} measurements \
         each; ratio {:.4}",
        with / without
    );
    drop(stepper);
}

fn main() {
    // `cargo test --benches` only builds the benchmark.
    if !std::env::args().any(|argument| argument == "--bench") {
        return;
    }
    // Every packet matches by its port alone: the shortest path through the tables.
    cost("by port", &|_| Match::exact(&[(Field::InPort, 1)]).unwrap(), 1);
    // Each flow has an entry of its own.
    let by_flow = |flow: u16| {
        let fields = [
            (Field::EthType, 0x0800),
            (Field::IpProto, 17),
            (Field::UdpSrc, u128::from(1000 + flow)),
        ];
        Match::exact(&fields).unwrap()
    };
    cost("by flow", &by_flow, FLOWS);
}
