//! Keys of the switch as keys of a classifying NIC, and the packets that get no entry.

use millrace_flow::{Field, FlowKey, FlowMask, Layer};
use millrace_nic::key::{Key, layer};

/// Layers of the switch and of the NIC.
const LAYERS: [(Layer, u8); 5] = [
    (Layer::Ip, layer::IP),
    (Layer::L4, layer::L4),
    (Layer::Arp, layer::ARP),
    (Layer::Mpls, layer::MPLS),
    (Layer::Pbb, layer::PBB),
];

const ICMPV6: u128 = 58;
const IPV6: u128 = 0x86dd;

/// Returns the bits that an entry compares so that packets with its mark are equal in `match_bits`.
///
/// EtherType, protocol, headers and fragments are always among them: other fields have a meaning only beside these. IPv4 and
/// IPv6 addresses share bits of the NIC's key, so both are compared where one is.
pub(crate) fn entry_bits(match_bits: &FlowMask) -> FlowMask {
    let mut mask = *match_bits;
    let key = &mut mask.0;
    for field in [Field::EthType, Field::IpProto, Field::IpFrag] {
        key.set_field(field, field.max_value());
    }
    LAYERS.iter().for_each(|(layer, _)| key.add_layer(*layer));
    for (v4, v6) in [(Field::Ipv4Src, Field::Ipv6Src), (Field::Ipv4Dst, Field::Ipv6Dst)] {
        let low = key.field(v4) | key.field(v6) & u128::from(u32::MAX);
        key.set_field(v4, low);
        key.set_field(v6, key.field(v6) | low);
    }
    mask
}

/// Returns the reason why a packet gets no entry, if there is one: fields that the NIC does not see do not follow from those
/// that it sees, or packets of the type are too few and too important.
pub(crate) fn unsuitable(key: &FlowKey, match_bits: &FlowMask) -> Option<&'static str> {
    let matches = |field: Field| match_bits.0.field(field) != 0;
    let is_v6 = key.field(Field::EthType) == IPV6;
    if key.has(Layer::Arp) {
        return Some("arp");
    }
    if ![Layer::Ip, Layer::Mpls, Layer::Pbb]
        .iter()
        .any(|layer| key.has(*layer))
    {
        return Some("no_header");
    }
    if key.field(Field::Metadata) != 0 || key.field(Field::TunnelId) != 0 {
        return Some("metadata");
    }
    if key.field(Field::IpFrag) != 0 {
        return Some("fragment");
    }
    if key.has(Layer::Ip) && matches(Field::NwTtl) {
        return Some("nw_ttl");
    }
    if is_v6 && matches(Field::Ipv6Exthdr) {
        return Some("ipv6_exthdr");
    }
    if is_v6 && matches(Field::Ipv6Flabel) {
        return Some("ipv6_flabel");
    }
    let nd = [Field::Ipv6NdTarget, Field::Ipv6NdSll, Field::Ipv6NdTll];
    if is_v6 && key.field(Field::IpProto) == ICMPV6 && nd.into_iter().any(matches) {
        return Some("ipv6_nd");
    }
    None
}

/// Returns the key of the NIC that has the fields of a key of the switch, or the mask that has the bits of a mask.
pub(crate) fn project(key: &FlowKey) -> Key {
    let low = |field: Field| key.field(field) as u64;
    let layers = LAYERS
        .iter()
        .filter(|(layer, _)| key.has(*layer))
        .fold(0, |bits, (_, bit)| bits | bit);
    // ARP has no addresses in the key of the NIC, and IPv4 and IPv6 are never both in a key of the switch, only in masks.
    let address = |v4: Field, v6: Field| key.field(v4) | key.field(v6);
    let src = address(Field::Ipv4Src, Field::Ipv6Src);
    let dst = address(Field::Ipv4Dst, Field::Ipv6Dst);
    let ports = [Field::TcpSrc, Field::TcpDst].map(low);
    let fragment = low(Field::IpFrag) << 6;
    Key([
        low(Field::EthDst) | low(Field::EthType) << 48,
        low(Field::EthSrc) | low(Field::VlanVid) << 48 | low(Field::VlanPcp) << 61,
        (src >> 64) as u64,
        src as u64,
        (dst >> 64) as u64,
        dst as u64,
        ports[0]
            | ports[1] << 16
            | (u64::from(layers) | fragment) << 40
            | low(Field::IpProto) << 48
            | (low(Field::IpDscp) << 2 | low(Field::IpEcn)) << 56,
        low(Field::MplsLabel)
            | low(Field::MplsTc) << 20
            | low(Field::MplsBos) << 23
            | low(Field::PbbIsid) << 24
            | low(Field::TcpFlags) << 48,
    ])
}

#[cfg(test)]
mod tests {
    use super::*;
    use millrace_nic::{Config, HashKeys};
    use millrace_nic_model::{frames, parse};
    use millrace_wire::Depth;

    /// Returns a mask with the bits of some fields, by the bits of a number.
    fn bits_of(number: u64) -> FlowMask {
        let mut mask = FlowMask::default();
        let all = Field::ALL
            .into_iter()
            .filter(|field| *field != Field::InPort && *field != Field::InPhyPort);
        for (at, field) in all.enumerate() {
            if number >> (at % 64) & 1 == 1 {
                let value = field.max_value() & !(u128::from(number >> 8) & 0xff);
                mask.0.put(field, value);
            }
        }
        mask
    }

    #[test]
    fn packets_that_equal_in_the_bits_of_an_entry_equal_in_the_bits_of_the_tables() {
        let config = Config::new(HashKeys::new(1));
        let mut random = frames::Random::new(77);
        let mut known: std::collections::BTreeMap<(u64, [u64; 8]), FlowKey> = Default::default();
        let (mut compared, mut suitable) = (0, 0);
        for number in 0..60_000_u64 {
            // Few masks and many frames, so that frames meet others with their key.
            let bits = bits_of(
                0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(number % 7 + 1)
                    & 0x0f0f_3333_5555_1111_u64.rotate_left(number as u32 % 7),
            );
            let mask = project(&entry_bits(&bits).0);
            let frame = frames::mutated(&mut random);
            let parsed = parse(&frame, 0, &config);
            if !parsed.complete || parsed.truncated {
                continue;
            }
            let mut key = FlowKey::default();
            key.read(&frame, frame.len(), Depth::All);
            if unsuitable(&key, &bits).is_some() {
                continue;
            }
            suitable += 1;
            let masked = key.masked(&entry_bits(&bits));
            assert_eq!(project(&masked), parsed.key.masked(&mask), "{frame:02x?}");
            let device = (number % 7, parsed.key.masked(&mask).0);
            if let Some(other) = known.insert(device, key) {
                compared += 1;
                assert_eq!(key.masked(&bits), other.masked(&bits), "{frame:02x?}");
            }
        }
        assert!(suitable > 1_000 && compared > 100, "{suitable} {compared}");
    }
}
