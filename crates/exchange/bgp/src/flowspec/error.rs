//! Errors in flow specifications.

use thiserror::Error;

/// An error in a flow specification.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum FlowRuleError {
    /// The rule has no component.
    #[error("the rule has no component")]
    Empty,
    /// The type of a component is unknown, so the end of the component is unknown too.
    #[error("component type {0} is not known: expected 1 to 12, or 13 for IPv6")]
    UnknownType(u8),
    /// The components are not in ascending order of their types, or a type occurs twice.
    #[error("component type {second} behind type {first}: expected ascending types")]
    Order {
        /// The type that comes first.
        first: u8,
        /// The type that follows.
        second: u8,
    },
    /// A component ends before its last value, or a prefix is longer than an address of its family.
    #[error("component type {0} is cut off or has a length that its family does not permit")]
    Malformed(u8),
}
