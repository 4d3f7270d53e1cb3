//! Random packets, valid and mutated, against a slow model that knows views of headers and a list of routes.

use std::net::{IpAddr, Ipv4Addr};

use millrace_fib::NextHopKind;
use millrace_pipeline::DropReason;
use millrace_types::{Duration, split_mix};
use millrace_wire::{Fragment, IpProto, checksum, icmpv4, ipv4, ipv6};

use crate::harness::{Event, TestBed, fix_checksum, hop, host_mac, interface, link};

/// The model's statement about a packet.
#[derive(PartialEq, Eq, Debug)]
enum Outcome {
    /// The frame that leaves by an interface.
    Sent(u16, Vec<u8>),
    /// The data of the fragments that leave by an interface, from the IP header's end on.
    Fragments(u16, Vec<u8>),
    Kernel,
    Waits,
    /// A drop, and type and code of the ICMP error.
    Dropped(DropReason, Option<(u8, u8)>),
}

fn dropped(reason: DropReason) -> Outcome {
    Outcome::Dropped(reason, None)
}

/// Returns the outcome of an IPv4 packet that arrives at interface v0 in a frame for the router.
fn model4(bed: &TestBed, ip: &[u8]) -> Outcome {
    let Some(size) = ip.first().map(|byte| usize::from(byte & 15) * 4) else {
        return dropped(DropReason::RouteMalformed);
    };
    if ip.len() < 20 || ip[0] >> 4 != 4 || size < 20 || size > ip.len() {
        return dropped(DropReason::RouteMalformed);
    }
    if checksum::internet(&ip[..size]) != 0 {
        return dropped(DropReason::RouteChecksum);
    }
    let total = usize::from(u16::from_be_bytes([ip[2], ip[3]]));
    if total < size || total > ip.len() {
        return dropped(DropReason::RouteMalformed);
    }
    let ip = &ip[..total];
    let view = ipv4::View::new(ip).unwrap();
    let own: Vec<Ipv4Addr> = (0..3).map(|index| interface(index).ipv4[0].address).collect();
    let is_martian =
        |address: Ipv4Addr| address.is_multicast() || address.is_broadcast() || address.is_loopback();
    if is_martian(view.src()) || view.src().octets()[0] == 0 || own.contains(&view.src()) {
        return dropped(DropReason::RouteMartianSource);
    }
    if view.dst().is_loopback() || view.dst().octets()[0] == 0 {
        return dropped(DropReason::RouteMartianDestination);
    }
    if view.dst().is_multicast() {
        return match view.dst().octets() {
            [224, 0, 0, _] => Outcome::Kernel,
            _ => dropped(DropReason::RouteMulticast),
        };
    }
    if view.dst().is_broadcast() || view.dst() == Ipv4Addr::new(10, 0, 0, 255) {
        return Outcome::Kernel;
    }
    let is_error = view.proto() == IpProto::ICMPV4
        && view
            .payload()
            .first()
            .is_none_or(|kind| [3, 4, 5, 11, 12].contains(kind) || *kind > 18);
    let may_answer = !is_error && view.fragment_offset() == 0 && has_way_back(bed, IpAddr::V4(view.src()));
    let answers = |reason, error| Outcome::Dropped(reason, may_answer.then_some(error));
    let route = route_to(bed, IpAddr::V4(view.dst()));
    let Some(hop) = route else {
        return answers(DropReason::RouteNone, (3, 0));
    };
    match hop.kind {
        NextHopKind::Local => return Outcome::Kernel,
        NextHopKind::Blackhole => return dropped(DropReason::RouteBlackhole),
        NextHopKind::Unreachable => return answers(DropReason::RouteUnreachable, (3, 1)),
        NextHopKind::Prohibit => return answers(DropReason::RouteProhibited, (3, 13)),
        NextHopKind::NoRoute => return answers(DropReason::RouteNone, (3, 0)),
        NextHopKind::Forward | NextHopKind::Glean => {}
    }
    if hop.gateway.is_none() && interface(hop.interface).is_broadcast_of(view.dst()) {
        return dropped(DropReason::RouteBroadcast);
    }
    if view.ttl() < 2 {
        return answers(DropReason::RouteTtl, (11, 0));
    }
    let is_long = total > usize::from(hop.mtu);
    if is_long && view.dont_fragment() {
        return answers(DropReason::RouteMtu, (3, 4));
    }
    if hop.kind == NextHopKind::Glean {
        return Outcome::Waits;
    }
    if is_long {
        return Outcome::Fragments(hop.interface, view.payload().to_vec());
    }
    let mut sent = ip.to_vec();
    sent[8] -= 1;
    fix_checksum(&mut sent, 0);
    Outcome::Sent(hop.interface, framed(&hop, [8, 0], &sent))
}

/// Returns the outcome of an IPv6 packet.
fn model6(bed: &TestBed, ip: &[u8]) -> Outcome {
    if ip.len() < 40 || ip[0] >> 4 != 6 {
        return dropped(DropReason::RouteMalformed);
    }
    let total = 40 + usize::from(u16::from_be_bytes([ip[4], ip[5]]));
    if total > ip.len() {
        return dropped(DropReason::RouteMalformed);
    }
    let ip = &ip[..total];
    let view = ipv6::View::new(ip).unwrap();
    let (src, dst) = (view.src(), view.dst());
    if src.is_multicast() || src.is_loopback() || src.to_ipv4_mapped().is_some() {
        return dropped(DropReason::RouteMartianSource);
    }
    if dst.is_loopback() || dst.is_unspecified() {
        return dropped(DropReason::RouteMartianDestination);
    }
    if dst.is_multicast() {
        return match dst.octets()[1] & 15 {
            2 => Outcome::Kernel,
            _ => dropped(DropReason::RouteMulticast),
        };
    }
    if src.is_unspecified() {
        return dropped(DropReason::RouteMartianSource);
    }
    let walk = view.walk();
    let is_error = walk.proto == IpProto::ICMPV6
        && (walk.fragment == Fragment::Later
            || ip
                .get(40 + walk.size)
                .is_none_or(|kind| *kind < 128 || *kind == 137));
    let may_answer = !is_error && (src.is_unicast_link_local() || has_way_back(bed, IpAddr::V6(src)));
    let answers = |reason, error| Outcome::Dropped(reason, may_answer.then_some(error));
    let Some(hop) = route_to(bed, IpAddr::V6(dst)) else {
        return answers(DropReason::RouteNone, (1, 0));
    };
    match hop.kind {
        NextHopKind::Local => return Outcome::Kernel,
        NextHopKind::Blackhole => return dropped(DropReason::RouteBlackhole),
        NextHopKind::Unreachable => return answers(DropReason::RouteUnreachable, (1, 0)),
        NextHopKind::Prohibit => return answers(DropReason::RouteProhibited, (1, 1)),
        NextHopKind::NoRoute => return answers(DropReason::RouteNone, (1, 0)),
        NextHopKind::Forward | NextHopKind::Glean => {}
    }
    if view.hop_limit() < 2 {
        return answers(DropReason::RouteTtl, (3, 0));
    }
    if src.is_unicast_link_local() && hop.interface != 0 {
        return answers(DropReason::RouteScope, (1, 2));
    }
    if total > usize::from(hop.mtu) {
        return answers(DropReason::RouteMtu, (2, 0));
    }
    if hop.kind == NextHopKind::Glean {
        return Outcome::Waits;
    }
    let mut sent = ip.to_vec();
    sent[7] -= 1;
    Outcome::Sent(hop.interface, framed(&hop, [0x86, 0xdd], &sent))
}

/// Returns true if an error finds its way to the source of a packet.
fn has_way_back(bed: &TestBed, source: IpAddr) -> bool {
    route_to(bed, source).is_some_and(|hop| hop.kind == NextHopKind::Forward)
}

/// Returns the next hop of the longest prefix.
fn route_to(bed: &TestBed, destination: IpAddr) -> Option<millrace_fib::NextHopSpec> {
    let covering = bed
        .routes
        .iter()
        .filter(|(prefix, _)| prefix.contains(destination));
    covering
        .max_by_key(|(prefix, _)| prefix.len())
        .map(|(_, hop)| *hop)
}

fn framed(hop: &millrace_fib::NextHopSpec, kind: [u8; 2], ip: &[u8]) -> Vec<u8> {
    let tag: &[u8] = match interface(hop.interface).vid.raw() {
        0 => &[],
        vlan => &[0x81, 0, 0, vlan as u8],
    };
    [&hop.destination.0, &hop.source.0, tag, &kind, ip].concat()
}

/// Returns what the router did in the words of the model.
fn outcome(events: &[Event], is_v4: bool) -> Outcome {
    let error = |frame: &[u8]| {
        let link = if frame[12] == 0x81 { 18 } else { 14 };
        let at = link + if is_v4 { 20 } else { 40 };
        (frame[at], frame[at + 1])
    };
    match events {
        [Event::Sent(index, frame)] => Outcome::Sent(*index, frame.clone()),
        [Event::Punted(..)] => Outcome::Kernel,
        [Event::Waits(..)] => Outcome::Waits,
        [Event::Dropped(reason)] | [Event::Dropped(reason), Event::Probe(_)] => dropped(*reason),
        [Event::Dropped(reason), Event::Sent(_, frame)] => Outcome::Dropped(*reason, Some(error(frame))),
        [Event::Sent(index, _), ..] => {
            let mut data = Vec::new();
            for event in events {
                let Event::Sent(_, frame) = event else {
                    panic!("{events:?}");
                };
                let at = if *index == 0 { 14 } else { 18 };
                let view = ipv4::View::new(&frame[at..]).unwrap();
                assert!(view.checksum_is_right() && frame.len() - at <= usize::from(interface(*index).mtu));
                data.extend_from_slice(view.payload());
            }
            Outcome::Fragments(*index, data)
        }
        other => panic!("{other:?}"),
    }
}

/// Returns one of several values.
fn one_of<T: Copy>(random: &mut u64, values: &[T]) -> T {
    values[split_mix::next(random) as usize % values.len()]
}

/// Returns a random packet in a frame for the router, and whether it is IPv4.
fn packet(random: &mut u64) -> (Vec<u8>, bool) {
    let is_v4 = split_mix::next(random).is_multiple_of(2);
    let size = one_of(random, &[0, 1, 20, 500, 1352, 1353, 1372, 1373, 1400, 1440]);
    let ttl = one_of(random, &[0, 1, 2, 64, 64, 64, 64, 255]);
    let at_ip = 14;
    let mut frame = if is_v4 {
        let src = one_of(
            random,
            &[
                [10, 0, 0, 2],
                [10, 0, 0, 2],
                [10, 0, 0, 2],
                [10, 0, 0, 2],
                [127, 0, 0, 1],
                [10, 0, 20, 1],
                [224, 0, 0, 1],
                [0, 1, 1, 1],
            ],
        );
        let dst = one_of(
            random,
            &[
                [10, 0, 10, 2],
                [10, 0, 20, 3],
                [10, 0, 20, 99],
                [10, 0, 0, 1],
                [10, 0, 10, 255],
                [10, 0, 0, 255],
                [192, 0, 2, 9],
                [192, 0, 2, 200],
                [198, 51, 100, 1],
                [198, 51, 101, 1],
                [203, 0, 113, 1],
                [203, 0, 114, 1],
                [224, 0, 0, 5],
                [239, 0, 0, 5],
                [127, 0, 0, 1],
                [0, 0, 0, 1],
                [255; 4],
            ],
        );
        let builder = link(0).ipv4(src, dst);
        match split_mix::next(random) % 4 {
            0 => {
                let repr = icmpv4::Repr {
                    kind: one_of(random, &[0, 3, 8, 11, 12, 40]),
                    code: 0,
                    rest_of_header: [0; 4],
                };
                builder.icmpv4(repr).payload(&vec![1; size]).build()
            }
            _ => builder
                .udp(split_mix::next(random) as u16, 9)
                .payload(&vec![1; size])
                .build(),
        }
    } else {
        let of = |text: &str| text.parse::<std::net::Ipv6Addr>().unwrap();
        let src = one_of(
            random,
            &[
                "2001:db8::2",
                "2001:db8::2",
                "2001:db8::2",
                "2001:db8::2",
                "fe80::2",
                "::1",
                "ff02::1",
                "::",
                "::ffff:1.2.3.4",
            ],
        );
        let dst = one_of(
            random,
            &[
                "2001:db8:10::2",
                "2001:db8:20::3",
                "2001:db8:20::99",
                "2001:db8::1",
                "2001:db8:a::1",
                "2001:db8:b::1",
                "2001:db8:c::1",
                "2001:db8:d::1",
                "2001:db8:f::1",
                "ff02::5",
                "ff05::5",
                "::1",
                "::",
            ],
        );
        let builder = link(0).ipv6(of(src), of(dst));
        match split_mix::next(random) % 4 {
            0 => builder
                .icmpv6(one_of(random, &[1, 4, 128, 129, 137]), 0)
                .payload(&vec![1; size])
                .build(),
            _ => builder
                .udp(split_mix::next(random) as u16, 9)
                .payload(&vec![1; size])
                .build(),
        }
    };
    match is_v4 {
        true => {
            frame[at_ip + 8] = ttl;
            let flags = one_of(random, &[0, 0x40, 0x40, 0x20, 0x1]);
            frame[at_ip + 6] = flags & 0xe0;
            frame[at_ip + 7] = flags & 1;
            fix_checksum(&mut frame, at_ip);
        }
        false => frame[at_ip + 7] = ttl,
    }
    if split_mix::next(random).is_multiple_of(4) {
        // A byte of the header changes, and half of the time the checksum agrees with it; options have tests of their own.
        let place = at_ip + split_mix::next(random) as usize % if is_v4 { 20 } else { 40 };
        let value = split_mix::next(random) as u8;
        let is_size = is_v4 && place == at_ip && value & 15 > 5;
        let is_next_header = !is_v4 && place == at_ip + 6;
        if !is_size && !is_next_header {
            frame[place] = value;
        }
        if is_v4 && split_mix::next(random).is_multiple_of(2) && frame[at_ip] & 15 == 5 {
            fix_checksum(&mut frame, at_ip);
        }
    }
    if split_mix::next(random).is_multiple_of(16) {
        frame.truncate(at_ip + split_mix::next(random) as usize % 64);
    }
    (frame, is_v4)
}

#[test]
fn a_hundred_thousand_packets_have_the_outcome_of_the_model() {
    let mut bed = TestBed::new();
    for (prefix, kind) in [
        ("198.51.100.0/24", NextHopKind::Unreachable),
        ("198.51.101.0/24", NextHopKind::Prohibit),
        ("203.0.113.0/24", NextHopKind::Blackhole),
        ("2001:db8:a::/48", NextHopKind::Unreachable),
        ("2001:db8:b::/48", NextHopKind::Prohibit),
        ("2001:db8:c::/48", NextHopKind::Blackhole),
    ] {
        bed.route(prefix, &[millrace_fib::NextHopSpec::without_interface(kind)]);
    }
    bed.route("192.0.2.0/24", &[hop(1, 3, Some("10.0.10.3"))]);
    bed.route("192.0.2.128/25", &[hop(2, 3, Some("10.0.20.3"))]);
    bed.route("2001:db8:f::/48", &[hop(1, 3, Some("2001:db8:10::3"))]);
    let mut random = 0x6d6f_6465_6c;
    let mut seen = std::collections::BTreeMap::<String, usize>::new();
    for number in 0..100_000 {
        // No rate limits: they have tests of their own.
        bed.now = bed.now + Duration::from_millis(2);
        let (frame, is_v4) = packet(&mut random);
        let expected = match is_v4 {
            true => model4(&bed, &frame[14..]),
            false => model6(&bed, &frame[14..]),
        };
        let events = bed.one(&frame);
        assert_eq!(outcome(&events, is_v4), expected, "packet {number}: {frame:02x?}");
        let name = match &expected {
            Outcome::Sent(..) => "sent".to_owned(),
            Outcome::Fragments(..) => "fragments".to_owned(),
            Outcome::Kernel => "kernel".to_owned(),
            Outcome::Waits => "waits".to_owned(),
            Outcome::Dropped(reason, error) => format!("{reason} {error:?}"),
        };
        *seen.entry(name).or_default() += 1;
    }
    assert!(seen["sent"] > 5_000 && seen["fragments"] > 100, "{seen:?}");
    assert!(seen.len() > 25, "{seen:?}");
    assert_eq!(host_mac(1, 3), hop(1, 3, None).destination);
}

/// The broadcast address of an interface's subnet, in the words of the model.
trait Broadcast {
    fn is_broadcast_of(&self, address: Ipv4Addr) -> bool;
}

impl Broadcast for millrace_router::Interface {
    fn is_broadcast_of(&self, address: Ipv4Addr) -> bool {
        let own = self.ipv4[0].address.octets();
        address.octets() == [own[0], own[1], own[2], 255]
    }
}
