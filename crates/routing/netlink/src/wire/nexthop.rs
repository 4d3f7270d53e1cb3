//! Messages of nexthop objects: `struct nhmsg` and its attributes.
//!
//! ```text
//!  0        1       2          3          4       8
//!  | family | scope | protocol | reserved | flags | attributes...
//!
//!  a member of NHA_GROUP:
//!  0    4        5               6          8
//!  | id | weight | weight (high) | reserved |      the field is the weight less 1
//! ```

use std::net::IpAddr;

use super::attributes::{Attributes, u32_at};
use super::error::DecodeError;
use super::numbers::nexthop_attribute as nha;

const WHAT: &str = "nhmsg";
const HEADER_SIZE: usize = 8;
const MEMBER_SIZE: usize = 8;

/// A nexthop object.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NextHop<'a> {
    /// The number by which routes and groups name the object.
    pub id: u32,
    /// The source of the object, `RTPROT_*`.
    pub protocol: u8,
    /// Flags of [`super::rtnh_flag`].
    pub flags: u32,
    /// The number of the interface; 0 if none is named.
    pub interface: u32,
    pub gateway: Option<IpAddr>,
    /// True if packets are dropped.
    pub is_blackhole: bool,
    /// True if the object serves bridges, not routes.
    pub is_of_bridge: bool,
    /// The encapsulation that the next hop demands (`LWTUNNEL_ENCAP_*`); 0 for none.
    pub encapsulation: u16,
    /// The members, if the object is a group.
    pub group: Option<Group<'a>>,
}

/// The members of a group.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Group<'a> {
    members: &'a [u8],
    /// True if flows stay with their member while members come and go (`NEXTHOP_GRP_TYPE_RES`).
    pub is_resilient: bool,
}

/// A nexthop object that belongs to a group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GroupMember {
    /// The number of a nexthop object that is no group.
    pub id: u32,
    /// 1 to 65,536; of kernels before 6.12 and of zebra, at most 256.
    pub weight: u32,
}

impl<'a> NextHop<'a> {
    /// Decodes the body of an `RTM_NEWNEXTHOP` or `RTM_DELNEXTHOP`.
    ///
    /// # Errors
    /// Returns [`DecodeError`] if a length is wrong, or the object has no number.
    pub fn decode(body: &'a [u8]) -> Result<NextHop<'a>, DecodeError> {
        let (fixed, attributes) = Attributes::after(WHAT, body, HEADER_SIZE)?;
        let mut nexthop = NextHop {
            id: 0,
            protocol: fixed.get(2).copied().unwrap_or_default(),
            flags: u32_at(fixed, 4).unwrap_or_default(),
            interface: 0,
            gateway: None,
            is_blackhole: false,
            is_of_bridge: false,
            encapsulation: 0,
            group: None,
        };
        let mut is_resilient = false;
        for attribute in attributes {
            let attribute = attribute?;
            match attribute.kind {
                nha::ID => nexthop.id = attribute.u32()?,
                nha::OIF => nexthop.interface = attribute.u32()?,
                nha::GATEWAY => nexthop.gateway = Some(attribute.address()?),
                nha::BLACKHOLE => {
                    attribute.empty()?;
                    nexthop.is_blackhole = true;
                }
                nha::FDB => {
                    attribute.empty()?;
                    nexthop.is_of_bridge = true;
                }
                nha::ENCAP_TYPE => nexthop.encapsulation = attribute.u16()?,
                nha::GROUP_TYPE => is_resilient = attribute.u16()? == 1,
                nha::GROUP => {
                    if !attribute.value.len().is_multiple_of(MEMBER_SIZE) {
                        return Err(DecodeError::Size {
                            what: WHAT,
                            attribute: nha::GROUP,
                            expected: "a multiple of 8",
                            found: attribute.value.len(),
                        });
                    }
                    nexthop.group = Some(Group {
                        members: attribute.value,
                        is_resilient: false,
                    });
                }
                _ => {}
            }
        }
        if nexthop.id == 0 {
            return Err(DecodeError::Missing {
                what: WHAT,
                attribute: "NHA_ID",
            });
        }
        if let Some(group) = &mut nexthop.group {
            group.is_resilient = is_resilient;
        }
        Ok(nexthop)
    }
}

impl Group<'_> {
    /// Returns the members, in the order of the message.
    pub fn members(&self) -> impl ExactSizeIterator<Item = GroupMember> {
        self.members.chunks_exact(MEMBER_SIZE).map(|member| {
            let id = u32_at(member, 0).unwrap_or_default();
            let low = member.get(4).copied().unwrap_or_default();
            let high = member.get(5).copied().unwrap_or_default();
            GroupMember {
                id,
                weight: u32::from(u16::from_le_bytes([low, high])) + 1,
            }
        })
    }
}
