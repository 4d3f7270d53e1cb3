//! The search for the next message behind lost bytes of a connection.

use crate::app::framed::KEPT;

/// Size in bytes of the type and the length of a message (section 53.7).
const HEADER: usize = 5;

/// Looks for a message with one of the types of a direction in bytes behind lost ones. Returns its position and true, or the position
/// from which on more bytes may show one and false.
///
/// A column of a row may look like the header of a message. A message is therefore one that ends with the bytes that arrived, or in
/// front of the header of another.
pub(super) fn resynchronize(data: &[u8], is_type: impl Fn(u8) -> bool) -> (usize, bool) {
    for at in 0..data.len() {
        match begins_message(&data[at..], &is_type) {
            Some(false) => {}
            found => return (at, found.is_some()),
        }
    }
    (data.len(), false)
}

/// Returns true if bytes begin a message. Returns `None` if more bytes are needed.
fn begins_message(data: &[u8], is_type: &impl Fn(u8) -> bool) -> Option<bool> {
    let Some(size) = size(data, is_type)? else {
        return Some(false);
    };
    let behind = data.get(size..)?;
    match behind {
        [] => Some(true),
        _ => self::size(behind, is_type).map(|next| next.is_some()),
    }
}

/// Returns the size of the message that a header begins, or `Some(None)` if the bytes are no header of a message that is kept whole.
/// Returns `None` if more bytes are needed.
fn size(data: &[u8], is_type: &impl Fn(u8) -> bool) -> Option<Option<usize>> {
    let kind = data.first()?;
    // The largest size that is kept has three digits of eight bits.
    if !is_type(*kind) || data.get(1).is_some_and(|high| *high != 0) {
        return Some(None);
    }
    let [_, length @ ..] = *data.first_chunk::<HEADER>()?;
    let size = 1 + u32::from_be_bytes(length) as usize;
    Some((HEADER..=KEPT).contains(&size).then_some(size))
}
