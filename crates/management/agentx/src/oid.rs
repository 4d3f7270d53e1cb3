//! Object identifiers, ordered as SNMP orders them.

use std::fmt;

/// An object identifier.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Oid(Vec<u32>);

impl Oid {
    /// The most parts of an identifier (RFC 2741, section 5.1).
    pub const LEN_MAX: usize = 128;

    /// Returns the identifier of these parts.
    pub fn new(parts: &[u32]) -> Oid {
        Oid(parts.to_vec())
    }

    /// Returns the identifier with more parts.
    #[must_use]
    pub fn with(&self, parts: &[u32]) -> Oid {
        Oid([self.0.as_slice(), parts].concat())
    }

    /// Returns the parts.
    pub fn parts(&self) -> &[u32] {
        &self.0
    }
}

impl fmt::Display for Oid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts: Vec<String> = self.0.iter().map(u32::to_string).collect();
        f.write_str(&parts.join("."))
    }
}

impl fmt::Debug for Oid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
