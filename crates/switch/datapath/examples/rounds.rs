//! Forwards bursts between two devices in memory, for a count of the instructions of the packet path:
//!
//! ```text
//! cargo build --release -p millrace-datapath --example rounds
//! valgrind --tool=callgrind --toggle-collect='*counted_round*' target/release/examples/rounds flows
//! ```
//! The sum of callgrind, divided by the number of packets that this program prints, are the instructions of a packet: from the
//! receive queue through the tables to the transmit queue. `port` has one entry that matches the port; `flows` has an entry for
//! each of 256 flows.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a measurement that fails ends with a message"
)]

use std::sync::Arc;

use millrace_datapath::io::{DeviceOptions, DeviceSpec, HeapBackend};
use millrace_datapath::{BridgeSetup, Datapath, Stepper};
use millrace_flow::{Action, Field, Instructions, Match};
use millrace_pipeline::{Control, ControlConfig, FlowMod, FlowModCommand, Port};
use millrace_types::{Mac, PortNo, Priority, TableId, Time};
use millrace_wire::{Builder, Frame};

const BURST: u16 = 32;
const FLOWS: u16 = 256;
const WARM_UP: u64 = 200;
const ROUNDS: u64 = 4_000;

/// A round that callgrind counts.
#[inline(never)]
fn counted_round(stepper: &mut Stepper<Frame>, now: Time) -> usize {
    stepper.forward_round(now)
}

fn frame(flow: u16) -> Vec<u8> {
    Builder::ethernet(Mac([2, 0, 0, 0, 0, 2]), Mac([2, 0, 0, 0, 0, 1]))
        .ipv4([10, 0, 0, 1], [10, 0, 0, flow as u8])
        .udp(1000 + flow, 53)
        .payload(&[0; 18])
        .build()
}

fn match_of(is_by_port: bool, flow: u16) -> Match {
    let by_flow = [
        (Field::EthType, 0x0800),
        (Field::IpProto, 17),
        (Field::UdpSrc, u128::from(1000 + flow)),
    ];
    let by_port = [(Field::InPort, 1)];
    Match::exact(if is_by_port { &by_port } else { &by_flow }).unwrap()
}

fn main() {
    let is_by_port = std::env::args().nth(1).as_deref() == Some("port");
    let port = |raw| PortNo::ordinary(raw).unwrap();
    let backend = Arc::new(HeapBackend::new());
    let (datapath, mut stepper) = Datapath::stepped(Arc::clone(&backend));
    let mut control = Control::new(ControlConfig::default());
    let setup = BridgeSetup {
        forwarding: [control.forwarding(), control.forwarding()],
        counters: vec![control.counters(), control.counters()],
    };
    let mut ops = Vec::new();
    let bridge = stepper.serve(|| {
        let mut bridge = datapath.bridge(setup).unwrap();
        for (raw, name) in [(1, "in"), (2, "out")] {
            control.set_port(Port::new(port(raw)), &mut ops);
            bridge.publish(&mut ops);
            let device = DeviceSpec::Memory(name.to_owned());
            bridge.add_port(port(raw), &device, DeviceOptions::PLAIN).unwrap();
        }
        for flow in 0..if is_by_port { 1 } else { FLOWS } {
            let matching = match_of(is_by_port, flow);
            let mut request = FlowMod::new(FlowModCommand::Add, TableId(0), Priority(1), matching);
            request.instructions = Instructions::apply([Action::output(port(2))]);
            control.flow_mod(request, Time::ZERO, &mut ops).unwrap();
        }
        bridge.publish(&mut ops);
        bridge
    });
    let frames: Vec<Vec<u8>> = (0..FLOWS).map(frame).collect();
    let (input, output) = (backend.memory("in"), backend.memory("out"));
    let mut counted = 0;
    for round in 0..WARM_UP + ROUNDS {
        for position in 0..BURST {
            let flow = (round * u64::from(BURST) + u64::from(position)) % u64::from(FLOWS);
            assert!(input.send(&frames[flow as usize]));
        }
        let now = Time::from_nanos((round + 1) * 10_000);
        match round < WARM_UP {
            true => {
                stepper.forward_round(now);
            }
            false => counted += counted_round(&mut stepper, now),
        }
        while output.receive().is_some() {}
    }
    println!("packets: {counted}");
    drop(stepper);
    drop(bridge);
}
