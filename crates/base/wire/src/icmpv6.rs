//! ICMP for IPv6 (RFC 4443) with the two messages of neighbour discovery that OpenFlow matches
//! (RFC 4861): solicitation and advertisement.

use core::net::Ipv6Addr;

use millrace_types::Mac;

use crate::bytes::{array, be16, chunk, put, split};
use crate::ip::Pseudo;
use crate::{HeaderError, IpProto};

/// Size of the header in bytes: type, code and checksum.
pub const SIZE: usize = 4;

/// Type of an echo request.
pub const ECHO_REQUEST: u8 = 128;
/// Type of an echo reply.
pub const ECHO_REPLY: u8 = 129;
/// Type of a neighbour solicitation.
pub const NEIGHBOR_SOLICIT: u8 = 135;
/// Type of a neighbour advertisement.
pub const NEIGHBOR_ADVERT: u8 = 136;

/// Neighbour discovery option: source link-layer address.
pub const OPTION_SLL: u8 = 1;
/// Neighbour discovery option: target link-layer address.
pub const OPTION_TLL: u8 = 2;

/// Size of a solicitation or advertisement without options in bytes: header, four bytes of flags, target.
pub const ND_SIZE: usize = 24;
/// Size of a link-layer address option on Ethernet in bytes.
pub const ND_LLA_SIZE: usize = 8;

pub(crate) mod offset {
    pub(crate) const TYPE: usize = 0;
    pub(crate) const CODE: usize = 1;
    pub(crate) const CHECKSUM: usize = 2;
    pub(crate) const ND_TARGET: usize = 8;
    /// Offset of the address in the option.
    pub(crate) const ND_LLA: usize = 2;
}

/// A message with a complete header.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    header: &'a [u8; SIZE],
    payload: &'a [u8],
}

impl<'a> View<'a> {
    /// Returns a view of the payload of an IP packet. Does not verify the checksum.
    ///
    /// # Errors
    /// [`HeaderError::Truncated`].
    #[inline]
    pub fn new(bytes: &'a [u8]) -> Result<View<'a>, HeaderError> {
        let (header, payload) = split("ICMPv6", bytes)?;
        Ok(View { header, payload })
    }

    /// Returns the type of the message.
    #[inline]
    pub fn kind(&self) -> u8 {
        self.header[offset::TYPE]
    }

    /// Returns the code, whose meaning depends on the type.
    #[inline]
    pub fn code(&self) -> u8 {
        self.header[offset::CODE]
    }

    /// Returns the checksum.
    #[inline]
    pub fn checksum(&self) -> u16 {
        be16(self.header, offset::CHECKSUM)
    }

    /// Returns true if the checksum is right.
    pub fn checksum_is_right(&self, pseudo: &Pseudo) -> bool {
        let sum = pseudo.sum(IpProto::ICMPV6, SIZE + self.payload.len());
        sum.add_bytes(self.header).add_bytes(self.payload).checksum() == 0
    }

    /// Returns the body of the message.
    #[inline]
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }

    /// Returns a view of the message as a neighbour solicitation or advertisement.
    ///
    /// # Errors
    /// [`HeaderError`] if the message is neither a solicitation nor an advertisement, or is truncated.
    pub fn neighbor(&self) -> Result<NdView<'a>, HeaderError> {
        let invalid = |field, value: u8| HeaderError::Invalid {
            header: "neighbour discovery",
            field,
            value: value.into(),
        };
        if !matches!(self.kind(), NEIGHBOR_SOLICIT | NEIGHBOR_ADVERT) {
            return Err(invalid("type", self.kind()));
        }
        if self.code() != 0 {
            return Err(invalid("code", self.code()));
        }
        let (body, options) = split("neighbour discovery", self.payload)?;
        Ok(NdView {
            kind: self.kind(),
            body,
            options,
        })
    }
}

/// A solicitation or advertisement with a complete target.
#[derive(Clone, Copy, Debug)]
pub struct NdView<'a> {
    kind: u8,
    body: &'a [u8; ND_SIZE - SIZE],
    options: &'a [u8],
}

impl<'a> NdView<'a> {
    /// Returns the flags of an advertisement, in the highest bits.
    #[inline]
    pub fn flags(&self) -> u32 {
        u32::from_be_bytes(array(self.body, 0))
    }

    /// Returns the target address.
    #[inline]
    pub fn target(&self) -> Ipv6Addr {
        array::<16, _>(self.body, 4).into()
    }

    /// Returns an iterator over the options up to the first malformed one, each as its type and all its bytes.
    pub fn options(&self) -> impl Iterator<Item = (u8, &'a [u8])> {
        let mut rest = self.options;
        core::iter::from_fn(move || {
            let [kind, units] = *chunk::<2>(rest, 0)?;
            let (option, after) = rest.split_at_checked(usize::from(units) * 8)?;
            rest = if units == 0 { &[] } else { after };
            (units != 0).then_some((kind, option))
        })
    }

    /// Returns the link-layer address of the source (in a solicitation) or of the target (in an advertisement), from
    /// the first such option.
    pub fn lla(&self) -> Option<Mac> {
        let wanted = lla_option(self.kind);
        self.options().find_map(|(kind, option)| {
            let option: &[u8; ND_LLA_SIZE] = option.try_into().ok()?;
            (kind == wanted).then(|| Mac(array(option, offset::ND_LLA)))
        })
    }
}

/// Returns the option that OpenFlow matches in a message of type `kind`: the SLL of a solicitation, the TLL of an
/// advertisement.
#[inline]
pub(crate) fn lla_option(kind: u8) -> u8 {
    if kind == NEIGHBOR_SOLICIT {
        OPTION_SLL
    } else {
        OPTION_TLL
    }
}

/// The fields of an ICMPv6 header.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Repr {
    pub kind: u8,
    pub code: u8,
}

impl Repr {
    /// Returns the fields of a header.
    pub fn parse(view: &View<'_>) -> Repr {
        Repr {
            kind: view.kind(),
            code: view.code(),
        }
    }

    /// Appends the header, with its checksum, and the body.
    pub fn emit(&self, pseudo: &Pseudo, payload: &[u8], out: &mut Vec<u8>) {
        let mut header = [self.kind, self.code, 0, 0];
        let sum = pseudo
            .sum(IpProto::ICMPV6, SIZE + payload.len())
            .add_bytes(&header);
        put(
            &mut header,
            offset::CHECKSUM,
            sum.add_bytes(payload).checksum().to_be_bytes(),
        );
        out.extend_from_slice(&header);
        out.extend_from_slice(payload);
    }
}

/// The fields of a solicitation or advertisement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NdRepr {
    /// [`NEIGHBOR_SOLICIT`] or [`NEIGHBOR_ADVERT`].
    pub kind: u8,
    /// The flags of an advertisement, in the highest bits.
    pub flags: u32,
    /// Target address.
    pub target: Ipv6Addr,
    /// The link-layer address of the source (in a solicitation) or of the target (in an advertisement).
    pub lla: Option<Mac>,
}

impl NdRepr {
    /// Returns the fields of a view. Options that OpenFlow does not match are ignored.
    pub fn parse(view: &NdView<'_>) -> NdRepr {
        NdRepr {
            kind: view.kind,
            flags: view.flags(),
            target: view.target(),
            lla: view.lla(),
        }
    }

    /// Returns the bytes after type, code and checksum.
    pub fn body(&self) -> Vec<u8> {
        let mut body = self.flags.to_be_bytes().to_vec();
        body.extend(self.target.octets());
        if let Some(mac) = self.lla {
            body.extend([lla_option(self.kind), 1]);
            body.extend(mac.0);
        }
        body
    }

    /// Appends the whole message with its checksum.
    pub fn emit(&self, pseudo: &Pseudo, out: &mut Vec<u8>) {
        Repr {
            kind: self.kind,
            code: 0,
        }
        .emit(pseudo, &self.body(), out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PSEUDO: Pseudo = Pseudo::V6 {
        src: Ipv6Addr::LOCALHOST,
        dst: Ipv6Addr::UNSPECIFIED,
    };

    fn solicitation(options: &[u8]) -> Vec<u8> {
        let mut bytes = vec![NEIGHBOR_SOLICIT, 0, 0, 0];
        bytes.extend([0; 20]);
        bytes.extend(options);
        bytes
    }

    #[test]
    fn options_end_at_the_first_that_is_malformed() {
        let lla = [OPTION_SLL, 1, 1, 2, 3, 4, 5, 6];
        let of = |options: &[u8]| {
            View::new(&solicitation(options))
                .unwrap()
                .neighbor()
                .unwrap()
                .lla()
        };
        let mac = Some(Mac([1, 2, 3, 4, 5, 6]));
        assert_eq!(of(&lla), mac);
        assert_eq!(of(&[[14, 1, 0, 0, 0, 0, 0, 0], lla].concat()), mac);
        assert_eq!(of(&[[14, 0, 0, 0, 0, 0, 0, 0], lla].concat()), None);
        assert_eq!(of(&[[14, 9, 0, 0, 0, 0, 0, 0], lla].concat()), None);
        assert_eq!(of(&lla[..7]), None);
    }

    #[test]
    fn a_solicitation_has_no_target_link_layer_address() {
        let bytes = solicitation(&[OPTION_TLL, 1, 1, 2, 3, 4, 5, 6]);
        assert_eq!(View::new(&bytes).unwrap().neighbor().unwrap().lla(), None);
    }

    #[test]
    fn other_messages_and_short_ones_are_not_neighbour_discovery() {
        let mut bytes = solicitation(&[]);
        assert!(View::new(&bytes[..23]).unwrap().neighbor().is_err());
        bytes[1] = 1;
        assert!(View::new(&bytes).unwrap().neighbor().is_err());
        assert!(View::new(&[ECHO_REQUEST, 0, 0, 0]).unwrap().neighbor().is_err());
        assert!(View::new(&[ECHO_REQUEST, 0, 0]).is_err());
    }

    proptest! {
        #[test]
        fn what_is_emitted_parses_to_the_same_and_verifies(
            advert: bool, flags: u32, target: [u8; 16], lla: Option<[u8; 6]>,
        ) {
            let kind = if advert { NEIGHBOR_ADVERT } else { NEIGHBOR_SOLICIT };
            let repr = NdRepr { kind, flags, target: target.into(), lla: lla.map(Mac) };
            let mut bytes = Vec::new();
            repr.emit(&PSEUDO, &mut bytes);
            let view = View::new(&bytes).unwrap();
            prop_assert!(view.checksum_is_right(&PSEUDO));
            prop_assert_eq!(Repr::parse(&view), Repr { kind, code: 0 });
            prop_assert_eq!(NdRepr::parse(&view.neighbor().unwrap()), repr);
        }
    }
}
