//! A slot of an AF_PACKET ring, and the virtio-net header in front of its frame.

use millrace_af_packet::slot::{DataLocation, HEADER_SIZE, SLOT_SIZE, Slot};
use millrace_wire::segment::GsoLayout;
use millrace_wire::virtio_net::{Accepted, Header, SHORT};
use millrace_wire::{Frame, Packet};

const ACCEPTED: Accepted = Accepted {
    tcpv4: true,
    tcpv6: true,
    udp: true,
    frame_size: 2000,
    mtu: 1500,
};

/// Parses a slot, then a virtio-net header and a frame in one or two segments.
///
/// Properties: the frame of a slot lies within the slot, after the headers; a frame keeps its size; a frame that is
/// accepted as a GSO packet has segments no longer than the MTU.
pub(crate) fn slot(bytes: &[u8]) {
    let Some((header, rest)) = bytes.split_first_chunk::<HEADER_SIZE>() else {
        return;
    };
    let shift = match Slot::parse(header) {
        Ok(slot) => {
            assert!(slot.at >= HEADER_SIZE + SHORT);
            assert!(slot.location != DataLocation::Slot || slot.at + slot.size <= SLOT_SIZE);
            slot.tag.map_or(0, |tag| tag.len() as u16)
        }
        Err(_) => 0,
    };
    let Some((header, frame)) = rest.split_first_chunk::<SHORT>() else {
        return;
    };
    for head in [frame.len(), frame.len().min(60)] {
        let mut packet = Frame::segmented(frame, head);
        let is_accepted = Header::from_bytes(*header)
            .shifted(shift)
            .finish(&mut packet, &ACCEPTED);
        assert_eq!(packet.len(), frame.len());
        if is_accepted && let Some(gso) = GsoLayout::of(&packet) {
            assert!(gso.count() > 1 && gso.packet_size() <= ACCEPTED.mtu);
            assert!((0..gso.count()).all(|number| gso.segment(&packet, number).is_some()));
        }
    }
}
