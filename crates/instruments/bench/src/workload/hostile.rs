//! Traffic made to be slow, and the traffic beside which it is judged: as many different packets under the
//! same rules, but such as the rules were written for.
//!
//! * **Tuple space explosion** (Csikor, Divakaran, Kang, Kőrösi, Sonkoly, Haja, Pezaros, Schmid, Rétvári:
//!   "Tuple Space Explosion: A Denial-of-Service Attack Against a Software Packet Classifier", CoNEXT 2019):
//!   a cache of megaflows remembers, for a packet that no rule allows, as few bits as tell it from each rule.
//!   Packets that differ from the allowed values first at each bit of each field make a mask of each
//!   combination: 32 x 16 x 16 with an allow-list over source address, source port and destination port.
//! * **Collisions**: hash functions without a key are known to everybody. Half of the packets have one value of
//!   the MurmurHash3 mixing of the 5-tuple, as Open vSwitch takes it where a device gives no hash, half one
//!   CRC-32C of it, as DPDK's tables do. Both are bijections of their last word, so that for any pair of
//!   addresses there are ports that end in the value wanted.
//! * **Random 5-tuples** fill every cache with what never comes again; **near misses** have a rule's values but
//!   for one bit.

use std::collections::HashSet;

use super::header::Header;
use super::rule::{Prefix, Rule, Sink};
use super::sets::{Filter, filter, packet_for};
use crate::random::Random;

/// How an access list is attacked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Attack {
    /// Not: packets that it was written for.
    None,
    /// Random 5-tuples.
    Random,
    /// Packets that miss a rule by one bit.
    NearMiss,
    /// 5-tuples of one hash value.
    Collisions,
}

/// How many rules the access list has.
pub(super) const RULES: usize = 10_000;
/// How many rules the allow-list has.
pub(super) const ALLOW_LIST: usize = 4;
/// One for each pair of bits in which it differs from what is allowed.
pub(super) const EXPLODING_PACKETS: usize = 32 * 16 * 16;
/// What the allow-list allows.
const ALLOWED_SOURCE: u32 = 0x0a00_0001;
const ALLOWED_SPORT: u16 = 12_345;
const ALLOWED_DPORT: u16 = 80;

/// Returns the access list, the same for each attack, and a packet of each of so many flows.
pub(super) fn access_list(attack: Attack, flows: usize, random: &mut Random) -> (Vec<Rule>, Vec<Header>) {
    let (rules, _) = filter(Filter::Acl, RULES, 0, random);
    let mut seen = HashSet::with_capacity(flows);
    let mut headers = Vec::with_capacity(flows);
    while headers.len() < flows {
        let header = match attack {
            Attack::None => packet_for(&rules, random),
            Attack::Random => any(random),
            Attack::NearMiss => near_miss(&rules, random),
            Attack::Collisions => colliding(headers.len().is_multiple_of(2), random),
        };
        if seen.insert(header) {
            headers.push(header);
        }
    }
    (rules, headers)
}

/// Returns an allow-list whose remainder leaves by the second port, with packets that take it or explode it.
pub(super) fn explosion(attack: bool, random: &mut Random) -> (Vec<Rule>, Vec<Header>) {
    let rule = |priority, src, sport, dport, sink| Rule {
        priority,
        src,
        dst: Prefix::ANY,
        proto: (priority > 1).then_some(17),
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
                0xc0a8_0001,
                differing_from(ALLOWED_SPORT.into(), 16, sport, random.word32()) as u16,
                differing_from(ALLOWED_DPORT.into(), 16, dport, random.word32()) as u16,
            )
        })
        .collect()
    } else {
        let allowed = |place: usize| {
            let (src, sport, dport) = match place % 3 {
                0 => (random.word32(), random.word16(), ALLOWED_DPORT),
                1 => (ALLOWED_SOURCE, random.word16(), random.word16()),
                _ => (random.word32(), ALLOWED_SPORT, random.word16()),
            };
            Header::udp(src, 0xc0a8_0001, sport, dport)
        };
        (0..EXPLODING_PACKETS).map(allowed).collect()
    };
    (rules, headers)
}

/// The value that has the leading `same` of `width` bits of `value`, not the next one, and `fill` behind.
fn differing_from(value: u32, width: u32, same: u32, fill: u32) -> u32 {
    let flipped = 1 << (width - 1 - same);
    ((value ^ flipped) & !(flipped - 1)) | (fill & (flipped - 1))
}

fn any(random: &mut Random) -> Header {
    let mut header = Header::udp(random.word32(), random.word32(), random.word16(), random.word16());
    header.proto = if random.percent(70) { 6 } else { 17 };
    header
}

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

/// A packet whose 5-tuple has the same value as those of all others under one of the two functions.
fn colliding(murmur: bool, random: &mut Random) -> Header {
    let (src, dst, proto) = (random.word32(), random.word32(), 17_u32);
    // Words as a little-endian machine reads them from the packet.
    let words = [src.swap_bytes(), dst.swap_bytes()];
    let ports = if murmur {
        let state = words.into_iter().chain([proto]).fold(0, murmur_step);
        murmur_last(state, 0x6d69_6c6c)
    } else {
        let state = words.into_iter().fold(0, crc32c_step);
        // A step depends on the exclusive or of state and word alone.
        state ^ 0x7261_6365
    };
    let [a, b, c, d] = ports.to_le_bytes();
    Header::udp(src, dst, u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]))
}

/// One step of MurmurHash3 (x86, 32 bits).
fn murmur_step(hash: u32, word: u32) -> u32 {
    let word = word
        .wrapping_mul(0xcc9e_2d51)
        .rotate_left(15)
        .wrapping_mul(0x1b87_3593);
    (hash ^ word)
        .rotate_left(13)
        .wrapping_mul(5)
        .wrapping_add(0xe654_6b64)
}

/// Returns the word with which a step leads from `hash` to `wanted`.
fn murmur_last(hash: u32, wanted: u32) -> u32 {
    let before = wanted
        .wrapping_sub(0xe654_6b64)
        .wrapping_mul(inverse(5))
        .rotate_right(13);
    (before ^ hash)
        .wrapping_mul(inverse(0x1b87_3593))
        .rotate_right(15)
        .wrapping_mul(inverse(0xcc9e_2d51))
}

/// What an odd number is multiplied by to become 1, modulo 2^32 (Newton: each step doubles the right bits).
fn inverse(odd: u32) -> u32 {
    (0..5).fold(odd, |inverse, _| {
        inverse.wrapping_mul(2_u32.wrapping_sub(odd.wrapping_mul(inverse)))
    })
}

/// CRC-32C (RFC 3720, section 12.1) over four bytes, as the processor's instruction has it.
fn crc32c_step(crc: u32, word: u32) -> u32 {
    (0..32).fold(crc ^ word, |crc, _| {
        (crc >> 1) ^ (0x82f6_3b78 & 0_u32.wrapping_sub(crc & 1))
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
        for murmur in [true, false] {
            let values: HashSet<u32> = (0..100)
                .map(|_| {
                    let (src, dst, ports) = words(&colliding(murmur, &mut random));
                    if murmur {
                        [src, dst, 17, ports].into_iter().fold(0, murmur_step)
                    } else {
                        [src, dst, ports].into_iter().fold(0, crc32c_step)
                    }
                })
                .collect();
            assert_eq!(values.len(), 1);
        }
    }

    #[test]
    fn the_crc_is_the_one_of_the_standard() {
        // RFC 3720, B.4: 32 bytes of zeroes, least significant byte first.
        let crc = (0..8).fold(u32::MAX, |crc, _| crc32c_step(crc, 0));
        assert_eq!(!crc, 0x8a91_36aa);
    }

    #[test]
    fn exploding_packets_take_no_allowed_rule_and_each_differs_elsewhere() {
        let (rules, headers) = explosion(true, &mut Random::new(1));
        let oracle = Oracle::new(&rules);
        assert!(headers.iter().all(|header| oracle.find(header) == Some(3)));
        let places: HashSet<_> = headers
            .iter()
            .map(|header| {
                (
                    (header.src ^ ALLOWED_SOURCE).leading_zeros(),
                    (header.sport ^ ALLOWED_SPORT).leading_zeros(),
                    (header.dport ^ ALLOWED_DPORT).leading_zeros(),
                )
            })
            .collect();
        assert_eq!((headers.len(), places.len()), (8192, 8192));
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
