//! Datagrams between two endpoints.

use millrace_endpoint::{DropReason, Event, SendError, UnreachableReason};
use millrace_types::{Duration, Vid};
use millrace_wire::EtherType;
use proptest::prelude::*;

use crate::link::{Link, config, mac};

#[test]
fn the_first_datagrams_wait_for_the_mac_address_and_arrive_in_order() {
    for (to, from) in [
        ("192.0.2.2:7800", "192.0.2.1:7800"),
        ("[2001:db8::2]:7800", "[2001:db8::1]:7800"),
    ] {
        let mut link = Link::pair();
        let bytes: Vec<u8> = (0..5_000_u32).map(|at| at as u8).collect();
        assert_eq!(link.send(0, to, &[&bytes], 1_400), Ok(4));
        let expected: Vec<Vec<u8>> = bytes.chunks(1_400).map(<[u8]>::to_vec).collect();
        assert_eq!(link.hosts[1].arrived[0].0, from.parse().unwrap());
        assert_eq!(link.payloads(1), expected);
        // The link carried one solicitation, one advertisement and four datagrams.
        assert_eq!(link.seen.len(), 6);
        // The reply needs no solicitation, because the host has learned the sender's address.
        link.seen.clear();
        assert_eq!(link.send(1, from, &[b"answer"], 100), Ok(1));
        assert_eq!(link.payloads(0), [b"answer"]);
        assert_eq!(link.seen.len(), 1);
    }
}

#[test]
fn frames_of_a_vlan_have_its_tag_and_others_are_not_taken() {
    let tagged = |number, address| {
        let mut config = config(number, &[address]);
        config.vlan = Some(Vid::from_tci(42));
        config
    };
    let mut link = Link::new([
        tagged(1, "192.0.2.1/24"),
        tagged(2, "192.0.2.2/24"),
        config(3, &["192.0.2.2/24"]),
    ]);
    link.run(Duration::from_secs(10));
    assert_eq!(link.send(0, "192.0.2.2:7800", &[b"x"], 100), Ok(1));
    assert_eq!((link.payloads(1).len(), link.payloads(2).len()), (1, 0));
    let tag = |frame: &[u8]| (frame[12..14] == EtherType::VLAN.0.to_be_bytes()).then(|| frame[15]);
    let tags: Vec<Option<u8>> = link.seen.iter().map(|frame| tag(frame)).collect();
    assert!(tags.contains(&Some(42)) && tags.contains(&None));
    assert!(link.hosts.iter().all(|host| {
        host.events
            .iter()
            .all(|event| matches!(event, Event::Usable { .. }))
    }));
}

#[test]
fn what_cannot_be_sent_is_refused_by_name() {
    let mut link = Link::pair();
    for (to, max) in [("192.0.2.2:1", 1_472), ("[2001:db8::2]:1", 1_452)] {
        let result = link.send(0, to, &[&vec![0; max + 1]], max + 1);
        let is_refused = matches!(
            result,
            Err(SendError::TooBig {
                mtu: 1_500,
                size: 1_501,
                ..
            })
        );
        assert!(is_refused, "{result:?}");
        assert_eq!(link.send(0, to, &[&vec![0; max]], max), Ok(1));
    }
    let mut refused = |to: &str| link.send(0, to, &[b"x"], 1).unwrap_err();
    for to in ["192.0.2.255:1", "224.0.0.1:1", "0.0.0.0:1", "[ff02::1]:1"] {
        assert!(matches!(refused(to), SendError::NotUnicast { .. }), "{to}");
    }
    for to in ["203.0.113.1:1", "[2001:db8:1::1]:1", "192.0.2.1:1"] {
        assert!(matches!(refused(to), SendError::NoRoute { .. }), "{to}");
    }
    let to = "192.0.2.2:1".parse().unwrap();
    let mut frames = crate::link::Frames::default();
    let error = link.hosts[0]
        .endpoint
        .send(link.now, 9, to, &[&b"x"[..]], 1, &mut frames);
    assert_eq!(error, Err(SendError::NotBound { port: 9 }));
}

#[test]
fn a_next_hop_that_does_not_answer_is_reported() {
    let mut link = Link::pair();
    assert_eq!(link.send(0, "192.0.2.77:7800", &[b"x"], 100), Ok(1));
    link.run(Duration::from_secs(5));
    let unreachable = Event::Unreachable {
        to: "192.0.2.77:0".parse().unwrap(),
        reason: UnreachableReason::NoNeighbour,
    };
    assert!(link.hosts[0].events.contains(&unreachable));
    assert_eq!(link.hosts[0].endpoint.counters().unsent, 1);
}

#[test]
fn addresses_outside_of_the_prefix_are_reached_through_the_gateway() {
    let mut sender = config(1, &["192.0.2.1/24", "2001:db8::1/64"]);
    sender.gateways = vec!["192.0.2.254".parse().unwrap(), "2001:db8::fe".parse().unwrap()];
    let mut link = Link::new([sender, config(9, &["192.0.2.254/24", "2001:db8::fe/64"])]);
    link.run(Duration::from_secs(10));
    link.seen.clear();
    for to in ["203.0.113.1:7800", "[2001:db8:1::1]:7800"] {
        assert_eq!(link.send(0, to, &[b"x"], 100), Ok(1));
        let last = link.seen.last().unwrap();
        assert_eq!(last[..6], mac(9).0, "the router gets the frame");
    }
}

proptest! {
    #[test]
    fn datagrams_arrive_as_they_were_sent_however_their_bytes_are_cut(
        parts in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..300), 0..20), segment in 1usize..1_400, v6: bool,
    ) {
        let mut link = Link::pair();
        let parts: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
        let all = parts.concat();
        // The number of datagrams is at most that which may wait for the MAC address.
        prop_assume!(all.len() / segment < 60);
        let to = if v6 { "[2001:db8::2]:7800" } else { "192.0.2.2:7800" };
        let before = *link.hosts[1].endpoint.counters();
        for _ in 0..2 {
            link.send(0, to, &parts, segment).unwrap();
            let expected: Vec<Vec<u8>> = match all.len() {
                0 => vec![Vec::new()],
                _ => all.chunks(segment).map(<[u8]>::to_vec).collect(),
            };
            prop_assert_eq!(link.payloads(1), expected);
        }
        let counters = link.hosts[1].endpoint.counters();
        prop_assert!(DropReason::ALL.iter().all(|reason| counters.dropped(*reason) == before.dropped(*reason)));
    }
}
