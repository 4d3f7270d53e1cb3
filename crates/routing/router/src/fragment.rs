//! Fragmentation of IPv4 packets (RFC 791, section 3.2).

use arrayvec::ArrayVec;
use millrace_wire::checksum::internet;
use millrace_wire::{Packet, ipv4};

use crate::link::LINK_MAX;
use crate::options;

/// The largest header of a fragment in bytes: link, and IPv4 with options.
const HEADERS_MAX: usize = LINK_MAX + ipv4::MIN_SIZE + ipv4::MAX_OPTIONS_SIZE;
/// The unit of the fragment offset in bytes.
const UNIT: usize = 8;

/// The outcome of a fragmentation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fragmented {
    /// All fragments were sent.
    All,
    /// No buffer was free for some fragments: the receiver cannot use the others.
    NoBuffer,
    /// The MTU has no room for data.
    TooSmall,
}

/// Cuts a packet into fragments of at most `mtu` bytes and passes each to `send`. The packet begins with the link header
/// of the fragments, whose size is `l3`; its IPv4 header of `header_size` bytes, options included, is valid and allows
/// fragmentation. A fragment may be cut again.
pub(crate) fn fragment<P: Packet>(
    packet: &P,
    l3: usize,
    header_size: usize,
    mtu: usize,
    mut send: impl FnMut(P),
) -> Fragmented {
    let data_at = l3 + header_size;
    let mut header: ArrayVec<u8, HEADERS_MAX> = ArrayVec::new();
    let head = packet.head().get(..data_at).unwrap_or_default();
    if header.try_extend_from_slice(head).is_err() || header.len() < l3 + ipv4::MIN_SIZE {
        return Fragmented::TooSmall;
    }
    let data = packet.len() - data_at;
    let room = mtu.saturating_sub(header_size) / UNIT * UNIT;
    if room == 0 {
        return Fragmented::TooSmall;
    }
    let field = |header: &[u8], at: usize| u16::from_be_bytes([header[l3 + at], header[l3 + at + 1]]);
    let flags = field(&header, 6);
    let (first_offset, is_last) = (flags & ipv4::FRAGMENT_OFFSET, flags & ipv4::MORE_FRAGMENTS == 0);
    let mut begin = 0;
    while begin < data {
        // The last fragment may use the MTU to the byte.
        let size = match data - begin {
            rest if rest + header_size <= mtu => rest,
            _ => room,
        };
        let goes_on = begin + size < data || !is_last;
        let offset = usize::from(first_offset) + begin / UNIT;
        let mut word = offset as u16 & ipv4::FRAGMENT_OFFSET;
        if goes_on {
            word |= ipv4::MORE_FRAGMENTS;
        }
        let ip = &mut header[l3..];
        ip[2..4].copy_from_slice(&((header_size + size) as u16).to_be_bytes());
        ip[6..8].copy_from_slice(&word.to_be_bytes());
        ip[10..12].fill(0);
        let checksum = internet(ip);
        ip[10..12].copy_from_slice(&checksum.to_be_bytes());
        match packet.gso_segment(&header, data_at + begin, size) {
            Some(fragment) => send(fragment),
            None => return Fragmented::NoBuffer,
        }
        if begin == 0 {
            options::keep_copied(&mut header[l3 + ipv4::MIN_SIZE..]);
        }
        begin += size;
    }
    Fragmented::All
}

#[cfg(test)]
mod tests {
    use super::*;
    use millrace_types::Mac;
    use millrace_wire::{Builder, Frame};
    use proptest::prelude::*;

    /// Returns the data that a receiver gets from fragments, which arrive in order (RFC 815 needs no more for that).
    fn reassembled(fragments: &[Frame], mtu: usize) -> Vec<u8> {
        let mut data = Vec::new();
        for (number, fragment) in fragments.iter().enumerate() {
            let view = ipv4::View::new(&fragment.bytes()[14..]).unwrap();
            assert!(view.checksum_is_right() && fragment.len() - 14 <= mtu);
            assert_eq!(usize::from(view.fragment_offset()) * 8, data.len());
            assert_eq!(view.more_fragments(), number + 1 != fragments.len());
            data.extend_from_slice(view.payload());
        }
        data
    }

    proptest! {
        #[test]
        fn a_receiver_gets_the_data_whatever_the_mtu_and_however_often_it_is_cut(
            size in 1_usize..4000, mtu in 68_usize..1500, again in 68_usize..1500,
        ) {
            let data: Vec<u8> = (0..size).map(|i| i as u8).collect();
            let builder = Builder::ethernet(Mac([2; 6]), Mac([4; 6])).ipv4([10, 0, 0, 1], [10, 0, 1, 1]);
            let whole = Frame::new(&builder.udp(1, 2).payload(&data).build());
            let mut once = Vec::new();
            let outcome = fragment(&whole, 14, 20, mtu, |fragment| once.push(fragment));
            prop_assert_eq!(outcome, Fragmented::All);
            prop_assert_eq!(&reassembled(&once, mtu)[..], &whole.bytes()[34..]);
            let mut twice = Vec::new();
            for cut in &once {
                fragment(cut, 14, 20, again, |fragment| twice.push(fragment));
            }
            prop_assert_eq!(&reassembled(&twice, again)[..], &whole.bytes()[34..]);
        }
    }
}
