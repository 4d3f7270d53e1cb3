//! The words that records have for values and for bits.

/// Returns the word of a value.
pub(super) fn word<T: Copy>(words: &[(u64, T)], value: u64) -> Option<T> {
    words
        .iter()
        .find(|(known, _)| *known == value)
        .map(|(_, word)| *word)
}

/// Returns the words of the bits that are set.
pub(super) fn words<'a>(
    words: &'a [(u64, &'static str)],
    bits: u64,
) -> impl Iterator<Item = &'static [u8]> + 'a {
    let set = words.iter().filter(move |(bit, _)| bits & bit != 0);
    set.map(|(_, word)| word.as_bytes())
}
