//! Fields of Ethernet, VLAN tags, PBB tags and MPLS label stack entries: no checksum covers them.

use millrace_types::{Mac, Pcp, Vid};

use super::write;
use crate::bytes::{be16, chunk, chunk_mut, put};
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

/// Sets the EtherType after all VLAN tags. Returns false for an 802.3 frame, which has a length instead.
#[inline]
pub fn eth_type(head: &mut [u8], layers: &Layers, ether_type: EtherType) -> bool {
    layers.has_ethernet()
        && layers.ether_type() != EtherType::NOT_ETH_TYPE
        && write(head, layers.l3_offset() - 2, ether_type.0.to_be_bytes())
}

/// Size in bytes of a tag with its TPID and the EtherType after it.
const TAG: usize = 2 + vlan::SIZE;
/// Offset of the EtherType of the outermost tag.
const TPID: usize = Layers::VLAN_OFFSET - 2;

/// Returns the tag control information of the outermost VLAN tag; `None` if the packet has no complete tag.
#[inline]
#[must_use]
pub fn vlan_tci(head: &[u8]) -> Option<u16> {
    let tag = chunk::<TAG>(head, TPID)?;
    EtherType(be16(tag, 0)).is_vlan().then(|| be16(tag, 2))
}

/// Changes the tag control information of the outermost VLAN tag.
#[inline(always)]
fn change_vlan_tci(head: &mut [u8], change: impl FnOnce(u16) -> u16) -> bool {
    let tag = chunk_mut::<TAG>(head, TPID).filter(|tag| EtherType(be16(tag, 0)).is_vlan());
    let Some(tag) = tag else { return false };
    put(tag, 2, change(be16(tag, 2)).to_be_bytes());
    true
}

/// Sets the identifier of the outermost VLAN tag. Needs no [`Layers`], because the tag is at a fixed offset.
#[inline(always)]
pub fn vlan_vid(head: &mut [u8], vid: Vid) -> bool {
    change_vlan_tci(head, |tci| tci & 0xf000 | vid.raw())
}

/// Sets the priority of the outermost VLAN tag. Needs no [`Layers`], because the tag is at a fixed offset.
#[inline(always)]
pub fn vlan_pcp(head: &mut [u8], pcp: Pcp) -> bool {
    change_vlan_tci(head, |tci| tci & 0x1fff | u16::from(pcp.raw()) << 13)
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
