//! Events of IP headers: RFC 791, RFC 8200, RFC 4302.

use super::PacketEvents;
use super::transport;

const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
const ESP: u8 = 50;
const AH: u8 = 51;
const NO_NEXT: u8 = 59;
const DESTINATION: u8 = 60;
/// Largest number of extension headers that are examined.
const HEADERS: usize = 32;
/// Largest size of a packet in bytes.
const PACKET_SIZE: usize = 65_535;

/// Checks an IPv4 packet.
pub(super) fn v4(bytes: &[u8], events: &mut PacketEvents) {
    let Some(header) = bytes.first_chunk::<20>() else {
        return events.decode("ipv4.pkt_too_small");
    };
    if header[0] >> 4 != 4 {
        return events.decode("ipv4.wrong_ip_version");
    }
    let header_size = usize::from(header[0] & 0xf) * 4;
    let size = usize::from(u16::from_be_bytes([header[2], header[3]]));
    if header_size < 20 {
        return events.decode("ipv4.hlen_too_small");
    }
    if size < header_size {
        return events.decode("ipv4.iplen_smaller_than_hlen");
    }
    let Some(packet) = bytes.get(..size) else {
        return events.decode("ipv4.trunc_pkt");
    };
    options(&packet[20..header_size], events);
    let field = u16::from_be_bytes([header[6], header[7]]);
    let offset = usize::from(field & 0x1fff) * 8;
    let payload = &packet[header_size..];
    if field & 0x3fff != 0 {
        if offset + payload.len() > PACKET_SIZE {
            events.decode("ipv4.frag_pkt_too_large");
        }
        return;
    }
    match header[9] {
        58 => events.decode("ipv4.icmpv6"),
        protocol => transport::of(protocol, payload, header[8], events),
    }
}

/// Checks the options of IPv4.
fn options(mut rest: &[u8], events: &mut PacketEvents) {
    let mut seen = [false; 256];
    while let [kind, tail @ ..] = rest {
        match kind {
            0 => {
                // Only zeros may follow the end of the list.
                return;
            }
            1 => {
                rest = tail;
                continue;
            }
            _ => {}
        }
        let Some(&size) = tail.first() else {
            return events.decode("ipv4.opt_invalid_len");
        };
        let Some(option) = rest.get(..usize::from(size)).filter(|_| size >= 2) else {
            return events.decode("ipv4.opt_invalid_len");
        };
        if core::mem::replace(&mut seen[usize::from(*kind)], true) {
            events.decode("ipv4.opt_duplicate");
        }
        option_body(*kind, option, events);
        rest = &rest[usize::from(size)..];
    }
}

/// Checks an option: kind, size, and its data (RFC 791, section 3.1; RFC 1108; RFC 2113; CIPSO).
fn option_body(kind: u8, option: &[u8], events: &mut PacketEvents) {
    let pointer = usize::from(option.get(2).copied().unwrap_or_default());
    match kind {
        7 | 131 | 137 => {
            if option.len() < 3 {
                return events.decode("ipv4.opt_invalid_len");
            }
            // A route has addresses of four bytes; the pointer is the number of a byte, from 1.
            if option.len() % 4 != 3 || pointer < 4 || pointer % 4 != 0 || pointer > option.len() + 1 {
                events.decode("ipv4.opt_malformed");
            }
        }
        68 => {
            if option.len() < 5 {
                return events.decode("ipv4.opt_invalid_len");
            }
            let form = option[3] & 0xf;
            let step = if form == 0 { 4 } else { 8 };
            if pointer < 5
                || pointer > option.len() + 1
                || !matches!(form, 0 | 1 | 3)
                || (pointer - 5) % step != 0
            {
                events.decode("ipv4.opt_malformed");
            }
        }
        130 if option.len() < 3 => events.decode("ipv4.opt_invalid_len"),
        136 | 148 if option.len() != 4 => events.decode("ipv4.opt_invalid_len"),
        134 if option.len() < 10 => events.decode("ipv4.opt_invalid_len"),
        130 | 133 | 134 | 136 | 148 => {}
        _ => events.decode("ipv4.opt_unknown"),
    }
}

/// Checks an IPv6 packet.
pub(super) fn v6(bytes: &[u8], events: &mut PacketEvents) {
    let Some(header) = bytes.first_chunk::<40>() else {
        return events.decode("ipv6.pkt_too_small");
    };
    if header[0] >> 4 != 6 {
        return events.decode("ipv6.wrong_ip_version");
    }
    let size = usize::from(u16::from_be_bytes([header[4], header[5]]));
    let Some(mut rest) = bytes.get(40..40 + size) else {
        return events.decode("ipv6.trunc_pkt");
    };
    let mut next = header[6];
    let mut seen = [0u8; 256];
    for _ in 0..HEADERS {
        let count = {
            let count = &mut seen[usize::from(next)];
            *count = count.saturating_add(1);
            *count
        };
        let duplicate = match next {
            HOP_BY_HOP => "ipv6.exthdr_dupl_hh",
            ROUTING => "ipv6.exthdr_dupl_rh",
            FRAGMENT => "ipv6.exthdr_dupl_fh",
            AH => "ipv6.exthdr_dupl_ah",
            ESP => {
                if rest.len() < 8 {
                    events.decode("esp.pkt_too_small");
                }
                return;
            }
            DESTINATION => "ipv6.exthdr_dupl_dh",
            NO_NEXT => {
                if !rest.is_empty() {
                    events.decode("ipv6.data_after_none_header");
                }
                return;
            }
            _ => return upper(next, rest, header[7], events),
        };
        // Destination options may be there twice: before a routing header and at the end (RFC 8200, section 4.1).
        let most = if next == DESTINATION { 2 } else { 1 };
        if count > most {
            return events.decode(duplicate);
        }
        let Some(extension) = rest.first_chunk::<8>() else {
            return events.decode("ipv6.trunc_exthdr");
        };
        let size = match next {
            FRAGMENT => 8,
            AH => (usize::from(extension[1]) + 2) * 4,
            _ => (usize::from(extension[1]) + 1) * 8,
        };
        let Some((extension, tail)) = rest.split_at_checked(size) else {
            return events.decode("ipv6.trunc_exthdr");
        };
        match next {
            HOP_BY_HOP => extension_options(&extension[2..], true, events),
            DESTINATION => extension_options(&extension[2..], false, events),
            ROUTING if extension[2] == 0 => events.decode("ipv6.rh_type_0"),
            AH if extension.get(2..4).is_some_and(|reserved| reserved != [0, 0]) => {
                events.decode("ipv6.exthdr_ah_res_not_null");
            }
            FRAGMENT if fragment(extension, tail, events) => return,
            _ => {}
        }
        next = extension[0];
        rest = tail;
    }
}

/// Checks a fragment header. Returns true if the packet is a fragment.
fn fragment(header: &[u8], data: &[u8], events: &mut PacketEvents) -> bool {
    let field = u16::from_be_bytes([header[2], header[3]]);
    let (offset, has_more) = (usize::from(field & 0xfff8), field & 1 != 0);
    if header[1] != 0 || field & 6 != 0 {
        events.decode("ipv6.fh_non_zero_reserved_field");
    }
    if offset == 0 && !has_more {
        events.decode("ipv6.exthdr_useless_fh");
        return false;
    }
    if has_more && !data.len().is_multiple_of(8) {
        events.decode("ipv6.frag_invalid_length");
    }
    if offset + data.len() > PACKET_SIZE {
        events.decode("ipv6.frag_pkt_too_large");
    }
    true
}

/// Checks the options of a hop-by-hop or destination options header (RFC 8200, section 4.2).
fn extension_options(mut rest: &[u8], is_hop_by_hop: bool, events: &mut PacketEvents) {
    let mut has_other = false;
    while let [kind, tail @ ..] = rest {
        if *kind == 0 {
            rest = tail;
            continue;
        }
        let Some((&size, tail)) = tail.split_first() else {
            return events.decode("ipv6.exthdr_invalid_optlen");
        };
        let Some((data, tail)) = tail.split_at_checked(usize::from(size)) else {
            return events.decode("ipv6.exthdr_invalid_optlen");
        };
        rest = tail;
        let expected = match kind {
            1 => {
                if data.is_empty() {
                    events.decode("ipv6.zero_len_padn");
                }
                continue;
            }
            // Router alert, jumbo payload, tunnel limit, home address, CALIPSO, quick start, RPL, ILNP.
            5 => Some(2),
            0xc2 => Some(4),
            0x04 => Some(1),
            0xc9 => Some(16),
            0x07 | 0x26 | 0x63 | 0x23 | 0x8b => None,
            _ => {
                has_other = true;
                events.decode(match is_hop_by_hop {
                    true => "ipv6.hopopts_unknown_opt",
                    false => "ipv6.dstopts_unknown_opt",
                });
                continue;
            }
        };
        has_other = true;
        if expected.is_some_and(|expected| expected != data.len()) {
            events.decode("ipv6.exthdr_invalid_optlen");
        }
    }
    if !has_other {
        events.decode(match is_hop_by_hop {
            true => "ipv6.hopopts_only_padding",
            false => "ipv6.dstopts_only_padding",
        });
    }
}

/// Checks what follows the headers of IPv6.
fn upper(next: u8, rest: &[u8], hop_limit: u8, events: &mut PacketEvents) {
    match next {
        1 => events.decode("ipv6.icmpv4"),
        4 => match rest {
            [first, ..] if rest.len() >= 20 && first >> 4 != 4 => {
                events.decode("ipv6.ipv4_in_ipv6_wrong_version");
            }
            _ if rest.len() < 20 => events.decode("ipv6.ipv4_in_ipv6_too_small"),
            _ => {}
        },
        41 => match rest {
            [first, ..] if rest.len() >= 40 && first >> 4 != 6 => {
                events.decode("ipv6.ipv6_in_ipv6_wrong_version");
            }
            _ if rest.len() < 40 => events.decode("ipv6.ipv6_in_ipv6_too_small"),
            _ => {}
        },
        6 | 17 | 47 | 58 | 132 => transport::of(next, rest, hop_limit, events),
        // Mobility, HIP, Shim6, and protocols that routers carry.
        2 | 89 | 103 | 112 | 115 | 135 | 139 | 140 | 143 => {}
        _ => events.decode("ipv6.unknown_next_header"),
    }
}
