//! Flows as text: parsers and printers for the syntax of ovs-ofctl.
//!
//! ```text
//! table=0,priority=10,tcp,in_port=1,dl_vlan=100,nw_src=10.0.0.0/8,tp_dst=80 actions=set_field:7->ip_dscp,output:2
//! ```
//!
//! # Syntax
//! Items are separated by commas or blanks. A field has the name of the specification and the name of ovs-ofctl, both
//! from its row in `field.rs`. `tcp`, `arp` and similar words stand for an EtherType and a protocol. `tp_dst` is the
//! field of the protocol that the same match contains. `dl_vlan=5` matches a tag with that identifier,
//! `dl_vlan=0xffff` untagged packets, `vlan_vid=0x1000/0x1000` any tag. A mask follows `/`; for IP addresses it may be
//! a prefix length. Every error names the token, its column and the expected text.
//!
//! # Guarantees
//! A printed text parses to the value that was printed. A text does not keep the order of match fields, which has no
//! meaning in OpenFlow: the parser returns the order of OXM numbers. It does not keep `max_len` of an output to a port
//! other than the controller either, which has no effect.

mod action;
mod cookie;
mod error;
mod flow;
mod flow_mod;
mod items;
mod matching;
mod scan;
mod symbol;
mod value;

#[cfg(test)]
mod properties;

pub use cookie::CookieMatch;
pub use error::{TextError, TextProblem};
pub use flow::FlowText;
pub use flow_mod::{FlowCommand, FlowModText};

pub(crate) use matching::ParsedMatch;
pub(crate) use scan::Span;
pub(crate) use value::bounded;
