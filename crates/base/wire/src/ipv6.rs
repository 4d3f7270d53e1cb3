//! IPv6 (RFC 8200): the fixed header. Its extension headers are in [`extensions`].

use core::net::Ipv6Addr;

use crate::bytes::{array, be16, be32, put, split};
use crate::ip::Pseudo;
use crate::{Dscp, Ecn, FlowLabel, HeaderError, IpProto};

pub mod extensions;

pub use extensions::{ExtHeaders, ExtensionWalk, Fragment, FragmentHeader, walk};

/// Size of the fixed header in bytes.
pub const SIZE: usize = 40;

pub(crate) mod offset {
    pub(crate) const VERSION_CLASS_LABEL: usize = 0;
    pub(crate) const PAYLOAD_SIZE: usize = 4;
    pub(crate) const NEXT_HEADER: usize = 6;
    pub(crate) const HOP_LIMIT: usize = 7;
    pub(crate) const SRC: usize = 8;
    pub(crate) const DST: usize = 24;
}

/// A packet with a complete fixed header. Its payload length agrees with the number of bytes.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    header: &'a [u8; SIZE],
    payload: &'a [u8],
}

impl<'a> View<'a> {
    /// Returns a view of the packet at the front of `bytes`. Padding may follow the packet. Jumbo payloads
    /// (RFC 2675) are not supported: a payload length of zero is an empty payload.
    ///
    /// # Errors
    /// [`HeaderError`] if the header is truncated, or version or payload length are invalid.
    #[inline]
    pub fn new(bytes: &'a [u8]) -> Result<View<'a>, HeaderError> {
        const NAME: &str = "IPv6";
        let invalid = |field, value: u16| HeaderError::Invalid {
            header: NAME,
            field,
            value: value.into(),
        };
        let (header, rest) = split(NAME, bytes)?;
        let version = header[0] >> 4;
        if version != 6 {
            return Err(invalid("version", version.into()));
        }
        let payload_size = be16(header, offset::PAYLOAD_SIZE);
        let payload = rest
            .get(..payload_size.into())
            .ok_or(invalid("payload length", payload_size))?;
        Ok(View { header, payload })
    }

    /// Returns the differentiated services code point.
    #[inline]
    pub fn dscp(&self) -> Dscp {
        Dscp::from_low_bits((be16(self.header, offset::VERSION_CLASS_LABEL) >> 6) as u8)
    }

    /// Returns the explicit congestion notification.
    #[inline]
    pub fn ecn(&self) -> Ecn {
        Ecn::from_low_bits((be16(self.header, offset::VERSION_CLASS_LABEL) >> 4) as u8)
    }

    /// Returns the flow label, 20 bits.
    #[inline]
    pub fn flow_label(&self) -> FlowLabel {
        FlowLabel::from_low_bits(be32(self.header, offset::VERSION_CLASS_LABEL))
    }

    /// Returns the type of the first header after the fixed header.
    #[inline]
    pub fn next_header(&self) -> IpProto {
        IpProto(self.header[offset::NEXT_HEADER])
    }

    /// Returns the number of hops that the packet may still take.
    #[inline]
    pub fn hop_limit(&self) -> u8 {
        self.header[offset::HOP_LIMIT]
    }

    /// Returns the source address.
    #[inline]
    pub fn src(&self) -> Ipv6Addr {
        array::<16, _>(self.header, offset::SRC).into()
    }

    /// Returns the destination address. If a routing header has segments left, this is not the final
    /// destination.
    #[inline]
    pub fn dst(&self) -> Ipv6Addr {
        array::<16, _>(self.header, offset::DST).into()
    }

    /// Returns the addresses for transport checksums. They are only valid if no routing header has segments
    /// left.
    #[inline]
    pub fn pseudo(&self) -> Pseudo {
        Pseudo::V6 {
            src: self.src(),
            dst: self.dst(),
        }
    }

    /// Walks over the extension headers to the transport.
    #[inline]
    pub fn walk(&self) -> ExtensionWalk {
        walk(self.next_header(), self.payload)
    }

    /// Returns the bytes after the fixed header, without padding of the frame.
    #[inline]
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }
}

/// The fields of the fixed header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Repr {
    /// Source address.
    pub src: Ipv6Addr,
    /// Destination address.
    pub dst: Ipv6Addr,
    /// Type of the first header after the fixed header.
    pub next_header: IpProto,
    /// Differentiated services code point.
    pub dscp: Dscp,
    /// Explicit congestion notification.
    pub ecn: Ecn,
    pub flow_label: FlowLabel,
    pub hop_limit: u8,
    /// Size of the extension headers and the payload after them, in bytes.
    pub payload_size: u16,
}

impl Repr {
    /// Returns the fields of a fixed header.
    pub fn parse(view: &View<'_>) -> Repr {
        Repr {
            src: view.src(),
            dst: view.dst(),
            next_header: view.next_header(),
            dscp: view.dscp(),
            ecn: view.ecn(),
            flow_label: view.flow_label(),
            hop_limit: view.hop_limit(),
            payload_size: view.payload.len() as u16,
        }
    }

    /// Returns the fixed header as it is on the wire.
    pub fn to_bytes(&self) -> [u8; SIZE] {
        let class = u32::from(self.dscp.raw() << 2 | self.ecn.raw());
        let first = 6 << 28 | class << 20 | self.flow_label.raw();
        let mut header = [0; SIZE];
        put(&mut header, offset::VERSION_CLASS_LABEL, first.to_be_bytes());
        put(&mut header, offset::PAYLOAD_SIZE, self.payload_size.to_be_bytes());
        header[offset::NEXT_HEADER] = self.next_header.0;
        header[offset::HOP_LIMIT] = self.hop_limit;
        put(&mut header, offset::SRC, self.src.octets());
        put(&mut header, offset::DST, self.dst.octets());
        header
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn headers_that_lie_are_refused_by_field() {
        let mut bytes = [0; 41];
        bytes[0] = 0x40;
        assert!(matches!(
            View::new(&bytes),
            Err(HeaderError::Invalid {
                field: "version",
                value: 4,
                ..
            })
        ));
        bytes[0] = 0x60;
        bytes[5] = 2;
        assert!(matches!(
            View::new(&bytes),
            Err(HeaderError::Invalid {
                field: "payload length",
                ..
            })
        ));
        assert!(matches!(
            View::new(&bytes[..39]),
            Err(HeaderError::Truncated { .. })
        ));
    }

    proptest! {
        #[test]
        fn what_is_emitted_parses_to_the_same(
            src: [u8; 16], dst: [u8; 16], (next, class, hop_limit) in any::<(u8, u8, u8)>(), label: u32,
            payload_size in 0u16..200,
        ) {
            let repr = Repr {
                src: src.into(), dst: dst.into(), next_header: IpProto(next), hop_limit, payload_size,
                dscp: Dscp::from_low_bits(class >> 2), ecn: Ecn::from_low_bits(class),
                flow_label: FlowLabel::from_low_bits(label),
            };
            let bytes = [&repr.to_bytes()[..], &vec![0; usize::from(payload_size) + 5]].concat();
            prop_assert_eq!(Repr::parse(&View::new(&bytes).unwrap()), repr);
        }
    }
}
