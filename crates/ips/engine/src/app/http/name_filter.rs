//! A filter of the names of headers: most names that a rule asks for and no header has are not searched for.

/// The first letters and sizes of names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct NameFilter {
    /// The first letters, in either case, one bit each.
    first_letters: u32,
    /// First letters and sizes together: one bit for each name, by [`NameFilter::place`].
    places: u64,
    /// True if a name has a zero byte, which does not count.
    pub(super) has_zero: bool,
}

impl NameFilter {
    /// The bit of names that begin with no letter.
    const OTHER: u32 = 1;

    fn first_letter(name: &[u8]) -> u32 {
        match name.first() {
            Some(first) if first.is_ascii_alphabetic() => 1 << (first & 31),
            _ => NameFilter::OTHER,
        }
    }

    #[inline]
    fn place(name: &[u8]) -> u64 {
        let first = name.first().map_or(0, |first| usize::from(first & 31));
        1 << ((first + 7 * name.len()) & 63)
    }

    pub(super) fn add(&mut self, name: &[u8]) {
        self.first_letters |= NameFilter::first_letter(name);
        self.places |= NameFilter::place(name);
        self.has_zero |= memchr::memchr(0, name).is_some();
    }

    /// Returns true if there may be a name that equals `name` in either case, zero bytes left out.
    #[inline]
    pub(super) fn may_have(self, name: &[u8]) -> bool {
        self.has_zero || self.places & NameFilter::place(name) != 0
    }

    /// Returns true if there may be a name that some recipient reads as `name`.
    #[inline]
    pub(super) fn may_look_like(self, name: &[u8]) -> bool {
        self.first_letters & (NameFilter::first_letter(name) | NameFilter::OTHER) != 0
    }
}
