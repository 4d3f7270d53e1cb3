//! Changes of devices: a bridge hears of those of its own ports at once, and of no others.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use millrace_datapath::io::{DeviceOptions, DeviceSpec, HeapBackend};
use millrace_datapath::{Bridge, BridgeSetup, Datapath, Idle, Spread, Workers};
use millrace_pipeline::{Control, ControlConfig};
use millrace_types::PortNo;

const BOUND: Duration = Duration::from_secs(60);
const NEAR: PortNo = PortNo::from_raw(1);
const FAR: PortNo = PortNo::from_raw(2);
const HOST: PortNo = PortNo::from_raw(3);

fn datapath() -> Datapath<HeapBackend> {
    let workers = Workers {
        cores: vec![None],
        idle: Idle::Adaptive,
        spread: Spread::Auto,
    };
    Datapath::start(Arc::new(HeapBackend::new()), &workers).unwrap()
}

fn bridge(datapath: &Datapath<HeapBackend>) -> Bridge<HeapBackend> {
    let mut control = Control::new(ControlConfig::default());
    let counters = (0..=datapath.workers_len()).map(|_| control.counters()).collect();
    let setup = BridgeSetup {
        forwarding: [control.forwarding(), control.forwarding()],
        counters,
    };
    datapath.bridge(setup).unwrap()
}

/// Waits, as a control thread does, until the bridge hears of a change; returns the ports.
fn next_changes(bridge: &mut Bridge<HeapBackend>) -> BTreeSet<PortNo> {
    let deadline = Instant::now() + BOUND;
    while !bridge.has_changed_ports() {
        assert!(Instant::now() < deadline, "no change within {BOUND:?}");
        std::thread::park_timeout(BOUND);
    }
    bridge.take_changed()
}

#[test]
fn a_device_that_changes_wakes_its_bridge_and_one_that_does_not_costs_nothing() {
    let datapath = datapath();
    let (mut one, mut other) = (bridge(&datapath), bridge(&datapath));
    let patch = DeviceSpec::Link("patch".to_owned());
    let host = DeviceSpec::Memory("host".to_owned());
    one.add_port(NEAR, &patch, DeviceOptions::PLAIN).unwrap();
    one.add_port(HOST, &host, DeviceOptions::PLAIN).unwrap();
    assert_eq!(
        next_changes(&mut one),
        BTreeSet::from([NEAR, HOST]),
        "new devices"
    );
    assert!(!one.has_changed_ports() && one.take_changed().is_empty());
    assert!(!one.device_info(NEAR).unwrap().link_up);

    other.add_port(FAR, &patch, DeviceOptions::PLAIN).unwrap();
    assert_eq!(next_changes(&mut one), BTreeSet::from([NEAR]));
    assert!(one.device_info(NEAR).unwrap().link_up);
    other.remove_port(FAR);
    assert_eq!(next_changes(&mut one), BTreeSet::from([NEAR]));
    assert!(!one.device_info(NEAR).unwrap().link_up);

    let peer = datapath.backend().memory("host");
    let cut = std::thread::spawn(move || peer.set_link(false));
    assert_eq!(next_changes(&mut one), BTreeSet::from([HOST]));
    cut.join().unwrap();
    assert!(!one.device_info(HOST).unwrap().link_up);
    one.set_link(HOST, true);
    assert_eq!(next_changes(&mut one), BTreeSet::from([HOST]), "port_mod");

    one.remove_port(HOST);
    datapath.backend().memory("host").set_link(false);
    assert!(!one.has_changed_ports(), "the port is gone");
}

#[test]
fn a_device_that_reports_nothing_is_looked_at_each_time() {
    let folder = tempfile::tempdir().unwrap();
    let datapath = datapath();
    let mut bridge = bridge(&datapath);
    let silent = DeviceSpec::Pcap {
        rx: None,
        tx: Some(folder.path().join("sent.pcap")),
        repeat: false,
    };
    bridge.add_port(NEAR, &silent, DeviceOptions::PLAIN).unwrap();
    assert_eq!(bridge.take_changed(), BTreeSet::from([NEAR]));
    assert_eq!(bridge.take_changed(), BTreeSet::from([NEAR]));
    bridge.remove_port(NEAR);
    assert!(bridge.take_changed().is_empty());
}
