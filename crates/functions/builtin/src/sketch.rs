//! The top senders in little memory: a count-min sketch (Cormode and Muthukrishnan, 2005), and a list of the
//! largest senders.
//!
//! The estimate of a sender is never too low. With a probability of 1 - e^-4 it is too high by at most e/1024 of all bytes.

use millrace_nf::table::KeyedHash;

/// Rows, each with a hash of its own. The estimate exceeds its bound with a probability of e^-4, 1 in 55.
const ROWS: usize = 4;
/// Counters of a row.
const COLUMNS: usize = 1024;
/// Senders in the list.
pub(crate) const TOP: usize = 16;

/// An address and an estimate of its bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Talker {
    pub(crate) address: [u8; 16],
    pub(crate) size: u64,
}

/// The sketch and the list.
#[derive(Debug)]
pub(crate) struct Sketch {
    rows: Box<[[u64; COLUMNS]; ROWS]>,
    hash: KeyedHash,
    top: [Talker; TOP],
}

impl Sketch {
    pub(crate) fn new(seed: u64) -> Sketch {
        Sketch {
            rows: Box::new([[0; COLUMNS]; ROWS]),
            hash: KeyedHash::new(seed),
            top: [Talker::default(); TOP],
        }
    }

    /// Counts bytes of a sender.
    #[inline]
    pub(crate) fn add(&mut self, address: [u8; 16], size: u64) {
        let mut hash = self.hash.of(&address);
        let mut estimate = u64::MAX;
        for row in &mut *self.rows {
            // The four rows use 40 of 64 bits.
            let count = &mut row[hash as usize % COLUMNS];
            *count = count.saturating_add(size);
            estimate = estimate.min(*count);
            hash >>= COLUMNS.trailing_zeros();
        }
        // The list is sorted in descending order.
        if estimate <= self.top[TOP - 1].size {
            return;
        }
        let held = self
            .top
            .iter()
            .position(|talker| talker.address == address && talker.size != 0);
        let mut at = held.unwrap_or(TOP - 1);
        self.top[at] = Talker {
            address,
            size: estimate,
        };
        while at > 0 && self.top[at - 1].size < estimate {
            self.top.swap(at - 1, at);
            at -= 1;
        }
    }

    /// Returns the top senders in descending order.
    pub(crate) fn top(&self) -> impl Iterator<Item = Talker> + '_ {
        self.top.iter().copied().filter(|talker| talker.size != 0)
    }

    /// Resets all counters.
    pub(crate) fn clear(&mut self) {
        self.rows.iter_mut().for_each(|row| row.fill(0));
        self.top = [Talker::default(); TOP];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_are_found_among_many() {
        let mut sketch = Sketch::new(5);
        let address = |number: u32| {
            let mut address = [0; 16];
            address[12..].copy_from_slice(&number.to_be_bytes());
            address
        };
        for round in 0..20_000_u32 {
            sketch.add(address(1_000 + round), 60);
            for heavy in 0..TOP as u32 / 2 {
                sketch.add(address(heavy), 1_000 + u64::from(heavy) * 500);
            }
        }
        let top: Vec<Talker> = sketch.top().take(TOP / 2).collect();
        let wanted: Vec<[u8; 16]> = (0..TOP as u32 / 2).rev().map(address).collect();
        assert_eq!(
            top.iter().map(|talker| talker.address).collect::<Vec<_>>(),
            wanted
        );
        for (talker, heavy) in top.iter().zip((0..TOP as u64 / 2).rev()) {
            let truth = 20_000 * (1_000 + heavy * 500);
            assert!(
                talker.size >= truth && talker.size < truth + truth / 20,
                "{talker:?} {truth}"
            );
        }
        sketch.clear();
        assert_eq!(sketch.top().count(), 0);
    }
}
