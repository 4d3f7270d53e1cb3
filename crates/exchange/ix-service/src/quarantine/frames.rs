//! The frames that the engine sends to ends, and the tags of ends on frames.

use core::net::{Ipv4Addr, Ipv6Addr};

use millrace_ix_model::VlanConfig;
use millrace_types::Mac;
use millrace_wire::ip::Pseudo;
use millrace_wire::{Dscp, Ecn, EtherType, FlowLabel, IpProto, arp, icmpv6, ipv6};

/// The source of the engine's own ARP requests: a locally administered address.
pub(crate) const ENGINE_MAC: Mac = Mac([0x02, 0x4d, 0x49, 0x58, 0x00, 0x01]);
/// The size to which short frames are padded, in bytes, without the frame check sequence.
const SIZE_MIN: usize = 60;

fn ethernet(dst: Mac, src: Mac, ethertype: EtherType, body: &[u8]) -> Vec<u8> {
    let mut frame = [&dst.0[..], &src.0, &ethertype.0.to_be_bytes(), body].concat();
    frame.resize(frame.len().max(SIZE_MIN), 0);
    frame
}

/// Returns a broadcast ARP request.
pub(crate) fn arp_request(sender: Mac, from: Ipv4Addr, target: Ipv4Addr) -> Vec<u8> {
    let request = arp::Repr {
        op: arp::REQUEST,
        sha: sender,
        spa: from,
        tha: Mac::ZERO,
        tpa: target,
    };
    ethernet(Mac::BROADCAST, sender, EtherType::ARP, &request.to_bytes())
}

/// Returns a gratuitous ARP request to one receiver: `address` is at `mac` now (RFC 5227, section 3).
pub(crate) fn gratuitous_arp(to: Mac, mac: Mac, address: Ipv4Addr) -> Vec<u8> {
    let announcement = arp::Repr {
        op: arp::REQUEST,
        sha: mac,
        spa: address,
        tha: Mac::ZERO,
        tpa: address,
    };
    ethernet(to, mac, EtherType::ARP, &announcement.to_bytes())
}

/// Returns an unsolicited neighbour advertisement to one receiver: `address` is at `mac` now (RFC 4861, section 7.2.6).
pub(crate) fn unsolicited_advertisement(to: Mac, mac: Mac, address: Ipv6Addr) -> Vec<u8> {
    /// Router, and override (RFC 4861, section 4.4).
    const FLAGS: u32 = 0xa000_0000;
    let all_nodes = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
    let advertisement = icmpv6::NdRepr {
        kind: icmpv6::NEIGHBOR_ADVERT,
        flags: FLAGS,
        target: address,
        lla: Some(mac),
    };
    let pseudo = Pseudo::V6 {
        src: address,
        dst: all_nodes,
    };
    let mut message = Vec::new();
    advertisement.emit(&pseudo, &mut message);
    let header = ipv6::Repr {
        dscp: Dscp::default(),
        ecn: Ecn::default(),
        flow_label: FlowLabel::default(),
        payload_size: u16::try_from(message.len()).unwrap_or(0),
        next_header: IpProto::ICMPV6,
        // Receivers discard advertisements with another hop limit (RFC 4861, section 7.1.2).
        hop_limit: 255,
        src: address,
        dst: all_nodes,
    };
    let body = [&header.to_bytes()[..], &message].concat();
    ethernet(to, mac, EtherType::IPV6, &body)
}

/// Returns the frame with the tags of an end.
pub(crate) fn tagged(mut frame: Vec<u8>, vlan: VlanConfig) -> Vec<u8> {
    const ETHERTYPE: usize = 12;
    let mut push = |ethertype: u16, vid: u16| {
        let [high, low] = ethertype.to_be_bytes();
        let [vid_high, vid_low] = vid.to_be_bytes();
        frame.splice(ETHERTYPE..ETHERTYPE, [high, low, vid_high, vid_low]);
    };
    match vlan {
        VlanConfig::Port => {}
        VlanConfig::Dot1q { vlan, ethertype } => push(ethertype.ethertype(), vlan.raw()),
        VlanConfig::Qinq {
            outer,
            inner,
            ethertype,
        } => {
            push(EtherType::VLAN.0, inner.raw());
            push(ethertype.ethertype(), outer.raw());
        }
    }
    frame
}

/// Returns the VIDs of a frame's tags, the outermost first; at most two.
pub(crate) fn vids(frame: &[u8]) -> Vec<u16> {
    let mut vids = Vec::new();
    for at in [12, 16] {
        let Some(&[a, b, c, d]) = frame.get(at..at + 4).and_then(|tag| tag.first_chunk::<4>()) else {
            break;
        };
        if !EtherType(u16::from_be_bytes([a, b])).is_vlan() {
            break;
        }
        vids.push(u16::from_be_bytes([c, d]) & 0x0fff);
    }
    vids
}

/// Returns the frame without its first `count` tags.
pub(crate) fn without_tags(frame: &[u8], count: usize) -> Vec<u8> {
    let mut frame = frame.to_vec();
    let end = (12 + 4 * count).min(frame.len());
    frame.drain(12.min(end)..end);
    frame
}

/// Returns the VIDs that the frames of an end have, the outermost first.
pub(crate) fn vids_of(vlan: VlanConfig) -> Vec<u16> {
    match vlan {
        VlanConfig::Port => Vec::new(),
        VlanConfig::Dot1q { vlan, .. } => vec![vlan.raw()],
        VlanConfig::Qinq { outer, inner, .. } => vec![outer.raw(), inner.raw()],
    }
}
