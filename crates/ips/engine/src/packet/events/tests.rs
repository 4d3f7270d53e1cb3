//! Each event of the decoder has a packet that raises it, and no other packet of the list does without saying so.

use super::*;

/// Returns an IPv4 packet with options and a payload.
fn v4(protocol: u8, options: &[u8], payload: &[u8]) -> Vec<u8> {
    let mut options = options.to_vec();
    while !options.len().is_multiple_of(4) {
        options.push(0);
    }
    let header_size = 20 + options.len();
    let size = (header_size + payload.len()) as u16;
    let mut packet = vec![0x40 | (header_size / 4) as u8, 0];
    packet.extend(size.to_be_bytes());
    packet.extend([0, 1, 0, 0, 64, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    [packet, options, payload.to_vec()].concat()
}

/// Returns an IPv6 packet.
fn v6(next: u8, payload: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x60, 0, 0, 0];
    packet.extend((payload.len() as u16).to_be_bytes());
    packet.extend([next, 64]);
    packet.extend([0x20; 32]);
    [packet, payload.to_vec()].concat()
}

fn with(mut bytes: Vec<u8>, changes: &[(usize, u8)]) -> Vec<u8> {
    for (at, byte) in changes {
        bytes[*at] = *byte;
    }
    bytes
}

/// Returns a TCP header with options.
fn tcp(options: &[u8]) -> Vec<u8> {
    let mut options = options.to_vec();
    while options.len() % 4 != 0 {
        options.push(0);
    }
    let size = (20 + options.len()) / 4;
    let mut header = vec![0; 20];
    header[12] = (size as u8) << 4;
    [header, options].concat()
}

fn ethernet(ether_type: u16, payload: &[u8]) -> Vec<u8> {
    [&[2; 12][..], &ether_type.to_be_bytes(), payload].concat()
}

/// The packets of IP, each with the event that it raises.
fn packets() -> Vec<(&'static str, Vec<u8>)> {
    let udp = |size: u16| [&[0, 1, 0, 2][..], &size.to_be_bytes(), &[0, 0]].concat();
    let gre = |first: u8, second: u8, protocol: u16, rest: &[u8]| {
        v4(
            47,
            &[],
            &[&[first, second][..], &protocol.to_be_bytes(), rest].concat(),
        )
    };
    let icmp =
        |kind: u8, code: u8, inner: &[u8]| v4(1, &[], &[&[kind, code, 0, 0, 0, 0, 0, 0][..], inner].concat());
    let icmp6 =
        |kind: u8, code: u8, inner: &[u8]| v6(58, &[&[kind, code, 0, 0, 0, 0, 0, 0][..], inner].concat());
    let twice = |next: u8, header: [u8; 8]| {
        let mut first = header;
        first[0] = next;
        let mut second = header;
        second[0] = 59;
        v6(next, &[first, second].concat())
    };
    let padn = [0, 0, 1, 4, 0, 0, 0, 0];
    vec![
        ("ipv4.pkt_too_small", vec![0x45; 10]),
        ("ipv4.wrong_ip_version", with(v4(6, &[], &tcp(&[])), &[(0, 0x55)])),
        ("ipv4.hlen_too_small", with(v4(6, &[], &[]), &[(0, 0x44)])),
        (
            "ipv4.iplen_smaller_than_hlen",
            with(v4(6, &[], &[]), &[(2, 0), (3, 10)]),
        ),
        ("ipv4.trunc_pkt", with(v4(6, &[], &[]), &[(2, 1)])),
        ("ipv4.opt_invalid_len", v4(250, &[7, 1, 4, 0], &[])),
        ("ipv4.opt_malformed", v4(250, &[7, 7, 3, 0, 0, 0, 0], &[])),
        ("ipv4.opt_duplicate", v4(250, &[148, 4, 0, 0, 148, 4, 0, 0], &[])),
        ("ipv4.opt_unknown", v4(250, &[99, 4, 0, 0], &[])),
        ("ipv4.icmpv6", v4(58, &[], &[0; 8])),
        (
            "ipv4.frag_pkt_too_large",
            with(v4(17, &[], &[0; 16]), &[(6, 0x1f), (7, 0xff)]),
        ),
        ("icmpv4.pkt_too_small", v4(1, &[], &[8, 0])),
        ("icmpv4.unknown_type", icmp(99, 0, &[])),
        ("icmpv4.unknown_code", icmp(8, 1, &[])),
        ("icmpv4.ipv4_trunc_pkt", icmp(3, 0, &[0x45; 10])),
        ("icmpv4.ipv4_unknown_ver", icmp(3, 0, &[0x65; 28])),
        ("icmpv6.pkt_too_small", v6(58, &[128, 0])),
        ("icmpv6.unknown_type", icmp6(255, 0, &[])),
        ("icmpv6.unassigned_type", icmp6(99, 0, &[])),
        ("icmpv6.experimentation_type", icmp6(100, 0, &[])),
        ("icmpv6.unknown_code", icmp6(128, 1, &[])),
        ("icmpv6.ipv6_trunc_pkt", icmp6(1, 0, &[0x60; 10])),
        ("icmpv6.ipv6_unknown_version", icmp6(1, 0, &[0x45; 48])),
        ("icmpv6.mld_message_with_invalid_hl", icmp6(130, 0, &[])),
        ("ipv6.pkt_too_small", vec![0x60; 20]),
        ("ipv6.trunc_pkt", with(v6(59, &[]), &[(5, 9)])),
        ("ipv6.trunc_exthdr", v6(0, &[59, 9, 1, 4, 0, 0, 0, 0])),
        ("ipv6.exthdr_dupl_hh", twice(0, padn)),
        ("ipv6.exthdr_dupl_rh", twice(43, [0, 0, 4, 0, 0, 0, 0, 0])),
        ("ipv6.exthdr_dupl_fh", twice(44, [0; 8])),
        ("ipv6.exthdr_dupl_ah", twice(51, [0; 8])),
        (
            "ipv6.exthdr_dupl_dh",
            v6(
                60,
                &[
                    [60, 0, 1, 4, 0, 0, 0, 0],
                    [60, 0, 1, 4, 0, 0, 0, 0],
                    [59, 0, 1, 4, 0, 0, 0, 0],
                ]
                .concat(),
            ),
        ),
        ("ipv6.exthdr_useless_fh", v6(44, &[59, 0, 0, 0, 0, 0, 0, 0])),
        ("ipv6.exthdr_invalid_optlen", v6(0, &[59, 0, 5, 9, 0, 0, 0, 0])),
        ("ipv6.exthdr_ah_res_not_null", v6(51, &[59, 0, 1, 0, 0, 0, 0, 0])),
        ("ipv6.hopopts_unknown_opt", v6(0, &[59, 0, 0x3e, 4, 0, 0, 0, 0])),
        ("ipv6.hopopts_only_padding", v6(0, &[59, 0, 1, 4, 0, 0, 0, 0])),
        ("ipv6.dstopts_unknown_opt", v6(60, &[59, 0, 0x3e, 4, 0, 0, 0, 0])),
        ("ipv6.dstopts_only_padding", v6(60, &[59, 0, 1, 4, 0, 0, 0, 0])),
        ("ipv6.zero_len_padn", v6(0, &[59, 0, 1, 0, 5, 2, 0, 0])),
        ("ipv6.rh_type_0", v6(43, &[59, 0, 0, 0, 0, 0, 0, 0])),
        (
            "ipv6.fh_non_zero_reserved_field",
            v6(44, &[17, 1, 0, 1, 0, 0, 0, 0]),
        ),
        ("ipv6.frag_invalid_length", v6(44, &[17, 0, 0, 1, 0, 0, 0, 0, 9])),
        (
            "ipv6.frag_pkt_too_large",
            v6(44, &[17, 0, 0xff, 0xf8, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8]),
        ),
        ("ipv6.data_after_none_header", v6(59, &[1])),
        ("ipv6.icmpv4", v6(1, &[8, 0, 0, 0, 0, 0, 0, 0])),
        ("ipv6.unknown_next_header", v6(200, &[])),
        ("ipv6.ipv4_in_ipv6_too_small", v6(4, &[0x45])),
        ("ipv6.ipv4_in_ipv6_wrong_version", v6(4, &[0x65; 20])),
        ("ipv6.ipv6_in_ipv6_too_small", v6(41, &[0x60])),
        ("ipv6.ipv6_in_ipv6_wrong_version", v6(41, &[0x45; 40])),
        ("tcp.pkt_too_small", v4(6, &[], &[0; 10])),
        ("tcp.hlen_too_small", v4(6, &[], &with(tcp(&[]), &[(12, 0x40)]))),
        ("tcp.opt_invalid_len", v4(6, &[], &tcp(&[2, 3, 0, 0]))),
        ("tcp.opt_duplicate", v4(6, &[], &tcp(&[3, 3, 1, 3, 3, 1]))),
        ("udp.hlen_too_small", v4(17, &[], &[0; 7])),
        ("udp.pkt_too_small", v4(17, &[], &udp(9))),
        ("udp.len_invalid", v4(17, &[], &udp(7))),
        ("udp.hlen_invalid", v4(17, &[], &[udp(8), vec![0]].concat())),
        ("sctp.pkt_too_small", v4(132, &[], &[0; 11])),
        ("esp.pkt_too_small", v4(50, &[], &[0; 7])),
        ("gre.pkt_too_small", v4(47, &[], &[0; 3])),
        ("gre.wrong_version", gre(0, 2, 0x0800, &[])),
        ("gre.version0_recur", gre(1, 0, 0x0800, &[])),
        ("gre.version0_flags", gre(0, 8, 0x0800, &[])),
        ("gre.version0_hdr_too_big", gre(0x20, 0, 0x0800, &[])),
        (
            "gre.version0_malformed_sre_hdr",
            gre(0x40, 0, 0x0800, &[0, 0, 0, 0, 8]),
        ),
        ("gre.version1_chksum", gre(0xa0, 1, 0x880b, &[0; 4])),
        ("gre.version1_route", gre(0x60, 1, 0x880b, &[0; 4])),
        ("gre.version1_ssr", gre(0x28, 1, 0x880b, &[0; 4])),
        ("gre.version1_recur", gre(0x21, 1, 0x880b, &[0; 4])),
        ("gre.version1_flags", gre(0x20, 9, 0x880b, &[0; 4])),
        ("gre.version1_wrong_protocol", gre(0x20, 1, 0x0800, &[0; 4])),
        ("gre.version1_no_key", gre(0, 1, 0x880b, &[0; 4])),
        ("gre.version1_hdr_too_big", gre(0x30, 1, 0x880b, &[0; 4])),
    ]
}

/// The frames, each with the event that it raises, and the link type.
fn frames() -> Vec<(&'static str, u32, Vec<u8>)> {
    let ip = v4(250, &[], &[]);
    let label = |label: u32, last: bool| (label << 12 | u32::from(last) << 8 | 64).to_be_bytes();
    let ppp = LinkType::PPP;
    let eth = LinkType::ETHERNET;
    let arp = |changes: &[(usize, u8)]| {
        let mut body = vec![0, 1, 8, 0, 6, 4, 0, 1];
        body.extend([0; 20]);
        ethernet(0x0806, &with(body, changes))
    };
    vec![
        ("ethernet.pkt_too_small", eth, vec![0; 13]),
        ("ethernet.unknown_ethertype", eth, ethernet(0x1234, &[])),
        ("sll.pkt_too_small", LinkType::LINUX_SLL, vec![0; 15]),
        ("sll2.pkt_too_small", LinkType::LINUX_SLL2, vec![0; 19]),
        ("chdlc.pkt_too_small", LinkType::C_HDLC, vec![0; 3]),
        ("ltnull.pkt_too_small", LinkType::NULL, vec![0; 3]),
        ("ltnull.unsupported_type", LinkType::NULL, vec![99, 0, 0, 0, 0x45]),
        ("ipraw.invalid_ip_version", LinkType::RAW, vec![0x55; 20]),
        ("vlan.header_too_small", eth, ethernet(0x8100, &[0, 1])),
        ("vlan.unknown_type", eth, ethernet(0x8100, &[0, 1, 0x12, 0x34])),
        (
            "vlan.too_many_layers",
            eth,
            ethernet(0x8100, &[[0, 1, 0x81, 0]; 4].concat()),
        ),
        ("ieee8021ah.header_too_small", eth, ethernet(0x88e7, &[0; 10])),
        ("vntag.header_too_small", eth, ethernet(0x8926, &[0; 3])),
        ("nsh.header_too_small", eth, ethernet(0x894f, &[0; 7])),
        (
            "nsh.unsupported_version",
            eth,
            ethernet(0x894f, &[0x40, 2, 1, 1, 0, 0, 0, 0]),
        ),
        (
            "nsh.bad_header_length",
            eth,
            ethernet(0x894f, &[0, 9, 1, 1, 0, 0, 0, 0]),
        ),
        ("mpls.header_too_small", eth, ethernet(0x8847, &[0; 3])),
        (
            "mpls.bad_label_router_alert",
            eth,
            ethernet(0x8847, &[&label(1, true)[..], &ip].concat()),
        ),
        (
            "mpls.bad_label_implicit_null",
            eth,
            ethernet(0x8847, &[&label(3, true)[..], &ip].concat()),
        ),
        (
            "mpls.bad_label_reserved",
            eth,
            ethernet(0x8847, &[&label(5, true)[..], &ip].concat()),
        ),
        ("mpls.pkt_too_small", eth, ethernet(0x8847, &label(16, true))),
        (
            "mpls.unknown_payload_type",
            eth,
            ethernet(0x8847, &[&label(16, true)[..], &[0x90]].concat()),
        ),
        ("pppoe.pkt_too_small", eth, ethernet(0x8864, &[0x11, 0, 0])),
        ("pppoe.wrong_code", eth, ethernet(0x8863, &[0x11, 1, 0, 0, 0, 0])),
        (
            "pppoe.malformed_tags",
            eth,
            ethernet(0x8863, &[0x11, 9, 0, 0, 0, 4, 1, 1, 0, 9]),
        ),
        ("ppp.pkt_too_small", ppp, vec![0]),
        ("ppp.ip4_pkt_too_small", ppp, vec![0, 0x21, 0x45]),
        ("ppp.ip6_pkt_too_small", ppp, vec![0, 0x57, 0x60]),
        ("ppp.vju_pkt_too_small", ppp, vec![0, 0x2f, 0x45]),
        ("ppp.unsup_proto", ppp, vec![0xc0, 0x21, 1]),
        ("ppp.wrong_type", ppp, vec![0xfe, 0x22, 1]),
        ("arp.pkt_too_small", eth, ethernet(0x0806, &[0; 7])),
        ("arp.unsupported_hardware", eth, arp(&[(1, 9)])),
        ("arp.unsupported_protocol", eth, arp(&[(2, 9)])),
        ("arp.invalid_hardware_size", eth, arp(&[(4, 9)])),
        ("arp.invalid_protocol_size", eth, arp(&[(5, 9)])),
        (
            "arp.invalid_pkt",
            eth,
            ethernet(0x0806, &[0, 1, 8, 0, 6, 4, 0, 1, 0]),
        ),
        ("arp.unsupported_opcode", eth, arp(&[(7, 99)])),
    ]
}

#[test]
fn each_event_has_a_packet_or_a_frame_that_raises_it() {
    // The defragmenter raises these, on the fragment that overlaps.
    let mut missing: Vec<&str> = DECODE_EVENTS.to_vec();
    missing.retain(|name| !matches!(*name, "ipv4.frag_overlap" | "ipv6.frag_overlap"));
    for (name, packet) in packets() {
        let is_v6 = name.starts_with("ipv6") || name.starts_with("icmpv6");
        let events = of_ip_version(&packet, is_v6);
        assert!(
            events.has(decode(name).unwrap()),
            "{name}: {:?}",
            events.names().collect::<Vec<_>>()
        );
        missing.retain(|known| *known != name);
    }
    let wrong = with(v6(59, &[]), &[(0, 0x55)]);
    assert!(of_ip_version(&wrong, true).has(decode("ipv6.wrong_ip_version").unwrap()));
    missing.retain(|known| *known != "ipv6.wrong_ip_version");
    for (name, link, frame) in frames() {
        let link = LinkType(link);
        let found = crate::packet::find_ip_header(link, &frame).err();
        let events = of_link(link, &frame, found);
        assert!(
            events.has(decode(name).unwrap()),
            "{name}: {:?}",
            events.names().collect::<Vec<_>>()
        );
        missing.retain(|known| *known != name);
    }
    assert_eq!(missing, [""; 0]);
}

#[test]
fn usual_packets_have_no_events() {
    let segment = tcp(&[2, 4, 5, 180, 4, 2, 8, 10, 0, 0, 0, 1, 0, 0, 0, 0, 1, 3, 3, 7]);
    for packet in [
        v4(6, &[], &segment),
        v4(17, &[], &[0, 1, 0, 2, 0, 8, 0, 0]),
        v4(1, &[], &[8, 0, 0, 0, 0, 1, 0, 1]),
        v4(2, &[148, 4, 0, 0], &[0; 8]),
        v4(47, &[], &[0, 0, 8, 0]),
        v6(6, &segment),
        v6(0, &[58, 0, 5, 2, 0, 0, 1, 0, 143, 0, 0, 0, 0, 0, 0, 0]),
        v6(44, &[17, 0, 0, 1, 0, 0, 0, 9, 1, 2, 3, 4, 5, 6, 7, 8]),
    ] {
        let mut events = of_ip(&packet);
        if packet.starts_with(&[0x60]) && packet.get(6) == Some(&0) {
            // The hop limit of listener discovery is 1.
            assert!(events.has(decode("icmpv6.mld_message_with_invalid_hl").unwrap()));
            events = PacketEvents::NONE;
        }
        assert_eq!(events.names().collect::<Vec<_>>(), [""; 0], "{packet:02x?}");
    }
}

#[test]
fn no_bytes_make_the_walk_panic() {
    let mut state = 1u32;
    for size in 0..200 {
        for _ in 0..50 {
            let bytes: Vec<u8> = (0..size)
                .map(|_| {
                    state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    (state >> 24) as u8
                })
                .collect();
            for first in [0x45, 0x4f, 0x60] {
                let mut packet = bytes.clone();
                if let Some(byte) = packet.first_mut() {
                    *byte = first;
                }
                of_ip(&packet);
            }
            for link in [1, 9, 0, 101, 104, 113, 276] {
                of_link(LinkType(link), &bytes, None);
            }
        }
    }
}

#[test]
fn names_are_sorted_and_none_is_raised_and_refused() {
    for list in [DECODE_EVENTS, STREAM_EVENTS] {
        assert!(list.is_sorted());
        for name in list {
            assert!(REFUSED.iter().all(|(refused, _)| refused != name), "{name}");
        }
    }
    assert!(DECODE_EVENTS.len() + STREAM_EVENTS.len() <= 256);
    assert_eq!(decode("ipv4.frag.overlap").unwrap().name(), "ipv4.frag_overlap");
    assert!(stream("wrong_thread").unwrap_err().contains("one lane"));
    assert!(stream("unheard").unwrap_err().contains("no event with this name"));
}
