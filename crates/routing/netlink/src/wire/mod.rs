//! Netlink messages as views of their bytes: `rtnetlink(7)`, and the headers of linux/netlink.h and linux/rtnetlink.h.
//!
//! ```text
//!  bytes --[Messages]--> Message { kind, flags, sequence, body } --[Message::content]--> Content
//!                                                                     Route, NextHop, Link, Address, Neighbour,
//!                                                                     Forwarding, Error, Done, Noop, Overrun
//! ```
//!
//! All messages have a decoder here, not only those of routes, for one reason: of each, three to eight attributes count,
//! and the general decoder (`netlink-packet-route`) allocates a list of attributes for every message of every kind.
//! A view borrows the bytes and allocates nothing. A message whose lengths are wrong is refused as a whole; attributes
//! that are not known are skipped. Numbers are in the byte order of this machine, as the kernel and zebra write them.

mod address;
mod attributes;
mod error;
mod link;
mod neighbour;
mod nexthop;
mod numbers;
mod route;

pub use address::Address;
pub use attributes::{Attribute, Attributes};
pub use error::DecodeError;
pub use link::{Forwarding, Link};
pub use neighbour::Neighbour;
pub use nexthop::{Group, GroupMember, NextHop};
pub use numbers::{
    family, ifa, iff, ifla, info, kind, multicast, netconf, nexthop_attribute, nlm_flag, ntf, nud, rta, rtax,
    rtn, rtnh_flag, table,
};
pub use route::{Hop, Hops, Route};

use attributes::{u16_at, u32_at};

/// Size of the header of a message (`struct nlmsghdr`) in bytes.
pub const HEADER_SIZE: usize = 16;

/// A netlink message: the header, and the bytes after it.
///
/// ```text
///  0        4      6      8         12     16
///  | length | kind | flags | sequence | port | body...
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Message<'a> {
    /// The type, one of [`kind`].
    pub kind: u16,
    /// Flags of [`nlm_flag`].
    pub flags: u16,
    /// The number that answers have in common with their request; 0 of a notification that no request caused.
    pub sequence: u32,
    /// The port of the process whose request caused the message; 0 if the kernel caused it.
    pub port: u32,
    /// The bytes after the header.
    pub body: &'a [u8],
}

/// The addition or change of an object, or its removal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Change {
    New,
    Removed,
}

/// The content of a message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Content<'a> {
    Route(Change, Route<'a>),
    NextHop(Change, NextHop<'a>),
    Link(Change, Link<'a>),
    Address(Change, Address),
    Neighbour(Change, Neighbour),
    /// The forwarding setting of an interface, or of all of them.
    Forwarding(Forwarding),
    /// The answer to a request: 0 for success, or a positive error number of `errno(3)`.
    Error(i32),
    /// The end of a dump: 0 for success, or a positive error number.
    Done(i32),
    /// A message without content.
    Noop,
    /// The sender lost messages.
    Overrun,
    /// A message that no part of this crate reads, by its type.
    Other(u16),
}

impl<'a> Message<'a> {
    /// Decodes the body.
    ///
    /// # Errors
    /// Returns [`DecodeError`] if a length is wrong, or a value impossible.
    pub fn content(&self) -> Result<Content<'a>, DecodeError> {
        use Change::{New, Removed};
        let change = match self.kind {
            kind::DEL_ROUTE | kind::DEL_NEXTHOP | kind::DEL_LINK | kind::DEL_ADDR | kind::DEL_NEIGH => {
                Removed
            }
            _ => New,
        };
        if !self.is_of_a_family_that_counts() {
            return Ok(Content::Other(self.kind));
        }
        Ok(match self.kind {
            kind::NEW_ROUTE | kind::DEL_ROUTE => Content::Route(change, Route::decode(self.body)?),
            kind::NEW_NEXTHOP | kind::DEL_NEXTHOP => Content::NextHop(change, NextHop::decode(self.body)?),
            kind::NEW_LINK | kind::DEL_LINK => Content::Link(change, Link::decode(self.body)?),
            kind::NEW_ADDR | kind::DEL_ADDR => Content::Address(change, Address::decode(self.body)?),
            kind::NEW_NEIGH | kind::DEL_NEIGH => Content::Neighbour(change, Neighbour::decode(self.body)?),
            kind::NEW_NETCONF => Content::Forwarding(Forwarding::decode(self.body)?),
            kind::ERROR => Content::Error(self.error_number("NLMSG_ERROR")?),
            // Kernels before 4.x end some dumps without a number.
            kind::DONE if self.body.is_empty() => Content::Done(0),
            kind::DONE => Content::Done(self.error_number("NLMSG_DONE")?),
            kind::NOOP => Content::Noop,
            kind::OVERRUN => Content::Overrun,
            other => Content::Other(other),
        })
    }

    /// Returns false for objects of other families under the same types of messages: entries of a bridge's table and ports of a
    /// bridge (`AF_BRIDGE`), whose removal removes no link; routes of MPLS and of multicast.
    fn is_of_a_family_that_counts(&self) -> bool {
        let family = self.body.first().copied().unwrap_or(family::UNSPEC);
        match self.kind {
            kind::NEW_LINK | kind::DEL_LINK => family == family::UNSPEC,
            kind::NEW_ROUTE
            | kind::DEL_ROUTE
            | kind::NEW_ADDR
            | kind::DEL_ADDR
            | kind::NEW_NEIGH
            | kind::DEL_NEIGH => matches!(family, family::UNSPEC | family::INET | family::INET6),
            _ => true,
        }
    }

    /// Returns the error number of an answer: the kernel writes it negative.
    fn error_number(&self, what: &'static str) -> Result<i32, DecodeError> {
        let number = attributes::i32_at(self.body, 0).ok_or(DecodeError::Header {
            what,
            expected: 4,
            found: self.body.len(),
        })?;
        Ok(number.saturating_neg())
    }
}

/// The messages in a datagram or in a frame of FPM. The iterator ends after the first error.
#[derive(Clone, Debug)]
pub struct Messages<'a> {
    rest: &'a [u8],
}

impl<'a> Messages<'a> {
    /// Returns the messages in `bytes`.
    pub fn new(bytes: &'a [u8]) -> Messages<'a> {
        Messages { rest: bytes }
    }

    fn take(&mut self) -> Result<Message<'a>, DecodeError> {
        let bytes = core::mem::take(&mut self.rest);
        let header = |found| DecodeError::Header {
            what: "nlmsghdr",
            expected: HEADER_SIZE,
            found,
        };
        let field = |at| u32_at(bytes, at).ok_or(header(bytes.len()));
        let length = field(0)? as usize;
        let (Some(kind), Some(flags)) = (u16_at(bytes, 4), u16_at(bytes, 6)) else {
            return Err(header(bytes.len()));
        };
        let (sequence, port) = (field(8)?, field(12)?);
        if length < HEADER_SIZE {
            return Err(header(length));
        }
        let body = bytes.get(HEADER_SIZE..length).ok_or(DecodeError::Length {
            what: "nlmsghdr",
            length,
            available: bytes.len(),
        })?;
        // Messages begin at multiples of 4 bytes; the last one may end without padding.
        self.rest = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        Ok(Message {
            kind,
            flags,
            sequence,
            port,
            body,
        })
    }
}

impl<'a> Iterator for Messages<'a> {
    type Item = Result<Message<'a>, DecodeError>;

    fn next(&mut self) -> Option<Self::Item> {
        (!self.rest.is_empty()).then(|| self.take())
    }
}
