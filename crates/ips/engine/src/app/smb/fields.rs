//! Fields of messages.

/// Size of the header of SMB 1.
pub(super) const HEADER_1: usize = 32;

/// Size of the header of SMB 2.
pub(super) const HEADER_2: usize = 64;

/// Returns the little-endian number of two bytes at an offset.
#[inline]
pub(super) fn u16_at(data: &[u8], at: usize) -> Option<usize> {
    let bytes = data.get(at..at + 2)?;
    Some(usize::from(u16::from_le_bytes([bytes[0], bytes[1]])))
}

/// Returns the little-endian number of four bytes at an offset.
#[inline]
pub(super) fn u32_at(data: &[u8], at: usize) -> Option<usize> {
    let bytes = data.get(at..at + 4)?;
    usize::try_from(u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])).ok()
}

/// Returns the little-endian number of eight bytes at an offset.
#[inline]
pub(super) fn u64_at(data: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*data.get(at..)?.first_chunk()?))
}

/// Returns the `size` bytes at `offset`, as a message gives both numbers; `None` if they exceed the data.
#[inline]
pub(super) fn slice(data: &[u8], offset: usize, size: usize) -> Option<&[u8]> {
    data.get(offset..offset.checked_add(size)?)
}

/// Returns UTF-16 text as bytes; characters beyond ASCII become question marks.
pub(super) fn narrow(text: &[u8]) -> Vec<u8> {
    let units = text
        .chunks_exact(2)
        .map(|unit| u16::from_le_bytes([unit[0], unit[1]]));
    let narrowed = units
        .take_while(|&unit| unit != 0)
        .map(|unit| u8::try_from(unit).unwrap_or(b'?'));
    narrowed.collect()
}
