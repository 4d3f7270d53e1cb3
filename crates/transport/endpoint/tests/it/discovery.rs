//! Addresses: duplicates, conflicts, and hosts that claim the addresses of others.

use std::net::Ipv4Addr;

use millrace_endpoint::{DropReason, Event, Received};
use millrace_types::{Duration, Mac};
use millrace_wire::{Builder, arp, icmpv6, ip::Pseudo, ipv6};

use crate::link::{Link, config, mac};

const OVERRIDE: u32 = 0x2000_0000;
const SOLICITED: u32 = 0x4000_0000;
/// Eve, who is on the link and has no endpoint.
const EVE: Mac = Mac([2, 0, 0, 0, 0, 0xee]);

fn arp_frame(dst: Mac, repr: arp::Repr) -> Vec<u8> {
    Builder::ethernet(dst, repr.sha).arp(repr).build()
}

/// Returns an advertisement from Eve, with a hop limit.
fn advertisement(src: &str, dst: &str, target: &str, flags: u32, hop_limit: u8) -> Vec<u8> {
    let [src, dst, target] = [src, dst, target].map(|text| text.parse().unwrap());
    nd(
        EVE,
        (src, dst),
        hop_limit,
        icmpv6::NdRepr {
            kind: icmpv6::NEIGHBOR_ADVERT,
            flags,
            target,
            lla: Some(EVE),
        },
    )
}

fn nd(
    from: Mac,
    (src, dst): (std::net::Ipv6Addr, std::net::Ipv6Addr),
    hop_limit: u8,
    message: icmpv6::NdRepr,
) -> Vec<u8> {
    let mut body = Vec::new();
    message.emit(&Pseudo::V6 { src, dst }, &mut body);
    let header = ipv6::Repr {
        src,
        dst,
        next_header: millrace_wire::IpProto::ICMPV6,
        dscp: Default::default(),
        ecn: Default::default(),
        flow_label: Default::default(),
        hop_limit,
        payload_size: body.len() as u16,
    };
    let group = dst.octets();
    let to = if dst.is_multicast() {
        Mac([0x33, 0x33, group[12], group[13], group[14], group[15]])
    } else {
        mac(1)
    };
    [&to.0[..], &from.0, &[0x86, 0xdd], &header.to_bytes(), &body].concat()
}

fn conflicts(link: &Link, host: usize) -> Vec<(String, bool)> {
    let conflict = |event: &Event| match event {
        Event::Conflict { address, usable, .. } => Some((address.to_string(), *usable)),
        _ => None,
    };
    link.hosts[host].events.iter().filter_map(conflict).collect()
}

#[test]
fn of_two_hosts_with_one_address_the_second_notices_and_does_not_use_it() {
    for address in ["192.0.2.1/24", "2001:db8::1/64"] {
        let mut link = Link::new([config(1, &[address])]);
        link.run(Duration::from_secs(10));
        let mut second = Link::new([config(2, &[address])]);
        link.hosts.append(&mut second.hosts);
        // The second host started to probe at time zero, so its timers catch up.
        link.run(Duration::from_secs(10));
        let ip = address.split('/').next().unwrap().to_owned();
        assert_eq!(conflicts(&link, 1), [(ip.clone(), false)]);
        let usable = [0, 1].map(|at| link.hosts[at].endpoint.is_usable(ip.parse().unwrap()));
        assert_eq!(usable, [true, false]);
        assert!(link.hosts[1].endpoint.is_probed());
    }
}

#[test]
fn two_hosts_that_probe_one_address_at_once_both_leave_it() {
    for address in ["192.0.2.1/24", "2001:db8::1/64"] {
        let mut link = Link::new([config(1, &[address]), config(2, &[address])]);
        link.run(Duration::from_secs(10));
        let ip = address.split('/').next().unwrap().parse().unwrap();
        assert!(link.hosts.iter().all(|host| !host.endpoint.is_usable(ip)));
        assert!([0, 1].iter().all(|at| conflicts(&link, *at).len() == 1));
    }
}

#[test]
fn a_used_address_is_defended_once_in_ten_seconds() {
    let mut link = Link::pair();
    let own = Ipv4Addr::new(192, 0, 2, 1);
    let claim = arp_frame(
        Mac::BROADCAST,
        arp::Repr {
            op: arp::REQUEST,
            sha: EVE,
            spa: own,
            tha: Mac::ZERO,
            tpa: own,
        },
    );
    for _ in 0..50 {
        assert_eq!(link.inject(0, &claim), Received::Handled);
    }
    link.deliver();
    assert_eq!(link.seen.len(), 1, "one announcement");
    assert_eq!(conflicts(&link, 0).len(), 50);
    assert!(link.hosts[0].endpoint.is_usable(own.into()));
}

#[test]
fn a_spoofed_mac_address_does_not_take_over_a_neighbour_that_answers() {
    let mut link = Link::pair();
    for to in ["192.0.2.2:7800", "[2001:db8::2]:7800"] {
        link.send(0, to, &[b"x"], 100).unwrap();
    }
    link.payloads(1);
    let spa = Ipv4Addr::new(192, 0, 2, 2);
    let tpa = Ipv4Addr::new(192, 0, 2, 1);
    let spoof = |op| arp::Repr {
        op,
        sha: EVE,
        spa,
        tha: mac(1),
        tpa,
    };
    let frames = [
        arp_frame(mac(1), spoof(arp::REPLY)),
        arp_frame(Mac::BROADCAST, spoof(arp::REQUEST)),
        arp_frame(
            Mac::BROADCAST,
            arp::Repr {
                tpa: spa,
                ..spoof(arp::REQUEST)
            },
        ),
        advertisement("2001:db8::2", "ff02::1", "2001:db8::2", OVERRIDE, 255),
        advertisement(
            "2001:db8::2",
            "2001:db8::1",
            "2001:db8::2",
            OVERRIDE | SOLICITED,
            255,
        ),
        advertisement("2001:db8::2", "ff02::1", "2001:db8::2", 0, 255),
        nd(
            EVE,
            ("2001:db8::2".parse().unwrap(), "2001:db8::1".parse().unwrap()),
            255,
            icmpv6::NdRepr {
                kind: icmpv6::NEIGHBOR_SOLICIT,
                flags: 0,
                target: "2001:db8::1".parse().unwrap(),
                lla: Some(EVE),
            },
        ),
    ];
    for frame in frames {
        assert_eq!(link.inject(0, &frame), Received::Handled);
        link.run(Duration::from_secs(3));
        link.seen.clear();
        for to in ["192.0.2.2:7800", "[2001:db8::2]:7800"] {
            link.send(0, to, &[b"secret"], 100).unwrap();
        }
        assert_eq!(link.payloads(1).len(), 2);
        let datagrams = link
            .seen
            .iter()
            .filter(|frame| frame.windows(6).any(|bytes| bytes == b"secret"));
        assert!(datagrams.into_iter().all(|frame| frame[..6] == mac(2).0));
    }
}

#[test]
fn a_neighbour_that_moved_to_another_interface_is_followed() {
    let mut link = Link::pair();
    link.send(0, "192.0.2.2:7800", &[b"x"], 100).unwrap();
    link.hosts.pop();
    let mut moved = Link::new([config(7, &["192.0.2.2/24"])]);
    link.hosts.append(&mut moved.hosts);
    // Probes and announcements of the new interface, then the old one is asked three times in vain.
    link.run(Duration::from_secs(10));
    link.send(0, "192.0.2.2:7800", &[b"y"], 100).unwrap();
    assert_eq!(link.payloads(1), [b"y"]);
}

#[test]
fn neighbour_discovery_from_another_link_or_with_broken_options_is_dropped() {
    let mut link = Link::pair();
    let refused = Received::Dropped(DropReason::Discovery);
    let far = advertisement("2001:db8::2", "2001:db8::1", "2001:db8::2", OVERRIDE, 254);
    assert_eq!(link.inject(0, &far), refused);
    let group = advertisement("2001:db8::2", "2001:db8::1", "ff02::1", OVERRIDE, 255);
    assert_eq!(link.inject(0, &group), refused);
    let solicited = advertisement("2001:db8::2", "ff02::1", "2001:db8::2", SOLICITED, 255);
    assert_eq!(link.inject(0, &solicited), refused);
    // The only option gets a length of zero, and the checksum is mended: its words sum to one less.
    let mut broken = advertisement("2001:db8::2", "2001:db8::1", "2001:db8::2", OVERRIDE, 255);
    let option = broken.len() - 8;
    broken[option + 1] = 0;
    let checksum = u16::from_be_bytes([broken[14 + 40 + 2], broken[14 + 40 + 3]]);
    let mended = millrace_wire::checksum::Change::of16(0x0201, 0x0200).apply(checksum);
    broken[14 + 40 + 2..14 + 40 + 4].copy_from_slice(&mended.to_be_bytes());
    assert_eq!(link.inject(0, &broken), refused);
}

#[test]
fn questions_of_unknown_peers_are_answered_and_those_for_others_are_not() {
    let mut link = Link::pair();
    let ask = |tpa: [u8; 4]| {
        arp_frame(
            Mac::BROADCAST,
            arp::Repr {
                op: arp::REQUEST,
                sha: EVE,
                spa: Ipv4Addr::new(192, 0, 2, 99),
                tha: Mac::ZERO,
                tpa: tpa.into(),
            },
        )
    };
    link.inject(0, &ask([192, 0, 2, 1]));
    link.deliver();
    let answer = link.seen.pop().unwrap();
    let view = arp::View::new(&answer[14..]).unwrap();
    assert_eq!(answer[..6], EVE.0);
    assert_eq!((view.op(), view.sha(), view.tha()), (arp::REPLY, mac(1), EVE));
    link.inject(0, &ask([192, 0, 2, 3]));
    link.deliver();
    assert!(link.seen.is_empty());
}
