//! The numbers of interfaces (ifIndex). They follow from the names alone, so that they are the same after a restart of any
//! program, on any machine, without a file (ADR 65).

use std::collections::{BTreeMap, BTreeSet};

/// The largest number (RFC 2863, InterfaceIndex).
const MAX: u64 = 0x7fff_ffff;

/// The numbers of a set of names.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Numbers(BTreeMap<String, u32>);

impl Numbers {
    /// Returns the numbers of these names. Of two names with one number, which is seldom (one set in 4,000 with 1,000 names), the later
    /// one takes the next.
    pub fn of(names: impl IntoIterator<Item = String>) -> Numbers {
        let names: BTreeSet<String> = names.into_iter().collect();
        let mut taken = BTreeSet::new();
        let mut numbers = BTreeMap::new();
        for name in names {
            let mut number = hash(&name) % MAX + 1;
            while !taken.insert(number) {
                number = number % MAX + 1;
            }
            numbers.insert(name, number as u32);
        }
        Numbers(numbers)
    }

    /// Returns the number of a name.
    pub fn get(&self, name: &str) -> Option<u32> {
        self.0.get(name).copied()
    }
}

/// FNV-1a with 64 bits, folded.
fn hash(name: &str) -> u64 {
    let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    hash ^ hash >> 32
}
