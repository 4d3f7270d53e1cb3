//! Actions: examples, and properties of random packets and actions.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use crate::harness::{Bridge, Event, frame, out, sent, set};
use millrace_flow::{Action, Field, FlowKey, Instructions, Prerequisite, SetField, WriteMetadata};
use millrace_types::{PortNo, QueueId, TableId};
use millrace_wire::checksum::{Sum, crc32c};
use millrace_wire::ip::Pseudo;
use millrace_wire::{Depth, EtherType, Fragment, L3, L4, Layers};
use proptest::prelude::*;

/// Returns the packet after these actions, executed by a packet_out, which validates no headers.
fn after(bytes: &[u8], actions: &[Action]) -> Vec<u8> {
    let mut bridge = Bridge::new(1);
    let actions = [actions, &[out(1)]].concat();
    let events = bridge.packet_out(PortNo::CONTROLLER, &actions, bytes);
    let [(1, bytes)] = &sent(&events)[..] else {
        panic!("{actions:?}: {events:?}");
    };
    bytes.clone()
}

const MACS: usize = 12;

#[test]
fn push_vlan_copies_the_tag_that_is_there_and_pop_takes_the_outermost() {
    let plain = frame("tcp");
    let tagged = after(&plain, &[Action::PushVlan(EtherType::VLAN)]);
    assert_eq!(
        tagged,
        [&plain[..MACS], &[0x81, 0, 0, 0], &plain[MACS..]].concat()
    );
    let set_tag = [set(Field::VlanVid, 0x1064), set(Field::VlanPcp, 5)];
    let tagged = after(&tagged, &set_tag);
    assert_eq!(tagged[MACS..MACS + 4], [0x81, 0, 0xa0, 0x64]);
    let twice = after(&tagged, &[Action::PushVlan(EtherType::QINQ)]);
    assert_eq!(
        twice[MACS..MACS + 8],
        [0x88, 0xa8, 0xa0, 0x64, 0x81, 0, 0xa0, 0x64]
    );
    assert_eq!(after(&twice, &[Action::PopVlan]), tagged);
    assert_eq!(after(&twice, &[Action::PopVlan, Action::PopVlan]), plain);
    assert_eq!(after(&plain, &[Action::PopVlan]), plain);
}

#[test]
fn push_mpls_takes_its_fields_from_the_outermost_shim_or_from_ip() {
    let push = [Action::PushMpls(EtherType::MPLS)];
    let ip = frame("tcp,nw_ttl=33");
    let one = after(&ip, &push);
    assert_eq!(
        one,
        [&ip[..MACS], &[0x88, 0x47, 0, 0, 1, 33], &ip[MACS + 2..]].concat()
    );
    let labelled = after(
        &one,
        &[
            set(Field::MplsLabel, 77),
            set(Field::MplsTc, 3),
            Action::DecMplsTtl,
        ],
    );
    let two = after(&labelled, &[Action::PushMpls(EtherType::MPLS_MULTICAST)]);
    let entry = 77u32 << 12 | 3 << 9 | 32;
    assert_eq!(
        two[MACS..MACS + 6],
        [&[0x88, 0x48][..], &entry.to_be_bytes()].concat()
    );
    assert_eq!(two[MACS + 6..], labelled[MACS + 2..]);
    assert_eq!(after(&frame("tcp6,nw_ttl=9"), &push)[17], 9);
    assert_eq!(after(&frame("arp"), &push)[14..18], [0, 0, 1, 0]);
    let back = [Action::PopMpls(EtherType::MPLS), Action::PopMpls(EtherType::IPV4)];
    assert_eq!(after(&two, &back), ip);
    assert_eq!(after(&ip, &[Action::PopMpls(EtherType::IPV4)]), ip);
}

#[test]
fn push_mpls_is_outside_of_vlan_tags_and_pop_with_their_type_undoes_it() {
    let tagged = frame("tcp,vlan_vid=0x1064,nw_ttl=7");
    let pushed = after(&tagged, &[Action::PushMpls(EtherType::MPLS)]);
    assert_eq!(pushed[MACS..MACS + 6], [0x88, 0x47, 0, 0, 1, 7]);
    assert_eq!(pushed[MACS + 6..], tagged[MACS + 2..]);
    assert_eq!(after(&pushed, &[Action::PopMpls(EtherType::VLAN)]), tagged);
}

#[test]
fn push_pbb_copies_the_addresses_and_the_priority_and_pop_gives_the_customers_frame() {
    let tagged = frame("tcp,vlan_vid=0x1064,vlan_pcp=5,dl_dst=02:00:00:00:00:01,dl_src=02:00:00:00:00:02");
    let pushed = after(
        &tagged,
        &[Action::PushPbb(EtherType::PBB), set(Field::PbbIsid, 0x12_3456)],
    );
    let tag = [0x88, 0xe7, 5 << 5, 0x12, 0x34, 0x56];
    assert_eq!(pushed, [&tagged[..MACS], &tag, &tagged].concat());
    let twice = after(&pushed, &[Action::PushPbb(EtherType::PBB)]);
    assert_eq!(
        twice[MACS + 3..MACS + 6],
        [0x12, 0x34, 0x56],
        "the service instance is copied"
    );
    let changed = after(&pushed, &[set(Field::EthDst, 9), Action::PopPbb]);
    assert_eq!(changed, tagged, "the backbone's address goes with the tag");
    let backbone = after(
        &pushed,
        &[Action::PushVlan(EtherType::QINQ), set(Field::VlanVid, 0x1007)],
    );
    let kept = after(&backbone, &[Action::PopPbb]);
    assert_eq!(
        kept,
        [&tagged[..MACS], &[0x88, 0xa8, 0, 7], &tagged[MACS..]].concat()
    );
}

#[test]
fn ttl_goes_in_and_out_between_shims_and_to_ip() {
    let ip = frame("tcp,nw_ttl=10");
    let two = after(
        &ip,
        &[
            Action::PushMpls(EtherType::MPLS),
            Action::SetMplsTtl(20),
            Action::PushMpls(EtherType::MPLS),
            Action::SetMplsTtl(30),
        ],
    );
    let copied = after(&two, &[Action::CopyTtlIn]);
    assert_eq!((copied[17], copied[21]), (30, 30));
    let copied = after(&two, &[Action::CopyTtlOut]);
    assert_eq!((copied[17], copied[21]), (20, 20));
    let inner = after(
        &two,
        &[
            Action::PopMpls(EtherType::MPLS),
            Action::CopyTtlIn,
            Action::PopMpls(EtherType::IPV4),
        ],
    );
    assert_eq!(inner, frame("tcp,nw_ttl=20"));
    assert_eq!(after(&ip, &[Action::SetNwTtl(99)]), frame("tcp,nw_ttl=99"));
    let plain = frame("arp");
    let ttl_actions = [
        Action::DecNwTtl,
        Action::DecMplsTtl,
        Action::CopyTtlIn,
        Action::CopyTtlOut,
    ];
    assert_eq!(after(&plain, &ttl_actions), plain);
}

#[test]
fn a_change_of_protocol_mends_the_checksum_of_the_old_one() {
    let tcp = frame("tcp,nw_src=10.0.0.1,nw_dst=10.0.0.2");
    let changed = after(&tcp, &[set(Field::IpProto, 17)]);
    let size = u16::from_be_bytes([tcp[16], tcp[17]]) as usize - 20;
    let pseudo = Pseudo::V4 {
        src: [10, 0, 0, 1].into(),
        dst: [10, 0, 0, 2].into(),
    };
    let sum = pseudo
        .sum(millrace_wire::IpProto(17), size)
        .add_bytes(&changed[34..34 + size]);
    assert_eq!((changed[23], sum.checksum()), (17, 0));
}

#[test]
fn a_packet_without_room_for_a_tag_is_dropped_by_name() {
    let mut bridge = Bridge::new(2);
    let many = vec![Action::PushVlan(EtherType::VLAN); 40];
    bridge.apply("", &[&many[..], &[out(2)]].concat());
    assert_eq!(
        bridge.one(1, &frame("tcp")),
        [Event::Dropped(millrace_pipeline::DropReason::NoHeadroom)]
    );
}

/// Packets of every protocol that OpenFlow can match.
const PACKETS: [&str; 14] = [
    "tcp,nw_src=10.0.0.1,nw_dst=10.0.0.2,tp_src=1,tp_dst=2,size=90",
    "udp,vlan_vid=0x1005,vlan_pcp=3,tp_src=5,tp_dst=6",
    "icmp,icmp_type=8,icmp_code=0",
    "sctp,tp_src=7,tp_dst=8",
    "tcp6,ipv6_src=2001:db8::1,ipv6_dst=2001:db8::2,ipv6_label=0x12345",
    "udp6,vlan_vid=0x1fff",
    "icmp6,icmpv6_type=128,icmpv6_code=0",
    "icmp6,icmpv6_type=135,icmpv6_code=0,nd_target=2001:db8::5,nd_sll=02:00:00:00:00:03",
    "icmp6,icmpv6_type=136,icmpv6_code=0,nd_target=2001:db8::5,nd_tll=02:00:00:00:00:03",
    "arp,arp_op=1,arp_spa=10.0.0.1,arp_tpa=10.0.0.2",
    "mpls,mpls_label=77,mpls_tc=3,mpls_bos=1",
    "dl_type=0x88e7,pbb_isid=4711",
    "dl_type=0x1234,dl_dst=02:00:00:00:00:01",
    "sctp6,tp_src=7,tp_dst=8",
];

fn key_of(bytes: &[u8]) -> FlowKey {
    let mut key = FlowKey::default();
    key.extract(bytes, &Layers::parse(bytes, Depth::All));
    key
}

/// Returns true if the packet has the field, according to the prerequisites of the specification.
fn has(key: &FlowKey, field: Field) -> bool {
    let prerequisite = match field.prerequisite() {
        Prerequisite::None => field != Field::VlanVid || key.field(Field::VlanVid) & 0x1000 != 0,
        Prerequisite::Present(_) => false,
        Prerequisite::Tagged => key.field(Field::VlanVid) & 0x1000 != 0,
        Prerequisite::OneOf(other, values) => {
            values.iter().any(|value| u128::from(*value) == key.field(other)) && has(key, other)
        }
    };
    prerequisite && field.layer().is_none_or(|layer| key.has(layer))
}

/// Returns true if every checksum of the packet is correct, computed over the whole packet.
fn is_intact(bytes: &[u8]) -> bool {
    let layers = Layers::parse(bytes, Depth::All);
    let l3 = layers.l3_offset();
    let bytes_at = |at: usize| <[u8; 16]>::try_from(&bytes[at..at + 16]).unwrap();
    let four = |at: usize| <[u8; 4]>::try_from(&bytes[at..at + 4]).unwrap();
    let header = match layers.l3() {
        L3::Ipv4 => Sum::of(&bytes[l3..l3 + usize::from(bytes[l3] & 15) * 4]).checksum() == 0,
        _ => true,
    };
    let pseudo = match layers.l3() {
        L3::Ipv4 => Pseudo::V4 {
            src: four(l3 + 12).into(),
            dst: four(l3 + 16).into(),
        },
        L3::Ipv6 => Pseudo::V6 {
            src: bytes_at(l3 + 8).into(),
            dst: bytes_at(l3 + 24).into(),
        },
        _ => return header,
    };
    if layers.fragment() != Fragment::Whole {
        return header;
    }
    let message = &bytes[layers.l4_offset()..layers.l4_offset() + layers.l4_size()];
    let sum = pseudo.sum(layers.ip_proto(), message.len()).add_bytes(message);
    header
        && match layers.l4() {
            L4::None => true,
            L4::Tcp | L4::Udp | L4::Icmpv6 => sum.checksum() == 0,
            L4::Icmpv4 => Sum::of(message).checksum() == 0,
            L4::Sctp => {
                let mut zeroed = message.to_vec();
                let given = u32::from_le_bytes(zeroed[8..12].try_into().unwrap());
                zeroed[8..12].fill(0);
                crc32c::of(&zeroed) == given
            }
        }
}

/// Fields whose change changes the protocol of the packet.
const KINDS: [Field; 5] = [
    Field::EthType,
    Field::IpProto,
    Field::MplsBos,
    Field::Icmpv6Type,
    Field::Icmpv6Code,
];

fn set_field() -> impl Strategy<Value = SetField> {
    let settable: Vec<Field> = Field::ALL
        .into_iter()
        .filter(|field| field.is_settable())
        .collect();
    (prop::sample::select(settable), any::<u128>()).prop_map(|(field, value)| {
        let present = if field == Field::VlanVid { 0x1000 } else { 0 };
        SetField::new(field, value & field.max_value() | present).unwrap()
    })
}

fn action() -> impl Strategy<Value = Action> {
    prop_oneof![
        4 => set_field().prop_map(Action::SetField),
        1 => prop::sample::select(vec![
            Action::PushVlan(EtherType::VLAN),
            Action::PushVlan(EtherType::QINQ),
            Action::PushMpls(EtherType::MPLS),
            Action::PushPbb(EtherType::PBB),
            Action::PopVlan,
            Action::PopMpls(EtherType::IPV4),
            Action::PopMpls(EtherType::VLAN),
            Action::PopPbb,
            Action::CopyTtlIn,
            Action::CopyTtlOut,
            Action::DecNwTtl,
            Action::DecMplsTtl,
            Action::SetQueue(QueueId(3)),
        ]),
        1 => any::<u8>().prop_map(Action::SetNwTtl),
        1 => any::<u8>().prop_map(Action::SetMplsTtl),
        1 => (1u32..5).prop_map(out),
    ]
}

/// Returns a valid packet, which may be damaged or truncated.
fn any_packet() -> impl Strategy<Value = Vec<u8>> {
    let damage = prop::option::weighted(0.5, (any::<prop::sample::Index>(), any::<u8>()));
    let cut = prop::option::weighted(0.3, any::<prop::sample::Index>());
    (prop::sample::select(&PACKETS[..]), damage, cut).prop_map(|(text, damage, cut)| {
        let mut bytes = frame(text);
        if let Some((at, value)) = damage {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        if let Some(at) = cut {
            bytes.truncate(at.index(bytes.len()));
        }
        bytes
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn set_field_changes_that_field_only_and_mends_every_checksum(
        text in prop::sample::select(&PACKETS[..]),
        set in set_field(),
    ) {
        let before = frame(text);
        prop_assert!(is_intact(&before), "{}", text);
        let bytes = after(&before, &[Action::SetField(set)]);
        let key = key_of(&before);
        let field = set.field();
        if field == Field::TunnelId || !has(&key, field) && field != Field::EthType {
            prop_assert_eq!(&bytes, &before);
        } else if !KINDS.contains(&field) {
            let mut expected = key;
            expected.set_field(field, set.value());
            prop_assert_eq!(key_of(&bytes), expected, "{}", field);
            prop_assert!(is_intact(&bytes), "{} of {}", field, text);
        } else {
            prop_assert_eq!(bytes.len(), before.len());
        }
    }

    #[test]
    fn no_packet_and_no_actions_make_the_pipeline_fail(
        bytes in any_packet(),
        actions in prop::collection::vec(action(), 0..12),
    ) {
        let mut bridge = Bridge::new(5);
        let outputs = actions.iter().filter(|action| matches!(action, Action::Output { .. })).count();
        let events = bridge.packet_out(PortNo::CONTROLLER, &actions, &bytes);
        let dropped = events.iter().filter(|event| matches!(event, Event::Dropped(_))).count();
        prop_assert!(sent(&events).len() <= outputs);
        prop_assert!(outputs > 0 || dropped == 1);
    }

    #[test]
    fn what_was_pushed_can_be_popped_again(bytes in any_packet()) {
        let tagged = after(&bytes, &[Action::PushVlan(EtherType::VLAN)]);
        prop_assert_eq!(after(&tagged, &[Action::PopVlan]), bytes.clone());
        let backbone = after(&bytes, &[Action::PushPbb(EtherType::PBB)]);
        if Layers::parse(&backbone, Depth::All).l3() == L3::Pbb {
            prop_assert_eq!(after(&backbone, &[Action::PopPbb]), bytes.clone());
        }
        if bytes.len() >= 14 {
            let outer = EtherType(u16::from_be_bytes([bytes[12], bytes[13]]));
            let shimmed = after(&bytes, &[Action::PushMpls(EtherType::MPLS)]);
            prop_assert_eq!(after(&shimmed, &[Action::PopMpls(outer)]), bytes);
        }
    }
}

/// Returns a pipeline of three tables with random entries.
fn pipeline() -> impl Strategy<Value = Vec<(u8, u16, usize, Instructions)>> {
    let actions = || prop::option::of(prop::collection::vec(action(), 0..5).prop_map(Vec::into_boxed_slice));
    let entry = (
        0u8..3,
        1u16..4,
        0usize..MATCHES.len(),
        actions(),
        actions(),
        any::<(bool, bool, u8)>(),
    );
    let entry = entry.prop_map(
        |(table, priority, match_, apply, write, (clear, goes, metadata))| {
            let instructions = Instructions {
                meter: None,
                apply_actions: apply,
                clear_actions: clear,
                write_actions: write,
                write_metadata: (metadata > 200).then_some(WriteMetadata {
                    value: metadata.into(),
                    mask: 0xff,
                }),
                goto_table: (goes && table < 2).then_some(TableId(table + 1)),
            };
            (table, priority, match_, instructions)
        },
    );
    prop::collection::vec(entry, 1..20)
}

const MATCHES: [&str; 8] = [
    "",
    "in_port=1",
    "eth_type=0x800",
    "tcp",
    "vlan_vid=0x1000/0x1000",
    "eth_type=0x8847",
    "tcp,tp_dst=2",
    "metadata=0xff",
];

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn a_burst_does_to_each_packet_what_it_would_do_to_the_packet_alone(
        entries in pipeline(),
        packets in prop::collection::vec(any_packet(), 1..64),
    ) {
        let mut together = Bridge::new(5);
        let mut alone = Bridge::new(5);
        for (table, priority, match_, instructions) in entries {
            // Each match has its own priority, as the order of entries of equal priority is undefined.
            let priority = priority * 16 + match_ as u16;
            let request = crate::harness::add(table, priority, MATCHES[match_], instructions);
            // Some entries are refused, because the match does not guarantee a header.
            let one = together.flow_mod(request.clone());
            prop_assert_eq!(one, alone.flow_mod(request));
        }
        let order = |events: Vec<Event>| {
            let mut lines: Vec<String> = events.iter().map(|event| format!("{event:?}")).collect();
            lines.sort();
            lines
        };
        let burst = order(together.receive(1, &packets));
        let singles = order(packets.iter().flat_map(|packet| alone.one(1, packet)).collect());
        prop_assert_eq!(burst, singles);
        prop_assert_eq!(together.counts(), alone.counts());
        for reason in millrace_pipeline::DropReason::ALL {
            prop_assert_eq!(together.control.drops(reason), alone.control.drops(reason));
        }
        let tables = |bridge: &Bridge| bridge.control.table_stats().collect::<Vec<_>>();
        prop_assert_eq!(tables(&together), tables(&alone));
    }
}

proptest! {
    #[test]
    fn a_packet_in_several_segments_is_changed_in_its_head_only(
        bytes in any_packet(),
        head_size in 0usize..120,
        actions in prop::collection::vec(action(), 0..12),
    ) {
        let mut bridge = Bridge::new(1);
        let actions: Vec<Action> = actions
            .into_iter()
            .filter(|action| !matches!(action, Action::Output { .. }))
            .chain([out(1)])
            .collect();
        let mut recorder = crate::harness::Recorder::default();
        let packet = millrace_wire::Frame::segmented(&bytes, head_size);
        let tail = bytes.get(head_size..).unwrap_or_default();
        bridge
            .processor
            .packet_out(&bridge.active, PortNo::CONTROLLER, &actions, packet, bridge.now, &mut recorder);
        for (_, sent) in sent(&recorder.events) {
            prop_assert!(sent.ends_with(tail));
        }
    }
}
