//! The FIB equals a slow table after any sequence of changes.

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use millrace_fib::mix::{self, Destinations};
use millrace_fib::{Family, Prefix};
use millrace_types::split_mix;
use prefix_trie::PrefixMap;
use proptest::prelude::*;
use std::net::IpAddr;

use crate::slow::{Both, address};

/// Prefixes that nest and meet: few values for each byte.
fn prefix() -> impl Strategy<Value = Prefix> {
    let bytes = prop::array::uniform16(prop_oneof![
        Just(0u8),
        Just(1),
        Just(0x20),
        Just(0x3f),
        Just(0x80),
        Just(0xff)
    ]);
    (bytes, any::<bool>(), 0u8..=128).prop_map(|(bytes, four, len)| {
        let bits = u128::from_be_bytes(bytes);
        let (family, len) = if four {
            (Family::V4, len % 33)
        } else {
            (Family::V6, len)
        };
        Prefix::new(address(family, bits), len).unwrap()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn small_tables_equal_a_list_of_routes(
        steps in prop::collection::vec((prefix(), 0usize..6, any::<u128>()), 1..120),
    ) {
        let mut both = Both::new(4);
        for (prefix, what, inside) in &steps {
            match both.groups.get(*what) {
                Some(group) => both.set(*prefix, *group),
                None => both.remove(*prefix),
            }
            both.check_around(prefix, *inside);
            both.reclaim();
        }
        for (prefix, _, inside) in &steps {
            both.check_around(prefix, *inside);
        }
        // When all routes have gone, so has all memory.
        for (prefix, _, _) in &steps {
            both.remove(*prefix);
        }
        both.reclaim();
        prop_assert_eq!(both.writer.usage().nodes_size, 0);
    }
}

/// A table that grows to a direct table while routes come and go equals a list of routes; also with nested prefixes that
/// the real mix has none of.
#[test]
fn a_table_that_becomes_direct_equals_a_list_of_routes() {
    for family in [Family::V4, Family::V6] {
        let mut both = Both::new(100);
        let mut state = 5;
        let mut some: Vec<Prefix> = Vec::new();
        let count = 12_000;
        let mixed = match family {
            Family::V4 => mix::v4(1, count),
            Family::V6 => mix::v6(1, count),
        };
        for (at, prefix) in mixed.into_iter().enumerate() {
            let number = split_mix::next(&mut state);
            let group = both.groups[number as usize % 100];
            both.set(prefix, group);
            some.push(prefix);
            // A prefix around it, or inside of it; few short ones, which change millions of entries.
            let shortest = if at % 500 == 0 { 0 } else { 14 };
            let len = ((number >> 32) as u8 % (family.bits() + 1)).max(shortest);
            let bits = millrace_fib::bits_of(prefix.address()) | u128::from(number) << 40;
            let other = Prefix::new(address(family, bits), len).unwrap();
            both.set(other, both.groups[(number >> 16) as usize % 100]);
            some.push(other);
            if at % 3 == 0 {
                let gone = some.swap_remove(number as usize % some.len());
                both.remove(gone);
                both.check_around(&gone, u128::from(number) << 64 | u128::from(number));
            }
            both.check_around(&prefix, u128::from(number) << 33);
            both.check_around(&other, u128::from(number) << 33);
            if at % 1000 == 0 {
                both.reclaim();
            }
        }
        for _ in 0..50_000 {
            let bits =
                u128::from(split_mix::next(&mut state)) << 64 | u128::from(split_mix::next(&mut state));
            let address = address(family, bits);
            assert_eq!(both.found(address), both.expected(address), "{address}");
        }
        // Longest first: the short ones change millions of entries, once.
        let mut prefixes: Vec<Prefix> = both.routes.keys().copied().collect();
        prefixes.sort_by_key(|prefix| core::cmp::Reverse(prefix.len()));
        for prefix in prefixes {
            both.remove(prefix);
        }
        both.reclaim();
        assert_eq!(both.writer.usage().nodes_size, 0, "{family:?}");
    }
}

/// Routes that crowd one /24 split its node again and again, and longer routes hide shorter ones from all addresses: what
/// remains after removals in any order equals a list of routes, and leaves no memory.
#[test]
fn a_crowded_part_of_ipv6_equals_a_list_of_routes() {
    let mut both = Both::new(50);
    let mut state = 11;
    let mut routes: Vec<Prefix> = Vec::new();
    let mut random = || split_mix::next(&mut state);
    for step in 0..6000 {
        let number = random();
        // Four values for the byte behind the /24, and up to twelve bits of each later one: siblings fill their parents.
        let rest = (number & 3) << 30 | (number >> 8 & 0xfff) << 18 | (number >> 24 & 7) << 8;
        let bits = 0x2001_0000_u128 << 96 | u128::from(rest) << 72 | u128::from(number >> 40 & 3) << 70;
        let len = 20 + (number >> 48) as u8 % 38;
        let prefix = Prefix::new(address(Family::V6, bits), len).unwrap();
        both.set(prefix, both.groups[(number >> 56) as usize % 50]);
        routes.push(prefix);
        if step % 3 != 0 {
            let at = random() as usize % routes.len();
            // A pair of siblings hides the route above it.
            let half = routes[at].len() + 1;
            for sibling in 0..2 {
                let bits = millrace_fib::bits_of(routes[at].address()) | sibling << (128 - half);
                let prefix = Prefix::new(address(Family::V6, bits), half).unwrap();
                both.set(prefix, both.groups[random() as usize % 50]);
                routes.push(prefix);
            }
        }
        for _ in 0..if step < 4000 { 1 } else { 4 } {
            let gone = routes.swap_remove(random() as usize % routes.len());
            both.remove(gone);
            both.check_around(&gone, u128::from(random()) << 64);
        }
        both.check_around(&prefix, u128::from(random()) << 40);
        if step % 100 == 0 {
            both.reclaim();
        }
    }
    for prefix in routes {
        both.remove(prefix);
        both.check_around(&prefix, u128::from(random()) << 64);
    }
    both.reclaim();
    assert_eq!(both.writer.usage().nodes_size, 0);
}

/// Bursts of any length agree with `prefix-trie`.
#[test]
fn bursts_equal_the_trie_of_another_author() {
    let mut both = Both::new(250);
    let mut four: PrefixMap<Ipv4Net, usize> = PrefixMap::new();
    let mut six: PrefixMap<Ipv6Net, usize> = PrefixMap::new();
    let prefixes: Vec<Prefix> = mix::v4(7, 30_000).into_iter().chain(mix::v6(7, 30_000)).collect();
    for (at, prefix) in prefixes.iter().enumerate() {
        both.set(*prefix, both.groups[at % 250]);
        match IpNet::new(prefix.address(), prefix.len()).unwrap() {
            IpNet::V4(net) => drop(four.insert(net, at % 250)),
            IpNet::V6(net) => drop(six.insert(net, at % 250)),
        }
    }
    for prefix in prefixes.iter().step_by(5) {
        both.remove(*prefix);
        match IpNet::new(prefix.address(), prefix.len()).unwrap() {
            IpNet::V4(net) => drop(four.remove(&net)),
            IpNet::V6(net) => drop(six.remove(&net)),
        }
    }
    for (family, prefixes) in [
        (Family::V4, &prefixes[..30_000]),
        (Family::V6, &prefixes[30_000..]),
    ] {
        let bits = mix::destinations(3, prefixes, 50_000, Destinations::Random);
        for (at, burst) in bits.chunks(77).enumerate() {
            let burst = &burst[..burst.len().min(1 + at % 77)];
            let mut groups = vec![millrace_fib::GroupId::NONE; burst.len()];
            match family {
                Family::V4 => {
                    let burst: Vec<u32> = burst.iter().map(|bits| (bits >> 96) as u32).collect();
                    both.fib.lookup_v4_burst(&burst, &mut groups);
                }
                Family::V6 => both.fib.lookup_v6_burst(burst, &mut groups),
            }
            for (bits, group) in burst.iter().zip(groups) {
                let address = address(family, *bits);
                let expected = match address {
                    IpAddr::V4(address) => four.get_lpm(&Ipv4Net::from(address)).map(|found| *found.1),
                    IpAddr::V6(address) => six.get_lpm(&Ipv6Net::from(address)).map(|found| *found.1),
                };
                let expected = expected.map_or(millrace_fib::GroupId::NONE, |at| both.groups[at]);
                assert_eq!(group, expected, "{address}");
            }
        }
    }
}

#[test]
fn vrfs_do_not_see_each_other_and_leave_no_memory() {
    let mut both = Both::new(2);
    let (other, other_fib) = both.writer.add_fib();
    let prefix = Prefix::new("10.1.2.128".parse().unwrap(), 25).unwrap();
    both.set(prefix, both.groups[0]);
    both.writer.insert(other, &prefix, both.groups[1]).unwrap();
    assert_eq!(other_fib.lookup_v4(0x0a01_0281), both.groups[1]);
    assert_eq!(both.fib.lookup_v4(0x0a01_0281), both.groups[0]);
    both.writer.remove_fib(other);
    drop(other_fib);
    both.remove(prefix);
    both.reclaim();
    assert_eq!(both.writer.usage().nodes_size, 0);
}
