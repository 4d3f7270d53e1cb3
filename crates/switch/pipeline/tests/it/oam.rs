//! Frames of OAM at monitored ports: those of the port's own session go to the control side, others to the tables.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use crate::harness::{Bridge, Event, out};
use crate::tunnels::{bridge, enveloped, tunnel};
use millrace_pipeline::{DropReason, OamPort, OamPorts, Step, TunnelKey, explain};
use millrace_types::{Mac, PortNo};
use millrace_wire::tunnel::TunnelKind;
use millrace_wire::{Builder, EtherType};

const A: Mac = Mac([2, 0, 0, 0, 0, 1]);

/// Returns a continuity check of level 0.
fn check() -> Vec<u8> {
    Builder::ethernet(Mac([1, 0x80, 0xc2, 0, 0, 0x30]), A)
        .ether_type(EtherType(0x8902))
        .payload(&[0, 1, 3, 70])
        .build()
}

fn monitor(bridge: &mut Bridge, port: u32) {
    let port = OamPort {
        port: PortNo::from_raw(port),
        bfd: None,
        ccm_level: Some(0),
        lldp: false,
        bpdu: false,
    };
    bridge.change(|control, ops| control.set_oam(OamPorts::new(vec![port]), ops));
}

#[test]
fn oam_of_the_networks_in_a_tunnel_is_not_that_of_the_tunnel() {
    // Keys, and the keys whose frames belong to the session of the tunnel.
    for (key, keys) in [(TunnelKey::Flow, vec![0]), (TunnelKey::Fixed(77), vec![77])] {
        let (mut bridge, _) = bridge(&[tunnel(6, TunnelKind::Vxlan, key, 2, 1)]);
        monitor(&mut bridge, 6);
        bridge.apply("in_port=6", &[out(3)]);
        for vni in [0, 77] {
            let expected = match (keys.contains(&vni), key) {
                (true, _) => Event::Oam(6, check()),
                (false, TunnelKey::Flow) => Event::Out(3, None, check()),
                (false, _) => Event::Dropped(DropReason::TunnelUnknown),
            };
            let events = bridge.one(1, &enveloped(TunnelKind::Vxlan, vni, &check()));
            assert_eq!(events, [expected], "{key:?} {vni}");
        }
    }
}

#[test]
fn a_controller_may_send_frames_of_oam_through_the_tables() {
    let mut bridge = Bridge::new(3);
    monitor(&mut bridge, 3);
    bridge.apply("in_port=3", &[out(2)]);
    assert_eq!(bridge.one(3, &check()), [Event::Oam(3, check())]);
    let events = bridge.packet_out(PortNo::from_raw(3), &[out(PortNo::TABLE.raw())], &check());
    assert_eq!(events, [Event::Out(2, None, check())]);
}

#[test]
fn an_explanation_says_that_a_session_takes_the_frame() {
    let mut bridge = Bridge::new(3);
    monitor(&mut bridge, 3);
    let port = PortNo::from_raw(3);
    let steps = explain(&bridge.active, port, &check(), bridge.now).steps;
    assert_eq!(steps, [Step::Oam(port)]);
}
