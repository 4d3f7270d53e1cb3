//! The replay window: each packet number is accepted once (RFC 4303, section 3.4.3; a ring of words as in RFC 6479).

/// The number of packet numbers behind the newest that the window covers. 2^18 are 310 ms at 10 Gbit/s and
/// 1,500 bytes.
const WINDOW_BITS: u64 = 1 << 18;
const WORDS: usize = (WINDOW_BITS / 64) as usize;

/// The packet numbers that arrived, newest first.
#[derive(Clone, Debug)]
pub struct ReplayWindow {
    words: Box<[u64]>,
    /// One more than the newest number.
    next: u64,
}

impl Default for ReplayWindow {
    fn default() -> ReplayWindow {
        ReplayWindow {
            words: vec![0; WORDS].into_boxed_slice(),
            next: 0,
        }
    }
}

impl ReplayWindow {
    /// Returns the number after the newest that arrived.
    #[inline]
    pub fn next(&self) -> u64 {
        self.next
    }

    /// Returns true if a packet with this number would be new.
    #[inline]
    pub fn is_new(&self, number: u64) -> bool {
        if number >= self.next {
            return true;
        }
        // The oldest word is partly overwritten already, so its numbers count as seen.
        if self.next - number > WINDOW_BITS - 64 {
            return false;
        }
        let (word, bit) = position(number);
        self.words[word] & bit == 0
    }

    /// Marks a number as seen; call it once the packet is authentic.
    #[inline]
    pub fn insert(&mut self, number: u64) {
        if number >= self.next {
            let (old, new) = (self.next.div_ceil(64), number / 64);
            // Words that the window has just reached hold bits of numbers that left it.
            for word in (old..=new).take(WORDS) {
                self.words[position(word * 64).0] = 0;
            }
            self.next = number + 1;
        }
        let (word, bit) = position(number);
        self.words[word] |= bit;
    }
}

/// Returns the word of a number and its bit.
#[inline]
fn position(number: u64) -> (usize, u64) {
    #[allow(clippy::cast_possible_truncation, reason = "a remainder of 4,096")]
    let word = ((number / 64) % WORDS as u64) as usize;
    (word, 1 << (number % 64))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashSet;

    proptest! {
        #[test]
        fn no_number_is_accepted_twice_and_no_new_one_within_the_window_is_refused(
            steps in prop::collection::vec((0..3_u8, 0..600_000_u64), 1..300)
        ) {
            let (mut window, mut seen) = (ReplayWindow::default(), HashSet::new());
            for (what, distance) in steps {
                let number = match what {
                    0 => window.next() + distance % 70,
                    1 => window.next() + distance,
                    _ => window.next().saturating_sub(distance % 300_000),
                };
                let new = window.is_new(number);
                let in_window = number + WINDOW_BITS - 64 >= window.next();
                prop_assert_eq!(new, in_window && !seen.contains(&number));
                if new {
                    window.insert(number);
                    seen.insert(number);
                }
            }
        }
    }
}
