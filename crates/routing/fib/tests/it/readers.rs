//! Readers that look up without pause while the writer changes routes: an address has a route before, between and after.

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;

use millrace_fib::{Family, Fib, GroupId, Prefix, mix};
use millrace_types::split_mix;

use crate::slow::{Both, address};

/// Returns true when the reader has finished a burst that began after the call: a grace period.
fn wait(bursts: &AtomicU64) {
    let before = bursts.load(Relaxed);
    while bursts.load(Relaxed) < before + 2 {
        thread::yield_now();
    }
}

/// Looks up until told to stop; panics if an address has a group that it must never have.
fn spin(
    fib: &Fib,
    addresses: &[u128],
    family: Family,
    allowed: &[GroupId],
    stop: &AtomicBool,
    bursts: &AtomicU64,
) {
    let mut groups = vec![GroupId::NONE; 64];
    let four: Vec<u32> = addresses.iter().map(|bits| (bits >> 96) as u32).collect();
    while !stop.load(Relaxed) {
        for at in 0..addresses.len() / 64 {
            let range = at * 64..at * 64 + 64;
            match family {
                Family::V4 => fib.lookup_v4_burst(&four[range.clone()], &mut groups),
                Family::V6 => fib.lookup_v6_burst(&addresses[range.clone()], &mut groups),
            }
            for (bits, group) in addresses[range].iter().zip(&groups) {
                assert!(
                    allowed.contains(group),
                    "{} has {group:?}",
                    address(family, *bits)
                );
            }
            bursts.fetch_add(1, Relaxed);
        }
    }
}

/// Stops the readers however the writer ends.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

fn spun(family: Family, around: Prefix, many: usize) {
    let mut both = Both::new(40);
    let (one, two) = (both.groups[0], both.groups[1]);
    both.set(around, one);
    let host = u128::MAX >> around.len();
    let mut state = 1;
    let addresses: Vec<u128> = (0..64 * 200)
        .map(|_| {
            let random =
                u128::from(split_mix::next(&mut state)) << 64 | u128::from(split_mix::next(&mut state));
            around.bits() | random & host
        })
        .collect();
    let allowed: Vec<GroupId> = both.groups.clone();
    let (stop, bursts) = (AtomicBool::new(false), AtomicU64::new(0));
    let fib = both.fib.clone();
    thread::scope(|scope| {
        scope.spawn(|| spin(&fib, &addresses, family, &allowed, &stop, &bursts));
        let _stop = Stop(&stop);
        // The wide route changes its group; longer ones come, change and go inside of it, at addresses that are looked up.
        for round in 0..many {
            both.set(around, if round % 2 == 0 { two } else { one });
            for at in 0..40 {
                let bits = addresses[split_mix::next(&mut state) as usize % addresses.len()];
                let len =
                    around.len() + 1 + (split_mix::next(&mut state) as u8 % (family.bits() - around.len()));
                let prefix = Prefix::new(address(family, bits), len).unwrap();
                both.set(prefix, both.groups[at]);
                if at % 2 == 0 {
                    both.remove(prefix);
                }
            }
            // Retired memory is used again after a grace period, while the reader goes on.
            if let Some(retired) = both.writer.take_retired() {
                wait(&bursts);
                both.writer.reclaim(retired);
            }
        }
        assert!(
            both.routes.len() > 4096,
            "{} routes: the table is still small",
            both.routes.len()
        );
        for prefix in both.routes.keys().copied().collect::<Vec<_>>() {
            if prefix != around {
                both.remove(prefix);
            }
        }
    });
    for bits in addresses {
        let address = address(family, bits);
        assert_eq!(both.found(address), both.expected(address));
    }
}

#[test]
fn no_ipv4_address_is_without_route_while_a_slash_8_and_routes_in_it_change() {
    // The table becomes direct on the way.
    spun(
        Family::V4,
        Prefix::new("10.0.0.0".parse::<IpAddr>().unwrap(), 8).unwrap(),
        400,
    );
}

#[test]
fn no_ipv6_address_is_without_route_while_a_slash_20_and_routes_in_it_change() {
    spun(
        Family::V6,
        Prefix::new("2001:a000::".parse::<IpAddr>().unwrap(), 20).unwrap(),
        250,
    );
}

#[test]
fn addresses_keep_their_routes_while_a_table_becomes_direct() {
    for family in [Family::V4, Family::V6] {
        let mut both = Both::new(2);
        both.set(Prefix::default_route(family), both.groups[0]);
        let prefixes = match family {
            Family::V4 => mix::v4(3, 6000),
            Family::V6 => mix::v6(3, 6000),
        };
        let addresses = mix::destinations(3, &prefixes, 6400, mix::Destinations::Random);
        let (stop, bursts) = (AtomicBool::new(false), AtomicU64::new(0));
        let fib = both.fib.clone();
        let allowed = both.groups.clone();
        thread::scope(|scope| {
            scope.spawn(|| spin(&fib, &addresses, family, &allowed, &stop, &bursts));
            let _stop = Stop(&stop);
            for (at, prefix) in prefixes.iter().enumerate() {
                both.set(*prefix, both.groups[1]);
                if at % 16 == 0
                    && let Some(retired) = both.writer.take_retired()
                {
                    wait(&bursts);
                    both.writer.reclaim(retired);
                }
            }
        });
        assert!(
            addresses
                .iter()
                .all(|bits| both.found(address(family, *bits)) == both.groups[1])
        );
    }
}
