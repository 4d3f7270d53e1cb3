//! Forwarding of packets, case by case.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::sync::Arc;

use crate::harness::{Bridge, Event, frame, matching, out, ports, sent, set};
use millrace_flow::{Action, Field, Instructions, WriteMetadata};
use millrace_pipeline::{
    DropReason, ErrorCode, LiveTrace, Origin, PacketInReason, Port, PortConfig, PortState, Step, explain,
};
use millrace_types::{Cookie, GroupId, PortNo, QueueId, TableId};
use millrace_wire::EtherType;

const TCP: &str = "tcp,nw_src=10.0.0.1,nw_dst=10.0.0.2,tp_src=1000,tp_dst=80";

fn apply_goto(actions: &[Action], table: u8) -> Instructions {
    Instructions {
        apply_actions: Some(actions.into()),
        ..Instructions::goto(TableId(table))
    }
}

fn write(actions: &[Action]) -> Instructions {
    Instructions {
        write_actions: Some(actions.into()),
        ..Instructions::default()
    }
}

#[test]
fn a_packet_that_matches_nothing_is_dropped_as_table_miss() {
    let mut bridge = Bridge::new(2);
    assert_eq!(
        bridge.one(1, &frame(TCP)),
        [Event::Dropped(DropReason::TableMiss)]
    );
    bridge.apply("in_port=2", &[out(1)]);
    assert_eq!(
        bridge.one(1, &frame(TCP)),
        [Event::Dropped(DropReason::TableMiss)]
    );
    assert_eq!(bridge.control.drops(DropReason::TableMiss), 2);
}

#[test]
fn the_higher_priority_wins_whatever_the_order_of_adding() {
    let mut bridge = Bridge::new(3);
    bridge.add(0, 5, "tcp", Instructions::apply([out(2)]));
    bridge.add(0, 9, "tcp,tp_dst=80", Instructions::apply([out(3)]));
    bridge.add(0, 1, "", Instructions::apply([]));
    assert_eq!(ports(&bridge.one(1, &frame(TCP))), [3]);
    assert_eq!(ports(&bridge.one(1, &frame("tcp,tp_dst=81"))), [2]);
    assert_eq!(
        bridge.one(1, &frame("udp")),
        [Event::Dropped(DropReason::NoOutput)]
    );
}

#[test]
fn outputs_in_a_list_get_the_packet_as_it_is_at_that_point() {
    let mut bridge = Bridge::new(4);
    let changed = set(Field::EthDst, 0x0200_0000_00aa);
    bridge.apply(
        "",
        &[out(2), changed, out(3), Action::PushVlan(EtherType::VLAN), out(4)],
    );
    let original = frame(TCP);
    let sent = sent(&bridge.one(1, &original));
    assert_eq!(sent[0], (2, original.clone()));
    assert_eq!(sent[1].1[..6], [2, 0, 0, 0, 0, 0xaa]);
    assert_eq!(sent[1].1[6..], original[6..]);
    assert_eq!(sent[2].0, 4);
    assert_eq!(sent[2].1[12..16], [0x81, 0, 0, 0]);
    assert_eq!(sent[2].1[16..], original[12..]);
}

#[test]
fn output_to_the_ingress_port_needs_in_port() {
    let mut bridge = Bridge::new(2);
    bridge.apply("", &[out(1)]);
    assert_eq!(
        bridge.one(1, &frame(TCP)),
        [Event::Dropped(DropReason::OutputToInPort)]
    );
    bridge.apply("", &[Action::output(PortNo::IN_PORT)]);
    assert_eq!(ports(&bridge.one(1, &frame(TCP))), [1]);
}

#[test]
fn all_and_flood_leave_out_the_ingress_port_and_ports_that_do_not_forward() {
    let mut bridge = Bridge::new(5);
    for (number, config, state) in [
        (2, PortConfig::NO_FLOOD, PortState::default()),
        (3, PortConfig::NO_FWD, PortState::default()),
        (4, PortConfig::default(), PortState::LINK_DOWN),
    ] {
        let port = Port {
            config,
            state,
            ..Port::new(PortNo::from_raw(number))
        };
        bridge.change(|control, ops| control.set_port(port, ops));
    }
    bridge.change(|control, ops| control.set_port(Port::new(PortNo::LOCAL), ops));
    bridge.apply("", &[Action::output(PortNo::ALL)]);
    let local = PortNo::LOCAL.raw();
    assert_eq!(ports(&bridge.one(1, &frame(TCP))), [2, 5, local]);
    bridge.apply("", &[Action::output(PortNo::FLOOD)]);
    assert_eq!(ports(&bridge.one(1, &frame(TCP))), [5, local]);
    for (port, reason) in [
        (3, DropReason::PortNoForward),
        (4, DropReason::PortDown),
        (9, DropReason::NoSuchPort),
    ] {
        bridge.apply("", &[out(port)]);
        assert_eq!(bridge.one(1, &frame(TCP)), [Event::Dropped(reason)]);
    }
}

#[test]
fn a_port_that_does_not_receive_drops_what_comes_in() {
    let mut bridge = Bridge::new(2);
    bridge.apply("", &[out(2)]);
    let port = PortNo::from_raw(1);
    for config in [PortConfig::NO_RECV, PortConfig::DOWN] {
        bridge
            .change(|control, ops| {
                let all = PortConfig(PortConfig::NO_RECV.0 | PortConfig::DOWN.0);
                control.port_mod(port, config, all, ops).map(|_| ())
            })
            .unwrap();
        assert_eq!(
            bridge.one(1, &frame(TCP)),
            [Event::Dropped(DropReason::PortNoReceive)]
        );
    }
}

#[test]
fn a_packet_in_says_where_it_comes_from() {
    let mut bridge = Bridge::new(2);
    let controller = Action::Output {
        port: PortNo::CONTROLLER,
        max_len: 128,
    };
    let mut request = crate::harness::add(
        0,
        7,
        "tcp",
        Instructions {
            write_metadata: Some(WriteMetadata {
                value: 0x1200,
                mask: 0xff00,
            }),
            ..Instructions::goto(TableId(2))
        },
    );
    request.cookie = Cookie(1);
    bridge.flow_mod(request).unwrap();
    let mut request = crate::harness::add(2, 7, "metadata=0x1200", Instructions::apply([controller]));
    request.cookie = Cookie(42);
    bridge.flow_mod(request).unwrap();
    bridge.add(2, 0, "", Instructions::apply([controller]));
    bridge.add(0, 0, "", Instructions::apply([controller]));
    let origin = Origin {
        tunnel_id: 9,
        ..PortNo::from_raw(1).into()
    };
    let tcp = frame(TCP);
    let [Event::PacketIn(info, bytes)] = &bridge.receive_from(origin, std::slice::from_ref(&tcp))[..] else {
        panic!("a packet-in");
    };
    assert_eq!(*bytes, tcp);
    assert_eq!((info.reason, info.table), (PacketInReason::Action, TableId(2)));
    assert_eq!((info.cookie, info.max_len), (Cookie(42), 128));
    assert_eq!(
        (info.in_port.raw(), info.metadata, info.tunnel_id),
        (1, 0x1200, 9)
    );
    let [Event::PacketIn(info, _)] = &bridge.one(2, &frame("udp"))[..] else {
        panic!("a packet-in");
    };
    assert_eq!((info.reason, info.table), (PacketInReason::NoMatch, TableId(0)));
}

#[test]
fn a_port_can_refuse_packet_ins_of_table_misses() {
    let mut bridge = Bridge::new(2);
    bridge.add(
        0,
        0,
        "",
        Instructions::apply([Action::output(PortNo::CONTROLLER)]),
    );
    let quiet = PortConfig::NO_PACKET_IN;
    bridge
        .change(|control, ops| {
            control
                .port_mod(PortNo::from_raw(1), quiet, quiet, ops)
                .map(|_| ())
        })
        .unwrap();
    assert_eq!(
        bridge.one(1, &frame(TCP)),
        [Event::Dropped(DropReason::PortNoPacketIn)]
    );
    bridge.apply("tcp", &[Action::output(PortNo::CONTROLLER)]);
    assert!(matches!(bridge.one(1, &frame(TCP))[..], [Event::PacketIn(..)]));
}

#[test]
fn the_action_set_is_merged_over_tables_cleared_and_executed_at_the_end() {
    let mut bridge = Bridge::new(4);
    let mut first = write(&[out(2), set(Field::EthDst, 0x0200_0000_0001)]);
    first.goto_table = Some(TableId(1));
    bridge.add(0, 1, "", first);
    let mut second = write(&[out(3)]);
    second.goto_table = Some(TableId(2));
    bridge.add(1, 1, "", second);
    bridge.add(2, 2, "udp", write(&[]));
    let clear = Instructions {
        clear_actions: true,
        ..write(&[out(4)])
    };
    bridge.add(2, 1, "tcp", clear);
    bridge.add(
        2,
        3,
        "icmp",
        Instructions {
            clear_actions: true,
            ..Instructions::default()
        },
    );
    let udp = sent(&bridge.one(1, &frame("udp")));
    assert_eq!((udp[0].0, udp[0].1[5]), (3, 1));
    let tcp = frame(TCP);
    assert_eq!(sent(&bridge.one(1, &tcp)), [(4, tcp)]);
    assert_eq!(
        bridge.one(1, &frame("icmp")),
        [Event::Dropped(DropReason::NoOutput)]
    );
    assert_eq!(
        bridge.one(1, &frame("arp")),
        [Event::Dropped(DropReason::TableMiss)],
        "a miss in a later table drops the action set, too"
    );
}

#[test]
fn later_tables_see_what_earlier_actions_made_of_the_packet() {
    let mut bridge = Bridge::new(4);
    let rewrite = [
        Action::PushVlan(EtherType::VLAN),
        set(Field::VlanVid, 0x1064),
        set(Field::Ipv4Dst, 0x0a00_0009),
        set(Field::TcpDst, 8080),
        set(Field::TunnelId, 77),
    ];
    bridge.add(0, 1, "tcp", apply_goto(&rewrite, 1));
    bridge.add(
        1,
        1,
        "tcp,dl_vlan=100,nw_dst=10.0.0.9,tp_dst=8080,tun_id=77",
        apply_goto(&[Action::PopVlan, Action::PushMpls(EtherType::MPLS)], 2),
    );
    bridge.add(
        2,
        1,
        "mpls,mpls_bos=1,mpls_label=0,vlan_vid=0",
        Instructions::apply([out(2)]),
    );
    assert_eq!(ports(&bridge.one(1, &frame(TCP))), [2]);
}

#[test]
fn metadata_is_written_under_its_mask_and_matched_by_later_tables() {
    let mut bridge = Bridge::new(2);
    let metadata = |value, mask, table| Instructions {
        write_metadata: Some(WriteMetadata { value, mask }),
        ..Instructions::goto(TableId(table))
    };
    bridge.add(0, 1, "", metadata(0xff, 0xff, 1));
    bridge.add(1, 1, "metadata=0xff", metadata(0x10, 0xf0, 2));
    bridge.add(2, 1, "metadata=0x1f", Instructions::apply([out(2)]));
    assert_eq!(ports(&bridge.one(1, &frame(TCP))), [2]);
}

#[test]
fn packets_of_one_flow_leave_in_the_order_in_which_they_came() {
    let mut bridge = Bridge::new(3);
    bridge.add(0, 1, "tcp", apply_goto(&[], 3));
    bridge.add(3, 1, "", Instructions::apply([out(2)]));
    bridge.add(0, 1, "udp", Instructions::apply([out(3)]));
    let frames: Vec<Vec<u8>> = (0..200)
        .map(|i| frame(&format!("{},tp_src={i}", if i % 3 == 0 { "udp" } else { "tcp" })))
        .collect();
    let sent = sent(&bridge.receive(1, &frames));
    for (port, is_udp) in [(2, false), (3, true)] {
        let got: Vec<&Vec<u8>> = sent
            .iter()
            .filter(|(to, _)| *to == port)
            .map(|(_, bytes)| bytes)
            .collect();
        let want: Vec<&Vec<u8>> = frames
            .iter()
            .filter(|frame| (frame[23] == 17) == is_udp)
            .collect();
        assert_eq!(got, want);
    }
}

#[test]
fn set_queue_applies_to_the_outputs_that_follow() {
    let mut bridge = Bridge::new(3);
    bridge.apply("", &[out(2), Action::SetQueue(QueueId(5)), out(3)]);
    let queues: Vec<_> = bridge
        .one(1, &frame(TCP))
        .into_iter()
        .map(|event| match event {
            Event::Out(port, queue, _) => (port, queue),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(queues, [(2, None), (3, Some(5))]);
}

#[test]
fn a_ttl_that_runs_out_is_dropped_or_told_to_the_controllers() {
    let mut bridge = Bridge::new(2);
    bridge.apply("ip", &[Action::DecNwTtl, out(2)]);
    let expired = frame("tcp,nw_ttl=1");
    assert_eq!(bridge.one(1, &expired), [Event::Dropped(DropReason::InvalidTtl)]);
    bridge.change(|control, ops| control.set_invalid_ttl_to_controller(true, ops));
    let [Event::PacketIn(info, bytes)] = &bridge.one(1, &expired)[..] else {
        panic!("a packet-in");
    };
    assert_eq!((info.reason, bytes), (PacketInReason::InvalidTtl, &expired));
    let sent = sent(&bridge.one(1, &frame("tcp,nw_ttl=2")));
    assert_eq!(sent[0].1, frame("tcp,nw_ttl=1"));
}

#[test]
fn a_packet_out_goes_where_its_actions_say_and_through_the_tables_if_they_do() {
    let mut bridge = Bridge::new(3);
    let tcp = frame(TCP);
    assert_eq!(
        sent(&bridge.packet_out(PortNo::CONTROLLER, &[out(2), out(3)], &tcp)),
        [(2, tcp.clone()), (3, tcp.clone())]
    );
    bridge.apply("in_port=1,eth_dst=02:00:00:00:00:05", &[out(3)]);
    let to_tables = [
        set(Field::EthDst, 0x0200_0000_0005),
        Action::output(PortNo::TABLE),
    ];
    let events = bridge.packet_out(PortNo::from_raw(1), &to_tables, &tcp);
    assert_eq!(ports(&events), [3]);
    assert_eq!(
        bridge.packet_out(PortNo::from_raw(1), &[], &tcp),
        [Event::Dropped(DropReason::NoOutput)]
    );
}

#[test]
fn counters_count_packets_bytes_lookups_and_matches() {
    let mut bridge = Bridge::new(3);
    let with_cookie = |cookie, table, priority, match_: &str, instructions| {
        let mut request = crate::harness::add(table, priority, match_, instructions);
        request.cookie = Cookie(cookie);
        request
    };
    bridge
        .flow_mod(with_cookie(1, 0, 5, "tcp", apply_goto(&[], 1)))
        .unwrap();
    bridge
        .flow_mod(with_cookie(2, 0, 0, "", Instructions::apply([out(3)])))
        .unwrap();
    bridge
        .flow_mod(with_cookie(3, 1, 5, "", Instructions::apply([out(2)])))
        .unwrap();
    let (tcp, udp) = (frame("tcp,size=100"), frame("udp,size=60"));
    let frames: Vec<Vec<u8>> = (0..100)
        .map(|i| if i % 4 == 0 { udp.clone() } else { tcp.clone() })
        .collect();
    bridge.receive(1, &frames);
    assert_eq!(bridge.counts(), [(1, 75, 7500), (2, 25, 1500), (3, 75, 7500)]);
    let tables: Vec<_> = bridge
        .control
        .table_stats()
        .take(3)
        .map(|table| (table.active, table.lookups, table.matches))
        .collect();
    assert_eq!(tables, [(2, 100, 75), (1, 75, 75), (0, 0, 0)]);
}

#[test]
fn an_armed_trace_takes_as_many_packets_as_it_waits_for() {
    let mut bridge = Bridge::new(2);
    bridge.apply("in_port=1", &[Action::PushVlan(EtherType::VLAN), out(2)]);
    let trace = Arc::new(LiveTrace::new(7, &matching("tcp,tp_dst=80"), 2));
    bridge.change(|control, ops| control.arm_trace(Arc::clone(&trace), ops));
    let tcp = frame(TCP);
    let frames = [frame("udp"), tcp.clone(), tcp.clone(), tcp.clone()];
    let events = bridge.receive(1, &frames);
    let traced: Vec<_> = events
        .iter()
        .filter(|event| matches!(event, Event::Traced(..)))
        .collect();
    assert_eq!(traced, [&Event::Traced(7, tcp.clone()), &Event::Traced(7, tcp)]);
    assert_eq!((trace.remaining(), ports(&events).len()), (0, 4));
    bridge.change(|control, ops| control.disarm_trace(7, ops));
    assert_eq!(bridge.active.depth(), None, "in_port alone needs no parse");
}

#[test]
fn an_explanation_says_what_really_happens_and_leaves_no_trace() {
    let mut bridge = Bridge::new(3);
    bridge.add(
        0,
        5,
        "tcp",
        apply_goto(&[set(Field::EthDst, 0x0200_0000_0005)], 1),
    );
    bridge.add(
        1,
        5,
        "eth_dst=02:00:00:00:00:05",
        write(&[out(2), Action::PushVlan(EtherType::VLAN)]),
    );
    let tcp = frame(TCP);
    let explanation = explain(&bridge.active, PortNo::from_raw(1), &tcp, bridge.now);
    assert!(bridge.counts().iter().all(|(_, packets, _)| *packets == 0));
    let Some(Step::Output {
        port, frame: bytes, ..
    }) = explanation.steps.last()
    else {
        panic!("{explanation}");
    };
    assert_eq!(sent(&bridge.one(1, &tcp)), [(port.raw(), bytes.clone())]);
    let text = explanation.to_string();
    for piece in [
        "table 0: priority 5",
        "table 1: priority 5",
        "action set: push_vlan",
        "-> port 2, 64 bytes",
    ] {
        assert!(text.contains(piece), "{piece} in\n{text}");
    }
    let dropped = explain(&bridge.active, PortNo::from_raw(1), &frame("udp"), bridge.now);
    assert_eq!(
        dropped.steps,
        [
            Step::Missed { table: TableId(0) },
            Step::Dropped(DropReason::TableMiss)
        ]
    );
}

#[test]
fn a_group_that_does_not_exist_is_refused() {
    let mut bridge = Bridge::new(1);
    let request = crate::harness::add(0, 1, "", Instructions::apply([Action::Group(GroupId(1))]));
    assert_eq!(
        bridge.flow_mod(request).unwrap_err().code(),
        ErrorCode::OFPBAC_BAD_OUT_GROUP
    );
}

#[test]
fn what_a_later_entry_does_alone_depends_on_what_earlier_ones_left_to_be_done() {
    let mut bridge = Bridge::new(5);
    let tag = [Action::PushVlan(EtherType::VLAN), set(Field::VlanVid, 0x1005)];
    bridge.add(0, 1, "in_port=1", apply_goto(&tag, 1));
    bridge.add(0, 1, "in_port=2", apply_goto(&[out(3)], 1));
    bridge.add(0, 1, "in_port=3", apply_goto(&[Action::SetQueue(QueueId(7))], 1));
    let written = Instructions {
        write_actions: Some([out(2)].into()),
        ..Instructions::goto(TableId(1))
    };
    bridge.add(0, 1, "in_port=5", written);
    let mac = set(Field::EthDst, 0x0200_0000_00aa);
    bridge.add(1, 2, "tcp", Instructions::apply([mac, out(4)]));
    bridge.add(1, 1, "", Instructions::default());

    // The tag was pushed before the addresses are written, no matter which code executes the actions.
    let (datagram, before) = (frame("udp"), frame(TCP));
    let left = sent(&bridge.one(1, &before));
    assert_eq!(left.len(), 1);
    let (port, tagged) = &left[0];
    assert_eq!((*port, &tagged[..6]), (4, &[2, 0, 0, 0, 0, 0xaa][..]));
    assert_eq!(tagged[12..16], [0x81, 0, 0, 5]);
    assert_eq!(tagged[16..], before[12..]);
    assert_eq!(bridge.one(1, &datagram), [Event::Dropped(DropReason::NoOutput)]);
    // A copy was output before, so the drop at the end of the pipeline is not counted.
    let mut both = ports(&bridge.one(2, &before));
    both.sort_unstable();
    assert_eq!(both, [3, 4]);
    assert_eq!(sent(&bridge.one(2, &datagram)), [(3, datagram.clone())]);
    assert_eq!(bridge.control.drops(DropReason::NoOutput), 1);
    // The queue stays set in the next table.
    let event = bridge.one(3, &before);
    assert!(matches!(event[..], [Event::Out(4, Some(7), _)]), "{event:?}");
    // The action set is executed after the last table.
    let mut both = ports(&bridge.one(5, &before));
    both.sort_unstable();
    assert_eq!(both, [2, 4]);
    assert_eq!(ports(&bridge.one(5, &datagram)), [2]);
}
