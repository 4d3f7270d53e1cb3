//! Converts entries of the plan to OpenFlow messages, and the dump of a switch to entries.

use anyhow::{Result, bail};
use millrace_controller::Dump;
use millrace_ix_engine::Content;
use millrace_ix_plan::{
    Entry, EntryId, Flow, FlowId, Group, GroupKind, Matching, Meter, Modification, RateUnit, in_safe_order,
};
use millrace_ix_service::Fabric;
use millrace_openflow::multipart::group::GroupDesc;
use millrace_openflow::multipart::meter::MeterConfig;
use millrace_openflow::{
    FlowMod, FlowModCommand, GroupMod, GroupModCommand, GroupType, Message, MeterBand, MeterBandKind,
    MeterFlags, MeterMod, MeterModCommand,
};
use millrace_types::{GroupId, MeterId};

/// Returns the OpenFlow messages for modifications, in an order in which the switch can execute each of them.
pub(crate) fn messages(modifications: Vec<Modification>) -> Result<Vec<Message>> {
    in_safe_order(modifications).into_iter().map(message).collect()
}

fn message(Modification { key, from, to }: Modification) -> Result<Message> {
    Ok(match (key, to) {
        (EntryId::Flow(id), Some(Entry::Flow(flow))) => {
            let add = FlowMod::add(id.table, id.priority, id.matching.to_match()?, flow.instructions);
            let (cookie, idle_timeout, hard_timeout) = (flow.cookie, flow.idle_timeout, flow.hard_timeout);
            // An add replaces the entry with the same match and priority, including its cookie. The counters
            // of the entry are kept.
            Message::FlowMod(FlowMod {
                cookie,
                idle_timeout,
                hard_timeout,
                ..add
            })
        }
        (EntryId::Flow(id), None) => {
            let delete = FlowMod::delete(id.table, id.matching.to_match()?);
            let command = FlowModCommand::DeleteStrict;
            Message::FlowMod(FlowMod {
                command,
                priority: id.priority,
                ..delete
            })
        }
        (EntryId::Group(group), Some(Entry::Group(body))) => {
            let command = if from.is_some() {
                GroupModCommand::Modify
            } else {
                GroupModCommand::Add
            };
            let buckets = body.buckets.into_boxed_slice();
            Message::GroupMod(GroupMod {
                command,
                type_: group_type(body.kind),
                group,
                buckets,
            })
        }
        (EntryId::Group(group), None) => {
            let buckets = Box::default();
            Message::GroupMod(GroupMod {
                command: GroupModCommand::Delete,
                type_: GroupType::All,
                group,
                buckets,
            })
        }
        (EntryId::Meter(meter), Some(Entry::Meter(body))) => {
            let command = if from.is_some() {
                MeterModCommand::Modify
            } else {
                MeterModCommand::Add
            };
            let unit = match body.unit {
                RateUnit::Kbps => MeterFlags::KBPS,
                RateUnit::Pktps => MeterFlags::PKTPS,
            };
            let band = MeterBand {
                rate: body.rate,
                burst_size: body.burst,
                kind: MeterBandKind::Drop,
            };
            let flags = unit | MeterFlags::BURST | MeterFlags::STATS;
            Message::MeterMod(MeterMod {
                command,
                flags,
                meter,
                bands: [band].into(),
            })
        }
        (EntryId::Meter(meter), None) => Message::MeterMod(MeterMod {
            command: MeterModCommand::Delete,
            flags: MeterFlags::KBPS,
            meter,
            bands: Box::default(),
        }),
        (id, Some(entry)) => bail!("the plan has {entry:?} under {id:?}"),
    })
}

fn group_type(kind: GroupKind) -> GroupType {
    match kind {
        GroupKind::All => GroupType::All,
        GroupKind::Select => GroupType::Select,
        GroupKind::Indirect => GroupType::Indirect,
        GroupKind::FastFailover => GroupType::FastFailover,
    }
}

/// Returns the content of a switch. An entry in a form that the planner never uses is converted to a value
/// that differs from every planned entry.
pub(crate) fn content(dump: Dump) -> Content<Fabric> {
    let mut content = Content::<Fabric>::new();
    for MeterConfig { flags, meter, bands } in dump.meters {
        content.insert(EntryId::Meter(meter), Entry::Meter(meter_of(flags, &bands)));
    }
    for GroupDesc {
        type_,
        group,
        buckets,
    } in dump.groups
    {
        let kind = match type_ {
            GroupType::All => GroupKind::All,
            GroupType::Select => GroupKind::Select,
            GroupType::Indirect => GroupKind::Indirect,
            GroupType::FastFailover => GroupKind::FastFailover,
        };
        content.insert(
            EntryId::Group(group),
            Entry::Group(Group {
                kind,
                buckets: buckets.into_vec(),
            }),
        );
    }
    for flow in dump.flows {
        let matching = Matching::from(&flow.match_);
        let id = EntryId::Flow(FlowId {
            table: flow.table,
            priority: flow.priority,
            matching,
        });
        let (idle_timeout, hard_timeout) = (flow.idle_timeout, flow.hard_timeout);
        let entry = Flow {
            cookie: flow.cookie,
            instructions: flow.instructions,
            idle_timeout,
            hard_timeout,
        };
        content.insert(id, Entry::Flow(entry));
    }
    content
}

/// Returns a meter. A meter with several bands, or without a drop band, gets rate 0, which the planner never
/// uses.
fn meter_of(flags: MeterFlags, bands: &[MeterBand]) -> Meter {
    let unit = if flags.contains(MeterFlags::PKTPS) {
        RateUnit::Pktps
    } else {
        RateUnit::Kbps
    };
    match bands {
        [
            MeterBand {
                rate,
                burst_size,
                kind: MeterBandKind::Drop,
            },
        ] => Meter {
            unit,
            rate: *rate,
            burst: *burst_size,
        },
        _ => Meter {
            unit,
            rate: 0,
            burst: 0,
        },
    }
}

/// The numbers of a switch's entries.
pub(crate) struct EntryCounts {
    pub(crate) flows: usize,
    pub(crate) groups: usize,
    pub(crate) meters: usize,
}

/// Returns the numbers of the entries.
pub(crate) fn entry_counts(content: &Content<Fabric>) -> EntryCounts {
    let count = |is_kind: fn(&EntryId) -> bool| content.keys().filter(|id| is_kind(id)).count();
    EntryCounts {
        flows: count(|id| matches!(id, EntryId::Flow(_))),
        groups: count(|id| matches!(id, EntryId::Group(GroupId(_)))),
        meters: count(|id| matches!(id, EntryId::Meter(MeterId(_)))),
    }
}
