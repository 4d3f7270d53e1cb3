//! State that rules share: bits and counters of flows, bits of addresses and of address pairs.

use core::net::IpAddr;
use std::collections::HashMap;

use millrace_types::Time;

use super::program::{BitTable, CounterOperator, CounterTest, CounterValue, Effect, StateTest};
use crate::app::heap::Heap;
use crate::event::ALERT_BITS;
use crate::packet::Packet;

/// Lifetime of a bit of an address without `expire`, in seconds: that of Suricata.
const EXPIRE: u32 = 30;

/// Bits and counters of a flow.
#[derive(Debug, Default)]
pub struct FlowBits {
    bits: Vec<u64>,
    counters: Vec<(u32, u32)>,
    /// Values that expressions captured for the flow, with their names.
    variables: Vec<(Vec<u8>, Vec<u8>)>,
    /// Bits of transactions, the oldest first: the number of the transaction, and the bit.
    transactions: Vec<(u64, u32)>,
    /// The transaction in evaluation.
    pub(super) transaction: Option<u64>,
}

/// Largest number of bits of the transactions of a flow; the oldest is lost for another.
const TRANSACTION_BITS: usize = 256;

impl FlowBits {
    /// Clears all bits and counters, and keeps the memory.
    pub(crate) fn clear(&mut self) {
        self.bits.clear();
        self.counters.clear();
        self.variables.clear();
        self.transactions.clear();
        self.transaction = None;
    }

    /// Returns the bytes that bits and counters have allocated.
    pub(crate) fn heap(&self) -> usize {
        self.bits.capacity() * size_of::<u64>()
            + self.counters.capacity() * size_of::<(u32, u32)>()
            + self.variables.heap()
            + self.transactions.capacity() * size_of::<(u64, u32)>()
    }

    /// Returns true if a bit of the transaction in evaluation is set; `None` without one.
    fn has_in_transaction(&self, bit: u32) -> Option<bool> {
        let transaction = self.transaction?;
        Some(self.transactions.contains(&(transaction, bit)))
    }

    fn set_in_transaction(&mut self, bit: u32, value: Option<bool>) {
        let Some(transaction) = self.transaction else {
            return;
        };
        let at = self
            .transactions
            .iter()
            .position(|known| *known == (transaction, bit));
        match (value.unwrap_or(at.is_none()), at) {
            (true, None) => {
                if self.transactions.len() >= TRANSACTION_BITS {
                    self.transactions.remove(0);
                }
                self.transactions.push((transaction, bit));
            }
            (false, Some(at)) => {
                self.transactions.remove(at);
            }
            (true, Some(_)) | (false, None) => {}
        }
    }

    /// Returns true if a bit is set.
    pub fn has(&self, bit: u32) -> bool {
        let word = self.bits.get(bit as usize / 64).copied().unwrap_or(0);
        word >> (bit % 64) & 1 != 0
    }

    /// Returns the numbers of the bits that are set.
    pub fn numbers(&self) -> impl Iterator<Item = u32> {
        (0..self.bits.len() as u32 * 64).filter(|bit| self.has(*bit))
    }

    /// Returns the counters that were set, each with its value.
    pub fn counters(&self) -> impl Iterator<Item = (u32, u32)> {
        self.counters.iter().copied()
    }

    /// Returns what expressions captured for the flow, each with its name.
    pub fn variables(&self) -> &[(Vec<u8>, Vec<u8>)] {
        &self.variables
    }

    /// Keeps what an expression captured for the flow, in place of an earlier value; at most [`ALERT_BITS`] names are kept.
    pub(super) fn set_variable(&mut self, name: Vec<u8>, value: Vec<u8>) {
        let at = self.variables.iter().position(|(known, _)| *known == name);
        match at {
            Some(at) => self.variables[at].1 = value,
            None if self.variables.len() < ALERT_BITS => self.variables.push((name, value)),
            None => {}
        }
    }

    fn set(&mut self, bit: u32, value: bool) {
        let at = bit as usize / 64;
        if at >= self.bits.len() {
            if !value {
                return;
            }
            self.bits.resize(at + 1, 0);
        }
        match value {
            true => self.bits[at] |= 1 << (bit % 64),
            false => self.bits[at] &= !(1 << (bit % 64)),
        }
    }

    /// Returns a counter, if it was set.
    pub fn counter(&self, counter: u32) -> Option<u32> {
        let found = self.counters.iter().find(|(known, _)| *known == counter)?;
        Some(found.1)
    }

    fn value(&self, value: CounterValue) -> Option<u32> {
        match value {
            CounterValue::Number(number) => Some(number),
            CounterValue::Counter(counter) => self.counter(counter),
        }
    }

    fn is_true(&self, counter: u32, test: CounterTest) -> bool {
        let current = self.counter(counter);
        let compare = |value, holds: fn(u32, u32) -> bool| match (current, self.value(value)) {
            (Some(current), Some(value)) => holds(current, value),
            _ => false,
        };
        match test {
            CounterTest::IsSet(asked) => current.is_some() == asked,
            CounterTest::Equal(value) => compare(value, |a, b| a == b),
            CounterTest::NotEqual(value) => compare(value, |a, b| a != b),
            CounterTest::Less(value) => compare(value, |a, b| a < b),
            CounterTest::LessOrEqual(value) => compare(value, |a, b| a <= b),
            CounterTest::Greater(value) => compare(value, |a, b| a > b),
            CounterTest::GreaterOrEqual(value) => compare(value, |a, b| a >= b),
        }
    }

    fn change(&mut self, counter: u32, operator: CounterOperator, value: CounterValue) {
        let Some(value) = self.value(value) else { return };
        let before = self.counter(counter).unwrap_or(0);
        let after = match operator {
            CounterOperator::Set => value,
            CounterOperator::Add => before.saturating_add(value),
            CounterOperator::Subtract => before.saturating_sub(value),
        };
        match self.counters.iter_mut().find(|(known, _)| *known == counter) {
            Some(known) => known.1 = after,
            None => self.counters.push((counter, after)),
        }
    }
}

/// The owner of a bit: an address, or an ordered pair of addresses.
type Owner = (IpAddr, Option<IpAddr>);

/// Bits of addresses and of address pairs, each with its expiry time.
#[derive(Debug, Default)]
pub(super) struct AddressBits {
    expiry: HashMap<(Owner, u32), Time>,
    /// Largest number of stored bits.
    limit: usize,
    /// Number of bits that were not stored because the limit was reached.
    pub(super) lost: u64,
}

fn owner(table: BitTable, packet: &Packet<'_>) -> Option<Owner> {
    match table {
        BitTable::Flow | BitTable::Transaction => None,
        BitTable::Source => Some((packet.src, None)),
        BitTable::Destination => Some((packet.dst, None)),
        BitTable::Pair => Some((packet.src.min(packet.dst), Some(packet.src.max(packet.dst)))),
    }
}

impl AddressBits {
    /// Returns an empty table for at most `limit` bits.
    pub(super) fn new(limit: usize) -> AddressBits {
        AddressBits {
            limit,
            ..AddressBits::default()
        }
    }

    fn has(&self, owner: Owner, bit: u32, now: Time) -> bool {
        self.expiry
            .get(&(owner, bit))
            .is_some_and(|expiry| expiry.nanos() > now.nanos())
    }

    fn set(&mut self, owner: Owner, bit: u32, value: bool, expire: u32, now: Time) {
        if !value {
            self.expiry.remove(&(owner, bit));
            return;
        }
        if self.expiry.len() >= self.limit && !self.expiry.contains_key(&(owner, bit)) {
            self.make_room(now);
        }
        let seconds = if expire == 0 { EXPIRE } else { expire };
        let expiry = now.nanos().saturating_add(u64::from(seconds) * 1_000_000_000);
        self.expiry.insert((owner, bit), Time::from_nanos(expiry));
    }

    /// Removes the bits that expired, and if the table is still more than 7/8 full, those that expire first. The table is thus
    /// searched at most once for each eighth of it that is filled.
    #[cold]
    fn make_room(&mut self, now: Time) {
        self.expiry.retain(|_, expiry| expiry.nanos() > now.nanos());
        let kept = self.limit - self.limit.div_ceil(8);
        let surplus = self.expiry.len().saturating_sub(kept);
        if surplus == 0 {
            return;
        }
        let mut times: Vec<Time> = self.expiry.values().copied().collect();
        let (earlier, last, _) = times.select_nth_unstable(surplus - 1);
        let last = *last;
        // Of the bits that expire together, some may stay.
        let mut equal = surplus - earlier.iter().filter(|time| **time < last).count();
        self.expiry.retain(|_, expiry| {
            if *expiry == last && equal > 0 {
                equal -= 1;
                return false;
            }
            *expiry >= last
        });
        self.lost += surplus as u64;
    }

    /// Removes all bits.
    pub(super) fn clear(&mut self) {
        self.expiry.clear();
    }
}

/// Returns true if shared state satisfies a condition.
pub(super) fn is_true(
    test: &StateTest,
    packet: &Packet<'_>,
    flow: Option<&FlowBits>,
    addresses: &AddressBits,
) -> bool {
    match test {
        StateTest::Bits {
            table,
            bits,
            is_all,
            is_negated,
        } => {
            let has = |bit: &u32| match owner(*table, packet) {
                Some(owner) => addresses.has(owner, *bit, packet.time),
                None if *table == BitTable::Transaction => {
                    flow.is_some_and(|flow| flow.has_in_transaction(*bit) == Some(true))
                }
                None => flow.is_some_and(|flow| flow.has(*bit)),
            };
            let is_there = match table {
                BitTable::Flow => flow.is_some(),
                BitTable::Transaction => flow.is_some_and(|flow| flow.transaction.is_some()),
                _ => true,
            };
            if !is_there {
                return false;
            }
            // A negated test with alternatives is true if at least one of the bits is not set.
            match (is_all, is_negated) {
                (true, false) => bits.iter().all(has),
                (true, true) => bits.iter().all(|bit| !has(bit)),
                (false, false) => bits.iter().any(has),
                (false, true) => bits.iter().any(|bit| !has(bit)),
            }
        }
        StateTest::Counter { counter, test } => flow.is_some_and(|flow| flow.is_true(*counter, *test)),
    }
}

/// Applies a change of shared state.
pub(super) fn apply(
    effect: &Effect,
    packet: &Packet<'_>,
    flow: Option<&mut FlowBits>,
    addresses: &mut AddressBits,
) {
    match effect {
        Effect::Bits {
            table,
            bits,
            value,
            expire,
        } => match (owner(*table, packet), flow) {
            (Some(owner), _) => {
                for &bit in bits {
                    let value = value.unwrap_or_else(|| !addresses.has(owner, bit, packet.time));
                    addresses.set(owner, bit, value, *expire, packet.time);
                }
            }
            (None, Some(flow)) if *table == BitTable::Transaction => {
                bits.iter().for_each(|bit| flow.set_in_transaction(*bit, *value));
            }
            (None, Some(flow)) => {
                for &bit in bits {
                    flow.set(bit, value.unwrap_or_else(|| !flow.has(bit)));
                }
            }
            (None, None) => {}
        },
        Effect::Counter {
            counter,
            operator,
            value,
        } => {
            if let Some(flow) = flow {
                flow.change(*counter, *operator, *value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: u32 = 3600;

    fn owner(number: u32) -> Owner {
        (IpAddr::from(number.to_be_bytes()), None)
    }

    #[test]
    fn a_full_table_loses_the_eighth_of_its_bits_that_expires_first() {
        let mut bits = AddressBits::new(64);
        let now = Time::from_secs(100);
        for number in 0..64 {
            bits.set(owner(number), 1, true, HOUR + number, now);
        }
        bits.set(owner(64), 1, true, 1, now);
        assert_eq!((bits.expiry.len(), bits.lost), (57, 8));
        assert!(bits.has(owner(64), 1, now));
        for number in 0..64 {
            assert_eq!(bits.has(owner(number), 1, now), number >= 8, "{number}");
        }
        // Bits that expire at the same time are not lost together.
        let mut bits = AddressBits::new(64);
        for number in 0..1000 {
            bits.set(owner(number), 1, true, HOUR, now);
            assert!(bits.has(owner(number), 1, now));
        }
        assert!((57..=64).contains(&bits.expiry.len()), "{}", bits.expiry.len());
        assert_eq!(bits.lost as usize + bits.expiry.len(), 1000);
    }

    #[test]
    fn a_bit_that_is_set_is_renewed_in_a_full_table() {
        let mut bits = AddressBits::new(4);
        for number in 0..4 {
            bits.set(owner(number), 1, true, 10, Time::from_secs(0));
        }
        bits.set(owner(0), 1, true, 10, Time::from_secs(5));
        assert_eq!((bits.expiry.len(), bits.lost), (4, 0));
        assert!(bits.has(owner(0), 1, Time::from_secs(14)));
    }

    #[test]
    fn bits_that_expired_make_room_without_a_loss() {
        let mut bits = AddressBits::new(4);
        for number in 0..4 {
            bits.set(owner(number), 1, true, 10, Time::from_secs(0));
        }
        bits.set(owner(4), 1, true, 10, Time::from_secs(10));
        assert_eq!((bits.expiry.len(), bits.lost), (1, 0));
    }
}
