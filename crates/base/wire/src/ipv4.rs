//! IPv4 with options and fragments (RFC 791).

use core::net::Ipv4Addr;

use crate::bytes::{array, be16, put, split};
use crate::checksum::{Sum, internet};
use crate::ip::Pseudo;
use crate::{Dscp, Ecn, HeaderError, IpProto};

/// Size of a header without options in bytes.
pub const MIN_SIZE: usize = 20;

/// Largest size of the options in bytes.
pub const MAX_OPTIONS_SIZE: usize = 40;

/// The don't fragment bit of the fragment field.
pub const DONT_FRAGMENT: u16 = 0x4000;
/// The more fragments bit of the fragment field.
pub const MORE_FRAGMENTS: u16 = 0x2000;
/// The bits of the fragment field that hold the offset, in units of 8 bytes.
pub const FRAGMENT_OFFSET: u16 = 0x1fff;

pub(crate) mod offset {
    pub(crate) const VERSION_IHL: usize = 0;
    pub(crate) const TOS: usize = 1;
    pub(crate) const TOTAL_SIZE: usize = 2;
    pub(crate) const IDENT: usize = 4;
    pub(crate) const FRAGMENT: usize = 6;
    pub(crate) const TTL: usize = 8;
    pub(crate) const PROTO: usize = 9;
    pub(crate) const CHECKSUM: usize = 10;
    pub(crate) const SRC: usize = 12;
    pub(crate) const DST: usize = 16;
}

/// A packet with a complete header. Its length fields agree with each other and with the number of bytes.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    header: &'a [u8; MIN_SIZE],
    options: &'a [u8],
    payload: &'a [u8],
}

impl<'a> View<'a> {
    /// Returns a view of the packet at the front of `bytes`. Padding may follow the packet. Does not verify
    /// the header checksum.
    ///
    /// # Errors
    /// [`HeaderError`] if the header is truncated, or version, header length or total length are invalid.
    #[inline]
    pub fn new(bytes: &'a [u8]) -> Result<View<'a>, HeaderError> {
        const NAME: &str = "IPv4";
        let invalid = |field, value: u16| HeaderError::Invalid {
            header: NAME,
            field,
            value: value.into(),
        };
        let (header, _) = split::<MIN_SIZE>(NAME, bytes)?;
        let (version, ihl) = (
            header[offset::VERSION_IHL] >> 4,
            header[offset::VERSION_IHL] & 0xf,
        );
        if version != 4 {
            return Err(invalid("version", version.into()));
        }
        let header_size = usize::from(ihl) * 4;
        if header_size < MIN_SIZE {
            return Err(invalid("header length in words", ihl.into()));
        }
        let total_size = be16(header, offset::TOTAL_SIZE);
        let packet = bytes
            .get(..total_size.into())
            .ok_or(invalid("total length", total_size))?;
        let options = packet
            .get(MIN_SIZE..header_size)
            .ok_or(invalid("total length", total_size))?;
        Ok(View {
            header,
            options,
            payload: &packet[header_size..],
        })
    }

    /// Returns the size of the header with its options in bytes.
    #[inline]
    pub fn header_size(&self) -> usize {
        MIN_SIZE + self.options.len()
    }

    /// Returns the differentiated services code point.
    #[inline]
    pub fn dscp(&self) -> Dscp {
        Dscp::from_low_bits(self.header[offset::TOS] >> 2)
    }

    /// Returns the explicit congestion notification.
    #[inline]
    pub fn ecn(&self) -> Ecn {
        Ecn::from_low_bits(self.header[offset::TOS])
    }

    /// Returns the identification, which the fragments of a packet share.
    #[inline]
    pub fn ident(&self) -> u16 {
        be16(self.header, offset::IDENT)
    }

    /// Returns true if routers must not fragment the packet.
    #[inline]
    pub fn dont_fragment(&self) -> bool {
        be16(self.header, offset::FRAGMENT) & DONT_FRAGMENT != 0
    }

    /// Returns true if the packet is a fragment, and not the last one.
    #[inline]
    pub fn more_fragments(&self) -> bool {
        be16(self.header, offset::FRAGMENT) & MORE_FRAGMENTS != 0
    }

    /// Returns the offset of the fragment's payload in the unfragmented packet, in units of 8 bytes.
    #[inline]
    pub fn fragment_offset(&self) -> u16 {
        be16(self.header, offset::FRAGMENT) & FRAGMENT_OFFSET
    }

    /// Returns the time to live.
    #[inline]
    pub fn ttl(&self) -> u8 {
        self.header[offset::TTL]
    }

    /// Returns the protocol of the payload.
    #[inline]
    pub fn proto(&self) -> IpProto {
        IpProto(self.header[offset::PROTO])
    }

    /// Returns the header checksum.
    #[inline]
    pub fn checksum(&self) -> u16 {
        be16(self.header, offset::CHECKSUM)
    }

    /// Returns true if the header checksum is right.
    pub fn checksum_is_right(&self) -> bool {
        Sum::of(self.header).add_bytes(self.options).checksum() == 0
    }

    /// Returns the source address.
    #[inline]
    pub fn src(&self) -> Ipv4Addr {
        array::<4, _>(self.header, offset::SRC).into()
    }

    /// Returns the destination address.
    #[inline]
    pub fn dst(&self) -> Ipv4Addr {
        array::<4, _>(self.header, offset::DST).into()
    }

    /// Returns the addresses for transport checksums.
    #[inline]
    pub fn pseudo(&self) -> Pseudo {
        Pseudo::V4 {
            src: self.src(),
            dst: self.dst(),
        }
    }

    /// Returns the options with their padding.
    #[inline]
    pub fn options(&self) -> &'a [u8] {
        self.options
    }

    /// Returns the bytes after the header, without padding of the frame.
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
                header: "IPv4",
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

/// The fields of an IPv4 header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Repr<'a> {
    /// Source address.
    pub src: Ipv4Addr,
    /// Destination address.
    pub dst: Ipv4Addr,
    /// Protocol of the payload.
    pub proto: IpProto,
    /// Differentiated services code point.
    pub dscp: Dscp,
    /// Explicit congestion notification.
    pub ecn: Ecn,
    /// Time to live.
    pub ttl: u8,
    /// Identification, which the fragments of a packet share.
    pub ident: u16,
    /// True if routers must not fragment the packet.
    pub dont_fragment: bool,
    /// True if the packet is a fragment, and not the last one.
    pub more_fragments: bool,
    /// Offset of the fragment's payload in the unfragmented packet, in units of 8 bytes; 13 bits are emitted.
    pub fragment_offset: u16,
    pub options: Options<'a>,
    /// Bytes that follow the header.
    pub payload_size: u16,
}

impl<'a> Repr<'a> {
    /// Returns the fields of a header. The reserved bit is ignored.
    pub fn parse(view: &View<'a>) -> Repr<'a> {
        Repr {
            src: view.src(),
            dst: view.dst(),
            proto: view.proto(),
            dscp: view.dscp(),
            ecn: view.ecn(),
            ttl: view.ttl(),
            ident: view.ident(),
            dont_fragment: view.dont_fragment(),
            more_fragments: view.more_fragments(),
            fragment_offset: view.fragment_offset(),
            options: Options(view.options),
            payload_size: view.payload.len() as u16,
        }
    }

    /// Returns the size of the header with its options in bytes.
    pub fn header_size(&self) -> usize {
        MIN_SIZE + self.options.0.len()
    }

    /// Appends the header with its checksum. A total length over 65,535 saturates.
    pub fn emit(&self, out: &mut Vec<u8>) {
        let total_size = self.payload_size.saturating_add(self.header_size() as u16);
        let flag = |set, bit| if set { bit } else { 0 };
        let fragment = flag(self.dont_fragment, DONT_FRAGMENT)
            | flag(self.more_fragments, MORE_FRAGMENTS)
            | self.fragment_offset & FRAGMENT_OFFSET;
        let mut header = [0; MIN_SIZE];
        header[offset::VERSION_IHL] = 0x40 | (self.header_size() / 4) as u8;
        header[offset::TOS] = self.dscp.raw() << 2 | self.ecn.raw();
        put(&mut header, offset::TOTAL_SIZE, total_size.to_be_bytes());
        put(&mut header, offset::IDENT, self.ident.to_be_bytes());
        put(&mut header, offset::FRAGMENT, fragment.to_be_bytes());
        header[offset::TTL] = self.ttl;
        header[offset::PROTO] = self.proto.0;
        put(&mut header, offset::SRC, self.src.octets());
        put(&mut header, offset::DST, self.dst.octets());
        let checksum = Sum::of(&header).add_bytes(self.options.0).checksum();
        put(&mut header, offset::CHECKSUM, checksum.to_be_bytes());
        out.extend_from_slice(&header);
        out.extend_from_slice(self.options.0);
    }
}

/// Returns the checksum that a header (with its options) should hold.
pub fn header_checksum(header: &[u8; MIN_SIZE], options: &[u8]) -> u16 {
    let mut header = *header;
    put(&mut header, offset::CHECKSUM, [0; 2]);
    match options {
        [] => internet(&header),
        options => Sum::of(&header).add_bytes(options).checksum(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The header of Wikipedia's example of the IPv4 checksum, which is 0xb861.
    const KNOWN: [u8; 20] = [
        0x45, 0x00, 0x00, 0x73, 0x00, 0x00, 0x40, 0x00, 0x40, 0x11, 0xb8, 0x61, 0xc0, 0xa8, 0x00, 0x01, 0xc0,
        0xa8, 0x00, 0xc7,
    ];

    fn known() -> Vec<u8> {
        [&KNOWN[..], &[0; 0x73 - 20]].concat()
    }

    #[test]
    fn a_known_header_parses_verifies_and_is_emitted_the_same() {
        let bytes = known();
        let view = View::new(&bytes).unwrap();
        assert!(view.checksum_is_right());
        assert_eq!(header_checksum(&KNOWN, &[]), 0xb861);
        let repr = Repr::parse(&view);
        assert_eq!((repr.src, repr.ttl), (Ipv4Addr::new(192, 168, 0, 1), 64));
        let mut out = Vec::new();
        repr.emit(&mut out);
        assert_eq!(out, KNOWN);
    }

    #[test]
    fn headers_that_lie_are_refused_by_field() {
        let refused = |at: usize, value: u8| {
            let mut bytes = known();
            bytes[at] = value;
            match View::new(&bytes).unwrap_err() {
                HeaderError::Invalid { field, .. } => field,
                HeaderError::Truncated { .. } => "truncated",
            }
        };
        assert_eq!(refused(0, 0x65), "version");
        assert_eq!(refused(0, 0x44), "header length in words");
        assert_eq!(refused(3, 0x74), "total length");
        assert_eq!(refused(3, 19), "total length");
        assert!(View::new(&KNOWN[..19]).is_err());
    }

    #[test]
    fn options_are_whole_words_and_at_most_ten() {
        assert!(Options::new(&[1; 40]).is_ok());
        assert!(Options::new(&[1; 44]).is_err());
        assert!(Options::new(&[1; 3]).is_err());
    }

    proptest! {
        #[test]
        fn what_is_emitted_parses_to_the_same(
            src: [u8; 4], dst: [u8; 4], (proto, ttl, tos) in any::<(u8, u8, u8)>(), ident: u16, fragment: u16,
            words in 0usize..=10, payload_size in 0u16..200,
        ) {
            let options = vec![7; words * 4];
            let repr = Repr {
                src: src.into(), dst: dst.into(), proto: IpProto(proto), ttl, ident,
                dscp: Dscp::from_low_bits(tos >> 2), ecn: Ecn::from_low_bits(tos),
                dont_fragment: fragment & DONT_FRAGMENT != 0,
                more_fragments: fragment & MORE_FRAGMENTS != 0,
                fragment_offset: fragment & FRAGMENT_OFFSET,
                options: Options::new(&options).unwrap(),
                payload_size,
            };
            let mut bytes = Vec::new();
            repr.emit(&mut bytes);
            bytes.resize(bytes.len() + usize::from(payload_size) + 3, 0);
            let view = View::new(&bytes).unwrap();
            prop_assert!(view.checksum_is_right());
            prop_assert_eq!(Repr::parse(&view), repr);
        }
    }
}
