//! Packets that wait for the controller's verdict (section 7.4.1): a controller that asks for the first
//! bytes only gets a number with them, by which it can have the packet sent.
//!
//! There are few buffers, and a new packet takes that of the oldest: a controller that never answers costs
//! a fixed amount of memory.

use millrace_openflow::ErrorCode;
use millrace_types::{BufferId, PortNo};

/// How many packets are held.
pub(crate) const BUFFERS_LEN: u32 = 256;

/// A packet that is held.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) in_port: PortNo,
    pub(crate) bytes: Vec<u8>,
}

#[derive(Debug, Default)]
struct Place {
    /// Of the packet that is, or was last, here.
    id: Option<BufferId>,
    held: Option<Held>,
}

/// The packets that are held. Memory is taken when the first one is.
#[derive(Debug, Default)]
pub(crate) struct Buffers {
    places: Vec<Place>,
    next: u32,
}

impl Buffers {
    /// Holds a packet, in place of the oldest one if all places are taken.
    pub(crate) fn hold(&mut self, held: Held) -> BufferId {
        let id = BufferId(self.next);
        // All numbers but the last, which is OFP_NO_BUFFER.
        self.next = (self.next + 1) % BufferId::NONE.0;
        if self.places.is_empty() {
            self.places.resize_with(BUFFERS_LEN as usize, Place::default);
        }
        if let Some(place) = self.places.get_mut((id.0 % BUFFERS_LEN) as usize) {
            *place = Place {
                id: Some(id),
                held: Some(held),
            };
        }
        id
    }

    /// Gives a packet away.
    ///
    /// # Errors
    /// `OFPBRC_BUFFER_EMPTY` if it was given away before, `OFPBRC_BUFFER_UNKNOWN` if there is none of this
    /// number, or no longer.
    pub(crate) fn take(&mut self, id: BufferId) -> Result<Held, ErrorCode> {
        let place = self.places.get_mut((id.0 % BUFFERS_LEN) as usize);
        match place.filter(|place| place.id == Some(id)) {
            Some(place) => place.held.take().ok_or(ErrorCode::OFPBRC_BUFFER_EMPTY),
            None => Err(ErrorCode::OFPBRC_BUFFER_UNKNOWN),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(tag: u8) -> Held {
        Held {
            in_port: PortNo::from_raw(1),
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
        let id = buffers.hold(packet(7));
        assert_eq!(buffers.take(id).unwrap().bytes, [7]);
        assert_eq!(buffers.take(id).unwrap_err(), ErrorCode::OFPBRC_BUFFER_EMPTY);
    }

    #[test]
    fn the_oldest_makes_room_for_the_newest() {
        let mut buffers = Buffers::default();
        let ids: Vec<_> = (0..=BUFFERS_LEN).map(|i| buffers.hold(packet(i as u8))).collect();
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
        assert_eq!(buffers.hold(packet(1)), BufferId(BufferId::NONE.0 - 1));
        assert_eq!(buffers.hold(packet(2)), BufferId(0));
    }
}
