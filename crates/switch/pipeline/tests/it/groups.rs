//! Packets through groups, case by case; the model in `group_model.rs` covers the combinations, and `group_mods.rs` has
//! the requests.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::collections::{BTreeMap, BTreeSet};

use crate::harness::{Bridge, Event, frame, group, out, ports, sent, set, to, to_group, watching, weighing};
use millrace_flow::{Action, Bucket, Field, Instructions};
use millrace_pipeline::GroupKind::{All, FastFailover, Indirect, Select};
use millrace_pipeline::{DropReason, ErrorCode, GroupMod, PortConfig, PortState, explain};
use millrace_types::{GroupId, PortNo, QueueId, TableId};
use millrace_wire::EtherType;

/// Sorts events: packets have an order only within a port.
fn in_order<T: Ord>(mut list: Vec<T>) -> Vec<T> {
    list.sort();
    list
}

fn set_state(bridge: &mut Bridge, port: u32, state: PortState) {
    bridge.change(|control, ops| {
        control
            .set_port_state(PortNo::from_raw(port), state, ops)
            .unwrap();
    });
}

#[test]
fn an_all_group_copies_to_each_bucket_but_not_back_by_number() {
    let mut bridge = Bridge::new(4);
    bridge.add_group(
        0,
        All,
        vec![
            to(1),
            to(2),
            to(3),
            Bucket::new([Action::output(PortNo::IN_PORT)]),
        ],
    );
    bridge.apply("", &[to_group(0)]);
    let tcp = frame("tcp");
    let events = bridge.one(1, &tcp);
    assert_eq!(
        in_order(sent(&events)),
        [(1, tcp.clone()), (2, tcp.clone()), (3, tcp)]
    );
    assert!(events.contains(&Event::Dropped(DropReason::OutputToInPort)));
    assert_eq!(bridge.group_count(0), Some((1, 1, vec![1; 4])));
}

#[test]
fn a_bucket_is_an_action_set_and_changes_only_its_own_copy() {
    let mut bridge = Bridge::new(4);
    let tagged = Bucket::new([
        out(2),
        set(Field::VlanVid, 0x1007),
        Action::SetQueue(QueueId(3)),
        Action::PushVlan(EtherType::VLAN),
        set(Field::TunnelId, 9),
    ]);
    bridge.add_group(1, All, vec![tagged.clone(), to(3)]);
    bridge.add(
        0,
        1,
        "",
        Instructions {
            apply_actions: Some([to_group(1)].into()),
            ..Instructions::goto(TableId(1))
        },
    );
    bridge.add(1, 1, "vlan_vid=0", Instructions::apply([out(4)]));
    let tcp = frame("tcp");
    let with_tag = [&tcp[..12], &[0x81, 0, 0, 7], &tcp[12..]].concat();
    let events = bridge.one(1, &tcp);
    let queue = |port| {
        events.iter().find_map(|event| match event {
            Event::Out(to, queue, _) if *to == port => Some(*queue),
            _ => None,
        })
    };
    assert_eq!(
        (queue(2), queue(3), queue(4)),
        (Some(Some(3)), Some(None), Some(None))
    );
    assert_eq!(
        in_order(sent(&events)),
        [(2, with_tag), (3, tcp.clone()), (4, tcp)]
    );
    let read_back: Vec<_> = bridge.control.groups().cloned().collect();
    assert_eq!(read_back, [group(1, All, vec![tagged, to(3)])], "as it was given");
}

#[test]
fn a_group_in_the_action_set_comes_last_and_hides_the_output() {
    let mut bridge = Bridge::new(4);
    bridge.add_group(5, Indirect, vec![to(2)]);
    bridge.add(
        0,
        1,
        "",
        Instructions {
            write_actions: Some([to_group(5), out(3), set(Field::EthDst, 5)].into()),
            ..Instructions::default()
        },
    );
    let events = bridge.one(1, &frame("tcp"));
    let [(2, bytes)] = &sent(&events)[..] else {
        panic!("{events:?}")
    };
    assert_eq!(bytes[..6], [0, 0, 0, 0, 0, 5]);
}

#[test]
fn a_packet_out_goes_through_a_group() {
    let mut bridge = Bridge::new(4);
    let actions = [to_group(5), out(1)];
    let missing = bridge.control.check_packet_out(&actions).unwrap_err();
    assert_eq!(missing.code(), ErrorCode::OFPBAC_BAD_OUT_GROUP);
    bridge.add_group(5, Select, vec![weighing(1, 2), weighing(1, 3)]);
    bridge.control.check_packet_out(&actions).unwrap();
    let mut counts = BTreeMap::new();
    for flow in 0..64 {
        let tcp = frame(&format!("tcp,tp_src={}", 1000 + flow));
        let events = bridge.packet_out(PortNo::CONTROLLER, &actions, &tcp);
        let [1, by_group] = in_order(ports(&events))[..] else {
            panic!("{events:?}")
        };
        *counts.entry(by_group).or_insert(0) += 1;
    }
    assert!(counts.values().all(|count| *count > 16), "{counts:?}");
}

/// Returns the ports by which packets leave, in order.
fn ports_of(bridge: &mut Bridge, frames: &[Vec<u8>]) -> Vec<u32> {
    frames
        .iter()
        .flat_map(|frame| ports(&bridge.one(1, frame)))
        .collect()
}

/// Sends two packets of each flow. Returns the number of flows by port; both packets of a flow leave by one.
fn spread(bridge: &mut Bridge, flows: u32, text: impl Fn(u32) -> String) -> BTreeMap<u32, u32> {
    let mut counts = BTreeMap::new();
    for flow in 0..flows {
        let frame = frame(&text(flow));
        let first = ports(&bridge.one(1, &frame));
        assert_eq!(
            first,
            ports(&bridge.one(1, &frame)),
            "packets of a flow leave by one port"
        );
        let [port] = first[..] else { panic!("{first:?}") };
        *counts.entry(port).or_insert(0) += 1;
    }
    counts
}

#[test]
fn a_select_group_splits_by_weight_whatever_field_tells_flows_apart() {
    // The tables need parsed packets, or need none.
    for match_ in ["", "tcp", "arp"] {
        let mut bridge = Bridge::new(3);
        bridge.add_group(0, Select, vec![weighing(1, 2), weighing(2, 3)]);
        if !match_.is_empty() {
            bridge.add(0, 20, match_, Instructions::apply([to_group(0)]));
        }
        bridge.apply("", &[to_group(0)]);
        let texts: [&dyn Fn(u32) -> String; 5] = [
            &|n| format!("dl_src=02:00:00:00:{:02x}:{:02x},dl_type=0x88b5", n >> 8, n & 255),
            &|n| format!("arp,arp_spa=10.0.{}.{}", n >> 8, n & 255),
            &|n| format!("tcp,nw_dst=10.0.{}.{}", n >> 8, n & 255),
            &|n| format!("tcp6,ipv6_src=2001:db8::{n:x}"),
            &|n| format!("udp,tp_dst={}", 1 + n),
        ];
        for text in texts {
            let counts = spread(&mut bridge, 3000, text);
            // The tolerance is three times the standard deviation of 3,000 fair choices.
            assert!(
                (925..=1075).contains(&counts[&2]),
                "{counts:?}: {match_} {}",
                text(7)
            );
        }
    }
}

#[test]
fn a_select_group_goes_by_the_fields_that_it_is_told() {
    let mut bridge = Bridge::new(5);
    bridge.add_group(1, Select, vec![weighing(1, 2), weighing(1, 3), weighing(1, 4)]);
    bridge.apply("", &[Action::Group(GroupId(1))]);
    let ports = |flow: u32| {
        format!(
            "udp,ipv4_src=10.0.0.1,ipv4_dst=10.0.0.2,udp_src={},udp_dst=9",
            1000 + flow
        )
    };
    assert_eq!(spread(&mut bridge, 300, ports).len(), 3);
    let fields = [Field::Ipv4Src, Field::Ipv4Dst].into_iter().collect();
    bridge.change(|control, ops| control.set_select_fields(fields, ops));
    assert_eq!(
        spread(&mut bridge, 300, ports).len(),
        1,
        "ports make no difference"
    );
    let addresses = |flow: u32| {
        format!(
            "udp,ipv4_src=10.0.{}.{},ipv4_dst=10.1.0.2,udp_src=7,udp_dst=9",
            flow / 250,
            flow % 250
        )
    };
    assert_eq!(spread(&mut bridge, 300, addresses).len(), 3);
    bridge.change(|control, ops| control.set_select_fields([].into_iter().collect(), ops));
    assert_eq!(spread(&mut bridge, 300, ports).len(), 3);
}

#[test]
fn a_select_group_can_go_by_what_is_not_in_packets() {
    // No table needs parsed packets; then an action changes them.
    for first in [None, Some(set(Field::EthDst, 5))] {
        let mut bridge = Bridge::new(40);
        bridge.add_group(1, Select, vec![weighing(1, 2), weighing(1, 3), weighing(1, 4)]);
        let actions: Vec<Action> = first.into_iter().chain([to_group(1)]).collect();
        bridge.apply("", &actions);
        bridge.change(|control, ops| control.set_select_fields([Field::InPort].into_iter().collect(), ops));
        let udp = frame("udp");
        let ways: BTreeSet<Vec<u32>> = (5..40).map(|port| ports(&bridge.one(port, &udp))).collect();
        assert_eq!(ways, BTreeSet::from([vec![2], vec![3], vec![4]]));
    }
}

#[test]
fn when_a_bucket_goes_only_its_flows_move() {
    let mut bridge = Bridge::new(9);
    let buckets = |ports: &[u32]| ports.iter().map(|port| weighing(10, *port)).collect::<Vec<_>>();
    bridge.add_group(0, Select, buckets(&[2, 3, 4, 5]));
    bridge.apply("", &[to_group(0)]);
    let frames: Vec<_> = (0..2000)
        .map(|n| frame(&format!("tcp,tp_src={}", 1 + n)))
        .collect();
    let before = ports_of(&mut bridge, &frames);
    bridge
        .group_mod(&GroupMod::Modify(group(0, Select, buckets(&[2, 4, 5]))))
        .unwrap();
    let without = ports_of(&mut bridge, &frames);
    // Rounding may move one of the thousand shares.
    let moved = before
        .iter()
        .zip(&without)
        .filter(|(was, is)| was != is && **was != 3)
        .count();
    assert!(moved <= 10 && !without.contains(&3), "{moved}");
    // A bucket is added: it takes its share, and no other flow moves.
    bridge
        .group_mod(&GroupMod::Modify(group(0, Select, buckets(&[6, 5, 4, 2]))))
        .unwrap();
    let with = ports_of(&mut bridge, &frames);
    let moved = without
        .iter()
        .zip(&with)
        .filter(|(was, is)| was != is && **is != 6)
        .count();
    assert!(moved <= 10, "{moved}");
    let share = with.iter().filter(|port| **port == 6).count();
    assert!((400..600).contains(&share), "{share}");
}

#[test]
fn flows_of_a_bucket_whose_port_is_down_go_elsewhere_and_come_back() {
    let mut bridge = Bridge::new(4);
    let buckets = (2..5)
        .map(|port| Bucket {
            weight: 1,
            ..watching(port)
        })
        .collect();
    bridge.add_group(0, Select, buckets);
    bridge.apply("", &[to_group(0)]);
    let frames: Vec<_> = (0..900)
        .map(|n| frame(&format!("tcp,tp_src={}", 1 + n)))
        .collect();
    let before = ports_of(&mut bridge, &frames);
    set_state(&mut bridge, 3, PortState::LINK_DOWN);
    let during = ports_of(&mut bridge, &frames);
    assert_eq!(during.len(), 900, "nothing is lost");
    for (was, is) in before.iter().zip(&during) {
        assert!(*is != 3 && (was == is || *was == 3));
    }
    let share = before
        .iter()
        .zip(&during)
        .filter(|(was, is)| **was == 3 && **is == 2)
        .count();
    let moved = before.iter().filter(|port| **port == 3).count();
    assert!(
        (moved * 2 / 5..moved * 3 / 5).contains(&share),
        "{share} of {moved}"
    );
    set_state(&mut bridge, 3, PortState::LIVE);
    assert_eq!(ports_of(&mut bridge, &frames), before);
    for port in 2..5 {
        set_state(&mut bridge, port, PortState::LINK_DOWN);
    }
    assert_eq!(
        bridge.one(1, &frames[0]),
        [Event::Dropped(DropReason::NoLiveBucket)]
    );
}

#[test]
fn fast_failover_takes_the_first_live_bucket() {
    let mut bridge = Bridge::new(4);
    bridge.add_group(1, FastFailover, vec![watching(2), watching(3)]);
    // The bucket is live while group 1 is, and forwards to it; otherwise packets go to port 4.
    let by_group = Bucket {
        watch_group: GroupId(1),
        ..Bucket::new([to_group(1)])
    };
    bridge.add_group(2, FastFailover, vec![by_group, watching(4)]);
    bridge.apply("", &[to_group(2)]);
    let tcp = frame("tcp");
    let expect = |bridge: &mut Bridge, port| {
        assert_eq!(ports(&bridge.one(1, &tcp)), [port]);
        let told = explain(&bridge.active, PortNo::from_raw(1), &tcp, bridge.now);
        assert_eq!(told.outputs().map(PortNo::raw).collect::<Vec<_>>(), [port]);
    };
    expect(&mut bridge, 2);
    set_state(&mut bridge, 2, PortState::LINK_DOWN);
    expect(&mut bridge, 3);
    let down = PortConfig::DOWN;
    bridge.change(|control, ops| {
        control
            .port_mod(PortNo::from_raw(3), down, down, ops)
            .map(|_| ())
            .unwrap();
    });
    expect(&mut bridge, 4);
    set_state(&mut bridge, 2, PortState::default());
    expect(&mut bridge, 2);
    bridge.change(|control, ops| control.remove_port(PortNo::from_raw(2), ops));
    expect(&mut bridge, 4);
    // A watched group may be deleted; its watchers treat it as dead.
    bridge
        .group_mod(&GroupMod::Modify(group(
            2,
            FastFailover,
            vec![
                Bucket {
                    watch_group: GroupId(1),
                    ..to(3)
                },
                watching(4),
            ],
        )))
        .unwrap();
    bridge.group_mod(&GroupMod::Delete(GroupId(1))).unwrap();
    expect(&mut bridge, 4);
}

#[test]
fn liveness_follows_a_long_chain_of_groups() {
    const LEN: u32 = 3000;
    let mut bridge = Bridge::new(3);
    let now = bridge.now;
    // Each group watches the one before.
    bridge.add_group(1, FastFailover, vec![watching(2)]);
    bridge.change(|control, ops| {
        for id in 2..=LEN {
            let bucket = Bucket {
                watch_group: GroupId(id - 1),
                ..to(3)
            };
            let request = GroupMod::Add(group(id, FastFailover, vec![bucket]));
            control.group_mod(&request, now, ops).unwrap();
        }
    });
    bridge.apply("", &[to_group(LEN)]);
    let tcp = frame("tcp");
    let dropped = [Event::Dropped(DropReason::NoLiveBucket)];
    assert_eq!(ports(&bridge.one(1, &tcp)), [3]);
    for _ in 0..3 {
        set_state(&mut bridge, 2, PortState::LINK_DOWN);
        assert_eq!(bridge.one(1, &tcp), dropped);
        set_state(&mut bridge, 2, PortState::default());
        assert_eq!(ports(&bridge.one(1, &tcp)), [3]);
    }
}

#[test]
fn an_explanation_names_the_bucket() {
    let mut bridge = Bridge::new(4);
    bridge.add_group(7, FastFailover, vec![watching(2), watching(3)]);
    bridge.apply("", &[to_group(7)]);
    set_state(&mut bridge, 2, PortState::LINK_DOWN);
    let text = explain(&bridge.active, PortNo::from_raw(1), &frame("tcp"), bridge.now).to_string();
    for piece in [
        "  group:7\n",
        "    group 7 (fast_failover), bucket 1:\n",
        "-> port 3",
    ] {
        assert!(text.contains(piece), "{piece} in\n{text}");
    }
}

/// Returns a UDP frame as a fragment of an IPv4 packet, and sets the checksum of its header.
fn as_fragment(mut bytes: Vec<u8>, offset_and_flags: u16) -> Vec<u8> {
    bytes[20..22].copy_from_slice(&offset_and_flags.to_be_bytes());
    bytes[24..26].fill(0);
    let checksum = millrace_wire::checksum::internet(&bytes[14..34]);
    bytes[24..26].copy_from_slice(&checksum.to_be_bytes());
    bytes
}

#[test]
fn all_fragments_of_a_datagram_and_both_directions_of_a_flow_take_one_bucket() {
    let mut bridge = Bridge::new(3);
    bridge.add_group(1, Select, vec![weighing(1, 2), weighing(1, 3)]);
    bridge.apply("", &[to_group(1)]);
    let mut taken = BTreeSet::new();
    for flow in 0..60 {
        let (from, to) = (
            format!("nw_src=10.0.0.{flow},nw_dst=10.0.1.9"),
            format!("nw_src=10.0.1.9,nw_dst=10.0.0.{flow}"),
        );
        let first = frame(&format!("udp,{from},tp_src=5000,tp_dst={flow},size=200"));
        // The bytes in the place of the ports differ.
        let later = frame(&format!("udp,{from},tp_src=9,tp_dst=9,size=200"));
        let first = ports(&bridge.one(1, &as_fragment(first, 0x2000)));
        for offset in [0x2000 + 20, 40] {
            assert_eq!(
                ports(&bridge.one(1, &as_fragment(later.clone(), offset))),
                first,
                "{flow}"
            );
        }
        taken.extend(first);
        let addresses = [
            "dl_src=02:00:00:00:00:01,dl_dst=02:00:00:00:00:02",
            "dl_src=02:00:00:00:00:02,dl_dst=02:00:00:00:00:01",
        ];
        let request = frame(&format!("tcp,{},{from},tp_src=5000,tp_dst={flow}", addresses[0]));
        let reply = frame(&format!("tcp,{},{to},tp_src={flow},tp_dst=5000", addresses[1]));
        assert_eq!(
            ports(&bridge.one(1, &request)),
            ports(&bridge.one(1, &reply)),
            "{flow}"
        );
    }
    assert_eq!(taken.len(), 2, "both buckets are used");
}
