//! Packet-in buffers (OpenFlow 1.3.5, sections 6.1.2 and 7.4.1): a controller that asks for only the first
//! bytes of packets also gets a buffer number. A packet_out or flow_mod can name the packet by this number.
//!
//! There are [`BUFFERS_LEN`] buffers, and a new packet takes the buffer of the oldest: a controller that never names a
//! buffer costs a fixed number of packets.

use millrace_openflow::ErrorCode;
use millrace_pipeline::Origin;
use millrace_types::BufferId;

/// The maximum number of buffered packets.
pub(crate) const BUFFERS_LEN: u32 = 256;

/// A packet that a packet_out can name by its buffer id.
#[derive(Debug)]
pub(crate) struct BufferedPacket {
    /// The ingress port and the tunnel; the metadata is zero, as for a packet that comes from a port.
    pub(crate) origin: Origin,
    pub(crate) bytes: Vec<u8>,
}

#[derive(Debug, Default)]
struct BufferSlot {
    /// The number of the latest packet of this slot; `None` before the first.
    id: Option<BufferId>,
    /// `None` once the packet was taken.
    packet: Option<BufferedPacket>,
}

/// The buffered packets of a bridge. The slots are allocated with the first packet.
#[derive(Debug, Default)]
pub(crate) struct Buffers {
    slots: Vec<BufferSlot>,
    next: u32,
}

impl Buffers {
    /// Buffers a packet, instead of the oldest one if all slots are in use. Returns its number.
    pub(crate) fn insert(&mut self, packet: BufferedPacket) -> BufferId {
        let id = BufferId(self.next);
        // Numbers wrap before the last one, which is OFP_NO_BUFFER.
        self.next = (self.next + 1) % BufferId::NONE.0;
        if self.slots.is_empty() {
            self.slots.resize_with(BUFFERS_LEN as usize, BufferSlot::default);
        }
        if let Some(slot) = self.slots.get_mut((id.0 % BUFFERS_LEN) as usize) {
            *slot = BufferSlot {
                id: Some(id),
                packet: Some(packet),
            };
        }
        id
    }

    /// Removes a packet and returns it.
    ///
    /// # Errors
    /// `OFPBRC_BUFFER_EMPTY` if the packet was taken before, `OFPBRC_BUFFER_UNKNOWN` if no packet has this number, or
    /// a newer packet has its slot.
    pub(crate) fn take(&mut self, id: BufferId) -> Result<BufferedPacket, ErrorCode> {
        let slot = self.slots.get_mut((id.0 % BUFFERS_LEN) as usize);
        match slot.filter(|slot| slot.id == Some(id)) {
            Some(slot) => slot.packet.take().ok_or(ErrorCode::OFPBRC_BUFFER_EMPTY),
            None => Err(ErrorCode::OFPBRC_BUFFER_UNKNOWN),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(tag: u8) -> BufferedPacket {
        BufferedPacket {
            origin: millrace_types::PortNo::from_raw(1).into(),
            bytes: vec![tag],
        }
    }

    #[test]
    fn a_packet_is_given_away_once() {
        let mut buffers = Buffers::default();
        assert_eq!(
            buffers.take(BufferId(0)).unwrap_err(),
            ErrorCode::OFPBRC_BUFFER_UNKNOWN
        );
        let id = buffers.insert(packet(7));
        assert_eq!(buffers.take(id).unwrap().bytes, [7]);
        assert_eq!(buffers.take(id).unwrap_err(), ErrorCode::OFPBRC_BUFFER_EMPTY);
    }

    #[test]
    fn the_oldest_makes_room_for_the_newest() {
        let mut buffers = Buffers::default();
        let ids: Vec<_> = (0..=BUFFERS_LEN)
            .map(|i| buffers.insert(packet(i as u8)))
            .collect();
        assert_eq!(
            buffers.take(ids[0]).unwrap_err(),
            ErrorCode::OFPBRC_BUFFER_UNKNOWN
        );
        assert!(buffers.take(ids[1]).is_ok() && buffers.take(ids[256]).is_ok());
    }

    #[test]
    fn no_packet_gets_the_number_that_means_none() {
        let mut buffers = Buffers {
            next: BufferId::NONE.0 - 1,
            ..Buffers::default()
        };
        assert_eq!(buffers.insert(packet(1)), BufferId(BufferId::NONE.0 - 1));
        assert_eq!(buffers.insert(packet(2)), BufferId(0));
    }
}
