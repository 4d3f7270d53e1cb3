//! Errors of header parsing.

/// The error of a header that cannot be parsed. The packet path does not use it: there an invalid header counts as
/// absent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HeaderError {
    /// The bytes end before the header does.
    #[error("the {header} header is truncated: it has {size} of {needed} bytes")]
    Truncated {
        /// The protocol.
        header: &'static str,
        /// Size of the header in bytes.
        needed: usize,
        /// Number of available bytes.
        size: usize,
    },
    /// A field has a value that the protocol forbids, or that contradicts the size of the packet.
    #[error("the {header} header is invalid: {field} is {value}")]
    Invalid {
        /// The protocol.
        header: &'static str,
        field: &'static str,
        /// The value of the field.
        value: u32,
    },
}
