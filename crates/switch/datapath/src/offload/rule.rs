//! Entries as rules of rte_flow: headers with masked bytes.
//!
//! A rule may mark fewer packets than have the key (no packet with IPv4 options, with a second VLAN tag, with an IPv6 extension
//! header): these go through the tables. It must not mark others, so it names every bit of the entry, and the headers that the
//! key has.

use millrace_flow::{Field, FlowKey, FlowMask, Layer};
use millrace_wire::Mark;

use crate::io::steer::{Header, HeaderMatch, SteerAction, SteerRule};

/// The bit of `vlan_vid` that a packet with a tag has (OpenFlow 1.3.5, section 7.2.3.7).
const VID_PRESENT: u128 = 0x1000;
const IPV6: u128 = 0x86dd;
const TCP: u128 = 6;
const UDP: u128 = 17;
const SCTP: u128 = 132;
/// Extension headers of IPv6 that the switch walks (RFC 8200, RFC 4302): a packet whose first header is one has another protocol.
const EXTENSIONS: [u128; 5] = [0, 43, 44, 51, 60];

/// Returns the bits that an entry of whole fields compares, for the bits that an entry compares at least: many devices take no
/// other masks. Both ports are compared where one is, because devices differ in what a rule with one port matches. A packet with
/// a tag and one without need two rules.
pub(crate) fn whole_fields(bits: &FlowMask) -> FlowMask {
    let mut mask = *bits;
    let key = &mut mask.0;
    for field in Field::ALL {
        if !field.is_pipeline_field() && key.field(field) != 0 {
            key.set_field(field, field.max_value());
        }
    }
    let ports = [Field::TcpSrc, Field::TcpDst];
    if ports.iter().any(|field| key.field(*field) != 0) {
        ports
            .iter()
            .for_each(|field| key.set_field(*field, field.max_value()));
    }
    key.set_field(Field::VlanVid, key.field(Field::VlanVid) | VID_PRESENT);
    mask
}

/// A header that is being composed.
struct Part(HeaderMatch);

impl Part {
    fn new(header: Header, size: usize) -> Part {
        Part(HeaderMatch {
            header,
            bytes: vec![0; size],
            mask: vec![0; size],
        })
    }

    /// Sets `size` bytes from `at` on to a value under a mask; bits that are set before stay.
    fn set(&mut self, at: usize, size: usize, value: u128, mask: u128) {
        let (value, mask) = ((value & mask).to_be_bytes(), mask.to_be_bytes());
        let all = self.0.bytes.iter_mut().zip(&mut self.0.mask).skip(at).take(size);
        for ((byte, bits), (value, mask)) in all.zip(value[16 - size..].iter().zip(&mask[16 - size..])) {
            *byte |= value;
            *bits |= mask;
        }
    }

    /// Returns the header; without bytes if it matches any.
    fn finish(mut self) -> HeaderMatch {
        let used = self
            .0
            .mask
            .iter()
            .rposition(|bits| *bits != 0)
            .map_or(0, |last| last + 1);
        self.0.bytes.truncate(used);
        self.0.mask.truncate(used);
        self.0
    }
}

/// Returns the rule that marks packets that equal `key` in the bits of `mask`, which are whole fields; `None` if rte_flow has no
/// headers for it. `no_fragment` says if the device matches the bits by which a fragment differs.
pub(crate) fn mark_rule(key: &FlowKey, mask: &FlowMask, mark: Mark, no_fragment: bool) -> Option<SteerRule> {
    let both = |field: Field| (key.field(field), mask.0.field(field));
    let is_tagged = key.field(Field::VlanVid) & VID_PRESENT != 0;
    let mut ethernet = Part::new(Header::Ethernet, 14);
    for (at, field) in [(0, Field::EthDst), (6, Field::EthSrc)] {
        let (value, mask) = both(field);
        ethernet.set(at, 6, value, mask);
    }
    let ether_type = both(Field::EthType);
    let mut headers = Vec::new();
    if is_tagged {
        let mut tag = Part::new(Header::Vlan, 4);
        let ((vid, vid_mask), (pcp, pcp_mask)) = (both(Field::VlanVid), both(Field::VlanPcp));
        tag.set(0, 2, vid, vid_mask & !VID_PRESENT);
        tag.set(0, 2, pcp << 13, pcp_mask << 13);
        tag.set(2, 2, ether_type.0, ether_type.1);
        headers.extend([ethernet.finish(), tag.finish()]);
    } else {
        ethernet.set(12, 2, ether_type.0, ether_type.1);
        headers.push(ethernet.finish());
    }
    if key.has(Layer::Mpls) {
        let mut entry = Part::new(Header::Mpls, 4);
        for (shift, field) in [(12, Field::MplsLabel), (9, Field::MplsTc), (8, Field::MplsBos)] {
            let (value, mask) = both(field);
            entry.set(0, 4, value << shift, mask << shift);
        }
        headers.push(entry.finish());
    } else if key.has(Layer::Ip) {
        let is_cut_off = ether_type.0 == IPV6 && EXTENSIONS.contains(&key.field(Field::IpProto));
        if is_cut_off {
            return None;
        }
        headers.push(ip(&both, no_fragment));
        headers.extend(transport(key, &both)?);
    } else {
        return None;
    }
    Some(SteerRule {
        headers,
        action: SteerAction::Mark(mark),
    })
}

type Both<'a> = &'a dyn Fn(Field) -> (u128, u128);

/// Returns the IP header.
fn ip(both: Both<'_>, no_fragment: bool) -> HeaderMatch {
    let is_v6 = both(Field::EthType).0 == IPV6;
    let ((dscp, dscp_mask), (ecn, ecn_mask)) = (both(Field::IpDscp), both(Field::IpEcn));
    let class = (dscp << 2 | ecn, dscp_mask << 2 | ecn_mask);
    let protocol = both(Field::IpProto);
    let mut header;
    let fields = if is_v6 {
        header = Part::new(Header::Ipv6, 40);
        header.set(0, 2, class.0 << 4, class.1 << 4);
        header.set(6, 1, protocol.0, protocol.1);
        [(8, 16, Field::Ipv6Src), (24, 16, Field::Ipv6Dst)]
    } else {
        header = Part::new(Header::Ipv4, 20);
        header.set(1, 1, class.0, class.1);
        if no_fragment {
            header.set(6, 2, 0, 0x3fff);
        }
        header.set(9, 1, protocol.0, protocol.1);
        [(12, 4, Field::Ipv4Src), (16, 4, Field::Ipv4Dst)]
    };
    for (at, size, field) in fields {
        let (value, mask) = both(field);
        header.set(at, size, value, mask);
    }
    header.finish()
}

/// Returns the header behind IP, if the key has one; `None` if there is no item for it: ICMP, and headers that are cut off.
fn transport(key: &FlowKey, both: Both<'_>) -> Option<Option<HeaderMatch>> {
    let (protocol, _) = both(Field::IpProto);
    let header = match protocol {
        TCP => (Header::Tcp, 20),
        UDP => (Header::Udp, 8),
        SCTP => (Header::Sctp, 12),
        _ => return (!key.has(Layer::L4)).then_some(None),
    };
    if !key.has(Layer::L4) {
        return None;
    }
    let mut part = Part::new(header.0, header.1);
    for (at, field) in [(0, Field::TcpSrc), (2, Field::TcpDst)] {
        let (value, mask) = both(field);
        part.set(at, 2, value, mask);
    }
    if protocol == TCP {
        let (flags, mask) = both(Field::TcpFlags);
        part.set(12, 2, flags, mask & 0xfff);
    }
    Some(Some(part.finish()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::offload::key::{entry_bits, unsuitable};
    use millrace_nic_model::frames;
    use millrace_wire::Depth;

    const MARK: Mark = Mark::new(7).unwrap();
    /// The number of sets of fields that tables match.
    const MASKS: u64 = 9;

    /// Returns the bits that tables match, by a number.
    fn bits_of(number: u64) -> FlowMask {
        let mut mask = FlowMask::default();
        let random = 0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(number + 1);
        for (at, field) in Field::ALL.into_iter().enumerate() {
            // The fields that keep a packet from getting an entry are left out.
            let is_left_out = field.is_pipeline_field() || matches!(field, Field::NwTtl | Field::Ipv6Exthdr);
            if !is_left_out && random >> (at % 64) & 3 == 0 {
                mask.0
                    .put(field, field.max_value() & !(u128::from(random >> 8) & 0xf));
            }
        }
        mask
    }

    fn key_of(frame: &[u8]) -> FlowKey {
        let mut key = FlowKey::default();
        key.read(frame, frame.len(), Depth::All);
        key
    }

    /// Returns true if the lengths in headers agree: of IP with the frame, of UDP and TCP with IP. The switch sees no header where
    /// they do not; a device may (ADR 73).
    fn has_true_lengths(frame: &[u8]) -> bool {
        let word = |at: usize| {
            frame
                .get(at..at + 2)
                .map(|two| usize::from(two[0]) << 8 | usize::from(two[1]))
        };
        let mut at = 12;
        while matches!(word(at), Some(0x8100 | 0x88a8 | 0x9100)) {
            at += 4;
        }
        let room = frame.len().saturating_sub(at + 2);
        // The size of the IP header, the length of the packet, and the position of the protocol.
        let sizes = match word(at) {
            Some(0x0800) => word(at + 4).map(|total| (4 * usize::from(frame[at + 2] & 15), total, at + 11)),
            Some(0x86dd) => word(at + 6).map(|payload| (40, 40 + payload, at + 8)),
            _ => return true,
        };
        let Some((header, total, protocol)) =
            sizes.filter(|(header, total, _)| (header + 20..=room).contains(total))
        else {
            return false;
        };
        let (payload, first) = (total - header, at + 2 + header);
        match frame.get(protocol).copied().map(u128::from) {
            Some(UDP) => word(first + 4).is_some_and(|length| (8..=payload).contains(&length)),
            Some(TCP) => (20..=payload).contains(&(4 * usize::from(frame[first + 12] >> 4))),
            _ => true,
        }
    }

    #[test]
    fn a_rule_marks_the_packet_that_it_was_made_for_and_no_packet_with_another_key() {
        let mut random = frames::Random::new(78);
        let all: Vec<Vec<u8>> = (0..2_500)
            .map(|_| frames::mutated(&mut random))
            .filter(|frame| has_true_lengths(frame))
            .collect();
        let (mut rules, mut own, mut marked) = (0, 0, 0);
        for (number, frame) in (0..).zip(&all) {
            let bits = bits_of(number % MASKS);
            let mask = whole_fields(&entry_bits(&bits));
            let key = key_of(frame);
            if unsuitable(&key, &bits).is_some() {
                continue;
            }
            let masked = key.masked(&mask);
            let Some(rule) = mark_rule(&masked, &mask, MARK, true) else {
                continue;
            };
            rules += 1;
            own += u32::from(rule.matches(frame));
            for other in all.iter().filter(|other| rule.matches(other)) {
                let of_other = key_of(other).masked(&mask);
                assert_eq!(of_other, masked, "{mask:?}\n{frame:02x?}\n{other:02x?}");
                marked += 1;
            }
        }
        // Options, second tags and extension headers have no items.
        let found = format!(
            "{} frames, {rules} rules, {own} mark theirs, {marked} marks",
            all.len()
        );
        assert!(rules > 300 && own * 3 > rules && marked > own, "{found}");
    }

    #[test]
    fn rules_name_the_bytes_of_the_wire() {
        let mut key = FlowKey::default();
        let tagged = [
            &[2; 12][..],
            &[0x81, 0, 0xa0, 5, 8, 0],
            &[
                0x45, 0xb9, 0, 40, 0, 0, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2,
            ],
            &[
                0x12, 0x34, 0, 80, 0, 0, 0, 0, 0, 0, 0, 0, 0x50, 0x18, 0, 0, 0, 0, 0, 0,
            ],
        ]
        .concat();
        key.read(&tagged, tagged.len(), Depth::All);
        let mut bits = FlowMask::default();
        for field in [
            Field::VlanPcp,
            Field::IpDscp,
            Field::Ipv4Dst,
            Field::TcpDst,
            Field::TcpFlags,
        ] {
            bits.0.put(field, field.max_value());
        }
        let mask = whole_fields(&entry_bits(&bits));
        let rule = mark_rule(&key.masked(&mask), &mask, MARK, true).unwrap();
        let found: Vec<_> = rule
            .headers
            .iter()
            .map(|part| (part.header, &part.bytes[..], &part.mask[..]))
            .collect();
        let v4 = [0, 0xb8, 0, 0, 0, 0, 0, 0, 0, 6, 0, 0, 0, 0, 0, 0, 10, 0, 0, 2];
        let v4_mask = [
            0, 0xfc, 0, 0, 0, 0, 0x3f, 0xff, 0, 0xff, 0, 0, 0, 0, 0, 0, 255, 255, 255, 255,
        ];
        let tcp = [0x12, 0x34, 0, 80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x18];
        let tcp_mask = [255, 255, 255, 255, 0, 0, 0, 0, 0, 0, 0, 0, 0x0f, 0xff];
        assert_eq!(
            found,
            [
                (Header::Ethernet, &[][..], &[][..]),
                // The tables match no VLAN, so any tag will do; a packet without one will not.
                (Header::Vlan, &[0xa0, 0, 8, 0][..], &[0xe0, 0, 0xff, 0xff][..]),
                (Header::Ipv4, &v4[..], &v4_mask[..]),
                (Header::Tcp, &tcp[..], &tcp_mask[..]),
            ]
        );
        let without = mark_rule(&key.masked(&mask), &mask, MARK, false).unwrap();
        assert_eq!(without.headers[2].mask[6..8], [0, 0]);
    }

    #[test]
    fn packets_without_items_get_no_rule() {
        let bits = entry_bits(&FlowMask::default());
        let mask = whole_fields(&bits);
        let mut key = FlowKey::default();
        key.put(Field::EthType, 0x0800);
        assert!(mark_rule(&key, &mask, MARK, true).is_none(), "no header");
        key.add_layer(Layer::Ip);
        assert!(mark_rule(&key, &mask, MARK, true).is_some());
        key.put(Field::IpProto, 1);
        key.add_layer(Layer::L4);
        assert!(mark_rule(&key, &mask, MARK, true).is_none(), "ICMP");
        key.put(Field::IpProto, 17);
        assert!(mark_rule(&key, &mask, MARK, true).is_some());
        let mut pbb = FlowKey::default();
        pbb.put(Field::EthType, 0x88e7);
        pbb.add_layer(Layer::Pbb);
        assert!(mark_rule(&pbb, &mask, MARK, true).is_none(), "PBB");
    }
}
