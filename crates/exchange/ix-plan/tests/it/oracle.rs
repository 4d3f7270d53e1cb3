//! The oracle of the frames that an exchange must deliver. It reads the model and parses frames
//! itself, and shares no code with the planner.

use std::collections::BTreeSet;

use millrace_ix_model::{Config, Connection, Consent, Exchange, ServiceKind, SwitchId, TagType, VlanConfig};

/// A tag: EtherType, priority, VID.
pub(crate) type Tag = (u16, u8, u16);

/// Returns the addresses of a frame, its tags, and the bytes after the tags.
pub(crate) fn split(frame: &[u8]) -> (&[u8], Vec<Tag>, &[u8]) {
    let mut tags = Vec::new();
    let mut at = 12;
    while let Some(&[t0, t1, c0, c1]) = frame.get(at..at + 4) {
        let ethertype = u16::from_be_bytes([t0, t1]);
        if ethertype != 0x8100 && ethertype != 0x88a8 {
            break;
        }
        let tci = u16::from_be_bytes([c0, c1]);
        tags.push((ethertype, (tci >> 13) as u8, tci & 0xfff));
        at += 4;
    }
    (&frame[..12], tags, &frame[at..])
}

/// Returns a frame with tags.
pub(crate) fn join(addresses: &[u8], tags: &[Tag], rest: &[u8]) -> Vec<u8> {
    let mut frame = addresses.to_vec();
    for (ethertype, pcp, vid) in tags {
        frame.extend(ethertype.to_be_bytes());
        frame.extend((u16::from(*pcp) << 13 | vid).to_be_bytes());
    }
    frame.extend(rest);
    frame
}

fn ethertype(tag: TagType) -> u16 {
    match tag {
        TagType::CTag => 0x8100,
        TagType::STag => 0x88a8,
    }
}

/// Returns the tags that frames at an end have, all with one priority.
pub(crate) fn tags_of(vlan: VlanConfig, pcp: u8) -> Vec<Tag> {
    match vlan {
        VlanConfig::Port => vec![],
        VlanConfig::Dot1q { vlan, ethertype: tag } => vec![(ethertype(tag), pcp, vlan.raw())],
        VlanConfig::Qinq {
            outer,
            inner,
            ethertype: tag,
        } => vec![(ethertype(tag), pcp, outer.raw()), (0x8100, pcp, inner.raw())],
    }
}

/// The delivery that a frame must have: at one of the ports, with these bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Delivery {
    pub(crate) switch: SwitchId,
    pub(crate) ports: BTreeSet<u32>,
    pub(crate) frame: Vec<u8>,
}

fn has_port(connection: &Connection, switch: SwitchId, port: u32) -> bool {
    connection
        .ports
        .iter()
        .any(|at| at.switch == switch && at.port.raw() == port)
}

/// Returns the other end of a circuit that is complete and open.
fn other_end<'a>(exchange: &'a Exchange, end: &Config) -> Option<&'a Config> {
    let service = &exchange.services[&end.service];
    let is_agreed = matches!(service.consent, Consent::NotNeeded | Consent::Accepted);
    let ends: Vec<_> = exchange
        .configs
        .values()
        .filter(|config| config.service == end.service)
        .collect();
    let is_open = ends.len() == 2 && ends.iter().all(|end| !end.shut_down);
    if service.kind != ServiceKind::P2pVc || !is_agreed || !is_open || !service.state.is_carried() {
        return None;
    }
    ends.into_iter().find(|other| *other != end)
}

/// Returns the delivery of a frame on a circuit, or `None` if it must be dropped.
pub(crate) fn circuit(exchange: &Exchange, switch: SwitchId, port: u32, frame: &[u8]) -> Option<Delivery> {
    let (addresses, tags, rest) = split(frame);
    if addresses[..5] == [0x01, 0x80, 0xc2, 0, 0] && addresses[5] < 16 {
        return None;
    }
    let (id, _) = exchange
        .connections
        .iter()
        .find(|(_, connection)| has_port(connection, switch, port))?;
    for end in exchange
        .configs
        .values()
        .filter(|config| config.connection == *id)
    {
        let Some(other) = other_end(exchange, end) else {
            continue;
        };
        let is_transparent = end.vlan == VlanConfig::Port && other.vlan == VlanConfig::Port;
        let wanted = tags_of(end.vlan, 0);
        let fits = if is_transparent {
            true
        } else if wanted.is_empty() {
            tags.is_empty()
        } else {
            tags.len() >= wanted.len()
                && tags
                    .iter()
                    .zip(&wanted)
                    .all(|(seen, wanted)| (seen.0, seen.2) == (wanted.0, wanted.2))
        };
        if !fits {
            continue;
        }
        // The frame's priority is that of its innermost service tag. The tags after it are the member's own.
        let pcp = if wanted.is_empty() {
            0
        } else {
            tags[wanted.len() - 1].1
        };
        let own = &tags[if is_transparent { 0 } else { wanted.len() }..];
        let mut new_tags = tags_of(other.vlan, pcp);
        new_tags.extend(own);
        let connection = &exchange.connections[&other.connection];
        let ports = if other.connection == end.connection {
            BTreeSet::from([port])
        } else {
            connection.ports.iter().map(|port| port.port.raw()).collect()
        };
        return Some(Delivery {
            switch: connection.ports[0].switch,
            ports,
            frame: join(addresses, &new_tags, rest),
        });
    }
    None
}
