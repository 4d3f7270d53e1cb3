//! Functions that set a field of a packet in place and update every checksum that covers it.
//!
//! Each function takes the head of a packet and its [`Layers`], which must have been parsed at least to [`Depth::L4`]
//! (neighbour discovery: [`Depth::All`]) and still be valid. It returns false, and changes nothing, if the packet does
//! not have the field. After [`ip_proto`], [`eth_type`], [`mpls_bos`] and [`icmpv6_type`] the packet must be parsed
//! again.
//!
//! # Checksums
//! * Checksums are updated by the difference (RFC 1624), never recomputed: a packet that was damaged on its way stays
//!   detectably damaged, and payload in further segments is not read. The CRC of SCTP is updated in the same way.
//! * A UDP checksum of zero (none) stays zero, over IPv4 and over IPv6 (RFC 6935).
//! * Addresses are part of the checksums of TCP, UDP and ICMPv6. A later fragment has no transport header; the
//!   checksum of the whole packet is in the first fragment and is updated there.
//! * If an IPv6 routing header has segments left, the checksum covers the final destination. A change of the
//!   destination in the fixed header then leaves the checksum as it is. IPv4 source routes are ignored.
//! * The ports of an SCTP packet's first fragment cannot be set, because the CRC depends on the number of bytes in the
//!   other fragments. The packet counts as one without ports.
//! * The checksums of other protocols that cover addresses (UDP-Lite, DCCP) become wrong.
//!
//! [`HeaderRewrite`] sets several fields together, for packets that all get the same values.
//!
//! [`Depth::L4`]: crate::Depth::L4
//! [`Depth::All`]: crate::Depth::All
mod combined;
mod link;
mod network;
mod transport;
mod ttl;

pub use combined::{HeaderField, HeaderRewrite};
pub use link::{
    eth_dst, eth_src, eth_type, mpls_bos, mpls_label, mpls_tc, pbb_isid, vlan_pcp, vlan_tci, vlan_vid,
};
pub use network::{arp_op, arp_sha, arp_spa, arp_tha, arp_tpa, ip_dscp, ip_ecn, ip_proto};
pub use network::{ipv4_dst, ipv4_src, ipv6_dst, ipv6_flow_label, ipv6_src};
pub use transport::{icmpv4_code, icmpv4_type, icmpv6_code, icmpv6_type, l4_dst, l4_src};
pub use transport::{nd_sll, nd_target, nd_tll};
pub use ttl::{
    Ttl, TtlOffset, copy_ttl_in, copy_ttl_out, dec_ip_ttl, dec_mpls_ttl, ip_ttl, ip_ttl_of, mpls_ttl,
};

use crate::bytes::chunk_mut;
use crate::checksum::Change;
use crate::{L4, Layers, icmpv4, icmpv6, tcp, udp};

/// Writes `value` at `at` and returns the previous bytes.
#[inline]
fn replace<const N: usize>(head: &mut [u8], at: usize, value: [u8; N]) -> Option<[u8; N]> {
    chunk_mut(head, at).map(|field| core::mem::replace(field, value))
}

/// Writes `value` at `at`, if all of it is in the head.
#[inline]
fn write<const N: usize>(head: &mut [u8], at: usize, value: [u8; N]) -> bool {
    replace(head, at, value).is_some()
}

/// Updates the 16-bit checksum at `at`.
#[inline]
fn mend(head: &mut [u8], at: usize, change: Change) {
    if let Some(checksum) = chunk_mut::<2>(head, at) {
        *checksum = change.apply(u16::from_be_bytes(*checksum)).to_be_bytes();
    }
}

/// Updates the checksum of the transport header for a change of bytes that it covers.
#[inline]
fn mend_l4(head: &mut [u8], layers: &Layers, change: Change, covers: Covered) {
    let at = layers.l4_offset();
    match layers.l4() {
        L4::Tcp => mend(head, at + tcp::offset::CHECKSUM, change),
        L4::Udp => {
            if let Some(checksum) = chunk_mut::<2>(head, at + udp::offset::CHECKSUM) {
                *checksum = change.apply_udp(u16::from_be_bytes(*checksum)).to_be_bytes();
            }
        }
        L4::Icmpv6 => mend(head, at + icmpv6::offset::CHECKSUM, change),
        L4::Icmpv4 if covers == Covered::Message => {
            mend(head, at + icmpv4::offset::CHECKSUM, change);
            // A message without a pseudo-header may consist of zeros only. Its checksum is 0xffff, but the
            // incremental update has made it 0, which is the same value in one's complement. Only this case
            // needs a correction.
            let seen = head.get(at..).unwrap_or_default();
            if seen.iter().take(layers.l4_size()).all(|byte| *byte == 0) {
                write(head, at + icmpv4::offset::CHECKSUM, [0xff; 2]);
            }
        }
        L4::None | L4::Sctp | L4::Icmpv4 => {}
    }
}

/// The bytes that changed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Covered {
    /// The addresses of the pseudo-header.
    Addresses,
    /// The transport's own bytes.
    Message,
}
