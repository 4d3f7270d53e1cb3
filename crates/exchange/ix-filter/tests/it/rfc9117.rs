//! Validation of Flowspec rules among random routes, against an oracle that follows the text of RFC 9117,
//! section 4.1.

use proptest::prelude::*;

use crate::world::{World, bgp, udp_to};

const ASNS: [u32; 3] = [64_501, 64_502, 64_503];

/// Returns a prefix within 10.0.0.0/14; such prefixes often cover each other.
fn prefix() -> impl Strategy<Value = String> {
    (0u8..4, 0u8..3, prop::sample::select(vec![14u8, 16, 23, 24, 32])).prop_map(|(second, third, len)| {
        let address = core::net::IpAddr::from([10, second, third, 1]);
        millrace_bgp::Prefix::new(address, len).unwrap().to_string()
    })
}

/// Returns a prefix within 2001:db8::/30; such prefixes often cover each other.
fn prefix6() -> impl Strategy<Value = String> {
    (
        0u16..4,
        0u16..3,
        prop::sample::select(vec![30u8, 32, 47, 48, 64, 128]),
    )
        .prop_map(|(second, third, len)| {
            let address = core::net::IpAddr::from([0x2001, 0xdb8 + second, third, 0, 0, 0, 0, 1]);
            millrace_bgp::Prefix::new(address, len).unwrap().to_string()
        })
}

fn covers(one: &str, other: &str) -> bool {
    let (one, other) = (bgp(one), bgp(other));
    one.len() <= other.len() && millrace_bgp::Prefix::new(other.address(), one.len()) == Some(one)
}

/// Returns true if the rule of an AS for a destination is feasible.
fn oracle(routes: &[(u32, String)], asn: u32, destination: &str) -> bool {
    let covering: Vec<_> = routes
        .iter()
        .filter(|(_, prefix)| covers(prefix, destination))
        .collect();
    let Some(longest) = covering.iter().map(|(_, prefix)| bgp(prefix).len()).max() else {
        return false;
    };
    // Rule b: the originator is that of a best match. Several members may announce the same prefix.
    let is_best = covering
        .iter()
        .any(|(origin, prefix)| bgp(prefix).len() == longest && *origin == asn);
    // Rule c: nobody else announces a part of the destination.
    let is_split = routes
        .iter()
        .any(|(origin, prefix)| *origin != asn && covers(destination, prefix) && prefix != destination);
    is_best && !is_split
}

/// Fails unless the state of a rule among these routes is the oracle's verdict.
fn compare(routes: &[(u32, String)], asn: u32, destination: &str) -> Result<(), TestCaseError> {
    let mut world = World::new(&ASNS);
    // Every AS is authorised: the routes alone decide.
    let payloads = ASNS.map(|asn| [("0.0.0.0/0", asn), ("::/0", asn)]);
    world.roas(payloads.as_flattened());
    for (origin, prefix) in routes {
        world.announce(*origin, prefix, false);
    }
    world.flow(asn, &udp_to(destination));
    world.reconcile();
    let expected = if oracle(routes, asn, destination) {
        "active"
    } else {
        "refused"
    };
    prop_assert_eq!(
        world.states(),
        [expected],
        "{} of {} among {:?}",
        destination,
        asn,
        routes
    );
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn a_rule_is_active_exactly_if_rfc_9117_calls_it_feasible(
        routes in prop::collection::btree_set((prop::sample::select(ASNS.to_vec()), prefix()), 0..8),
        asn in prop::sample::select(ASNS.to_vec()),
        destination in prefix(),
    ) {
        compare(&Vec::from_iter(routes), asn, &destination)?;
    }

    #[test]
    fn so_it_is_for_ipv6(
        routes in prop::collection::btree_set((prop::sample::select(ASNS.to_vec()), prefix6()), 0..8),
        asn in prop::sample::select(ASNS.to_vec()),
        destination in prefix6(),
    ) {
        compare(&Vec::from_iter(routes), asn, &destination)?;
    }
}
