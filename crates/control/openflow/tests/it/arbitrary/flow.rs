//! Any valid match, list of actions, and set of instructions.

use millrace_flow::{Action, Field, Instructions, Match, MatchError, Prerequisite, SetField, WriteMetadata};
use millrace_types::*;
use millrace_wire::EtherType;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::{select, subsequence};

/// Returns one field with a value and perhaps a mask, both valid.
fn field(field: Field) -> BoxedStrategy<(Field, u128, Option<u128>)> {
    let max = field.max_value();
    let mask = if field.is_maskable() {
        option::of(1u128..max).boxed()
    } else {
        Just(None).boxed()
    };
    (any::<u128>(), mask)
        .prop_map(move |(value, mask)| {
            let mut value = value & max;
            if field == Field::VlanVid {
                value |= 0x1000;
            }
            (
                field,
                value & mask.unwrap_or(max),
                mask.filter(|mask| *mask != max),
            )
        })
        .boxed()
}

/// Returns a match of `fixed` and any other fields whose prerequisites `fixed` satisfies.
fn family(fixed: Vec<(Field, u128)>) -> BoxedStrategy<Match> {
    let is_satisfied = |prerequisite| match prerequisite {
        Prerequisite::None => true,
        Prerequisite::Present(other) => fixed.iter().any(|(field, _)| *field == other),
        Prerequisite::Tagged => fixed.iter().any(|(field, _)| *field == Field::VlanVid),
        Prerequisite::OneOf(other, values) => fixed
            .iter()
            .any(|(field, value)| *field == other && values.iter().any(|valid| u128::from(*valid) == *value)),
    };
    let free: Vec<Field> = Field::ALL
        .into_iter()
        .filter(|field| fixed.iter().all(|(other, _)| field != other) && is_satisfied(field.prerequisite()))
        .collect();
    let count = free.len();
    subsequence(free, 0..=count)
        .prop_shuffle()
        .prop_flat_map(|fields| fields.into_iter().map(field).collect::<Vec<_>>())
        .prop_map(move |mut fields| {
            let built = |fields: &[(Field, u128, Option<u128>)]| {
                let mut builder = Match::builder();
                for (field, value) in &fixed {
                    builder.push(*field, *value, None).unwrap();
                }
                for (field, value, mask) in fields {
                    // A masked VLAN identifier is a prerequisite of other fields only if the mask has the
                    // "present" bit. No field here depends on it.
                    builder.push(*field, *value, *mask).unwrap();
                }
                builder.finish()
            };
            match built(&fields) {
                // A later fragment has no transport header, so a match cannot contain both it and transport
                // fields.
                Err(MatchError::LaterFragment { .. }) => {
                    fields.retain(|(field, ..)| *field != Field::IpFrag);
                    built(&fields).unwrap()
                }
                other => other.unwrap(),
            }
        })
        .boxed()
}

/// Returns any valid match.
pub(crate) fn flow_match() -> BoxedStrategy<Match> {
    use Field::{EthType, Icmpv6Type, InPort, IpProto, VlanVid};
    let families = [
        vec![],
        vec![(InPort, 7), (VlanVid, 0x1005)],
        vec![(EthType, 0x800)],
        vec![(EthType, 0x86dd)],
        vec![(EthType, 0x800), (IpProto, 6)],
        vec![(EthType, 0x86dd), (IpProto, 17)],
        vec![(EthType, 0x800), (IpProto, 132)],
        vec![(EthType, 0x800), (IpProto, 1)],
        vec![(EthType, 0x86dd), (IpProto, 58), (Icmpv6Type, 135)],
        vec![(EthType, 0x86dd), (IpProto, 58), (Icmpv6Type, 136)],
        vec![(EthType, 0x806)],
        vec![(EthType, 0x8847)],
        vec![(EthType, 0x88e7)],
    ];
    proptest::strategy::Union::new(families.map(family)).boxed()
}

/// Returns any valid action.
pub(crate) fn action() -> BoxedStrategy<Action> {
    let settable: Vec<Field> = Field::ALL
        .into_iter()
        .filter(|field| field.is_settable())
        .collect();
    let port = prop_oneof![
        (1u32..=0xffff_ff00).prop_map(PortNo::from_raw),
        (0xffff_fff8u32..0xffff_ffff).prop_map(PortNo::from_raw),
    ];
    prop_oneof![
        (port, any::<u16>()).prop_map(|(port, max_len)| Action::Output { port, max_len }),
        (0u32..=0xffff_ff00).prop_map(|group| Action::Group(GroupId(group))),
        (0u32..0xffff_ffff).prop_map(|queue| Action::SetQueue(QueueId(queue))),
        any::<u8>().prop_map(Action::SetMplsTtl),
        any::<u8>().prop_map(Action::SetNwTtl),
        any::<u16>().prop_map(|ethertype| Action::PopMpls(EtherType(ethertype))),
        select(vec![
            Action::DecMplsTtl,
            Action::DecNwTtl,
            Action::CopyTtlOut,
            Action::CopyTtlIn,
            Action::PopVlan,
            Action::PopPbb,
            Action::PushVlan(EtherType::VLAN),
            Action::PushVlan(EtherType::QINQ),
            Action::PushMpls(EtherType::MPLS),
            Action::PushMpls(EtherType(0x8848)),
            Action::PushPbb(EtherType::PBB),
        ]),
        (select(settable), any::<u128>()).prop_map(|(field, value)| {
            Action::SetField(SetField::new(field, value & field.max_value()).unwrap())
        }),
    ]
    .boxed()
}

/// Returns any list of valid actions.
pub(crate) fn actions() -> impl Strategy<Value = Box<[Action]>> {
    vec(action(), 0..6).prop_map(Vec::into_boxed_slice)
}

/// Returns any set of valid instructions.
pub(crate) fn instructions() -> impl Strategy<Value = Instructions> {
    (
        option::of(any::<u32>()),
        option::of(actions()),
        any::<bool>(),
        option::of(actions()),
        any::<Option<(u64, u64)>>(),
        option::of(0u8..255),
    )
        .prop_map(
            |(meter, apply, clear_actions, write, write_metadata, goto)| Instructions {
                meter: meter.map(MeterId),
                apply_actions: apply,
                clear_actions,
                write_actions: write,
                write_metadata: write_metadata.map(|(value, mask)| WriteMetadata { value, mask }),
                goto_table: goto.map(TableId),
            },
        )
}
