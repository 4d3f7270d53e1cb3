//! Counters of a function: named once, written by the thread that runs it, read by anybody.

use core::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

#[derive(Debug)]
struct Inner {
    names: &'static [&'static str],
    values: Box<[AtomicU64]>,
}

/// Counters in the order of their names. Clones are the same counters.
#[derive(Clone, Debug)]
pub struct Counters(Arc<Inner>);

impl Counters {
    /// One counter, at zero, for each name.
    pub fn new(names: &'static [&'static str]) -> Counters {
        Counters(Arc::new(Inner {
            names,
            values: names.iter().map(|_| AtomicU64::new(0)).collect(),
        }))
    }

    /// Adds to a counter by its place. For the one thread that runs the function: a second one would lose counts. A
    /// place that is not there counts nothing.
    #[inline]
    pub fn add(&self, place: usize, amount: u64) {
        if let Some(value) = self.0.values.get(place) {
            value.store(
                value.load(Ordering::Relaxed).wrapping_add(amount),
                Ordering::Relaxed,
            );
        }
    }

    /// Sets a counter that is a level: entries in a table.
    #[inline]
    pub fn set(&self, place: usize, level: u64) {
        if let Some(value) = self.0.values.get(place) {
            value.store(level, Ordering::Relaxed);
        }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.values.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.values.is_empty()
    }

    /// Where they lie in memory.
    #[cfg(target_arch = "wasm32")]
    pub(crate) fn place(&self) -> usize {
        self.0.values.as_ptr() as usize
    }

    /// Names and values now.
    pub fn read(&self) -> Vec<(&'static str, u64)> {
        let values = self.0.values.iter().map(|value| value.load(Ordering::Relaxed));
        self.0.names.iter().copied().zip(values).collect()
    }

    /// The value of a counter by its name.
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
