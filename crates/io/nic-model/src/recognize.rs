//! The recognition of the payload of a label stack, which names no type.

use millrace_wire::checksum;

use crate::proto;

pub(crate) fn looks_like_ipv4(bytes: &[u8]) -> bool {
    let Some([first, _, high, low, ..]) = bytes.first_chunk::<20>() else {
        return false;
    };
    let size = usize::from(first & 0xf) * 4;
    let total = usize::from(u16::from_be_bytes([*high, *low]));
    let header = bytes.get(..size).filter(|_| first >> 4 == 4 && size >= 20);
    header.is_some_and(|header| total >= size && checksum::internet(header) == 0)
}

pub(crate) fn looks_like_ipv6(bytes: &[u8]) -> bool {
    let Some([first, .., next, _hops]) = bytes.first_chunk::<8>() else {
        return false;
    };
    let is_common = matches!(
        *next,
        proto::HOP_BY_HOP
            | proto::TCP
            | proto::UDP
            | proto::ROUTING
            | proto::FRAGMENT
            | proto::GRE
            | proto::ESP
            | proto::ICMPV6
            | proto::DEST_OPTIONS
            | proto::OSPF
            | proto::SCTP
    );
    bytes.len() >= 40 && first >> 4 == 6 && is_common
}

pub(crate) fn looks_like_ethernet(bytes: &[u8]) -> bool {
    let Some((header, payload)) = bytes.split_first_chunk::<14>() else {
        return false;
    };
    match u16::from_be_bytes([header[12], header[13]]) {
        0x0800 => looks_like_ipv4(payload),
        0x86dd => looks_like_ipv6(payload),
        0x0806 | 0x8100 | 0x88a8 | 0x9100 | 0x88e7 | 0x8847 | 0x8848 => true,
        _ => false,
    }
}
