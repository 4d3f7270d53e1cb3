//! A slot of the receive ring: the kernel's header in front of a frame (`struct tpacket2_hdr` and the `sockaddr_ll`
//! after it, linux/if_packet.h), parsed into valid values.
//!
//! ```text
//!  0        4      8         12    14    16    20     24         26          28        32             44       mac-10   mac
//!  +--------+------+---------+-----+-----+-----+------+----------+-----------+---------+--------------+--------+--------+-------
//!  | status | len  | snaplen | mac | net | sec | nsec | vlan_tci | vlan_tpid | padding | sockaddr_ll  | …      | vnet   | frame
//!  +--------+------+---------+-----+-----+-----+------+----------+-----------+---------+--------------+--------+--------+-------
//! ```

use millrace_wire::virtio_net;
use thiserror::Error;

/// Size of a slot in bytes: enough for a frame of an MTU of 1,500 with its tags, and the kernel's headers in front of
/// it.
pub const SLOT_SIZE: usize = 2048;
/// Size in bytes of the part of the header that is read.
pub const HEADER_SIZE: usize = 44;

/// `TP_STATUS_USER`: the slot belongs to user space.
pub(crate) const USER: u32 = 1 << 0;
/// `TP_STATUS_COPY`: the whole frame is in the socket's queue, too.
const COPY: u32 = 1 << 1;
/// `TP_STATUS_VLAN_VALID`: the kernel removed a tag.
const VLAN_VALID: u32 = 1 << 4;
/// `TP_STATUS_VLAN_TPID_VALID`: `vlan_tpid` is the type of that tag.
const VLAN_TPID_VALID: u32 = 1 << 6;
/// `PACKET_OUTGOING` of `sll_pkttype`: this machine sends the frame.
const OUTGOING: u8 = 4;
/// The type of a customer tag (IEEE 802.1Q).
const CUSTOMER_TAG: u16 = 0x8100;
/// Size in bytes of the two addresses, which precede the tags.
pub(crate) const ADDRESSES_SIZE: usize = 12;
/// Size of a tag in bytes.
pub(crate) const TAG_SIZE: usize = 4;

/// The error of a slot with values that the kernel never writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum SlotError {
    /// The frame is not within the slot, or overlaps the headers.
    #[error("the frame lies at {at}, {size} bytes long, and the slot has {SLOT_SIZE} bytes")]
    Outside {
        /// Offset of the frame in the slot.
        at: u16,
        /// Number of the frame's bytes in the slot.
        size: u32,
    },
    /// The slot has more bytes than the frame, or the frame is shorter than two addresses.
    #[error("{size} bytes of a frame of {len} are in the slot")]
    Size {
        /// Number of bytes in the slot.
        size: u32,
        /// Size of the frame in bytes.
        len: u32,
    },
}

/// The location of a frame's bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DataLocation {
    /// All bytes are in the slot.
    Slot,
    /// All bytes are in the socket's queue.
    Queue,
    /// The socket's queue was full, and only the first bytes are in the slot.
    Lost,
}

/// A slot with a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Slot {
    /// Offset of the frame in the slot; the `virtio_net_hdr` directly precedes it.
    pub at: usize,
    /// Size of the frame in bytes without the tag that the kernel removed; at least the size of the two
    /// addresses.
    pub size: usize,
    /// The location of the frame's bytes.
    pub location: DataLocation,
    /// The tag that the kernel removed, in wire format.
    pub tag: Option<[u8; TAG_SIZE]>,
    /// True if this machine sent the frame.
    pub is_outgoing: bool,
}

impl Slot {
    /// Parses the header of a slot.
    ///
    /// # Errors
    /// [`SlotError`]; the frame may nevertheless be in the socket's queue ([`is_queued`]).
    #[inline]
    pub fn parse(header: &[u8; HEADER_SIZE]) -> Result<Slot, SlotError> {
        let word =
            |at: usize| u32::from_ne_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        let half = |at: usize| u16::from_ne_bytes([header[at], header[at + 1]]);
        let (status, len, size, at) = (word(0), word(4), word(8), half(12));
        let begin = usize::from(at);
        if begin < HEADER_SIZE + virtio_net::SHORT || size as usize > SLOT_SIZE.saturating_sub(begin) {
            return Err(SlotError::Outside { at, size });
        }
        if size > len || (len as usize) < ADDRESSES_SIZE {
            return Err(SlotError::Size { size, len });
        }
        let tag = (status & VLAN_VALID != 0).then(|| {
            let kind = if status & VLAN_TPID_VALID != 0 {
                half(26)
            } else {
                CUSTOMER_TAG
            };
            let ([k0, k1], [t0, t1]) = (kind.to_be_bytes(), half(24).to_be_bytes());
            [k0, k1, t0, t1]
        });
        Ok(Slot {
            at: begin,
            size: len as usize,
            location: match (is_queued(header), size == len) {
                (true, _) => DataLocation::Queue,
                (false, true) => DataLocation::Slot,
                (false, false) => DataLocation::Lost,
            },
            tag,
            is_outgoing: header[42] == OUTGOING,
        })
    }
}

/// Returns true if the frame of the slot with this header is also in the socket's queue.
#[must_use]
pub fn is_queued(header: &[u8; HEADER_SIZE]) -> bool {
    u32::from_ne_bytes([header[0], header[1], header[2], header[3]]) & COPY != 0
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn header(status: u32, len: u32, size: u32, at: u16) -> [u8; HEADER_SIZE] {
        let mut header = [0; HEADER_SIZE];
        header[..4].copy_from_slice(&status.to_ne_bytes());
        header[4..8].copy_from_slice(&len.to_ne_bytes());
        header[8..12].copy_from_slice(&size.to_ne_bytes());
        header[12..14].copy_from_slice(&at.to_ne_bytes());
        header[24..26].copy_from_slice(&0x6005_u16.to_ne_bytes());
        header[26..28].copy_from_slice(&0x88a8_u16.to_ne_bytes());
        header
    }

    #[test]
    fn a_tag_keeps_its_type_where_the_kernel_says_it_and_is_a_customers_otherwise() {
        let tag = |status| Slot::parse(&header(status, 60, 60, 96)).unwrap().tag;
        assert_eq!(tag(USER), None);
        assert_eq!(tag(USER | VLAN_VALID), Some([0x81, 0, 0x60, 5]));
        assert_eq!(
            tag(USER | VLAN_VALID | VLAN_TPID_VALID),
            Some([0x88, 0xa8, 0x60, 5])
        );
    }

    #[test]
    fn a_frame_is_in_its_slot_or_in_the_queue_or_lost() {
        let location = |status, size| Slot::parse(&header(status, 9000, size, 96)).unwrap().location;
        assert_eq!(location(USER | COPY, 1952), DataLocation::Queue);
        assert_eq!(location(USER, 1952), DataLocation::Lost);
        assert_eq!(
            Slot::parse(&header(USER, 60, 60, 96)).unwrap().location,
            DataLocation::Slot
        );
    }

    #[test]
    fn what_lies_outside_of_the_slot_is_refused() {
        for (len, size, at) in [
            (60, 60, 0),
            (60, 60, 53),
            (60, 60, 2000),
            (60, 60, u16::MAX),
            (u32::MAX, u32::MAX, 96),
            (2000, 1953, 96),
        ] {
            let error = Slot::parse(&header(USER, len, size, at)).unwrap_err();
            assert_eq!(error, SlotError::Outside { at, size }, "{len}");
        }
        for (len, size) in [(60, 61), (11, 11), (0, 0), (11, 0)] {
            let error = Slot::parse(&header(USER, len, size, 96)).unwrap_err();
            assert_eq!(error, SlotError::Size { size, len });
        }
    }

    proptest! {
        #[test]
        fn whatever_a_slot_holds_its_frame_lies_within(bytes: [u8; 32], more: [u8; 12], at in 0_u16..2100, size in 0_u32..2100) {
            let mut header = [0; HEADER_SIZE];
            header[..32].copy_from_slice(&bytes);
            header[32..].copy_from_slice(&more);
            header[8..12].copy_from_slice(&size.to_ne_bytes());
            header[12..14].copy_from_slice(&at.to_ne_bytes());
            if let Ok(slot) = Slot::parse(&header) {
                prop_assert!(slot.at >= HEADER_SIZE + virtio_net::SHORT && slot.size >= ADDRESSES_SIZE);
                prop_assert!(slot.location != DataLocation::Slot || slot.at + slot.size <= SLOT_SIZE);
            }
        }
    }
}
