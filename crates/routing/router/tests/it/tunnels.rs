//! Packets of tunnels that a VRF carries: out, they are routed as packets of this machine; in, they go to the bridge of the tunnel.

use std::net::Ipv6Addr;
use std::sync::Arc;

use arrayvec::ArrayVec;
use millrace_fib::NextHopKind;
use millrace_pipeline::{DropReason, TunnelKey};
use millrace_router::{
    Acl, AclAction, AclRule, Arrival, Change, Glean, RouteStep, TunnelEnd, TunnelEnds, TunnelPath,
    UNDERLAY_MAC, UnderlayPort, explain,
};
use millrace_types::PortNo;
use millrace_wire::tunnel::TunnelKind;
use millrace_wire::{Builder, Frame};

use crate::harness::{Event, SEED, TestBed, hop, host_mac, interface, link, router_mac};
use millrace_datapath::publish::Replica as _;

const PORT: UnderlayPort = UnderlayPort {
    bridge: 1,
    port: PortNo::from_raw(100),
};

/// Returns a VXLAN datagram for network 42 behind a link header.
fn vxlan(header: Builder<'_>) -> Vec<u8> {
    let mut payload = vec![8, 0, 0, 0];
    payload.extend((42_u32 << 8).to_be_bytes());
    payload.extend([5; 60]);
    header.udp(50_000, 4789).payload(&payload).build()
}

/// Returns a datagram as the bridge encapsulates it.
fn encapsulated(dst: [u8; 4]) -> Vec<u8> {
    vxlan(Builder::ethernet(UNDERLAY_MAC, UNDERLAY_MAC).ipv4([10, 0, 0, 1], dst))
}

fn send(bed: &mut TestBed, frame: &[u8]) -> Vec<Event> {
    let mut burst: ArrayVec<Frame, 64> = ArrayVec::new();
    burst.push(Frame::new(frame));
    let arrival = Arrival::of_vrf(1, 0);
    bed.router
        .forward(&bed.state, arrival, &mut burst, bed.now, &mut bed.out);
    core::mem::take(&mut bed.out.events)
}

#[test]
fn a_tunnels_packet_takes_the_route_of_its_remote_end_with_its_ttl_and_past_access_lists() {
    let mut bed = TestBed::new();
    bed.route("192.0.2.0/24", &[hop(1, 3, Some("10.0.10.3"))]);
    let mut listed = interface(1);
    let deny = AclRule {
        match_: "ip".parse().unwrap(),
        action: AclAction::Deny,
    };
    listed.acl_out = Some(Acl::new(&[deny], 1).into());
    bed.set(listed);
    let frame = encapsulated([192, 0, 2, 9]);
    let mut expected = frame.clone();
    expected[..6].copy_from_slice(&host_mac(1, 3).0);
    expected[6..12].copy_from_slice(&router_mac(1).0);
    expected.splice(12..12, [0x81, 0, 0, 10]);
    assert_eq!(send(&mut bed, &frame), [Event::Sent(1, expected)]);

    // The next hop changes: the next packet takes the new one.
    bed.route("192.0.2.0/24", &[hop(2, 2, Some("10.0.20.2"))]);
    let [Event::Sent(2, sent)] = &send(&mut bed, &frame)[..] else {
        panic!("sent at v20");
    };
    assert_eq!(sent[..6], host_mac(2, 2).0);
    let text = explain(&bed.state, Arrival::of_vrf(1, 0), &frame, SEED, bed.now).to_string();
    assert!(
        text.contains("a packet of this machine, VRF 0") && !text.contains("time to live"),
        "{text}"
    );
}

#[test]
fn a_tunnels_packet_without_route_is_dropped_by_name_and_nobody_is_told() {
    let mut bed = TestBed::new();
    assert_eq!(
        send(&mut bed, &encapsulated([203, 0, 113, 9])),
        [Event::Dropped(DropReason::RouteNone)]
    );
    // To this machine itself: the kernel does not get it either.
    assert_eq!(
        send(&mut bed, &encapsulated([10, 0, 10, 1])),
        [Event::Dropped(DropReason::RouteNoInterface)]
    );
    assert_eq!(
        send(&mut bed, &[0; 20]),
        [Event::Dropped(DropReason::RouteMalformed)]
    );
    // A neighbour of which no MAC address is known is asked for.
    let waits = send(&mut bed, &encapsulated([10, 0, 10, 77]));
    assert!(
        matches!(&waits[..], [Event::Waits(glean, _)] if glean.interface == 1),
        "{waits:?}"
    );
}

#[test]
fn packets_to_the_local_end_go_to_the_bridge_of_the_tunnel_and_others_to_the_kernel() {
    let mut bed = TestBed::new();
    let end = |local: &str, remote: &str| TunnelEnd {
        kind: TunnelKind::Vxlan,
        udp_port: 4789,
        local: local.parse().unwrap(),
        remote: remote.parse().unwrap(),
        key: TunnelKey::Fixed(42),
    };
    let ends = TunnelEnds::new([
        (end("10.0.10.1", "10.0.0.2"), PORT),
        (end("2001:db8:10::1", "2001:db8::2"), PORT),
    ]);
    bed.state.apply(&Change::Tunnels(0, Arc::new(ends)));
    let six = |text: &str| text.parse::<Ipv6Addr>().unwrap();
    let frames = [
        vxlan(link(0).ipv4([10, 0, 0, 2], [10, 0, 10, 1])),
        vxlan(link(0).ipv6(six("2001:db8::2"), six("2001:db8:10::1"))),
        // With a tag, which the bridge of the tunnel does not get.
        vxlan(link(1).ipv4([10, 0, 0, 2], [10, 0, 10, 1])),
    ];
    for frame in frames {
        let tag = if frame[12..14] == [0x81, 0] { 4 } else { 0 };
        let mut expected = frame.clone();
        expected.drain(12..12 + tag);
        expected[..6].copy_from_slice(&UNDERLAY_MAC.0);
        expected[6..12].copy_from_slice(&UNDERLAY_MAC.0);
        assert_eq!(bed.one(&frame), [Event::Decapsulated(PORT, expected)]);
        let explained = explain(&bed.state, Arrival::of_bridge(0), &frame, SEED, bed.now);
        assert!(explained.steps.contains(&RouteStep::Tunnel { port: PORT.port }));
    }
    // Another address of this machine, and another port: the kernel's.
    let other = vxlan(link(0).ipv4([10, 0, 0, 2], [10, 0, 0, 1]));
    assert!(matches!(bed.one(&other)[..], [Event::Punted(0, ..)]));
    let dns = link(0)
        .ipv4([10, 0, 0, 2], [10, 0, 10, 1])
        .udp(4789, 53)
        .payload(&[1; 40]);
    assert!(matches!(bed.one(&dns.build())[..], [Event::Punted(0, ..)]));
    bed.state.apply(&Change::Tunnels(0, Arc::default()));
    let frame = vxlan(link(0).ipv4([10, 0, 0, 2], [10, 0, 10, 1]));
    assert!(matches!(bed.one(&frame)[..], [Event::Punted(0, ..)]));
}

#[test]
fn the_path_of_a_tunnel_has_the_smallest_mtu_of_its_next_hops_that_are_up() {
    let mut bed = TestBed::new();
    let path = |bed: &TestBed, text: &str| bed.state.tunnel_path(0, text.parse().unwrap());
    assert_eq!(path(&bed, "192.0.2.9"), TunnelPath::None);
    let (_, ids) = bed.route(
        "192.0.2.0/24",
        &[hop(1, 3, Some("10.0.10.3")), hop(2, 2, Some("10.0.20.2"))],
    );
    assert_eq!(path(&bed, "192.0.2.9"), TunnelPath::There { mtu: 1400 });
    // A next hop that a tunnel uses is in use, so that the kernel keeps asking for it.
    assert!(ids.iter().all(|id| bed.writer.next_hop(*id).unwrap().take_used()));
    let mut down = interface(1);
    down.is_up = false;
    bed.set(down);
    assert_eq!(path(&bed, "192.0.2.9"), TunnelPath::There { mtu: 1500 });
    let glean = Glean {
        interface: 2,
        neighbour: "10.0.20.77".parse().unwrap(),
    };
    assert_eq!(path(&bed, "10.0.20.77"), TunnelPath::Unresolved(glean));
    assert!(bed.state.is_own_address(0, "10.0.20.1".parse().unwrap()));
    assert!(!bed.state.is_own_address(0, "10.0.20.2".parse().unwrap()));
    let kind = NextHopKind::Blackhole;
    bed.route(
        "198.51.100.0/24",
        &[millrace_fib::NextHopSpec::without_interface(kind)],
    );
    assert_eq!(path(&bed, "198.51.100.1"), TunnelPath::None);
}
