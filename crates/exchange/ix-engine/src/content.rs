//! The content of a switch as a map from identity to value, and differences of contents.

use std::collections::BTreeMap;
use std::fmt::Debug;

/// The types of a fabric's entries. The engine compares the identity and the value of entries, and does not
/// interpret them.
pub trait Entries {
    /// The identity of an entry: (table, priority, match) of a flow entry, number of a group or meter. It is never the
    /// cookie.
    type Key: Ord + Clone + Debug;
    /// All other properties of an entry.
    type Value: Clone + Eq + Debug;

    /// Returns the marker entry. It records in a switch the newest revision of the database that changed the
    /// switch. The entry matches no packet.
    fn marker(revision: u64) -> (Self::Key, Self::Value);

    /// Returns the revision of a marker entry, or `None` for other entries.
    fn revision(key: &Self::Key, value: &Self::Value) -> Option<u64>;

    /// Returns true if the entry carries the exchange's owner tag.
    fn is_ours(key: &Self::Key, value: &Self::Value) -> bool;

    /// Returns the entries that a switch must have before an entry with this value: the meter and the groups that
    /// it uses.
    fn references(value: &Self::Value) -> Vec<Self::Key>;
}

/// The entries of a switch.
pub type Content<E> = BTreeMap<<E as Entries>::Key, <E as Entries>::Value>;

/// The values before and after, for each key that differs; `None` stands for an absent entry.
pub type Delta<E> =
    BTreeMap<<E as Entries>::Key, (Option<<E as Entries>::Value>, Option<<E as Entries>::Value>)>;

/// A modification of one entry: the value that the switch has, and the value that it should have.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Modification<K, V> {
    /// The identity.
    pub key: K,
    /// The value that the switch is known to have; `None` if it has no such entry.
    pub from: Option<V>,
    /// The value after the modification; `None` removes the entry.
    pub to: Option<V>,
}

/// Returns the keys that differ between two contents, with both values.
pub fn difference<E: Entries>(have: &Content<E>, want: &Content<E>) -> Delta<E> {
    let mut delta = Delta::<E>::new();
    for (key, value) in have {
        match want.get(key) {
            Some(wanted) if wanted == value => {}
            wanted => {
                delta.insert(key.clone(), (Some(value.clone()), wanted.cloned()));
            }
        }
    }
    for (key, value) in want {
        if !have.contains_key(key) {
            delta.insert(key.clone(), (None, Some(value.clone())));
        }
    }
    delta
}
