//! Seeded tables of prefixes with the mix of lengths of the Internet's routing table, for tests and benchmarks.
//!
//! The shares are those of the default-free zone as RIPE RIS and the CIDR Report showed it in 2024, rounded to a tenth of a
//! percent; lengths that no operator's filter lets in (IPv4 longer than /24) get the half percent that internal routes
//! of a border router have. IPv4 prefixes lie anywhere in the unicast space. IPv6 prefixes cluster as the registries'
//! allocations do: a quarter are allocations, the others lie inside of one of them, most of them in few.

use std::collections::HashSet;

use millrace_types::split_mix;

use crate::{Family, Prefix};

/// The shares of IPv4 lengths, in thousandths.
const LENGTHS_V4: [(u8, u16); 20] = [
    (24, 598),
    (23, 97),
    (22, 106),
    (21, 50),
    (20, 44),
    (19, 25),
    (18, 14),
    (17, 9),
    (16, 14),
    (15, 12),
    (14, 10),
    (13, 6),
    (12, 4),
    (11, 2),
    (10, 1),
    (26, 2),
    (27, 1),
    (29, 1),
    (30, 2),
    (32, 2),
];
/// The shares of IPv6 lengths of allocations, in thousandths.
const ALLOCATIONS_V6: [(u8, u16); 6] = [(32, 640), (29, 190), (30, 40), (28, 30), (31, 20), (36, 80)];
/// The shares of IPv6 lengths inside of allocations, in thousandths.
const LENGTHS_V6: [(u8, u16); 14] = [
    (48, 610),
    (44, 120),
    (40, 100),
    (46, 35),
    (47, 35),
    (45, 20),
    (42, 15),
    (38, 12),
    (36, 10),
    (34, 8),
    (33, 8),
    (64, 15),
    (56, 7),
    (128, 5),
];
/// The registries' blocks: high 16 bits, and the number of bits that are fixed.
const BLOCKS_V6: [(u16, u32); 6] = [
    (0x2001, 16),
    (0x2400, 12),
    (0x2600, 12),
    (0x2800, 12),
    (0x2a00, 12),
    (0x2c00, 12),
];

fn length(state: &mut u64, shares: &[(u8, u16)]) -> u8 {
    let total: u64 = shares.iter().map(|(_, share)| u64::from(*share)).sum();
    let mut at = split_mix::next(state) % total;
    for (len, share) in shares {
        if at < u64::from(*share) {
            return *len;
        }
        at -= u64::from(*share);
    }
    shares[0].0
}

/// Returns `count` different IPv4 prefixes, in random order. `count` is at most 2,000,000.
pub fn v4(seed: u64, count: usize) -> Vec<Prefix> {
    let mut state = seed;
    let mut seen = HashSet::with_capacity(count);
    let mut prefixes = Vec::with_capacity(count);
    while prefixes.len() < count {
        // 1.0.0.0 to 223.255.255.255.
        let first = 1 + split_mix::next(&mut state) % 223;
        let rest = split_mix::next(&mut state) & 0xff_ffff;
        let bits = u128::from(first << 24 | rest) << 96;
        let prefix = Prefix::of_bits(Family::V4, bits, length(&mut state, &LENGTHS_V4));
        if seen.insert(prefix) {
            prefixes.push(prefix);
        }
    }
    prefixes
}

/// Returns `count` different IPv6 prefixes, in random order. `count` is at most 1,000,000.
pub fn v6(seed: u64, count: usize) -> Vec<Prefix> {
    let mut state = seed;
    let mut seen = HashSet::with_capacity(count);
    let mut prefixes: Vec<Prefix> = Vec::with_capacity(count);
    let mut allocations: Vec<Prefix> = Vec::new();
    while prefixes.len() < count {
        let random = u128::from(split_mix::next(&mut state)) << 64 | u128::from(split_mix::next(&mut state));
        let prefix = if allocations.is_empty() || split_mix::next(&mut state).is_multiple_of(4) {
            let (block, fixed) = BLOCKS_V6[(split_mix::next(&mut state) % BLOCKS_V6.len() as u64) as usize];
            let bits = u128::from(block) << 112 | random >> fixed;
            Prefix::of_bits(Family::V6, bits, length(&mut state, &ALLOCATIONS_V6))
        } else {
            // The product of two fractions prefers the older allocations.
            let fraction = |state: &mut u64| (split_mix::next(state) >> 11) as f64 / (1u64 << 53) as f64;
            let at = (fraction(&mut state) * fraction(&mut state) * allocations.len() as f64) as usize;
            let around = allocations[at.min(allocations.len() - 1)];
            let bits = around.bits() | random >> around.len();
            Prefix::of_bits(
                Family::V6,
                bits,
                length(&mut state, &LENGTHS_V6).max(around.len() + 1),
            )
        };
        if seen.insert(prefix) {
            prefixes.push(prefix);
            if prefix.len() <= 36 {
                allocations.push(prefix);
            }
        }
    }
    prefixes
}

/// A kind of destinations of packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Destinations {
    /// Each prefix is equally likely.
    Random,
    /// The n-th prefix is 1/n as likely as the first (Zipf's law with exponent 1).
    Zipf,
}

/// Returns `count` addresses, left-aligned as [`Prefix::bits`], each in one of `prefixes`, which must not be empty.
pub fn destinations(seed: u64, prefixes: &[Prefix], count: usize, kind: Destinations) -> Vec<u128> {
    let mut state = seed;
    // The inverse of the harmonic sum, which grows as a logarithm: n = e^(u ln N).
    let log = (prefixes.len() as f64).ln();
    (0..count)
        .map(|_| {
            let number = split_mix::next(&mut state);
            let at = match kind {
                Destinations::Random => (number % prefixes.len().max(1) as u64) as usize,
                Destinations::Zipf => {
                    let fraction = (number >> 11) as f64 / (1u64 << 53) as f64;
                    ((fraction * log).exp() as usize).saturating_sub(1)
                }
            };
            let prefix = prefixes[at.min(prefixes.len() - 1)];
            let random =
                u128::from(split_mix::next(&mut state)) << 64 | u128::from(split_mix::next(&mut state));
            let host = if prefix.len() == 128 {
                0
            } else {
                random >> prefix.len()
            };
            let bits = prefix.bits() | host;
            match prefix.family() {
                Family::V4 => bits >> 96 << 96,
                Family::V6 => bits,
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mix_is_the_same_for_a_seed_and_mostly_24_and_48() {
        let four = v4(1, 20_000);
        assert_eq!(four, v4(1, 20_000));
        assert_ne!(four, v4(2, 20_000));
        let share = |prefixes: &[Prefix], len| {
            prefixes.iter().filter(|prefix| prefix.len() == len).count() as f64 / 20_000.0
        };
        assert!((0.57..0.64).contains(&share(&four, 24)), "{}", share(&four, 24));
        let six = v6(1, 20_000);
        assert!((0.42..0.50).contains(&share(&six, 48)), "{}", share(&six, 48));
        assert!((0.10..0.20).contains(&share(&six, 32)), "{}", share(&six, 32));
    }

    #[test]
    fn destinations_lie_in_the_prefixes() {
        for prefixes in [v4(3, 100), v6(3, 100)] {
            for kind in [Destinations::Random, Destinations::Zipf] {
                for bits in destinations(9, &prefixes, 1000, kind) {
                    let family = prefixes[0].family();
                    let host = Prefix::of_bits(family, bits, family.bits());
                    assert!(prefixes.iter().any(|prefix| prefix.covers(&host)));
                }
            }
        }
    }
}
