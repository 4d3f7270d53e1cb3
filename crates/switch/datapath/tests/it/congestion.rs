//! Full devices and inboxes of a worker that is run step by step: which packets wait, and which are dropped and counted.

use std::sync::Arc;

use millrace_datapath::io::{DeviceOptions, DeviceSpec, HeapBackend, MemoryPeer};
use millrace_datapath::{Bridge, BridgeSetup, Datapath, Stepper};
use millrace_flow::Action;
use millrace_pipeline::{Control, ControlConfig, DropReason, Op, Port};
use millrace_types::{PortNo, Time};
use millrace_wire::Frame;

/// A bridge with ports 1 and 2.
struct TestBed {
    // Dropped first: a bridge that is dropped waits for its workers.
    stepper: Stepper<Frame>,
    bridge: Bridge<HeapBackend>,
    control: Control,
    backend: Arc<HeapBackend>,
    _datapath: Datapath<HeapBackend>,
}

fn port(raw: u32) -> PortNo {
    PortNo::ordinary(raw).unwrap()
}

impl TestBed {
    fn new() -> TestBed {
        let backend = Arc::new(HeapBackend::new());
        let (datapath, mut stepper) = Datapath::stepped(Arc::clone(&backend));
        let mut control = Control::new(ControlConfig::default());
        let setup = BridgeSetup {
            forwarding: [control.forwarding(), control.forwarding()],
            counters: vec![control.counters(), control.counters()],
        };
        let mut ops: Vec<Op> = Vec::new();
        let bridge = stepper.serve(|| {
            let mut bridge = datapath.bridge(setup).unwrap();
            for raw in 1..=2 {
                control.set_port(Port::new(port(raw)), &mut ops);
                bridge.publish(&mut ops);
                let device = DeviceSpec::Memory(format!("m{raw}"));
                bridge.add_port(port(raw), &device, DeviceOptions::PLAIN).unwrap();
            }
            bridge
        });
        TestBed {
            stepper,
            bridge,
            control,
            backend,
            _datapath: datapath,
        }
    }

    fn peer(&self, raw: u32) -> MemoryPeer<Frame> {
        self.backend.memory(&format!("m{raw}"))
    }

    fn step(&mut self) {
        self.stepper.forward_round(Time::from_nanos(1));
    }
}

#[test]
fn a_packet_out_that_finds_the_inbox_full_counts_as_dropped_by_its_port() {
    let mut testbed = TestBed::new();
    let actions = [Action::output(port(2))];
    let dropped = |testbed: &TestBed| testbed.bridge.port_stats(port(2)).unwrap().tx_dropped;
    let mut sent = 0;
    while dropped(&testbed) == 0 && sent < 10_000 {
        testbed
            .bridge
            .packet_out(PortNo::CONTROLLER, &actions, &[7; 60])
            .unwrap();
        sent += 1;
        assert_eq!(
            dropped(&testbed),
            testbed.control.drops(DropReason::TransmitFull)
        );
    }
    assert_eq!(dropped(&testbed), 1);
    testbed.step();
    let peer = testbed.peer(2);
    assert_eq!(core::iter::from_fn(|| peer.receive()).count(), sent - 1);
}
