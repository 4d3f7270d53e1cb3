//! Events of transport headers: RFC 9293, RFC 768, RFC 792, RFC 4443, RFC 2784, RFC 2637, RFC 9260, RFC 4303.

use super::PacketEvents;

/// Checks the header of a protocol. `ttl` is the time to live or the hop limit.
pub(super) fn of(protocol: u8, bytes: &[u8], ttl: u8, events: &mut PacketEvents) {
    match protocol {
        1 => icmp(bytes, events),
        6 => tcp(bytes, events),
        17 => udp(bytes, events),
        47 => gre(bytes, events),
        50 if bytes.len() < 8 => events.decode("esp.pkt_too_small"),
        58 => icmp6(bytes, ttl, events),
        132 if bytes.len() < 12 => events.decode("sctp.pkt_too_small"),
        _ => {}
    }
}

fn tcp(bytes: &[u8], events: &mut PacketEvents) {
    let Some(header) = bytes.first_chunk::<20>() else {
        return events.decode("tcp.pkt_too_small");
    };
    let size = usize::from(header[12] >> 4) * 4;
    if size < 20 {
        return events.decode("tcp.hlen_too_small");
    }
    let Some(mut options) = bytes.get(20..size) else {
        return events.decode("tcp.hlen_too_small");
    };
    let mut seen = [false; 256];
    while let [kind, tail @ ..] = options {
        match kind {
            0 => return,
            1 => {
                options = tail;
                continue;
            }
            _ => {}
        }
        let size = usize::from(tail.first().copied().unwrap_or_default());
        if size < 2 || size > options.len() {
            return events.decode("tcp.opt_invalid_len");
        }
        // MSS, window scale, SACK permitted, SACK, timestamps, MD5.
        let is_valid = match kind {
            2 => size == 4,
            3 => size == 3,
            4 => size == 2,
            5 => size == 2 || (10..=34).contains(&size) && size % 8 == 2,
            8 => size == 10,
            19 => size == 18,
            _ => true,
        };
        if !is_valid {
            events.decode("tcp.opt_invalid_len");
        }
        if core::mem::replace(&mut seen[usize::from(*kind)], true) {
            events.decode("tcp.opt_duplicate");
        }
        options = &options[size..];
    }
}

fn udp(bytes: &[u8], events: &mut PacketEvents) {
    let Some(header) = bytes.first_chunk::<8>() else {
        return events.decode("udp.hlen_too_small");
    };
    let size = usize::from(u16::from_be_bytes([header[4], header[5]]));
    if size > bytes.len() {
        return events.decode("udp.pkt_too_small");
    }
    if size < 8 {
        events.decode("udp.len_invalid");
    }
    if size != bytes.len() {
        events.decode("udp.hlen_invalid");
    }
}

fn icmp(bytes: &[u8], events: &mut PacketEvents) {
    let Some(header) = bytes.first_chunk::<8>() else {
        return events.decode("icmpv4.pkt_too_small");
    };
    let [kind, code, ..] = *header;
    // The largest code of each type (IANA, ICMP Type Numbers).
    let last = match kind {
        0 | 4 | 8 | 10 | 13..=18 => 0,
        3 => 15,
        5 => 3,
        9 => 16,
        11 => 1,
        12 => 2,
        40 => 5,
        _ => return events.decode("icmpv4.unknown_type"),
    };
    if code > last {
        events.decode("icmpv4.unknown_code");
    }
    if matches!(kind, 3 | 4 | 5 | 11 | 12) {
        let inner = &bytes[8..];
        match inner.first() {
            None => {}
            Some(first) if first >> 4 != 4 => events.decode("icmpv4.ipv4_unknown_ver"),
            Some(first) if inner.len() < 20 || inner.len() < usize::from(first & 0xf) * 4 => {
                events.decode("icmpv4.ipv4_trunc_pkt");
            }
            Some(_) => {}
        }
    }
}

fn icmp6(bytes: &[u8], hop_limit: u8, events: &mut PacketEvents) {
    let Some(header) = bytes.first_chunk::<8>() else {
        return events.decode("icmpv6.pkt_too_small");
    };
    let [kind, code, ..] = *header;
    // The largest code of each type (IANA, ICMPv6 Parameters).
    let last = match kind {
        1 => 8,
        3 => 1,
        4 => 10,
        2 | 128 | 129 | 133..=137 | 141 | 142 | 144..=149 | 151..=155 => 0,
        130..=132 | 143 => {
            if hop_limit != 1 {
                events.decode("icmpv6.mld_message_with_invalid_hl");
            }
            0
        }
        138 => 255,
        139 | 140 => 2,
        157..=161 => 4,
        100 | 101 | 200 | 201 => return events.decode("icmpv6.experimentation_type"),
        0 | 5..=99 | 102..=126 | 150 | 156 | 162..=199 | 202..=254 => {
            return events.decode("icmpv6.unassigned_type");
        }
        _ => return events.decode("icmpv6.unknown_type"),
    };
    if code > last {
        events.decode("icmpv6.unknown_code");
    }
    if matches!(kind, 1..=4) {
        let inner = &bytes[8..];
        match inner.first() {
            None => {}
            Some(first) if first >> 4 != 6 => events.decode("icmpv6.ipv6_unknown_version"),
            Some(_) if inner.len() < 40 => events.decode("icmpv6.ipv6_trunc_pkt"),
            Some(_) => {}
        }
    }
}

/// Checks GRE: version 0 (RFC 1701, RFC 2784), version 1 (RFC 2637, section 4.1).
fn gre(bytes: &[u8], events: &mut PacketEvents) {
    let Some(header) = bytes.first_chunk::<4>() else {
        return events.decode("gre.pkt_too_small");
    };
    let [first, second, high, low] = *header;
    let has = |bit: u8| first & bit != 0;
    let (has_checksum, has_routing, has_key, has_sequence, is_strict) =
        (has(0x80), has(0x40), has(0x20), has(0x10), has(0x08));
    let recursion = first & 0x07;
    match second & 0x07 {
        0 => {
            if recursion != 0 {
                return events.decode("gre.version0_recur");
            }
            if second >> 3 != 0 {
                return events.decode("gre.version0_flags");
            }
            let size = 4 + 4
                * (usize::from(has_checksum || has_routing)
                    + usize::from(has_key)
                    + usize::from(has_sequence));
            if size > bytes.len() {
                return events.decode("gre.version0_hdr_too_big");
            }
            if has_routing {
                routes(
                    &bytes[size..],
                    ("gre.version0_malformed_sre_hdr", "gre.version0_hdr_too_big"),
                    events,
                );
            }
        }
        1 => {
            let problem = match () {
                () if has_checksum => Some("gre.version1_chksum"),
                () if has_routing => Some("gre.version1_route"),
                () if is_strict => Some("gre.version1_ssr"),
                () if recursion != 0 => Some("gre.version1_recur"),
                () if second >> 3 & 0x0f != 0 => Some("gre.version1_flags"),
                () if u16::from_be_bytes([high, low]) != 0x880b => Some("gre.version1_wrong_protocol"),
                () if !has_key => Some("gre.version1_no_key"),
                () => None,
            };
            if let Some(problem) = problem {
                return events.decode(problem);
            }
            let size = 8 + 4 * (usize::from(has_sequence) + usize::from(second & 0x80 != 0));
            if size > bytes.len() {
                events.decode("gre.version1_hdr_too_big");
            }
        }
        _ => events.decode("gre.wrong_version"),
    }
}

/// Checks source route entries (RFC 1701): address family, offset, size, and routing information.
fn routes(mut rest: &[u8], (malformed, too_big): (&str, &str), events: &mut PacketEvents) {
    loop {
        let Some((entry, tail)) = rest.split_first_chunk::<4>() else {
            return events.decode(malformed);
        };
        if entry[0] == 0 && entry[1] == 0 && entry[3] == 0 {
            return;
        }
        match tail.get(usize::from(entry[3])..) {
            Some(tail) if entry[3] != 0 => rest = tail,
            Some(_) => return events.decode(malformed),
            None => return events.decode(too_big),
        }
    }
}
