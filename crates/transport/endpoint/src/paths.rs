//! Path MTU by remote address, and records of the packets that were sent there.
//!
//! An ICMP error is accepted only if it quotes a packet that was sent (RFC 8899, section 4.6.1; RFC 5927).
//! Each packet leaves a record of 32 bits: its UDP size and checksum. IPv4 packets are found by their
//! identification, which counts up from a random number. IPv6 packets are found by size and checksum, if they
//! have the path's random flow label. A guessed quotation matches with a probability of 1 in 2^22 at best.

use std::collections::HashMap;
use std::net::IpAddr;

use millrace_types::{Time, split_mix};
use millrace_wire::{FlowLabel, udp};

use crate::limits::{PATH_MTU_LIFETIME, PATH_MTU_MIN, PATHS_MAX, SENT_RECORDS};

const _: () = assert!(SENT_RECORDS.is_power_of_two() && SENT_RECORDS <= 65_536);

/// The fields of a quoted packet that are compared with what was sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Quotation {
    /// Identification (IPv4) or flow label (IPv6).
    pub(crate) label: Label,
    /// Bytes of UDP header and payload.
    pub(crate) udp_size: u16,
    pub(crate) udp_checksum: u16,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Label {
    Ident(u16),
    Flow(u32),
}

/// The path to one address.
#[derive(Debug)]
pub(crate) struct Path {
    mtu: u16,
    /// The time at which a lowered MTU ends.
    expires: Option<Time>,
    used: Time,
    /// The identification of the next packet.
    ident: u16,
    flow_label: FlowLabel,
    /// UDP size and checksum, by identification; 0 where no packet was sent, since the size includes the UDP header.
    sent: Box<[u32]>,
}

impl Path {
    pub(crate) fn mtu(&self) -> u16 {
        self.mtu
    }

    pub(crate) fn flow_label(&self) -> FlowLabel {
        self.flow_label
    }

    /// Returns the identification of the next packet.
    #[inline]
    pub(crate) fn ident(&self) -> u16 {
        self.ident
    }

    /// Records that the packet with [`Path::ident`] was sent.
    #[inline]
    pub(crate) fn record(&mut self, udp_size: u16, udp_checksum: u16) {
        self.sent[usize::from(self.ident) % SENT_RECORDS] = record(udp_size, udp_checksum);
        self.ident = self.ident.wrapping_add(1);
    }

    fn has_sent(&self, quoted: Quotation) -> bool {
        if usize::from(quoted.udp_size) < udp::SIZE {
            return false;
        }
        let wanted = record(quoted.udp_size, quoted.udp_checksum);
        match quoted.label {
            Label::Ident(ident) => {
                let age = usize::from(self.ident.wrapping_sub(ident));
                (1..=SENT_RECORDS).contains(&age) && self.sent[usize::from(ident) % SENT_RECORDS] == wanted
            }
            Label::Flow(label) => label == self.flow_label.raw() && self.sent.contains(&wanted),
        }
    }
}

/// Returns the flow label of packets to an address. It stays the same when the address gets a new path entry (RFC 6437, section 2).
fn flow_label(seed: u64, to: IpAddr) -> FlowLabel {
    let address = match to {
        IpAddr::V4(ip) => ip.to_ipv6_mapped().to_bits(),
        IpAddr::V6(ip) => ip.to_bits(),
    };
    let bits = split_mix::mix(seed ^ address as u64);
    let bits = split_mix::mix(bits ^ (address >> 64) as u64);
    // Zero means no label (RFC 6437, section 2).
    FlowLabel::from_low_bits((bits as u32 & 0xf_ffff).max(1))
}

fn record(udp_size: u16, udp_checksum: u16) -> u32 {
    u32::from(udp_size) << 16 | u32::from(udp_checksum)
}

/// All paths.
#[derive(Debug)]
pub(crate) struct PathTable {
    paths: HashMap<IpAddr, Path>,
    link_mtu: u16,
    /// The seed of the flow labels.
    seed: u64,
    random: u64,
    /// No lowered MTU ends before this time.
    next: Option<Time>,
}

impl PathTable {
    pub(crate) fn new(link_mtu: u16, seed: u64) -> PathTable {
        PathTable {
            paths: HashMap::new(),
            link_mtu,
            seed,
            random: seed,
            next: None,
        }
    }

    /// Returns the path to an address to which a packet is sent now.
    pub(crate) fn path(&mut self, now: Time, to: IpAddr) -> &mut Path {
        if !self.paths.contains_key(&to) && self.paths.len() >= PATHS_MAX {
            let oldest = self
                .paths
                .iter()
                .min_by_key(|(address, path)| (path.used, **address));
            if let Some(address) = oldest.map(|(address, _)| *address) {
                self.paths.remove(&address);
            }
        }
        let (random, mtu) = (&mut self.random, self.link_mtu);
        let seed = self.seed;
        let path = self.paths.entry(to).or_insert_with(|| Path {
            mtu,
            expires: None,
            used: now,
            ident: split_mix::next(random) as u16,
            flow_label: flow_label(seed, to),
            sent: vec![0; SENT_RECORDS].into(),
        });
        path.used = now;
        path
    }

    /// Returns the largest IP packet that passes to an address, in bytes.
    pub(crate) fn mtu(&self, to: IpAddr) -> u16 {
        self.paths.get(&to).map_or(self.link_mtu, Path::mtu)
    }

    /// Returns true if `quoted` comes from a packet that was sent to the address.
    pub(crate) fn has_sent(&self, to: IpAddr, quoted: Quotation) -> bool {
        self.paths.get(&to).is_some_and(|path| path.has_sent(quoted))
    }

    /// Lowers the MTU of a path; returns the new value, or `None` if nothing was sent there, or the reported one makes
    /// no sense: it is not lower, it is not below the size of the quoted packet, or it is below what IPv6 requires.
    pub(crate) fn lower(&mut self, now: Time, to: IpAddr, reported: u16, quoted_size: usize) -> Option<u16> {
        let path = self.paths.get_mut(&to)?;
        // Routers older than RFC 1191 report 0, and IPv4 links may have smaller MTUs than the floor.
        let mtu = if to.is_ipv4() {
            reported.max(PATH_MTU_MIN)
        } else {
            reported
        };
        if mtu < PATH_MTU_MIN || mtu >= path.mtu || quoted_size <= usize::from(mtu) {
            return None;
        }
        let expires = now + PATH_MTU_LIFETIME;
        path.mtu = mtu;
        path.expires = Some(expires);
        self.next = Some(self.next.map_or(expires, |next| next.min(expires)));
        Some(mtu)
    }

    pub(crate) fn next_timeout(&self) -> Option<Time> {
        self.next
    }

    /// Returns the addresses with an MTU that returned to the MTU of the link, and this MTU.
    pub(crate) fn on_timeout(&mut self, now: Time) -> Vec<(IpAddr, u16)> {
        if self.next.is_none_or(|next| next > now) {
            return Vec::new();
        }
        let mut raised = Vec::new();
        for (address, path) in &mut self.paths {
            if path.expires.is_some_and(|at| at <= now) {
                path.expires = None;
                path.mtu = self.link_mtu;
                raised.push((*address, path.mtu));
            }
        }
        self.next = self.paths.values().filter_map(|path| path.expires).min();
        raised.sort_unstable();
        raised
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.paths.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const V4: &str = "192.0.2.7";
    const V6: &str = "2001:db8::7";

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn only_recent_packets_can_be_quoted_and_only_as_they_were() {
        let mut table = PathTable::new(1_500, 1);
        let path = table.path(Time::ZERO, ip(V4));
        let first = path.ident();
        path.record(1_000, 0x1234);
        let quoted = |ident: u16, udp_size, udp_checksum| Quotation {
            label: Label::Ident(ident),
            udp_size,
            udp_checksum,
        };
        assert!(table.has_sent(ip(V4), quoted(first, 1_000, 0x1234)));
        for wrong in [
            quoted(first.wrapping_add(1), 1_000, 0x1234),
            quoted(first.wrapping_sub(1), 1_000, 0x1234),
            quoted(first, 1_001, 0x1234),
            quoted(first, 1_000, 0x1235),
        ] {
            assert!(!table.has_sent(ip(V4), wrong), "{wrong:?}");
        }
        assert!(!table.has_sent(ip("192.0.2.8"), quoted(first, 1_000, 0x1234)));
        let path = table.path(Time::ZERO, ip(V4));
        (0..SENT_RECORDS - 1).for_each(|_| path.record(500, 1));
        assert!(table.has_sent(ip(V4), quoted(first, 1_000, 0x1234)));
        table.path(Time::ZERO, ip(V4)).record(500, 1);
        assert!(
            !table.has_sent(ip(V4), quoted(first, 1_000, 0x1234)),
            "it is too old"
        );
    }

    #[test]
    fn a_quotation_without_a_udp_header_matches_no_unused_record() {
        let mut table = PathTable::new(1_500, 1);
        for to in [V4, V6] {
            let path = table.path(Time::ZERO, ip(to));
            let (unused, flow_label) = (path.ident().wrapping_sub(2), path.flow_label().raw());
            path.record(1_000, 0x1234);
            for label in [Label::Ident(unused), Label::Flow(flow_label)] {
                let quoted = Quotation {
                    label,
                    udp_size: 0,
                    udp_checksum: 0,
                };
                assert!(!table.has_sent(ip(to), quoted), "{label:?}");
            }
        }
    }

    #[test]
    fn packets_of_ipv6_are_known_by_their_flow_label() {
        let mut table = PathTable::new(1_500, 1);
        let path = table.path(Time::ZERO, ip(V6));
        let label = path.flow_label().raw();
        path.record(1_000, 0x1234);
        let quoted = |label| Quotation {
            label: Label::Flow(label),
            udp_size: 1_000,
            udp_checksum: 0x1234,
        };
        assert!(table.has_sent(ip(V6), quoted(label)));
        assert!(!table.has_sent(ip(V6), quoted(label ^ 1)));
    }

    #[test]
    fn the_mtu_falls_within_its_bounds_and_returns_after_ten_minutes() {
        let mut table = PathTable::new(9_000, 1);
        let (v4, v6) = (ip(V4), ip(V6));
        assert_eq!(
            table.lower(Time::ZERO, v6, 1_400, 1_500),
            None,
            "nothing was sent there"
        );
        table.path(Time::ZERO, v4);
        table.path(Time::ZERO, v6);
        let mut lower = |to, reported, size| table.lower(Time::ZERO, to, reported, size);
        assert_eq!(lower(v6, 1_279, 9_000), None);
        assert_eq!(lower(v6, 9_000, 9_000), None);
        assert_eq!(
            lower(v6, 1_400, 1_400),
            None,
            "a packet of 1,400 bytes passes 1,400"
        );
        assert_eq!(lower(v6, 1_400, 9_000), Some(1_400));
        assert_eq!(lower(v6, 1_400, 9_000), None);
        assert_eq!(lower(v4, 0, 9_000), Some(1_280));
        assert_eq!(lower(v4, 68, 9_000), None);
        assert_eq!(
            (table.mtu(v4), table.mtu(v6), table.mtu(ip("::1"))),
            (1_280, 1_400, 9_000)
        );
        assert_eq!(table.on_timeout(Time::from_secs(599)), []);
        assert_eq!(table.on_timeout(Time::from_secs(600)), [(v4, 9_000), (v6, 9_000)]);
        assert_eq!(table.next_timeout(), None);
    }

    #[test]
    fn an_address_keeps_its_flow_label_when_its_path_was_replaced() {
        let mut table = PathTable::new(1_500, 1);
        let address = |number: usize| IpAddr::V6((0x2001_0db8_u128 << 96 | number as u128).into());
        let labels = |table: &mut PathTable, numbers: core::ops::Range<usize>| -> Vec<u32> {
            let paths = numbers.map(|number| table.path(Time::ZERO, address(number)).flow_label().raw());
            paths.collect()
        };
        let first = labels(&mut table, 0..PATHS_MAX);
        let others = labels(&mut table, PATHS_MAX..2 * PATHS_MAX);
        assert_eq!(labels(&mut table, 0..PATHS_MAX), first);
        assert!(first != others && first.iter().any(|label| *label != first[0]));
        assert_ne!(
            PathTable::new(1_500, 2)
                .path(Time::ZERO, address(0))
                .flow_label()
                .raw(),
            first[0],
            "the seed decides"
        );
    }

    #[test]
    fn a_path_is_kept_for_each_of_200_receivers() {
        let mut table = PathTable::new(1_500, 1);
        let address = |number: u32| IpAddr::V4((0x0a00_0000 + number).into());
        for number in 0..200 {
            table.path(Time::ZERO, address(number)).record(1_000, 7);
        }
        for number in 0..200 {
            let path = table.path(Time::ZERO, address(number));
            let quoted = Quotation {
                label: Label::Ident(path.ident().wrapping_sub(1)),
                udp_size: 1_000,
                udp_checksum: 7,
            };
            assert!(table.has_sent(address(number), quoted), "{number}");
        }
    }

    #[test]
    fn paths_are_bounded_and_the_oldest_makes_room() {
        let mut table = PathTable::new(1_500, 1);
        for number in 0..2 * PATHS_MAX as u64 {
            table.path(Time::from_secs(number), IpAddr::V4((number as u32 + 1).into()));
        }
        assert_eq!(table.len(), PATHS_MAX);
        assert!(
            table
                .paths
                .values()
                .all(|path| path.used >= Time::from_secs(PATHS_MAX as u64))
        );
    }
}
