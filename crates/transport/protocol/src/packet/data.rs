//! DATA: sealed bytes of the session.
//!
//! ```text
//!  0           16             21         28          28 + n        44 + n
//!  ┌───────────┬──────────────┬──────────┬─────────────┬─────────────┐
//!  │   head    │ seal counter │ address  │   payload   │     tag     │
//!  └───────────┴──────────────┴──────────┴─────────────┴─────────────┘
//!  one for each shared by all receivers of the group
//!  receiver     clear          └──────── sealed ───────┘
//! ```
//!
//! The address is an extent (36 bits) and an offset (20 bits): see [`crate::extent`]. The seal counter (40 bits) gives nonce and
//! subkey: see [`crate::seal`].

use super::{HEAD_SIZE, Head, PacketError, PacketType};
use crate::seal::PairwiseKey;

/// Bytes of the seal counter.
pub const COUNTER_SIZE: usize = 5;
/// Bytes of extent and offset.
pub const ADDRESS_SIZE: usize = 7;
/// Bytes of the AEAD's tag.
pub const TAG_SIZE: usize = 16;
/// Bytes of the shared part without payload.
pub const SHARED_OVERHEAD: usize = COUNTER_SIZE + ADDRESS_SIZE + TAG_SIZE;
/// Bytes of a DATA packet without payload.
pub const DATA_OVERHEAD: usize = HEAD_SIZE + SHARED_OVERHEAD;

/// The shared part of a packet: counter, ciphertext of address and payload, tag.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SealedPart<'a>(&'a [u8]);

impl<'a> SealedPart<'a> {
    /// Returns the shared part in these bytes.
    ///
    /// # Errors
    /// If they are too short for an address and one byte.
    pub fn new(bytes: &'a [u8]) -> Result<SealedPart<'a>, PacketError> {
        if bytes.len() <= SHARED_OVERHEAD {
            return Err(PacketError::Short {
                size: bytes.len() + HEAD_SIZE,
                field: "payload",
            });
        }
        Ok(SealedPart(bytes))
    }

    /// Returns the bytes.
    pub fn bytes(&self) -> &'a [u8] {
        self.0
    }

    /// Returns the seal counter.
    pub fn counter(&self) -> u64 {
        read_counter(self.0)
    }

    /// Returns the parts that the MAC of a head covers: counter and tag.
    pub fn authenticated(&self) -> [&'a [u8]; 2] {
        [&self.0[..COUNTER_SIZE], &self.0[self.0.len() - TAG_SIZE..]]
    }
}

/// Returns the seal counter at the start of a shared part.
pub(crate) fn read_counter(shared: &[u8]) -> u64 {
    shared
        .iter()
        .take(COUNTER_SIZE)
        .fold(0, |counter, byte| counter << 8 | u64::from(*byte))
}

/// A DATA packet before the check of its MAC.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Data<'a> {
    /// The head, with 24 bits of the packet number.
    pub head: Head,
    /// The shared part.
    pub sealed: SealedPart<'a>,
}

impl<'a> Data<'a> {
    /// Reads a DATA packet.
    ///
    /// # Errors
    /// If the datagram is another packet or too short.
    pub fn decode(datagram: &'a [u8]) -> Result<Data<'a>, PacketError> {
        let head = Head::decode(datagram)?;
        if head.packet_type != PacketType::Data {
            return Err(PacketError::Type { byte: datagram[0] });
        }
        let sealed = SealedPart::new(&datagram[HEAD_SIZE..])?;
        Ok(Data { head, sealed })
    }

    /// Returns the head that carries a shared part to one receiver.
    pub fn encode_head(
        key: &PairwiseKey,
        connection: u32,
        number: u64,
        sealed: SealedPart<'_>,
    ) -> [u8; HEAD_SIZE] {
        let head = Head {
            packet_type: PacketType::Data,
            connection,
            number,
        };
        head.encode(key, sealed.authenticated())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_mtu_of_1500_leaves_1428_bytes_of_payload_over_ipv4() {
        assert_eq!(1_500 - 20 - 8 - DATA_OVERHEAD, 1_428);
        assert_eq!(1_500 - 40 - 8 - DATA_OVERHEAD, 1_408);
    }

    #[test]
    fn a_packet_without_payload_is_refused() {
        let datagram = [0; DATA_OVERHEAD];
        assert!(matches!(Data::decode(&datagram), Err(PacketError::Short { .. })));
        let mut datagram = [0; DATA_OVERHEAD + 1];
        datagram[HEAD_SIZE..HEAD_SIZE + COUNTER_SIZE].copy_from_slice(&[1, 2, 3, 4, 5]);
        assert_eq!(Data::decode(&datagram).unwrap().sealed.counter(), 0x01_0203_0405);
    }
}
