//! A set of packets of a burst.

use millrace_flow::classify::BURST;

/// A bit for each packet of a burst.
pub(crate) type Packets = u64;
const _: () = assert!(BURST <= Packets::BITS as usize);

/// Returns the indices of the bits that are set, in order.
pub(crate) fn bits(mut packets: Packets) -> impl Iterator<Item = usize> {
    core::iter::from_fn(move || {
        let index = packets.trailing_zeros() as usize;
        packets &= packets.checked_sub(1)?;
        Some(index)
    })
}
