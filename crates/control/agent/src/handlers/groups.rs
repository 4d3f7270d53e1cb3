//! Groups: group_mod (OpenFlow 1.3.5, section 7.3.4.2), descriptions and statistics (sections 7.3.5.9 to 7.3.5.11).

use millrace_datapath::io::Backend;
use millrace_openflow::multipart::group::{Count, GroupCapabilities, GroupDesc, GroupFeatures, GroupStats};
use millrace_openflow::{self as openflow, ActionType, GroupModCommand, GroupType};
use millrace_pipeline::{self as pipeline, Control, EntryCount, GroupKind};
use millrace_types::GroupId;

use super::refusal::Refusal;
use crate::control::BridgeControl;

/// Executes a group_mod. Its buckets move to the group.
pub(super) fn group_mod<B: Backend>(
    bridge: &mut BridgeControl<B>,
    asked: &mut openflow::GroupMod,
) -> Result<(), Refusal> {
    apply(bridge, &request(asked))
}

/// Applies a group_mod of the pipeline.
pub(super) fn apply<B: Backend>(
    bridge: &mut BridgeControl<B>,
    request: &pipeline::GroupMod,
) -> Result<(), Refusal> {
    let now = bridge.datapath.now();
    bridge.tables.group_mod(request, now, &mut bridge.ops)?;
    Ok(())
}

/// Converts a group_mod to the pipeline's type. The buckets are moved.
pub(crate) fn request(asked: &mut openflow::GroupMod) -> pipeline::GroupMod {
    let kind = match asked.type_ {
        GroupType::All => GroupKind::All,
        GroupType::Select => GroupKind::Select,
        GroupType::Indirect => GroupKind::Indirect,
        GroupType::FastFailover => GroupKind::FastFailover,
    };
    let group = pipeline::Group {
        id: asked.group,
        kind,
        buckets: core::mem::take(&mut asked.buckets),
    };
    match asked.command {
        GroupModCommand::Add => pipeline::GroupMod::Add(group),
        GroupModCommand::Modify => pipeline::GroupMod::Modify(group),
        GroupModCommand::Delete => pipeline::GroupMod::Delete(group.id),
    }
}

/// Returns the OpenFlow message of a group_mod of the pipeline. A delete has no buckets, and its type has no meaning.
pub(crate) fn message(asked: &pipeline::GroupMod) -> openflow::Message {
    let (command, desc) = match asked {
        pipeline::GroupMod::Add(group) => (GroupModCommand::Add, describe(group)),
        pipeline::GroupMod::Modify(group) => (GroupModCommand::Modify, describe(group)),
        pipeline::GroupMod::Delete(group) => {
            let desc = GroupDesc {
                type_: GroupType::All,
                group: *group,
                buckets: Box::default(),
            };
            (GroupModCommand::Delete, desc)
        }
    };
    openflow::Message::GroupMod(openflow::GroupMod {
        command,
        type_: desc.type_,
        group: desc.group,
        buckets: desc.buckets,
    })
}

fn describe(group: &pipeline::Group) -> GroupDesc {
    GroupDesc {
        type_: match group.kind {
            GroupKind::All => GroupType::All,
            GroupKind::Select => GroupType::Select,
            GroupKind::Indirect => GroupType::Indirect,
            GroupKind::FastFailover => GroupType::FastFailover,
        },
        group: group.id,
        buckets: group.buckets.clone(),
    }
}

/// Returns the descriptions of all groups.
pub(super) fn descriptions<B: Backend>(bridge: &BridgeControl<B>) -> impl Iterator<Item = GroupDesc> + '_ {
    bridge.tables.groups().map(describe)
}

/// Returns the counters of a group, or of all groups; an empty list for a group that does not exist, which is no error in
/// OpenFlow 1.3.
pub(super) fn stats<B: Backend>(bridge: &BridgeControl<B>, group: GroupId) -> Vec<GroupStats> {
    let mut list = Vec::new();
    bridge.tables.group_stats(group, bridge.datapath.now(), |stat| {
        list.push(GroupStats {
            group: stat.group.id,
            references: stat.references,
            total: count(stat.count),
            duration: stat.duration,
            buckets: stat.buckets.into_iter().map(count).collect(),
        });
    });
    list
}

pub(super) const fn count(counted: EntryCount) -> Count {
    Count {
        packets: counted.packets,
        bytes: counted.bytes,
    }
}

/// Returns the group features: all that OpenFlow 1.3 defines, with every action.
pub(super) fn features() -> GroupFeatures {
    let actions = ActionType::ALL
        .iter()
        .filter_map(|type_| 1u32.checked_shl(type_.raw().into()))
        .fold(0, |all, bit| all | bit);
    GroupFeatures {
        types: 0b1111,
        capabilities: GroupCapabilities::SELECT_WEIGHT
            | GroupCapabilities::SELECT_LIVENESS
            | GroupCapabilities::CHAINING
            | GroupCapabilities::CHAINING_CHECKS,
        max_groups: [Control::GROUPS_MAX; 4],
        actions: [actions; 4],
    }
}
