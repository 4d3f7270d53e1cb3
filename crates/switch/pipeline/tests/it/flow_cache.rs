//! A bridge that caches traversals acts as one that does not: packets, events, counters, timeouts, drops by reason.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use crate::harness::{Bridge, Event, frame, matching, out, set};
use millrace_flow::{Action, Bucket, Field, Instructions, WriteMetadata};
use millrace_pipeline::{
    ControlConfig, DropReason, FlowCachePolicy, FlowMod, FlowModCommand, GroupKind, Op, PortConfig,
};
use millrace_types::{Duration, GroupId, PortNo, Priority, TableId};
use millrace_wire::EtherType;
use proptest::prelude::*;

pub(crate) const TABLES: u8 = 5;
pub(crate) const PORTS: u32 = 5;

pub(crate) fn bridge(policy: FlowCachePolicy) -> Bridge {
    let config = ControlConfig {
        tables: TABLES,
        flow_cache: policy,
        ..ControlConfig::default()
    };
    Bridge::with(config, PORTS)
}

/// Matches, and the headers that each guarantees: IPv4, TCP, a VLAN tag.
const MATCHES: [(&str, [bool; 3]); 26] = [
    ("", [false; 3]),
    ("in_port=1", [false; 3]),
    ("ip", [true, false, false]),
    ("ip,nw_dst=10.0.0.0/30", [true, false, false]),
    ("ip,nw_src=10.1.0.2", [true, false, false]),
    ("tcp", [true, true, false]),
    ("tcp,tp_dst=81", [true, true, false]),
    ("tcp,nw_dst=10.0.0.1,tp_dst=80", [true, true, false]),
    ("vlan_vid=0x1000/0x1000", [false, false, true]),
    ("dl_vlan=5", [false, false, true]),
    ("ip,dl_vlan=6", [true, false, true]),
    ("dl_dst=02:00:00:00:00:07", [false; 3]),
    ("metadata=1/3", [false; 3]),
    ("metadata=0x12", [false; 3]),
    ("ip,ip_ecn=1", [true, false, false]),
    ("ipv6", [false; 3]),
    ("ip,nw_ttl=1", [true, false, false]),
    ("ip,nw_ttl=63", [true, false, false]),
    ("ip,nw_ttl=9", [true, false, false]),
    ("ip,nw_frag=later", [true, false, false]),
    ("ip,nw_frag=yes", [true, false, false]),
    ("tcp,tcp_flags=+syn-ack", [true, true, false]),
    ("tcp,tcp_flags=+ns", [true, true, false]),
    ("tcp,tp_dst=80/0xfffe", [true, true, false]),
    ("sctp", [true, false, false]),
    ("sctp,tp_dst=81", [true, false, false]),
];

fn action(number: u8, value: u8, [ip, tcp, tag]: [bool; 3]) -> Action {
    let value = u128::from(value);
    match number {
        0 => set(Field::EthDst, 0x0200_0000_0006 + value),
        1 => set(Field::EthSrc, 0x0200_0000_0001),
        2 => Action::DecNwTtl,
        3 if tag => set(Field::VlanVid, 0x1005 + value),
        4 if ip => set(Field::Ipv4Dst, 0x0a00_0001 + value),
        5 if tcp => set(Field::TcpDst, 80 + value),
        6 if value < 3 => Action::PushVlan(EtherType::VLAN),
        6 => Action::PushVlan(EtherType::QINQ),
        7 if tag => Action::PopVlan,
        8 => out(1 + value as u32),
        9 => Action::output(PortNo::CONTROLLER),
        10 => Action::SetQueue(millrace_types::QueueId(1)),
        11 => Action::output(PortNo::NORMAL),
        12 if ip => set(Field::IpEcn, value % 4),
        14 => Action::SetNwTtl(9 + value as u8),
        _ => out(2),
    }
}

fn flow_mod() -> impl Strategy<Value = FlowMod> {
    let actions = || prop::collection::vec((0..15_u8, 0..4_u8), 0..4);
    let metadata = prop::option::weighted(0.3, (0..20_u64, prop::sample::select(vec![3_u64, 0xff])));
    let place = (0..TABLES, 0..MATCHES.len(), 0..3_u16, 0..10_u8);
    (
        place,
        actions(),
        prop::option::weighted(0.3, actions()),
        metadata,
        prop::option::weighted(0.7, 1..3_u8),
        any::<u8>(),
    )
        .prop_map(
            |((table, at, priority, command), apply, write, metadata, on, marks)| {
                let (text, sure) = MATCHES[at];
                let list = |list: Vec<(u8, u8)>, is_set: bool| -> Box<[Action]> {
                    let mut sure = sure;
                    let mut made: Vec<Action> = Vec::new();
                    for (number, value) in list {
                        let action = action(number, value, sure);
                        match action {
                            Action::PushVlan(_) => sure[2] = true,
                            // After a pop the match guarantees no header.
                            Action::PopVlan => sure = [false; 3],
                            _ => {}
                        }
                        if !is_set || !matches!(action, Action::PushVlan(_) | Action::PopVlan) {
                            made.push(action);
                        }
                    }
                    made.into()
                };
                let command = match command {
                    0 => FlowModCommand::Delete,
                    1 => FlowModCommand::DeleteStrict,
                    2 => FlowModCommand::Modify,
                    _ => FlowModCommand::Add,
                };
                FlowMod {
                    instructions: Instructions {
                        apply_actions: (!apply.is_empty()).then(|| list(apply, false)),
                        clear_actions: marks % 8 == 0,
                        write_actions: write.map(|write| list(write, true)),
                        write_metadata: metadata.map(|(value, mask)| WriteMetadata {
                            value: value & mask,
                            mask,
                        }),
                        goto_table: on.map(|on| TableId(table + on)).filter(|to| to.0 < TABLES),
                        ..Instructions::default()
                    },
                    idle_timeout: u16::from(marks / 8 % 3),
                    hard_timeout: u16::from(marks / 32 % 4),
                    flags: millrace_pipeline::FlowFlags::SEND_FLOW_REM,
                    cookie: millrace_types::Cookie(u64::from(marks)),
                    ..FlowMod::new(command, TableId(table), Priority(priority), matching(text))
                }
            },
        )
}

fn packet() -> impl Strategy<Value = Vec<u8>> {
    let kind = prop::sample::select(vec!["tcp", "tcp", "tcp", "udp", "icmp", "arp", "tcp6", "sctp"]);
    (kind, 0..5_u8, 0..3_u8, 0..4_u8, 0..4_u8, 0..3_u8).prop_map(|(kind, dst, port, vlan, ttl, more)| {
        let mut text = kind.to_owned();
        if matches!(kind, "tcp" | "udp" | "sctp") {
            let (ttl, ecn) = ([64, 2, 1, 0][usize::from(ttl)], more % 2);
            text += &format!(",nw_src=10.1.0.{more},nw_dst=10.0.0.{dst},nw_ttl={ttl},ip_ecn={ecn}");
        }
        match (kind, vlan, more) {
            ("udp", 0, 1) => text += ",nw_frag=first",
            ("udp" | "tcp", 0, 2) => text += ",nw_frag=later",
            ("sctp", 0, 1) => text += ",nw_frag=first",
            ("tcp", 0, more) => {
                text += [",tcp_flags=ack", ",tcp_flags=syn|ack", ",tcp_flags=ns"][usize::from(more)];
            }
            _ => {}
        }
        if matches!(kind, "tcp" | "sctp") && !text.ends_with("later") {
            text += &format!(",tp_dst={}", 80 + port);
        }
        if vlan > 1 {
            text += &format!(",dl_vlan={},dl_vlan_pcp={more}", 3 + vlan);
        }
        text += &format!(",dl_dst=02:00:00:00:00:{:02x}", 6 + dst);
        let mut frame = frame(&text);
        if vlan == 3 && more == 2 {
            let two_tags = [0x88, 0xa8, 0, 5 + port];
            frame.splice(12..12, two_tags);
        }
        frame
    })
}

#[derive(Clone, Debug)]
pub(crate) enum Step {
    Change(Vec<FlowMod>),
    /// Packets from a port, repeated.
    Packets(u32, Vec<Vec<u8>>, usize),
    /// Sets a port down or up.
    Port(u32, bool),
    Wait(u64),
    TtlToController(bool),
}

pub(crate) fn steps() -> impl Strategy<Value = Vec<Step>> {
    let packets = (1..3_u32, prop::collection::vec(packet(), 1..100), 1..4_usize);
    let step = prop_oneof![
        4 => prop::collection::vec(flow_mod(), 1..6).prop_map(Step::Change),
        6 => packets.prop_map(|(port, frames, times)| Step::Packets(port, frames, times)),
        1 => (1..=PORTS, any::<bool>()).prop_map(|(port, up)| Step::Port(port, up)),
        1 => (1..4_u64).prop_map(Step::Wait),
        1 => any::<bool>().prop_map(Step::TtlToController),
    ];
    (
        prop::collection::vec(flow_mod(), 4..20),
        prop::collection::vec(step, 1..16),
    )
        .prop_map(|(first, mut steps)| {
            steps.insert(0, Step::Change(first));
            steps
        })
}

/// The observable results of packets and requests on a bridge.
#[derive(Debug, PartialEq)]
pub(crate) struct Seen {
    pub(crate) sent: Vec<(u32, Option<u32>, Vec<u8>)>,
    pub(crate) told: Vec<String>,
    pub(crate) drops: Vec<u64>,
    pub(crate) counts: Vec<(u64, u64, u64)>,
    pub(crate) tables: Vec<(u64, u64)>,
    pub(crate) removed: Vec<String>,
}

fn set_port(bridge: &mut Bridge, number: u32, config: PortConfig) {
    bridge.change(|control, ops| {
        let done = control.port_mod(PortNo::from_raw(number), config, PortConfig::DOWN, ops);
        done.map(|_| ()).unwrap();
    });
}

pub(crate) fn carry_out(bridge: &mut Bridge, step: &Step) -> Seen {
    let mut events = Vec::new();
    match step {
        Step::Change(requests) => {
            for request in requests {
                // Both bridges refuse the same requests.
                let _refused = bridge.flow_mod(request.clone());
            }
        }
        Step::Packets(port, frames, times) => {
            for _ in 0..*times {
                events.extend(bridge.receive(*port, frames));
            }
        }
        Step::Port(number, up) => {
            let config = if *up {
                PortConfig::default()
            } else {
                PortConfig::DOWN
            };
            set_port(bridge, *number, config);
        }
        Step::Wait(seconds) => {
            bridge.now = bridge.now + Duration::from_secs(*seconds);
            bridge.expire();
        }
        Step::TtlToController(on) => {
            bridge.change(|_, ops| ops.push(Op::InvalidTtlToController(*on)));
        }
    }
    let mut seen = Seen {
        sent: Vec::new(),
        told: Vec::new(),
        drops: DropReason::ALL
            .iter()
            .map(|reason| bridge.processor.counters().drops.read(*reason))
            .collect(),
        counts: bridge.counts(),
        tables: (0..TABLES)
            .map(|table| {
                let count = bridge.processor.counters().read_table(TableId(table));
                (count.lookups, count.matches)
            })
            .collect(),
        removed: bridge
            .removed
            .drain(..)
            .map(|removed| format!("{removed:?}"))
            .collect(),
    };
    for event in events {
        match event {
            Event::Out(port, queue, bytes) => seen.sent.push((port, queue, bytes)),
            Event::Dropped(_) => {}
            other => seen.told.push(format!("{other:?}")),
        }
    }
    // Another property checks the order of packets.
    seen.sent.sort();
    seen.told.sort();
    // An address may be reported more than once.
    seen.told.dedup_by(|a, b| a == b && a.starts_with("Learn"));
    seen
}

pub(crate) fn cases() -> u32 {
    std::env::var("MILLRACE_CASES").map_or(256, |text| text.parse().unwrap())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), ..ProptestConfig::default() })]

    #[test]
    fn paths_that_are_kept_make_no_difference(steps in steps()) {
        let mut without = bridge(FlowCachePolicy::Off);
        let mut with = bridge(FlowCachePolicy::Always);
        for (number, step) in steps.iter().enumerate() {
            let expected = carry_out(&mut without, step);
            let got = carry_out(&mut with, step);
            prop_assert_eq!(&got.tables, &expected.tables, "step {}", number);
            prop_assert_eq!(&got.counts, &expected.counts, "step {}", number);
            prop_assert_eq!(&got.drops, &expected.drops, "step {}", number);
            prop_assert_eq!(&got.told, &expected.told, "step {}", number);
            prop_assert_eq!(got, expected, "step {}", number);
        }
    }
}

/// set_field does not change a fragment whose transport header is incomplete or missing. The key of such a
/// fragment must therefore differ from the key of a whole packet.
#[test]
fn fragments_do_not_follow_whole_packets_where_a_port_is_set() {
    let sets = [
        (
            "sctp",
            Field::SctpDst,
            80,
            "sctp,tp_dst=80",
            "sctp,nw_frag=first,tp_dst=5",
        ),
        (
            "tcp",
            Field::TcpDst,
            40_000,
            "tcp,tp_dst=0x8000/0x8000",
            "tcp,nw_frag=later",
        ),
    ];
    for (kind, field, port, matched, fragment) in sets {
        let frames = [frame(&format!("{kind},tp_dst=5")), frame(fragment)];
        for order in [[0, 0, 1, 0], [1, 1, 0, 1]] {
            let ports = [FlowCachePolicy::Off, FlowCachePolicy::Always].map(|policy| {
                let mut bridge = bridge(policy);
                let changed = Instructions {
                    apply_actions: Some([set(field, port)].into()),
                    ..Instructions::goto(TableId(1))
                };
                bridge.add(0, 1, kind, changed);
                bridge.add(1, 1, matched, Instructions::apply([out(2)]));
                bridge.add(1, 0, "", Instructions::apply([out(3)]));
                order.map(|at| crate::harness::ports(&bridge.one(1, &frames[at])))
            });
            assert_eq!(ports[0], ports[1], "{kind}, {order:?}");
            assert_eq!(ports[0], order.map(|at| vec![2 + at as u32]), "{kind}, {order:?}");
        }
    }
}

/// Returns a bridge that routes in three tables.
fn router(policy: FlowCachePolicy) -> Bridge {
    let mut bridge = bridge(policy);
    bridge.add(0, 1, "in_port=1", Instructions::goto(TableId(1)));
    let route = |hop: u64| Instructions {
        apply_actions: Some([Action::DecNwTtl].into()),
        write_metadata: Some(WriteMetadata {
            value: hop,
            mask: 0xff,
        }),
        ..Instructions::goto(TableId(2))
    };
    bridge.add(1, 2, "ip,nw_dst=10.0.0.0/24", route(1));
    bridge.add(1, 1, "ip", route(2));
    for hop in 1..=2 {
        let changed = set(Field::EthDst, 0x0200_0000_0000 + hop);
        let last = Instructions::apply([changed, out(1 + hop as u32)]);
        bridge.add(2, 1, &format!("metadata={hop}"), last);
    }
    bridge
}

#[test]
fn a_change_of_one_table_is_seen_by_the_next_packet() {
    let mut bridge = router(FlowCachePolicy::Always);
    let near = frame("tcp,nw_dst=10.0.0.1");
    for _ in 0..3 {
        assert_eq!(crate::harness::ports(&bridge.one(1, &near)), [2]);
    }
    let dropped = Instructions::default();
    bridge.add(1, 9, "ip,nw_dst=10.0.0.1", dropped);
    assert_eq!(bridge.one(1, &near), [Event::Dropped(DropReason::NoOutput)]);
    bridge
        .flow_mod(FlowMod::new(
            FlowModCommand::DeleteStrict,
            TableId(1),
            Priority(9),
            matching("ip,nw_dst=10.0.0.1"),
        ))
        .unwrap();
    assert_eq!(crate::harness::ports(&bridge.one(1, &near)), [2]);
    set_port(&mut bridge, 2, PortConfig::DOWN);
    assert_eq!(bridge.one(1, &near), [Event::Dropped(DropReason::PortDown)]);
}

#[test]
fn a_time_to_live_that_runs_out_is_seen_on_a_path_that_is_known() {
    let mut bridge = router(FlowCachePolicy::Always);
    let (alive, dying) = (
        frame("tcp,nw_dst=10.0.0.1,nw_ttl=2"),
        frame("tcp,nw_dst=10.0.0.1,nw_ttl=1"),
    );
    for _ in 0..3 {
        let sent = crate::harness::sent(&bridge.one(1, &alive));
        assert_eq!(sent[0].1[14..], frame("tcp,nw_dst=10.0.0.1,nw_ttl=1")[14..]);
        assert_eq!(bridge.one(1, &dying), [Event::Dropped(DropReason::InvalidTtl)]);
    }
    let last = bridge.processor.counters().read_table(TableId(2));
    assert_eq!(last.lookups, 3);
}

#[test]
fn a_table_that_matches_the_ttl_sees_what_tables_before_made_of_it() {
    for policy in [FlowCachePolicy::Off, FlowCachePolicy::Always] {
        let mut bridge = bridge(policy);
        let then = |actions: &[Action]| Instructions {
            apply_actions: Some(actions.into()),
            ..Instructions::goto(TableId(1))
        };
        bridge.add(0, 2, "udp", then(&[Action::DecNwTtl]));
        bridge.add(0, 2, "udp6", then(&[Action::DecNwTtl]));
        bridge.add(0, 2, "tcp", then(&[Action::SetNwTtl(200), Action::DecNwTtl]));
        bridge.add(0, 2, "tcp6", then(&[Action::SetNwTtl(200), Action::DecNwTtl]));
        for (text, port) in [("nw_ttl=199", 2), ("nw_ttl=8", 3), ("nw_ttl=9", 4)] {
            for ip in ["ip", "ipv6"] {
                bridge.add(1, 1, &format!("{ip},{text}"), Instructions::apply([out(port)]));
            }
        }
        bridge.add(1, 0, "", Instructions::apply([out(5)]));
        for _ in 0..3 {
            for (packet, port) in [
                ("udp,nw_ttl=9", 3),
                ("udp6,nw_ttl=9", 3),
                ("udp,nw_ttl=10", 4),
                ("udp6,nw_ttl=10", 4),
                ("udp,nw_ttl=11", 5),
                ("tcp,nw_ttl=9", 2),
                ("tcp6,nw_ttl=0", 2),
                ("arp", 5),
            ] {
                // An ARP packet matches no entry of table 0.
                let expected: &[u32] = if packet == "arp" { &[] } else { &[port] };
                assert_eq!(
                    crate::harness::ports(&bridge.one(1, &frame(packet))),
                    expected,
                    "{packet}"
                );
            }
        }
    }
}

#[test]
fn a_bucket_that_changes_the_ttl_of_its_copy_does_not_change_that_of_the_packet() {
    let mut bridge = bridge(FlowCachePolicy::Off);
    let bucket = Bucket::new([Action::SetNwTtl(7), out(3)]);
    bridge.add_group(1, GroupKind::All, vec![bucket]);
    let first = Instructions {
        apply_actions: Some([Action::Group(GroupId(1))].into()),
        ..Instructions::goto(TableId(1))
    };
    bridge.add(0, 1, "ip", first);
    bridge.add(1, 1, "ip,nw_ttl=7", Instructions::apply([out(4)]));
    bridge.add(1, 1, "ip,nw_ttl=64", Instructions::apply([out(2)]));
    let mut ports = crate::harness::ports(&bridge.one(1, &frame("udp,nw_ttl=64")));
    ports.sort_unstable();
    assert_eq!(ports, [2, 3]);
}

#[test]
fn a_connection_stays_in_order_whatever_bits_of_it_are_matched() {
    let mut bridge = router(FlowCachePolicy::Always);
    // The entry makes these bits part of the cached traversals.
    bridge.add(0, 9, "ip,ip_ecn=3", Instructions::goto(TableId(1)));
    let packet = |ecn: u8, number: u8| {
        let mut bytes = frame(&format!("tcp,nw_dst=10.0.0.1,ip_ecn={ecn}"));
        // A byte of the payload.
        let last = bytes.len() - 1;
        bytes[last] = number;
        bytes
    };
    for first in 0..3 {
        bridge.receive(1, &[packet(first, 0)]);
        let frames: Vec<Vec<u8>> = (0..60)
            .map(|number| packet(number % 4 % (first + 2), number))
            .collect();
        let sent = crate::harness::sent(&bridge.receive(1, &frames));
        let numbers: Vec<u8> = sent.iter().map(|(_, bytes)| bytes[bytes.len() - 1]).collect();
        assert_eq!(numbers, (0..60).collect::<Vec<u8>>());
    }
}

#[test]
fn each_of_many_flows_takes_its_own_path_while_the_cache_grows() {
    /// More flows than the cache has room for at first.
    const FLOWS: u32 = 80_000;
    /// The next hop of this many flows is on port 2, that of all others on port 3.
    const NEAR: u32 = 256;
    /// Offset of the destination address in a frame without a tag.
    const DESTINATION: usize = 14 + 16;
    let mut bridge = router(FlowCachePolicy::Always);
    // The entry makes the whole address part of the cached traversals.
    bridge.add(1, 9, "ip,nw_dst=10.255.255.255", Instructions::default());
    let flow = |number: u32| {
        let mut bytes = frame("tcp,nw_dst=10.0.0.1");
        bytes[DESTINATION..DESTINATION + 4].copy_from_slice(&(0x0a00_0000 + number).to_be_bytes());
        bytes
    };
    let flows: Vec<Vec<u8>> = (0..FLOWS).map(flow).collect();
    let ports_are = |bridge: &mut Bridge, near: u32| {
        for (frames, first) in flows.chunks(64).zip((0..).step_by(64)) {
            let expected = if first < NEAR { near } else { 3 };
            let ports = crate::harness::ports(&bridge.receive(1, frames));
            assert_eq!(ports, vec![expected; frames.len()], "flow {first} and following");
        }
    };
    for _ in 0..3 {
        ports_are(&mut bridge, 2);
    }
    let near = FlowMod::new(
        FlowModCommand::DeleteStrict,
        TableId(1),
        Priority(2),
        matching("ip,nw_dst=10.0.0.0/24"),
    );
    bridge.flow_mod(near).unwrap();
    for _ in 0..2 {
        ports_are(&mut bridge, 3);
    }
}
