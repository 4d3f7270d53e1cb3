//! MPLS label stacks (RFC 3032, RFC 5462).

use crate::bytes::{be32, split};
use crate::{HeaderError, MplsLabel, Tc};

/// Size of one label stack entry (a shim) in bytes.
pub const SIZE: usize = 4;

/// The bottom of stack bit in an entry.
pub const BOS: u32 = 1 << 8;

/// A complete label stack entry.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    header: &'a [u8; SIZE],
    payload: &'a [u8],
}

impl<'a> View<'a> {
    /// Returns the outermost entry of a stack.
    ///
    /// # Errors
    /// [`HeaderError::Truncated`].
    #[inline]
    pub fn new(bytes: &'a [u8]) -> Result<View<'a>, HeaderError> {
        let (header, payload) = split("MPLS", bytes)?;
        Ok(View { header, payload })
    }

    /// Returns the whole entry as an integer.
    #[inline]
    pub fn entry(&self) -> u32 {
        be32(self.header, 0)
    }

    /// Returns the label.
    #[inline]
    pub fn label(&self) -> MplsLabel {
        MplsLabel::from_low_bits(self.entry() >> 12)
    }

    /// Returns the traffic class.
    #[inline]
    pub fn tc(&self) -> Tc {
        Tc::from_low_bits((self.entry() >> 9) as u8)
    }

    /// Returns true if this entry is the bottom of the stack.
    #[inline]
    pub fn bos(&self) -> bool {
        self.entry() & BOS != 0
    }

    /// Returns the time to live.
    #[inline]
    pub fn ttl(&self) -> u8 {
        self.header[3]
    }

    /// Returns the bytes after the entry: the next entry or, after the bottom of the stack, the payload.
    #[inline]
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }
}

/// Returns the entries from `bytes` on, outermost first, to the bottom of the stack or to the last complete one.
pub fn stack(bytes: &[u8]) -> impl Iterator<Item = View<'_>> {
    core::iter::successors(View::new(bytes).ok(), |entry| {
        if entry.bos() {
            None
        } else {
            View::new(entry.payload()).ok()
        }
    })
}

/// The fields of a label stack entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Repr {
    pub label: MplsLabel,
    /// The traffic class.
    pub tc: Tc,
    /// True if this is the bottom of the stack.
    pub bos: bool,
    /// Time to live.
    pub ttl: u8,
}

impl Repr {
    /// Returns the fields of an entry.
    pub fn parse(view: &View<'_>) -> Repr {
        Repr {
            label: view.label(),
            tc: view.tc(),
            bos: view.bos(),
            ttl: view.ttl(),
        }
    }

    /// Returns the entry as it is on the wire.
    #[inline]
    pub fn to_bytes(&self) -> [u8; SIZE] {
        let bos = if self.bos { BOS } else { 0 };
        (self.label.raw() << 12 | u32::from(self.tc.raw()) << 9 | bos | u32::from(self.ttl)).to_be_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_stack_ends_at_its_bottom_or_where_the_bytes_do() {
        let top = [0, 0x01, 0x00, 64];
        let bottom = [0, 0x02, 0x01, 63];
        let bytes = [top, bottom, top].concat();
        let labels: Vec<u32> = stack(&bytes).map(|entry| entry.label().raw()).collect();
        assert_eq!(labels, [16, 32]);
        assert_eq!(stack(&bytes[..6]).count(), 1);
        assert_eq!(stack(&[]).count(), 0);
    }

    proptest! {
        #[test]
        fn every_entry_parses_and_is_emitted_the_same(bytes: [u8; 4]) {
            prop_assert_eq!(Repr::parse(&View::new(&bytes).unwrap()).to_bytes(), bytes);
        }
    }
}
