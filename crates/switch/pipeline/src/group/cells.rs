//! The selection of a bucket of a select group.
//!
//! A table of cells, whose length is a power of two, assigns each cell to a bucket. The number of a bucket's cells is
//! proportional to its weight, to within one cell. A packet takes the bucket of the cell that its hash points at: one
//! load. If that bucket is not live, the packet tries the next cell that follows from its hash, so that the flows of a
//! dead bucket are spread over the others by weight, and no other flow moves. After 16 tries, which nearly all
//! buckets must be dead for, it asks each bucket once, and the flows are spread evenly over the live ones.
//!
//! When a group changes, each bucket keeps as many of its cells as its new share allows, so that no flow moves without
//! need. This is exact, whereas a consistent hash (rendezvous, Maglev) is only nearly stable or nearly balanced. In
//! return, a table depends on the previous one, which the control side keeps.

/// The maximum number of cells of a group.
const LEN_MAX: usize = 65_536;
/// The minimum number of cells of a group: shares are then exact to 0.1 %.
const LEN_MIN: usize = 1024;
/// The minimum number of cells for each bucket, as far as [`LEN_MAX`] allows.
const CELLS_PER_BUCKET: usize = 128;
/// The number of cells that a packet tries before it searches all buckets in turn.
const TRIES: u32 = 16;

/// The cells of a select group.
#[derive(Debug)]
pub(crate) struct BucketCells {
    /// The bucket index of each cell. The number of cells is zero or a power of two.
    cells: Box<[u16]>,
    /// The buckets that have a cell.
    weighty: Box<[u16]>,
    /// The identity of each bucket, by which it is found again when the group changes.
    identities: Box<[u64]>,
}

impl BucketCells {
    /// Assigns the cells to buckets, given by identity and weight. Buckets without weight get none.
    pub(crate) fn new(
        buckets: impl IntoIterator<Item = (u64, u16)>,
        before: Option<&BucketCells>,
    ) -> BucketCells {
        let (identities, weights): (Vec<u64>, Vec<u16>) = buckets.into_iter().unzip();
        let count = weights.iter().filter(|weight| **weight > 0).count();
        let before_len = before.map_or(0, |before| before.cells.len());
        let len = (count * CELLS_PER_BUCKET)
            .next_power_of_two()
            .clamp(LEN_MIN, LEN_MAX)
            .max(before_len);
        let mut weighty = Box::default();
        let cells = if count == 0 {
            Box::default()
        } else {
            let mut left = quotas(&weights, len);
            weighty = (0..)
                .zip(&left)
                .filter(|(_, cells)| **cells > 0)
                .map(|(at, _)| at)
                .collect();
            let mut cells = vec![None; len];
            if let Some(before) = before {
                keep(&mut cells, &mut left, before, &identities);
            }
            fill(&cells, &left)
        };
        BucketCells {
            cells,
            weighty,
            identities: identities.into(),
        }
    }

    /// Returns a live bucket for a packet with this hash; `None` if no bucket with weight is live.
    #[inline]
    pub(crate) fn choose(&self, hash: u64, mut is_live: impl FnMut(usize) -> bool) -> Option<usize> {
        let mask = self.cells.len().checked_sub(1)?;
        let mut hash = hash;
        for _ in 0..TRIES {
            let bucket = usize::from(*self.cells.get(hash as usize & mask)?);
            if is_live(bucket) {
                return Some(bucket);
            }
            hash = next(hash);
        }
        self.any_live(hash, is_live)
    }

    /// Returns the live bucket with the highest score for a hash (rendezvous hashing: only the flows of a bucket
    /// that dies move). Called for groups in which nearly all buckets are dead.
    #[cold]
    fn any_live(&self, hash: u64, mut is_live: impl FnMut(usize) -> bool) -> Option<usize> {
        // 2^64 divided by the golden ratio: neighbouring numbers differ in the high bits, too.
        const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;
        let live = self
            .weighty
            .iter()
            .filter(|bucket| is_live(usize::from(**bucket)));
        let best = live.max_by_key(|bucket| next(hash ^ u64::from(**bucket).wrapping_mul(SPREAD)));
        best.map(|bucket| usize::from(*bucket))
    }
}

/// Returns the next hash of the same packet: a step of a permutation of 64-bit numbers.
#[inline]
fn next(hash: u64) -> u64 {
    let mixed = (hash ^ hash >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93);
    mixed ^ mixed >> 32
}

/// Returns how many of `len` cells each bucket gets: largest remainders (Hare). A bucket with weight gets at least
/// one, as long as there are enough.
fn quotas(weights: &[u16], len: usize) -> Vec<usize> {
    let total: u64 = weights.iter().map(|weight| u64::from(*weight)).sum();
    let share = |weight: u16| u64::from(weight) * len as u64;
    let mut quotas: Vec<usize> = weights
        .iter()
        .map(|weight| (share(*weight) / total) as usize)
        .collect();
    let mut left = len - quotas.iter().sum::<usize>();
    let mut by_remainder: Vec<usize> = (0..weights.len()).filter(|at| weights[*at] > 0).collect();
    by_remainder.sort_by_key(|at| {
        (
            quotas[*at] > 0,
            core::cmp::Reverse(share(weights[*at]) % total),
            *at,
        )
    });
    for at in by_remainder {
        if left > 0 {
            quotas[at] += 1;
            left -= 1;
        }
    }
    quotas
}

/// Assigns cells to the buckets that had them before, as far as the buckets' new shares allow.
fn keep(cells: &mut [Option<u16>], left: &mut [usize], before: &BucketCells, identities: &[u64]) {
    let Some(mask) = before.cells.len().checked_sub(1) else {
        return;
    };
    let now: Vec<Option<u16>> = before
        .identities
        .iter()
        .map(|was| identities.iter().position(|is| is == was).map(|at| at as u16))
        .collect();
    for (at, cell) in cells.iter_mut().enumerate() {
        let Some(bucket) = now.get(usize::from(before.cells[at & mask])).copied().flatten() else {
            continue;
        };
        if let Some(left) = left.get_mut(usize::from(bucket)).filter(|left| **left > 0) {
            *left -= 1;
            *cell = Some(bucket);
        }
    }
}

/// Assigns the free cells to the buckets whose shares are not used up.
fn fill(cells: &[Option<u16>], left: &[usize]) -> Box<[u16]> {
    let waiting = left.iter().enumerate();
    let mut queue = waiting.flat_map(|(bucket, left)| core::iter::repeat_n(bucket as u16, *left));
    cells
        .iter()
        .map(|cell| cell.or_else(|| queue.next()).unwrap_or_default())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn counted(cells: &BucketCells, buckets: usize) -> Vec<usize> {
        let mut counts = vec![0; buckets];
        for cell in &cells.cells {
            counts[usize::from(*cell)] += 1;
        }
        counts
    }

    fn buckets(weights: &[u16]) -> Vec<(u64, u16)> {
        (0..).zip(weights.iter().copied()).collect()
    }

    proptest! {
        #[test]
        fn places_are_divided_by_weight_to_within_one(
            weights in prop::collection::vec(1u16..500, 1..40),
            gone in any::<prop::sample::Index>(),
        ) {
            let all = BucketCells::new(buckets(&weights), None);
            let total: usize = weights.iter().map(|weight| usize::from(*weight)).sum();
            let len = all.cells.len();
            for (weight, cells) in weights.iter().zip(counted(&all, weights.len())) {
                let exact = usize::from(*weight) * len / total;
                prop_assert!((exact..=exact + 1).contains(&cells) || cells == 1, "{cells} of {len}: {weight} of {total}");
            }
            // One bucket goes: its cells are divided, and no other bucket loses one.
            let mut rest = buckets(&weights);
            rest.remove(gone.index(weights.len()));
            let after = BucketCells::new(rest.clone(), Some(&all));
            if rest.is_empty() {
                prop_assert!(after.cells.is_empty());
                return Ok(());
            }
            let moved = all.cells.iter().zip(&after.cells).filter(|(was, is)| u64::from(**was) != rest[usize::from(**is)].0).count();
            let had = counted(&all, weights.len())[gone.index(weights.len())];
            // Rounding moves at most one cell of a bucket.
            prop_assert!(moved <= had + weights.len(), "{moved} moved, {had} had to");
        }
    }

    #[test]
    fn a_bucket_without_weight_gets_nothing_and_a_light_one_something() {
        let cells = BucketCells::new(buckets(&[0, 1, 65_535]), None);
        assert_eq!(counted(&cells, 3), [0, 1, LEN_MIN - 1]);
        let none = BucketCells::new(buckets(&[0, 0]), None);
        assert_eq!(none.choose(5, |_| true), None);
    }

    #[test]
    fn flows_of_a_dead_bucket_are_spread_by_weight_and_no_other_moves() {
        let cells = BucketCells::new(buckets(&[1, 1, 2]), None);
        let mut state = 1u64;
        let mut got = [0u32; 3];
        for _ in 0..40_000 {
            state = next(state).wrapping_add(0x9e37_79b9_7f4a_7c15);
            let usual = cells.choose(state, |_| true).unwrap();
            let now = cells.choose(state, |bucket| bucket != 0).unwrap();
            assert!(usual == 0 || usual == now);
            if usual == 0 {
                got[now] += 1;
            }
        }
        assert_eq!(got[0], 0);
        let ratio = f64::from(got[2]) / f64::from(got[1]);
        assert!((1.8..2.2).contains(&ratio), "{got:?}");
    }

    #[test]
    fn the_only_live_bucket_is_found_however_light_it_is() {
        let cells = BucketCells::new(buckets(&[1, 65_535]), None);
        for hash in 0..1000 {
            assert_eq!(cells.choose(hash, |bucket| bucket == 0), Some(0));
        }
        assert_eq!(cells.choose(7, |_| false), None);
    }

    #[test]
    fn a_packet_asks_each_bucket_once_where_nearly_all_are_dead() {
        const LEN: usize = 512;
        let old = BucketCells::new(buckets(&[1; LEN]), None);
        // Neighbouring cells have different buckets once the weights have changed.
        let weights: Vec<u16> = (0..LEN)
            .map(|at| if at == 9 { 0 } else { 1 + at as u16 % 7 })
            .collect();
        let cells = BucketCells::new(buckets(&weights), Some(&old));
        for hash in 0..300_u64 {
            let mut calls = 0;
            let found = cells.choose(next(hash), |_| {
                calls += 1;
                false
            });
            assert_eq!(found, None);
            assert!(calls <= TRIES as usize + LEN, "{calls}");
            assert_eq!(cells.choose(next(hash), |bucket| bucket == 9), None);
            assert_eq!(cells.choose(next(hash), |bucket| bucket == 511), Some(511));
        }
    }

    #[test]
    fn a_bucket_that_comes_takes_only_what_is_its_share() {
        let before = BucketCells::new(buckets(&[5, 5, 5]), None);
        let after = BucketCells::new(buckets(&[5, 5, 5, 5]), Some(&before));
        let moved = before
            .cells
            .iter()
            .zip(&after.cells)
            .filter(|(was, is)| was != is);
        assert!(moved.clone().all(|(_, is)| *is == 3));
        assert_eq!(moved.count(), after.cells.len() / 4);
    }
}
