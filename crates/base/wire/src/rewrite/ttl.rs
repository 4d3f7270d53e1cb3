//! The times to live of MPLS and IP, and the OpenFlow actions that copy one to the other.

use super::link::mpls_entry;
use super::network::ipv4_word;
use super::write;
use crate::{L3, Layers, ipv4, ipv6, mpls};

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
