//! Entries that do not depend on the kind of a service: conversion of an end's frames to the inside form and
//! back, forwarding between switches, and policing of the contracted rate.
//!
//! Inside, between table 0 and table 6, a frame has exactly one tag of the exchange: a C-tag with VID 1 (2 if
//! a leaf of a `p2mp_vc` sent it) and the priority of the frame. OpenFlow 1.3 has no action that copies a field. One entry for each of the eight
//! priorities is therefore needed where a tag is replaced by a tag of another EtherType, or a second tag is
//! pushed.

use millrace_flow::{Action, Field};
use millrace_ix_model::{
    Connection, EndRole, Exchange, ServiceKind, SwitchId, TagType, TrunkKind, VlanConfig, VlanId,
};
use millrace_types::{GroupId, PortNo, TableId};

use crate::builder::{Builder, FlowBuilder, actions, present, push_tag, set, set_pcp, set_vid};
use crate::entry::Matching;
use crate::layout::{
    ADMIT, CookieFields, CookieKind, EGRESS, FORWARD, INNER, INTERNAL_VID, LEAF_VID, LLDP, Metadata, POLICE,
    PORT, PROBE_MAC, PROTECT, parity, probe_meter,
};
use crate::service::{End, ServiceContext, has_entries, trunk_port, trunks_between};

/// The priority of entries for the frames of one end.
pub(crate) const PRIORITY: u16 = 100;
/// The priority of entries for the frames of one trunk.
const TRUNK_PRIORITY: u16 = 200;
/// The priority of the engine's probes on trunks.
const PROBE_PRIORITY: u16 = 61_000;
/// The maximum rate of probes that the controller gets from a trunk, in packets per second.
const PROBE_PPS: u32 = 5;
/// The priority of entries for frames that leave by the ports where they arrived.
const HAIRPIN_PRIORITY: u16 = 110;

/// The VLAN priorities.
const PCPS: core::ops::RangeInclusive<u8> = 0..=7;

const C_TAG: u16 = 0x8100;
pub(crate) const S_TAG: u16 = 0x88a8;

/// Returns the VID that the frames of an end have inside. In a `p2mp_vc` it tells the frames of leaves from those of roots:
/// a switch to which they come by trunk does not know the sender, and may not know the destination any more, or not yet.
fn internal_vid(context: &ServiceContext<'_>, end: &End<'_>) -> u16 {
    match (context.service.kind, end.config.role) {
        (ServiceKind::P2mpVc, EndRole::Leaf) => LEAF_VID,
        _ => INTERNAL_VID,
    }
}

/// Adds the entries that admit an end's frames: table 0, and table 1 for two tags. The frames continue in
/// table `next`.
pub(crate) fn plan_ingress(
    context: &ServiceContext<'_>,
    end: &End<'_>,
    next: TableId,
    builder: &mut Builder,
) {
    let cookie = end.cookie(CookieKind::End);
    let inside = context.entered_by(end);
    let vid = internal_vid(context, end);
    let push_inside = || actions([push_tag(C_TAG), set_vid(vid), set_pcp(0)]);
    for port in &end.connection.ports {
        let from_port = || Matching::any().with(Field::InPort, port.port.raw());
        match end.config.vlan {
            VlanConfig::Port if end.is_transparent => {
                let line = FlowBuilder::new(PORT, PRIORITY, from_port(), cookie);
                builder.flow(end.switch, line.apply(push_inside()).metadata(inside).goto(next));
            }
            VlanConfig::Port => {
                let untagged = from_port().with(Field::VlanVid, 0u16);
                let line = FlowBuilder::new(PORT, PRIORITY, untagged, cookie);
                builder.flow(end.switch, line.apply(push_inside()).metadata(inside).goto(next));
            }
            VlanConfig::Dot1q {
                vlan,
                ethertype: TagType::CTag,
            } => {
                let tagged = from_port().with(Field::VlanVid, present(vlan.raw()));
                let line = FlowBuilder::new(PORT, PRIORITY, tagged, cookie).apply(actions([set_vid(vid)]));
                builder.flow(end.switch, line.metadata(inside).goto(next));
            }
            VlanConfig::Dot1q {
                vlan,
                ethertype: TagType::STag,
            } => {
                for pcp in PCPS {
                    let tagged = from_port()
                        .with(Field::VlanVid, present(vlan.raw()))
                        .with(Field::VlanPcp, pcp);
                    let retag = [Some(Action::PopVlan), push_tag(C_TAG), set_vid(vid), set_pcp(pcp)];
                    let line = FlowBuilder::new(PORT, PRIORITY, tagged, cookie).apply(actions(retag));
                    builder.flow(end.switch, line.metadata(inside).goto(next));
                }
            }
            // Several ends may share the outer tag: `plan_outer_tags` adds its entries.
            VlanConfig::Qinq { .. } => {}
        }
    }
    if let VlanConfig::Qinq { outer, inner, .. } = end.config.vlan {
        let matching = with_outer_tag(end.connection, outer).with(Field::VlanVid, present(inner.raw()));
        let line = FlowBuilder::new(INNER, PRIORITY, matching, cookie).apply(actions([set_vid(vid)]));
        builder.flow(end.switch, line.metadata(inside).goto(next));
    }
}

/// Adds the entries that admit an end's frames and pop the tags of the end, so that table 2 can detect a
/// further tag. The priority is kept in the metadata, in the field where a later table writes the end by
/// which the frame leaves, as a value that is no end. Table 3 pushes the internal tag.
pub(crate) fn plan_untagged_ingress(context: &ServiceContext<'_>, end: &End<'_>, builder: &mut Builder) {
    let cookie = end.cookie(CookieKind::End);
    let with_pcp = |pcp: u8| Metadata {
        egress_end: kept_pcp(pcp),
        ..context.entered_by(end)
    };
    let pop = |builder: &mut Builder, table: TableId, matching: Matching| {
        for pcp in PCPS {
            let line = FlowBuilder::new(
                table,
                PRIORITY,
                matching.clone().with(Field::VlanPcp, pcp),
                cookie,
            );
            builder.flow(
                end.switch,
                line.apply(vec![Action::PopVlan])
                    .metadata(with_pcp(pcp))
                    .goto(ADMIT),
            );
        }
    };
    if let VlanConfig::Qinq { outer, inner, .. } = end.config.vlan {
        pop(
            builder,
            INNER,
            with_outer_tag(end.connection, outer).with(Field::VlanVid, present(inner.raw())),
        );
    }
    for port in &end.connection.ports {
        let from_port = Matching::any().with(Field::InPort, port.port.raw());
        match end.config.vlan {
            VlanConfig::Dot1q { vlan, .. } => {
                pop(builder, PORT, from_port.with(Field::VlanVid, present(vlan.raw())));
            }
            VlanConfig::Port => {
                let line = FlowBuilder::new(PORT, PRIORITY, from_port.with(Field::VlanVid, 0u16), cookie);
                builder.flow(end.switch, line.metadata(with_pcp(0)).goto(ADMIT));
            }
            // Several ends may share the outer tag: `plan_outer_tags` adds its entries.
            VlanConfig::Qinq { .. } => {}
        }
    }
}

/// Returns the value of the field `egress_end` that keeps a priority until the end by which the frame leaves is known.
const fn kept_pcp(pcp: u8) -> u32 {
    Metadata::COPIES | pcp as u32
}

/// Returns the match, in table 1, of a connection's frames whose outer tag table 0 has popped.
pub(crate) fn with_outer_tag(connection: &Connection, outer: VlanId) -> Matching {
    crate::builder::metadata(
        outer_known(connection, outer),
        Metadata::SERVICE | Metadata::INGRESS_END,
    )
}

/// Returns the metadata between tables 0 and 1 of frames whose outer tag is known.
const fn outer_known(connection: &Connection, outer: VlanId) -> Metadata {
    Metadata {
        service: outer.raw() as u32,
        by_trunk: false,
        ingress_end: connection.index.raw(),
        egress_end: 0,
    }
}

/// Adds the entries of table 0 that pop outer tags. All ends of a connection with one outer tag share them, whatever
/// their services.
pub(crate) fn plan_outer_tags(exchange: &Exchange, builder: &mut Builder) {
    for config in exchange.configs.values() {
        let (VlanConfig::Qinq { outer, .. }, Some(connection)) =
            (config.vlan, exchange.connections.get(&config.connection))
        else {
            continue;
        };
        if !has_entries(exchange, config) {
            continue;
        }
        let cookie = CookieFields {
            kind: CookieKind::End,
            object: config.connection.0,
            generation: 0,
        };
        for port in &connection.ports {
            let tagged = Matching::any()
                .with(Field::InPort, port.port.raw())
                .with(Field::VlanVid, present(outer.raw()));
            let line = FlowBuilder::new(PORT, PRIORITY, tagged, cookie).apply(vec![Action::PopVlan]);
            builder.flow(
                port.switch,
                line.metadata(outer_known(connection, outer)).goto(INNER),
            );
        }
    }
}

/// Adds the contracted rate of an end: table 3 and its meter. Frames of a peering LAN get their internal tag here. Frames of
/// a circuit have one path only, to the end `egress_end`, and need no table 4.
pub(crate) fn plan_police(
    context: &ServiceContext<'_>,
    end: &End<'_>,
    egress_end: Option<&End<'_>>,
    builder: &mut Builder,
) {
    let speed_mbps = || -> u32 {
        let ports = end.connection.ports.iter().filter_map(|port| {
            let switch = context.exchange.switches.get(&port.switch)?;
            switch.port(port.port).map(|port| port.speed_mbps)
        });
        ports.sum()
    };
    let rate_mbps = end.config.capacity_mbps.unwrap_or_else(speed_mbps);
    builder.rate_meter(end.switch, end.meter(), rate_mbps.saturating_mul(1000));
    let cookie = end.cookie(CookieKind::Police);
    if context.service.kind != ServiceKind::ExchangeLan {
        let matching = context.matching(context.entered_by(end), Metadata::INGRESS_END);
        let line = FlowBuilder::new(POLICE, PRIORITY, matching, cookie).meter(end.meter());
        let line = match egress_end {
            Some(other) => line.egress_end(other.index()).goto(PROTECT),
            None => line.goto(FORWARD),
        };
        builder.flow(end.switch, line);
        return;
    }
    let has_tag = end.config.vlan != VlanConfig::Port;
    for pcp in PCPS.filter(|pcp| has_tag || *pcp == 0) {
        let fields = Metadata {
            egress_end: kept_pcp(pcp),
            ..context.entered_by(end)
        };
        let matching = context
            .matching(fields, Metadata::INGRESS_END | Metadata::EGRESS_END)
            .with(Field::VlanVid, 0u16);
        let line = FlowBuilder::new(POLICE, PRIORITY, matching, cookie).meter(end.meter());
        let push = actions([push_tag(C_TAG), set_vid(INTERNAL_VID), set_pcp(pcp)]);
        builder.flow(end.switch, line.apply(push).goto(FORWARD));
    }
}

/// Returns the action that sends a frame to an end's ports.
pub(crate) fn output(end: &End<'_>, is_hairpin: bool) -> Option<Action> {
    match (is_hairpin, end.connection.group, end.connection.ports.first()) {
        // A frame leaves by its ingress port only if the output is IN_PORT. In a LAG, the ingress port is a
        // live member.
        (true, ..) => Some(Action::output(PortNo::IN_PORT)),
        (false, Some(group), _) => Some(Action::Group(GroupId(group.raw()))),
        (false, None, Some(port)) => Some(Action::output(port.port)),
        (false, None, None) => None,
    }
}

/// Adds the entries that send frames out of an end: table 6. `from` limits them to frames of an end on the
/// same ports.
pub(crate) fn plan_egress(
    context: &ServiceContext<'_>,
    end: &End<'_>,
    from: Option<&End<'_>>,
    builder: &mut Builder,
) {
    let cookie = end.cookie(CookieKind::Egress);
    let fields = Metadata {
        ingress_end: from.map_or(0, End::index),
        egress_end: end.index(),
        ..Metadata::default()
    };
    let (priority, mask) = match from {
        Some(_) => (
            HAIRPIN_PRIORITY,
            Metadata::INGRESS_END | Metadata::TRUNK | Metadata::EGRESS_END,
        ),
        None => (PRIORITY, Metadata::EGRESS_END),
    };
    let matching = || {
        let matching = context.matching(fields, mask);
        match context.service.kind {
            // The frames of roots and of leaves.
            ServiceKind::P2mpVc => matching.masked(Field::VlanVid, present(0), present(0)),
            _ => matching.with(Field::VlanVid, present(INTERNAL_VID)),
        }
    };
    let out = output(end, from.is_some());
    let mut add = |matching, list: Vec<Action>| {
        builder.flow(
            end.switch,
            FlowBuilder::new(EGRESS, priority, matching, cookie).apply(list),
        );
    };
    let with_pcp = |pcp: u8| matching().with(Field::VlanPcp, pcp);
    match end.config.vlan {
        VlanConfig::Port => add(matching(), actions([Some(Action::PopVlan), out])),
        VlanConfig::Dot1q {
            vlan,
            ethertype: TagType::CTag,
        } => add(matching(), actions([set_vid(vlan.raw()), out])),
        VlanConfig::Dot1q {
            vlan,
            ethertype: TagType::STag,
        } => {
            for pcp in PCPS {
                let retag = [
                    Some(Action::PopVlan),
                    push_tag(S_TAG),
                    set_vid(vlan.raw()),
                    set_pcp(pcp),
                    out,
                ];
                add(with_pcp(pcp), actions(retag));
            }
        }
        VlanConfig::Qinq {
            outer,
            inner,
            ethertype,
        } => {
            for pcp in PCPS {
                let push = push_tag(ethertype.ethertype());
                let tags = [
                    set_vid(inner.raw()),
                    push,
                    set_vid(outer.raw()),
                    set_pcp(pcp),
                    out,
                ];
                add(with_pcp(pcp), actions(tags));
            }
        }
    }
}

/// Adds the entries, at the switches of all other ends, that send frames for an end over the trunks to its
/// switch. They match frames that did not arrive by a trunk, so that no frame crosses two trunks.
pub(crate) fn plan_to_trunk(context: &ServiceContext<'_>, end: &End<'_>, builder: &mut Builder) {
    let Some(wire_id) = context.service.wire_id else {
        return;
    };
    for switch in context
        .switches()
        .into_iter()
        .filter(|switch| *switch != end.switch)
    {
        let fields = Metadata {
            egress_end: end.index(),
            ..Metadata::default()
        };
        let matching = context.matching(fields, Metadata::TRUNK | Metadata::EGRESS_END);
        let next = context.next_switch(switch, end.switch);
        let Some(remote) = context.exchange.switches.get(&next) else {
            continue;
        };
        let to_group = Some(Action::Group(GroupId(remote.group.raw())));
        let encapsulate = match context.trunk_kind(switch, next) {
            Some(TrunkKind::Vxlan) => actions([set(Field::TunnelId, wire_id.raw()), to_group]),
            Some(TrunkKind::STag) => {
                let vid = u16::try_from(wire_id.raw()).unwrap_or(0);
                actions([push_tag(S_TAG), set_vid(vid), set_pcp(0), to_group])
            }
            None => {
                let message = format!("no trunk joins {switch} and {next}");
                builder.problem(context.id, message);
                continue;
            }
        };
        let line = FlowBuilder::new(EGRESS, PRIORITY, matching, context.cookie());
        builder.flow(switch, line.apply(encapsulate));
    }
}

/// Adds the entries, at every switch of the service, that admit frames from trunks: table 0. The frames of a
/// circuit leave by the only end at the switch, and need no table 4. Only frames of trunks have a VXLAN key,
/// so that one entry serves all trunks. The VID of an S-tag may also be the VID of a member's tag, so that
/// such an entry matches the port, too.
pub(crate) fn plan_from_trunks(context: &ServiceContext<'_>, builder: &mut Builder) {
    let Some(wire_id) = context.service.wire_id else {
        return;
    };
    let switches = context.switches();
    for switch in &switches {
        let mut local = context.ends.iter().filter(|end| end.switch == *switch);
        let egress_end = match context.service.kind {
            ServiceKind::P2pVc => local.next().map(End::index),
            _ => None,
        };
        let inside = Metadata {
            service: context.service.index.raw(),
            by_trunk: true,
            ingress_end: parity(context.service),
            egress_end: egress_end.unwrap_or(0),
        };
        let next = if egress_end.is_some() { EGRESS } else { FORWARD };
        for other in switches.iter().filter(|other| *other != switch) {
            let previous = context.next_switch(*switch, *other);
            for (_, trunk) in trunks_between(context.exchange, *switch, previous) {
                let Some(port) = trunk_port(trunk, *switch) else {
                    continue;
                };
                let (matching, list) = match trunk.kind {
                    TrunkKind::Vxlan => (Matching::any().with(Field::TunnelId, wire_id.raw()), Vec::new()),
                    TrunkKind::STag => {
                        let vid = u16::try_from(wire_id.raw()).unwrap_or(0);
                        let from_port = Matching::any().with(Field::InPort, port.raw());
                        (
                            from_port.with(Field::VlanVid, present(vid)),
                            vec![Action::PopVlan],
                        )
                    }
                };
                let line = FlowBuilder::new(PORT, TRUNK_PRIORITY, matching, context.cookie()).apply(list);
                builder.flow(*switch, line.metadata(inside).goto(next));
            }
        }
    }
}

/// Adds the entries of a transit switch for frames of a circuit from one joined switch to another one: table
/// 0. The frames keep their wire id, and skip all other tables.
pub(crate) fn plan_transit(
    context: &ServiceContext<'_>,
    [from, here, to]: [SwitchId; 3],
    builder: &mut Builder,
) {
    let (Some(wire_id), Some(next), Some(kind)) = (
        context.service.wire_id,
        context.exchange.switches.get(&to),
        context.trunk_kind(here, to),
    ) else {
        return;
    };
    let to_group = Some(Action::Group(GroupId(next.group.raw())));
    let vid = u16::try_from(wire_id.raw()).unwrap_or(0);
    for (_, trunk) in trunks_between(context.exchange, here, from) {
        let Some(port) = trunk_port(trunk, here) else {
            continue;
        };
        let from_port = Matching::any().with(Field::InPort, port.raw());
        let matching = match trunk.kind {
            TrunkKind::Vxlan => from_port.with(Field::TunnelId, wire_id.raw()),
            TrunkKind::STag => from_port.with(Field::VlanVid, present(vid)),
        };
        let list = match (trunk.kind, kind) {
            (TrunkKind::Vxlan, TrunkKind::Vxlan) => actions([set(Field::TunnelId, wire_id.raw()), to_group]),
            (TrunkKind::Vxlan, TrunkKind::STag) => {
                actions([push_tag(S_TAG), set_vid(vid), set_pcp(0), to_group])
            }
            (TrunkKind::STag, TrunkKind::STag) => actions([to_group]),
            (TrunkKind::STag, TrunkKind::Vxlan) => {
                let tunnel_id = set(Field::TunnelId, wire_id.raw());
                actions([Some(Action::PopVlan), tunnel_id, to_group])
            }
        };
        builder.flow(
            here,
            FlowBuilder::new(PORT, TRUNK_PRIORITY, matching, context.cookie()).apply(list),
        );
    }
}

/// Adds the entries of table 0 that send the probes on trunks to the engine. Frames of services have a wire
/// id on trunks, so that no member can send a frame that these entries match.
pub(crate) fn plan_probes(exchange: &Exchange, builder: &mut Builder) {
    for (id, trunk) in &exchange.trunks {
        for (side, end) in (0..).zip(&trunk.ends) {
            let cookie = CookieFields {
                kind: CookieKind::Probe,
                object: id.0,
                generation: side,
            };
            let probe = Matching::any()
                .with(Field::InPort, end.port.raw())
                .with(Field::EthDst, PROBE_MAC.to_u64())
                .with(Field::EthType, LLDP);
            let probe = match trunk.kind {
                TrunkKind::Vxlan => probe.with(Field::TunnelId, 0u32),
                TrunkKind::STag => probe.with(Field::VlanVid, 0u16),
            };
            builder.packet_meter(end.switch, probe_meter(*id), PROBE_PPS);
            let line = FlowBuilder::new(PORT, PROBE_PRIORITY, probe, cookie).meter(probe_meter(*id));
            builder.flow(end.switch, line.apply(vec![Action::output(PortNo::CONTROLLER)]));
        }
    }
}
