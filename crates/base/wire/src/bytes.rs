//! Reads and writes at offsets, in a form that compiles to a single load and a single check.

use crate::HeaderError;

/// Returns the `N` bytes at `at`; `None` if the slice ends before them.
#[inline]
pub(crate) fn chunk<const N: usize>(bytes: &[u8], at: usize) -> Option<&[u8; N]> {
    bytes.get(at..)?.first_chunk()
}

/// Returns the `N` bytes at `at`, mutably; `None` if the slice ends before them.
#[inline]
pub(crate) fn chunk_mut<const N: usize>(bytes: &mut [u8], at: usize) -> Option<&mut [u8; N]> {
    bytes.get_mut(at..)?.first_chunk_mut()
}

/// Returns `N` bytes of a header of fixed size. `at` is a constant of the caller, so the compiler removes the
/// bounds check.
#[inline(always)]
pub(crate) fn array<const N: usize, const M: usize>(header: &[u8; M], at: usize) -> [u8; N] {
    let mut bytes = [0; N];
    bytes.copy_from_slice(&header[at..at + N]);
    bytes
}

/// Returns the 16-bit integer at `at`, a constant of the caller, so that the compiler removes the bounds check. Panics
/// if the integer is not inside the header.
#[inline(always)]
pub fn be16<const M: usize>(header: &[u8; M], at: usize) -> u16 {
    u16::from_be_bytes([header[at], header[at + 1]])
}

/// Returns the 32-bit integer at `at`, under the same conditions as [`be16`].
#[inline(always)]
pub fn be32<const M: usize>(header: &[u8; M], at: usize) -> u32 {
    u32::from_be_bytes(array(header, at))
}

/// Returns the 64-bit integer at `at`, under the same conditions as [`be16`].
#[inline(always)]
pub fn be64<const M: usize>(header: &[u8; M], at: usize) -> u64 {
    u64::from_be_bytes(array(header, at))
}

/// Splits a fixed header off the front.
#[inline]
pub(crate) fn split<'a, const N: usize>(
    header: &'static str,
    bytes: &'a [u8],
) -> Result<(&'a [u8; N], &'a [u8]), HeaderError> {
    bytes.split_first_chunk().ok_or(HeaderError::Truncated {
        header,
        needed: N,
        size: bytes.len(),
    })
}

/// Writes `value` at the constant `at` of a header of fixed size.
#[inline(always)]
pub(crate) fn put<const N: usize, const M: usize>(header: &mut [u8; M], at: usize, value: [u8; N]) {
    header[at..at + N].copy_from_slice(&value);
}
