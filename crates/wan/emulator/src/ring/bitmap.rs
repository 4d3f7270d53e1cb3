//! A set of slots with a fast search for the next one: a bit for each slot, and a summary bit for each word of 64 such bits.

/// A set of numbers below a power of two, 2048 or 8192.
pub(crate) struct Bitmap {
    words: Box<[u64]>,
    /// One bit for each word that is not 0.
    summary: [u64; 2],
}

impl Bitmap {
    pub(crate) fn new(len: usize) -> Bitmap {
        debug_assert!(len <= 64 * 128);
        Bitmap {
            words: vec![0; len / 64].into_boxed_slice(),
            summary: [0; 2],
        }
    }

    #[inline]
    pub(crate) fn set(&mut self, at: usize) {
        self.words[at / 64] |= 1 << (at % 64);
        self.summary[at / 4096] |= 1 << (at / 64 % 64);
    }

    #[inline]
    pub(crate) fn clear(&mut self, at: usize) {
        let word = &mut self.words[at / 64];
        *word &= !(1 << (at % 64));
        if *word == 0 {
            self.summary[at / 4096] &= !(1 << (at / 64 % 64));
        }
    }

    /// Returns the first number of the set at or after `from`, or else the smallest number. Returns `None` if
    /// the set is empty.
    pub(crate) fn next(&self, from: usize) -> Option<usize> {
        self.next_up(from).or_else(|| self.next_up(0))
    }

    fn next_up(&self, from: usize) -> Option<usize> {
        let word = from / 64;
        let rest = self.words[word] & (u64::MAX << (from % 64));
        if rest != 0 {
            return Some(word * 64 + rest.trailing_zeros() as usize);
        }
        let from = word + 1;
        for (half, bits) in self.summary.iter().enumerate().skip(from / 64) {
            let bits = if half == from / 64 {
                bits & (u64::MAX << (from % 64))
            } else {
                *bits
            };
            if bits != 0 {
                let word = half * 64 + bits.trailing_zeros() as usize;
                return Some(word * 64 + self.words[word].trailing_zeros() as usize);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_of_the_set_is_found_around_the_end() {
        let mut set = Bitmap::new(8192);
        assert_eq!(set.next(0), None);
        for at in [3, 64, 4095, 4096, 8191] {
            set.set(at);
        }
        for (from, next) in [(0, 3), (3, 3), (4, 64), (65, 4095), (4096, 4096), (4097, 8191)] {
            assert_eq!(set.next(from), Some(next), "from {from}");
        }
        set.clear(8191);
        assert_eq!(set.next(4097), Some(3));
    }
}
