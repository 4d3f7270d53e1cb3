//! NSH ports: encapsulation, decapsulation, and invalid headers.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::sync::Arc;

use crate::harness::{Bridge, Event};
use millrace_flow::{Action, Field, SetField};
use millrace_pipeline::{DropReason, Logical, NshPath, NshPort, Tunnel, TunnelCounts, TunnelKey, Tunnels};
use millrace_types::{Mac, PortNo, ServicePath};
use millrace_wire::Builder;
use millrace_wire::nsh::{Repr, View};
use millrace_wire::tunnel::TunnelKind;
use proptest::prelude::*;

const OURS: Mac = Mac([2, 0, 0, 0, 1, 1]);
const THEIRS: Mac = Mac([2, 0, 0, 0, 1, 2]);
const CONTEXT: [u8; 16] = *b"sixteen bytes!!!";

fn port(number: u32) -> PortNo {
    PortNo::from_raw(number)
}

fn place(text: &str) -> NshPath {
    NshPath::Fixed(text.parse::<ServicePath>().unwrap())
}

/// Returns an NSH port at `number` over port 1.
fn nsh(number: u32, takes: NshPath, sends: NshPath) -> NshPort {
    NshPort {
        port: port(number),
        underlay: port(1),
        local_mac: OURS,
        remote: THEIRS,
        takes,
        sends,
        ttl: 63,
        context: None,
        mtu: 1500,
    }
}

/// Returns a bridge with these ports, and the counters of each.
fn bridge(ports: &[NshPort]) -> (Bridge, Vec<Arc<TunnelCounts>>) {
    let mut bridge = Bridge::new(6);
    let counts: Vec<Arc<TunnelCounts>> = ports.iter().map(|_| Arc::default()).collect();
    let table = Tunnels::new(ports.iter().cloned().zip(counts.iter().cloned()));
    bridge.change(|control, ops| control.set_tunnels(table, ops));
    (bridge, counts)
}

fn inner(flow: u16) -> Vec<u8> {
    Builder::ethernet(Mac([2, 0, 0, 0, 0, 2]), Mac([2, 0, 0, 0, 0, 1]))
        .ipv4([10, 0, 0, 1], [10, 0, 0, 2])
        .udp(flow, 8)
        .payload(b"inside")
        .build()
}

/// Returns a frame from the other switch with this header.
fn framed(header: &[u8], inside: &[u8]) -> Vec<u8> {
    [&OURS.0[..], &THEIRS.0, &[0x89, 0x4f], header, inside].concat()
}

/// Returns a header of version 0 without metadata, at this path and index.
fn header(ttl: u8, path: u32, index: u8) -> Vec<u8> {
    let repr = Repr {
        ttl,
        next_protocol: 3,
        path: ServicePath::from_header(path << 8 | u32::from(index)),
        context: None,
    };
    repr.to_bytes().to_vec()
}

fn one_out(events: &[Event], to: u32) -> Vec<u8> {
    match events {
        [Event::Out(out, None, bytes)] if *out == to => bytes.clone(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_goes_out_says_where_on_its_path_it_is_and_comes_in_at_the_port_that_takes_it() {
    let mut fixed = nsh(5, NshPath::None, place("42/255"));
    fixed.context = Some(CONTEXT);
    let (mut near, counts) = bridge(&[fixed]);
    near.apply("", &[Action::output(port(5))]);
    let sent = one_out(&near.receive(2, &[inner(1)]), 1);
    assert_eq!(
        (&sent[..6], &sent[6..14]),
        (&THEIRS.0[..], &[2, 0, 0, 0, 1, 1, 0x89, 0x4f][..])
    );
    let view = View::new(&sent[14..]).unwrap();
    assert_eq!((view.path().to_string().as_str(), view.ttl()), ("42/255", 63));
    assert_eq!((view.context(), view.payload()), (&CONTEXT[..], &inner(1)[..]));
    assert_eq!(counts[0].read().tx_bytes, inner(1).len() as u64);

    // At the other switch, path 42/254 belongs to another port.
    let mut take = nsh(5, place("42/255"), NshPath::None);
    let mut other = nsh(6, place("42/254"), NshPath::None);
    (take.local_mac, other.local_mac) = (THEIRS, THEIRS);
    let (mut far, counts) = bridge(&[take, other]);
    far.apply(
        "in_port=5,in_phy_port=1,tunnel_id=0x3e00002aff",
        &[Action::output(port(3))],
    );
    far.apply("in_port=6", &[Action::output(port(4))]);
    assert_eq!(one_out(&far.receive(1, std::slice::from_ref(&sent)), 3), inner(1));
    let mut next = sent;
    next[14 + 7] = 254;
    assert_eq!(one_out(&far.receive(1, &[next]), 4), inner(1));
    assert_eq!((counts[0].read().rx_packets, counts[1].read().rx_packets), (1, 1));
}

#[test]
fn a_forwarder_of_any_path_makes_the_time_to_live_less_and_an_entry_the_index() {
    let (mut bridge, _) = bridge(&[nsh(5, NshPath::Flow, NshPath::Flow)]);
    bridge.apply("in_port=5", &[Action::output(PortNo::IN_PORT)]);
    for (ttl, next) in [(63, 62), (2, 1), (0, 63)] {
        let sent = one_out(&bridge.receive(1, &[framed(&header(ttl, 7, 9), &inner(1))]), 1);
        assert_eq!(
            sent[14..],
            [&header(next, 7, 9)[..], &inner(1)].concat(),
            "ttl {ttl}"
        );
    }
    // A service was applied. A header without time to live gets the one of the port.
    let id = SetField::new(Field::TunnelId, 7 << 8 | 8).unwrap();
    bridge.apply(
        "in_port=5",
        &[Action::SetField(id), Action::output(PortNo::IN_PORT)],
    );
    let sent = one_out(&bridge.receive(1, &[framed(&header(3, 7, 9), &inner(1))]), 1);
    assert_eq!(sent[14..22], header(63, 7, 8));
}

#[test]
fn headers_that_lead_nowhere_are_dropped_by_name() {
    let (mut bridge, _) = bridge(&[nsh(5, place("42/255"), NshPath::None)]);
    bridge.apply("", &[Action::output(port(2))]);
    let good = header(63, 42, 255);
    let with = |at: usize, value: u8| {
        let mut bytes = good.clone();
        bytes[at] = value;
        framed(&bytes, &inner(1))
    };
    for (what, frame, reason) in [
        ("another version", with(0, 0x4f), DropReason::NshMalformed),
        (
            "a message of maintenance",
            with(0, 0x2f),
            DropReason::NshMalformed,
        ),
        ("no metadata type", with(2, 0), DropReason::NshMalformed),
        (
            "fixed metadata that is not there",
            with(2, 1),
            DropReason::NshMalformed,
        ),
        ("a length of one word", with(1, 0xc1), DropReason::NshMalformed),
        (
            "a length beyond the frame",
            with(1, 0xff),
            DropReason::NshMalformed,
        ),
        ("IPv4 inside", with(3, 1), DropReason::NshMalformed),
        (
            "nothing inside",
            framed(&good, &[0; 13]),
            DropReason::NshMalformed,
        ),
        (
            "its time is over",
            framed(&header(1, 42, 255), &inner(1)),
            DropReason::NshTtl,
        ),
        (
            "the index zero",
            framed(&header(63, 42, 0), &inner(1)),
            DropReason::NshIndex,
        ),
        (
            "another index",
            framed(&header(63, 42, 254), &inner(1)),
            DropReason::NshUnknown,
        ),
        (
            "another path",
            framed(&header(63, 43, 255), &inner(1)),
            DropReason::NshUnknown,
        ),
    ] {
        assert_eq!(bridge.receive(1, &[frame]), [Event::Dropped(reason)], "{what}");
    }
    // A packet for another MAC address is handled as other packets are.
    let mut other = framed(&good, &inner(1));
    other[5] = 9;
    assert_eq!(
        one_out(&bridge.receive(1, std::slice::from_ref(&other)), 2),
        other
    );
}

#[test]
fn what_cannot_go_out_is_dropped_by_name() {
    let (mut bridge, _) = bridge(&[
        nsh(4, NshPath::Flow, NshPath::None),
        nsh(5, NshPath::None, NshPath::Flow),
        nsh(6, NshPath::None, place("1/1")),
    ]);
    let long = |size: usize| {
        let mut frame = inner(1);
        frame.resize(size, 0);
        frame
    };
    for (to, id, frame, reason) in [
        (4, 0, inner(1), DropReason::NshIndex),
        (5, 7 << 8, inner(1), DropReason::NshIndex),
        (5, 1 << 38 | 7 << 8 | 1, inner(1), DropReason::TunnelKey),
        (6, 0, long(1493), DropReason::TunnelMtu),
    ] {
        let id = SetField::new(Field::TunnelId, id).unwrap();
        bridge.apply("", &[Action::SetField(id), Action::output(port(to))]);
        assert_eq!(bridge.receive(2, &[frame]), [Event::Dropped(reason)]);
    }
    bridge.apply("", &[Action::output(port(6))]);
    assert_eq!(one_out(&bridge.receive(2, &[long(1492)]), 1).len(), 14 + 1500);
}

#[test]
fn tunnels_and_service_paths_share_an_underlay() {
    let vxlan = Tunnel {
        port: port(6),
        kind: TunnelKind::Vxlan,
        local: [192, 0, 2, 1].into(),
        remote: [192, 0, 2, 2].into(),
        key: TunnelKey::Fixed(7),
        underlay: port(1),
        local_mac: OURS,
        next_hop: Some(THEIRS),
        udp_port: 4789,
        ttl: 64,
        dscp: Some(0),
        checksum: false,
        mtu: 1500,
    };
    let mut bridge = Bridge::new(6);
    let ports = [
        Logical::from(vxlan),
        Logical::from(nsh(5, place("42/255"), NshPath::None)),
    ];
    let table = Tunnels::new(ports.map(|port| (port, Arc::default())));
    bridge.change(|control, ops| control.set_tunnels(table, ops));
    bridge.apply("in_port=5", &[Action::output(port(6))]);
    let sent = one_out(&bridge.receive(1, &[framed(&header(63, 42, 255), &inner(1))]), 1);
    assert_eq!((sent.len(), &sent[50..]), (50 + inner(1).len(), &inner(1)[..]));
}

proptest! {
    #[test]
    fn whatever_comes_behind_the_type_is_taken_out_whole_or_dropped(
        mut bytes in prop::collection::vec(any::<u8>(), 0..96),
        is_plausible: bool,
    ) {
        let (mut bridge, _) = bridge(&[nsh(5, NshPath::Flow, NshPath::None)]);
        bridge.apply("in_port=5", &[Action::output(port(3))]);
        if is_plausible && bytes.len() > 8 {
            let words = bytes[1] & 0x0f;
            bytes[..4].copy_from_slice(&[0x0f, 0xc0 | words, 2, 3]);
        }
        let view = View::new(&bytes);
        let is_taken = view.is_ok_and(|view| {
            !view.is_oam() && view.next_protocol() == 3 && view.ttl() != 1 && view.path().index() != 0
                && view.payload().len() >= 14
        });
        match &bridge.receive(1, &[framed(&bytes, &[])])[..] {
            [Event::Out(3, None, out)] => {
                prop_assert!(is_taken && bytes.ends_with(out) && bytes.len() - out.len() >= 8);
            }
            [Event::Dropped(_)] => prop_assert!(!is_taken),
            other => panic!("{other:?}"),
        }
    }
}
