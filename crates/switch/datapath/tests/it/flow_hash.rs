//! The flow hash: which packets it counts as one flow, and how evenly it spreads flows over buckets, for all protocols
//! of campus, provider and mobile core networks.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

use millrace_datapath::spread::{BUCKETS, FlowHash};
use millrace_wire::checksum;
use proptest::prelude::*;

/// Both ends of a flow, and the fields that change from packet to packet.
#[derive(Clone, Copy, Debug)]
struct Flow {
    from: u32,
    to: u32,
    ports: (u16, u16),
    /// Selects the values of fields that may differ between packets of a flow.
    noise: u64,
}

impl Flow {
    fn number(number: u32) -> Flow {
        Flow {
            from: 0x0a00_0000 | number,
            to: 0x0a80_0000 | number.wrapping_mul(7919) & 0xffff,
            // The ports are above those of tunnels. Otherwise packets in the other direction would be
            // addressed to a tunnel port.
            ports: (10_000 + (number % 50_000) as u16, 443),
            noise: u64::from(number),
        }
    }

    fn back(self) -> Flow {
        Flow {
            from: self.to,
            to: self.from,
            ports: (self.ports.1, self.ports.0),
            noise: self.noise.rotate_left(13) ^ 0x55,
        }
    }

    fn noise(self, noise: u64) -> Flow {
        Flow { noise, ..self }
    }

    fn byte(&self, at: u32) -> u8 {
        (self.noise >> (8 * (at % 8))) as u8
    }
}

fn ports(flow: &Flow) -> Vec<u8> {
    let mut bytes = [flow.ports.0.to_be_bytes(), flow.ports.1.to_be_bytes()].concat();
    // TCP: sequence and acknowledgement numbers, window, checksum; UDP: length and checksum. Then payload.
    bytes.extend((0..20).map(|at| flow.byte(at)));
    bytes
}

fn ipv4_of(proto: u8, flow: &Flow, payload: &[u8]) -> Vec<u8> {
    let mut header = vec![
        0x45,
        flow.byte(0),
        0,
        0,
        flow.byte(1),
        flow.byte(2),
        0x40,
        0,
        64 + flow.byte(3) % 64,
        proto,
    ];
    header.extend([0, 0]);
    header.extend(flow.from.to_be_bytes());
    header.extend(flow.to.to_be_bytes());
    let total = (header.len() + payload.len()) as u16;
    header[2..4].copy_from_slice(&total.to_be_bytes());
    let sum = checksum::internet(&header);
    header[10..12].copy_from_slice(&sum.to_be_bytes());
    [&header, payload].concat()
}

fn ipv4(flow: &Flow) -> Vec<u8> {
    ipv4_of(6, flow, &ports(flow))
}

/// Adds a hop-by-hop header to every second packet. The header does not belong to the identity of the flow.
fn ipv6(flow: &Flow) -> Vec<u8> {
    let payload = ports(flow);
    let mut bytes = vec![
        0x60,
        flow.byte(4) & 0x0f,
        flow.byte(5),
        flow.byte(6),
        0,
        0,
        17,
        64 + flow.byte(7) % 64,
    ];
    for address in [flow.from, flow.to] {
        bytes.extend([0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0]);
        bytes.extend(address.to_be_bytes());
    }
    if flow.noise & 1 == 1 {
        bytes[6] = 0;
        bytes.extend([17, 0, 1, 4, 0, 0, 0, 0]);
    }
    let size = (bytes.len() - 40 + payload.len()) as u16;
    bytes[4..6].copy_from_slice(&size.to_be_bytes());
    bytes.extend(payload);
    bytes
}

/// Returns an Ethernet frame between the two routers, in either direction.
fn ethernet(flow: &Flow, kind: u16, payload: &[u8]) -> Vec<u8> {
    let (one, two) = ([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]);
    let addresses = if flow.from < flow.to {
        [one, two]
    } else {
        [two, one]
    };
    [&addresses.concat()[..], &kind.to_be_bytes(), payload].concat()
}

fn tag(flow: &Flow, vid: u16, inner: u16, payload: &[u8]) -> Vec<u8> {
    let tci = u16::from(flow.byte(3)) << 13 | vid;
    [&tci.to_be_bytes()[..], &inner.to_be_bytes(), payload].concat()
}

/// Returns a label stack; the labels differ in each direction.
fn mpls(flow: &Flow, depth: u32, payload: &[u8]) -> Vec<u8> {
    let direction = u32::from(flow.from < flow.to);
    let mut bytes = Vec::new();
    for at in 0..depth {
        let label = 100 + 10 * at + direction;
        let bottom = u32::from(at + 1 == depth) << 8;
        let entry = label << 12 | u32::from(flow.byte(at) & 7) << 9 | bottom | u32::from(flow.byte(at + 1));
        bytes.extend(entry.to_be_bytes());
    }
    bytes.extend(payload);
    bytes
}

/// Returns the outer header of a tunnel between two gateways. The gateway may choose any UDP source port.
fn tunnel(flow: &Flow, to: u16, payload: &[u8]) -> Vec<u8> {
    let source = 0xc000 | flow.noise as u16 & 0x3fff;
    let size = (8 + payload.len()) as u16;
    let udp = [source, to, size, 0].map(u16::to_be_bytes).concat();
    gateways(flow, 17, &[&udp, payload].concat())
}

fn gateways(flow: &Flow, proto: u8, payload: &[u8]) -> Vec<u8> {
    let (one, two) = (0xc0a8_0001, 0xc0a8_0002);
    let (from, to) = if flow.from < flow.to {
        (one, two)
    } else {
        (two, one)
    };
    let outer = Flow { from, to, ..*flow };
    ethernet(flow, 0x0800, &ipv4_of(proto, &outer, payload))
}

type Build = fn(&Flow) -> Vec<u8>;

const KINDS: [(&str, Build); 22] = [
    ("TCP over IPv4", |f| ethernet(f, 0x0800, &ipv4(f))),
    ("UDP over IPv6, with and without extension headers", |f| {
        ethernet(f, 0x86dd, &ipv6(f))
    }),
    ("one VLAN tag", |f| {
        ethernet(f, 0x8100, &tag(f, 7, 0x0800, &ipv4(f)))
    }),
    ("QinQ", |f| {
        ethernet(f, 0x88a8, &tag(f, 7, 0x8100, &tag(f, 9, 0x86dd, &ipv6(f))))
    }),
    ("five tags", |f| {
        let inner = (0..4).fold((0x0800, ipv4(f)), |(kind, bytes), _| {
            (0x8100, tag(f, 5, kind, &bytes))
        });
        ethernet(f, 0x9100, &tag(f, 6, inner.0, &inner.1))
    }),
    ("MPLS over IPv4", |f| ethernet(f, 0x8847, &mpls(f, 1, &ipv4(f)))),
    ("six labels over IPv6", |f| {
        ethernet(f, 0x8847, &mpls(f, 6, &ipv6(f)))
    }),
    ("MPLS pseudo-wire", |f| {
        ethernet(f, 0x8847, &mpls(f, 2, &ethernet(f, 0x0800, &ipv4(f))))
    }),
    ("MPLS pseudo-wire with a control word", |f| {
        let word = [0, 0, f.byte(0), f.byte(1)];
        ethernet(
            f,
            0x8847,
            &mpls(f, 2, &[&word, &ethernet(f, 0x86dd, &ipv6(f))[..]].concat()),
        )
    }),
    ("PBB", |f| ethernet(f, 0x88e7, &pbb(f, 0x0800, &ipv4(f)))),
    ("PBB with tags inside and outside", |f| {
        let inside = pbb(f, 0x8100, &tag(f, 3, 0x86dd, &ipv6(f)));
        ethernet(f, 0x88a8, &tag(f, 4, 0x88e7, &inside))
    }),
    ("VXLAN", |f| {
        tunnel(
            f,
            4789,
            &[&[8, 0, 0, 0, 0, 0, 42, 0], &ethernet(f, 0x0800, &ipv4(f))[..]].concat(),
        )
    }),
    ("Geneve with an option", |f| {
        let header = [1, 0, 0x65, 0x58, 0, 0, 42, 0, 1, 2, 3, f.byte(4)];
        tunnel(f, 6081, &[&header, &ethernet(f, 0x86dd, &ipv6(f))[..]].concat())
    }),
    ("GTP-U", |f| {
        // The tunnel differs in each direction.
        let teid = u8::from(f.from < f.to);
        tunnel(
            f,
            2152,
            &[&[0x30, 255, 0, 0, 0, 0, 0, teid], &ipv4(f)[..]].concat(),
        )
    }),
    ("GTP-U with sequence numbers and a PDU session container", |f| {
        let header = [
            0x36,
            255,
            0,
            0,
            0,
            0,
            0,
            9,
            f.byte(0),
            f.byte(1),
            0,
            0x85,
            1,
            0,
            f.byte(2),
            0,
        ];
        tunnel(f, 2152, &[&header, &ipv6(f)[..]].concat())
    }),
    ("MPLS over UDP", |f| tunnel(f, 6635, &mpls(f, 1, &ipv4(f)))),
    ("GRE", |f| {
        gateways(f, 47, &[&[0, 0, 0x08, 0x00], &ipv4(f)[..]].concat())
    }),
    ("GRE with checksum, key and sequence number", |f| {
        let header = [
            0xb0,
            0,
            0x86,
            0xdd,
            f.byte(0),
            1,
            0,
            0,
            0,
            0,
            0,
            5,
            0,
            0,
            f.byte(1),
            f.byte(2),
        ];
        gateways(f, 47, &[&header, &ipv6(f)[..]].concat())
    }),
    ("Ethernet over GRE", |f| {
        let inner = ethernet(f, 0x0800, &ipv4(f));
        gateways(f, 47, &[&[0x20, 0, 0x65, 0x58, 0, 0, 0, 7], &inner[..]].concat())
    }),
    ("IP in IP", |f| gateways(f, 4, &ipv4(f))),
    ("IPv6 in IP", |f| gateways(f, 41, &ipv6(f))),
    ("a host to another, not IP", |f| {
        let host = |address: u32| [&[2, 0][..], &address.to_be_bytes()].concat();
        let kind = 0x88b5_u16.to_be_bytes();
        [&host(f.from)[..], &host(f.to), &kind, &[f.byte(0), f.byte(1)]].concat()
    }),
];

fn pbb(flow: &Flow, kind: u16, payload: &[u8]) -> Vec<u8> {
    let priority = [flow.byte(0) & 0xe0, 0, 0x12, 0x34];
    [&priority[..], &ethernet(flow, kind, payload)].concat()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn a_flow_has_one_hash_whatever_its_packets_hold_and_whichever_way_they_go(
        kind in 0..KINDS.len(), number: u32, seed: u64, noise: (u64, u64),
    ) {
        let (name, build) = KINDS[kind];
        let hash = FlowHash::new(seed);
        let flow = Flow::number(number & 0x7f_ffff);
        let first = hash.of(&build(&flow.noise(noise.0)));
        prop_assert_eq!(first, hash.of(&build(&flow.noise(noise.1))), "{}", name);
        prop_assert_eq!(first, hash.of(&build(&flow.back().noise(noise.1))), "{} back", name);
        let other = Flow::number((number & 0x7f_ffff) ^ 1);
        prop_assert_ne!(first, hash.of(&build(&other)), "{}", name);
    }

    #[test]
    fn any_bytes_have_a_hash(kind in 0..KINDS.len(), cut: usize, changes in prop::collection::vec(any::<(usize, u8)>(), 0..8)) {
        let mut frame = KINDS[kind].1(&Flow::number(5));
        for (at, byte) in changes {
            let at = at % frame.len();
            frame[at] = byte;
        }
        frame.truncate(cut % (frame.len() + 1));
        FlowHash::new(1).of(&frame);
    }
}

/// Returns the chi-square statistic of the number of flows in each bucket.
fn chi_square(build: Build, flows: u32, seed: u64) -> f64 {
    let hash = FlowHash::new(seed);
    let mut counts = vec![0_u32; BUCKETS];
    for number in 0..flows {
        let bucket = hash.of(&build(&Flow::number(number))) >> (64 - BUCKETS.trailing_zeros());
        counts[bucket as usize] += 1;
    }
    let expected = f64::from(flows) / BUCKETS as f64;
    counts
        .iter()
        .map(|count| (f64::from(*count) - expected).powi(2) / expected)
        .sum()
}

#[test]
fn flows_of_every_kind_fall_evenly_into_buckets() {
    // With 1,023 degrees of freedom the statistic has mean 1,023 and a standard deviation of 45.
    for (name, build) in KINDS {
        for seed in [1, 0xdead_beef, 0x0123_4567_89ab_cdef] {
            let statistic = chi_square(build, 20_000, seed);
            assert!((800.0..1250.0).contains(&statistic), "{name}: {statistic}");
        }
    }
}

#[test]
fn fragments_of_a_packet_have_one_hash() {
    let hash = FlowHash::new(7);
    let fragment = |offset: u16, more: bool, payload: &[u8]| {
        let mut packet = ipv4_of(17, &Flow::number(3), payload);
        let field = u16::from(more) << 13 | offset;
        packet[6..8].copy_from_slice(&field.to_be_bytes());
        hash.of(&ethernet(&Flow::number(3), 0x0800, &packet))
    };
    let first = fragment(0, true, &ports(&Flow::number(3)));
    assert_eq!(first, fragment(3, true, &[0x55; 24]));
    assert_eq!(first, fragment(6, false, &[0xaa; 8]));
}

#[test]
fn an_icmp_error_has_the_hash_of_the_flow_that_it_is_about() {
    let hash = FlowHash::new(7);
    for number in 0..100 {
        // The noise selects packets without extension headers.
        let flow = Flow::number(number).noise(0);
        let router = Flow {
            from: 0xc000_0201,
            to: flow.from,
            ..flow
        };
        let quoted = ipv4(&flow);
        let message = [&[3, 4, 0, 0, 0, 0, 5, 0], &quoted[..28]].concat();
        let v4 = [quoted, ipv4_of(1, &router, &message)].map(|packet| ethernet(&flow, 0x0800, &packet));
        let quoted = ipv6(&flow);
        let message = [&[2, 0, 0, 0, 0, 0, 5, 0], &quoted[..]].concat();
        let mut error = ipv6(&router);
        error.truncate(40);
        error[4..6].copy_from_slice(&(message.len() as u16).to_be_bytes());
        error[6] = 58;
        error.extend(message);
        let v6 = [quoted, error].map(|packet| ethernet(&flow, 0x86dd, &packet));
        for [packet, error] in [v4, v6] {
            assert_eq!(hash.of(&error), hash.of(&packet));
            assert_eq!(hash.of_addresses(&error), hash.of_addresses(&packet));
        }
    }
}

#[test]
fn a_label_stack_over_something_unknown_is_a_flow_by_its_labels() {
    let hash = FlowHash::new(7);
    let packet = |flow: &Flow, payload: &[u8]| hash.of(&ethernet(flow, 0x8847, &mpls(flow, 3, payload)));
    let flow = Flow::number(9);
    let cells = packet(&flow, &[0x10, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]);
    assert_eq!(
        cells,
        packet(
            &flow.noise(77),
            &[0x10, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7]
        )
    );
    assert_ne!(
        cells,
        packet(&flow.back(), &[0x10; 16]),
        "labels say the direction"
    );
}

#[test]
fn customers_with_the_same_addresses_are_told_apart_by_their_networks() {
    let hash = FlowHash::new(7);
    let flow = Flow::number(1);
    let vlan = |vid| hash.of(&ethernet(&flow, 0x8100, &tag(&flow, vid, 0x0800, &ipv4(&flow))));
    assert_ne!(vlan(5), vlan(6));
    let untagged = hash.of(&ethernet(&flow, 0x0800, &ipv4(&flow)));
    assert_eq!(vlan(0), untagged, "a priority tag is no network");
}
