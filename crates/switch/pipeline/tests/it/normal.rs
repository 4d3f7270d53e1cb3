//! The reserved port NORMAL: a learning bridge with VLANs.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::sync::Arc;

use crate::harness::{Bridge, Event, frame, ports, sent};
use millrace_flow::Action;
use millrace_pipeline::{
    DropReason, FdbKey, Learn, NormalIngress, NormalSettings, Port, PortConfig, PortState, ServicePort,
    Standalone, VlanMode, explain,
};
use millrace_types::{Mac, PortNo, Vid};
use millrace_wire::EtherType;

const TCP: &str = "tcp,nw_src=10.0.0.1,nw_dst=10.0.0.2,tp_src=1000,tp_dst=80";

/// Sends a frame of a host that is not known yet, and lets the bridge learn the host. Returns the output ports of
/// the frame.
fn learn(bridge: &mut Bridge, port: u32, frame: &[u8]) -> Vec<u32> {
    let events = bridge.one(port, frame);
    let Event::Learn(learn) = events[0] else {
        panic!("a host to learn");
    };
    let now = bridge.now;
    bridge.change(|control, ops| control.learn(learn, now, ops));
    ports(&events)
}

#[test]
fn normal_learns_floods_and_then_forwards_to_one_port() {
    let mut bridge = Bridge::new(3);
    bridge.apply("", &[Action::output(PortNo::NORMAL)]);
    let from_a = frame("arp,dl_src=02:00:00:00:00:0a,dl_dst=ff:ff:ff:ff:ff:ff");
    let many = bridge.receive(1, &vec![from_a.clone(); 9]);
    let learned = many.iter().filter(|event| matches!(event, Event::Learn(_)));
    assert_eq!(learned.count(), 1, "a burst from one host reports it once");
    let to_a = frame("tcp,dl_src=02:00:00:00:00:0b,dl_dst=02:00:00:00:00:0a");
    assert_eq!(learn(&mut bridge, 1, &from_a), [2, 3]);
    assert!(
        bridge
            .one(1, &from_a)
            .iter()
            .all(|event| !matches!(event, Event::Learn(_)))
    );
    assert_eq!(ports(&bridge.one(2, &to_a)), [1]);
    assert_eq!(
        bridge.one(1, &to_a).last(),
        Some(&Event::Dropped(DropReason::NormalSamePort))
    );
    let bpdu = frame("dl_type=0x1234,dl_dst=01:80:c2:00:00:00");
    assert_eq!(bridge.one(1, &bpdu), [Event::Dropped(DropReason::NormalReserved)]);
}

#[test]
fn normal_keeps_vlans_apart_and_tags_as_the_ports_want() {
    let mut bridge = Bridge::new(0);
    let vid = |raw| Vid::new(raw).unwrap();
    for (number, vlan) in [
        (1, VlanMode::Access(vid(10))),
        (2, VlanMode::Access(vid(10))),
        (3, VlanMode::Access(vid(20))),
        (4, VlanMode::default()),
        (
            5,
            VlanMode::Trunk {
                native: Some(vid(10)),
                allowed: Some(Arc::new([vid(10)].into_iter().collect())),
            },
        ),
    ] {
        let port = Port {
            vlan,
            ..Port::new(PortNo::from_raw(number))
        };
        bridge.change(|control, ops| control.set_port(port, ops));
    }
    bridge.apply("", &[Action::output(PortNo::NORMAL)]);
    let plain = frame("arp,dl_dst=ff:ff:ff:ff:ff:ff");
    let tagged = [&plain[..12], &[0x81, 0, 0, 10], &plain[12..]].concat();
    let untagged_out = sent(&bridge.one(1, &plain));
    assert_eq!(
        untagged_out,
        [(2, plain.clone()), (4, tagged.clone()), (5, plain.clone())]
    );
    let tagged_in = sent(&bridge.one(4, &tagged));
    assert_eq!(
        tagged_in,
        [(1, plain.clone()), (2, plain.clone()), (5, plain.clone())]
    );
    assert_eq!(bridge.one(1, &tagged), [Event::Dropped(DropReason::NormalVlan)]);
    // A service tag (0x88a8) belongs to its VLAN, too, and keeps its type where it stays.
    let service = [&plain[..12], &[0x88, 0xa8, 0, 10], &plain[12..]].concat();
    assert_eq!(
        sent(&bridge.one(4, &service)),
        [(1, plain.clone()), (2, plain.clone()), (5, plain.clone())]
    );
    assert_eq!(bridge.one(1, &service), [Event::Dropped(DropReason::NormalVlan)]);
    let other = [&plain[..12], &[0x88, 0xa8, 0, 20], &plain[12..]].concat();
    assert_eq!(sent(&bridge.one(4, &other)), [(3, plain.clone())]);
    assert_eq!(
        bridge.one(5, &other),
        [Event::Dropped(DropReason::NormalVlan)],
        "as with Open vSwitch"
    );
}

#[test]
fn normal_forgets_addresses_of_ports_whose_link_goes_down_or_whose_vlans_change() {
    let mut bridge = Bridge::new(0);
    let port = |number, vid| Port {
        vlan: VlanMode::Access(Vid::new(vid).unwrap()),
        ..Port::new(PortNo::from_raw(number))
    };
    for number in 1..4 {
        bridge.change(|control, ops| control.set_port(port(number, 10), ops));
    }
    bridge.apply("", &[Action::output(PortNo::NORMAL)]);
    let from_host = frame("arp,dl_src=02:00:00:00:00:22,dl_dst=ff:ff:ff:ff:ff:ff");
    let to_host = frame("arp,dl_src=02:00:00:00:00:11,dl_dst=02:00:00:00:00:22");
    learn(&mut bridge, 2, &from_host);
    assert_eq!(ports(&bridge.one(1, &to_host)), [2]);
    // A port_mod in between changes no link, and the address stays.
    let down = PortConfig::NO_PACKET_IN;
    bridge.change(|control, ops| {
        control
            .port_mod(PortNo::from_raw(2), down, down, ops)
            .map(drop)
            .unwrap();
    });
    assert_eq!(ports(&bridge.one(1, &to_host)), [2]);
    // The host may now be behind another port, so the bridge floods.
    let link_down = Port {
        state: PortState::LINK_DOWN,
        ..port(2, 10)
    };
    bridge.change(|control, ops| control.set_port(link_down, ops));
    assert_eq!(ports(&bridge.one(1, &to_host)), [3]);
    bridge.change(|control, ops| control.set_port(port(2, 10), ops));
    learn(&mut bridge, 2, &from_host);
    assert_eq!(ports(&bridge.one(1, &to_host)), [2]);
    // A frame of VLAN 10 does not leave in VLAN 20.
    bridge.change(|control, ops| control.set_port(port(2, 20), ops));
    assert_eq!(ports(&bridge.one(1, &to_host)), [3]);
}

#[test]
fn a_standalone_bridge_forwards_what_matches_nothing() {
    let mut bridge = Bridge::new(2);
    bridge.apply("udp", &[]);
    bridge.change(|control, ops| control.set_standalone(Standalone::Misses, ops));
    assert_eq!(ports(&bridge.one(1, &frame(TCP))), [2]);
    assert_eq!(
        bridge.one(1, &frame("udp")),
        [Event::Dropped(DropReason::NoOutput)]
    );
}

#[test]
fn a_bridge_that_lost_its_controller_forwards_all_packets_and_its_entries_wait() {
    let mut bridge = Bridge::new(3);
    bridge.apply("", &[Action::output(PortNo::CONTROLLER)]);
    bridge.apply("udp", &[]);
    bridge.change(|control, ops| control.set_standalone(Standalone::All, ops));
    let from_host = frame("udp,dl_src=02:00:00:00:00:22,dl_dst=ff:ff:ff:ff:ff:ff");
    let to_host = frame("tcp,dl_src=02:00:00:00:00:11,dl_dst=02:00:00:00:00:22");
    assert_eq!(learn(&mut bridge, 2, &from_host), [1, 3], "no entry drops it");
    let many = bridge.receive(1, &vec![to_host.clone(); 5]);
    assert_eq!(
        ports(&many),
        [2; 5],
        "learned, and nothing goes to the controller"
    );
    bridge.change(|control, ops| control.set_standalone(Standalone::Off, ops));
    assert_eq!(
        bridge.one(2, &from_host),
        [Event::Dropped(DropReason::NoOutput)],
        "the entries are in effect again"
    );
}

#[test]
fn a_static_address_stays_at_its_port_whoever_sends_from_it() {
    let mut bridge = Bridge::new(3);
    bridge.apply("", &[Action::output(PortNo::NORMAL)]);
    let key = FdbKey {
        vid: Vid::default(),
        mac: Mac([2, 0, 0, 0, 0, 0x0a]),
    };
    let now = bridge.now;
    bridge.change(|control, ops| control.set_static_fdb(key, PortNo::from_raw(3), now, ops));
    let from_it = frame("arp,dl_src=02:00:00:00:00:0a,dl_dst=ff:ff:ff:ff:ff:ff");
    let events = bridge.one(1, &from_it);
    assert!(!events.iter().any(|event| matches!(event, Event::Learn(_))));
    let to_it = frame("tcp,dl_src=02:00:00:00:00:0b,dl_dst=02:00:00:00:00:0a");
    assert_eq!(ports(&bridge.one(2, &to_it)), [3]);
}

#[test]
fn packets_of_a_logical_port_are_forwarded_without_tables_and_only_floods_are_learned() {
    let mut bridge = Bridge::new(0);
    let vid = |raw| Vid::new(raw).unwrap();
    let allowed = || Some(Arc::new([vid(0), vid(10), vid(20)].into_iter().collect()));
    for (number, vlan) in [
        (1, VlanMode::Access(vid(10))),
        (2, VlanMode::Access(vid(20))),
        (3, VlanMode::default()),
        (
            9,
            VlanMode::Trunk {
                native: None,
                allowed: allowed(),
            },
        ),
    ] {
        let port = Port {
            vlan,
            ..Port::new(PortNo::from_raw(number))
        };
        bridge.change(|control, ops| control.set_port(port, ops));
    }
    let now = bridge.now;
    let host = Mac([2, 0, 0, 0, 0, 0x0a]);
    for (vid, port) in [(10, 1), (20, 2)] {
        let learn = Learn {
            vid: Vid::new(vid).unwrap(),
            mac: host,
            port: PortNo::from_raw(port),
        };
        bridge.change(|control, ops| control.learn(learn, now, ops));
    }
    let plain = frame("tcp,dl_src=02:00:00:00:00:0b,dl_dst=02:00:00:00:00:0a");
    let tagged = |vid| [&plain[..12], &[0x81, 0, 0, vid], &plain[12..]].concat();
    let mut to_all = tagged(20);
    to_all[..6].fill(0xff);
    let mut untagged_to_all = plain.clone();
    untagged_to_all[..6].fill(0xff);
    let known = [tagged(10), tagged(10), tagged(20), tagged(10)];
    assert!(
        bridge
            .forward(9, &known)
            .iter()
            .all(|event| matches!(event, Event::Out(..)))
    );
    let events = bridge.forward(9, &[&known[..], &[to_all.clone(), tagged(30)]].concat());
    let mut expected = vec![
        (1, plain.clone()),
        (1, plain.clone()),
        (2, plain.clone()),
        (1, plain.clone()),
    ];
    expected.extend([(2, untagged_to_all), (3, to_all)]);
    let mut seen = sent(&events);
    seen.sort();
    expected.sort();
    assert_eq!(seen, expected);
    assert!(events.contains(&Event::Dropped(DropReason::NormalVlan)));
    let learned = events.iter().filter(|event| matches!(event, Event::Learn(_)));
    assert_eq!(
        learned.count(),
        1,
        "the source of the flood, as a virtual router's address is"
    );
}

#[test]
fn ports_and_vlans_with_a_normal_pipeline_have_no_flow_tables() {
    let mut bridge = Bridge::new(3);
    bridge.apply("", &[]);
    let plain = frame("arp,dl_src=02:00:00:00:00:0a,dl_dst=ff:ff:ff:ff:ff:ff");
    let tagged = |vid| [&plain[..12], &[0x81, 0, 0, vid], &plain[12..]].concat();
    assert_eq!(ports(&bridge.one(1, &plain)), [0_u32; 0]);
    let vid = Vid::new(10).unwrap();
    let set =
        |bridge: &mut Bridge, normal| bridge.change(|control, ops| control.set_normal_ingress(normal, ops));
    set(&mut bridge, NormalIngress::new([PortNo::from_raw(1)], [vid]));
    assert_eq!(ports(&bridge.one(1, &plain)), [2, 3]);
    let mixed = bridge.receive(2, &[plain.clone(), tagged(10), tagged(11), tagged(10)]);
    assert_eq!(sent(&mixed), [1, 1, 3, 3].map(|port| (port, tagged(10))));
    let drops = mixed
        .iter()
        .filter(|event| matches!(event, Event::Dropped(DropReason::NoOutput)));
    assert_eq!(drops.count(), 2, "the tables drop the others");
    let text = explain(&bridge.active, PortNo::from_raw(1), &plain, bridge.now).to_string();
    assert!(text.contains("pipeline = \"normal\""), "{text}");
    set(&mut bridge, NormalIngress::default());
    assert_eq!(ports(&bridge.one(1, &plain)), [0_u32; 0]);
}

/// NORMAL remembers hosts until the end of a burst: hosts whose addresses share their last byte, unknown hosts, groups, and hosts
/// behind the ingress port go where they go in bursts of their own, in the same order at each port.
#[test]
fn a_burst_to_many_hosts_goes_where_its_packets_go_alone() {
    let bridge = || {
        let mut bridge = Bridge::new(4);
        bridge.change(|control, ops| control.set_standalone(Standalone::All, ops));
        for host in 1..=20u8 {
            for block in 0..3u8 {
                let mac = Mac([2, 0, 0, 0, block, host]);
                let port = PortNo::from_raw(1 + u32::from(host + block) % 4);
                let learn = Learn {
                    vid: Vid::default(),
                    mac,
                    port,
                };
                let now = bridge.now;
                bridge.change(|control, ops| control.learn(learn, now, ops));
            }
        }
        bridge
    };
    let mut state = 3u64;
    let mut random = |below: u64| {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        (state >> 33) % below
    };
    let frames: Vec<Vec<u8>> = (0..60)
        .map(|_| {
            // Block 3 and hosts beyond 20 are unknown; each seventh frame is for a group.
            let first = if random(7) == 0 { "01" } else { "02" };
            let (block, host, sender) = (random(4), 1 + random(22), random(3));
            frame(&format!(
                "ip,dl_src=02:00:00:00:09:{sender:02x},dl_dst={first}:00:00:00:{block:02x}:{host:02x}"
            ))
        })
        .collect();
    let at_once = sent(&bridge().receive(1, &frames));
    let mut alone = bridge();
    let one_by_one: Vec<(u32, Vec<u8>)> = frames
        .iter()
        .flat_map(|frame| sent(&alone.receive(1, std::slice::from_ref(frame))))
        .collect();
    let of_port = |sent: &[(u32, Vec<u8>)], port: u32| -> Vec<Vec<u8>> {
        sent.iter()
            .filter(|(at, _)| *at == port)
            .map(|(_, bytes)| bytes.clone())
            .collect()
    };
    for port in 1..=4 {
        assert_eq!(of_port(&at_once, port), of_port(&one_by_one, port), "port {port}");
    }
    assert!((2..=4).all(|port| of_port(&at_once, port).len() > 10));
}

#[test]
fn normal_keeps_the_tag_of_a_customer_inside_and_carries_only_the_customers_vlans_of_a_port() {
    let mut bridge = Bridge::new(0);
    let vid = |raw| Vid::new(raw).unwrap();
    let customer = |vids: Option<u16>, tag_type| {
        VlanMode::Tunnel(Arc::new(ServicePort {
            service: vid(200),
            tag_type,
            customer: vids.map(|raw| [vid(raw)].into_iter().collect()),
        }))
    };
    for (number, vlan) in [
        (1, customer(None, EtherType::QINQ)),
        (2, customer(Some(30), EtherType::VLAN)),
        (3, VlanMode::Access(vid(200))),
        (4, VlanMode::default()),
        (
            5,
            VlanMode::NativeTagged {
                native: vid(200),
                allowed: None,
            },
        ),
    ] {
        let port = Port {
            vlan,
            ..Port::new(PortNo::from_raw(number))
        };
        bridge.change(|control, ops| control.set_port(port, ops));
    }
    bridge.apply("", &[Action::output(PortNo::NORMAL)]);
    let plain = frame("arp,dl_src=02:00:00:00:00:11,dl_dst=ff:ff:ff:ff:ff:ff");
    let with = |tag: [u8; 4], inner: &[u8]| [&inner[..12], &tag[..], &inner[12..]].concat();
    let (c30, c20) = (with([0x81, 0, 0, 30], &plain), with([0x81, 0, 0, 20], &plain));
    let (s30, s20) = (with([0x88, 0xa8, 0, 200], &c30), with([0x88, 0xa8, 0, 200], &c20));
    let q30 = with([0x81, 0, 0, 200], &c30);
    assert_eq!(
        sent(&bridge.one(1, &c30)),
        [(2, c30.clone()), (4, s30.clone()), (5, s30.clone())]
    );
    assert_eq!(sent(&bridge.one(1, &c20)), [(4, s20.clone()), (5, s20.clone())]);
    assert_eq!(
        sent(&bridge.one(2, &c30)),
        [(1, c30.clone()), (4, q30.clone()), (5, q30)]
    );
    for refused in [&plain, &c20] {
        assert_eq!(bridge.one(2, refused), [Event::Dropped(DropReason::NormalVlan)]);
    }
    // The tag of the service VLAN goes, and the port looks at the one inside.
    let (plain_out, s20_out) = (sent(&bridge.one(5, &plain)), sent(&bridge.one(4, &s20)));
    let s200 = with([0x81, 0, 0, 200], &plain);
    assert_eq!(plain_out, [(1, plain.clone()), (3, plain.clone()), (4, s200)]);
    assert_eq!(s20_out, [(1, c20.clone()), (3, c20.clone()), (5, s20)]);
    // A known destination is found in the service VLAN; a port that does not carry the customer's VLAN does not get the packet.
    let of_host = with(
        [0x81, 0, 0, 30],
        &frame("arp,dl_src=02:00:00:00:00:22,dl_dst=ff:ff:ff:ff:ff:ff"),
    );
    learn(&mut bridge, 2, &of_host);
    let to_host = frame("arp,dl_src=02:00:00:00:00:11,dl_dst=02:00:00:00:00:22");
    let (allowed, other) = (with([0x81, 0, 0, 30], &to_host), with([0x81, 0, 0, 20], &to_host));
    assert_eq!(sent(&bridge.one(1, &allowed)), [(2, allowed.clone())]);
    assert_eq!(
        bridge.one(1, &other).last(),
        Some(&Event::Dropped(DropReason::NormalVlan))
    );
}

#[test]
fn normal_keeps_protected_ports_apart_floods_vlans_that_learn_nothing_and_forwards_bpdus_if_it_shall() {
    let mut bridge = Bridge::new(0);
    for (number, config) in [
        (1, PortConfig::PROTECTED),
        (2, PortConfig::PROTECTED),
        (3, PortConfig::default()),
    ] {
        let port = Port {
            config,
            ..Port::new(PortNo::from_raw(number))
        };
        bridge.change(|control, ops| control.set_port(port, ops));
    }
    bridge.apply("", &[Action::output(PortNo::NORMAL)]);
    let from_host = frame("arp,dl_src=02:00:00:00:00:22,dl_dst=ff:ff:ff:ff:ff:ff");
    let to_host = frame("arp,dl_src=02:00:00:00:00:11,dl_dst=02:00:00:00:00:22");
    learn(&mut bridge, 2, &from_host);
    assert_eq!(ports(&bridge.one(1, &from_host)), [3]);
    assert_eq!(
        bridge.one(1, &to_host).last(),
        Some(&Event::Dropped(DropReason::NormalProtected))
    );
    assert_eq!(ports(&bridge.one(3, &to_host)), [2]);
    let vlan_7 = |frame: &[u8]| [&frame[..12], &[0x81, 0, 0, 7], &frame[12..]].concat();
    let bpdu = frame("dl_src=02:00:00:00:00:33,dl_dst=01:80:c2:00:00:00,dl_type=0x1234");
    let settings = |vids: &[u16], forwards| {
        NormalSettings::new(vids.iter().map(|raw| Vid::new(*raw).unwrap()), forwards)
    };
    bridge.change(|control, ops| control.set_normal_settings(settings(&[7], true), ops));
    assert!(
        !bridge
            .one(2, &vlan_7(&from_host))
            .iter()
            .any(|event| matches!(event, Event::Learn(_))),
        "nothing is learned in this VLAN"
    );
    assert_eq!(ports(&bridge.one(3, &vlan_7(&to_host))), [1, 2]);
    assert_eq!(ports(&bridge.one(1, &bpdu)), [3]);
    bridge.change(|control, ops| control.set_normal_settings(settings(&[], false), ops));
    assert_eq!(bridge.one(1, &bpdu), [Event::Dropped(DropReason::NormalReserved)]);
}
