//! Flows as people write them: the syntax of ovs-ofctl, read and printed.
//!
//! ```text
//! table=0,priority=10,tcp,in_port=1,dl_vlan=100,nw_src=10.0.0.0/8,tp_dst=80 actions=set_field:7->ip_dscp,output:2
//! ```
//!
//! # What may be written
//! Items are separated by commas or blanks. A field goes by its name in the specification or by that of
//! ovs-ofctl, both from its row in `field.rs`; `tcp`, `arp` and the like stand for an EtherType and a
//! protocol; `tp_dst` means the field of whatever protocol is matched beside it. `dl_vlan=5` is a tag
//! with that identifier, `dl_vlan=0xffff` none, `vlan_vid=0x1000/0x1000` any. A mask follows `/`; for IP
//! addresses it may be a prefix length. Every error names the token, its column and what was expected.
//!
//! # What the texts promise
//! What is printed parses to what it was printed from. A text does not keep the order of match fields,
//! which means nothing to OpenFlow: parsing yields the order of OXM numbers. Nor does it keep how many
//! bytes go to the controller in an output to another port, which means nothing either.

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

pub(crate) use matching::Draft;
pub(crate) use scan::Span;
pub(crate) use value::bounded;
