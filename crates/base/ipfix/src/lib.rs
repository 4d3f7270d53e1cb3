//! IPFIX messages of an exporter (RFC 7011).
//!
//! ```text
//! message: version 10, length, export time, sequence number, observation domain
//!   template set 2:          template: id, elements
//!   options template set 3:  template: id, elements, of which the first are the scope
//!   data set (id ≥ 256):     records, without padding
//! ```
//!
//! [`element`] names the information elements, [`Template`] lists them, [`Values`] writes the values of a record, and [`Builder`]
//! makes messages.

#![forbid(unsafe_code)]

pub mod element;
mod message;
mod values;

pub use element::{Element, Size};
pub use message::{Body, Builder, Header};
pub use values::Values;

/// The port of collectors over UDP and TCP, assigned by IANA.
pub const PORT: u16 = 4739;
/// The size of the header of a message, in bytes.
pub const HEADER_SIZE: usize = 16;
/// The first id of a template; lower ones are ids of sets (RFC 7011, section 3.4.1).
pub const FIRST_TEMPLATE: u16 = 256;

/// The elements of the records of one kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Template {
    /// The id, [`FIRST_TEMPLATE`] or more, unique in the observation domain.
    pub id: u16,
    /// The number of elements that are the scope of an options template; 0 for records of flows and packets.
    pub scopes: u16,
    /// The elements, in the order of their values.
    pub elements: &'static [Element],
}

impl Template {
    /// Returns the size of a record in bytes; `None` if an element has a variable size.
    pub fn record_size(&self) -> Option<usize> {
        self.elements.iter().map(|element| element.size.fixed()).sum()
    }
}
