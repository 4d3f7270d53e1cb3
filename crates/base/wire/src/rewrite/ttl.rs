//! The times to live of MPLS and IP, and the OpenFlow actions that copy one to the other.

use super::link::mpls_entry;
use super::network::ipv4_word;
use super::write;
use crate::checksum::Change;
use crate::{EtherType, L3, Layers, ethernet, ipv4, ipv6, mpls, vlan};

/// The outcome of changing a time to live.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Ttl {
    /// The TTL was changed.
    Changed,
    /// The TTL is zero or one and cannot be decremented; the packet is unchanged. OpenFlow answers with a packet_in of
    /// reason `OFPR_INVALID_TTL`.
    Expired,
    /// The packet has no TTL.
    Absent,
}

/// Sets the time to live of the outermost MPLS label stack entry.
#[inline]
pub fn mpls_ttl(head: &mut [u8], layers: &Layers, ttl: u8) -> bool {
    mpls_entry(head, layers, |entry| entry & !0xff | u32::from(ttl))
}

/// Decrements the time to live of the outermost MPLS label stack entry.
#[inline]
pub fn dec_mpls_ttl(head: &mut [u8], layers: &Layers) -> Ttl {
    let mut outcome = Ttl::Absent;
    mpls_entry(head, layers, |entry| {
        let expired = entry & 0xff <= 1;
        outcome = if expired { Ttl::Expired } else { Ttl::Changed };
        if expired { entry } else { entry - 1 }
    });
    outcome
}

/// The location of a time to live.
#[derive(Clone, Copy)]
enum TtlPlace {
    Mpls(usize),
    Ipv4(usize),
    Ipv6(usize),
}

impl TtlPlace {
    /// Returns the location of the time to live after the outermost MPLS label stack entry: in the next entry or in
    /// IP.
    #[inline]
    fn behind_mpls(layers: &Layers) -> Option<TtlPlace> {
        match (layers.mpls_count(), layers.mpls_inner(), layers.mpls_payload()) {
            (0, ..) => None,
            (1, L3::Ipv4, Some(at)) => Some(TtlPlace::Ipv4(at)),
            (1, L3::Ipv6, Some(at)) => Some(TtlPlace::Ipv6(at)),
            (1, ..) => None,
            _ => Some(TtlPlace::Mpls(layers.l3_offset() + mpls::SIZE)),
        }
    }

    #[inline]
    fn of_ip(layers: &Layers) -> Option<TtlPlace> {
        match layers.l3() {
            L3::Ipv4 => Some(TtlPlace::Ipv4(layers.l3_offset())),
            L3::Ipv6 => Some(TtlPlace::Ipv6(layers.l3_offset())),
            L3::None | L3::Arp | L3::Mpls | L3::Pbb => None,
        }
    }

    #[inline]
    fn read(self, head: &[u8]) -> Option<u8> {
        let at = match self {
            TtlPlace::Mpls(at) => at + 3,
            TtlPlace::Ipv4(at) => at + ipv4::offset::TTL,
            TtlPlace::Ipv6(at) => at + ipv6::offset::HOP_LIMIT,
        };
        head.get(at).copied()
    }

    #[inline]
    fn write(self, head: &mut [u8], ttl: u8) -> bool {
        match self {
            TtlPlace::Mpls(at) => write(head, at + 3, [ttl]),
            TtlPlace::Ipv4(at) => ipv4_word(head, at, ipv4::offset::TTL, |word| {
                word & 0xff | u16::from(ttl) << 8
            }),
            TtlPlace::Ipv6(at) => write(head, at + ipv6::offset::HOP_LIMIT, [ttl]),
        }
    }
}

/// Copies the time to live inwards: from the outermost MPLS label stack entry to the next entry or to the
/// IP packet that follows.
#[inline]
pub fn copy_ttl_in(head: &mut [u8], layers: &Layers) -> bool {
    let outer = TtlPlace::Mpls(layers.l3_offset());
    let inner = TtlPlace::behind_mpls(layers);
    inner
        .zip(outer.read(head))
        .is_some_and(|(inner, ttl)| inner.write(head, ttl))
}

/// Copies the time to live outwards: to the outermost MPLS label stack entry from the next entry or from
/// the IP packet that follows.
#[inline]
pub fn copy_ttl_out(head: &mut [u8], layers: &Layers) -> bool {
    let inner = TtlPlace::behind_mpls(layers).and_then(|inner| inner.read(head));
    inner.is_some_and(|ttl| mpls_ttl(head, layers, ttl))
}

/// Returns the time to live or hop limit of IP; `None` if the packet is not IP.
#[inline]
pub fn ip_ttl_of(head: &[u8], layers: &Layers) -> Option<u8> {
    TtlPlace::of_ip(layers)?.read(head)
}

/// Sets the time to live or hop limit of IP.
#[inline]
pub fn ip_ttl(head: &mut [u8], layers: &Layers, ttl: u8) -> bool {
    TtlPlace::of_ip(layers).is_some_and(|place| place.write(head, ttl))
}

/// Decrements the time to live or hop limit of IP.
#[inline]
pub fn dec_ip_ttl(head: &mut [u8], layers: &Layers) -> Ttl {
    let place = TtlPlace::of_ip(layers);
    match place.and_then(|place| Some((place, place.read(head)?))) {
        None => Ttl::Absent,
        Some((_, 0 | 1)) => Ttl::Expired,
        Some((place, ttl)) => {
            place.write(head, ttl - 1);
            Ttl::Changed
        }
    }
}

/// A TTL or hop limit that can be decremented, found by a few comparisons instead of a parse.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TtlOffset {
    /// The offset of the TTL of IPv4 in bytes; the header checksum covers it.
    Ipv4(usize),
    /// The offset of the hop limit of IPv6 in bytes.
    Ipv6(usize),
}

impl TtlOffset {
    /// Returns the offset of the TTL or hop limit of an IP packet with at most one tag, if it is more than one. The
    /// caller ensures that the IP header is complete, if there is one.
    #[inline(always)]
    #[must_use]
    pub fn find(head: &[u8]) -> Option<TtlOffset> {
        let kind = head.get(12..14)?;
        let (kind, l3) = if kind == EtherType::VLAN.0.to_be_bytes() {
            (head.get(16..18)?, ethernet::SIZE + vlan::SIZE)
        } else {
            (kind, ethernet::SIZE)
        };
        let header: &[u8; ipv4::MIN_SIZE] = head.get(l3..)?.first_chunk()?;
        let version = header[0] >> 4;
        if kind == EtherType::IPV4.0.to_be_bytes() && version == 4 {
            let is_forwarded = header[ipv4::offset::TTL] > 1;
            return is_forwarded.then_some(TtlOffset::Ipv4(l3 + ipv4::offset::TTL));
        }
        let is_ipv6 = kind == EtherType::IPV6.0.to_be_bytes() && version == 6;
        let is_forwarded = is_ipv6 && header[ipv6::offset::HOP_LIMIT] > 1;
        is_forwarded.then_some(TtlOffset::Ipv6(l3 + ipv6::offset::HOP_LIMIT))
    }

    /// Decrements the TTL or hop limit that [`TtlOffset::find`] returned for this packet, and updates the header checksum
    /// of IPv4.
    #[inline(always)]
    pub fn decrement(self, head: &mut [u8]) {
        match self {
            TtlOffset::Ipv4(at) => {
                let Some([ttl, proto, high, low]) = head.get_mut(at..).and_then(<[u8]>::first_chunk_mut::<4>)
                else {
                    return;
                };
                let old = u16::from_be_bytes([*ttl, *proto]);
                *ttl = ttl.wrapping_sub(1);
                let change = Change::of16(old, u16::from_be_bytes([*ttl, *proto]));
                [*high, *low] = change.apply(u16::from_be_bytes([*high, *low])).to_be_bytes();
            }
            TtlOffset::Ipv6(at) => {
                if let Some(hop_limit) = head.get_mut(at) {
                    *hop_limit = hop_limit.wrapping_sub(1);
                }
            }
        }
    }
}
