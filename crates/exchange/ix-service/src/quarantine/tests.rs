//! Tests with frames of correct and of faulty routers.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::collections::BTreeSet;

use millrace_ix_model::{Prefix, TagType, VlanConfig, VlanId, link_local};
use millrace_types::Mac;
use millrace_wire::{arp, icmpv6, ipv6};

use super::frames::{self, ENGINE_MAC, arp_request, gratuitous_arp, tagged, unsolicited_advertisement};
use super::judge::{Check, Expected, judge};
use super::{OUTSIDE, highest_addresses};

const OWN: Mac = Mac([2, 0, 0, 0, 1, 1]);
const OTHER: Mac = Mac([2, 0, 0, 0, 1, 2]);
const OWN_V4: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const OTHER_V4: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 2);
const OWN_V6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);

fn check(frame: &[u8]) -> Result<bool, Check> {
    let networks: [Prefix; 2] = ["192.0.2.0/24", "2001:db8::/64"].map(|text| text.parse().unwrap());
    let ethertypes = BTreeSet::from([0x0800, 0x0806, 0x86dd]);
    let expected = Expected {
        macs: BTreeSet::from([OWN]),
        ips: BTreeSet::from([IpAddr::V4(OWN_V4), IpAddr::V6(OWN_V6)]),
        ethertypes: &ethertypes,
        networks: &networks,
    };
    judge(frame, &expected).map_err(|(check, text)| {
        assert!(!text.text.is_empty() && !text.coded.is_empty());
        check
    })
}

fn ethernet(dst: Mac, src: Mac, ethertype: u16, body: &[u8]) -> Vec<u8> {
    [&dst.0[..], &src.0, &ethertype.to_be_bytes(), body].concat()
}

fn arp_reply(spa: Ipv4Addr) -> Vec<u8> {
    let reply = arp::Repr {
        op: arp::REPLY,
        sha: OWN,
        spa,
        tha: ENGINE_MAC,
        tpa: Ipv4Addr::new(192, 0, 2, 254),
    };
    ethernet(ENGINE_MAC, OWN, 0x0806, &reply.to_bytes())
}

#[test]
fn a_right_router_has_no_fault() {
    for frame in [
        arp_request(OWN, OWN_V4, OTHER_V4),
        arp_request(OWN, Ipv4Addr::UNSPECIFIED, OWN_V4),
        gratuitous_arp(Mac::BROADCAST, OWN, OWN_V4),
        arp_reply(OWN_V4),
        unsolicited_advertisement(OTHER, OWN, OWN_V6),
        unsolicited_advertisement(OTHER, OWN, link_local(OWN)),
    ] {
        assert_eq!(check(&frame), Ok(true), "{frame:02x?}");
    }
    assert_eq!(
        check(&[0; 10]),
        Ok(false),
        "a frame without a header says nothing"
    );
    for ethertype in [0x0800, 0x86dd] {
        let malformed = ethernet(OTHER, OWN, ethertype, &[0xff; 46]);
        assert_eq!(check(&malformed), Ok(false), "a malformed IP header says nothing");
    }
}

#[test]
fn arp_is_judged_by_its_sender_and_its_target() {
    assert_eq!(check(&arp_reply(OTHER_V4)), Err(Check::ProxyArp));
    assert_eq!(check(&arp_reply(OUTSIDE)), Err(Check::ProxyArp));
    assert_eq!(check(&arp_request(OWN, OTHER_V4, OWN_V4)), Err(Check::Arp));
    assert_eq!(
        check(&arp_request(OWN, OWN_V4, OUTSIDE)),
        Err(Check::Arp),
        "its netmask is too short"
    );
    assert_eq!(check(&arp_request(OTHER, OWN_V4, OTHER_V4)), Err(Check::Mac));
}

#[test]
fn protocols_between_bridges_are_named_whoever_sends_them() {
    let cisco = Mac([1, 0, 0x0c, 0xcc, 0xcc, 0xcc]);
    let reserved = |low| Mac([1, 0x80, 0xc2, 0, 0, low]);
    for src in [OWN, OTHER] {
        for (frame, found) in [
            (ethernet(reserved(0), src, 38, &[0x42, 0x42, 3]), Check::Stp),
            (
                ethernet(Mac([1, 0, 0x0c, 0xcc, 0xcc, 0xcd]), src, 50, &[0xaa, 0xaa, 3]),
                Check::Stp,
            ),
            (ethernet(reserved(2), src, 0x8809, &[1]), Check::Lacp),
            (ethernet(reserved(0x0e), src, 0x88cc, &[]), Check::Lldp),
            (
                ethernet(cisco, src, 20, &[0xaa, 0xaa, 3, 0, 0, 0x0c, 0x20, 0x04]),
                Check::Cdp,
            ),
            (ethernet(reserved(1), src, 0x8808, &[]), Check::Ethertype),
        ] {
            assert_eq!(check(&frame), Err(found), "{frame:02x?}");
        }
    }
}

#[test]
fn what_the_lan_does_not_pass_is_a_fault() {
    let icmpv6 = |kind: u8| {
        let mut packet = vec![0x60, 0, 0, 0, 0, 8, 58, 255];
        packet.extend(OWN_V6.octets());
        packet.extend(Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1).octets());
        packet.extend([kind, 0, 0, 0, 0, 0, 0, 0]);
        ethernet(Mac([0x33, 0x33, 0, 0, 0, 1]), OWN, 0x86dd, &packet)
    };
    for (kind, found) in [
        (134, Err(Check::Ra)),
        (133, Err(Check::Ra)),
        (137, Err(Check::Redirect)),
        (143, Ok(true)),
        (icmpv6::NEIGHBOR_ADVERT, Err(Check::Nd)),
    ] {
        assert_eq!(check(&icmpv6(kind)), found, "ICMPv6 {kind}");
    }
    for (ethertype, found) in [
        (0x9000, Check::Ethertype),
        (0x8847, Check::Ethertype),
        (30, Check::Ethertype),
        (0x8100, Check::Tag),
    ] {
        assert_eq!(check(&ethernet(OTHER, OWN, ethertype, &[0; 46])), Err(found));
    }
    let foreign = unsolicited_advertisement(OTHER, OWN, Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 2));
    assert_eq!(check(&foreign), Err(Check::Nd));
}

#[test]
fn the_engines_frames_are_valid_and_get_the_tags_of_their_end() {
    let advertisement = unsolicited_advertisement(OTHER, OWN, OWN_V6);
    let ip = ipv6::View::new(&advertisement[14..]).unwrap();
    let message = icmpv6::View::new(ip.payload()).unwrap();
    assert!(message.checksum_is_right(&ip.pseudo()));
    let neighbour = message.neighbor().unwrap();
    assert_eq!((neighbour.target(), neighbour.lla()), (OWN_V6, Some(OWN)));
    let vlan = |vid| VlanId::new(vid).unwrap();
    let question = arp_request(ENGINE_MAC, OTHER_V4, OWN_V4);
    assert_eq!(question.len(), 60);
    for config in [
        VlanConfig::Port,
        VlanConfig::Dot1q {
            vlan: vlan(100),
            ethertype: TagType::CTag,
        },
        VlanConfig::Qinq {
            outer: vlan(7),
            inner: vlan(8),
            ethertype: TagType::STag,
        },
    ] {
        let sent = tagged(question.clone(), config);
        let vids = frames::vids(&sent);
        assert_eq!(vids, frames::vids_of(config));
        assert_eq!(frames::without_tags(&sent, vids.len()), question);
    }
}

#[test]
fn questions_come_from_addresses_that_nobody_has() {
    let highest = |text: &str| highest_addresses(text.parse().unwrap()).collect::<Vec<_>>();
    assert_eq!(highest("192.0.2.0/24").len(), 254);
    assert_eq!(highest("192.0.2.0/24")[0], Ipv4Addr::new(192, 0, 2, 254));
    assert_eq!(
        highest("192.0.2.0/30"),
        [3, 2, 1].map(|last| Ipv4Addr::new(192, 0, 2, last))[1..]
    );
    assert!(highest("192.0.2.0/31").is_empty());
    assert!(highest("2001:db8::/64").is_empty());
}
