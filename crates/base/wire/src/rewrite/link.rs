//! Fields of Ethernet, VLAN tags, PBB tags and MPLS label stack entries: no checksum covers them.

use millrace_types::{Mac, Pcp, Vid};

use super::write;
use crate::bytes::{be16, chunk_mut, put};
use crate::{EtherType, Isid, L3, Layers, MplsLabel, Tc, ethernet, mpls, pbb, vlan};

/// Sets the Ethernet destination.
#[inline]
pub fn eth_dst(head: &mut [u8], mac: Mac) -> bool {
    chunk_mut::<{ ethernet::SIZE }>(head, 0)
        .map(|header| put(header, 0, mac.0))
        .is_some()
}

/// Sets the Ethernet source.
#[inline]
pub fn eth_src(head: &mut [u8], mac: Mac) -> bool {
    chunk_mut::<{ ethernet::SIZE }>(head, 0)
        .map(|header| put(header, 6, mac.0))
        .is_some()
}

/// Sets the EtherType after all VLAN tags; not that of an 802.3 frame, which has a length there.
#[inline]
pub fn eth_type(head: &mut [u8], layers: &Layers, ether_type: EtherType) -> bool {
    layers.has_ethernet()
        && layers.ether_type() != EtherType::NOT_ETH_TYPE
        && write(head, layers.l3_offset() - 2, ether_type.0.to_be_bytes())
}

/// Changes the tag control information of the outermost VLAN tag.
#[inline]
fn vlan_tci(head: &mut [u8], layers: &Layers, change: impl FnOnce(u16) -> u16) -> bool {
    let place = chunk_mut::<{ vlan::SIZE }>(head, Layers::VLAN_OFFSET);
    let Some(tag) = place.filter(|_| layers.vlan_count() > 0) else {
        return false;
    };
    put(tag, 0, change(be16(tag, 0)).to_be_bytes());
    true
}

/// Sets the identifier of the outermost VLAN tag.
#[inline]
pub fn vlan_vid(head: &mut [u8], layers: &Layers, vid: Vid) -> bool {
    vlan_tci(head, layers, |tci| tci & 0xf000 | vid.raw())
}

/// Sets the priority of the outermost VLAN tag.
#[inline]
pub fn vlan_pcp(head: &mut [u8], layers: &Layers, pcp: Pcp) -> bool {
    vlan_tci(head, layers, |tci| tci & 0x1fff | u16::from(pcp.raw()) << 13)
}

/// Sets the service instance of the PBB tag.
#[inline]
pub fn pbb_isid(head: &mut [u8], layers: &Layers, isid: Isid) -> bool {
    let place = chunk_mut::<{ pbb::SIZE }>(head, layers.l3_offset());
    let Some(tag) = place.filter(|_| layers.l3() == L3::Pbb) else {
        return false;
    };
    let [_, a, b, c] = isid.raw().to_be_bytes();
    put(tag, 1, [a, b, c]);
    true
}

/// Changes the outermost MPLS label stack entry.
#[inline]
pub(super) fn mpls_entry(head: &mut [u8], layers: &Layers, change: impl FnOnce(u32) -> u32) -> bool {
    let place = chunk_mut::<{ mpls::SIZE }>(head, layers.l3_offset());
    let Some(entry) = place.filter(|_| layers.l3() == L3::Mpls) else {
        return false;
    };
    *entry = change(u32::from_be_bytes(*entry)).to_be_bytes();
    true
}

/// Sets the label of the outermost MPLS label stack entry.
#[inline]
pub fn mpls_label(head: &mut [u8], layers: &Layers, label: MplsLabel) -> bool {
    mpls_entry(head, layers, |entry| entry & 0xfff | label.raw() << 12)
}

/// Sets the traffic class of the outermost MPLS label stack entry.
#[inline]
pub fn mpls_tc(head: &mut [u8], layers: &Layers, tc: Tc) -> bool {
    mpls_entry(head, layers, |entry| entry & !0xe00 | u32::from(tc.raw()) << 9)
}

/// Sets the bottom of stack bit of the outermost MPLS label stack entry.
#[inline]
pub fn mpls_bos(head: &mut [u8], layers: &Layers, bos: bool) -> bool {
    mpls_entry(head, layers, |entry| {
        if bos {
            entry | mpls::BOS
        } else {
            entry & !mpls::BOS
        }
    })
}
