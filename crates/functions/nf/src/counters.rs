//! Counters of a function: written by the thread that runs it, read by any thread.

use core::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

#[derive(Debug)]
struct Inner {
    names: &'static [&'static str],
    values: Box<[AtomicU64]>,
}

/// Counters in the order of their names. Clones share the counters.
#[derive(Clone, Debug)]
pub struct Counters(Arc<Inner>);

impl Counters {
    /// Returns one counter for each name, all zero.
    pub fn new(names: &'static [&'static str]) -> Counters {
        Counters(Arc::new(Inner {
            names,
            values: names.iter().map(|_| AtomicU64::new(0)).collect(),
        }))
    }

    /// Adds to the counter at an index; does nothing if there is no such counter. Only the thread that runs
    /// the function may call this, as a second writer would lose counts.
    #[inline]
    pub fn add(&self, index: usize, amount: u64) {
        if let Some(value) = self.0.values.get(index) {
            value.store(
                value.load(Ordering::Relaxed).wrapping_add(amount),
                Ordering::Relaxed,
            );
        }
    }

    /// Sets the counter at an index to a level, such as the number of entries of a table.
    #[inline]
    pub fn set(&self, index: usize, level: u64) {
        if let Some(value) = self.0.values.get(index) {
            value.store(level, Ordering::Relaxed);
        }
    }

    /// Returns the number of counters.
    pub fn len(&self) -> usize {
        self.0.values.len()
    }

    /// Returns whether there are no counters.
    pub fn is_empty(&self) -> bool {
        self.0.values.is_empty()
    }

    /// Returns the address of the first counter.
    #[cfg(target_arch = "wasm32")]
    pub(crate) fn address(&self) -> usize {
        self.0.values.as_ptr() as usize
    }

    /// Returns the names with their current values.
    pub fn read(&self) -> Vec<(&'static str, u64)> {
        let values = self.0.values.iter().map(|value| value.load(Ordering::Relaxed));
        self.0.names.iter().copied().zip(values).collect()
    }

    /// Returns the value of the counter with a name.
    pub fn value(&self, name: &str) -> Option<u64> {
        self.read()
            .into_iter()
            .find(|(held, _)| *held == name)
            .map(|(_, value)| value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_read_by_name() {
        let counters = Counters::new(&["one", "two"]);
        counters.add(0, 1);
        counters.add(0, 2);
        counters.set(1, 7);
        counters.add(2, 1);
        assert_eq!(counters.read(), [("one", 3), ("two", 7)]);
        assert_eq!(counters.value("two"), Some(7));
        assert_eq!(counters.value("three"), None);
    }
}
