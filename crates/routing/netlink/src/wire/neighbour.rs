//! Messages of neighbours: `struct ndmsg` and its attributes.
//!
//! ```text
//!  0        1         4           8       10      11     12
//!  | family | padding | interface | state | flags | type | attributes...
//! ```

use std::net::IpAddr;

use super::attributes::{Attributes, u16_at, u32_at};
use super::error::DecodeError;
use super::numbers::{ntf, nud};

const WHAT: &str = "ndmsg";
const HEADER_SIZE: usize = 12;

/// An entry of the ARP or ND cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Neighbour {
    pub interface: u32,
    pub address: IpAddr,
    /// The MAC address, if it is known and has 6 bytes.
    pub mac: Option<[u8; 6]>,
    /// One of [`nud`].
    pub state: u16,
    /// Flags of [`ntf`].
    pub flags: u8,
    /// Flags of `NDA_FLAGS_EXT`.
    pub flags_ext: u32,
}

impl Neighbour {
    /// Decodes the body of an `RTM_NEWNEIGH` or `RTM_DELNEIGH` of IPv4 or IPv6.
    ///
    /// # Errors
    /// Returns [`DecodeError`] if a length is wrong, or no address is there.
    pub fn decode(body: &[u8]) -> Result<Neighbour, DecodeError> {
        let (fixed, attributes) = Attributes::after(WHAT, body, HEADER_SIZE)?;
        let (mut address, mut mac, mut flags_ext) = (None, None, 0);
        for attribute in attributes {
            let attribute = attribute?;
            match attribute.kind {
                ntf::DST_ATTRIBUTE => address = Some(attribute.address()?),
                ntf::LLADDR_ATTRIBUTE => mac = attribute.mac(),
                ntf::FLAGS_EXT_ATTRIBUTE => flags_ext = attribute.u32()?,
                _ => {}
            }
        }
        let address = address.ok_or(DecodeError::Missing {
            what: WHAT,
            attribute: "NDA_DST",
        })?;
        Ok(Neighbour {
            interface: u32_at(fixed, 4).unwrap_or_default(),
            address,
            mac,
            state: u16_at(fixed, 8).unwrap_or_default(),
            flags: fixed.get(10).copied().unwrap_or_default(),
            flags_ext,
        })
    }

    /// Returns true if the kernel neither asks for the neighbour nor forgets it: it is static, or needs no resolution.
    pub fn is_static(&self) -> bool {
        self.state & (nud::PERMANENT | nud::NOARP) != 0
    }
}
