//! The names of series, and the units of their values in files.

use core::cmp::Ordering;

use crate::point;

/// The subject of a series, by the numbers of its identifiers.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Subject {
    Connection(u32),
    /// An end of a service.
    End(u32),
    /// A trunk: `in` is from its first end to the second one.
    Trunk(u32),
    /// The traffic from one account to another one.
    Peers {
        /// The account that sends.
        from: u32,
        /// The account that receives.
        to: u32,
    },
    /// Two sites, the one with the lower number first.
    Sites(u32, u32),
    /// The whole exchange.
    Exchange,
}

/// The quantity that a series measures. `In` is towards the exchange.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum Measure {
    /// Counted bit/s of frames that enter.
    In = 0,
    /// Counted bit/s of frames that leave.
    Out = 1,
    /// Sampled bit/s of IPv4 packets that enter.
    InIpv4 = 2,
    /// Sampled bit/s of IPv6 packets that enter.
    InIpv6 = 3,
    /// Sampled bit/s of IPv4 packets that leave.
    OutIpv4 = 4,
    /// Sampled bit/s of IPv6 packets that leave.
    OutIpv6 = 5,
    /// The round-trip time in microseconds.
    RoundTrip = 6,
}

impl Measure {
    /// Rates that switches count.
    pub const COUNTED: [Measure; 2] = [Measure::In, Measure::Out];

    /// Rates of traffic, counted and sampled.
    pub const TRAFFIC: [Measure; 6] = [
        Measure::In,
        Measure::Out,
        Measure::InIpv4,
        Measure::InIpv6,
        Measure::OutIpv4,
        Measure::OutIpv6,
    ];

    const ALL: [Measure; 7] = [
        Measure::In,
        Measure::Out,
        Measure::InIpv4,
        Measure::InIpv6,
        Measure::OutIpv4,
        Measure::OutIpv6,
        Measure::RoundTrip,
    ];
}

/// The name of a series. Keys have the order of their bytes, by which files are searched.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Key {
    pub subject: Subject,
    pub measure: Measure,
}

/// The size of a key in files, in bytes.
pub(crate) const KEY_SIZE: usize = 10;

/// The kind of the subject whose values are in units of [`EXCHANGE_UNIT`].
const EXCHANGE: u8 = 6;
/// The unit of the whole exchange's rates in files, in bit/s: the largest code is 4.39 Pbit/s.
const EXCHANGE_UNIT: u64 = 1000;

impl Key {
    /// Returns the key of a measure of a subject.
    pub const fn new(subject: Subject, measure: Measure) -> Key {
        Key { subject, measure }
    }

    /// Returns the unit of the values in files.
    const fn unit(self) -> u64 {
        match self.subject {
            Subject::Exchange => EXCHANGE_UNIT,
            _ => 1,
        }
    }

    /// Returns the code of a value. A value that is too large gets the largest code.
    pub(crate) fn encode(self, value: u64) -> u16 {
        let half = self.unit() / 2;
        point::encode(value.saturating_add(half) / self.unit())
    }

    /// Returns the value of a code; `None` for a gap.
    pub(crate) fn decode(self, code: u16) -> Option<u64> {
        point::decode(code).map(|value| value.saturating_mul(self.unit()))
    }

    /// Returns the key as it is in files: kind of subject, measure, and two numbers in network byte order.
    pub(crate) fn bytes(self) -> [u8; KEY_SIZE] {
        let (kind, one, two) = match self.subject {
            Subject::Exchange => (EXCHANGE, 0, 0),
            Subject::Connection(number) => (1, number, 0),
            Subject::End(number) => (2, number, 0),
            Subject::Trunk(number) => (3, number, 0),
            Subject::Peers { from, to } => (4, from, to),
            Subject::Sites(one, two) => (5, one, two),
        };
        let mut bytes = [0; KEY_SIZE];
        bytes[0] = kind;
        bytes[1] = self.measure as u8;
        bytes[2..6].copy_from_slice(&u32::to_be_bytes(one));
        bytes[6..].copy_from_slice(&u32::to_be_bytes(two));
        bytes
    }

    /// Returns the key that some bytes stand for.
    pub(crate) fn from_bytes(bytes: [u8; KEY_SIZE]) -> Option<Key> {
        let [kind, measure, a, b, c, d, e, f, g, h] = bytes;
        let (one, two) = (u32::from_be_bytes([a, b, c, d]), u32::from_be_bytes([e, f, g, h]));
        let subject = match (kind, two) {
            (EXCHANGE, 0) if one == 0 => Subject::Exchange,
            (1, 0) => Subject::Connection(one),
            (2, 0) => Subject::End(one),
            (3, 0) => Subject::Trunk(one),
            (4, _) => Subject::Peers { from: one, to: two },
            (5, _) => Subject::Sites(one, two),
            _ => return None,
        };
        let measure = Measure::ALL.into_iter().find(|found| *found as u8 == measure)?;
        Some(Key { subject, measure })
    }
}

impl Ord for Key {
    fn cmp(&self, other: &Key) -> Ordering {
        self.bytes().cmp(&other.bytes())
    }
}

impl PartialOrd for Key {
    fn partial_cmp(&self, other: &Key) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn keys_have_the_order_of_their_bytes(one in prop::array::uniform10(0..7u8), two in prop::array::uniform10(0..7u8)) {
            if let (Some(a), Some(b)) = (Key::from_bytes(one), Key::from_bytes(two)) {
                prop_assert_eq!(a.cmp(&b), one.cmp(&two));
            }
        }

        #[test]
        fn bytes_are_either_no_key_or_those_of_the_key(bytes in prop::array::uniform10(any::<u8>())) {
            if let Some(key) = Key::from_bytes(bytes) {
                prop_assert_eq!(key.bytes(), bytes);
            }
        }

        #[test]
        fn a_key_is_read_back(kind in 1..7u8, one in any::<u32>(), two in any::<u32>(), measure in 0..7usize) {
            let subject = match kind {
                EXCHANGE => Subject::Exchange,
                1 => Subject::Connection(one),
                2 => Subject::End(one),
                3 => Subject::Trunk(one),
                4 => Subject::Peers { from: one, to: two },
                _ => Subject::Sites(one, two),
            };
            let key = Key::new(subject, Measure::ALL[measure]);
            prop_assert_eq!(Key::from_bytes(key.bytes()), Some(key));
        }
    }
}
