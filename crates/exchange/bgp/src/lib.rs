//! BGP-4 as a receiver: it learns the routes and Flowspec rules of its peers and announces nothing but End-of-RIB.
//!
//! ```text
//!   bytes of a TCP connection ──► Session ──► Update ──► Rib ──► Change (announced, withdrawn)
//!                                  │  ▲         (messages, attributes, nlri, flowspec: the codec)
//!   bytes to send, deadline ◄──────┘  └── time
//! ```
//!
//! [`Peer`] is a session with its routes: it survives connections, keeps routes over a graceful restart (RFC 4724) and
//! bounds their number and memory. [`rtr`] is the RPKI-to-Router protocol (RFC 8210), which delivers validated ROA
//! payloads.
//!
//! Pure: no IO, no clock ([`millrace_types::Time`] is an argument), no randomness.

#![forbid(unsafe_code)]

mod aspath;
mod attributes;
mod capability;
mod community;
mod family;
pub mod flowspec;
mod message;
mod nlri;
mod notification;
mod open;
mod peer;
mod prefix;
mod reader;
mod rib;
pub mod rtr;
mod session;
mod update;

pub use aspath::{AsPath, Segment, SegmentKind};
pub use attributes::{Attributes, Origin};
pub use capability::{AddPathMode, Capabilities, GracefulRestart};
pub use community::{BLACKHOLE, ExtendedCommunity, LargeCommunity, TrafficAction};
pub use family::{Afi, Family, FamilySet};
pub use flowspec::FlowRule;
pub use message::{MessageType, write_message};
pub use nlri::Nlri;
pub use notification::{Cease, Notification};
pub use open::Open;
pub use peer::{Peer, PeerSettings, PeerState};
pub use prefix::Prefix;
pub use rib::{Change, Limits, Rib, Route, RouteCounts, RouteKey};
pub use session::SessionSettings;
pub use update::{Negotiated, Problem, Reach, Treatment, Update};
