//! Digests: BLAKE3 values of groups, extents, files and sets.
//!
//! ```text
//!                   file root          BLAKE3 of the file's data (b3sum, for a file without holes)
//!                 /           \
//!        extent value       extent value …     1 or 16 MiB, one on the control channel for each extent
//!        /    …    \
//!   group … 64 … group                         16 KiB: unit of hashing and writing at the receiver
//! ```
//!
//! Values are chaining values of BLAKE3 subtrees (crate `blake3`, module `hazmat`; "BLAKE3", section 2.1). A subtree is bound
//! to its offset in the hashed input: for an extent within a large file that is the offset in the file's data, else the
//! extent is an input of its own.

use crate::varint::{self, VarintError};
use blake3::Hasher;
use blake3::hazmat::{
    ChainingValue, HasherExt, Mode, left_subtree_len, merge_subtrees_non_root, merge_subtrees_root,
};

/// Bytes of a group.
pub const GROUP_SIZE: u64 = 16 << 10;

/// The value of a group or an extent.
pub type Value = ChainingValue;

/// Returns the value of a group or of its part before the end of an extent.
///
/// `offset` is the group's offset in the hashed input, a multiple of [`GROUP_SIZE`].
pub fn group_value(offset: u64, bytes: &[u8]) -> Value {
    debug_assert!(!bytes.is_empty() && bytes.len() as u64 <= GROUP_SIZE);
    let mut hasher = Hasher::new();
    hasher.set_input_offset(offset);
    hasher.update(bytes);
    hasher.finalize_non_root()
}

/// Returns the value of the extent with these bytes, and the values of its groups.
pub fn extent_values(offset: u64, bytes: &[u8]) -> (Value, Vec<Value>) {
    let groups: Vec<Value> = bytes
        .chunks(GROUP_SIZE as usize)
        .zip(0_u64..)
        .map(|(group, index)| group_value(offset + index * GROUP_SIZE, group))
        .collect();
    (merge(&groups, bytes.len() as u64, GROUP_SIZE), groups)
}

/// Returns the value of an extent in one pass, faster than group by group.
pub fn extent_value(offset: u64, bytes: &[u8]) -> Value {
    let mut hasher = Hasher::new();
    hasher.set_input_offset(offset);
    hasher.update(bytes);
    hasher.finalize_non_root()
}

/// Returns the value of an input of `len` bytes that is cut into leaves of `leaf` bytes, a power of two of chunks.
///
/// An empty input has no value; the result is then zeros, which no caller asks for.
pub fn merge(leaves: &[Value], len: u64, leaf: u64) -> Value {
    match leaves {
        [] => [0; 32],
        [only] => *only,
        _ => {
            let left = left_subtree_len(len);
            let (before, after) = leaves.split_at(((left / leaf) as usize).min(leaves.len()));
            merge_subtrees_non_root(
                &merge(before, left, leaf),
                &merge(after, len - left, leaf),
                Mode::Hash,
            )
        }
    }
}

/// Returns the digest of an input of `len` bytes from leaves of `leaf` bytes; `None` for fewer than two leaves.
pub fn merge_root(leaves: &[Value], len: u64, leaf: u64) -> Option<[u8; 32]> {
    if leaves.len() < 2 {
        return None;
    }
    let left = left_subtree_len(len);
    let (before, after) = leaves.split_at((left / leaf) as usize);
    let root = merge_subtrees_root(
        &merge(before, left, leaf),
        &merge(after, len - left, leaf),
        Mode::Hash,
    );
    Some(*root.as_bytes())
}

/// Returns the root of a set: a digest of the manifest's digest and of all extent values in order.
pub fn set_root<'a>(manifest: &[u8; 32], values: impl Iterator<Item = &'a Value>) -> [u8; 32] {
    let mut hasher = Hasher::new_derive_key("millrace 2026 fileset root of a set");
    hasher.update(manifest);
    for value in values {
        hasher.update(value);
    }
    *hasher.finalize().as_bytes()
}

/// The value of an extent, as a control message. [`HaveEntry`] has the same form in the other direction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ExtentValue {
    pub extent: u64,
    /// The value of the extent.
    pub value: Value,
}

/// An extent that the receiver has already, and its value: one line of a have-map.
pub type HaveEntry = ExtentValue;

impl ExtentValue {
    /// Appends the message.
    pub fn encode(&self, out: &mut Vec<u8>) {
        varint::put(out, self.extent);
        out.extend_from_slice(&self.value);
    }

    /// Takes a message off the front; `Ok(None)` and `bytes` unchanged if it is not complete.
    ///
    /// # Errors
    /// If the bytes are no number.
    pub fn decode(bytes: &mut &[u8]) -> Result<Option<ExtentValue>, InvalidNumber> {
        let mut rest = *bytes;
        let extent = match varint::take(&mut rest) {
            Ok(extent) => extent,
            Err(VarintError::Incomplete) => return Ok(None),
            Err(VarintError::Invalid) => return Err(InvalidNumber),
        };
        let Some((value, rest)) = rest.split_first_chunk::<32>() else {
            return Ok(None);
        };
        *bytes = rest;
        Ok(Some(ExtentValue {
            extent,
            value: *value,
        }))
    }
}

/// A control message whose number is too long.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "a control message has a number of more than 64 bits, or with padding; the peer violates the protocol"
)]
pub struct InvalidNumber;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn input(len: usize) -> Vec<u8> {
        (0..len).map(|index| (index * 7 + index / 251) as u8).collect()
    }

    #[test]
    fn values_of_extents_merge_to_the_digest_of_the_file() {
        for len in [(1 << 20) + 1, 3 << 20, (5 << 20) + 12_345] {
            let bytes = input(len);
            let values: Vec<Value> = bytes
                .chunks(1 << 20)
                .zip(0_u64..)
                .map(|(extent, index)| extent_values(index << 20, extent).0)
                .collect();
            let root = merge_root(&values, len as u64, 1 << 20).unwrap();
            assert_eq!(root, *blake3::hash(&bytes).as_bytes(), "{len} bytes");
        }
    }

    #[test]
    fn a_have_entry_survives_and_waits_for_its_last_byte() {
        let entry = ExtentValue {
            extent: 300,
            value: [7; 32],
        };
        let mut bytes = Vec::new();
        entry.encode(&mut bytes);
        for len in 0..bytes.len() {
            assert_eq!(ExtentValue::decode(&mut &bytes[..len]), Ok(None));
        }
        assert_eq!(ExtentValue::decode(&mut &bytes[..]), Ok(Some(entry)));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]
        #[test]
        fn groups_merge_to_the_value_of_their_extent(len in 1..=1_usize << 20, index in 0..4_u64) {
            let bytes = input(len);
            let (value, groups) = extent_values(index << 20, &bytes);
            prop_assert_eq!(groups.len() as u64, (len as u64).div_ceil(GROUP_SIZE));
            prop_assert_eq!(value, extent_value(index << 20, &bytes));
        }
    }
}
