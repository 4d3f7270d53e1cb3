//! Circuits between many ends. Frames for a registered MAC address go to its end, or nowhere; broadcast, multicast and unknown
//! destinations of admitted sources are copied to all ends (`mp2mp_vc`), or between roots and leaves (`p2mp_vc`: a leaf
//! reaches roots only).
//!
//! ```text
//! end --> 4: unknown --> 6: group of the end: a bucket for each other local end, one for each remote switch
//! trunk --> 4: unknown --> 6: group of the service: a bucket for each local end (or root, if a leaf sent it)
//! ```
//! Frames that a leaf sent have VID 2 inside instead of 1, because their sender is not known behind a trunk.

use millrace_flow::{Action, Bucket, Field};
use millrace_ix_model::{EndRole, SwitchId, TagType, TrunkKind, VlanConfig};
use millrace_types::GroupId;

use crate::builder::{Builder, FlowBuilder, actions, bucket, present, push_tag, set, set_pcp, set_vid};
use crate::entry::{GroupKind, Matching};
use crate::lan::{GROUP_BIT, addresses, siblings};
use crate::layout::{
    ADMIT, CookieKind, EGRESS, FORWARD, INTERNAL_VID, LEAF_VID, Metadata, POLICE, PROTECT,
    RateLimitedTraffic, copies_group, outer_tag_group, root_copies_group, storm_meter,
};
use crate::service::{End, ServiceContext};
use crate::tags::{self, PRIORITY};

/// The maximum rate of frames from an end to group addresses and unknown destinations, in frames per second. Each such
/// frame is copied to other ends.
const COPIES_PPS: u32 = 100;
/// The priority of frames to registered addresses.
const KNOWN_PRIORITY: u16 = 100;
/// The priority of frames to the sender's own addresses, and of frames that a leaf must not send.
const REFUSED_PRIORITY: u16 = 110;
/// The priority of all other frames.
const UNKNOWN_PRIORITY: u16 = 50;

/// Adds the entries of a multipoint circuit.
pub(crate) fn plan_multipoint(context: &ServiceContext<'_>, builder: &mut Builder) {
    let ends: Vec<_> = context
        .ends
        .iter()
        .filter(|end| !end.config.shut_down)
        .copied()
        .collect();
    let has_leaves = ends.iter().any(|end| end.config.role == EndRole::Leaf);
    let switches: Vec<_> = context.switches().into_iter().collect();
    for (at, one) in switches.iter().enumerate() {
        for two in &switches[..at] {
            match context.trunk_kind(*one, *two) {
                Some(TrunkKind::STag) if has_leaves => {
                    let message =
                        "leaves over a trunk with S-tags need a tag more than a switch can set in one group";
                    builder.problem(context.id, message);
                    return;
                }
                Some(_) => {}
                None => {
                    builder.problem(context.id, format!("no trunk joins {two} and {one}"));
                    return;
                }
            }
        }
    }
    tags::plan_from_trunks(context, builder);
    for end in &context.ends {
        plan_known(context, end, &ends, builder);
    }
    for end in &ends {
        tags::plan_ingress(context, end, ADMIT, builder);
        tags::plan_police(context, end, None, builder);
        tags::plan_egress(context, end, None, builder);
        for sibling in siblings(context, end) {
            tags::plan_egress(context, end, Some(sibling), builder);
        }
        tags::plan_to_trunk(context, end, builder);
        plan_outer_tag(end, builder);
        plan_admission(context, end, builder);
        plan_copies(context, end, &ends, builder);
    }
    for switch in &switches {
        plan_copies_from_trunk(context, *switch, &ends, has_leaves, builder);
    }
}

/// Returns true if frames may go from one end to the other.
fn reaches(from: &End<'_>, to: &End<'_>) -> bool {
    from.id != to.id && (from.config.role == EndRole::Root || to.config.role == EndRole::Root)
}

/// Adds the admission of registered sources: table 2. Frames to groups pass a storm meter here, frames to unknown
/// destinations in table 4.
fn plan_admission(context: &ServiceContext<'_>, end: &End<'_>, builder: &mut Builder) {
    let meter = storm_meter(end.config, RateLimitedTraffic::Multicast);
    builder.packet_meter(end.switch, meter, COPIES_PPS);
    let cookie = end.cookie(CookieKind::End);
    for mac in addresses(context, end).macs {
        let from_mac = context
            .matching(context.entered_by(end), Metadata::INGRESS_END)
            .with(Field::EthSrc, mac.to_u64());
        let to_group = from_mac.clone().masked(Field::EthDst, GROUP_BIT, GROUP_BIT);
        builder.flow(
            end.switch,
            FlowBuilder::new(ADMIT, PRIORITY, from_mac, cookie).goto(POLICE),
        );
        builder.flow(
            end.switch,
            FlowBuilder::new(ADMIT, PRIORITY + 1, to_group, cookie)
                .meter(meter)
                .goto(POLICE),
        );
    }
}

/// Adds the entries, at every switch, for frames to the registered addresses of an end: table 4. Frames to an end that is
/// shut down go nowhere. Without an entry they would be copied to all other ends.
fn plan_known(context: &ServiceContext<'_>, end: &End<'_>, ends: &[End<'_>], builder: &mut Builder) {
    let cookie = end.cookie(CookieKind::End);
    for mac in addresses(context, end).macs {
        let to_mac =
            |fields: Metadata, mask: u64| context.matching(fields, mask).with(Field::EthDst, mac.to_u64());
        for switch in context.switches() {
            let line = FlowBuilder::new(FORWARD, KNOWN_PRIORITY, to_mac(Metadata::default(), 0), cookie);
            let line = if end.config.shut_down {
                line
            } else {
                line.egress_end(end.index()).goto(PROTECT)
            };
            builder.flow(switch, line);
        }
        if end.config.shut_down {
            continue;
        }
        // The sender itself and, if this end is a leaf, all other leaves.
        for from in ends.iter().filter(|from| !reaches(from, end)) {
            let refused = to_mac(context.entered_by(from), Metadata::INGRESS_END | Metadata::TRUNK);
            builder.flow(
                from.switch,
                FlowBuilder::new(FORWARD, REFUSED_PRIORITY, refused, cookie),
            );
        }
    }
}

/// Adds the copies of an end's frames to unknown destinations: tables 4 and 6, and the group of the end.
fn plan_copies(context: &ServiceContext<'_>, end: &End<'_>, ends: &[End<'_>], builder: &mut Builder) {
    let Some(group) = end.config.group.map(|group| GroupId(group.raw())) else {
        return;
    };
    let reached: Vec<_> = ends.iter().filter(|other| reaches(end, other)).collect();
    let mut buckets: Vec<Bucket> = reached
        .iter()
        .filter(|other| other.switch == end.switch)
        .map(|other| copy_bucket(other, other.shares_ports(end)))
        .collect();
    let mut remote: Vec<_> = reached
        .iter()
        .map(|other| other.switch)
        .filter(|switch| *switch != end.switch)
        .collect();
    remote.sort_unstable();
    remote.dedup();
    for switch in remote {
        buckets.extend(trunk_bucket(context, end, switch));
    }
    let cookie = context.cookie();
    let fields = Metadata {
        egress_end: Metadata::COPIES,
        ..context.entered_by(end)
    };
    let from_end = context.matching(fields, Metadata::INGRESS_END | Metadata::TRUNK);
    if buckets.is_empty() {
        return;
    }
    builder.group(end.switch, group, GroupKind::All, buckets);
    let to_group = from_end.clone().masked(Field::EthDst, GROUP_BIT, GROUP_BIT);
    let to_group = FlowBuilder::new(FORWARD, UNKNOWN_PRIORITY + 1, to_group, cookie);
    let meter = storm_meter(end.config, RateLimitedTraffic::Multicast);
    let unknown = FlowBuilder::new(FORWARD, UNKNOWN_PRIORITY, from_end, cookie).meter(meter);
    for line in [to_group, unknown] {
        builder.flow(end.switch, line.egress_end(Metadata::COPIES).goto(EGRESS));
    }
    let copies = context.matching(
        fields,
        Metadata::INGRESS_END | Metadata::TRUNK | Metadata::EGRESS_END,
    );
    builder.flow(
        end.switch,
        FlowBuilder::new(EGRESS, PRIORITY, copies, cookie).apply(vec![Action::Group(group)]),
    );
}

/// Adds the copies, at a switch, of frames that arrived by trunk.
fn plan_copies_from_trunk(
    context: &ServiceContext<'_>,
    switch: SwitchId,
    ends: &[End<'_>],
    has_leaves: bool,
    builder: &mut Builder,
) {
    if context.service.wire_id.is_none() {
        return;
    }
    let local = || ends.iter().filter(|end| end.switch == switch);
    let roots = || local().filter(|end| end.config.role == EndRole::Root);
    let by_trunk = Metadata {
        by_trunk: true,
        egress_end: Metadata::COPIES,
        ..Metadata::default()
    };
    let index = context.service.index;
    let to_all = (
        INTERNAL_VID,
        copies_group(index),
        local().map(|end| copy_bucket(end, false)).collect::<Vec<_>>(),
    );
    let to_roots = (
        LEAF_VID,
        root_copies_group(index),
        roots().map(|end| copy_bucket(end, false)).collect(),
    );
    for (vid, group, buckets) in [to_all, to_roots] {
        if buckets.is_empty() || vid == LEAF_VID && !has_leaves {
            continue;
        }
        builder.group(switch, group, GroupKind::All, buckets);
        let with_vid = |matching: Matching| matching.with(Field::VlanVid, present(vid));
        let unknown = with_vid(context.matching(by_trunk, Metadata::TRUNK));
        let line = FlowBuilder::new(FORWARD, UNKNOWN_PRIORITY, unknown, context.cookie());
        builder.flow(switch, line.egress_end(Metadata::COPIES).goto(EGRESS));
        let copies = with_vid(context.matching(by_trunk, Metadata::TRUNK | Metadata::EGRESS_END));
        let line = FlowBuilder::new(EGRESS, PRIORITY, copies, context.cookie());
        builder.flow(switch, line.apply(vec![Action::Group(group)]));
    }
}

/// Returns the bucket that sends a copy over the trunks to a switch.
fn trunk_bucket(context: &ServiceContext<'_>, from: &End<'_>, to: SwitchId) -> Option<Bucket> {
    let wire_id = context.service.wire_id?.raw();
    let to_group = Some(Action::Group(GroupId(
        context.exchange.switches.get(&to)?.group.raw(),
    )));
    let list = match context.trunk_kind(from.switch, to)? {
        TrunkKind::Vxlan => actions([set(Field::TunnelId, wire_id), to_group]),
        TrunkKind::STag => {
            let vid = u16::try_from(wire_id).ok()?;
            actions([
                push_tag(TagType::STag.ethertype()),
                set_vid(vid),
                set_pcp(0),
                to_group,
            ])
        }
    };
    Some(bucket(list))
}

/// Returns the bucket that sends a copy to an end. An action set can set only one VID. A separate group
/// therefore pushes the outer of two tags.
fn copy_bucket(end: &End<'_>, is_hairpin: bool) -> Bucket {
    let out = tags::output(end, is_hairpin);
    bucket(match end.config.vlan {
        VlanConfig::Port => actions([Some(Action::PopVlan), out]),
        VlanConfig::Dot1q {
            vlan,
            ethertype: TagType::CTag,
        } => actions([set_vid(vlan.raw()), out]),
        VlanConfig::Dot1q {
            vlan,
            ethertype: TagType::STag,
        } => {
            let push = push_tag(TagType::STag.ethertype());
            actions([Some(Action::PopVlan), push, set_vid(vlan.raw()), set_pcp(0), out])
        }
        VlanConfig::Qinq { inner, .. } => {
            let outer = Some(Action::Group(outer_tag_group(end.config, is_hairpin)));
            actions([set_vid(inner.raw()), outer])
        }
    })
}

/// Adds the groups that push the outer tag of copies to an end with two tags.
fn plan_outer_tag(end: &End<'_>, builder: &mut Builder) {
    if let VlanConfig::Qinq { outer, ethertype, .. } = end.config.vlan {
        for is_hairpin in [false, true] {
            let push = push_tag(ethertype.ethertype());
            let out = tags::output(end, is_hairpin);
            let list = actions([push, set_vid(outer.raw()), set_pcp(0), out]);
            let group = outer_tag_group(end.config, is_hairpin);
            builder.group(end.switch, group, GroupKind::Indirect, vec![bucket(list)]);
        }
    }
}
