//! Conversions from the values of the data plane.

use super::flow::{Action, Instructions, MatchField, WriteMetadata};
use millrace_flow::Match;
use millrace_types::PortNo;

fn hex(value: impl core::fmt::LowerHex) -> String {
    format!("{value:#x}")
}

impl From<&millrace_flow::Action> for Action {
    fn from(action: &millrace_flow::Action) -> Action {
        use millrace_flow::Action as Given;
        match *action {
            Given::Output { port, max_len } => Action::Output {
                port: port.raw(),
                max_len: (port == PortNo::CONTROLLER).then_some(max_len),
            },
            Given::Group(group) => Action::Group { group: group.0 },
            Given::SetQueue(queue) => Action::SetQueue { queue: queue.0 },
            Given::SetMplsTtl(ttl) => Action::SetMplsTtl { ttl },
            Given::DecMplsTtl => Action::DecMplsTtl,
            Given::SetNwTtl(ttl) => Action::SetNwTtl { ttl },
            Given::DecNwTtl => Action::DecNwTtl,
            Given::CopyTtlOut => Action::CopyTtlOut,
            Given::CopyTtlIn => Action::CopyTtlIn,
            Given::PushVlan(kind) => Action::PushVlan { ethertype: kind.0 },
            Given::PopVlan => Action::PopVlan,
            Given::PushMpls(kind) => Action::PushMpls { ethertype: kind.0 },
            Given::PopMpls(kind) => Action::PopMpls { ethertype: kind.0 },
            Given::PushPbb(kind) => Action::PushPbb { ethertype: kind.0 },
            Given::PopPbb => Action::PopPbb,
            Given::SetField(set) => Action::SetField {
                field: set.field().name().to_owned(),
                value: hex(set.value()),
            },
        }
    }
}

impl From<&millrace_flow::Instructions> for Instructions {
    fn from(given: &millrace_flow::Instructions) -> Instructions {
        let list = |actions: &Option<Box<[millrace_flow::Action]>>| {
            actions
                .as_deref()
                .map(|actions| actions.iter().map(Action::from).collect())
        };
        Instructions {
            meter: given.meter.map(|meter| meter.0),
            apply_actions: list(&given.apply_actions),
            clear_actions: given.clear_actions,
            write_actions: list(&given.write_actions),
            write_metadata: given.write_metadata.map(|change| WriteMetadata {
                value: hex(change.value),
                mask: hex(change.mask),
            }),
            goto_table: given.goto_table.map(|table| table.0),
        }
    }
}

impl MatchField {
    /// Returns the fields of `matching`.
    pub fn all(matching: &Match) -> Vec<MatchField> {
        let show = |given: millrace_flow::MatchField| MatchField {
            field: given.field.name().to_owned(),
            value: hex(given.value),
            mask: given.mask.map(hex),
        };
        matching.iter().map(show).collect()
    }
}
