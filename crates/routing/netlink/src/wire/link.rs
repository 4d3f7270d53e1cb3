//! Messages of links and of their forwarding: `struct ifinfomsg`, `struct netconfmsg`.
//!
//! ```text
//!  0        1         2      4           8       12       16
//!  | family | padding | type | interface | flags | change | attributes...
//! ```

use super::attributes::{Attributes, u16_at, u32_at};
use super::error::DecodeError;
use super::numbers::{iff, ifla, info, netconf};

const WHAT: &str = "ifinfomsg";
const HEADER_SIZE: usize = 16;

/// A link: an interface of the kernel.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Link<'a> {
    /// The number of the interface, 1 and above.
    pub interface: u32,
    /// `ARPHRD_*`: 1 Ethernet, 772 loopback.
    pub hardware: u16,
    /// Flags of [`iff`].
    pub flags: u32,
    /// The name, at most 15 bytes.
    pub name: &'a [u8],
    /// The MAC address; `None` of a link without addresses of 6 bytes.
    pub mac: Option<[u8; 6]>,
    /// The longest packet in bytes, from the IP header on; 0 if the message has none.
    pub mtu: u32,
    /// The interface below: the parent of a VLAN or a macvlan; 0 if there is none, or if it is in another namespace.
    pub lower: u32,
    /// The number of the bridge, bond or VRF of which the link is a member; 0 if there is none.
    pub master: u32,
    /// The carrier, if the message has it.
    pub carrier: Option<bool>,
    /// The kind of a virtual link: `veth`, `tun`, `macvlan`; empty if it has none.
    pub kind: &'a [u8],
    /// The table of a VRF device; 0 of other kinds.
    pub vrf_table: u32,
}

impl<'a> Link<'a> {
    /// Decodes the body of an `RTM_NEWLINK` or `RTM_DELLINK`.
    ///
    /// # Errors
    /// Returns [`DecodeError`] if a length is wrong.
    pub fn decode(body: &'a [u8]) -> Result<Link<'a>, DecodeError> {
        let (fixed, attributes) = Attributes::after(WHAT, body, HEADER_SIZE)?;
        let mut link = Link {
            interface: u32_at(fixed, 4).unwrap_or_default(),
            hardware: u16_at(fixed, 2).unwrap_or_default(),
            flags: u32_at(fixed, 8).unwrap_or_default(),
            name: &[],
            mac: None,
            mtu: 0,
            lower: 0,
            master: 0,
            carrier: None,
            kind: &[],
            vrf_table: 0,
        };
        let mut is_lower_elsewhere = false;
        for attribute in attributes {
            let attribute = attribute?;
            match attribute.kind {
                ifla::LINK_NETNSID => is_lower_elsewhere = true,
                ifla::IFNAME => link.name = attribute.text(),
                ifla::ADDRESS => link.mac = attribute.mac(),
                ifla::MTU => link.mtu = attribute.u32()?,
                ifla::LINK => link.lower = attribute.u32()?,
                ifla::MASTER => link.master = attribute.u32()?,
                ifla::CARRIER => link.carrier = Some(attribute.u8()? != 0),
                ifla::LINKINFO => link.read_info(attribute.nested())?,
                _ => {}
            }
        }
        if is_lower_elsewhere {
            link.lower = 0;
        }
        Ok(link)
    }

    /// Takes the values of `IFLA_LINKINFO`. The data of a link have numbers that each kind counts anew.
    fn read_info(&mut self, attributes: Attributes<'a>) -> Result<(), DecodeError> {
        let mut data = None;
        for attribute in attributes {
            let attribute = attribute?;
            match attribute.kind {
                info::KIND => self.kind = attribute.text(),
                info::DATA => data = Some(attribute),
                _ => {}
            }
        }
        if self.kind == b"vrf"
            && let Some(data) = data
        {
            for attribute in data.nested() {
                let attribute = attribute?;
                if attribute.kind == info::VRF_TABLE {
                    self.vrf_table = attribute.u32()?;
                }
            }
        }
        Ok(())
    }

    /// Returns true if the link is set up (`IFF_UP`).
    pub fn is_up(&self) -> bool {
        self.flags & iff::UP != 0
    }

    /// Returns true if the link is set up and its lower layer has a carrier (`IFF_LOWER_UP`).
    pub fn is_running(&self) -> bool {
        self.is_up() && self.flags & iff::LOWER_UP != 0
    }
}

/// The forwarding setting of an interface (`net.ipv4.conf.NAME.forwarding`, `net.ipv6.conf.NAME.forwarding`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Forwarding {
    /// The family, one of [`super::family`].
    pub family: u8,
    /// The number of the interface, [`netconf::ALL`] or [`netconf::DEFAULT`].
    pub interface: i32,
    /// True if it forwards; `None` if the message is about another setting.
    pub is_on: Option<bool>,
}

impl Forwarding {
    /// Decodes the body of an `RTM_NEWNETCONF`.
    ///
    /// # Errors
    /// Returns [`DecodeError`] if a length is wrong, or no interface is named.
    pub fn decode(body: &[u8]) -> Result<Forwarding, DecodeError> {
        let (fixed, attributes) = Attributes::after("netconfmsg", body, 4)?;
        let family = fixed.first().copied().unwrap_or_default();
        let (mut interface, mut is_on) = (None, None);
        for attribute in attributes {
            let attribute = attribute?;
            match attribute.kind {
                netconf::IFINDEX => interface = Some(attribute.i32()?),
                netconf::FORWARDING => is_on = Some(attribute.i32()? != 0),
                _ => {}
            }
        }
        let interface = interface.ok_or(DecodeError::Missing {
            what: "netconfmsg",
            attribute: "NETCONFA_IFINDEX",
        })?;
        Ok(Forwarding {
            family,
            interface,
            is_on,
        })
    }
}
