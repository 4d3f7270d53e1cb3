//! The frames that a learning bridge is offered: one capture file. Each run of the generator sends a range of it.
//!
//! ```text
//!   index   0          broadcast frame
//!           1 - 4      frames of and to the neighbour
//!           5 ...      one frame from each address, to the tester    (learning)
//!           ...        one frame from the tester to each address     (test)
//! ```

use std::net::Ipv4Addr;

use millrace_types::Mac;
use millrace_wire::Builder;

use crate::generate::PacketRange;

/// The port where addresses are learned (RFC 2889, section 5.7: Lport).
pub(super) const LEARNING: u32 = 2;
/// The port from which frames are sent to the learned addresses (RFC 2889, section 5.7: Tport).
pub(super) const TEST: u32 = 1;

/// The number of addresses. Each trial uses other addresses, as Open vSwitch forwards further frames of known
/// addresses by its flow cache for some time and does not learn from them.
pub(super) const ADDRESSES: usize = 1 << 17;

/// The MAC address at the test port.
const TESTER: Mac = Mac([0x02, 0, 0, 0, 0x01, 0x01]);
/// A MAC address at the learning port that is not one of [`ADDRESSES`].
const NEIGHBOUR: Mac = Mac([0x02, 0, 0, 0, 0x02, 0x02]);

/// Frame sizes in bytes, check sequence included: the smallest allowed size, a smaller size, and a size above
/// the largest allowed size with VLAN tags.
const SMALLEST: usize = 64;
const RUNT: usize = 63;
const OVERSIZED: usize = 1600;

/// A broadcast frame from the test port.
pub(super) const BROADCAST: PacketRange = single(TEST, 0);
/// A frame from the neighbour, from which the bridge learns its address.
pub(super) const NEIGHBOUR_SPEAKS: PacketRange = single(LEARNING, 1);
/// A valid frame to the neighbour.
pub(super) const TO_NEIGHBOUR: PacketRange = single(TEST, 2);
/// A frame to the neighbour that is too short.
pub(super) const RUNTS: PacketRange = single(TEST, 3);
/// A frame to the neighbour that is too long.
pub(super) const OVERSIZED_FRAMES: PacketRange = single(TEST, 4);
/// The number of frames before those of the addresses.
const OTHERS: usize = 5;

const fn single(port: u32, index: usize) -> PacketRange {
    PacketRange {
        port,
        first: index,
        len: 1,
    }
}

/// A range of the addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Addresses {
    first: usize,
    /// The number of addresses.
    pub(super) len: usize,
}

impl Addresses {
    /// Returns the range of frames from each address to the tester.
    pub(super) fn learned(self) -> PacketRange {
        PacketRange {
            port: LEARNING,
            first: OTHERS + self.first,
            len: self.len,
        }
    }

    /// Returns the range of frames from the tester to each address.
    pub(super) fn tested(self) -> PacketRange {
        PacketRange {
            port: TEST,
            first: OTHERS + ADDRESSES + self.first,
            len: self.len,
        }
    }

    /// Returns the first `len` addresses.
    pub(super) fn few(self, len: usize) -> Addresses {
        Addresses {
            len: self.len.min(len),
            ..self
        }
    }
}

/// A cursor over the addresses, which reuses an address as late as possible.
#[derive(Debug, Default)]
pub(super) struct Pool {
    next: usize,
}

impl Pool {
    /// Returns the next `len` addresses, at most [`ADDRESSES`].
    pub(super) fn take(&mut self, len: usize) -> Addresses {
        let len = len.min(ADDRESSES);
        if self.next + len > ADDRESSES {
            self.next = 0;
        }
        let first = self.next;
        self.next += len;
        Addresses { first, len }
    }
}

/// Returns all frames, in the order of their indices.
pub(super) fn frames() -> impl Iterator<Item = Vec<u8>> {
    let others = [
        frame(Mac::BROADCAST, TESTER, SMALLEST),
        frame(TESTER, NEIGHBOUR, SMALLEST),
        frame(NEIGHBOUR, TESTER, SMALLEST),
        frame(NEIGHBOUR, TESTER, RUNT),
        frame(NEIGHBOUR, TESTER, OVERSIZED),
    ];
    debug_assert_eq!(others.len(), OTHERS);
    let learned = (0..ADDRESSES).map(|number| frame(TESTER, address(number), SMALLEST));
    let tested = (0..ADDRESSES).map(|number| frame(address(number), TESTER, SMALLEST));
    others.into_iter().chain(learned).chain(tested)
}

/// Returns the address with this number. All addresses differ, and successive addresses are not sequential:
/// RFC 2889 leaves the choice open, and some tables perform well only with sequential addresses.
fn address(number: usize) -> Mac {
    // Multiplication by an odd number permutes the numbers of 32 bits.
    let mixed = (number as u32).wrapping_mul(0x9e37_79b1);
    Mac::from_u64(0x0210_0000_0000 | u64::from(mixed))
}

/// Returns a frame of `size` bytes, without the check sequence: the device adds it, and `size` includes it.
fn frame(to: Mac, from: Mac, size: usize) -> Vec<u8> {
    let size = size - 4;
    let headers = 14 + 20 + 8;
    Builder::ethernet(to, from)
        .ipv4(Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2))
        .udp(1000, 2000)
        .payload(&vec![0; size.saturating_sub(headers)])
        .pad_to(size)
        .build()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn packet_ranges_select_the_intended_frames() {
        let frames: Vec<Vec<u8>> = frames().collect();
        let of = |portion: PacketRange| &frames[portion.first..portion.first + portion.len];
        assert_eq!(of(BROADCAST)[0][..6], [0xff; 6]);
        assert_eq!(of(NEIGHBOUR_SPEAKS)[0][6..12], NEIGHBOUR.0);
        assert_eq!(of(TO_NEIGHBOUR)[0][..6], NEIGHBOUR.0);
        assert_eq!([of(RUNTS)[0].len(), of(OVERSIZED_FRAMES)[0].len()], [59, 1596]);
        let mut pool = Pool::default();
        pool.take(10);
        let some = pool.take(1000);
        assert_eq!((some.learned().port, some.tested().port), (LEARNING, TEST));
        for (learned, tested) in of(some.learned()).iter().zip(of(some.tested())) {
            assert_eq!((learned.len(), &learned[6..12]), (60, &tested[..6]));
            assert_eq!((&learned[..6], &tested[6..12]), (&TESTER.0[..], &TESTER.0[..]));
        }
    }

    #[test]
    fn addresses_are_unique_and_unicast() {
        let addresses: HashSet<Mac> = (0..ADDRESSES).map(address).collect();
        assert_eq!(addresses.len(), ADDRESSES);
        assert!(addresses.iter().all(|mac| !mac.is_multicast()));
    }

    #[test]
    fn a_pool_returns_unused_addresses_until_all_were_used() {
        let mut pool = Pool::default();
        let (one, two) = (pool.take(100_000), pool.take(30_000));
        assert_eq!((one.first, two.first), (0, 100_000));
        assert_eq!(pool.take(2000).first, 0);
        assert_eq!(pool.take(usize::MAX).len, ADDRESSES);
    }
}
