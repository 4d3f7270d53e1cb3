//! Events of the packet decoder and of the TCP engine, which rules name in `decode-event` and `stream-event`.
//!
//! ```text
//!  frame ──link──▶ link events ─┐
//!  IP packet ──ip, transport────┼──▶ PacketEvents of the packet ──▶ rules over events
//!  segment ──tcp::observer──────┘
//! ```
//!
//! The walk over the headers is separate from the decoder, because a packet with an event may have no valid header. It runs only
//! if a rule asks for events.

mod ip;
mod names;
mod set;
mod transport;

use millrace_wire::EtherType;

use super::{LinkType, Undecoded};
pub use names::{DECODE_EVENTS, REFUSED, STREAM_EVENTS};
pub use set::{PacketEvent, PacketEvents};
pub(crate) use set::{decode, stream};

/// Returns the events of the link layer of a frame. `found` is the decoder's result.
pub(crate) fn of_link(link: LinkType, frame: &[u8], found: Option<Undecoded>) -> PacketEvents {
    let mut events = PacketEvents::NONE;
    match link.0 {
        LinkType::ETHERNET if frame.len() < 14 => events.decode("ethernet.pkt_too_small"),
        LinkType::ETHERNET => of_ethernet(frame, found, &mut events),
        LinkType::LINUX_SLL if frame.len() < 16 => events.decode("sll.pkt_too_small"),
        LinkType::LINUX_SLL2 if frame.len() < 20 => events.decode("sll2.pkt_too_small"),
        LinkType::C_HDLC if frame.len() < 4 => events.decode("chdlc.pkt_too_small"),
        LinkType::NULL | LinkType::LOOP if frame.len() < 4 => events.decode("ltnull.pkt_too_small"),
        LinkType::NULL | LinkType::LOOP if found == Some(Undecoded::NotIp) => {
            events.decode("ltnull.unsupported_type");
        }
        LinkType::PPP => of_ppp(frame, &mut events),
        LinkType::RAW | 12 | 14 if frame.first().is_none_or(|first| !matches!(first >> 4, 4 | 6)) => {
            events.decode("ipraw.invalid_ip_version");
        }
        _ => {}
    }
    events
}

/// Follows the tags of an Ethernet frame.
fn of_ethernet(frame: &[u8], found: Option<Undecoded>, events: &mut PacketEvents) {
    /// Tags that Suricata follows.
    const TAGS: usize = 3;
    let mut at = 12;
    let mut tags = 0;
    while let Some([high, low]) = frame.get(at..).and_then(<[u8]>::first_chunk) {
        let ether_type = EtherType(u16::from_be_bytes([*high, *low]));
        at += 2;
        let rest = frame.get(at..).unwrap_or_default();
        match ether_type.0 {
            0x8100 | 0x88a8 | 0x9100 => {
                if rest.len() < 4 {
                    return events.decode("vlan.header_too_small");
                }
                tags += 1;
                if tags > TAGS {
                    return events.decode("vlan.too_many_layers");
                }
                at += 2;
            }
            0x8847 | 0x8848 => return of_labels(rest, events),
            0x8864 | 0x8863 => return of_pppoe(ether_type.0 == 0x8864, rest, events),
            0x88e7 => {
                if rest.len() < 18 {
                    events.decode("ieee8021ah.header_too_small");
                }
                return;
            }
            0x8926 => {
                if rest.len() < 6 {
                    return events.decode("vntag.header_too_small");
                }
                at += 4;
            }
            0x894f => {
                match rest.first_chunk::<8>() {
                    None => events.decode("nsh.header_too_small"),
                    Some([first, ..]) if first >> 6 != 0 => events.decode("nsh.unsupported_version"),
                    Some([_, size, ..]) if usize::from(size & 0x3f) * 4 > rest.len() || size & 0x3f < 2 => {
                        events.decode("nsh.bad_header_length");
                    }
                    Some(_) => {}
                }
                return;
            }
            0x0806 => return of_arp(rest, events),
            0x0800 | 0x86dd | 0x6558 | 0x8903 | 0x893f => return,
            kind if kind < EtherType::MIN.0 => return,
            _ => {
                match tags {
                    0 if found == Some(Undecoded::NotIp) => events.decode("ethernet.unknown_ethertype"),
                    0 => {}
                    _ => events.decode("vlan.unknown_type"),
                }
                return;
            }
        }
    }
}

/// Checks a label stack (RFC 3032).
fn of_labels(mut rest: &[u8], events: &mut PacketEvents) {
    loop {
        let Some((entry, tail)) = rest.split_first_chunk::<4>() else {
            return events.decode("mpls.header_too_small");
        };
        let entry = u32::from_be_bytes(*entry);
        let (label, is_last) = (entry >> 12, entry & 0x100 != 0);
        rest = tail;
        match label {
            1 if is_last => return events.decode("mpls.bad_label_router_alert"),
            3 => return events.decode("mpls.bad_label_implicit_null"),
            4..=15 => return events.decode("mpls.bad_label_reserved"),
            _ => {}
        }
        if !is_last {
            continue;
        }
        match rest.first().map(|first| first >> 4) {
            None => events.decode("mpls.pkt_too_small"),
            Some(0 | 4 | 6) => {}
            Some(_) => events.decode("mpls.unknown_payload_type"),
        }
        return;
    }
}

/// Checks PPPoE (RFC 2516, section 4).
fn of_pppoe(is_session: bool, rest: &[u8], events: &mut PacketEvents) {
    let Some((header, body)) = rest.split_first_chunk::<6>() else {
        return events.decode("pppoe.pkt_too_small");
    };
    if is_session {
        if header[1] != 0 {
            events.decode("pppoe.wrong_code");
        }
        return match body.len() {
            0 | 1 => events.decode("pppoe.pkt_too_small"),
            _ => of_ppp(body, events),
        };
    }
    if !matches!(header[1], 0x07 | 0x09 | 0x19 | 0x65 | 0xa7) {
        return events.decode("pppoe.wrong_code");
    }
    let size = usize::from(u16::from_be_bytes([header[4], header[5]]));
    let Some(mut tags) = body.get(..size) else {
        return events.decode("pppoe.malformed_tags");
    };
    while !tags.is_empty() {
        let next = tags.first_chunk::<4>().and_then(|tag| {
            let size = usize::from(u16::from_be_bytes([tag[2], tag[3]]));
            tags.get(4 + size..)
        });
        match next {
            Some(next) => tags = next,
            None => return events.decode("pppoe.malformed_tags"),
        }
    }
}

/// Checks PPP (RFC 1661, section 2).
fn of_ppp(frame: &[u8], events: &mut PacketEvents) {
    let rest = frame.strip_prefix(&[0xff, 0x03]).unwrap_or(frame);
    let (protocol, body) = match rest {
        [first, body @ ..] if first & 1 == 1 => (u16::from(*first), body),
        [high, low, body @ ..] => (u16::from_be_bytes([*high, *low]), body),
        _ => return events.decode("ppp.pkt_too_small"),
    };
    match protocol {
        0x0021 if body.len() < 20 => events.decode("ppp.ip4_pkt_too_small"),
        0x0057 if body.len() < 40 => events.decode("ppp.ip6_pkt_too_small"),
        0x002f if body.len() < 20 => events.decode("ppp.vju_pkt_too_small"),
        0x0021 | 0x0057 | 0x002f | 0x0281 => {}
        // Control protocols and other network protocols of the registry of PPP.
        0x0001..=0x00fd | 0x8001..=0x82ff | 0xc001..=0xc8ff => events.decode("ppp.unsup_proto"),
        _ => events.decode("ppp.wrong_type"),
    }
}

/// Checks ARP (RFC 826).
fn of_arp(rest: &[u8], events: &mut PacketEvents) {
    let Some(header) = rest.first_chunk::<8>() else {
        return events.decode("arp.pkt_too_small");
    };
    let word = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
    if word(0) != 1 {
        return events.decode("arp.unsupported_hardware");
    }
    if word(2) != 0x0800 {
        return events.decode("arp.unsupported_protocol");
    }
    if header[4] != 6 {
        return events.decode("arp.invalid_hardware_size");
    }
    if header[5] != 4 {
        return events.decode("arp.invalid_protocol_size");
    }
    if rest.len() < 28 {
        return events.decode("arp.invalid_pkt");
    }
    if !(1..=10).contains(&word(6)) {
        events.decode("arp.unsupported_opcode");
    }
}

/// Returns the events of the packet whose IP header is at the beginning of `bytes`.
pub(crate) fn of_ip(bytes: &[u8]) -> PacketEvents {
    let mut events = PacketEvents::NONE;
    match bytes.first().map(|first| first >> 4) {
        Some(6) => ip::v6(bytes, &mut events),
        _ => ip::v4(bytes, &mut events),
    }
    events
}

/// Returns the events of the packet at the beginning of `bytes` for which the header before names a version.
pub(crate) fn of_ip_version(bytes: &[u8], is_v6: bool) -> PacketEvents {
    let mut events = PacketEvents::NONE;
    match is_v6 {
        true => ip::v6(bytes, &mut events),
        false => ip::v4(bytes, &mut events),
    }
    events
}

#[cfg(test)]
mod tests;
