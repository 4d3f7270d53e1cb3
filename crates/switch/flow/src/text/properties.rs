//! Properties: a printed text parses to the value that was printed, and no text makes a parser panic.

use millrace_types::{GroupId, MeterId, PortNo, QueueId, TableId};
use millrace_wire::EtherType;
use proptest::prelude::*;

use super::FlowText;
use crate::action::{Action, Instructions, SetField, WriteMetadata};
use crate::field::{Field, Prerequisite};
use crate::matching::Match;

/// Returns a valid match: prerequisites are added as needed, in the order of OXM numbers or in random order.
pub(crate) fn any_match() -> impl Strategy<Value = Match> {
    let draws = prop::collection::vec(
        (0..Field::LEN, any::<u128>(), any::<Option<u128>>(), 0..8_u32),
        0..6,
    );
    draws.prop_map(|draws| {
        let mut fields: Vec<(Field, u128, Option<u128>)> = Vec::new();
        for (index, value, mask, shape) in draws {
            let mut chain = vec![(Field::ALL[index], value, mask)];
            loop {
                let next = match chain[chain.len() - 1].0.prerequisite() {
                    Prerequisite::None => break,
                    Prerequisite::Present(field) => (field, value >> 5, None),
                    Prerequisite::Tagged => (Field::VlanVid, 0x1000 | value >> 7 & 0xfff, None),
                    Prerequisite::OneOf(field, values) => {
                        (field, u128::from(values[shape as usize % values.len()]), None)
                    }
                };
                chain.push(next);
            }
            fields.extend(chain.into_iter().rev());
        }
        let mut kept = Match::builder();
        for (field, value, mask) in fields {
            let mut value = value & field.max_value();
            let mask = mask
                .filter(|_| field.is_maskable())
                .map(|mask| mask & field.max_value());
            if field == Field::VlanVid && mask.is_none() {
                value |= 0x1000;
            }
            // Prefixes (masks of a run of high bits) are drawn often.
            let mask = mask.map(|mask| {
                if mask & 1 == 0 {
                    field.max_value() & field.max_value() << (mask % u128::from(field.bits()))
                } else {
                    mask
                }
            });
            let mut trial = kept.clone();
            if trial.push(field, value & mask.unwrap_or(u128::MAX), mask).is_ok() && trial.finish().is_ok() {
                kept = trial;
            }
        }
        kept.finish().unwrap()
    })
}

fn any_action() -> impl Strategy<Value = Action> {
    let kind = any::<u16>().prop_map(EtherType);
    prop_oneof![
        any::<u32>().prop_map(|port| Action::output(PortNo::from_raw(port))),
        any::<u16>().prop_map(|max_len| Action::Output {
            port: PortNo::CONTROLLER,
            max_len
        }),
        (0xffff_fff8_u32..=0xffff_ffff).prop_map(|port| Action::output(PortNo::from_raw(port))),
        any::<u32>().prop_map(|id| Action::Group(GroupId(id))),
        any::<u32>().prop_map(|id| Action::SetQueue(QueueId(id))),
        any::<u8>().prop_map(Action::SetMplsTtl),
        any::<u8>().prop_map(Action::SetNwTtl),
        prop::sample::select(vec![
            Action::DecMplsTtl,
            Action::DecNwTtl,
            Action::CopyTtlOut,
            Action::CopyTtlIn,
            Action::PopVlan,
            Action::PopPbb,
        ]),
        kind.clone().prop_map(Action::PushVlan),
        kind.clone().prop_map(Action::PushMpls),
        kind.clone().prop_map(Action::PopMpls),
        kind.prop_map(Action::PushPbb),
        (0..Field::LEN, any::<u128>()).prop_filter_map("settable", |(index, value)| {
            let field = Field::ALL[index];
            let present = if field == Field::VlanVid { 0x1000 } else { 0 };
            SetField::new(field, value & field.max_value() | present)
                .ok()
                .map(Action::SetField)
        }),
    ]
}

fn any_instructions() -> impl Strategy<Value = Instructions> {
    let list = || prop::option::of(prop::collection::vec(any_action(), 0..4).prop_map(Vec::into_boxed_slice));
    let metadata = any::<(u64, u64)>().prop_map(|(value, mask)| WriteMetadata {
        value: value & mask,
        mask,
    });
    let (meter, table) = (any::<u32>().prop_map(MeterId), (0..=0xfe_u8).prop_map(TableId));
    (
        prop::option::of(meter),
        list(),
        any::<bool>(),
        list(),
        prop::option::of(metadata),
        prop::option::of(table),
    )
        .prop_map(
            |(meter, apply_actions, clear_actions, write_actions, write_metadata, goto_table)| Instructions {
                meter,
                apply_actions,
                clear_actions,
                write_actions,
                write_metadata,
                goto_table,
            },
        )
}

proptest! {
    #[test]
    fn a_printed_match_parses_to_the_same_rule(given in any_match()) {
        let text = given.to_string();
        let back: Match = text.parse().unwrap_or_else(|error| panic!("{text}: {error}"));
        let rule = |given: &Match| given.rule(millrace_types::Priority(0));
        prop_assert_eq!(rule(&back), rule(&given), "{}", text);
        // In the order of OXM numbers the text keeps the whole match.
        prop_assert_eq!(back.to_string().parse::<Match>().unwrap(), back);
    }

    #[test]
    fn printed_instructions_parse_to_the_same(given in any_instructions()) {
        let text = given.to_string();
        let back: Instructions = text.parse().unwrap_or_else(|error| panic!("{text}: {error}"));
        prop_assert_eq!(back, given, "{}", text);
    }

    #[test]
    fn a_printed_flow_parses_to_the_same(
        matching in any_match(),
        instructions in prop::option::of(any_instructions()),
        numbers in any::<(u16, u64, u16, u16)>(),
        table in 0..=0xfe_u8,
    ) {
        let flow = FlowText {
            table: TableId(table),
            priority: millrace_types::Priority(numbers.0),
            cookie: millrace_types::Cookie(numbers.1),
            idle_timeout: numbers.2,
            hard_timeout: numbers.3,
            matching: matching.to_string().parse().unwrap(),
            instructions,
        };
        let text = flow.to_string();
        prop_assert_eq!(text.parse::<FlowText>().unwrap_or_else(|error| panic!("{text}: {error}")), flow);
    }

    #[test]
    fn no_text_makes_a_parser_panic(text in any::<String>()) {
        let _ = text.parse::<Match>();
        let _ = text.parse::<Instructions>();
        let _ = text.parse::<FlowText>();
    }

    #[test]
    fn no_text_that_looks_like_a_flow_makes_a_parser_panic(
        text in "(([a-z_]{2,6}|tcp|nw_src|dl_vlan|set_field|output|actions|ipv6_src|tp_dst|write_actions)[=:(/,]?(0x)?[0-9a-f.:>*-]{0,6}[)/, é]?){0,6}",
    ) {
        let _ = text.parse::<Match>();
        let _ = text.parse::<Instructions>();
        let _ = text.parse::<FlowText>();
    }
}

#[test]
fn the_syntax_of_ovs_ofctl_is_understood() {
    let flow: FlowText = "table=3, priority=10,in_port=1,dl_vlan=100,tcp,nw_src=10.0.0.0/8,tp_dst=80 \
        actions=mod_nw_tos:184,set_field:0x1007->vlan_vid,CONTROLLER:128,goto_table:4"
        .parse()
        .unwrap();
    let expected = [
        (Field::InPort, 1, None),
        (Field::EthType, 0x800, None),
        (Field::VlanVid, 0x1064, None),
        (Field::IpProto, 6, None),
        (Field::Ipv4Src, 0x0a00_0000, Some(0xff00_0000)),
        (Field::TcpDst, 80, None),
    ];
    let fields: Vec<_> = flow
        .matching
        .iter()
        .map(|given| (given.field, given.value, given.mask))
        .collect();
    assert_eq!(fields, expected);
    assert_eq!(
        flow.to_string(),
        "table=3,priority=10,tcp,in_port=1,dl_vlan=100,nw_src=10.0.0.0/8,tp_dst=80 \
         actions=set_field:46->ip_dscp,set_field:0x1007->vlan_vid,CONTROLLER:128,goto_table:4"
    );
}

#[test]
fn names_of_the_specification_and_of_ovs_mean_the_same() {
    for (one, other) in [
        ("tcp,tcp_dst=80", "tp_dst=80,tcp"),
        ("udp6,udp_src=53", "dl_type=0x86dd,nw_proto=17,tp_src=53"),
        (
            "icmp6,icmpv6_type=135,nd_target=fe80::1",
            "icmp6,icmp_type=135,ipv6_nd_target=fe80::1",
        ),
        ("arp,arp_spa=10.0.0.1", "arp,nw_src=10.0.0.1"),
        ("vlan_vid=0x1005", "dl_vlan=5"),
        ("vlan_vid=0", "dl_vlan=0xffff"),
        ("ip,ip_dscp=46", "ip,nw_tos=184"),
        ("ip,nw_src=10.0.0.0/255.0.0.0", "ip,ipv4_src=10.0.0.0/8"),
        ("in_port=LOCAL", "in_port=0xfffffffe"),
        ("ip,tcp", "tcp,nw_src=*"),
        ("tun_id=7", "tunnel_id=0x7"),
    ] {
        assert_eq!(
            one.parse::<Match>().unwrap(),
            other.parse::<Match>().unwrap(),
            "{one} and {other}"
        );
    }
}

#[test]
fn actions_take_both_spellings() {
    for (one, other) in [
        ("2", "output:2"),
        ("output(2)", "output:2"),
        ("controller(max_len=64)", "CONTROLLER:64"),
        ("normal", "NORMAL"),
        ("strip_vlan", "pop_vlan"),
        ("set_mpls_ttl(3)", "set_mpls_ttl:3"),
        ("mod_vlan_vid:5", "set_field:0x1005->vlan_vid"),
        ("mod_tp_dst:8080", "set_field:8080->tcp_dst"),
        ("write_actions(output:1, group:7)", "write_actions(1 group(7))"),
        ("drop", ""),
    ] {
        let parse = |text: &str| text.parse::<Instructions>().unwrap();
        assert_eq!(parse(one), parse(other), "{one} and {other}");
    }
    let flow: FlowText = "udp actions=mod_tp_dst:5".parse().unwrap();
    assert_eq!(flow.instructions.unwrap().to_string(), "set_field:5->udp_dst");
}

#[test]
fn each_mistake_is_named_with_its_place_and_what_was_expected() {
    for (text, message) in [
        (
            "in_port=1,tcp,tcp_dts=80",
            "column 15, `tcp_dts`: there is no such match field; did you mean tcp_dst?",
        ),
        (
            "in_port=x",
            "column 9, `x`: expected a port number or the name of a reserved port such as LOCAL",
        ),
        (
            "tp_dst=80",
            "column 1, `tp_dst=80`: tcp_dst needs ip_proto=0x6 in the same match",
        ),
        (
            "tcp,tp_dst=65536",
            "column 12, `65536`: expected a number from 0 to 0xffff, decimal or with 0x",
        ),
        (
            "ip,nw_src=10.1.0.0/8",
            "column 11, `10.1.0.0/8`: expected no bits outside of the mask, as in 10.0.0.0/8",
        ),
        (
            "ip,nw_src=10.0.0.0/33",
            "column 20, `33`: expected a prefix length from 0 to 32",
        ),
        (
            "in_port=1,in_port=2",
            "column 11, `in_port=2`: in_port appears twice: expected it once",
        ),
        ("in_port", "column 1, `in_port`: expected `in_port=` and a value"),
        ("tcp=1", "column 1, `tcp=1`: expected `tcp` without a value"),
        (
            "actions=outptu:1",
            "column 9, `outptu`: there is no such action; did you mean output?",
        ),
        (
            "actions=output",
            "column 9, `output`: expected `output:` and a port",
        ),
        (
            "actions=drop,1",
            "column 9, `drop`: expected `drop` alone, or no `drop`",
        ),
        (
            "actions=set_field:1->in_port",
            "column 9, `set_field:1->in_port`: in_port is read-only: expected a field that set_field can write",
        ),
        (
            "actions=goto_table:1,goto_table:2",
            "column 22, `goto_table:2`: appears twice: expected it once",
        ),
        (
            "actions=write_actions(1",
            "column 1, `actions=write_actions(1`: unbalanced parentheses: expected as many `)` as `(`",
        ),
        (
            "priority=1,priority=2",
            "column 12, `priority=2`: appears twice: expected it once",
        ),
    ] {
        assert_eq!(
            text.parse::<FlowText>().unwrap_err().to_string(),
            message,
            "{text}"
        );
    }
}
