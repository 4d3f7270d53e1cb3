//! Hostile traffic that slows a switch down, and benign traffic for comparison. Benign traffic has the same
//! rules and the same number of different packets, and consists of packets that the rules are meant for.
//!
//! * **Tuple space explosion** (Csikor, Divakaran, Kang, Kőrösi, Sonkoly, Haja, Pezaros, Schmid, Rétvári: "Tuple Space
//!   Explosion: A Denial-of-Service Attack Against a Software Packet Classifier", CoNEXT 2019): for a packet that no
//!   rule allows, a cache of megaflows keeps the smallest number of bits that distinguish it from each rule. Packets
//!   that first differ from the allowed value at each bit of each field produce a mask for each combination: 32 x 16 x
//!   16 with an allow-list over source address, source port and destination port.
//! * **Collisions**: anyone can compute a hash function that has no key. In half of the packets, the
//!   MurmurHash3 mixing of the 5-tuple has the same value; Open vSwitch uses it if the device gives no hash.
//!   In the other half, the CRC-32C of the 5-tuple has the same value; DPDK's tables use it. Both functions
//!   are bijections of their last word, so every pair of addresses has ports that give the chosen value.
//! * **Random 5-tuples** fill every cache with flows that do not occur again. **Near misses** differ from a
//!   rule in one bit.

use std::collections::HashSet;

use super::header::{Header, UDP, transport};
use super::rule::{Prefix, Rule, Sink};
use super::sets::{Filter, filter, packet_for};
use crate::random::Random;

/// The type of attack on an access list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Attack {
    /// No attack: packets that the list is meant for.
    None,
    /// Random 5-tuples.
    Random,
    /// Packets that differ from a rule in one bit.
    NearMiss,
    /// 5-tuples with the same hash value.
    Collisions,
}

/// The number of rules of the access list.
pub(super) const RULES: usize = 10_000;
/// The number of rules of the allow-list.
pub(super) const ALLOW_LIST: usize = 4;
/// The number of packets: one for each combination of bits at which the three fields first differ from the allowed
/// values.
pub(super) const EXPLODING_PACKETS: usize = 32 * 16 * 16;
/// The values that the allow-list allows.
const ALLOWED_SOURCE: u32 = 0x0a00_0001;
const ALLOWED_SPORT: u16 = 12_345;
const ALLOWED_DPORT: u16 = 80;
/// The destination of packets, which the list does not compare.
const DESTINATION: u32 = 0xc0a8_0001;

/// A hash function without a key, and the value that colliding packets have: any would do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Hash {
    Murmur3,
    Crc32c,
}

impl Hash {
    fn value(self) -> u32 {
        u32::from_be_bytes(match self {
            Hash::Murmur3 => *b"mill",
            Hash::Crc32c => *b"race",
        })
    }
}

/// Returns the access list, the same for each attack, and one packet for each of `flows` flows.
pub(super) fn access_list(attack: Attack, flows: usize, random: &mut Random) -> (Vec<Rule>, Vec<Header>) {
    let (rules, _) = filter(Filter::Acl, RULES, 0, random);
    let mut seen = HashSet::with_capacity(flows);
    let mut headers = Vec::with_capacity(flows);
    while headers.len() < flows {
        let header = match attack {
            Attack::None => packet_for(&rules, random),
            Attack::Random => any(random),
            Attack::NearMiss => near_miss(&rules, random),
            Attack::Collisions if headers.len().is_multiple_of(2) => colliding(Hash::Murmur3, random),
            Attack::Collisions => colliding(Hash::Crc32c, random),
        };
        if seen.insert(header) {
            headers.push(header);
        }
    }
    (rules, headers)
}

/// Returns an allow-list and its packets: allowed packets or, if `attack` is true, packets that explode the
/// tuple space. The last rule of the list outputs to the second port.
pub(super) fn explosion(attack: bool, random: &mut Random) -> (Vec<Rule>, Vec<Header>) {
    let rule = |priority, src, sport, dport, sink| Rule {
        priority,
        src,
        dst: Prefix::ANY,
        proto: (priority > 1).then_some(UDP),
        sport,
        dport,
        sink,
        rewrite: None,
    };
    let rules = vec![
        rule(4, Prefix::ANY, None, Some(ALLOWED_DPORT), Sink::First),
        rule(3, Prefix::new(ALLOWED_SOURCE, 32), None, None, Sink::First),
        rule(2, Prefix::ANY, Some(ALLOWED_SPORT), None, Sink::First),
        rule(1, Prefix::ANY, None, None, Sink::Second),
    ];
    let headers = if attack {
        let bits = (0..32)
            .flat_map(|src| (0..16).flat_map(move |sport| (0..16).map(move |dport| (src, sport, dport))));
        bits.map(|(src, sport, dport)| {
            Header::udp(
                differing_from(ALLOWED_SOURCE, 32, src, random.word32()),
                DESTINATION,
                differing_from(ALLOWED_SPORT.into(), 16, sport, random.word32()) as u16,
                differing_from(ALLOWED_DPORT.into(), 16, dport, random.word32()) as u16,
            )
        })
        .collect()
    } else {
        let allowed = |index: usize| {
            let (src, sport, dport) = match index % 3 {
                0 => (random.word32(), random.word16(), ALLOWED_DPORT),
                1 => (ALLOWED_SOURCE, random.word16(), random.word16()),
                _ => (random.word32(), ALLOWED_SPORT, random.word16()),
            };
            Header::udp(src, DESTINATION, sport, dport)
        };
        (0..EXPLODING_PACKETS).map(allowed).collect()
    };
    (rules, headers)
}

/// Returns a value that shares the leading `same` of `width` bits with `value`, differs in the next bit, and has the
/// bits of `fill` after it.
fn differing_from(value: u32, width: u32, same: u32, fill: u32) -> u32 {
    let flipped = 1 << (width - 1 - same);
    ((value ^ flipped) & !(flipped - 1)) | (fill & (flipped - 1))
}

fn any(random: &mut Random) -> Header {
    let mut header = Header::udp(random.word32(), random.word32(), random.word16(), random.word16());
    header.proto = transport(random);
    header
}

/// Returns a packet that differs from a random rule in one random bit.
fn near_miss(rules: &[Rule], random: &mut Random) -> Header {
    loop {
        let Some(rule) = rules.get(random.below(rules.len())) else {
            return any(random);
        };
        let mut header = packet_for(std::slice::from_ref(rule), random);
        let mut fields: Vec<usize> = Vec::with_capacity(4);
        fields.extend((rule.src.bits() > 0).then_some(0));
        fields.extend((rule.dst.bits() > 0).then_some(1));
        fields.extend(rule.sport.map(|_| 2));
        fields.extend(rule.dport.map(|_| 3));
        let bit = |bits: u8, random: &mut Random| 1_u32 << (31 - random.below(bits.max(1).into()));
        match fields.get(random.below(fields.len())) {
            Some(0) => header.src ^= bit(rule.src.bits(), random),
            Some(1) => header.dst ^= bit(rule.dst.bits(), random),
            Some(2) => header.sport ^= 1 << random.below(16),
            Some(_) => header.dport ^= 1 << random.below(16),
            None => continue,
        }
        return header;
    }
}

/// Returns a packet with random addresses and ports that give the 5-tuple a fixed hash value.
fn colliding(hash: Hash, random: &mut Random) -> Header {
    let (src, dst) = (random.word32(), random.word32());
    // These are the words that a little-endian machine reads from the packet.
    let words = [src.swap_bytes(), dst.swap_bytes()];
    let ports = match hash {
        Hash::Murmur3 => {
            let state = words.into_iter().chain([UDP.into()]).fold(0, murmur_step);
            murmur_last(state, hash.value())
        }
        // A step depends only on the exclusive or of state and word.
        Hash::Crc32c => words.into_iter().fold(0, crc32c_step) ^ hash.value(),
    };
    let [a, b, c, d] = ports.to_le_bytes();
    Header::udp(src, dst, u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]))
}

/// The constants of MurmurHash3 (x86, 32 bits), by their names in the published implementation.
mod murmur {
    pub(super) const C1: u32 = 0xcc9e_2d51;
    pub(super) const C2: u32 = 0x1b87_3593;
    pub(super) const R1: u32 = 15;
    pub(super) const R2: u32 = 13;
    pub(super) const M: u32 = 5;
    pub(super) const N: u32 = 0xe654_6b64;
}

/// Returns the state after one step of MurmurHash3.
fn murmur_step(hash: u32, word: u32) -> u32 {
    let word = word
        .wrapping_mul(murmur::C1)
        .rotate_left(murmur::R1)
        .wrapping_mul(murmur::C2);
    (hash ^ word)
        .rotate_left(murmur::R2)
        .wrapping_mul(murmur::M)
        .wrapping_add(murmur::N)
}

/// Returns the word that changes the state from `hash` to `wanted`.
fn murmur_last(hash: u32, wanted: u32) -> u32 {
    let before = wanted
        .wrapping_sub(murmur::N)
        .wrapping_mul(inverse(murmur::M))
        .rotate_right(murmur::R2);
    (before ^ hash)
        .wrapping_mul(inverse(murmur::C2))
        .rotate_right(murmur::R1)
        .wrapping_mul(inverse(murmur::C1))
}

/// Returns the inverse of an odd number modulo 2^32 (Newton's method: each step doubles the number of correct bits).
fn inverse(odd: u32) -> u32 {
    (0..5).fold(odd, |inverse, _| {
        inverse.wrapping_mul(2_u32.wrapping_sub(odd.wrapping_mul(inverse)))
    })
}

/// Returns the CRC-32C (RFC 3720, section 12.1) after four more bytes, as the instruction of the processor computes
/// it.
fn crc32c_step(crc: u32, word: u32) -> u32 {
    /// The polynomial 0x1edc6f41, least significant bit first.
    const POLYNOMIAL: u32 = 0x82f6_3b78;
    (0..32).fold(crc ^ word, |crc, _| {
        (crc >> 1) ^ (POLYNOMIAL & 0_u32.wrapping_sub(crc & 1))
    })
}

#[cfg(test)]
mod tests {
    use super::super::rule::Oracle;
    use super::*;

    #[test]
    fn colliding_packets_have_one_value_under_each_function() {
        let mut random = Random::new(1);
        let words = |header: &Header| {
            let [a, b] = header.sport.to_be_bytes();
            let [c, d] = header.dport.to_be_bytes();
            (
                header.src.swap_bytes(),
                header.dst.swap_bytes(),
                u32::from_le_bytes([a, b, c, d]),
            )
        };
        for hash in [Hash::Murmur3, Hash::Crc32c] {
            let values: HashSet<u32> = (0..100)
                .map(|_| {
                    let (src, dst, ports) = words(&colliding(hash, &mut random));
                    match hash {
                        Hash::Murmur3 => [src, dst, 17, ports].into_iter().fold(0, murmur_step),
                        Hash::Crc32c => [src, dst, ports].into_iter().fold(0, crc32c_step),
                    }
                })
                .collect();
            assert_eq!(values.len(), 1);
        }
    }

    #[test]
    fn the_crc_is_the_one_of_the_standard() {
        // The vector of RFC 3720, section B.4: 32 bytes of zeroes, least significant byte first.
        let crc = (0..8).fold(u32::MAX, |crc, _| crc32c_step(crc, 0));
        assert_eq!(!crc, 0x8a91_36aa);
    }

    #[test]
    fn exploding_packets_match_no_allowed_rule_and_differ_in_distinct_bits() {
        let (rules, headers) = explosion(true, &mut Random::new(1));
        let oracle = Oracle::new(&rules);
        assert!(headers.iter().all(|header| oracle.find(header) == Some(3)));
        let combinations: HashSet<_> = headers
            .iter()
            .map(|header| {
                (
                    (header.src ^ ALLOWED_SOURCE).leading_zeros(),
                    (header.sport ^ ALLOWED_SPORT).leading_zeros(),
                    (header.dport ^ ALLOWED_DPORT).leading_zeros(),
                )
            })
            .collect();
        assert_eq!((headers.len(), combinations.len()), (8192, 8192));
        let (rules, headers) = explosion(false, &mut Random::new(1));
        let oracle = Oracle::new(&rules);
        assert!(headers.iter().all(|header| oracle.find(header) < Some(3)));
        assert_eq!(headers.len(), 8192);
    }

    #[test]
    fn every_attack_is_on_the_same_list_with_as_many_packets() {
        let all = [Attack::None, Attack::Random, Attack::NearMiss, Attack::Collisions]
            .map(|attack| access_list(attack, 3000, &mut Random::new(5)));
        for (rules, headers) in &all {
            assert_eq!((rules, headers.len()), (&all[0].0, 3000));
        }
    }
}
