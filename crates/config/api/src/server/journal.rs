//! The state that others follow: present values by kind and key, and a ring of the last changes.
//!
//! ```text
//!  publish ──▶ values (kind, key) ──▶ /state, with the cursor of the last change
//!         └──▶ ring: 17 18 19 20 21 ──▶ streams, each at a place of its own
//!                    ▲ a stream that is before 17 is reset
//! ```
//!
//! Memory is bounded by the values and the ring, whatever readers do. A value that is published again without a change
//! is no event. Publishing takes a lock for some microseconds and never waits for a reader.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use parking_lot::Mutex;
use serde::Serialize;
use serde_json::Value as Json;
use tokio::sync::watch;

use crate::view::{State, StateKind};

/// The largest number of changes in the ring.
const RING_MAX_LEN: usize = 8192;
/// The largest size of the changes in the ring, in bytes of their JSON.
const RING_MAX_SIZE: usize = 4 << 20;

/// A place in the sequence of changes of one run of the daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Cursor {
    /// The run of the daemon.
    epoch: u64,
    /// The number of changes before this place.
    sequence: u64,
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}-{}", self.epoch, self.sequence)
    }
}

impl FromStr for Cursor {
    type Err = ();

    fn from_str(text: &str) -> Result<Cursor, ()> {
        let (epoch, sequence) = text.split_once('-').ok_or(())?;
        Ok(Cursor {
            epoch: u64::from_str_radix(epoch, 16).map_err(drop)?,
            sequence: sequence.parse().map_err(drop)?,
        })
    }
}

/// A change of one value.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Entry {
    pub(super) kind: StateKind,
    pub(super) key: Arc<str>,
    /// The new value; `None` if the key is gone.
    pub(super) value: Option<Arc<Json>>,
    /// The place after this change.
    pub(super) cursor: Cursor,
    size: usize,
}

#[derive(Debug, Default)]
struct Inner {
    values: BTreeMap<StateKind, BTreeMap<Arc<str>, Arc<Json>>>,
    ring: VecDeque<Entry>,
    ring_size: usize,
    /// The number of changes since the start.
    sequence: u64,
}

/// The state that others follow. Clones share it.
#[derive(Debug, Clone)]
pub struct Journal(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    epoch: u64,
    inner: Mutex<Inner>,
    newest: watch::Sender<u64>,
}

/// The changes after a place.
#[derive(Debug, PartialEq)]
pub(super) enum Changes {
    /// Some of the changes of the wanted kinds, and the place after them.
    Next(Vec<Entry>, Cursor),
    /// The changes after the place are no longer in the ring, or the place is of another run. The present place.
    Lost(Cursor),
}

impl Journal {
    /// Returns an empty journal. `epoch` differs in each run of the daemon.
    pub(super) fn new(epoch: u64) -> Journal {
        Journal(Arc::new(Shared {
            epoch,
            inner: Mutex::default(),
            newest: watch::Sender::new(0),
        }))
    }

    fn at(&self, sequence: u64) -> Cursor {
        Cursor {
            epoch: self.0.epoch,
            sequence,
        }
    }

    /// Sets a value. It is an event if the value differs from the present one.
    pub fn publish(&self, kind: StateKind, key: &str, value: &impl Serialize) {
        if let Ok(json) = serde_json::to_value(value) {
            self.change(|journal, inner| journal.set(inner, kind, key, Some(json)));
        }
    }

    /// Removes a value.
    pub fn remove(&self, kind: StateKind, key: &str) {
        self.change(|journal, inner| journal.set(inner, kind, key, None));
    }

    /// Publishes a value, or removes it if there is none.
    pub fn keep(&self, kind: StateKind, key: &str, value: Option<&impl Serialize>) {
        match value {
            Some(value) => self.publish(kind, key, value),
            None => self.remove(kind, key),
        }
    }

    /// Removes the values of all kinds whose key begins with `prefix`.
    pub fn remove_all(&self, prefix: &str) {
        self.change(|journal, inner| {
            let keys: Vec<_> = inner
                .values
                .iter()
                .flat_map(|(kind, values)| values.keys().map(|key| (*kind, Arc::clone(key))))
                .filter(|(_, key)| key.starts_with(prefix))
                .collect();
            for (kind, key) in keys {
                journal.set(inner, kind, &key, None);
            }
        });
    }

    /// Makes `values` the values of a kind.
    pub(super) fn replace(&self, kind: StateKind, mut values: BTreeMap<String, Json>) {
        self.change(|journal, inner| {
            let known = inner.values.get(&kind);
            let gone: Vec<_> = known
                .into_iter()
                .flat_map(BTreeMap::keys)
                .filter(|key| !values.contains_key(&***key))
                .cloned()
                .collect();
            for key in gone {
                journal.set(inner, kind, &key, None);
            }
            while let Some((key, value)) = values.pop_first() {
                journal.set(inner, kind, &key, Some(value));
            }
        });
    }

    fn change(&self, change: impl FnOnce(&Journal, &mut Inner)) {
        let mut inner = self.0.inner.lock();
        let before = inner.sequence;
        change(self, &mut inner);
        let after = inner.sequence;
        drop(inner);
        if after != before {
            // Publishers may arrive here in another order.
            self.0.newest.send_if_modified(|newest| {
                let is_new = after > *newest;
                *newest = after.max(*newest);
                is_new
            });
        }
    }

    fn set(&self, inner: &mut Inner, kind: StateKind, key: &str, value: Option<Json>) {
        let values = inner.values.entry(kind).or_default();
        if values.get(key).map(|known| &**known) == value.as_ref() {
            return;
        }
        let (key, value): (Arc<str>, _) = (key.into(), value.map(Arc::new));
        match &value {
            Some(value) => drop(values.insert(Arc::clone(&key), Arc::clone(value))),
            None => drop(values.remove(&key)),
        }
        inner.sequence += 1;
        let entry = Entry {
            kind,
            size: key.len() + value.as_ref().map_or(0, |value| value.to_string().len()),
            key,
            value,
            cursor: self.at(inner.sequence),
        };
        inner.ring_size += entry.size;
        inner.ring.push_back(entry);
        while inner.ring.len() > RING_MAX_LEN || inner.ring_size > RING_MAX_SIZE {
            let Some(oldest) = inner.ring.pop_front() else {
                return;
            };
            inner.ring_size -= oldest.size;
        }
    }

    /// Returns the present values of the wanted kinds, and the place of the last change.
    pub(super) fn state(&self, kinds: &[StateKind]) -> State {
        let inner = self.0.inner.lock();
        let values = |kind: &StateKind| {
            let values = inner.values.get(kind).into_iter().flatten();
            values
                .map(|(key, value)| (key.to_string(), Json::clone(value)))
                .collect()
        };
        State {
            cursor: self.at(inner.sequence).to_string(),
            state: kinds.iter().map(|kind| (*kind, values(kind))).collect(),
        }
    }

    /// Returns a part of the changes after a place, at most `limit` of them.
    pub(super) fn after(&self, place: Option<Cursor>, kinds: &[StateKind], limit: usize) -> Changes {
        let inner = self.0.inner.lock();
        let present = self.at(inner.sequence);
        let oldest = inner.sequence - inner.ring.len() as u64;
        let known = place.filter(|place| {
            place.epoch == self.0.epoch && (oldest..=inner.sequence).contains(&place.sequence)
        });
        let Some(place) = known else {
            return Changes::Lost(present);
        };
        let skipped = usize::try_from(place.sequence - oldest).unwrap_or(usize::MAX);
        let mut entries = Vec::new();
        let mut end = place;
        for entry in inner.ring.iter().skip(skipped) {
            if entries.len() == limit {
                break;
            }
            end = entry.cursor;
            if kinds.contains(&entry.kind) {
                entries.push(entry.clone());
            }
        }
        Changes::Next(entries, end)
    }

    /// Returns a receiver that changes with each change of the journal.
    pub(super) fn watch(&self) -> watch::Receiver<u64> {
        self.0.newest.subscribe()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const ALL: [StateKind; 7] = StateKind::ALL;

    fn place(journal: &Journal) -> Option<Cursor> {
        journal.state(&ALL).cursor.parse().ok()
    }

    fn next(journal: &Journal, place: Option<Cursor>) -> Vec<(String, Option<Json>)> {
        match journal.after(place, &ALL, usize::MAX) {
            Changes::Next(entries, _) => entries
                .into_iter()
                .map(|entry| {
                    (
                        entry.key.to_string(),
                        entry.value.map(|value| Json::clone(&value)),
                    )
                })
                .collect(),
            Changes::Lost(_) => panic!("the place is lost"),
        }
    }

    #[test]
    fn a_snapshot_and_the_changes_after_its_cursor_are_the_present_state() {
        let journal = Journal::new(7);
        journal.publish(StateKind::Links, "br0/p1", &true);
        let first = place(&journal);
        assert!(next(&journal, first).is_empty());
        journal.publish(StateKind::Links, "br0/p1", &true);
        assert_eq!(place(&journal), first, "no change is no event");
        journal.publish(StateKind::Links, "br0/p1", &false);
        journal.publish(StateKind::Ports, "br1/p1", &1);
        journal.remove_all("br0/");
        journal.replace(StateKind::Shortfalls, [("a".to_owned(), json!(1))].into());
        journal.replace(StateKind::Shortfalls, [("b".to_owned(), json!(2))].into());
        let expected = [
            ("br0/p1", Some(json!(false))),
            ("br1/p1", Some(json!(1))),
            ("br0/p1", None),
            ("a", Some(json!(1))),
            ("a", None),
            ("b", Some(json!(2))),
        ];
        assert_eq!(
            next(&journal, first),
            expected.map(|(key, value)| (key.to_owned(), value))
        );
        let state = journal.state(&[StateKind::Ports, StateKind::Links]);
        assert_eq!(
            serde_json::to_value(&state.state).ok(),
            Some(json!({"links": {}, "ports": {"br1/p1": 1}}))
        );
    }

    #[test]
    fn the_changes_of_other_kinds_are_passed_over() {
        let journal = Journal::new(7);
        let first = place(&journal);
        for number in 0..100 {
            journal.publish(StateKind::Ports, &format!("br0/p{number}"), &number);
        }
        journal.publish(StateKind::Links, "br0/p1", &true);
        let Changes::Next(entries, end) = journal.after(first, &[StateKind::Links], 1) else {
            panic!("the place is lost");
        };
        assert_eq!((entries.len(), Some(end)), (1, place(&journal)));
    }

    #[test]
    fn a_reader_that_falls_behind_is_told_and_memory_stays_bounded() {
        let journal = Journal::new(7);
        let first = place(&journal);
        for number in 0..RING_MAX_LEN {
            journal.publish(StateKind::Links, "br0/p1", &number);
        }
        assert_eq!(next(&journal, first).len(), RING_MAX_LEN);
        journal.publish(StateKind::Links, "br0/p1", &"one more");
        assert_eq!(
            journal.after(first, &ALL, 1),
            Changes::Lost(place(&journal).unwrap())
        );
        let long = "x".repeat(RING_MAX_SIZE / 10);
        for number in 0..40 {
            journal.publish(StateKind::Lldp, "br0/p1", &format!("{number}{long}"));
        }
        let inner = journal.0.inner.lock();
        assert!(
            inner.ring_size <= RING_MAX_SIZE && inner.ring.len() < 10,
            "{}",
            inner.ring_size
        );
    }

    #[test]
    fn a_place_of_another_run_or_of_the_future_is_lost() {
        let (journal, other) = (Journal::new(7), Journal::new(8));
        other.publish(StateKind::Links, "br0/p1", &true);
        for wrong in [
            place(&other),
            None,
            Some(Cursor {
                epoch: 7,
                sequence: 1,
            }),
        ] {
            assert!(matches!(journal.after(wrong, &ALL, 1), Changes::Lost(_)));
        }
        for text in ["", "7", "7-", "-1", "x-1", "7-x"] {
            assert_eq!(text.parse::<Cursor>(), Err(()), "{text}");
        }
    }
}
