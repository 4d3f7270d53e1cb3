//! Malformed messages: each test compares the reaction of a session with the one that RFC 7606 prescribes.

use millrace_types::Time;

use crate::speaker::{ATTRIBUTES, counts, established, messages, update};

/// The consequence of a malformed UPDATE.
#[derive(PartialEq, Debug)]
pub(crate) enum Consequence {
    /// The route is kept. An attribute may be discarded.
    Kept,
    /// The route, which was announced before, is withdrawn. The session continues.
    Withdrawn,
    /// The session ended with this code and subcode.
    Ended(u8, u8),
}
use Consequence::{Ended, Kept, Withdrawn};

pub(crate) const ROUTE: &[u8] = &[24, 203, 0, 113];

/// Announces a route, then sends an UPDATE, and returns the consequence for the route.
pub(crate) fn consequence(bytes: &[u8]) -> Consequence {
    let now = Time::ZERO;
    let mut peer = established(now, &[]);
    peer.receive(&update(&[], ATTRIBUTES, ROUTE), now);
    assert_eq!(peer.rib().counts(), counts(1, 0));
    peer.receive(bytes, now);
    if !peer.is_open() {
        assert_eq!(peer.rib().counts(), counts(0, 0), "routes end with their session");
        let (kind, body) = messages(&peer.take_output()).pop().unwrap();
        assert_eq!(kind, 3);
        return Ended(body[0], body[1]);
    }
    if peer.rib().counts() == counts(0, 0) {
        Withdrawn
    } else {
        Kept
    }
}

/// Returns the consequence of an attribute in addition to ORIGIN, AS_PATH and NEXT_HOP.
fn with(attribute: &[u8]) -> Consequence {
    let attributes = [ATTRIBUTES, attribute].concat();
    consequence(&update(&[], &attributes, ROUTE))
}

/// Returns the consequence of an UPDATE with these attributes only.
fn only(attributes: &[u8]) -> Consequence {
    consequence(&update(&[], attributes, ROUTE))
}

const ORIGIN: &[u8] = &[0x40, 1, 1, 0];
const AS_PATH: &[u8] = &[0x40, 2, 6, 2, 1, 0, 0, 0xfb, 0xf5];
const NEXT_HOP: &[u8] = &[0x40, 3, 4, 192, 0, 2, 2];

#[test]
fn well_formed_attributes_are_taken() {
    assert_eq!(only(&[ORIGIN, AS_PATH, NEXT_HOP].concat()), Kept);
    assert_eq!(with(&[0x80, 4, 4, 0, 0, 0, 1]), Kept);
    assert_eq!(with(&[0xc0, 8, 4, 0xff, 0xff, 2, 0x9a]), Kept);
    assert_eq!(with(&[0xc0, 99, 3, 1, 2, 3]), Kept);
    // The Partial bit, and a two-byte length field for a short value, are not errors.
    assert_eq!(with(&[0xf0, 8, 0, 4, 0xff, 0xff, 2, 0x9a]), Kept);
}

#[test]
fn section_7_1_origin() {
    for origin in [&[0x40, 1, 1, 3][..], &[0x40, 1, 0], &[0x40, 1, 2, 0, 0]] {
        assert_eq!(
            only(&[origin, AS_PATH, NEXT_HOP].concat()),
            Withdrawn,
            "{origin:?}"
        );
    }
}

#[test]
fn a_path_with_a_confederation_of_another_as_is_malformed() {
    // RFC 5065, section 4: AS_CONFED_SEQUENCE after the peer's AS.
    let path = [0x40, 2, 12, 2, 1, 0, 0, 0xfb, 0xf5, 3, 1, 0, 0, 0xfd, 0xe9];
    assert_eq!(only(&[ORIGIN, &path, NEXT_HOP].concat()), Withdrawn);
}

#[test]
fn section_7_2_as_path() {
    for path in [
        &[0x40, 2, 6, 5, 1, 0, 0, 0xfb, 0xf5][..],
        &[0x40, 2, 6, 2, 2, 0, 0, 0xfb, 0xf5],
        &[0x40, 2, 2, 2, 0],
        &[0x40, 2, 1, 2],
        &[0x40, 2, 7, 2, 1, 0, 0, 0xfb, 0xf5, 9],
        // AS 0, and a path that does not begin with the peer.
        &[0x40, 2, 10, 2, 2, 0, 0, 0xfb, 0xf5, 0, 0, 0, 0],
        &[0x40, 2, 6, 2, 1, 0, 0, 0xfb, 0xf6],
        &[0x40, 2, 0],
    ] {
        assert_eq!(only(&[ORIGIN, path, NEXT_HOP].concat()), Withdrawn, "{path:?}");
    }
}

#[test]
fn section_7_3_next_hop() {
    for next_hop in [
        &[0x40, 3, 3, 192, 0, 2][..],
        &[0x40, 3, 5, 192, 0, 2, 2, 2],
        &[0x40, 3, 4, 0, 0, 0, 0],
        &[0x40, 3, 4, 224, 0, 0, 1],
    ] {
        assert_eq!(
            only(&[ORIGIN, AS_PATH, next_hop].concat()),
            Withdrawn,
            "{next_hop:?}"
        );
    }
}

#[test]
fn sections_7_4_to_7_15_lengths_of_other_attributes() {
    let rows: &[(&[u8], Consequence)] = &[
        (&[0x80, 4, 3, 0, 0, 0], Withdrawn),              // MULTI_EXIT_DISC
        (&[0x40, 5, 3, 0, 0, 0], Kept),                   // LOCAL_PREF of another AS is discarded
        (&[0x40, 5, 4, 0, 0, 0, 1], Kept),                //
        (&[0x40, 6, 1, 0], Kept),                         // ATOMIC_AGGREGATE
        (&[0xc0, 7, 6, 0, 1, 1, 1, 1, 1], Kept),          // AGGREGATOR
        (&[0xc0, 8, 3, 0, 0, 0], Withdrawn),              // COMMUNITIES
        (&[0xc0, 8, 0], Withdrawn),                       //
        (&[0x80, 9, 3, 0, 0, 0], Kept),                   // ORIGINATOR_ID of another AS is discarded
        (&[0x80, 10, 3, 0, 0, 0], Kept),                  // CLUSTER_LIST of another AS is discarded
        (&[0xc0, 16, 7, 0, 0, 0, 0, 0, 0, 0], Withdrawn), // extended communities
        (&[0xc0, 17, 3, 0, 0, 0], Kept),                  // AS4_PATH
        (&[0xc0, 18, 3, 0, 0, 0], Kept),                  // AS4_AGGREGATOR
        (
            &[
                0xc0, 25, 19, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
            ],
            Withdrawn,
        ),
        (&[0xc0, 32, 11, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], Withdrawn), // large communities
    ];
    for (attribute, expected) in rows {
        assert_eq!(with(attribute), *expected, "{attribute:?}");
    }
}

#[test]
fn section_3_flags_duplicates_and_missing_attributes() {
    // The flags do not match the type of the attribute.
    assert_eq!(only(&[&[0x80, 1, 1, 0], AS_PATH, NEXT_HOP].concat()), Withdrawn);
    assert_eq!(
        only(&[ORIGIN, &[0xc0, 2, 6, 2, 1, 0, 0, 0xfb, 0xf5], NEXT_HOP].concat()),
        Withdrawn
    );
    assert_eq!(with(&[0x40, 4, 4, 0, 0, 0, 1]), Withdrawn);
    assert_eq!(with(&[0x80, 8, 4, 0, 0, 0, 1]), Withdrawn);
    // The first of two equal attributes counts; a second MP_REACH_NLRI ends the session (RFC 7606, section 3).
    assert_eq!(with(&[0x40, 1, 1, 9]), Kept);
    let reach = [0x80, 14, 5, 0, 1, 133, 0, 0];
    assert_eq!(with(&[reach, reach].concat()), Ended(3, 1));
    // A mandatory attribute is missing.
    for attributes in [[AS_PATH, NEXT_HOP], [ORIGIN, NEXT_HOP], [ORIGIN, AS_PATH]] {
        assert_eq!(only(&attributes.concat()), Withdrawn, "{attributes:?}");
    }
    // An attribute of an unknown type is marked as well-known (RFC 4271, section 6.3).
    assert_eq!(with(&[0x40, 99, 0]), Ended(3, 2));
}

#[test]
fn section_4_lengths_of_the_list() {
    // An attribute is longer than the list of attributes. The routes after the list are still found.
    assert_eq!(with(&[0xc0, 8, 9, 0, 0, 0, 1]), Withdrawn);
    assert_eq!(with(&[0xc0, 8]), Withdrawn);
    assert_eq!(with(&[0xc0]), Withdrawn);
    // A list that is longer than the message.
    let mut bytes = update(&[], ATTRIBUTES, ROUTE);
    bytes[22] = 200;
    assert_eq!(consequence(&bytes), Ended(3, 1));
    let mut bytes = update(&[], ATTRIBUTES, ROUTE);
    bytes[20] = 200;
    assert_eq!(consequence(&bytes), Ended(3, 1));
}

#[test]
fn section_5_2_a_fault_in_a_message_without_reachable_routes_ends_the_session() {
    let bare = |attributes: &[u8]| consequence(&update(&[], attributes, &[]));
    // AS_PATH exceeds the end of the attribute list, and may hide MP_REACH_NLRI.
    assert_eq!(bare(&[ORIGIN, &[0x40, 2, 200, 2, 1]].concat()), Ended(3, 1));
    assert_eq!(bare(&[0x40, 2, 200, 2, 1]), Ended(3, 1));
    assert_eq!(bare(&[0x40, 1, 1, 7]), Ended(3, 1));
    let unreach = [0x80, 15, 3, 0, 1, 133];
    assert_eq!(bare(&[&unreach[..], &[0x40, 1, 1, 7]].concat()), Ended(3, 1));
    // The session continues after a fault in a discarded attribute, after wrong flags of MP_UNREACH_NLRI, and
    // if the message has MP_REACH_NLRI.
    assert_eq!(bare(&[0x40, 6, 1, 0]), Kept);
    assert_eq!(bare(&[0x40, 15, 3, 0, 1, 133]), Kept);
    let reach = [0x80, 14, 6, 0, 25, 70, 0, 0, 255];
    assert_eq!(bare(&[&reach[..], &[0x40, 1, 1, 7]].concat()), Kept);
}

#[test]
fn next_hop_matters_only_to_routes_outside_of_mp_reach() {
    let now = Time::ZERO;
    for next_hop in [&[0x40, 3, 4, 0, 0, 0, 0][..], &[0x40, 3, 3, 192, 0, 2]] {
        let reach = [0x80, 14, 10, 0, 1, 133, 0, 0, 4, 1, 16, 203, 0];
        let attributes = [ORIGIN, AS_PATH, next_hop, &reach].concat();
        let mut peer = established(now, &[]);
        peer.receive(&update(&[], &attributes, &[]), now);
        assert_eq!(peer.rib().counts(), counts(0, 1), "{next_hop:?}");
        assert_eq!(peer.state().problems, []);
        peer.receive(&update(&[], &attributes, ROUTE), now);
        assert_eq!(peer.rib().counts(), counts(0, 0), "{next_hop:?}");
    }
}

#[test]
fn section_5_3_routes_that_cannot_be_read() {
    assert_eq!(
        consequence(&update(&[], ATTRIBUTES, &[33, 203, 0, 113, 1, 1])),
        Ended(3, 10)
    );
    assert_eq!(consequence(&update(&[], ATTRIBUTES, &[24, 203, 0])), Ended(3, 10));
    assert_eq!(consequence(&update(&[24, 203], ATTRIBUTES, ROUTE)), Ended(3, 10));
    // MP_REACH_NLRI for 2/1: a prefix of 129 bits, a next hop of 5 bytes, no routes at all.
    let reach = |next_hop: usize, routes: &[u8]| {
        let mut value = vec![0, 2, 1, next_hop as u8];
        value.extend(vec![0x20; next_hop]);
        value.push(0);
        value.extend(routes);
        let mut attribute = vec![0x80, 14, value.len() as u8];
        attribute.extend(value);
        attribute
    };
    assert_eq!(with(&reach(16, &[32, 0x20, 1, 0xd, 0xb8])), Kept);
    assert_eq!(with(&reach(16, &[129])), Ended(3, 10));
    assert_eq!(with(&reach(5, &[32, 0x20, 1, 0xd, 0xb8])), Ended(3, 9));
    assert_eq!(with(&[0x80, 14, 2, 0, 2]), Ended(3, 9));
    assert_eq!(with(&[0x80, 15, 2, 0, 2]), Ended(3, 9));
    // A family that was not negotiated is ignored.
    assert_eq!(with(&[0x80, 14, 4, 0, 25, 70, 200]), Ended(3, 9));
    assert_eq!(with(&[0x80, 14, 6, 0, 25, 70, 0, 0, 255]), Kept);
}

#[test]
fn a_malformed_flow_specification_costs_no_other() {
    let reach = |rules: &[u8]| {
        let mut attribute = vec![0x80, 14, 5 + rules.len() as u8, 0, 1, 133, 0, 0];
        attribute.extend(rules);
        [ATTRIBUTES, &attribute].concat()
    };
    let now = Time::ZERO;
    let mut peer = established(now, &[]);
    // A rule with an unknown component precedes a valid rule.
    let rules = [2, 14, 1, 8, 1, 24, 203, 0, 113, 3, 0x81, 17];
    peer.receive(&update(&[], &reach(&rules), &[]), now);
    assert!(peer.is_open());
    assert_eq!(peer.rib().counts(), counts(0, 1));
    let changes = peer.take_changes();
    assert!(
        changes.iter().any(|change| matches!(
            change,
            millrace_bgp::Change::Malformed { error, .. } if error.contains("type 14")
        )),
        "{changes:?}"
    );
    // A rule is longer than the attribute, so the end of the rule is unknown.
    peer.receive(&update(&[], &reach(&[9, 1, 24, 203]), &[]), now);
    assert!(!peer.is_open());
}
