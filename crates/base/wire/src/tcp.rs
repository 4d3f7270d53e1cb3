//! TCP (RFC 9293).

use crate::bytes::{be16, be32, put, split};
use crate::ip::Pseudo;
use crate::{HeaderError, IpProto};

/// Size of a header without options in bytes.
pub const MIN_SIZE: usize = 20;

/// Largest size of the options in bytes.
pub const MAX_OPTIONS_SIZE: usize = 40;

/// The control bits, in the low twelve bits of the word that begins with the data offset. The three above
/// [`flags::AE`] are reserved (RFC 9293, section 3.1).
pub mod flags {
    /// FIN: no more data from the sender.
    pub const FIN: u16 = 1 << 0;
    /// Synchronise sequence numbers.
    pub const SYN: u16 = 1 << 1;
    /// Reset the connection.
    pub const RST: u16 = 1 << 2;
    /// Push.
    pub const PSH: u16 = 1 << 3;
    /// The acknowledgment number is significant.
    pub const ACK: u16 = 1 << 4;
    /// The urgent pointer is significant.
    pub const URG: u16 = 1 << 5;
    /// ECN echo (RFC 3168).
    pub const ECE: u16 = 1 << 6;
    /// Congestion window reduced (RFC 3168).
    pub const CWR: u16 = 1 << 7;
    /// Accurate ECN (RFC 7560); formerly the nonce sum.
    pub const AE: u16 = 1 << 8;
    /// All control bits, including the reserved bits.
    pub const ALL: u16 = 0xfff;
}

pub(crate) mod offset {
    pub(crate) const SRC: usize = 0;
    pub(crate) const DST: usize = 2;
    pub(crate) const SEQ: usize = 4;
    pub(crate) const ACK: usize = 8;
    pub(crate) const DATA_OFFSET: usize = 12;
    pub(crate) const WINDOW: usize = 14;
    pub(crate) const CHECKSUM: usize = 16;
    pub(crate) const URGENT: usize = 18;
}

/// A segment with a complete header.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    header: &'a [u8; MIN_SIZE],
    options: &'a [u8],
    payload: &'a [u8],
}

impl<'a> View<'a> {
    /// Returns a view of the payload of an IP packet. Does not verify the checksum.
    ///
    /// # Errors
    /// [`HeaderError`] if the header is truncated or its data offset is invalid.
    #[inline]
    pub fn new(bytes: &'a [u8]) -> Result<View<'a>, HeaderError> {
        let (header, rest) = split::<MIN_SIZE>("TCP", bytes)?;
        let words = header[offset::DATA_OFFSET] >> 4;
        let invalid = HeaderError::Invalid {
            header: "TCP",
            field: "data offset in words",
            value: words.into(),
        };
        let options_size = (usize::from(words) * 4).checked_sub(MIN_SIZE).ok_or(invalid)?;
        let (options, payload) = rest.split_at_checked(options_size).ok_or(invalid)?;
        Ok(View {
            header,
            options,
            payload,
        })
    }

    /// Returns the source port.
    #[inline]
    pub fn src(&self) -> u16 {
        be16(self.header, offset::SRC)
    }

    /// Returns the destination port.
    #[inline]
    pub fn dst(&self) -> u16 {
        be16(self.header, offset::DST)
    }

    /// Returns the sequence number.
    #[inline]
    pub fn seq(&self) -> u32 {
        be32(self.header, offset::SEQ)
    }

    /// Returns the acknowledgment number.
    #[inline]
    pub fn ack(&self) -> u32 {
        be32(self.header, offset::ACK)
    }

    /// Returns the control bits, as named in [`flags`].
    #[inline]
    pub fn flags(&self) -> u16 {
        be16(self.header, offset::DATA_OFFSET) & flags::ALL
    }

    /// Returns the receive window, unscaled.
    #[inline]
    pub fn window(&self) -> u16 {
        be16(self.header, offset::WINDOW)
    }

    /// Returns the checksum.
    #[inline]
    pub fn checksum(&self) -> u16 {
        be16(self.header, offset::CHECKSUM)
    }

    /// Returns the urgent pointer.
    #[inline]
    pub fn urgent(&self) -> u16 {
        be16(self.header, offset::URGENT)
    }

    /// Returns true if the checksum is right.
    pub fn checksum_is_right(&self, pseudo: &Pseudo) -> bool {
        let size = MIN_SIZE + self.options.len() + self.payload.len();
        let sum = pseudo.sum(IpProto::TCP, size).add_bytes(self.header);
        sum.add_bytes(self.options).add_bytes(self.payload).checksum() == 0
    }

    /// Returns the options with their padding.
    #[inline]
    pub fn options(&self) -> &'a [u8] {
        self.options
    }

    /// Returns the data after the options.
    #[inline]
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }
}

/// Options of whole 32-bit words, at most [`MAX_OPTIONS_SIZE`] bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Options<'a>(&'a [u8]);

impl<'a> Options<'a> {
    /// Returns `bytes` as options.
    ///
    /// # Errors
    /// [`HeaderError::Invalid`] if `bytes` are more than [`MAX_OPTIONS_SIZE`], or not whole words.
    pub fn new(bytes: &'a [u8]) -> Result<Options<'a>, HeaderError> {
        if bytes.len() > MAX_OPTIONS_SIZE || !bytes.len().is_multiple_of(4) {
            let value = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
            return Err(HeaderError::Invalid {
                header: "TCP",
                field: "size of options",
                value,
            });
        }
        Ok(Options(bytes))
    }

    /// Returns the options and their padding.
    pub fn bytes(&self) -> &'a [u8] {
        self.0
    }
}

/// The fields of a TCP header.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Repr<'a> {
    /// Source port.
    pub src: u16,
    /// Destination port.
    pub dst: u16,
    /// Sequence number.
    pub seq: u32,
    /// Acknowledgment number.
    pub ack: u32,
    /// Control bits, of [`flags`]; twelve bits are emitted.
    pub flags: u16,
    /// Receive window, unscaled.
    pub window: u16,
    /// Urgent pointer.
    pub urgent: u16,
    pub options: Options<'a>,
}

impl<'a> Repr<'a> {
    /// Returns the fields of a header. `flags` includes the reserved bits.
    pub fn parse(view: &View<'a>) -> Repr<'a> {
        Repr {
            src: view.src(),
            dst: view.dst(),
            seq: view.seq(),
            ack: view.ack(),
            flags: view.flags(),
            window: view.window(),
            urgent: view.urgent(),
            options: Options(view.options),
        }
    }

    /// Returns the size of the header with its options in bytes.
    pub fn header_size(&self) -> usize {
        MIN_SIZE + self.options.0.len()
    }

    /// Appends the header, with its checksum, and the payload.
    pub fn emit(&self, pseudo: &Pseudo, payload: &[u8], out: &mut Vec<u8>) {
        let words = (self.header_size() / 4) as u16;
        let mut header = [0; MIN_SIZE];
        put(&mut header, offset::SRC, self.src.to_be_bytes());
        put(&mut header, offset::DST, self.dst.to_be_bytes());
        put(&mut header, offset::SEQ, self.seq.to_be_bytes());
        put(&mut header, offset::ACK, self.ack.to_be_bytes());
        put(
            &mut header,
            offset::DATA_OFFSET,
            (words << 12 | self.flags & flags::ALL).to_be_bytes(),
        );
        put(&mut header, offset::WINDOW, self.window.to_be_bytes());
        put(&mut header, offset::URGENT, self.urgent.to_be_bytes());
        let sum = pseudo
            .sum(IpProto::TCP, self.header_size() + payload.len())
            .add_bytes(&header);
        let checksum = sum.add_bytes(self.options.0).add_bytes(payload).checksum();
        put(&mut header, offset::CHECKSUM, checksum.to_be_bytes());
        out.extend_from_slice(&header);
        out.extend_from_slice(self.options.0);
        out.extend_from_slice(payload);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::Ipv4Addr;
    use proptest::prelude::*;

    const PSEUDO: Pseudo = Pseudo::V4 {
        src: Ipv4Addr::LOCALHOST,
        dst: Ipv4Addr::LOCALHOST,
    };

    #[test]
    fn a_data_offset_inside_the_header_or_beyond_the_packet_is_refused() {
        let mut bytes = Vec::new();
        Repr::default().emit(&PSEUDO, &[], &mut bytes);
        for words in [0x40, 0x60] {
            bytes[12] = words;
            assert!(matches!(View::new(&bytes), Err(HeaderError::Invalid { .. })));
        }
        assert!(matches!(
            View::new(&bytes[..19]),
            Err(HeaderError::Truncated { .. })
        ));
    }

    #[test]
    fn options_are_whole_words_and_at_most_ten() {
        assert!(Options::new(&[1; 40]).is_ok());
        assert!(Options::new(&[1; 44]).is_err());
        assert!(Options::new(&[1; 3]).is_err());
    }

    proptest! {
        #[test]
        fn what_is_emitted_parses_to_the_same_and_verifies(
            (src, dst, window, urgent) in any::<(u16, u16, u16, u16)>(), (seq, ack) in any::<(u32, u32)>(),
            flags in 0u16..=flags::ALL, words in 0usize..=10,
            payload in prop::collection::vec(any::<u8>(), 0..50),
        ) {
            let options = vec![1; words * 4];
            let options = Options::new(&options).unwrap();
            let repr = Repr { src, dst, seq, ack, flags, window, urgent, options };
            let mut bytes = Vec::new();
            repr.emit(&PSEUDO, &payload, &mut bytes);
            let view = View::new(&bytes).unwrap();
            prop_assert_eq!(view.payload(), &payload[..]);
            prop_assert!(view.checksum_is_right(&PSEUDO));
            prop_assert_eq!(Repr::parse(&view), repr);
        }
    }
}
