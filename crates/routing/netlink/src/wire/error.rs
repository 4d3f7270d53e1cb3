//! The error of all decoders of messages.

use thiserror::Error;

/// The violation of the message format by which a message was refused. Names are those of the kernel's headers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum DecodeError {
    /// The message ends before its fixed part does.
    #[error("{what}: {found} bytes, expected at least {expected}")]
    Header {
        /// The structure.
        what: &'static str,
        /// Size of its fixed part in bytes.
        expected: usize,
        found: usize,
    },
    /// A length reaches past the end of what contains it, or is shorter than its own header.
    #[error("{what}: its length is {length} bytes, and {available} are there")]
    Length {
        /// The structure whose length is wrong.
        what: &'static str,
        length: usize,
        available: usize,
    },
    /// An attribute has a size that its type does not have.
    #[error("attribute {attribute} of {what}: {found} bytes, expected {expected}")]
    Size {
        /// The message.
        what: &'static str,
        /// The number of the attribute.
        attribute: u16,
        /// The sizes that are right.
        expected: &'static str,
        found: usize,
    },
    /// A prefix is longer than the addresses of its family.
    #[error("{what}: a prefix length of {length} bits in family {family}")]
    Prefix {
        what: &'static str,
        length: u8,
        family: u8,
    },
    /// A message lacks an attribute without which it means nothing.
    #[error("{what}: no attribute {attribute}")]
    Missing {
        what: &'static str,
        attribute: &'static str,
    },
}
