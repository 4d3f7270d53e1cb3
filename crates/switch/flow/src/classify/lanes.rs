//! Words with a byte for each lane of a group: the tags of seven entries, which one comparison covers. The highest byte
//! belongs to the user of the word.

/// The number of entries in one group.
pub(super) const LANES: usize = 7;

/// The lowest bit of each tag.
pub(super) const ONES: u64 = 0x0001_0101_0101_0101;

/// The highest bit of each tag.
pub(super) const HIGHS: u64 = ONES << 7;

/// All bits of each tag except the highest one.
const LOWS: u64 = HIGHS - ONES;

/// Returns the tag of a hash; never zero, which marks a free lane.
#[inline(always)]
pub(super) const fn tag(hash: u64) -> u64 {
    let tag = hash >> 32 & 0xff;
    tag | (tag == 0) as u64
}

/// Returns a word in which the highest bit of a byte is set if that byte of `word` is zero, for the seven low bytes.
#[inline(always)]
pub(super) const fn zero_bytes(word: u64) -> u64 {
    // A byte's high bit stays clear only if the byte is zero; no sum of seven bits carries out of a byte.
    !(((word & LOWS) + LOWS) | word) & HIGHS
}

/// Returns a word in which the highest bit of a lane's byte is set if the tag of the lane is `tag`; all other bits are
/// clear.
#[inline(always)]
pub(super) const fn candidates(tags: u64, tag: u64) -> u64 {
    zero_bytes(tags ^ (tag * ONES))
}

/// Returns the lane of the lowest bit of [`candidates`].
#[inline(always)]
pub(super) const fn lane(candidates: u64) -> usize {
    (candidates.trailing_zeros() / 8) as usize
}
