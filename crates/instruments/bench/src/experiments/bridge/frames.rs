//! The frames that a learning bridge is offered: one file, from which runs of the generator take portions.

use std::net::Ipv4Addr;

use millrace_types::Mac;
use millrace_wire::Builder;

use crate::generate::Portion;

/// The port that addresses are learned on, the port that frames are sent to them from, and the port where none of these
/// frames must appear (RFC 2889, section 5.7: Lport, Tport, Mport).
pub(super) const LEARNING: u32 = 2;
/// As above.
pub(super) const TEST: u32 = 1;

/// The number of addresses to be learned. Each trial takes others: Open vSwitch has flows of those that it has seen,
/// and does not look at another frame of these for some time.
pub(super) const ADDRESSES: usize = 1 << 17;

/// The station at the test port.
const TESTER: Mac = Mac([0x02, 0, 0, 0, 0x01, 0x01]);
/// A station at the learning port that is not one of [`ADDRESSES`].
const NEIGHBOUR: Mac = Mac([0x02, 0, 0, 0, 0x02, 0x02]);

/// Frame sizes, check sequence included, bytes: the smallest that is allowed, one that is smaller, and one that is larger
/// than any, tags included.
const SMALLEST: usize = 64;
const RUNT: usize = 63;
const OVERSIZED: usize = 1600;

/// From the test port to all.
pub(super) const BROADCAST: Portion = single(TEST, 0);
/// The neighbour says that it is there.
pub(super) const NEIGHBOUR_SPEAKS: Portion = single(LEARNING, 1);
/// To the neighbour: a frame that is right, a runt, and an oversized one.
pub(super) const TO_NEIGHBOUR: Portion = single(TEST, 2);
/// As above.
pub(super) const RUNTS: Portion = single(TEST, 3);
/// As above.
pub(super) const OVERSIZED_FRAMES: Portion = single(TEST, 4);
/// Before the frames of addresses.
const OTHERS: usize = 5;

const fn single(port: u32, place: usize) -> Portion {
    Portion {
        port,
        first: place,
        len: 1,
    }
}

/// Some of the addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Addresses {
    first: usize,
    /// How many.
    pub(super) len: usize,
}

impl Addresses {
    /// One frame from each, to the tester.
    pub(super) fn learned(self) -> Portion {
        Portion {
            port: LEARNING,
            first: OTHERS + self.first,
            len: self.len,
        }
    }

    /// One frame from the tester to each.
    pub(super) fn tested(self) -> Portion {
        Portion {
            port: TEST,
            first: OTHERS + ADDRESSES + self.first,
            len: self.len,
        }
    }

    /// Returns the first few of them.
    pub(super) fn few(self, len: usize) -> Addresses {
        Addresses {
            len: self.len.min(len),
            ..self
        }
    }
}

/// Hands out addresses that were not used for as long as possible.
#[derive(Debug, Default)]
pub(super) struct Pool {
    next: usize,
}

impl Pool {
    /// So many, at most [`ADDRESSES`].
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

/// All frames, in the order that portions mean.
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

/// An address; no two are alike, and they do not follow each other (RFC 2889 leaves the choice, and some tables are only
/// good at sequences).
fn address(number: usize) -> Mac {
    // An odd factor permutes the numbers of 32 bits.
    let mixed = (number as u32).wrapping_mul(0x9e37_79b1);
    Mac::from_u64(0x0210_0000_0000 | u64::from(mixed))
}

/// `size` counts the check sequence, which the device adds.
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
    fn portions_name_the_frames_that_they_mean() {
        let frames: Vec<Vec<u8>> = frames().collect();
        let of = |portion: Portion| &frames[portion.first..portion.first + portion.len];
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
    fn no_two_addresses_are_alike_and_all_are_of_stations() {
        let addresses: HashSet<Mac> = (0..ADDRESSES).map(address).collect();
        assert_eq!(addresses.len(), ADDRESSES);
        assert!(addresses.iter().all(|mac| !mac.is_multicast()));
    }

    #[test]
    fn a_pool_hands_out_others_until_it_has_to_begin_anew() {
        let mut pool = Pool::default();
        let (one, two) = (pool.take(100_000), pool.take(30_000));
        assert_eq!((one.first, two.first), (0, 100_000));
        assert_eq!(pool.take(2000).first, 0);
        assert_eq!(pool.take(usize::MAX).len, ADDRESSES);
    }
}
