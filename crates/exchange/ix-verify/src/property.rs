//! The properties of section 8 of the design, and their violations.

use millrace_ix_model::ServiceId;

/// A property that holds for every exchange.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Property {
    /// V1: a frame that enters outside of a service never leaves in it.
    Isolation,
    /// V2: an admitted frame leaves exactly once, where it should.
    Delivery,
    /// V3: no frame circles or returns to its sender.
    NoReturn,
    /// V4: no frame of a peering LAN is copied.
    NoCopy,
    /// V5: a filter changes only what leaves by its owner.
    Filter,
    /// V6: all sites treat a frame alike.
    Uniform,
    /// V7: no entry is dead or shadowed.
    Alive,
}

impl Property {
    /// Returns the name in the design: V1 to V7.
    pub const fn number(self) -> u8 {
        self as u8 + 1
    }
}

/// A violation of a property.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Finding {
    pub property: Property,
    /// The service concerned.
    pub service: Option<ServiceId>,
    /// The frames and what happens to them, in words.
    pub text: String,
}

impl core::fmt::Display for Finding {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "V{}: {}", self.property.number(), self.text)
    }
}
