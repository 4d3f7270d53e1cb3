//! Hints: bytes beside the tags of entries, which rule out most wrong entries before they are read.

use super::super::lanes::{HIGHS, ONES, zero_bytes};

/// The number of bytes of the packet's key that a hint covers.
pub(in super::super) const WINDOWS: usize = 3;

/// The values of a few key bits that an entry requires, and the class of its priority.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(in super::super) struct Hint {
    pub(in super::super) values: [u8; WINDOWS],
    /// The bits of the values that are compared.
    pub(in super::super) masks: [u8; WINDOWS],
    /// The class of the priority, `0..=127`; higher for higher priorities.
    pub(in super::super) class: u8,
}

/// The hints of a group in one cache line; each word has a byte for each lane.
#[derive(Clone, Copy, Default, Debug)]
#[repr(align(64))]
pub(in super::super) struct Hints {
    values: [u64; WINDOWS],
    masks: [u64; WINDOWS],
    classes: u64,
}

/// Sets the byte of a lane.
fn set(word: &mut u64, lane: usize, byte: u8) {
    *word = *word & !(0xff << (8 * lane)) | u64::from(byte) << (8 * lane);
}

impl Hints {
    pub(super) fn set(&mut self, lane: usize, hint: Hint) {
        for window in 0..WINDOWS {
            set(&mut self.values[window], lane, hint.values[window]);
            set(&mut self.masks[window], lane, hint.masks[window]);
        }
        self.set_class(lane, hint.class);
    }

    pub(super) fn set_class(&mut self, lane: usize, class: u8) {
        set(&mut self.classes, lane, class);
    }

    /// Returns a word with a bit set in the byte of each lane whose hint allows a packet with these key
    /// bytes. `class` is the class of the packet's best rule so far.
    #[inline(always)]
    pub(in super::super) fn allow(&self, bytes: [u64; WINDOWS], class: u64) -> u64 {
        let mut differences = 0;
        for (window, byte) in bytes.into_iter().enumerate() {
            differences |= (self.values[window] ^ (byte * ONES)) & self.masks[window];
        }
        // Bit 7 of a byte stays set if the lane's class is at least `class`; classes have seven bits.
        let high = (self.classes | HIGHS) - class * ONES;
        zero_bytes(differences) & high
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hint_allows_what_agrees_under_its_masks_and_is_not_too_low() {
        let mut hints = Hints::default();
        let three = [
            ([1, 2, 0], [0xff, 0xff, 0], 127),
            ([1, 0, 0], [0xff, 0, 0], 5),
            ([0x10, 2, 7], [0xf0, 0x0f, 0xff], 0),
        ];
        for (lane, (values, masks, class)) in three.into_iter().enumerate() {
            hints.set(lane, Hint { values, masks, class });
        }
        let allowed = |bytes, class| hints.allow(bytes, class) & 0x80_8080;
        assert_eq!(allowed([1, 2, 9], 0), 0x8080);
        assert_eq!(allowed([1, 2, 9], 5), 0x8080);
        assert_eq!(allowed([1, 2, 9], 6), 0x80);
        assert_eq!(allowed([1, 9, 9], 0), 0x8000);
        assert_eq!(allowed([0x1e, 0xf2, 7], 0), 0x80_0000);
        assert_eq!(allowed([0x1e, 0xf2, 7], 127), 0);
    }
}
