//! The revision of each object.
//!
//! Readers keep earlier versions, and each order writes one. Copies share what no order has written since, so that an order costs
//! the same in an exchange of 30,000 objects as in one of ten.

use std::collections::BTreeMap;

use millrace_ix_model::{Numbered, ObjectId, PersistentMap};
use millrace_ix_store::Revision;

/// The revision that wrote each object last: its ETag.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Revisions(PersistentMap<ByNumber, Revision>);

/// An identifier in the order of the numbers.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct ByNumber {
    number: u32,
    id: ObjectId,
}

impl Numbered for ByNumber {
    fn raw(self) -> u32 {
        self.number
    }
}

impl From<ObjectId> for ByNumber {
    fn from(id: ObjectId) -> ByNumber {
        ByNumber {
            number: id.number(),
            id,
        }
    }
}

impl Revisions {
    /// Returns the revision of an object.
    pub fn of(&self, id: ObjectId) -> Option<Revision> {
        self.0.get(&id.into()).copied()
    }

    /// Returns all objects with their revisions, in the order of their numbers.
    pub fn iter(&self) -> impl Iterator<Item = (ObjectId, Revision)> {
        self.0.iter().map(|(key, revision)| (key.id, *revision))
    }

    /// Returns the objects whose revisions differ from those before, in the order of their types. A deleted object has `None`.
    pub(crate) fn differing(&self, before: &Revisions) -> BTreeMap<ObjectId, Option<Revision>> {
        let keys = self.0.differing(&before.0).into_iter();
        keys.map(|key| (key.id, self.of(key.id))).collect()
    }

    /// Notes that a revision has written an object.
    pub(crate) fn set(&mut self, id: ObjectId, revision: Revision) {
        self.0.insert(id.into(), revision);
    }

    /// Forgets an object that was deleted.
    pub(crate) fn remove(&mut self, id: ObjectId) {
        self.0.remove(&id.into());
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Several types of objects have the same numbers here, unlike in an exchange.
        #[test]
        fn revisions_are_those_of_a_plain_map_and_earlier_copies_stay(
            writes in prop::collection::vec((0usize..3, 0u32..40, any::<bool>()), 1..80),
        ) {
            let (mut revisions, mut oracle) = (Revisions::default(), BTreeMap::new());
            let mut versions = vec![(revisions.clone(), oracle.clone())];
            for ((kind, number, is_deleted), revision) in writes.into_iter().zip(1..) {
                let id = ObjectId::new(["cn", "sv", "nc"][kind], number).unwrap();
                if is_deleted {
                    revisions.remove(id);
                    oracle.remove(&id);
                } else {
                    revisions.set(id, Revision(revision));
                    oracle.insert(id, Revision(revision));
                }
                prop_assert_eq!(revisions.of(id), oracle.get(&id).copied());
                versions.push((revisions.clone(), oracle.clone()));
            }
            for (found, expected) in &versions {
                prop_assert_eq!(&found.iter().collect::<BTreeMap<_, _>>(), expected);
                let both = expected.keys().chain(oracle.keys());
                let slow: BTreeMap<_, _> = both
                    .filter(|id| expected.get(id) != oracle.get(id))
                    .map(|id| (*id, oracle.get(id).copied()))
                    .collect();
                prop_assert_eq!(revisions.differing(found), slow);
                prop_assert_eq!(*found == revisions, *expected == oracle);
            }
        }
    }
}
