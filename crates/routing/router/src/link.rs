//! The link header of packets that the router sends: Ethernet, with a tag in VLANs other than 0.

use millrace_types::{Mac, Vid};
use millrace_wire::{EtherType, NoHeadroom, Packet, ethernet, vlan};

/// The largest link header in bytes.
pub(crate) const LINK_MAX: usize = ethernet::SIZE + vlan::SIZE;

/// The bits of a tag that are not its VLAN.
const PRIORITY: u16 = 0xf000;

/// Replaces the link header. `l3` is the offset of the IP header, zero for a packet without link header; a tag on arrival
/// gives its priority to the new one. Returns the new offset of the IP header.
///
/// # Errors
/// [`NoHeadroom`] if the header needs more room than there is.
#[inline(always)]
pub(crate) fn write<P: Packet>(
    packet: &mut P,
    l3: usize,
    macs: (Mac, Mac),
    vid: Vid,
    kind: EtherType,
) -> Result<usize, NoHeadroom> {
    let priority = match packet.head().get(ethernet::SIZE..LINK_MAX - 2) {
        Some([high, low]) if l3 == LINK_MAX => u16::from_be_bytes([*high, *low]) & PRIORITY,
        _ => 0,
    };
    let size = if vid == Vid::default() {
        ethernet::SIZE
    } else {
        LINK_MAX
    };
    match size > l3 {
        true => packet.prepend(size - l3)?,
        false => packet.trim_front(l3 - size),
    }
    let (dst, src) = (macs.0.to_u64(), macs.1.to_u64());
    // The two addresses in one store of eight bytes and one of four.
    let first = (dst << 16 | src >> 32).to_be_bytes();
    let second = (src as u32).to_be_bytes();
    let head = packet.head_mut();
    if size == ethernet::SIZE {
        let header = head.first_chunk_mut::<{ ethernet::SIZE }>().ok_or(NoHeadroom)?;
        header[..8].copy_from_slice(&first);
        header[8..12].copy_from_slice(&second);
        header[12..].copy_from_slice(&kind.0.to_be_bytes());
        return Ok(size);
    }
    let header = head.first_chunk_mut::<LINK_MAX>().ok_or(NoHeadroom)?;
    header[..8].copy_from_slice(&first);
    header[8..12].copy_from_slice(&second);
    let tag = u32::from(EtherType::VLAN.0) << 16 | u32::from(priority | vid.raw());
    header[12..16].copy_from_slice(&tag.to_be_bytes());
    header[16..].copy_from_slice(&kind.0.to_be_bytes());
    Ok(size)
}

/// Removes the tag of a frame whose IP header is at `l3`.
pub(crate) fn untag<P: Packet>(packet: &mut P, l3: usize) {
    let Some(macs) = packet.head().first_chunk::<12>().copied() else {
        return;
    };
    if l3 == LINK_MAX {
        packet.trim_front(vlan::SIZE);
        if let Some(place) = packet.head_mut().first_chunk_mut::<12>() {
            *place = macs;
        }
    }
}

/// Puts a frame without tag into a VLAN; VLAN 0 has no tag.
///
/// # Errors
/// [`NoHeadroom`] if the tag needs more room than there is.
pub(crate) fn tag<P: Packet>(packet: &mut P, vid: Vid) -> Result<(), NoHeadroom> {
    let Some(macs) = packet.head().first_chunk::<12>().copied() else {
        return Err(NoHeadroom);
    };
    if vid == Vid::default() {
        return Ok(());
    }
    packet.prepend(vlan::SIZE)?;
    let header = packet.head_mut().first_chunk_mut::<16>().ok_or(NoHeadroom)?;
    header[..12].copy_from_slice(&macs);
    header[12..14].copy_from_slice(&EtherType::VLAN.0.to_be_bytes());
    header[14..].copy_from_slice(&vid.raw().to_be_bytes());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use millrace_wire::{Builder, Frame};

    const NEW: (Mac, Mac) = (Mac([2, 0, 0, 0, 0, 1]), Mac([2, 0, 0, 0, 0, 2]));

    #[test]
    fn a_packet_goes_from_any_vlan_to_any_and_its_priority_with_it() {
        let frame = |vid: u16, pcp: u8, macs: (Mac, Mac)| {
            let builder = Builder::ethernet(macs.0, macs.1);
            let builder = if vid == 0 { builder } else { builder.vlan(vid, pcp) };
            Frame::new(
                &builder
                    .ipv4([10, 0, 0, 1], [10, 0, 0, 2])
                    .udp(1, 2)
                    .payload(&[7; 9])
                    .build(),
            )
        };
        let old = (Mac([4; 6]), Mac([6; 6]));
        for (from, to) in [(0, 0), (0, 7), (7, 0), (7, 9)] {
            let mut packet = frame(from, 5, old);
            let l3 = if from == 0 { 14 } else { 18 };
            let vid = Vid::new(to).unwrap();
            let at = write(&mut packet, l3, NEW, vid, EtherType::IPV4).unwrap();
            let pcp = if from == 0 { 0 } else { 5 };
            assert_eq!(packet.bytes(), frame(to, pcp, NEW).bytes());
            assert_eq!(at, if to == 0 { 14 } else { 18 });
            untag(&mut packet, at);
            assert_eq!(packet.bytes(), frame(0, 0, NEW).bytes());
            tag(&mut packet, vid).unwrap();
            assert_eq!(packet.bytes(), frame(to, 0, NEW).bytes());
        }
    }
}
