//! Errors of header parsing.

/// A header that cannot be read. The packet path never makes one: there a bad header is merely absent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HeaderError {
    /// The bytes end before the header does.
    #[error("the {header} header is cut short: {size} bytes, {needed} needed")]
    Truncated {
        /// The protocol.
        header: &'static str,
        /// Bytes that the header takes.
        needed: usize,
        /// Bytes that there are.
        size: usize,
    },
    /// A field has a value that the protocol forbids, or that contradicts the size of the packet.
    #[error("the {header} header lies: {field} is {value}")]
    Invalid {
        /// The protocol.
        header: &'static str,
        /// The field.
        field: &'static str,
        /// The value of the field.
        value: u32,
    },
}
