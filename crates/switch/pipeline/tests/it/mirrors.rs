//! Mirrors: the packets that they copy, at most once for each output, and the form of the copies.

use core::num::NonZeroU16;
use std::sync::Arc;

use crate::harness::{Bridge, Event, frame, out, ports, sent, set};
use crate::tunnels;
use millrace_flow::{Action, Field};
use millrace_pipeline::{
    DropReason, MIRRORS_MAX, MarkObstacle, Mirror, MirrorCount, MirrorOutput, Mirrors, Port, PortConfig,
    PortState, VlanMode, explain,
};
use millrace_types::{Mac, PortNo, Vid};
use millrace_wire::segment::GsoLayout;
use millrace_wire::tunnel::TunnelKind;
use millrace_wire::{Builder, Frame, tcp};

const MONITOR: u32 = 4;

fn port(number: u32) -> PortNo {
    PortNo::from_raw(number)
}

fn vid(raw: u16) -> Vid {
    Vid::new(raw).unwrap()
}

/// Returns a mirror of packets received and sent by these ports, to [`MONITOR`].
fn mirror(received: &[u32], sent: &[u32]) -> Mirror {
    Mirror {
        received: received.iter().map(|number| port(*number)).collect(),
        sent: sent.iter().map(|number| port(*number)).collect(),
        vlans: None,
        output: MirrorOutput::Port(port(MONITOR)),
        snaplen: None,
        counters: Arc::default(),
    }
}

fn all() -> Mirror {
    mirror(&[1, 2, 3], &[1, 2, 3])
}

/// Returns a bridge with four ports and these mirrors.
fn bridge(mirrors: &[Mirror]) -> Bridge {
    let mut bridge = Bridge::new(4);
    set_mirrors(&mut bridge, mirrors);
    bridge
}

fn set_mirrors(bridge: &mut Bridge, mirrors: &[Mirror]) {
    let mirrors = Mirrors::new(mirrors.iter().cloned());
    bridge.change(|control, ops| control.set_mirrors(mirrors, ops));
}

fn set_port(bridge: &mut Bridge, number: u32, vlan: VlanMode) {
    let port = Port {
        vlan,
        ..Port::new(port(number))
    };
    bridge.change(|control, ops| control.set_port(port, ops));
}

fn normal(bridge: &mut Bridge) {
    bridge.apply("", &[Action::output(PortNo::NORMAL)]);
}

fn count(packets: u64, bytes: u64, lost: u64) -> MirrorCount {
    MirrorCount { packets, bytes, lost }
}

fn broadcast() -> Vec<u8> {
    frame("arp,dl_src=02:00:00:00:00:0a,dl_dst=ff:ff:ff:ff:ff:ff")
}

fn tagged(frame: &[u8], vid: u8) -> Vec<u8> {
    [&frame[..12], &[0x81, 0, 0, vid], &frame[12..]].concat()
}

/// Returns the copies at the monitor.
fn copies(events: &[Event]) -> Vec<Vec<u8>> {
    let all = sent(events).into_iter();
    all.filter_map(|(to, bytes)| (to == MONITOR).then_some(bytes))
        .collect()
}

#[test]
fn a_packet_is_copied_once_though_it_is_selected_at_ingress_and_at_two_ports_of_egress() {
    for mirror in [all(), mirror(&[], &[2, 3]), mirror(&[1], &[]), mirror(&[1], &[3])] {
        let mut bridge = bridge(std::slice::from_ref(&mirror));
        normal(&mut bridge);
        let burst = vec![broadcast(); 3];
        let events = bridge.receive(1, &burst);
        assert_eq!(
            ports(&events),
            [[2; 3], [3; 3], [MONITOR; 3]].concat(),
            "{mirror:?}"
        );
        assert_eq!(copies(&events), burst);
        assert_eq!(mirror.counters.read(), count(3, 3 * broadcast().len() as u64, 0));
    }
    let mirror = mirror(&[2], &[1]);
    let mut bridge = bridge(&[mirror]);
    normal(&mut bridge);
    assert_eq!(ports(&bridge.one(1, &broadcast())), [2, 3], "not selected");
    assert_eq!(ports(&bridge.one(2, &broadcast())), [1, 3, MONITOR]);
    assert_eq!(ports(&bridge.one(3, &broadcast())), [1, 2, MONITOR]);
}

#[test]
fn an_ingress_copy_is_the_packet_as_received_and_an_egress_copy_the_packet_as_sent() {
    let udp = frame("udp,nw_src=10.0.0.1,nw_dst=10.0.0.2,tp_src=1,tp_dst=2");
    let rewritten = [&[2, 0, 0, 0, 0, 0x77][..], &udp[6..]].concat();
    let actions = [set(Field::EthDst, 0x0200_0000_0077), out(2)];
    for (mirror, expected) in [
        (mirror(&[1], &[]), &udp),
        (mirror(&[], &[2]), &rewritten),
        (all(), &udp),
    ] {
        let mut bridge = bridge(&[mirror]);
        bridge.apply("", &actions);
        let events = bridge.receive(1, &[udp.clone(), udp.clone()]);
        assert_eq!(copies(&events), [expected.clone(), expected.clone()]);
        assert_eq!(sent(&events)[0], (2, rewritten.clone()));
    }
}

#[test]
fn packets_that_the_pipeline_drops_are_copied_at_ingress_and_others_are_not() {
    let mut bridge = bridge(&[mirror(&[1], &[2])]);
    bridge.apply("", &[]);
    assert_eq!(copies(&bridge.one(1, &broadcast())).len(), 1);
    assert_eq!(copies(&bridge.one(2, &broadcast())).len(), 0);
    // The table is empty.
    let mut bridge = self::bridge(&[all()]);
    let events = bridge.receive(1, &vec![broadcast(); 64]);
    assert_eq!(copies(&events).len(), 64);
    // A port that does not receive has no mirrored packets.
    let down = Port {
        config: PortConfig::NO_RECV,
        ..Port::new(port(1))
    };
    bridge.change(|control, ops| control.set_port(down, ops));
    assert_eq!(copies(&bridge.one(1, &broadcast())).len(), 0);
}

#[test]
fn the_output_port_carries_copies_only() {
    let mut bridge = bridge(&[mirror(&[1], &[])]);
    normal(&mut bridge);
    let received = bridge.one(MONITOR, &broadcast());
    assert_eq!(received, [Event::Dropped(DropReason::MirrorPort)]);
    let explanation = explain(&bridge.active, port(MONITOR), &broadcast(), bridge.now);
    assert!(explanation.to_string().contains("mirror_port"), "{explanation}");
    assert_eq!(ports(&bridge.one(2, &broadcast())), [1, 3], "not flooded");
    assert_eq!(
        bridge.packet_out(PortNo::CONTROLLER, &[out(MONITOR)], &broadcast()),
        [Event::Dropped(DropReason::MirrorPort)]
    );
    let flood = bridge.packet_out(PortNo::CONTROLLER, &[Action::output(PortNo::ALL)], &broadcast());
    assert_eq!(ports(&flood), [1, 2, 3]);
    // OpenFlow does not know the bit, and the port is an ordinary one again after the mirror.
    let known = bridge.control.port(port(MONITOR)).unwrap();
    assert_eq!(known.config, PortConfig::default());
    set_mirrors(&mut bridge, &[]);
    assert_eq!(ports(&bridge.one(MONITOR, &broadcast())), [1, 2, 3]);
}

#[test]
fn copies_wait_for_a_port_that_is_up_and_are_counted_as_lost() {
    let mirror = all();
    let mut bridge = bridge(std::slice::from_ref(&mirror));
    normal(&mut bridge);
    let down = Port {
        state: PortState::LINK_DOWN,
        ..Port::new(port(MONITOR))
    };
    bridge.change(|control, ops| control.set_port(down, ops));
    assert_eq!(ports(&bridge.one(1, &broadcast())), [2, 3]);
    bridge.change(|control, ops| control.set_port(Port::new(port(MONITOR)), ops));
    assert_eq!(ports(&bridge.one(1, &broadcast())), [2, 3, MONITOR]);
    assert_eq!(mirror.counters.read(), count(2, 2 * broadcast().len() as u64, 1));
    bridge.change(|control, ops| control.remove_port(port(MONITOR), ops));
    assert_eq!(ports(&bridge.one(1, &broadcast())), [2, 3]);
    assert_eq!(mirror.counters.read().lost, 2);
}

#[test]
fn addresses_behind_a_port_that_becomes_an_output_are_forgotten() {
    let mut bridge = Bridge::new(4);
    normal(&mut bridge);
    let host = Mac([2, 0, 0, 0, 0, 9]);
    let now = bridge.now;
    for (number, vid) in [(MONITOR, Vid::default()), (1, vid(9)), (1, Vid::default())] {
        let learn = millrace_pipeline::Learn {
            vid,
            mac: host,
            port: port(number),
        };
        bridge.change(|control, ops| control.learn(learn, now, ops));
        let to_vlan = Mirror {
            output: MirrorOutput::Vlan(self::vid(9)),
            ..all()
        };
        set_mirrors(&mut bridge, &[all(), to_vlan]);
        let remains = vid == Vid::default() && number == 1;
        assert_eq!(bridge.active.fdb_len(), usize::from(remains));
        set_mirrors(&mut bridge, &[]);
    }
}

#[test]
fn a_mirror_of_vlans_copies_packets_by_the_vlan_of_their_port() {
    let of_ten = Mirror {
        vlans: Some(Box::new([vid(10)].into_iter().collect())),
        ..all()
    };
    let mut bridge = bridge(&[of_ten]);
    set_port(&mut bridge, 1, VlanMode::Access(vid(10)));
    set_port(&mut bridge, 2, VlanMode::Access(vid(20)));
    normal(&mut bridge);
    let plain = broadcast();
    // The output port is a trunk, so that the copies carry their VLAN.
    assert_eq!(
        copies(&bridge.receive(1, &[plain.clone(), plain.clone()])),
        [tagged(&plain, 10), tagged(&plain, 10)]
    );
    assert!(copies(&bridge.one(2, &plain)).is_empty());
    assert_eq!(copies(&bridge.one(3, &tagged(&plain, 10))), [tagged(&plain, 10)]);
    assert!(copies(&bridge.one(3, &tagged(&plain, 20))).is_empty());
    assert!(copies(&bridge.one(3, &plain)).is_empty());
    assert!(
        copies(&bridge.one(1, &tagged(&plain, 10))).is_empty(),
        "an access port has no tagged packets"
    );
    // The VLAN of the output port does not choose copies, but an access port sends them untagged.
    set_port(&mut bridge, MONITOR, VlanMode::Access(vid(30)));
    assert_eq!(copies(&bridge.one(3, &tagged(&plain, 10))), [plain]);
}

#[test]
fn a_mirror_to_a_vlan_floods_copies_in_it_and_nobody_learns_there() {
    let rspan = Mirror {
        output: MirrorOutput::Vlan(vid(90)),
        ..mirror(&[1], &[])
    };
    let mut bridge = bridge(std::slice::from_ref(&rspan));
    set_port(&mut bridge, 1, VlanMode::Access(vid(10)));
    set_port(&mut bridge, 3, VlanMode::Access(vid(90)));
    bridge.apply("", &[]);
    let plain = broadcast();
    let expected = [
        (2, tagged(&plain, 90)),
        (3, plain.clone()),
        (MONITOR, tagged(&plain, 90)),
    ];
    assert_eq!(sent(&bridge.one(1, &plain)), expected);
    let no_flood = Port {
        config: PortConfig::NO_FLOOD,
        ..Port::new(port(2))
    };
    bridge.change(|control, ops| control.set_port(no_flood, ops));
    assert_eq!(sent(&bridge.one(1, &plain)), expected[1..]);
    // Packets of the output VLAN, and frames that other switches would take, are not copied.
    set_port(&mut bridge, 1, VlanMode::default());
    assert!(
        bridge
            .one(1, &tagged(&plain, 90))
            .iter()
            .all(|event| matches!(event, Event::Dropped(_)))
    );
    let bpdu = frame("dl_type=0x1234,dl_dst=01:80:c2:00:00:00");
    assert!(sent(&bridge.one(1, &bpdu)).is_empty());
    assert_eq!(rspan.counters.read().packets, 2);
    // A copy from another switch.
    let mut bridge = self::bridge(&[rspan]);
    normal(&mut bridge);
    let events = bridge.one(3, &tagged(&plain, 90));
    assert!(!events.iter().any(|event| matches!(event, Event::Learn(_))));
    assert!(
        bridge
            .one(3, &tagged(&plain, 91))
            .iter()
            .any(|event| matches!(event, Event::Learn(_)))
    );
}

#[test]
fn snaplen_cuts_the_copy_with_its_tag() {
    let cut = Mirror {
        snaplen: Some(20),
        ..mirror(&[1], &[])
    };
    let mut bridge = bridge(&[cut]);
    set_port(&mut bridge, 1, VlanMode::Access(vid(10)));
    bridge.apply("", &[out(2)]);
    let plain = broadcast();
    let events = bridge.one(1, &plain);
    assert_eq!(copies(&events), [tagged(&plain, 10)[..20].to_vec()]);
    assert_eq!(sent(&events)[0], (2, plain.clone()));
    let mut recorded = bridge.receive_frame(1, Frame::segmented(&plain, 18));
    assert_eq!(copies(&recorded), [tagged(&plain, 10)[..20].to_vec()]);
    let short = &plain[..15];
    recorded = bridge.one(1, short);
    assert_eq!(copies(&recorded), [tagged(short, 10)]);
}

#[test]
fn a_long_packet_is_copied_whole_and_cut_segment_by_segment() {
    let packet = Builder::ethernet(Mac([2, 0, 0, 0, 0, 2]), Mac([2, 0, 0, 0, 0, 1]))
        .ipv4([10, 0, 0, 1], [10, 0, 0, 2])
        .tcp(tcp::Repr {
            src: 1,
            dst: 2,
            seq: 1,
            ack: 0,
            flags: 0x10,
            window: 100,
            urgent: 0,
            options: tcp::Options::default(),
        })
        .payload(&[7; 2500])
        .build();
    let size = NonZeroU16::new(1000).unwrap();
    let mut bridge = bridge(&[all()]);
    bridge.apply("", &[out(2)]);
    let events = bridge.receive_frame(1, Frame::new(&packet).to_gso(size));
    assert_eq!(copies(&events), std::slice::from_ref(&packet));
    set_mirrors(
        &mut bridge,
        &[Mirror {
            snaplen: Some(60),
            ..all()
        }],
    );
    let events = bridge.receive_frame(1, Frame::new(&packet).to_gso(size));
    let gso = Frame::new(&packet).to_gso(size);
    let layout = GsoLayout::of(&gso).unwrap();
    let expected: Vec<Vec<u8>> = (0..3)
        .map(|number| layout.segment(&gso, number).unwrap().bytes()[..60].to_vec())
        .collect();
    assert_eq!(copies(&events), expected);
}

#[test]
fn each_output_gets_one_copy_whatever_the_number_of_mirrors() {
    let to = |output, mirror: Mirror| Mirror {
        output: MirrorOutput::Port(port(output)),
        ..mirror
    };
    let list = [mirror(&[1], &[]), mirror(&[], &[2]), to(3, mirror(&[], &[2]))];
    let mut bridge = bridge(&list);
    bridge.apply("in_port=1", &[out(2)]);
    bridge.apply("in_port=2", &[Action::output(PortNo::IN_PORT)]);
    assert_eq!(ports(&bridge.one(1, &broadcast())), [2, 3, MONITOR]);
    assert_eq!(ports(&bridge.one(2, &broadcast())), [2, 3, MONITOR]);
    let counts: Vec<u64> = list.iter().map(|one| one.counters.read().packets).collect();
    assert_eq!(counts, [1, 1, 2]);
    let many = vec![all(); MIRRORS_MAX + 1];
    let most = Mirrors::new(many[..MIRRORS_MAX].to_vec());
    assert_eq!(Mirrors::new(many), most);
}

#[test]
fn packet_outs_are_copied_where_they_leave_and_where_they_claim_to_have_arrived() {
    let mut bridge = bridge(&[mirror(&[1], &[2])]);
    let send = |bridge: &mut Bridge, from, to| {
        let events = bridge.packet_out(from, &[out(to)], &broadcast());
        copies(&events).len()
    };
    assert_eq!(send(&mut bridge, PortNo::CONTROLLER, 2), 1);
    assert_eq!(send(&mut bridge, PortNo::CONTROLLER, 3), 0);
    assert_eq!(send(&mut bridge, port(1), 3), 1);
    assert_eq!(send(&mut bridge, port(1), 2), 1);
}

#[test]
fn a_tunnel_is_a_port_of_its_own_for_mirrors() {
    use millrace_pipeline::TunnelKey;
    let tunnel = tunnels::tunnel(5, TunnelKind::Vxlan, TunnelKey::Fixed(7), 1, 2);
    let (mut bridge, _) = tunnels::bridge(&[tunnel]);
    bridge.apply("in_port=2", &[out(5)]);
    bridge.apply("in_port=5", &[out(3)]);
    let inside = broadcast();
    set_mirrors(&mut bridge, &[mirror(&[], &[5])]);
    let events = bridge.one(2, &inside);
    assert_eq!(
        copies(&events),
        std::slice::from_ref(&inside),
        "before it is encapsulated"
    );
    set_mirrors(&mut bridge, &[mirror(&[], &[1])]);
    let events = bridge.one(2, &inside);
    let outside = copies(&events).remove(0);
    assert!(outside.ends_with(&inside) && outside.len() > inside.len());
    // From the other end, and after it is decapsulated.
    let other_end = tunnels::tunnel(5, TunnelKind::Vxlan, TunnelKey::Fixed(7), 2, 1);
    let (mut bridge, _) = tunnels::bridge(&[other_end]);
    bridge.apply("in_port=2", &[out(5)]);
    bridge.apply("in_port=5", &[out(3)]);
    let arriving = tunnels::enveloped(TunnelKind::Vxlan, 7, &inside);
    set_mirrors(&mut bridge, &[mirror(&[5], &[])]);
    assert_eq!(copies(&bridge.one(1, &arriving)), std::slice::from_ref(&inside));
    set_mirrors(&mut bridge, &[mirror(&[1, 5], &[3])]);
    assert_eq!(
        copies(&bridge.one(1, &arriving)),
        std::slice::from_ref(&arriving),
        "once"
    );
    // A tunnel as the output.
    let to_tunnel = Mirror {
        output: MirrorOutput::Port(port(5)),
        ..mirror(&[2], &[])
    };
    set_mirrors(&mut bridge, &[to_tunnel]);
    bridge.apply("in_port=2", &[out(3)]);
    let events = bridge.one(2, &inside);
    assert_eq!(ports(&events), [1, 3]);
    assert!(sent(&events)[0].1.ends_with(&inside));
}

#[test]
fn frames_of_link_protocols_are_copied_where_they_leave() {
    let bridge = &mut bridge(&[mirror(&[], &[1])]);
    for (number, expected) in [(1, 1), (2, 0)] {
        let mut recorder = crate::harness::Recorder::default();
        let (now, packet) = (bridge.now, Frame::new(&broadcast()));
        bridge
            .processor
            .mirror_sent(&bridge.active, port(number), &packet, now, &mut recorder);
        assert_eq!(copies(&recorder.events).len(), expected);
    }
}

#[test]
fn devices_classify_no_packets_of_a_bridge_with_mirrors() {
    let mut bridge = bridge(&[all()]);
    bridge.apply("tcp", &[]);
    assert_eq!(bridge.active.mark_obstacle(port(1)), Some(MarkObstacle::Mirrors));
    set_mirrors(&mut bridge, &[]);
    assert_eq!(bridge.active.mark_obstacle(port(1)), None);
}
