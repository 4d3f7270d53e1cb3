//! Model switches with entries, a connection, operations that take time, and faults.

use std::collections::BTreeMap;

use millrace_ix_engine::{Content, Entries, Event, Modification, Session};
use millrace_types::{Duration, Time};

/// The entries of the model: (table, number) with (owner, number).
#[derive(Debug)]
pub(crate) struct Toy;

pub(crate) type Key = (u8, u32);
pub(crate) type Value = (bool, u64);

/// The table of markers.
pub(crate) const MARKER: Key = (9, 0);

impl Entries for Toy {
    type Key = Key;
    type Value = Value;

    fn marker(revision: u64) -> (Key, Value) {
        (MARKER, (true, revision))
    }

    fn revision(key: &Key, value: &Value) -> Option<u64> {
        (*key == MARKER).then_some(value.1)
    }

    fn is_ours(_: &Key, value: &Value) -> bool {
        value.0
    }

    fn references(_: &Value) -> Vec<Key> {
        Vec::new()
    }
}

/// An operation that the switch has not answered.
#[derive(Debug)]
enum Operation {
    Dump,
    Commit(u64, Vec<Modification<Key, Value>>),
}

/// A switch with its connection.
#[derive(Debug, Default)]
pub(crate) struct ModelSwitch {
    pub(crate) content: Content<Toy>,
    /// The number of times that each entry was written. A correct entry is never written again.
    pub(crate) writes: BTreeMap<Key, u32>,
    pub(crate) session: Option<Session>,
    /// True while the switch answers no operation.
    pub(crate) deaf: bool,
    /// The switch refuses commits that set one of these keys.
    pub(crate) refuses: Vec<Key>,
    /// The switch refuses commits that remove one of these keys.
    pub(crate) refuses_removal: Vec<Key>,
    /// The number of dumps, from the next one on, that fail.
    pub(crate) broken_dumps: u32,
    pub(crate) commits: u32,
    operations: Vec<(Time, Operation)>,
}

impl ModelSwitch {
    pub(crate) fn dump(&mut self, at: Time) {
        self.operations.push((at, Operation::Dump));
    }

    pub(crate) fn commit(&mut self, at: Time, number: u64, modifications: Vec<Modification<Key, Value>>) {
        self.operations
            .push((at, Operation::Commit(number, modifications)));
    }

    /// Returns the time of the next answer.
    pub(crate) fn next(&self) -> Option<Time> {
        if self.deaf {
            None
        } else {
            self.operations.iter().map(|(at, _)| *at).min()
        }
    }

    /// Executes the operation that is due, and returns its answer.
    pub(crate) fn answer(&mut self, switch: u32, now: Time) -> Option<Event<Toy>> {
        let index = self
            .operations
            .iter()
            .position(|(at, _)| *at <= now)
            .filter(|_| !self.deaf)?;
        let session = self.session?;
        match self.operations.remove(index).1 {
            Operation::Dump if self.broken_dumps > 0 => {
                self.broken_dumps -= 1;
                Some(Event::Dumped {
                    switch,
                    session,
                    content: Err("part 3 of 9 is missing".to_owned()),
                })
            }
            Operation::Dump => Some(Event::Dumped {
                switch,
                session,
                content: Ok(self.content.clone()),
            }),
            Operation::Commit(commit, modifications) => Some(match self.apply(modifications) {
                Ok(()) => Event::Committed {
                    switch,
                    session,
                    commit,
                },
                Err(key) => Event::Refused {
                    switch,
                    session,
                    commit,
                    reason: format!("OFPFMFC_TABLE_FULL: {key:?}"),
                    partly: false,
                },
            }),
        }
    }

    fn apply(&mut self, modifications: Vec<Modification<Key, Value>>) -> Result<(), Key> {
        let refused = |change: &&Modification<Key, Value>| match change.to {
            Some(_) => self.refuses.contains(&change.key),
            None => self.refuses_removal.contains(&change.key),
        };
        if let Some(change) = modifications.iter().find(refused) {
            return Err(change.key);
        }
        self.commits += 1;
        for Modification { key, to, .. } in modifications {
            *self.writes.entry(key).or_default() += 1;
            match to {
                Some(value) => self.content.insert(key, value),
                None => self.content.remove(&key),
            };
        }
        Ok(())
    }

    /// Ends the connection. Pending commits are executed if `applied`, but are not answered.
    pub(crate) fn cut(&mut self, applied: bool) -> Option<Session> {
        for (_, operation) in std::mem::take(&mut self.operations) {
            if let (true, Operation::Commit(_, modifications)) = (applied, operation) {
                let _ = self.apply(modifications);
            }
        }
        self.session.take()
    }

    /// Restarts the switch without entries.
    pub(crate) fn wipe(&mut self) {
        self.content.clear();
    }
}

/// A random number generator (xorshift64*; Vigna, 2016).
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % bound
    }

    pub(crate) fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    pub(crate) fn millis(&mut self, low: u64, high: u64) -> Duration {
        Duration::from_millis(low + self.below(high - low + 1))
    }
}
